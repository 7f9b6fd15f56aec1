"""Staging for scenarios of a launched run: figures of a card, and messages from outside.

Owns what is done to a run from beside its launcher. What goes wrong, and when, is each test's to say.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from carla_launcher.observe.gpu_lock import SHARED
from carla_launcher.observe.memory import MemoryReader
from carla_launcher.observe.pools import Cards
from carla_run import requests
from carla_run.paths import RunPaths
from tests.conftest import REPOSITORY
from tests.gpu_stub.stub import Figures, build
from tests.memory_hog import Hog
from tests.wire.launched import Launched

QUICK: dict[str, Any] = {
    "memory.pressure_s": 1,
    "memory.slope_window_s": 20,
    "restore.settle_s": 1,
    "restore.hold_s": 2,
    "restore.probation_s": 5,
    "watch.interval_s": 0.5,
}
"""Limits of a launcher that makes up its mind sooner."""
CARLA = f"{sys.executable} -m carla_lite --host 127.0.0.1 --port {{port}} --map Lite01"
"""Stands for a CARLA that is installed here; the card's figures say what it holds there."""
PRESSED_MIB = 2048
"""Memory that a foreign process takes; before that, 152 more are left beyond the reserve, of which the run takes some
600.
"""

MORE_MIB, LATE_S = 2048, 6.0

WIDE: dict[str, Any] = {"batch_size": 1024, "network": {"channels": [4, 4, 4], "features": 16, "hidden": [4096]}}
"""An agent whose updates take far more than the rest of it."""
ROOM_MIB = 70
"""An update takes 120 to 200 MiB beside what a learner keeps, by the shape of its heap; half a batch half of that."""


def free_ram_mib(folder: Path) -> float:
    """Return what a launcher finds free in the RAM pool."""
    (pool,) = [pool for pool in MemoryReader(folder, Cards()).read().pools if pool.name == "ram"]
    assert pool.free.mib is not None
    return pool.free.mib


def card_of(folder: Path, total_mib: float) -> Iterator[Figures]:
    """Yield a card for this test only: a launcher locks the card that it uses for the whole machine."""
    card = Figures(folder / "card", build(folder), total_mib=total_mib, uuid=f"GPU-stub-{os.getpid()}")
    yield card
    (SHARED / f"carla-td3-{card.uuid}.lock").unlink(missing_ok=True)


def pressing(folder: Path, micro_batch: int) -> dict[str, Any]:
    """Return limits under which :func:`press` costs the micro-batch, and nothing restores it."""
    reserve_mib = round(free_ram_mib(folder) - PRESSED_MIB - 152)
    ladder = only_micro_batches(micro_batch, 2 * PRESSED_MIB)
    return {**QUICK, "memory.reserve_mib.ram": reserve_mib, "ladder": ladder, "restore.hold_s": 3600}


def only_micro_batches(micro_batch: int, frees_mib: float) -> dict[str, list[dict[str, Any]]]:
    """Return a ladder of one rung, which is believed to free so much of the host's memory."""
    rung = {"name": "micro_batches", "does": "apply", "values": {"td3.micro_batch": micro_batch}, "cost": "time"}
    return {"ram": [{**rung, "frees_mib": {"ram": frees_mib}}, {"name": "stop", "does": "stop", "cost": "the run"}]}


def press(run: Launched, folder: Path) -> None:
    """Have a foreign process take RAM until the launcher has given way; it leaves then."""
    program = folder / "borrower"
    program.symlink_to(sys.executable)
    with Hog(str(program), str(REPOSITORY / "tests" / "memory_hog.py")) as hog:
        assert hog.touch(PRESSED_MIB)
        for _ in range(MORE_MIB // 256):  # what others of this machine gave back since the limits were made
            if _gives_way(run):
                return
            assert hog.touch(256)
        run.until(lambda: bool(run.events("rung_taken")))


def _gives_way(run: Launched) -> bool:
    """Return whether the launcher gives way within a few seconds."""
    by_s = time.monotonic() + LATE_S
    run.until(lambda: bool(run.events("rung_taken")) or time.monotonic() > by_s)
    return bool(run.events("rung_taken"))


def short_of_memory(updates: int) -> dict[str, str]:
    """Return the environment in which a learner's first updates, the rehearsed one included, run out of memory."""
    return {
        "PYTHONPATH": str(REPOSITORY / "scripts" / "shortage"),
        "SHORTAGE_ROOM_MIB": str(ROOM_MIB),
        "SHORTAGE_UPDATES": str(updates),
        "MALLOC_ARENA_MAX": "1",  # no thread reserves addresses for a heap of its own at some moment or other
    }


def settings(**values: Any) -> tuple[str, ...]:
    """Return options of ``up`` for the agent's values, ``__`` for the dots of their keys; they come last."""
    pairs = ((key.replace("__", "."), json.dumps(value)) for key, value in values.items())
    return ("--", *(word for key, value in pairs for word in ("--set", f"{key}={value}")))


def taken(run: Launched) -> list[dict[str, Any]]:
    """Return the steps on which the run stands."""
    return list(run.state.get("taken", ()))


def overrides(run: Launched) -> dict[str, Any]:
    """Return ``overrides.yaml``, with which the agent's next start begins."""
    path = run.run / "overrides.yaml"
    return dict(yaml.safe_load(path.read_text(encoding="utf-8"))) if path.exists() else {}


def ask(run: Launched, kind: str, values: dict[str, Any]) -> None:
    """Ask the agent, as a person beside the launcher may."""
    directory = RunPaths(run.run)
    answer = requests.await_answer(directory, requests.send(directory, kind, values))
    assert answer.result == "ok", answer.sentence


def status(run: Launched) -> dict[str, Any]:
    """Return what ``status`` tells programs."""
    found = run.command("status", "--once", "--json")
    assert found.returncode == 0, found.stderr
    return dict(json.loads(found.stdout))
