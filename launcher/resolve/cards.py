"""Which GPU a run uses: the one of ``--gpu``, else the one that it has had, else what Compose's variables say.

A machine counts its cards anew when one is added or taken out, so a run remembers its card by UUID.
"""

from __future__ import annotations

from dataclasses import dataclass

from contract.exits import Exit
from launcher.act.compose import project
from launcher.observe.nvml import Nvml
from launcher.options import RuntimeKind, Wish
from launcher.resolve.planning import ImpossibleError, Simulates

FIRST = "0"


@dataclass(frozen=True)
class Pick:
    """A GPU by its index, and what of its use by containers isn't planned; empty if all is."""

    index: int
    remark: str = ""


def pick(wish: Wish, remembered: str = "") -> Pick:
    """Return the card to plan with.

    Args:
        wish: ``gpu`` wins over everything else.
        remembered: UUID of the card that the run has had; empty for none.

    Raises:
        ImpossibleError: there is no such card (65).
    """
    if wish.gpu is not None:
        return Pick(wish.gpu)
    if remembered and not _needs_none(wish):
        return Pick(_index(remembered, "The run's GPU"))
    if wish.runtime is RuntimeKind.PROCESS:
        return Pick(int(FIRST))
    return _of_compose(
        project.setting("CARLA_GPU", wish.stack) or FIRST, project.setting("AGENT_GPU", wish.stack) or FIRST
    )


def _of_compose(simulators: str, agents: str) -> Pick:
    index = _index(simulators, "CARLA_GPU:")
    if simulators == agents or index == _index(agents, "AGENT_GPU:"):
        return Pick(index)
    return Pick(
        index,
        f"CARLA_GPU is {simulators} and AGENT_GPU is {agents}: two cards are unplanned; plan, watch and lock "
        f"count with GPU {index} for both; --gpu N puts both on one",
    )


def _needs_none(wish: Wish) -> bool:
    no_carla = wish.simulator_host is not None or wish.simulator in (Simulates.LITE, Simulates.ELSEWHERE)
    return no_carla and wish.device == "cpu"


def _index(name: str, whose: str) -> int:
    index = Nvml.index_of(name)
    if index is None:
        raise ImpossibleError(
            f"{whose} {name} isn't in this machine: put it back, name another with --gpu, or go on without one: "
            "--simulator carla-lite --device cpu.",
            Exit.BAD_CONFIG,
        )
    return index
