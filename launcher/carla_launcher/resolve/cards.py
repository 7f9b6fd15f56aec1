"""Which GPUs a run uses: those that it has had, unless others are named; else those of ``--gpu``, else of Compose.

A machine may number its cards differently when one is added or taken out, so a run remembers its cards by UUID.
"""

from __future__ import annotations

from carla_launcher.act.compose import project
from carla_launcher.observe.pools import Cards
from carla_launcher.options import RefusedError, RunOptions, RuntimeKind, SimulatorKind
from carla_run.memory.nvml import Nvml


def pick(options: RunOptions, remembered: tuple[str, str] = ("", "")) -> Cards:
    """Return the cards to plan with.

    Args:
        options: ``gpu`` wins over Compose's variables, which count unless local processes are asked for.
        remembered: UUIDs of the cards that simulator and agent have had; empty for none, or where others are named.

    Raises:
        RefusedError: there is no such card.
    """
    simulator, agent = ("", "") if _needs_none(options) else remembered
    given = options.gpu
    return Cards(
        _card(options, simulator, None if given is None else given.simulator, "CARLA_GPU"),
        _card(options, agent, None if given is None else given.agent, "AGENT_GPU"),
    )


def _card(options: RunOptions, remembered: str, given: int | None, variable: str) -> int:
    if remembered:
        return _index(remembered, "The run's GPU")
    if given is not None:
        return given if _needs_none(options) else _index(str(given), f"--gpu {options.gpu}: GPU")
    named = "" if options.runtime is RuntimeKind.PROCESS else project.setting(variable, options.stack)
    return _index(named, f"{variable}:") if named else 0


def _needs_none(options: RunOptions) -> bool:
    no_carla = options.simulator_host is not None or options.simulator in (SimulatorKind.LITE, SimulatorKind.ELSEWHERE)
    no_carla = no_carla or options.cluster is not None
    return no_carla and options.device == "cpu"


def _index(name: str, whose: str) -> int:
    index, expected = Nvml.index_of(name), ""
    if index and name.isdecimal() and 0 < (count := Nvml.count()) <= index:
        index, expected = None, f", expected {' or '.join(map(str, range(count)))}"
    if index is None:
        raise RefusedError(
            f"{whose} {name} isn't in this machine{expected}: put it back, name another with --gpu, or go on without "
            "one: --simulator carla-lite --device cpu."
        )
    return index
