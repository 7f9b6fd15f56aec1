"""Chooses the GPUs of a run: its earlier ones unless ``--gpu`` names others, else those of ``--gpu`` or of Compose.

The indices may change when a GPU is added or removed, so a run remembers its GPUs by UUID.
"""

from __future__ import annotations

from carla_launcher.act.compose import project
from carla_launcher.observe.pools import Cards
from carla_launcher.options import RefusedError, RunOptions, RuntimeKind
from carla_launcher.simulators import asked_for
from carla_run.memory.nvml import DriverError, Nvml


def pick(options: RunOptions, remembered: tuple[str, str] = ("", "")) -> Cards:
    """Return the GPUs of simulator and agent.

    Args:
        options: ``gpu`` overrides Compose's variables, which count unless local processes are asked for.
        remembered: UUIDs of the GPUs that simulator and agent used before; empty for none, or if others are named.

    Raises:
        RefusedError: the machine doesn't have the GPU.
        DriverError: the driver fails, and a GPU that the run needs is named by its UUID.
    """
    simulator, given = asked_for(options), options.gpu
    needs_none = simulator is not None and not simulator.needs_card and options.device == "cpu"

    def card(uuid: str, index: int | None, variable: str) -> int:
        if uuid and not needs_none:
            return _index(uuid, "The run's GPU")
        if index is not None:
            return index if needs_none else _index(str(index), f"--gpu {given}: GPU")
        named = "" if options.runtime is RuntimeKind.PROCESS else project.setting(variable, options.stack)
        try:
            return _index(named, f"{variable}:") if named else 0
        except DriverError:
            if not needs_none:
                raise
            return 0

    return Cards(
        card(remembered[0], None if given is None else given.simulator, "CARLA_GPU"),
        card(remembered[1], None if given is None else given.agent, "AGENT_GPU"),
    )


def _index(name: str, whose: str) -> int:
    index, expected = Nvml.index_of(name), ""
    if index and name.isdecimal() and 0 < (count := Nvml.count() or 0) <= index:
        index, expected = None, f", expected {' or '.join(map(str, range(count)))}"
    if index is None:
        raise RefusedError(
            f"{whose} {name} isn't in this machine{expected}: put it back, name another with --gpu, or do without "
            "a GPU: --simulator carla-lite --device cpu."
        )
    return index
