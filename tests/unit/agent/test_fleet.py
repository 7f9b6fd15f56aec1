"""What becomes of a run when some of its collectors can't go on, and when none can."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from carla_run.events import CollectorEnd
from carla_run.exits import Exit
from carla_run.paths import RunPaths
from carla_td3 import config
from carla_td3.exchange.ended import Ended
from carla_td3.exchange.messages import Failed
from carla_td3.exits import AgentError
from carla_td3.trainer.collector_supervisor import REST_S, CollectorSupervisor
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

    def close(self) -> None:
        self.end = None


class Run:
    """The supervisors of some collectors, without processes."""

    def __init__(self, tmp_path: Any, monkeypatch: pytest.MonkeyPatch, count: int, evaluating: bool = False) -> None:
        self.now_s = 0.0
        monkeypatch.setattr("carla_td3.trainer.collector_supervisor.time.monotonic", lambda: self.now_s)
        settings = config.validate({"training": {"collectors": count}, "collector": {"attempts": 2}}, "test")
        self.steps = [0] * count
        self.processes = [Process() for _ in range(count)]
        self.restarts: dict[int, int] = {}
        learner = SimpleNamespace(collector_steps=self.steps, episodes_of=lambda _: 0)
        counters = Counters(steps=0, updates=0, evaluating=evaluating)
        reporter = SimpleNamespace(
            memory=SimpleNamespace(collector_pids={}), vitals=SimpleNamespace(collector_restarts=self.restarts)
        )
        self.supervisors: list[CollectorSupervisor] = []
        self.supervisors += [
            CollectorSupervisor(
                *(settings, RunPaths(tmp_path), process, number),  # type: ignore[arg-type]
                learner=learner,  # type: ignore[arg-type]
                store=SimpleNamespace(counters=counters),  # type: ignore[arg-type]
                reporter=reporter,  # type: ignore[arg-type]
                events=SimpleNamespace(append=lambda *_, **__: None, add=lambda _: None),  # type: ignore[arg-type]
                others_may_drive=lambda number=number: any(  # type: ignore[misc]
                    not each.fails for at, each in enumerate(self.supervisors) if at != number
                ),
            )
            for number, process in enumerate(self.processes)
        ]
        for each in self.supervisors:
            each.start()

    def fail(self, number: int, report: Failed | None = NO_SIMULATOR) -> None:
        """Have a collector say why, if it does, and end."""
        process, supervisor = self.processes[number], self.supervisors[number]
        process.says = [] if report is None else [report]
        supervisor.hear()
        process.end = Ended("exit code 69", CollectorEnd.EXIT, exit_code=69)
        supervisor.watch()


def test_one_that_finds_no_simulator_is_started_again_and_rests_in_between(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(tmp_path, monkeypatch, 2)
    run.fail(1)
    assert run.processes[1].starts == 2
    run.fail(1)
    assert run.processes[1].starts == 2, "it rests"
    run.now_s = REST_S - 1
    run.supervisors[1].watch()
    assert run.processes[1].starts == 2
    run.now_s = REST_S
    run.supervisors[1].watch()
    assert run.processes[1].starts == 3
    assert run.restarts == {1: 2}
    assert run.processes[0].starts == 1


def test_the_run_ends_when_every_collector_has_found_none(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(tmp_path, monkeypatch, 3)
    run.fail(2)
    run.fail(0)
    with pytest.raises(AgentError) as ended:
        run.fail(1)
    assert ended.value.code is Exit.NO_SIMULATOR


def test_who_has_taken_a_step_since_counts_as_driving(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(tmp_path, monkeypatch, 2)
    run.fail(0)
    run.steps[0] = 1
    run.fail(1)
    assert [process.starts for process in run.processes] == [2, 2]


def test_collectors_that_all_crash_without_a_step_end_the_run(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(tmp_path, monkeypatch, 2)
    for number in (0, 1, 0):
        run.fail(number, None)
    with pytest.raises(AgentError, match="ended 2 times in a row without a finished step") as ended:
        run.fail(1, None)
    assert ended.value.code is Exit.CRASH


@pytest.mark.parametrize(("count", "evaluating"), [(1, False), (2, True)])
def test_an_only_collector_and_one_that_is_to_evaluate_can_not_be_done_without(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, count: int, evaluating: bool
) -> None:
    monkeypatch.setattr(CollectorSupervisor, "_order_evaluation", lambda _: None)
    with pytest.raises(AgentError, match="No simulator answered"):
        Run(tmp_path, monkeypatch, count, evaluating).fail(0)
