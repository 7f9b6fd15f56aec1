"""The charts of a run for report and live page: events, memory by owner, learning curves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from markupsafe import Markup

from carla_launcher.observe.pools import PoolKind
from carla_launcher.show import charts
from carla_launcher.show.formatting import cause, kind_of
from carla_launcher.show.history import RunHistory
from carla_launcher.show.incidents import RESTORE
from carla_launcher.show.layers import stacked
from carla_launcher.show.run_time import RunTime
from carla_run.readers import points

LADDER_SIGNS = {"rung_taken": "down", "rung_adopted": "down", "rung_left": "up"}
"""Sign in the chart of each event of the ladder: down when a rung is taken, up when it is undone."""
RESTARTS = ("simulator_restart", "agent_restart")

CURVES = {
    "rollout/ep_rew_mean": "Return of training episodes (mean of the last 100)",
    "rollout/route_completion": "Route completion in training",
    "eval/route_completion": "Route completion on held-out routes",
    "eval/driving_score": "Driving score on held-out routes (0 to 100)",
    "train/critic_loss": "Critic loss",
    "train/actor_loss": "Actor loss",
    "time/fps": "Environment steps per second",
}
"""Scalar names as in TensorBoard."""
MEMORY_CURVES = {
    "memory/learner_mib": "RAM of the learner, MiB",
    "memory/collector_mib": "RAM of the collector, MiB",
    "memory/device_allocated_mib": "GPU memory in tensors, MiB",
    "memory/device_reserved_mib": "GPU memory that the allocator holds, MiB",
    "memory/device_used_mib": "GPU memory used by all processes, MiB",
}

Row = Mapping[str, Any]


def memory(run: RunHistory) -> dict[str, Any] | None:
    """Return the charts of events and of each pool, on one time axis; None without a timeline."""
    axis = RunTime(run.sessions)
    thinned_s = run.timeline.thinned_s
    stacks = {
        name: stack
        for name, samples in run.timeline.pools.items()
        if (stack := stacked(samples, lambda moment_s: charts.column_of(axis, moment_s), thinned_s)) is not None
    }
    if not stacks:
        return None
    marks = list(_marks(run))
    rungs = [mark for mark in marks if mark.lane == "ladder"]
    drawn = [
        {
            "title": kind_of(name),
            "svg": Markup(charts.memory_chart(kind_of(name), axis, stack, run.standstills, rungs)),
            "layers": list(reversed(stack.layers)),  # in the order of the chart, highest first
            "collapsed": name == PoolKind.DISK.value and all(each.pool != name for each in run.incidents),
        }
        for name, stack in stacks.items()
    ]
    events = Markup(charts.events_chart(axis, marks, run.standstills))
    return {"events": events, "signs": charts.LANES, "pools": drawn, "stood": bool(run.standstills)}


def _marks(run: RunHistory) -> Iterator[charts.Mark]:
    for incident in run.incidents:
        if incident.cause != RESTORE:
            said = incident.sentences[0] if incident.sentences else ""
            yield charts.Mark(incident.began_s, "faults", "fault", f"{cause(incident.cause)}: {said}")
        for action in incident.actions:
            if action.event in LADDER_SIGNS:
                yield charts.Mark(action.time_s, "ladder", LADDER_SIGNS[action.event], action.words)
            elif action.event in RESTARTS:
                yield charts.Mark(action.time_s, "restarts", "restart", action.words)
    for incident in run.without_action:
        yield charts.Mark(incident.began_s, "faults", "passed", cause(incident.cause))


def curves(names: Mapping[str, str], *runs: Sequence[Row]) -> dict[str, Markup]:
    """Return a chart of each scalar, by its title, with one curve per run."""
    drawn = {title: charts.line_chart(title, *(points(rows, name) for rows in runs)) for name, title in names.items()}
    return {title: Markup(svg) for title, svg in drawn.items() if svg}
