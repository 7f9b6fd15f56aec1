"""The sentences that sum a run up: duration, progress, faults, actions and costs. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from carla_launcher.decide.detectors.causes import Cause
from carla_launcher.show import routes
from carla_launcher.show.formatting import capital, cause, clock, counted, grouped, listed, mib, span
from carla_launcher.show.history import RunHistory
from carla_launcher.show.incidents import Incident
from carla_launcher.show.run_time import RunTime
from carla_launcher.show.timeline import Sample, spans_s

ACTIONS_SHOWN = 6
HOLDERS_SHOWN = 4
OLDER = "Standstills of training are unknown: an older launcher, which didn't record them, started this run."


def overview(run: RunHistory) -> list[str]:
    """Return the summary as sentences without markup."""
    damaged = [f"{sentence}." for sentence in run.damaged]
    if not run.sessions:
        return damaged
    faults = sum(run.faults.values())
    found = _faults(run, faults) if run.incidents else f"No incidents{_without_action(run)}."
    if not run.incidents and not run.routes:
        return [_length(run), found, *damaged]
    return [_length(run), found, _actions(run), *_missing(run), _cost(run), *damaged]


def _length(run: RunHistory) -> str:
    launches = run.events["run_started"] or len(run.sessions)  # a clock that is set back makes further sessions
    first = f"Ran for {clock(run.ran_s)}" + (f" in {launches} launches" if launches > 1 else "")
    if run.routes:
        return f"{first}. {capital(routes.sentence(run.routes))}."
    if run.last_step is None or not (run.last_step or run.total_steps):
        return f"{first}; the number of steps is unknown."
    of = f" of {grouped(run.total_steps)}" if run.total_steps else ""
    speed = f", {run.steps_per_s:.1f} steps/s while training" if run.steps_per_s is not None else ""
    return f"{first}, to step {grouped(run.last_step)}{of}{speed}."


def _faults(run: RunHistory, faults: int) -> str:
    by_cause = [f"{cause(name)} {count}" for name, count in run.faults.most_common()]
    said = f": {', '.join(by_cause)}" if by_cause else ""
    return f"{capital(counted(faults, 'fault'))}{said}{_without_action(run)}."


def _without_action(run: RunHistory) -> str:
    count = len(run.without_action)
    return f"; {counted(count, 'finding')} needed no action" if count else ""


def _actions(run: RunHistory) -> str:
    down = run.events.get("rung_taken", 0) + run.events.get("rung_adopted", 0)
    restarts = {
        "simulator": run.events.get("simulator_restart", 0),
        "agent": run.events.get("agent_restart", 0),
        "collector": run.collector_restarts,
    }
    again = [f"{name} {grouped(count)}" for name, count in restarts.items() if count]
    steps = f"{counted(down, 'step')} down the ladder, {grouped(run.events.get('rung_left', 0))} restored; "
    return capital(f"{'' if run.routes else steps}restarts: {', '.join(again) if again else 'none'}.")


def _missing(run: RunHistory) -> list[str]:
    """Return which simulators the run went on without, and why."""
    axis = RunTime(run.sessions)
    return [
        f"From {clock(axis.at(each.began_s))} on it went on without {each.without} ({cause(each.cause)})."
        for each in run.incidents
        if each.without
    ]


def _cost(run: RunHistory) -> str:
    if run.routes:
        return f"Drives without a result took {span(routes.lost_s(run.routes))}."
    if not run.records_standstills:
        return OLDER
    standstills = run.standstills
    if not standstills:
        return "Training never stood still."
    standstill_s = spans_s(standstills)
    whole_s = run.ran_s + standstill_s - run.within_launchers_s(standstills)  # with the time until a killed one's next
    share = f" ({standstill_s / whole_s:.1%})" if whole_s > 0 else ""
    parts = [f"Training stood still {counted(len(standstills), 'time')}, for {span(standstill_s)} in total{share}"]
    if missed := round(run.missed_s * (run.steps_per_s or 0.0)):
        parts.append(f"about {counted(missed, 'step')} missed")
    known = [each.steps_lost for each in run.incidents if each.steps_lost is not None]
    lost = counted(round(sum(known)), "finished step") if known else "an unknown number of finished steps"
    parts.append(f"{lost} lost")
    return f"{listed([*parts, _updates(run.incidents)])}."


def _updates(incidents: Sequence[Incident]) -> str:
    repeated = sum(each.updates_repeated or 0.0 for each in incidents)
    unknown = sum(bool(each.standstills) and each.updates_repeated is None for each in incidents)
    if unknown and not repeated:
        return "an unknown number of updates repeated"
    but = f" (unknown for {counted(unknown, 'incident')})" if unknown else ""
    return f"at least {counted(round(repeated), 'update')} repeated{but}" if repeated else "no update repeated"


def done(incident: Incident) -> list[str]:
    """Return the actions of an incident, each with the time since its beginning."""
    if not incident.actions:
        collector = incident.cause == Cause.COLLECTOR_HANG.value
        return ["none; the agent replaces its collector" if collector else "none"]
    began_s = incident.began_s
    counts: dict[str, tuple[float, int]] = {}
    for action in incident.actions:
        first_s, count = counts.get(action.words, (action.time_s - began_s, 0))
        counts[action.words] = first_s, count + 1
    lines = [_action(what, at_s, count) for what, (at_s, count) in counts.items()]
    left_out = len(lines) - ACTIONS_SHOWN
    return lines if left_out <= 0 else [*lines[:ACTIONS_SHOWN], f"and {grouped(left_out)} more"]


def _action(what: str, at_s: float, count: int) -> str:
    when = f"after {span(at_s)} " if at_s >= 1 else ""
    return f"{when}{what}" + (f" ({grouped(count)} times)" if count > 1 else "")


def back(incident: Incident) -> str:
    """Return when training progressed again, as text."""
    if incident.ended_run:
        return "the run ended"
    if not incident.standstills:
        return "never stopped"
    if incident.back_s is None:
        return "not before the run ended"
    return f"after {span(incident.back_s - incident.began_s)}"


def price(incident: Incident) -> str:
    """Return the cost of an incident, as text; a dash for none."""
    parts = [span(incident.standstill_s)] if incident.standstills else []
    parts += [f"{counted(round(incident.steps_lost), 'step')} lost"] if incident.steps_lost else []
    parts += [f"≥ {counted(round(incident.updates_repeated), 'update')} repeated"] if incident.updates_repeated else []
    return ", ".join(parts) or "–"


def holders(sample: Sample) -> list[str]:
    """Return the owners of a pool with their memory, biggest first, and the free memory."""
    held = sorted(sample.owners.items(), key=lambda entry: -entry[1])
    shown = [f"{name} {mib(amount)}" for name, amount in held[:HOLDERS_SHOWN]]
    rest = sum(amount for _, amount in held[HOLDERS_SHOWN:]) + sample.unnamed
    shown += [f"others {mib(rest)}"] if rest >= 1 else []
    return [*shown, f"free {mib(sample.free)}"]
