"""A run some of whose collectors can't continue, and one whose collectors all can't."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from carla_run.events import CollectorEnd
from carla_run.exits import Exit
from carla_run.paths import RunPaths
from carla_td3 import config
from carla_td3.exchange.messages import Ended, Failed
from carla_td3.exits import AgentError
from carla_td3.trainer.collector_supervisor import RETRY_S, CollectorSupervisor
from carla_td3.trainer.pacing import Counters

NO_SIMULATOR = Failed(code=Exit.NO_SIMULATOR, sentence="No simulator answered.")


@dataclass
class Process:
    """A collector's process that ends when the test says so."""

    pid: int = 1
    starts: int = 0
    says: list[Any] = field(default_factory=list)
    end: Ended | None = None

    def start(self, *_: object, **__: object) -> None:
        self.starts, self.end = self.starts + 1, None

    def reports(self, _timeout_s: float) -> list[Any]:
        said, self.says = self.says, []
        return said

    def ended(self) -> Ended | None:
        return self.end

    def send(self, _: object) -> None:
        """Nothing is done with it."""

    def close(self) -> None:
        self.end = None


class Run:
    """The supervisors of some collectors, without processes."""

    def __init__(self, tmp_path: Path, count: int, evaluating: bool = False) -> None:
        settings = config.validate({"training": {"collectors": count}, "collector": {"attempts": 2}}, "test")
        self.steps, self.processes = [0] * count, [Process() for _ in range(count)]
        self.restarts: dict[int, int] = {}
        doubles: Any = {
            "learner": SimpleNamespace(collector_steps=self.steps, episodes_of=lambda _: 0),
            "store": SimpleNamespace(counters=Counters(steps=0, updates=0, evaluating=evaluating)),
            "reporter": SimpleNamespace(
                memory=SimpleNamespace(collector_pids={}),
                vitals=SimpleNamespace(collector_restarts=self.restarts),
                events=SimpleNamespace(append=lambda *_, **__: None, add=lambda _: None),
            ),
        }
        self.supervisors: list[CollectorSupervisor] = []
        for number, process in enumerate(self.processes):
            others = self.others(number)
            stand_in: Any = process
            made = CollectorSupervisor(
                settings, RunPaths(tmp_path), stand_in, number, **doubles, others_may_drive=others
            )
            self.supervisors.append(made)
        for each in self.supervisors:
            each.start()

    def others(self, number: int) -> Callable[[], bool]:
        return lambda: any(not each.is_failing for at, each in enumerate(self.supervisors) if at != number)

    def fail(self, number: int, report: Failed | None = NO_SIMULATOR) -> None:
        """Have a collector say why, if it does, and end."""
        process, supervisor = self.processes[number], self.supervisors[number]
        process.says = [] if report is None else [report]
        supervisor.handle_reports()
        process.end = Ended(cause="exit code 69", end=CollectorEnd.EXIT, exit_code=69)
        supervisor.watch()

    @property
    def starts(self) -> list[int]:
        return [process.starts for process in self.processes]


def test_one_without_a_simulator_rests_between_two_tries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 0.0
    monkeypatch.setattr("carla_td3.trainer.collector_supervisor.time.monotonic", lambda: now_s)
    run = Run(tmp_path, 2)
    for tries in (2, 2):  # the second time it rests
        run.fail(1)
        assert run.starts == [1, tries]
    for now_s, tries in ((RETRY_S - 1, 2), (RETRY_S, 3)):  # noqa: B007 (the clock reads it)
        run.supervisors[1].watch()
        assert run.starts == [1, tries]
    assert run.restarts == {1: 2}


def test_the_run_ends_when_every_collector_has_found_none(tmp_path: Path) -> None:
    run = Run(tmp_path, 3)
    run.fail(2)
    run.fail(0)
    with pytest.raises(AgentError) as ended:
        run.fail(1)
    assert ended.value.code is Exit.NO_SIMULATOR


def test_one_that_has_taken_a_step_since_counts_as_driving(tmp_path: Path) -> None:
    run = Run(tmp_path, 2)
    run.fail(0)
    run.steps[0] = 1
    run.fail(1)
    assert run.starts == [2, 2]


def test_collectors_that_all_crash_without_a_step_end_the_run(tmp_path: Path) -> None:
    run = Run(tmp_path, 2)
    for number in (0, 1, 0):
        run.fail(number, None)
    with pytest.raises(AgentError, match="ended 2 times in a row without a finished step") as ended:
        run.fail(1, None)
    assert ended.value.code is Exit.CRASH


@pytest.mark.parametrize(("count", "evaluating"), [(1, False), (2, True)])
def test_an_only_or_evaluating_collector_is_needed(tmp_path: Path, count: int, evaluating: bool) -> None:
    with pytest.raises(AgentError, match="No simulator answered"):
        Run(tmp_path, count, evaluating).fail(0)
