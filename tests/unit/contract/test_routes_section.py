"""The part of a program file that an evaluation has: what is refused, in which words, and what its examples say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from carla_run.configuration import program_file
from carla_run.configuration.program_file import ProgramFileError
from carla_run.configuration.routes_section import PLACES, Routes
from tests.conftest import REPOSITORY

EXAMPLES = sorted((REPOSITORY / "examples" / "programs").glob("*.yaml"))
LEAST: dict[str, Any] = {"items": {"names": [1, 2]}, "command": ["drive", "{item}", "--to={result}"]}


def load(folder: Path, changes: dict[str, Any]) -> Routes:
    path = folder / "program.yaml"
    path.write_text(yaml.safe_dump({"routes": {**LEAST, **changes}}), encoding="utf-8")
    routes = program_file.load(path).routes
    assert routes is not None
    return routes


@pytest.mark.parametrize("example", [path for path in EXAMPLES if "routes:" in path.read_text()], ids=lambda p: p.stem)
def test_an_example_is_valid(example: Path) -> None:
    routes = program_file.load(example).routes
    assert routes is not None
    places = {name: f"<{name}>" for name in PLACES}
    assert any("<item>" in word for word in routes.words(places))
    assert not any("{" in word for word in routes.words(places))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"command": ["drive", "--to={result}"]}, "command has no {item}: each of its drives would be the same"),
        ({"command": ["drive", "{itm}"]}, "has {itm}; known are {item}, {host}, {port}"),
        ({"command": []}, "at least 1 in it"),
        ({"items": {}}, "items has no key; expected one of names, routes_xml, lines_of, command"),
        ({"items": {"names": [1], "lines_of": "x"}}, "items has names, lines_of; expected one of"),
        ({"items": {"names": [True]}}, "items.names"),
        ({"done": {}}, "done`: expected one of exit_codes, result, result_has, output_has"),
        ({"again": {"result_has": "(a"}}, "result_has is '(a', expected a regular expression of Python's"),
        ({"command": ["x{item}"], "done": {"result": True}}, "done goes by the result's file, but command has no"),
        ({"result": ".."}, "result is '..', expected the name of a file"),
        ({"environment": {"A": "a\0b"}}, "which no word, variable or path can have: remove it"),
        ({"environment": {"A=B": "c"}}, "'A=B' can't be the name of an environment variable"),
        ({"environment": {"": "c"}}, "'' can't be the name of an environment variable"),
        ({"result": "../x"}, "result is '../x', expected the name of a file"),
        ({"result": "log.txt"}, "result is 'log.txt', expected the name of a file"),
        ({"time_limit_s": 0}, "`routes.time_limit_s` is 0; expected more than 0"),
        ({"drives": 0}, "`routes.drives` is 0; expected at least 1"),
        ({"simulator": {"most_mib": {"disk": 1}}}, "routes.simulator.most_mib.disk"),
        ({"retries": 3}, "routes.retries"),
    ],
)
def test_what_makes_no_sense_is_refused(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ProgramFileError) as refused:
        load(tmp_path, changes)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_words_are_filled_in_and_other_braces_stay(tmp_path: Path) -> None:
    routes = load(tmp_path, {"command": ["drive", '{"at": {port}}', "{item}"], "environment": {"PORT": "{port}"}})
    places = dict.fromkeys(PLACES, "7")
    assert routes.words(places) == ("drive", '{"at": 7}', "7")
    assert routes.variables(places) == {"PORT": "7"}


@pytest.mark.parametrize(("word", "result"), [("{result}", True), ("{folder}", None)])
def test_a_result_is_expected_where_the_command_names_it(tmp_path: Path, word: str, result: bool | None) -> None:
    done = load(tmp_path, {"command": ["drive", "{item}", word]}).shows_done
    assert (done.exit_codes, done.result) == ((0,), result)
