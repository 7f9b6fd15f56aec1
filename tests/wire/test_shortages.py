"""Memory that really runs out in a whole training (RLIMIT_AS of its learner): in the rehearsal, and in mid-run."""

from __future__ import annotations

import resource
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agent.exchange import request_files
from agent.memory import heap
from agent.run_directory import RunDirectory
from tests.conftest import StartServer
from tests.soak.sight import Sight
from tests.wire.conftest import NewRun
from tests.wire.trainee import SMALL, Run

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]

SEED = 3
WARM_UP_STEPS, STEPS = 20, 26
BATCH = 1024
SETTINGS: dict[str, Any] = {
    **SMALL,
    "seed": SEED,
    "td3": {"batch_size": BATCH, "network": {"channels": [4, 4, 4], "features": 16, "hidden": [4096]}},
    "training": {**SMALL["training"], "lockstep": True, "total_steps": STEPS},
}
"""An update takes 100 MiB beside what a learner keeps, and half of that in two parts."""
ROOM_MIB = 126
"""For the rehearsal: 36 MiB of throw-away batch, some 15 of kernels, and three quarters of what the update takes."""
ASIDE_MIB = heap.SET_ASIDE / 2**20
"""Given up at the first shortage."""


@pytest.fixture(autouse=True)
def one_heap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no thread reserve addresses for a heap of its own, 64 MiB each, at some moment or other."""
    monkeypatch.setenv("MALLOC_ARENA_MAX", "1")


def mapped_mib(run: Run) -> float:
    """Return what a run's learner has mapped."""
    assert run.process is not None
    lines = Path(f"/proc/{run.process.pid}/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmSize:"))


def limit(pid: int, mib: float) -> None:
    """Let a running process map no more than so much."""
    resource.prlimit(pid, resource.RLIMIT_AS, (round(mib * 2**20), resource.RLIM_INFINITY))


def lift(run: Run) -> None:
    """Take the limit away again, from the collector, too, which inherits it and has imported nothing yet.

    It counts addresses, so the mapped replay, too, which comes after the rehearsal and takes no memory.
    """
    run.wait(lambda: bool(Sight(run).collectors))
    assert run.process is not None
    for pid in (run.process.pid, *Sight(run).collectors):
        resource.prlimit(pid, resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def left(run: Run) -> dict[str, bytes]:
    """Return what a run has learned and driven."""
    rows = {name: (run.path / "replay" / name).read_bytes() for name in ("frames.u8", "rows.bin")}
    return {**rows, **{name: tensor.tobytes() for name, tensor in run.tensors.items()}}


def distance(ours: Run, theirs: Run) -> float:
    """Return how far two runs' weights are apart, relative to their size."""
    weights = [name for name in theirs.tensors if name.startswith("online.")]
    difference, size = (
        np.sqrt(sum(float(np.square(of[name], dtype=np.float64).sum()) for name in weights))
        for of in ({name: ours.tensors[name] - theirs.tensors[name] for name in weights}, theirs.tensors)
    )
    return float(difference / size)


def test_a_shortage_in_the_first_update_is_met_before_the_first_step(
    start_server: StartServer, new_run: NewRun
) -> None:
    """The rehearsal finds the micro-batch, and the run is, bit for bit, the one that was told to take it."""
    short = new_run("short", start_server(seed=SEED), settings=SETTINGS)
    process = short.start()
    short.wait(lambda: bool(short.events("started")))
    limit(process.pid, mapped_mib(short) - ASIDE_MIB + ROOM_MIB)
    short.wait(lambda: bool(short.events("rehearsed")))
    lift(short)
    assert short.steps == 0
    told, rehearsed = short.events("out_of_memory"), short.events("rehearsed")[0]
    assert {event["phase"] for event in told} <= {"rehearsed critic", "rehearsed actor"}
    assert all("DefaultCPUAllocator" in event["cause"] or "primitive" in event["cause"] for event in told)
    assert told[-1]["action"] == "halved"
    assert rehearsed["micro_batch"] == told[-1]["next_micro_batch"] < BATCH
    assert {event["updates"] for event in told} == {0}
    short.finish()
    assert short.events("out_of_memory") == told, "what the rehearsal found is enough"
    assert (short.beat["micro_batch"], short.beat["batch"]) == (rehearsed["micro_batch"], BATCH)
    assert (short.beat["step"], short.beat["updates"]) == (STEPS, STEPS - WARM_UP_STEPS)

    whole = new_run("whole", start_server(seed=SEED), settings=SETTINGS)
    whole.train()
    assert not whole.events("out_of_memory")
    as_told = new_run("as-told", start_server(seed=SEED), settings=SETTINGS)
    as_told.train("--set", f"td3.micro_batch={rehearsed['micro_batch']}")
    assert [name for name, content in left(as_told).items() if left(short)[name] != content] == []
    assert distance(short, whole) < 1e-3


def test_a_shortage_in_mid_run_is_met_within_the_same_update(start_server: StartServer, new_run: NewRun) -> None:
    """A learner that computes in small parts is told to take the whole batch, and there is no room for it."""
    settings = {**SETTINGS, "td3": {**SETTINGS["td3"], "micro_batch": 32}}
    steps = ("--max-timesteps", "60")
    calm, short = (new_run(name, start_server(seed=SEED), settings=settings) for name in ("calm", "short"))
    calm.train(*steps)
    process = short.start(*steps)
    short.wait(lambda: short.beat["step"] >= WARM_UP_STEPS + 3)
    limit(process.pid, mapped_mib(short) - ASIDE_MIB + 80)
    run = RunDirectory(short.path)
    answer = request_files.await_answer(run, request_files.send(run, "apply", {"td3.micro_batch": BATCH}))
    assert answer.result == "ok"
    short.finish()
    told = short.events("out_of_memory")
    assert {event["phase"] for event in told} <= {"critic", "actor"}
    assert (told[0]["action"], told[0]["micro_batch"]) == ("collected", BATCH)
    assert (told[-1]["action"], told[0]["batch"]) == ("halved", BATCH)
    assert told[0]["updates"] >= 3
    assert len({event["updates"] for event in told if event["phase"] == "critic"}) == 1, "one update, tried again"
    assert short.beat["micro_batch"] == told[-1]["next_micro_batch"] < BATCH
    assert (short.beat["step"], short.beat["updates"]) == (60, 60 - WARM_UP_STEPS)
    assert distance(short, calm) < 1e-2
