"""The simulators of the second collector on: each is started, watched and started again by itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from carla_launcher.act.effects import Watched
from carla_launcher.act.further_simulators import FurtherSimulators
from carla_launcher.act.journal import Journal
from carla_launcher.act.runtime import Role, Start, StartError
from carla_launcher.decide.detectors.drive import DriveDetector
from carla_launcher.decide.detectors.kills import RecentOomKills
from carla_launcher.observe.observation import Ended, Observation, Sign, SimulatorSeen
from carla_launcher.simulators import CarlaLite
from carla_run.events import LauncherEvent
from carla_run.heartbeat import CollectorBeat, CollectorState
from tests.unit.launcher.seen import EXPECTED, LIMITS, driving, with_beat


@dataclass
class Child:
    pid: int
    start: Start
    log: Path = Path("simulator.log")
    ended: Ended | None = None
    asked: bool = False

    def poll(self) -> Ended | None:
        return self.ended

    def pids(self) -> frozenset[int]:
        return frozenset() if self.ended else frozenset({self.pid})

    def terminate(self) -> None:
        self.asked = True

    def kill(self) -> None:
        self.ended = self.ended or Ended(137)


@dataclass
class Fleet:
    """Some of them, in simulated time; what ``seen`` says of a child is what its monitor sees."""

    count: int
    seen: dict[int, dict[str, Any]] = field(default_factory=dict)
    children: list[Child] = field(default_factory=list)
    told: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    refuses: bool = False
    now_s: float = 0.0
    incidents: int = 0

    def __post_init__(self) -> None:
        watched = tuple(
            Watched(Monitor(self), DriveDetector(LIMITS, EXPECTED, RecentOomKills(30.0), number))  # type: ignore[arg-type]
            for number in range(1, self.count)
        )
        effects = SimpleNamespace(further=watched, runtime=self, draw=lambda: 0.0, say=self.said.append)
        lite = CarlaLite()
        self.further = FurtherSimulators(lite, LIMITS, effects, self)  # type: ignore[arg-type]

    def start(self, start: Start) -> Child:
        if self.refuses:
            raise StartError("no room for another process")
        self.children.append(Child(100 + len(self.children), start))
        return self.children[-1]

    open_finding, close_finding = Journal.open_finding, Journal.close_finding

    @property
    def time_s(self) -> float:
        return self.now_s

    def event(self, event: LauncherEvent, cause: str = "", incident: str = "", **fields: Any) -> None:
        self.told.append((event.value, {"cause": cause, "incident": incident, **fields}))

    def open_incident(self) -> str:
        self.incidents += 1
        return f"i{self.incidents}"

    def go(self, seconds: float, quality: str | None = None, count: int | None = None, **collectors: Any) -> None:
        for _ in range(int(seconds)):
            self.now_s += 1.0
            beats = tuple(
                CollectorBeat(8, CollectorState.STEPPING, 0, int(20 * self.now_s), 0.0, 0) for _ in range(self.count)
            )
            seen = with_beat(driving(self.now_s), **{"collectors": beats, **collectors})
            self.further.look(seen, quality, self.count if count is None else count)

    def living(self) -> list[int]:
        return [child.start.number for child in self.children if child.ended is None]

    def names(self) -> list[str]:
        return [name for name, _ in self.told]


@dataclass
class Monitor:
    fleet: Fleet

    def look(self, _now_s: float, program: Child, in_use: bool) -> SimulatorSeen:
        assert in_use
        plain = SimulatorSeen(program.ended is None, program.ended, healthy=True, pid=program.pid)
        return replace(plain, **self.fleet.seen.get(program.pid, {}))

    def close(self) -> None:
        pass


def test_each_is_started_at_once_with_its_number() -> None:
    fleet = Fleet(3)
    fleet.go(2, quality="Low")
    assert [child.start for child in fleet.children] == [
        Start(Role.SIMULATOR, quality="Low", number=number) for number in (1, 2)
    ]
    assert fleet.names() == ["further_simulator_started"] * 2 + ["further_simulator_healthy"] * 2
    assert fleet.further.pids() == {100, 101}
    Fleet(1).go(5)


@pytest.mark.parametrize(
    ("trouble", "cause"),
    [
        ({"ended": Ended(139), "running": False}, "simulator_crash"),
        ({"connection_lost": True}, "simulator_crash"),
    ],
)
def test_failed_one_restarts_and_others_go_on(trouble: Mapping[str, Any], cause: str) -> None:
    fleet = Fleet(3)
    fleet.go(3)
    fleet.seen[100] = dict(trouble)
    fleet.go(6)
    assert fleet.living() == [2, 1]
    told = {name: fields for name, fields in fleet.told if fields["incident"] == "i1"}
    assert list(told) == [
        *("finding", "further_simulator_restart", "further_simulator_started", "further_simulator_healthy"),
        "finding_over",
    ]
    assert (told["finding"]["diagnosis"], told["finding"]["owner"]) == (cause, "simulator 1")
    assert told["further_simulator_restart"]["failures"] == 1
    assert "other collectors continue" in fleet.said[-2]


def test_misconfigured_one_is_given_up() -> None:
    fleet = Fleet(3)
    fleet.go(3)
    fleet.seen[100] = {"signs": ((Sign.NO_VULKAN, "VkResult=-9"),), "ended": Ended(1), "running": False}
    fleet.children[0].ended = Ended(1)
    fleet.go(300)
    assert fleet.living() == [2]
    assert len(fleet.children) == 2
    told = {name: fields for name, fields in fleet.told if fields["incident"] == "i1"}
    assert list(told) == ["finding", "further_simulator_stopped"]
    assert told["finding"]["diagnosis"] == "misconfiguration"
    assert "no Vulkan driver" in fleet.said[-1]


@pytest.mark.parametrize("code", [1, 2, 65, 69])
def test_one_that_ends_at_once_each_time_is_given_up_and_stays_a_finding(code: int) -> None:
    fleet = Fleet(3)
    fleet.seen = {pid: {"ended": Ended(code), "running": False, "healthy": False} for pid in (100, *range(102, 120))}
    fleet.go(600)
    assert [child.start.number for child in fleet.children] == [1, 2, 1, 1]
    assert fleet.names().count("further_simulator_restart") == 2
    assert fleet.names()[-1] == "further_simulator_stopped"
    ((found, _),) = fleet.further.findings
    words = "it isn't restarted, since it failed 3 times in a row before it was up"
    assert found.sentence == f"simulator 1: the simulator ended by itself during its start (exit code {code}); {words}"
    assert fleet.said[-1].endswith(f"{words}, other collectors continue")
    fleet.further.restart("another quality")
    fleet.seen = {}
    fleet.go(30)
    assert fleet.further.findings == []


def test_one_that_cant_be_started_is_an_open_finding_as_long_as_it_is_needed() -> None:
    fleet = Fleet(3)
    fleet.go(3)
    fleet.seen[100] = {"ended": Ended(1), "running": False}
    fleet.children[0].ended, fleet.refuses = Ended(1), True
    fleet.go(600)
    ((found, since_s),) = fleet.further.findings
    assert (found.owner, since_s) == ("simulator 1", 4.0)
    assert found.sentence.startswith("simulator 1: the simulator ended by itself")
    assert fleet.names().count("finding") == 1
    fleet.go(2, count=1)
    assert fleet.further.findings == []
    assert "finding_over" in fleet.names()


def test_one_without_ticks_restarts_though_others_tick() -> None:
    fleet = Fleet(2)
    fleet.go(30)
    stuck = [CollectorBeat(8, CollectorState.STEPPING, 0, 5, 0.0, 0) for _ in range(2)]
    for second in range(90):
        first = replace(stuck[0], ticks=1000 + second)
        restarts = 0 if second < 26 else 1
        fleet.go(1, collectors=(first, replace(stuck[1], restarts=restarts)), collector_restarts=restarts)
    assert [fields["diagnosis"] for name, fields in fleet.told if name == "finding"] == ["simulator_hang"]
    assert fleet.living() == [1]


def test_last_one_goes_and_comes_with_a_rung() -> None:
    fleet = Fleet(3)
    fleet.go(2)
    fleet.go(5, count=2)
    assert fleet.living() == [1, 2], "its collector still drives"
    away = CollectorBeat(None, CollectorState.ABSENT, 0, 0, 0.0, 0)
    here = replace(away, pid=8, state=CollectorState.STEPPING)
    fleet.go(1, count=2, collectors=(here, here, away))
    assert fleet.living() == [1]
    assert fleet.told[-1][1] == {"cause": "its collector is paused", "incident": "", "simulator": 2}
    fleet.go(1)
    assert fleet.living() == [1, 2]


def test_another_quality_starts_them_anew() -> None:
    fleet = Fleet(2)
    fleet.go(2, quality="Epic")
    fleet.go(2, quality="Low")
    assert [child.start.quality for child in fleet.children if child.ended is None] == ["Low"]


def test_all_are_asked_to_stop_with_one_grace_and_then_killed() -> None:
    fleet = Fleet(4)
    fleet.go(1)
    script = fleet.further.stop(lambda: fleet.now_s, lambda: False)
    next(script)
    assert all(child.asked for child in fleet.children)
    fleet.children[0].ended = Ended(0)
    fleet.now_s += LIMITS.simulator.stop_grace_s
    with pytest.raises(StopIteration):
        next(script)
    assert [child.ended for child in fleet.children] == [Ended(0), Ended(137), Ended(137)]
    assert fleet.further.pids() == frozenset()


def test_what_is_seen_of_one_collector_is_its_own() -> None:
    def seen() -> Observation:
        one = CollectorBeat(8, CollectorState.STEPPING, 10, 20, 0.0, 0)
        two = CollectorBeat(9, CollectorState.CONNECTING, 30, 40, 1.5, 2)
        return with_beat(driving(1.0), collectors=(one, two), ticks=60, tick_outstanding_s=1.5, collector_restarts=2)

    beat = seen().agent.beat
    assert beat is not None
    first, second = beat.of(0), beat.of(1)
    assert (first.ticks, first.tick_outstanding_s, first.collector_restarts, first.collector.pid) == (20, 0.0, 0, 8)
    assert (second.ticks, second.tick_outstanding_s, second.collector_restarts) == (40, 1.5, 2)
    assert second.collector.state is CollectorState.CONNECTING
    assert first.of(0) is first
