"""Requests to a running agent: which are new, what is done about them, and that each is answered."""

from __future__ import annotations

import fcntl
import functools
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from carla_run.event_log import EventLog
from carla_run.exits import Exit, ExitError
from carla_run.listener import Progress
from carla_run.paths import RunPaths
from carla_run.requests import Answer, Inbox, InvalidRequest, Request, RequestKind, Result, await_answer, send
from carla_td3 import config
from carla_td3.config import AgentConfig, ConfigError
from carla_td3.exits import AgentError
from carla_td3.run_directory import prepare
from carla_td3.trainer.checkpoint import CheckpointError
from carla_td3.trainer.learner import Learner
from carla_td3.trainer.requests import Requests, patched
from tests.conftest import REPOSITORY
from tests.crowd import PATIENCE_S

SMALL = {"channels": [4, 4, 4], "features": 16, "hidden": [16]}
DONE = Answer(
    id=4,
    kind="checkpoint",
    result=Result.OK,
    sentence="Done.",
    steps=7,
    updates=3,
    checkpoint="step-000000007",
)


@pytest.fixture
def run(tmp_path: Path) -> RunPaths:
    return RunPaths(tmp_path)


def ask(run: RunPaths, request: object) -> None:
    run.request.write_text(request if isinstance(request, str) else json.dumps(request))


def answered(run: RunPaths) -> dict[str, Any]:
    return dict(json.loads(run.answer.read_text()))


