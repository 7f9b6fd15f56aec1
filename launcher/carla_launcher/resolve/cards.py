"""Chooses the GPUs of a run: its earlier ones unless ``--gpu`` names others, else those of ``--gpu`` or of Compose.

The indices may change when a GPU is added or removed, so a run remembers its GPUs by UUID.
"""

from __future__ import annotations

from carla_launcher.act.compose import project
from carla_launcher.observe.pools import Cards, Gpu
from carla_launcher.options import RefusedError, RunOptions, RuntimeKind
from carla_launcher.simulators import asked_for
from carla_run.memory.nvml import DriverError, Nvml


def needs_none(options: RunOptions) -> bool:
    """Return whether options ask for a simulator and an agent that need no GPU."""
    simulator = asked_for(options)
    return simulator is not None and not simulator.needs_card and options.device == "cpu"


def refuse_without_any(options: RunOptions, gpu: Gpu) -> None:
    """Refuse ``--gpu`` on a machine without a GPU, unless the options need none.

    Raises:
        RefusedError: see above.
    """
    if options.gpu is not None and gpu is Gpu.NONE and not needs_none(options):
        raise RefusedError(f"--gpu {options.gpu}: there is no GPU here: leave it out.")


def pick(options: RunOptions, remembered: tuple[str, str] = ("", "")) -> Cards:
    """Return the GPUs of simulator and agent.

    Args:
        options: ``gpu`` overrides Compose's variables, which count unless local processes are asked for.
        remembered: UUIDs of the GPUs that simulator and agent used before; empty for none, or if others are named.

    Raises:
        RefusedError: the machine doesn't have the GPU.
        DriverError: the driver fails, and a GPU that the run needs is named by its UUID.
    """
    given, none_needed = options.gpu, needs_none(options)

    def card(uuid: str, index: int | None, variable: str) -> int:
        if uuid and not none_needed:
            return _index(uuid, "The run's GPU", options)
        if index is not None:
            return index if none_needed else _index(str(index), f"--gpu {given}: GPU", options)
        named = "" if options.runtime is RuntimeKind.PROCESS else project.setting(variable, options.stack)
        try:
            return _index(named, f"{variable}:", options) if named else 0
        except DriverError:
            if not none_needed:
                raise
            return 0

    return Cards(
        card(remembered[0], None if given is None else given.simulator, "CARLA_GPU"),
        card(remembered[1], None if given is None else given.agent, "AGENT_GPU"),
    )


def _index(name: str, whose: str, options: RunOptions) -> int:
    index, expected = Nvml.index_of(name), ""
    if index and name.isdecimal() and 0 < (count := Nvml.count() or 0) <= index:
        index, expected = None, f", expected {' or '.join(map(str, range(count)))}"
    if index is None:
        advice = "put it back, or name another with --gpu"
        if not options.command:  # it has no --device
            without = "do without a GPU: --simulator carla-lite (agent: --device cpu, too)"
            advice = f"put it back, name another with --gpu, or {without}"
        raise RefusedError(f"{whose} {name} isn't in this machine{expected}: {advice}.")
    return index
