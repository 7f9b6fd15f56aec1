"""What the agent's heartbeat shows it to compute with other than was planned, and whether memory is why. Pure.

Only what was given up for memory's sake is a rung: it can be restored once memory is there. A card that
PyTorch can't use is none; nothing frees itself there, and starting again mends nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from carla_run.events import AgentEvent
from carla_run.heartbeat import Cuda, Heartbeat

FOR_MEMORY = frozenset({AgentEvent.OUT_OF_MEMORY, AgentEvent.MICRO_BATCH_LOWERED, AgentEvent.DEVICE})
"""The agent's events that say so: in mid-update, after one that ended without a word, at the start for want of VRAM."""
LEAVES_CARD = frozenset({AgentEvent.OUT_OF_MEMORY, AgentEvent.DEVICE})
"""Those of them by which an agent leaves the card."""
WITHOUT_CUDA = {
    Cuda.CPU_BUILD: "its PyTorch is a build without CUDA",
    Cuda.HIDDEN: "CUDA_VISIBLE_DEVICES hides every card from its PyTorch",
    Cuda.NO_DEVICE: "the kernel shows it no card (a container needs the NVIDIA Container Toolkit)",
    Cuda.REFUSED: "the driver refuses its PyTorch, as one that is too old does",
    Cuda.USABLE: "its PyTorch sees the card, and was asked to compute without it",
    None: "it was told to",
}
"""Why an agent computes on the CPU, by its heartbeat, if memory isn't why."""


def given_up(beat: Heartbeat, expected: Mapping[str, Any]) -> dict[str, Any]:
    """Return the value that the agent took for memory's sake, by dotted key; empty if it took none.

    Args:
        beat: what it computes with.
        expected: the values that hold, by dotted key; ``device`` is cuda or cpu.
    """
    batch = expected.get("td3.micro_batch") or expected.get("td3.batch_size")
    if beat.gave_way in FOR_MEMORY and isinstance(batch, int) and 0 < beat.micro_batch < batch:
        return {"td3.micro_batch": beat.micro_batch}
    if _left_the_card(beat, expected) and why_without_cuda(beat, expected) is None:
        return {"device": "cpu"}
    return {}


def why_without_cuda(beat: Heartbeat, expected: Mapping[str, Any]) -> str | None:
    """Return why an agent planned on the card computes on the CPU; None if it doesn't, or does for memory's sake."""
    for_memory = beat.gave_way in LEAVES_CARD and beat.cuda in (None, Cuda.USABLE)
    if not _left_the_card(beat, expected) or for_memory:
        return None
    return WITHOUT_CUDA[beat.cuda]


def _left_the_card(beat: Heartbeat, expected: Mapping[str, Any]) -> bool:
    return expected.get("device") == "cuda" and beat.device == "cpu"
