"""The program file: a mistake in one is a sentence; the agent's names keys and events that exist."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import carla_td3
from carla_run.configuration import program_file
from carla_run.configuration.program_file import Loss, ProgramFile, ProgramFileError
from carla_run.configuration.section import keys_of
from carla_run.events import AgentEvent
from carla_td3.config import AgentConfig
from tests.unit.beats import BEAT

AGENT = program_file.load(Path(carla_td3.__file__).with_name("program.yaml"))
LESS = {"name": "less", "values": {"batch_size": [256, 128]}}


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"rungs": [{"name": "less"}]}, "`rungs.0.values` is missing; the example has it"),
        ({"rungs": [{**LESS, "values": {}}]}, "`rungs.0.values` is {}; expected at least 1 in it"),
        ({"rungs": [{**LESS, "name": ""}]}, "`rungs.0.name` is ''; expected text that isn't empty"),
        ({"rungs": [{**LESS, "values": {"batch": []}}]}, "`rungs.0.values`: batch is an empty list"),
        ({"rungs": [{**LESS, "does": "stop"}]}, "`rungs.0.does` is 'stop'; expected 'apply', 'restart_agent' or"),
        ({"rungs": [{**LESS, "loses": "all"}]}, "`rungs.0.loses` is 'all'; expected 'little', 'time' or 'experiment'"),
        ({"rungs": [{**LESS, "pools": ["gpu"]}]}, "`rungs.0.pools.0` is 'gpu'; expected 'vram', 'ram' or 'disk'"),
        ({"rungs": [LESS, LESS]}, "rungs names less twice"),
        ({"heartbeat": {"lr": "rate"}}, "heartbeat names rate; a heartbeat has time, pid, phase"),
        ({"rung": []}, "unknown key `rung` (did you mean `rungs`?)"),
    ],
)
def test_a_mistake_is_one_sentence(values: dict[str, Any], expected: str) -> None:
    with pytest.raises(ProgramFileError) as refused:
        program_file.validate(values, "train.yaml")
    assert str(refused.value).startswith(f"train.yaml: {expected}")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, "can't be read"),
        ("rungs: [", "isn't YAML"),
        ('resume: {words: ["a\\0"]}', r"has the character '\\x00' in line 1, which no word"),
        ('resume: {words: ["\\ud800"]}', r"has the character '\\ud800' in line 1"),
        ("", ""),
    ],
)
def test_a_file_is_read_and_an_empty_one_says_nothing(tmp_path: Path, text: str | None, expected: str) -> None:
    file = tmp_path / "train.yaml"
    if text is not None:
        file.write_text(text)
    if not expected:
        assert program_file.load(file) == ProgramFile()
        return
    with pytest.raises(ProgramFileError, match=expected):
        program_file.load(file)


def test_a_tilde_is_the_users_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    alive = {"folder": "~/logs", "within_s": 9}
    file = program_file.validate({"done": {"file": "~no-such-user/a"}, "alive": alive}, "train.yaml")
    assert file.alive is not None
    assert file.done is not None
    assert (str(file.alive.folder), str(file.done.file)) == ("/home/me/logs", "~no-such-user/a")


def test_a_rung_that_says_little_is_a_restart_and_another_experiment() -> None:
    (rung,) = program_file.validate({"rungs": [LESS]}, "train.yaml").rungs
    assert (rung.does, rung.pools, rung.loses) == ("restart_agent", ("vram", "ram"), Loss.EXPERIMENT)


def test_the_agent_s_file_names_what_it_has() -> None:
    roles = [key for key in AGENT.keys.model_dump().values() if key]
    keys = [*roles, *AGENT.stands_for, *AGENT.stands_for.values(), *AGENT.heartbeat, *AGENT.smaller.values()]
    keys += [key for named in AGENT.options.values() for key in named]
    keys += [*AGENT.without_evaluation, *(key for rung in AGENT.rungs for key in rung.values)]
    assert set(keys) <= keys_of(AgentConfig).keys()
    assert {event for rung in AGENT.rungs for event in rung.by_itself} <= {event.value for event in AgentEvent}


def test_a_null_is_what_it_stands_for_and_a_heartbeat_shows_what_holds() -> None:
    values = {"td3.batch_size": 64, "td3.micro_batch": None, "training.collectors": 2}
    present = AGENT.present(values)
    assert (present["td3.micro_batch"], present["collector.at_work"]) == (64, 2)
    assert AGENT.present({**values, "td3.micro_batch": 8})["td3.micro_batch"] == 8
    beat = replace(BEAT, device="cpu", batch=64, micro_batch=16)
    assert AGENT.shown(beat) == {"device": "cpu", "td3.batch_size": 64, "td3.micro_batch": 16}
