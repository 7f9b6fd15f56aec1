"""Which GPU a run uses: the one of ``--gpu``, else the one that it has had, else what Compose's variables say.

A machine may number its cards differently when one is added or taken out, so a run remembers its card by UUID.
"""

from __future__ import annotations

from launcher.act.compose import project
from launcher.observe.nvml import Nvml
from launcher.options import RefusedError, RunOptions, RuntimeKind, SimulatorKind

FIRST = "0"


def pick(options: RunOptions, remembered: str = "") -> tuple[int, str]:
    """Return the index of the card to plan with, and what of its use by containers isn't planned; empty if all is.

    Args:
        options: ``gpu`` wins over everything else.
        remembered: UUID of the card that the run has had; empty for none.

    Raises:
        RefusedError: there is no such card.
    """
    if options.gpu is not None:
        return options.gpu, ""
    if remembered and not _needs_none(options):
        return _index(remembered, "The run's GPU"), ""
    if options.runtime is RuntimeKind.PROCESS:
        return int(FIRST), ""
    return _of_compose(
        project.setting("CARLA_GPU", options.stack) or FIRST, project.setting("AGENT_GPU", options.stack) or FIRST
    )


def _of_compose(simulators: str, agents: str) -> tuple[int, str]:
    index = _index(simulators, "CARLA_GPU:")
    if simulators == agents or index == _index(agents, "AGENT_GPU:"):
        return index, ""
    return index, (
        f"CARLA_GPU is {simulators} and AGENT_GPU is {agents}: two cards are unplanned; plan, watch and lock "
        f"count with GPU {index} for both; --gpu N puts both on one"
    )


def _needs_none(options: RunOptions) -> bool:
    no_carla = options.simulator_host is not None or options.simulator in (SimulatorKind.LITE, SimulatorKind.ELSEWHERE)
    return no_carla and options.device == "cpu"


def _index(name: str, whose: str) -> int:
    index = Nvml.index_of(name)
    if index is None:
        raise RefusedError(
            f"{whose} {name} isn't in this machine: put it back, name another with --gpu, or go on without one: "
            "--simulator carla-lite --device cpu."
        )
    return index
