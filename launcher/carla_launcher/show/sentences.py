"""The sentences that sum a run up: how long, how far, what went wrong how often, what was done, what it cost. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from carla_launcher.decide.detectors.causes import Cause
from carla_launcher.show.formatting import capital, cause, clock, counted, grouped, listed, mib, span
from carla_launcher.show.history import RunHistory
from carla_launcher.show.incidents import Incident
from carla_launcher.show.timeline import Sample, spans_s

ACTIONS_SHOWN = 6
HOLDERS_SHOWN = 4
OLDER = "When training stood still isn't known: the launcher of this run was an older one, and didn't write it."


def overview(run: RunHistory) -> list[str]:
    """Return the summary, a sentence each, without markup."""
    if not run.sessions:
        return []
    faults = sum(run.faults.values())
    if not run.incidents:
        return [_length(run), f"No incident: nothing went wrong{_passed(run)}."]
    return [_length(run), _faults(run, faults), _actions(run), _cost(run)]


def _length(run: RunHistory) -> str:
    sessions = len(run.sessions)
    first = f"Ran for {clock(run.ran_s)}" + (f" in {sessions} launches" if sessions > 1 else "")
    if run.last_step is None:
        return f"{first}; no step is known."
    of = f" of {grouped(run.total_steps)}" if run.total_steps else ""
    speed = f", {run.steps_per_s:.1f} a second while it drove" if run.steps_per_s is not None else ""
    return f"{first}, to step {grouped(run.last_step)}{of}{speed}."


def _faults(run: RunHistory, faults: int) -> str:
    by_cause = [f"{cause(name)} {count}" for name, count in run.faults.most_common()]
    said = f": {', '.join(by_cause)}" if by_cause else ""
    return f"{capital(counted(faults, 'fault'))}{said}{_passed(run)}."


def _passed(run: RunHistory) -> str:
    count = len(run.passed)
    return f"; {counted(count, 'finding')} passed with nothing to be done" if count else ""


def _actions(run: RunHistory) -> str:
    down = run.events.get("rung_taken", 0) + run.events.get("rung_adopted", 0)
    restarts = {
        "simulator": run.events.get("simulator_restart", 0),
        "agent": run.events.get("agent_restart", 0),
        "collector": run.collector_restarts,
    }
    again = [f"{name} {grouped(count)}" for name, count in restarts.items() if count]
    steps = f"{counted(down, 'step')} down the ladder, {grouped(run.events.get('rung_left', 0))} taken back"
    return capital(f"{steps}; restarts: {', '.join(again) if again else 'none'}.")


def _cost(run: RunHistory) -> str:
    if not run.says_what_stood:
        return OLDER
    stood = run.stood
    if not stood:
        return "Training never stood still."
    stood_s = spans_s(stood)
    share = f" ({stood_s / run.ran_s:.1%})" if run.ran_s > 0 else ""
    parts = [f"Training stood still {counted(len(stood), 'time')}, {span(stood_s)} in all{share}"]
    if run.steps_per_s:
        parts.append(f"about {grouped(stood_s * run.steps_per_s)} steps not driven")
    known = [each.steps_lost for each in run.incidents if each.steps_lost is not None]
    parts.append(f"{grouped(sum(known)) if known else 'unknown how many'} finished steps lost")
    return f"{listed([*parts, _updates(run.incidents)])}."


def _updates(incidents: Sequence[Incident]) -> str:
    repeated = sum(each.updates_repeated or 0.0 for each in incidents)
    unknown = sum(bool(each.stood) and each.updates_repeated is None for each in incidents)
    if unknown and not repeated:
        return "unknown how many updates repeated"
    but = f" (unknown for {counted(unknown, 'incident')})" if unknown else ""
    return f"at least {grouped(repeated)} updates repeated{but}" if repeated else "no update repeated"


def done(incident: Incident) -> list[str]:
    """Return what was done about an incident, each with its seconds after the beginning."""
    if not incident.actions:
        collector = incident.cause == Cause.COLLECTOR_HANG.value
        return ["left to the agent, which replaces its collector" if collector else "nothing"]
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
    """Return when training went on, in words."""
    if incident.ended_run:
        return "the run ended"
    if not incident.stood:
        return "never stood"
    if incident.back_s is None:
        return "not before the run ended"
    return f"after {span(incident.back_s - incident.began_s)}"


def price(incident: Incident) -> str:
    """Return what an incident cost, in words; a dash where that is nothing."""
    parts = [span(incident.stood_s)] if incident.stood else []
    parts += [f"{grouped(incident.steps_lost)} steps lost"] if incident.steps_lost else []
    parts += [f"≥ {grouped(incident.updates_repeated)} updates repeated"] if incident.updates_repeated else []
    return ", ".join(parts) or "–"


def holders(sample: Sample) -> list[str]:
    """Return who held what of a pool, biggest first, and what was free."""
    held = sorted(sample.owners.items(), key=lambda entry: -entry[1])
    shown = [f"{name} {mib(amount)}" for name, amount in held[:HOLDERS_SHOWN]]
    rest = sum(amount for _, amount in held[HOLDERS_SHOWN:]) + sample.unnamed
    shown += [f"others {mib(rest)}"] if rest >= 1 else []
    return [*shown, f"free {mib(sample.free)}"]
