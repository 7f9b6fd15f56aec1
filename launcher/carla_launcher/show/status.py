"""The state of a run as data, for ``status`` as JSON and as a table.

Reads the run's files and its lock; changes nothing and starts nothing. Invalid values count as missing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from carla_launcher import hooks
from carla_launcher.act.launcher_state import LauncherState, read_with_end
from carla_launcher.decide.route_progress import Progress, cut_off, progress_of
from carla_launcher.observe.tail import Tail
from carla_launcher.rungs.rung import in_words
from carla_launcher.show import routes
from carla_launcher.show.damage import left_out
from carla_launcher.show.incidents import moment, words
from carla_run.events import AgentEvent
from carla_run.heartbeat import Heartbeat, read_heartbeat
from carla_run.locks import is_held
from carla_run.paths import RunPaths
from carla_run.readers import inner, items, number

SPEED_OVER_S = 60.0
MIN_SPAN_S = 2.0
JOB_EVERY_S = 10.0
"""Interval between two queries of Slurm, whose controller serves all users of a cluster."""
ROWS_KEPT = 100
MOST_EVENTS_BYTES = 256 << 20

Row = Mapping[str, Any]


def status(run: RunPaths, now: float) -> dict[str, Any]:
    """Return the state of a run at ``now``, seconds since 1970; see :meth:`StatusReader.at`."""
    return StatusReader(run).at(now)


class StatusReader:
    """Reads a run's state repeatedly, and only what is new in its timeline."""

    def __init__(self, run: RunPaths) -> None:
        self._run = run
        self._memory = Tail(run.launcher_memory, from_end=False)
        self._events = Tail(run.launcher_events, from_end=False, most_bytes=MOST_EVENTS_BYTES)
        self._agent_events = Tail(run.agent_events, from_end=False)
        self._collector_restarts = 0
        self._progress_of_routes = Progress()
        self._job: tuple[float, dict[str, Any] | None] = (float("-inf"), None)
        self._rows: deque[Row] = deque(maxlen=ROWS_KEPT)

    def at(self, now: float) -> dict[str, Any]:
        """Return the run's state. Every key is present; its value is None if unknown.

        The keys are those of ``launcher.json`` and: ``run``, ``path``; ``alive`` (a launcher, or a program that one
        left, holds the run's lock); ``unsupervised`` (an agent trains without a launcher); ``state`` (``killed`` if not
        alive and no end was recorded); ``heartbeat`` (``agent.json``), ``heartbeat_age_s``; ``ran_s`` of this launcher;
        ``step``, ``total_steps``, ``steps_per_s``, ``eta_s``; ``restarts`` of ``simulator``, ``agent``, ``collector``
        since the run's start; ``rungs`` (steps taken: ``rung``, ``kind``, ``cause``, ``since``), ``next_restore_s`` (at
        the earliest); open ``findings``; ``memory`` (``time``, ``pools``, as in ``launcher-memory.jsonl``); ``damaged``
        (lines and files that were left out, a sentence each); ``nodes`` (a line per collector of a cluster); ``job`` of
        Slurm (see ``hooks.job``).
        """
        for row in self._memory.objects():
            if self._rows and moment(row) < moment(self._rows[-1]):
                self._rows.clear()  # the clock was set back: the rows before would count as the newest
            self._rows.append(row)
        # A launcher takes the lock before it writes, and releases it after writing its end. If the lock is held before
        # or after the reading, what was read is of a living launcher.
        was_held = is_held(self._run.launcher_lock)
        launcher = read_with_end(self._run)
        beat = read_heartbeat(self._run.heartbeat)
        alive = was_held or is_held(self._run.launcher_lock)
        state = launcher.get("state", "unknown")
        return {
            **{each.name: launcher.get(each.name) for each in fields(LauncherState)},
            "run": self._run.path.name,
            "path": str(self._run.path),
            "alive": alive,
            "unsupervised": not alive and is_held(self._run.learner_lock),
            "state": state if alive or state in ("stopped", "unknown") else "killed",
            "heartbeat": {} if beat is None else beat.data(),
            "heartbeat_age_s": None if beat is None else round(max(0.0, now - beat.time), 1),
            "ran_s": _ran_s(launcher, now if alive else self._last_sign_s(launcher)),
            **self._progress(beat, alive),
            "restarts": {
                "simulator": number(launcher.get("simulator_restarts")),
                "agent": number(launcher.get("agent_restarts")),
                "collector": self._restarts_of_collectors(beat),
            },
            "rungs": _rungs(launcher),
            "next_restore_s": _next_restore_s(launcher, now) if alive else None,
            "findings": [_held(row) for row in _rows(launcher, "findings")] if alive else [],
            "memory": self._pools(),
            "routes": self._routes(alive),
            "damaged": left_out(self._run, (self._events.read, self._memory.read, self._agent_events.read)),
            "nodes": hooks.nodes(self._run),
            "job": self._job_at(now),
        }

    def _restarts_of_collectors(self, beat: Heartbeat | None) -> int | None:
        """Return the number of restarts in the whole run; the heartbeat has only those since the agent's start."""
        restarted = AgentEvent.COLLECTOR_RESTARTED.value
        self._collector_restarts += sum(row.get("event") == restarted for row in self._agent_events.parts())
        return self._collector_restarts or (None if beat is None else beat.collector_restarts)

    def _routes(self, alive: bool) -> dict[str, Any] | None:
        """Return where an evaluation stands; None if the run is none."""
        self._progress_of_routes = progress = progress_of(self._events.objects(), self._progress_of_routes)
        return routes.told(self._run, progress if alive else progress_of(cut_off(progress), progress)) or None

    def _job_at(self, now: float) -> dict[str, Any] | None:
        if now - self._job[0] >= JOB_EVERY_S:
            self._job = now, hooks.job(self._run)
        return self._job[1]

    def _progress(self, beat: Heartbeat | None, alive: bool) -> dict[str, float | None]:
        step, total = (None, None) if beat is None else (beat.step, beat.total_steps)
        if step is not None and total is not None and step > total:  # more than its program file expects
            total = None
        steps = [(moment(row), done) for row in self._rows if (done := number(row.get("step"))) is not None]
        speed = _speed([*steps, *([(beat.time, float(beat.step))] if beat else [])]) if alive else None
        left = None if step is None or total is None else max(0.0, total - step)
        return {
            "step": step,
            "total_steps": total,
            "steps_per_s": None if speed is None else round(speed, 2),
            "eta_s": round(left / speed) if left is not None and speed else None,
        }

    def _last_sign_s(self, launcher: Row) -> float:
        """Return when a launcher that has gone was last seen: it may write its state hours before."""
        return max(number(launcher.get("updated")) or 0.0, moment(self._rows[-1]) if self._rows else 0.0)

    def _pools(self) -> dict[str, Any]:
        row = self._rows[-1] if self._rows else {}
        pools = {name: pool for name, pool in inner(row, "pools").items() if isinstance(pool, dict)}
        return {"time": number(row.get("time")), "pools": pools}


