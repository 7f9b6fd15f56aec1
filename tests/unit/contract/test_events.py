"""Events: each name that is written is one of the contract's, and what the launcher decides by says it in fields."""

from __future__ import annotations

import ast
import json
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from carla_launcher.act.program import Transition
from carla_launcher.act.runtime import Role
from carla_run.event_log import EventLog
from carla_run.events import (
    AgentEvent,
    CannotFit,
    CollectorEnd,
    CollectorRestarted,
    Decisive,
    Failed,
    LauncherEvent,
    MemoryPool,
    NoCuda,
    decisive,
)
from carla_run.heartbeat import Cuda
from tests.conftest import REPOSITORY

EVENTS: tuple[Decisive, ...] = (
    CollectorRestarted(cause="killed by SIGKILL", end=CollectorEnd.SIGNAL, signal=9, restarts=1, steps=7),
    Failed(cause="No more.", exit_code=71, error="AgentError", pool=MemoryPool.DEVICE),
    CannotFit(pool=MemoryPool.DISK, folder="runs/a", needed_mib=700.5, free_mib=500.0, reserve_mib=64),
    NoCuda(reason=Cuda.HIDDEN, device="cuda"),
)


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: str(event.event))
def test_what_the_agent_writes_is_what_the_launcher_reads(tmp_path: Path, event: Decisive) -> None:
    log = tmp_path / "agent-events.jsonl"
    EventLog(log).add(event)
    row = json.loads(log.read_text())
    assert (row["event"], row["cause"]) == (event.event.value, event.cause)
    assert decisive(row) == event


@pytest.mark.parametrize(
    "row",
    [
        {},
        {"event": "checkpoint", "cause": "interval"},
        {"event": "collector_restarted", "cause": "hung: no sign of life"},
        {"event": "cannot_fit", "pool": "attic", "needed_mib": 1, "free_mib": 1, "reserve_mib": 1},
        {"event": ["failed"]},
    ],
)
def test_another_line_or_an_odd_one_decides_nothing(row: dict[str, object]) -> None:
    assert decisive(row) is None


@pytest.mark.parametrize(
    ("end", "number", "in_a_call"),
    [
        (CollectorEnd.HUNG, None, True),
        (CollectorEnd.SIGNAL, signal.SIGABRT, True),
        (CollectorEnd.SIGNAL, signal.SIGKILL, False),
        (CollectorEnd.EXIT, None, False),
    ],
)
def test_a_collector_ended_in_a_call_if_it_hung_or_was_aborted(
    end: CollectorEnd, number: int | None, in_a_call: bool
) -> None:
    assert CollectorRestarted(end=end, signal=number).in_a_call is in_a_call


def written(package: str, method: str, receiver: str) -> Iterator[str]:
    """Yield the names that a package's calls of ``receiver.method`` begin with."""
    for path in (REPOSITORY / package).rglob("*.py"):
        calls = (node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Call))
        for call in calls:
            asked = isinstance(call.func, ast.Attribute) and call.func.attr == method and call.args
            if asked and receiver in ast.unparse(call.func):
                name = call.args[0]
                for each in (name.body, name.orelse) if isinstance(name, ast.IfExp) else (name,):
                    if isinstance(each, ast.Constant):
                        yield str(each.value)


def test_every_name_that_the_agent_writes_is_one_of_the_contracts() -> None:
    found = set(written("agent", "append", "events"))
    assert len(found) > 10
    assert found <= {name.value for name in AgentEvent}


def test_the_launcher_writes_every_event_of_the_contract_and_no_other() -> None:
    assert not list(written("launcher", "event", "journal")), "Journal.event takes the enum"
    sources = [path.read_text(encoding="utf-8") for path in (REPOSITORY / "launcher").rglob("*.py")]
    named = {name for source in sources for name in re.findall(r"LauncherEvent\.([A-Z_]+)", source)}
    moves = {f"{role.name}_{move.name}" for role in Role for move in Transition if move is not Transition.ENDS}
    assert named | moves == {name.name for name in LauncherEvent}
