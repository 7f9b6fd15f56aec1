"""The launcher's requests as the agent itself reads and answers them: the two sides of one contract."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from carla_launcher.act.agent_requests import AgentRequests
from carla_run.paths import RunPaths
from carla_run.paths import RunPaths as AgentRun
from carla_run.requests import Answer, Inbox, Request, Result
from carla_td3.run_directory import read_overrides


@pytest.fixture
def requests(tmp_path: Path) -> AgentRequests:
    return AgentRequests(RunPaths(tmp_path))


def answered(request: Request, result: str, sentence: str) -> Answer:
    return Answer(request.id, request.kind, Result(result), sentence, steps=7, updates=3, checkpoint=None)


def test_the_agent_understands_each_request_and_its_answer_is_told_apart_from_older_ones(
    requests: AgentRequests, tmp_path: Path
) -> None:
    inbox = Inbox(AgentRun(tmp_path))
    for kind, values in (("checkpoint", {}), ("drain", {}), ("resume", {}), ("apply", {"td3.micro_batch": 32})):
        number = requests.send(kind, values)
        found = inbox.poll()
        assert isinstance(found, Request)
        assert (found.id, found.kind, found.values) == (number, kind, values)
        assert requests.answer(number) is None
        inbox.answer(answered(found, "ok", "Done."))
        answer = requests.answer(number)
        assert answer is not None
        assert (answer.ok, answer.sentence, answer.steps) == (True, "Done.", 7)


def test_a_refusal_is_no_consent(requests: AgentRequests, tmp_path: Path) -> None:
    inbox = Inbox(AgentRun(tmp_path))
    number = requests.send("apply", {"td3.batch_size": 1})
    found = inbox.poll()
    assert isinstance(found, Request)
    inbox.answer(answered(found, "refused", "`td3.batch_size` can't change in a running agent."))
    answer = requests.answer(number)
    assert answer is not None
    assert not answer.ok


def test_ids_go_on_from_whoever_asked_last(requests: AgentRequests, tmp_path: Path) -> None:
    (tmp_path / "request.ack.json").write_text('{"id": 41, "result": "ok"}')
    (tmp_path / "request.json").write_text("{ torn")
    assert requests.send("drain") == 42
    assert AgentRequests(RunPaths(tmp_path)).send("resume") == 43


def test_the_values_of_the_rung_are_what_the_agent_lays_over_its_configuration(
    requests: AgentRequests, tmp_path: Path
) -> None:
    requests.write_overrides({"td3.micro_batch": 32, "memory.offload": ["optimizer"]})
    assert read_overrides(RunPaths(tmp_path)) == {"td3.micro_batch": 32, "memory.offload": ["optimizer"]}
    assert yaml.safe_load((tmp_path / "overrides.yaml").read_text()) == read_overrides(RunPaths(tmp_path))
    requests.write_overrides({})
    assert not (tmp_path / "overrides.yaml").exists()


def test_what_the_agent_started_with_is_read_from_its_last_start(requests: AgentRequests, tmp_path: Path) -> None:
    assert requests.started_with() == {}
    rows = ['{"event": "started", "overrides": {}}', '{"event": "resumed", "overrides": {"device": "cpu"}}', '{"torn']
    (tmp_path / "agent-events.jsonl").write_text("\n".join(rows))
    assert requests.started_with() == {"device": "cpu"}
