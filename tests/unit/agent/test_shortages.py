"""An update that memory really ran out in (RLIMIT_AS) ends as the undisturbed one would have.

The limits are set in a process of its own: this file, run as a program.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from carla_run.exits import Exit
from carla_td3.config import TD3Config
from carla_td3.exits import AgentError
from carla_td3.memory.recovery import Recovery
from carla_td3.td3.td3 import TD3
from tests.unit.agent.batches import random_batch
from tests.unit.agent.watched import SIZE, SMALL, Watched, distance, recovery_of

WIDE_ACTOR = SMALL.network.model_copy(update={"hidden": (4096,)})  # so that its phase takes some MiB, too


def update_under_limits(phase: str, settings: TD3Config) -> Iterator[dict[str, Any]]:
    """Yield what came of one update under each of a row of limits to the address space, set as the phase begins."""
    batch, undisturbed, watched = random_batch(SIZE), Watched(settings), Watched(settings)
    start = watched.td3.state()
    metrics = undisturbed.td3.update(batch)
    for micro_batch in (SIZE, 25, 12, 6, 3, 1):  # oneDNN writes code for each size once, 5 MiB of it: not what is meant
        watched.td3.update(batch, Recovery(SIZE, micro_batch, watched.td3.executor.release, print).attempt)

    def update_within(room: int) -> dict[str, Any]:
        watched.td3.load_state(start)
        recovery, reported = recovery_of(watched.td3)
        outcome: dict[str, Any] = {"room": room}
        try:
            found = watched.td3.update(batch, limited(watched.td3, recovery, phase, room))
        except AgentError as error:
            outcome |= {"exit": int(error.code), "sentence": str(error)}
        finally:
            resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        if "exit" not in outcome:
            outcome |= {
                "micro_batch": recovery.micro_batch,
                "weights": distance(watched.weights(), undisturbed.weights()),
                "gradients": distance(watched.gradients, undisturbed.gradients),
                "metrics": max(abs(float(found[name] - metrics[name])) for name in metrics),
                "same_scale": watched.scale() == undisturbed.scale(),
            }
        return outcome | {"reported": [(one.phase, one.action, one.asked_bytes, one.cause) for one in reported]}

    room, too_small, parts = 2**20, 2**20, False
    while True:  # from a part to its half the need halves, too
        yield (outcome := update_within(room))
        if not outcome["reported"]:
            break
        parts = parts or in_parts(outcome)
        if outcome.get("micro_batch", 1) == 1:
            too_small = room
        room = room * 5 // 4
    enough = room
    while not parts and enough - too_small > 2**14:  # what lies where in the heap can leave less between than a step
        room = (too_small + enough) // 2
        yield (outcome := update_within(room))
        parts = in_parts(outcome)
        too_small, enough = (room, enough) if outcome.get("micro_batch", 1) == 1 else (too_small, room)


def in_parts(outcome: dict[str, Any]) -> bool:
    return 1 < int(outcome.get("micro_batch", 1)) < SIZE


def limited(td3: TD3, recovery: Recovery, limited_phase: str, room: int) -> Callable[..., Any]:
    def attempt(phase: str, run: Callable[[int], Any], rows: int) -> Any:
        if phase == limited_phase:
            td3.executor.release()  # with the critic's gradients' room the actor needs no part
            used = 4096 * int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
            resource.setrlimit(resource.RLIMIT_AS, (used + room, resource.RLIM_INFINITY))
        return recovery.attempt(phase, run, rows)

    return attempt


def limits_seen(phase: str, precision: str) -> list[dict[str, Any]]:
    # A fixed threshold: glibc then hands every larger block back, and the limit means what it says.
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "16384", "MALLOC_TRIM_THRESHOLD_": "16384"}
    command = [sys.executable, "-m", "tests.unit.agent.test_shortages", phase, precision]
    root = Path(__file__).resolve().parents[3]
    ended = subprocess.run(command, check=False, capture_output=True, text=True, env=environment, cwd=root)
    assert ended.returncode == 0, ended.stderr
    return [json.loads(line) for line in ended.stdout.splitlines()]


@pytest.mark.parametrize(
    ("phase", "precision", "weights", "gradients"),
    [
        ("critic", "float32", 2e-6, 2e-6),
        ("actor", "float32", 2e-6, 2e-6),
        pytest.param("critic", "bfloat16", 1e-3, 1e-2, marks=pytest.mark.long),
        pytest.param("critic", "float16", 1e-3, 1e-2, marks=pytest.mark.long),
    ],
)
def test_a_real_shortage_changes_the_update_by_rounding_only(
    phase: str, precision: str, weights: float, gradients: float
) -> None:
    seen = limits_seen(phase, precision)
    ended = [one for one in seen if "exit" in one]
    recovered = [one for one in seen if "exit" not in one and one["reported"]]
    assert all(one["exit"] == Exit.OUT_OF_MEMORY for one in ended)
    assert any(map(in_parts, recovered)), "no limit let a part through"
    assert all(name == phase for one in recovered for name, *_ in one["reported"])
    assert any("DefaultCPUAllocator" in cause and asked for one in recovered for _, _, asked, cause in one["reported"])
    assert max(one["weights"] for one in recovered) <= weights
    assert max(one["gradients"] for one in recovered) <= gradients
    assert all(one["same_scale"] for one in recovered)


if __name__ == "__main__":
    torch.set_num_threads(1)
    widths = WIDE_ACTOR if sys.argv[1] == "actor" else SMALL.network
    chosen = SMALL.model_copy(update={"precision": sys.argv[2], "network": widths})
    for outcome in update_under_limits(sys.argv[1], chosen):
        print(json.dumps(outcome), flush=True)
