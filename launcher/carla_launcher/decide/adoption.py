"""What the agent's heartbeat shows it to compute with other than was planned, and whether memory is why. Pure.

Only what was given up for memory's sake is a rung: it can be restored once memory is there. A card that
PyTorch can't use is none; nothing frees itself there, and starting again mends nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from carla_launcher.sizes import CPU, CUDA, DEVICE
from carla_run.configuration.program_file import FEWER, HALF, ProgramFile
from carla_run.heartbeat import Cuda, Heartbeat

WITHOUT_CUDA = {
    Cuda.CPU_BUILD: "its PyTorch is a build without CUDA",
    Cuda.HIDDEN: "CUDA_VISIBLE_DEVICES hides every card from its PyTorch",
    Cuda.NO_DEVICE: "the kernel shows it no card (a container needs the NVIDIA Container Toolkit)",
    Cuda.REFUSED: "the driver refuses its PyTorch, as one that is too old does",
    Cuda.USABLE: "its PyTorch sees the card, and was asked to compute without it",
    None: "it was told to",
}
"""Why an agent computes on the CPU, by its heartbeat, if memory isn't why."""


def given_up(beat: Heartbeat, expected: Mapping[str, Any], program: ProgramFile) -> dict[str, Any]:
    """Return the value that the agent took for memory's sake, by dotted key; empty if it took none.

    Args:
        beat: what it computes with.
        expected: the values that hold, by dotted key; ``device`` is cuda or cpu.
        program: which rungs it takes by itself, and how its heartbeat shows them.
    """
    return next(_given_up(beat, expected, program), {})


def why_without_cuda(beat: Heartbeat, expected: Mapping[str, Any], program: ProgramFile) -> str | None:
    """Return why an agent planned on the card computes on the CPU; None if it doesn't, or does for memory's sake."""
    left_card = expected.get(DEVICE) == CUDA and beat.device == CPU
    if not left_card or any(DEVICE in taken for taken in _given_up(beat, expected, program)):
        return None
    return WITHOUT_CUDA[beat.cuda]


def _given_up(beat: Heartbeat, expected: Mapping[str, Any], program: ProgramFile) -> Iterator[dict[str, Any]]:
    now, then = program.present(expected), program.shown(beat)
    for rung in (rung for rung in program.rungs if beat.gave_way in rung.by_itself):
        taken = {key: then[key] for key in rung.values if key in then}
        usable = DEVICE not in taken or beat.cuda in (None, Cuda.USABLE)
        if usable and taken and all(_is_less(now.get(key), taken[key], rung.values[key]) for key in taken):
            yield taken


def _is_less(now: object, then: object, wanted: object) -> bool:
    """Return whether a value is what a rung makes of another one."""
    if wanted in (HALF, FEWER):
        return isinstance(now, int) and isinstance(then, int) and 0 < then < now
    return now != then and (then in wanted if isinstance(wanted, list) else then == wanted)
