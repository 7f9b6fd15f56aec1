"""Rows of a run's files as launcher and agent write them, and invalid values."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from hypothesis import strategies as st

Row = dict[str, Any]
LOST_NOTHING = {"steps_lost": 0, "updates_repeated": 0}
CRASHED = "the agent crashed (signal 6)"
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=4,
)


def lines(*rows: Mapping[str, Any]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def event(time_s: float, name: str, cause: str = "", **more: Any) -> Row:
    return {"time": time_s, "event": name, "cause": cause, **more}


def finding(
    time_s: float,
    diagnosis: str,
    sentence: str,
    pool: str = "",
    owner: str = "",
    incident: str = "i1",
    **numbers: float,
) -> Row:
    about = {"incident": incident, "diagnosis": diagnosis, "pool": pool, "owner": owner}
    return event(time_s, "finding", sentence, **about, numbers=numbers)


def over(time_s: float, diagnosis: str, pool: str = "", owner: str = "", incident: str = "i1") -> Row:
    return event(time_s, "finding_over", incident=incident, diagnosis=diagnosis, pool=pool, owner=owner)


def of(incident: str, rows: Sequence[Row]) -> list[Row]:
    """Return rows as those of one incident."""
    return [{**row, "incident": incident, **({"incidents": [incident]} if "incidents" in row else {})} for row in rows]


def memory(time_s: float, step: float | None, free: float = 500.0, **more: Any) -> Row:
    pools = {"vram:0": {"total": 5745.0, "free": free, "owners": {"simulator": 4800.0, "Xorg": 85.0}}}
    return {"time": time_s, "state": "running", "phase": "updating", "step": step, "taken": [], "pools": pools, **more}


def stood(from_s: float, until_s: float, incident: str = "i1", **more: Any) -> Row:
    """Return the row that says so; training moves again then."""
    about = {"incident": incident, "incidents": [incident], "from_s": from_s, "until_s": until_s, "goes_on": True}
    return event(until_s, "stood_still", **{**about, **LOST_NOTHING, **more})


def crash(
    time_s: float, back_s: float, incident: str = "i1", said: str = "the simulator ended by itself (signal 11)"
) -> list[Row]:
    rows = [
        finding(time_s, "simulator_crash", said, owner="simulator"),
        event(time_s, "simulator_restart", said, delay_s=0.5),
        over(time_s, "simulator_crash", owner="simulator"),
        event(time_s + 1, "simulator_starts"),
        event(back_s, "simulator_healthy", took_s=back_s - time_s - 1),
        stood(time_s, back_s),
    ]
    return of(incident, rows)


def agent_crash(time_s: float, back_s: float, said: str = CRASHED, **lost: Any) -> list[Row]:
    return [finding(time_s, "agent_crash", said, owner="agent"), *agent_again(time_s, said, back_s, **lost)]


def agent_again(time_s: float, said: str, back_s: float, **lost: Any) -> list[Row]:
    rows = [
        event(time_s, "agent_restart", said, delay_s=0.5),
        event(time_s, "agent_killed", said),
        event(time_s + 1, "agent_starts", resume=True, overrides={}),
        event(back_s, "verified"),
        stood(time_s, back_s, **lost),
    ]
    return of("i1", rows)
