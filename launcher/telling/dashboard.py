"""``status``: where a run stands, as data and as a table that follows it.

Reads the run's files and its lock; changes nothing and starts nothing.
"""

from __future__ import annotations

import time
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table

from launcher.run_directory import RunDirectory, read_object
from launcher.supervising import journal

FOLLOW_S = 1.0


def status(run: RunDirectory, now: float) -> dict[str, Any]:
    """Return the run's state, the launcher's figures and the agent's heartbeat with its age.

    ``alive`` says whether a launcher (or what one left behind) still holds the run; ``state`` is ``killed`` if none
    does and none has written an end.
    """
    launcher, agent = read_object(run.launcher_state), read_object(run.agent_status)
    alive = journal.is_held(run.lock)
    state = launcher.get("state", "unknown")
    beat = agent.get("time")
    return {
        **launcher,
        "run": run.path.name,
        "path": str(run.path),
        "alive": alive,
        "state": state if alive or state in ("stopped", "unknown") else "killed",
        "heartbeat": agent,
        "heartbeat_age_s": round(max(0.0, now - beat), 1) if isinstance(beat, int | float) else None,
    }


def table(found: dict[str, Any]) -> Table:
    """Return the figures of ``status`` for people."""
    view = Table(title=f"run {found['run']}", show_header=False)
    beat = found["heartbeat"]
    age_s = found["heartbeat_age_s"]
    memory = {key: value for key, value in (beat.get("memory") or {}).items() if isinstance(value, int | float)}
    rows = {
        "state": found["state"],
        "ended": found.get("reason"),
        "simulator": f"{found.get('host')}:{found.get('port')}, restarts {found.get('simulator_restarts')}",
        "agent": beat.get("phase"),
        "heartbeat": None if age_s is None else f"{age_s} s ago",
        "step": f"{beat['step']} of {beat.get('total_steps')}" if "step" in beat else None,
        "updates": beat.get("updates"),
        "device": beat.get("device"),
        "memory": ", ".join(f"{key} {value}" for key, value in memory.items()),
    }
    for name, value in rows.items():
        if value not in (None, ""):
            view.add_row(name, str(value))
    return view


def show(run: RunDirectory) -> None:
    """Print the table once."""
    Console().print(table(status(run, time.time())))


def follow(run: RunDirectory) -> None:
    """Keep the table up to date until the run ends."""
    found = status(run, time.time())
    with Live(table(found), refresh_per_second=4) as live:
        while found["alive"]:
            time.sleep(FOLLOW_S)
            found = status(run, time.time())
            live.update(table(found))
