"""The files of a run of any length, with the rows of launcher and agent, for measurements of what reads them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Any

from carla_run.paths import RunPaths

STEPS_PER_S = 1e7 / (7 * 86_400)
"""Speed at which a week is 10⁷ steps."""
FAULT_EVERY_S = 900.0


def night(run: RunPaths, steps: int) -> None:
    """Write the files of a run of so many steps, with the rows and intervals of launcher and agent.

    A line of memory each 10 s (``memory.timeline_s``), metrics each 500 steps, a checkpoint each 5 000, an evaluation
    each 10 000, and a fault each quarter of an hour.
    """
    run.path.mkdir(parents=True)
    rng, start_s = Random(0), 1_700_000_000.0
    until_s = start_s + steps / STEPS_PER_S

    def at(step: int) -> float:
        return round(start_s + step / STEPS_PER_S, 3)

    _lines(run.launcher_memory, (_memory(start_s + 10 * n, n, rng) for n in range(int((until_s - start_s) / 10) + 1)))
    _lines(run.metrics, ({"step": step, **_scalars(step, rng)} for step in range(500, steps + 1, 500)))
    _lines(run.agent_events, (_agent_event(step, at(step)) for step in range(5_000, steps + 1, 5_000)))
    _lines(run.launcher_events, _launcher_events(start_s, until_s))
    run.launcher_state.write_text(
        json.dumps({"state": "stopped", "exit_code": 0, "started": start_s}), encoding="utf-8"
    )


def _lines(path: Path, rows: Iterator[Mapping[str, Any]]) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)


def _memory(time_s: float, number: int, rng: Random) -> dict[str, Any]:
    agent, simulator = 2100 + rng.uniform(-40, 40), 2400 + rng.uniform(-90, 90)
    totals = {"vram:0": 6144.0, "ram": 16_000.0, "disk": 200_000.0}
    owners = {
        "simulator": round(simulator, 1),
        "agent": round(agent, 1),
        "Xorg (1500)": round(rng.uniform(200, 300), 1),
    }
    pools = {
        name: {"total": total, "free": round(total - sum(owners.values()) - rng.uniform(0, 30), 1), "owners": owners}
        for name, total in totals.items()
    }
    step = round(number * 10 * STEPS_PER_S)
    return {
        **{"time": time_s, "state": "running", "phase": "updating", "step": step, "updates": step, "taken": []},
        "pools": pools,
    }


def _scalars(step: int, rng: Random) -> dict[str, float]:
    rollout = ("ep_rew_mean", "ep_len_mean", "success_rate", "route_completion")
    train = ("critic_loss", "actor_loss", "q_mean", "target_mean", "n_updates")
    memory = ("learner_mib", "collector_mib", "device_allocated_mib", "device_reserved_mib", "device_used_mib")
    names = [
        f"{room}/{name}"
        for room, list_ in (("rollout", rollout), ("train", train), ("memory", memory))
        for name in list_
    ]
    names += [f"reward/{name}" for name in ("progress", "speed", "lane", "collision", "comfort")]
    return {**{name: rng.gauss(0, 1) for name in names}, "time/fps": 16.5, "time/total_timesteps": float(step)}


def _agent_event(step: int, time_s: float) -> dict[str, Any]:
    name = "evaluated" if step % 10_000 == 0 else "checkpoint"
    return {"time": time_s, "event": name, "cause": "the interval", "steps": step, "updates": step, "totals": {}}


def _launcher_events(start_s: float, until_s: float) -> Iterator[dict[str, Any]]:
    yield {"time": start_s, "event": "run_started", "cause": "up"}
    for number in range(1, int((until_s - start_s) / FAULT_EVERY_S) + 1):
        time_s, about = start_s + number * FAULT_EVERY_S, {"incident": f"i{number}"}
        cause = {"cause": "The simulator ended with exit code 139.", "diagnosis": "simulator_crash", "pool": ""}
        yield {"time": time_s, "event": "finding", **about, **cause, "owner": "simulator", "numbers": {}}
        yield {"time": time_s + 1, "event": "simulator_restart", "cause": "it crashed", **about}
        stood = {"from_s": time_s, "until_s": time_s + 40, "goes_on": True, "incidents": [f"i{number}"], **about}
        yield {"time": time_s + 40, "event": "stood_still", "cause": "", **stood, "steps_lost": 0}
        yield {"time": time_s + 41, "event": "finding_over", **about, **cause, "owner": "simulator"}
    yield {"time": until_s, "event": "run_ended", "cause": "all steps are done", "exit_code": 0}
