"""Finds where the agent's heartbeat differs from the plan, and whether memory is the reason. Pure.

A value that the agent lowered to save memory counts as a rung, which can be restored when memory is free. An agent on
the CPU because PyTorch can't use the GPU is no rung: no memory and no restart changes that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

from carla_launcher.decide.ladder import RungStep
from carla_launcher.sizes import CPU, CUDA, DEVICE
from carla_run.configuration.program_file import FEWER, HALF, ProgramFile
from carla_run.heartbeat import Cuda, Heartbeat

WITHOUT_CUDA = {
    Cuda.CPU_BUILD: "its PyTorch was built without CUDA",
    Cuda.HIDDEN: "CUDA_VISIBLE_DEVICES hides every GPU from its PyTorch",
    Cuda.NO_DEVICE: "it has no GPU device (a container needs the NVIDIA Container Toolkit)",
    Cuda.REFUSED: "the driver refuses its PyTorch; the driver may be too old",
    Cuda.USABLE: "its PyTorch sees the GPU, but its device is set to the CPU",
    None: "its device is set to the CPU",
}
"""Reason of an agent on the CPU, by the heartbeat's ``cuda``, if memory isn't the reason."""


def lowered_values(beat: Heartbeat, expected: Mapping[str, Any], program: ProgramFile) -> dict[str, Any]:
    """Return the values that the agent lowered by itself to save memory, by dotted key; empty if none.

    Args:
        beat: the agent's heartbeat.
        expected: the planned values, by dotted key; ``device`` is cuda or cpu.
        program: the agent's rungs, and the fields of its heartbeat that show them.
    """
    return next(_lowered_values(beat, expected, program), {})


def cpu_reason(beat: Heartbeat, expected: Mapping[str, Any], program: ProgramFile) -> str | None:
    """Return why an agent planned for the GPU runs on the CPU; None if it doesn't, or if memory is the reason."""
    left_card = expected.get(DEVICE) == CUDA and beat.device == CPU
    if not left_card or any(DEVICE in taken for taken in _lowered_values(beat, expected, program)):
        return None
    return WITHOUT_CUDA[beat.cuda]


def rung_with(values: Mapping[str, Any], steps: Iterable[RungStep], program: ProgramFile) -> str:
    """Return the name of a rung with lowered values, of the ladder or of those that the agent takes by itself.

    A heartbeat may show only some of a rung's values.
    """
    of_ladder = (step.rung for step in steps if dict(step.values) == values)
    by_itself = (rung.name for rung in program.rungs if rung.by_itself and values.keys() <= rung.values.keys())
    return next(chain(of_ladder, by_itself))


def _lowered_values(beat: Heartbeat, expected: Mapping[str, Any], program: ProgramFile) -> Iterator[dict[str, Any]]:
    now, then = program.present(expected), program.shown(beat)
    for rung in (rung for rung in program.rungs if beat.gave_way in rung.by_itself):
        taken = {key: then[key] for key in rung.values if key in then}
        usable = DEVICE not in taken or beat.cuda in (None, Cuda.USABLE)
        if usable and taken and all(_is_less(now.get(key), taken[key], rung.values[key]) for key in taken):
            yield taken


def _is_less(now: object, then: object, wanted: object) -> bool:
    """Return whether a rung could have turned one value into the other."""
    if wanted in (HALF, FEWER):
        return isinstance(now, int) and isinstance(then, int) and 0 < then < now
    return now != then and (then in wanted if isinstance(wanted, list) else then == wanted)