class Stub:
    """A training that notes what it is asked."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.failure = failure
        self.progress = Progress(steps=120, updates=100, checkpoint="step-000000120")

    def __getattr__(self, kind: str) -> Callable[..., None]:
        return functools.partial(self._note, kind)

    def _note(self, *words: Any) -> None:
        self.asked.append(words)
        if self.failure is not None:
            raise self.failure


def obeyed(run: RunPaths, request: object, failure: Exception | None = None) -> tuple[Any, Requests]:
    """Return a training that was asked this, and the requests of its run."""
    training: Any = Stub(failure)
    requests = Requests(run, EventLog(run.agent_events))
    ask(run, request)
    for _ in range(3):
        requests.serve_next(training)
    return training, requests


def test_a_new_request_is_returned_once(run: RunPaths) -> None:
    inbox = Inbox(run)
    assert inbox.poll() is None
    ask(run, {"id": 4, "kind": "checkpoint"})
    assert inbox.poll() == Request(id=4, kind=RequestKind.CHECKPOINT)
    assert inbox.poll() is None


@pytest.mark.parametrize("request_id", [1, 3, 4])
def test_what_was_answered_is_ignored_and_so_is_what_is_older(run: RunPaths, request_id: int) -> None:
    inbox = Inbox(run)
    inbox.answer(DONE)
    ask(run, {"id": request_id, "kind": "stop"})
    assert inbox.poll() is None
    assert Inbox(run).poll() is None, "in a new process too"
    assert answered(run) == asdict(DONE)


def test_a_later_request_is_new(run: RunPaths) -> None:
    Inbox(run).answer(DONE)
    ask(run, {"id": 5, "kind": "drain"})
    assert Inbox(run).poll() == Request(id=5, kind=RequestKind.DRAIN)


def test_a_half_written_request_is_taken_when_it_is_whole(run: RunPaths) -> None:
    inbox = Inbox(run)
    ask(run, '{"id": 5, "kind": "dra')
    half = inbox.poll()
    assert isinstance(half, InvalidRequest)
    assert half.id is None
    assert inbox.poll() is None, "said once"
    ask(run, '{"id": 5, "kind": "drain"}')
    assert inbox.poll() == Request(id=5, kind=RequestKind.DRAIN)


@pytest.mark.parametrize(
    ("text", "request_id", "sentence"),
    [
        ('{"id": 5, "kind": "explode"}', 5, "`kind` is 'explode'; expected 'checkpoint', 'drain', 'resume'"),
        ('{"id": 5}', 5, "`kind`"),
        ('{"id": 5, "kind": "drain", "colour": 1}', 5, "unknown key `colour`; known here: by, id, kind, values"),
        ('{"id": 5, "kind": "apply"}', 5, "`values` of apply is {}; expected some keys"),
        ('{"id": 5, "kind": "drain", "values": {"seed": 1}}', 5, "`values` of drain is {'seed': 1}; only apply has"),
        ('{"id": 5, "kind": "apply", "values": [1]}', 5, "`values` is [1]"),
        ('{"id": "5", "kind": "drain"}', None, "`id` is '5'"),
        ('{"id": true, "kind": "drain"}', None, "`id` is true; expected a number"),
        ('{"id": 0, "kind": "drain"}', None, "`id` is 0"),
        ("[1, 2]", None, "is [1, 2]; expected keys below it"),
        ("", None, "isn't whole JSON"),
        ("[" * 100_000, None, "isn't whole JSON"),
    ],
)
def test_what_is_no_request_is_one_sentence(run: RunPaths, text: str, request_id: int | None, sentence: str) -> None:
    ask(run, text)
    found = Inbox(run).poll()
    assert isinstance(found, InvalidRequest)
    assert found.id == request_id
    assert sentence in found.sentence
    assert "\n" not in found.sentence


def test_bytes_that_are_no_text_are_no_request(run: RunPaths) -> None:
    run.request.write_bytes(b'{"id": 5, "kind": "\xff"}')
    assert isinstance(Inbox(run).poll(), InvalidRequest)


def test_an_answer_that_the_disk_refused_is_written_later(tmp_path: Path) -> None:
    run = RunPaths(tmp_path / "not-there-yet")
    inbox = Inbox(run)
    inbox.answer(DONE)
    inbox.poll()
    run.path.mkdir()
    inbox.poll()
    assert answered(run) == asdict(DONE)


@pytest.mark.parametrize(
    ("request_", "asked"),
    [
        ({"kind": "checkpoint"}, ("checkpoint", "request 9")),
        ({"kind": "drain"}, ("drain", "request 9")),
        ({"kind": "resume"}, ("resume", "request 9")),
        ({"kind": "apply", "values": {"seed": 1}}, ("apply", {"seed": 1}, "request 9")),
    ],
)
def test_a_request_is_done_once_and_answered(run: RunPaths, request_: dict[str, Any], asked: tuple[Any, ...]) -> None:
    training, _ = obeyed(run, {"id": 9, **request_})
    assert training.asked == [asked]
    found = answered(run)
    assert (found["id"], found["kind"], found["result"]) == (9, request_["kind"], "ok")
    assert (found["steps"], found["updates"], found["checkpoint"]) == (120, 100, "step-000000120")


@pytest.mark.parametrize(
    ("kind", "failure", "sentence"),
    [
        ("drain", CheckpointError("The disk is full."), "The disk is full."),
        ("drain", ConfigError("`seed` can't change."), "`seed` can't change."),
        ("explode", None, "`kind` is 'explode'"),
    ],
)
def test_what_cannot_be_done_is_refused(run: RunPaths, kind: str, failure: Exception | None, sentence: str) -> None:
    training, _ = obeyed(run, {"id": 9, "kind": kind}, failure)
    found = answered(run)
    assert (found["id"], found["kind"], found["result"]) == (9, kind, "refused")
    assert sentence in found["sentence"]
    assert len(training.asked) == (failure is not None)


def test_what_has_no_id_is_an_event(run: RunPaths) -> None:
    obeyed(run, "nonsense")
    assert not run.answer.exists()
    assert json.loads(run.agent_events.read_text())["event"] == "request_unreadable"


def test_a_stop_is_answered_when_the_run_has_ended(run: RunPaths) -> None:
    training, requests = obeyed(run, {"id": 9, "kind": "stop"})
    assert training.asked == [("stop", "request 9")]
    assert not run.answer.exists()
    requests.end(training.progress)
    assert (answered(run)["id"], answered(run)["result"]) == (9, "ok")


def test_a_failure_answers_the_request_that_met_it(run: RunPaths) -> None:
    requests = Requests(run, EventLog(run.agent_events))
    ask(run, {"id": 9, "kind": "drain"})
    failing: Any = Stub(AgentError("No simulator.", Exit.NO_SIMULATOR))
    with pytest.raises(AgentError):
        requests.serve_next(failing)
    requests.end(failing.progress, failure="No simulator.")
    assert (answered(run)["result"], answered(run)["sentence"]) == ("refused", "No simulator.")


@pytest.mark.parametrize(
    ("kind", "when", "sentence"),
    [("drain", Requests.end, "The run has ended."), ("stop", Requests.begin, "Send it again")],
)
def test_what_comes_too_early_or_late_is_refused(run: RunPaths, kind: str, when: Any, sentence: str) -> None:
    training: Any = Stub()
    ask(run, {"id": 9, "kind": kind})
    requests = Requests(run, EventLog(run.agent_events))
    when(requests, training.progress)
    requests.serve_next(training)
    assert not training.asked
    assert (answered(run)["id"], answered(run)["result"]) == (9, "refused")
    assert sentence in answered(run)["sentence"]


def test_values_that_may_change_are_checked_as_in_a_file() -> None:
    changed = patched(AgentConfig(), {"td3.micro_batch": 32, "training.learner_threads": 1})
    assert (changed.td3.micro_batch, changed.training.learner_threads) == (32, 1)
    assert changed.model_copy(update={"td3": AgentConfig().td3, "training": AgentConfig().training}) == AgentConfig()
    with pytest.raises(ConfigError, match=r"the request: `td3.micro_batch` is 0"):
        patched(AgentConfig(), {"td3.micro_batch": 0})


@pytest.mark.parametrize("key", ["td3.batch_size", "seed", "training.updates_per_step"])
def test_what_needs_a_new_process_is_refused_by_name(key: str) -> None:
    with pytest.raises(ConfigError, match=rf"`{key}` can't change in a running agent.*overrides.yaml"):
        patched(AgentConfig(), {"td3.micro_batch": 32, key: 1})


def test_a_key_that_is_unknown_is_not_one_that_can_t_change() -> None:
    with pytest.raises(ConfigError, match=r"unknown key `td3.microbatch` \(did you mean `td3.micro_batch`\?\)"):
        patched(AgentConfig(), {"td3.microbatch": 32})


def test_a_learner_takes_over_what_changed_and_nothing_else(tmp_path: Path) -> None:
    run = RunPaths(tmp_path)
    small = config.validate({"td3": {"network": SMALL, "batch_size": 64, "micro_batch": 16}}, source="test")
    before = torch.get_num_threads()
    with prepare(run, resume=False):
        learner = Learner(small, run)
        try:
            learner.apply(patched(small, {"training.learner_threads": 2}), ["training.learner_threads"])
            assert (torch.get_num_threads(), learner.micro_batch) == (2, 16)
            learner.apply(patched(small, {"td3.micro_batch": None}), ["td3.micro_batch"])
            assert learner.micro_batch == 64
            learner.apply(patched(small, {"td3.micro_batch": 100}), ["td3.micro_batch"])
            assert learner.micro_batch == 64
            learner.apply(small, ["training.checkpoint_every_steps"])
            assert learner.micro_batch == 64, "what memory allowed stays where nothing else is asked for"
        finally:
            torch.set_num_threads(before)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_device_that_isn_t_there_is_refused_and_nothing_changes(tmp_path: Path) -> None:
    run = RunPaths(tmp_path)
    settings = config.validate({"td3": {"network": SMALL, "batch_size": 64, "micro_batch": 16}}, source="test")
    with prepare(run, resume=False):
        learner = Learner(settings, run)
        values = {"device": "cuda", "td3.micro_batch": 8}
        with pytest.raises(ConfigError, match="torch sees no CUDA device"):
            learner.apply(patched(settings, values), values)
        assert (learner.device.type, learner.micro_batch) == ("cpu", 16)
        learner.apply(patched(settings, {"device": "cpu"}), ["device"])
        assert learner.device.type == "cpu"


def test_asking_where_nobody_runs_is_one_sentence(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "carla_td3", "request", "stop", "--run-dir", str(tmp_path)]
    ended = subprocess.run(command, check=False, capture_output=True, text=True, cwd=REPOSITORY, timeout=PATIENCE_S)
    assert ended.returncode == Exit.BAD_CONFIG
    assert ended.stderr == f"{tmp_path}: no agent runs there; start it, or name another --run-dir.\n"
    assert not list(tmp_path.iterdir())


def test_each_request_has_a_greater_id_than_the_last(run: RunPaths) -> None:
    with prepare(run, resume=False):
        inbox = Inbox(run)
        assert send(run, "checkpoint", {}) == 1
        with pytest.raises(ExitError, match="request 1 isn't answered yet"):
            send(run, "checkpoint", {})
        inbox.answer(DONE)
        assert send(run, "apply", {"td3.micro_batch": 8}) == 5
        assert inbox.poll() == Request(id=5, kind=RequestKind.APPLY, values={"td3.micro_batch": 8})
        inbox.answer(replace(DONE, id=5))
        with pytest.raises(ExitError, match="`kind` is 'explode'"):
            send(run, "explode", {})


def test_waiting_ends_with_the_answer_or_with_the_agent(run: RunPaths) -> None:
    with prepare(run, resume=False) as lock:
        inbox = Inbox(run)
        inbox.answer(DONE)
        assert await_answer(run, 4) == DONE
        with pytest.raises(ExitError, match="request 4 came in its place"):
            await_answer(run, 3)
        fcntl.flock(lock.descriptor, fcntl.LOCK_UN)
        with pytest.raises(ExitError, match="the agent ended first"):
            await_answer(run, 5)
