"""The learner of ``replay_container.py``: fills a ring, then makes updates from it, as many as each line of its input
says.

Run by that benchmark, in its containers: ``python replay_worker.py RUN_DIRECTORY TRANSITIONS BATCH PRECISION``. It
answers with one JSON object a line, the first when the ring is full.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path
from typing import Any

from replay import fill

from carla_run.paths import RunPaths
from carla_td3.config import AgentConfig, ReplayConfig, TD3Config, TrainingConfig
from carla_td3.td3.replay.replay import Replay
from carla_td3.trainer.learner import Learner

_EVENTS = (Path("/sys/fs/cgroup/memory/memory.oom_control"), Path("/sys/fs/cgroup/memory.events"))
_STAT = (Path("/sys/fs/cgroup/memory/memory.stat"), Path("/sys/fs/cgroup/memory.stat"))
_SHOWN = {"total_rss": "anonymous", "anon": "anonymous", "total_cache": "page_cache", "file": "page_cache"}


def main(directory: str, transitions: str, batch: str, precision: str) -> None:
    run = RunPaths(Path(directory))
    run.exchange.mkdir(parents=True)
    rows = int(transitions) + -(-int(transitions) // 500)
    replay = Replay.create(run.replay, rows)
    append_us = fill(replay, int(transitions))
    replay.close()
    config = AgentConfig(
        device="cpu",
        replay=ReplayConfig(capacity=rows),
        td3=TD3Config.model_validate({"batch_size": int(batch), "precision": precision}),
        training=TrainingConfig(learner_threads=1),
    )
    learner = Learner(config, run)
    learner.dry_run()
    _answer({"append_us": round(append_us, 1)})
    for line in sys.stdin:
        _answer(_turn(learner, int(line)))


def _turn(learner: Learner, updates: int) -> dict[str, Any]:
    before = resource.getrusage(resource.RUSAGE_SELF)
    begun_s = time.perf_counter()
    for _ in range(updates):
        learner.update()
    took_s = time.perf_counter() - begun_s
    after = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "updates_per_s": updates / took_s,
        "processor_share": (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / took_s,
        "major_faults": (after.ru_majflt - before.ru_majflt) / updates,
        "mib_read": (after.ru_inblock - before.ru_inblock) * 512 / 2**20 / updates,
        **_group(),
    }


def _group() -> dict[str, int]:
    """Return what the container's control group says, of version 1 or 2: kills, and MiB held by kind."""
    found = {"oom_kills": _figures(_EVENTS).get("oom_kill", 0)}
    kinds = {_SHOWN[name]: value for name, value in _figures(_STAT).items() if name in _SHOWN}
    return found | {f"{kind}_mib": value // 2**20 for kind, value in kinds.items()}


def _figures(files: tuple[Path, ...]) -> dict[str, int]:
    text = "".join(file.read_text(encoding="ascii") for file in files if file.exists())
    return {name: int(value) for name, value in (line.split() for line in text.splitlines())}


def _answer(figures: dict[str, Any]) -> None:
    print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