def _rows(launcher: Row, key: str) -> list[Row]:
    return [each for each in items(launcher, key) if isinstance(each, dict)]


def _rungs(launcher: Row) -> list[dict[str, Any]]:
    since = inner(launcher, "rung_since")
    return [
        {"rung": name, "kind": each.get("kind"), "cause": each.get("cause"), "since": number(since.get(name))}
        for each in _rows(launcher, "taken")
        for name in [in_words(str(each.get("rung")), inner(each, "values"), each.get("quality"))]
    ]


def _next_restore_s(launcher: Row, now: float) -> float | None:
    """Return the least number of seconds until a step may be restored, if memory suffices until then."""
    hold_s, changed_s = number(launcher.get("hold_s")), number(launcher.get("changed_s"))
    if not launcher.get("taken") or changed_s is None or hold_s is None:
        return None
    return round(max(0.0, changed_s + hold_s - now))


def _ran_s(launcher: Row, until_s: float) -> float | None:
    """Return how long a launcher has run, or ran."""
    started = number(launcher.get("started"))
    return None if not started else round(max(0.0, until_s - started), 1)


def _held(row: Row) -> dict[str, Any]:
    named = ("incident", "cause", "sentence", "pool", "owner")
    return {**{name: words(row, name) for name in named}, "since": number(row.get("since"))}


def _speed(steps: list[tuple[float, float]]) -> float | None:
    """Return the steps per second of the last minute; None if there are too few, or if the steps went back."""
    if not steps:
        return None
    last_s, last = max(steps)
    recent = [(time_s, step) for time_s, step in steps if MIN_SPAN_S <= last_s - time_s <= SPEED_OVER_S]
    if not recent:
        return None
    first_s, first = min(recent)
    return (last - first) / (last_s - first_s) if last >= first else None
