"""The documents and the code name the same lists, files, keys and commands."""

from __future__ import annotations

import ast
import functools
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import reference
import yaml
from typer.main import get_command

from carla_launcher.cli import app as launcher_app
from carla_launcher.places import SHIPPED
from carla_lite import coverage
from carla_lite.command import main as lite_command
from carla_lite.world import LISTED_ONLY
from carla_run import environment
from carla_run.environment import Variable
from carla_run.heartbeat import Cuda, Phase
from carla_run.requests import RequestKind
from carla_td3 import config
from carla_td3.__main__ import app as agent_app
from carla_td3.trainer.requests import APPLICABLE
from tests.conftest import REPOSITORY

RUN_DIRECTORY = (REPOSITORY / "docs" / "run-directory.md").read_text(encoding="utf-8")
REFERENCE = {path.name: path.read_text(encoding="utf-8") for path in (REPOSITORY / "docs" / "reference").glob("*.md")}
HOW_TO = {path.name: path.read_text(encoding="utf-8") for path in (REPOSITORY / "docs" / "how-to").glob("*.md")}
DOCUMENTS = [
    *(REPOSITORY / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "carla/lite/README.md")),
    *sorted((REPOSITORY / "docs").rglob("*.md")),
]
CODE = ("agent", "contract", "launcher", "carla/lite/carla_lite")
OURS = re.compile(r"(?:AGENT|CARLA|LAUNCHER|LITE|PYTORCH|RL|RUN)_[A-Z_]+|RESTART")
"""Environment variables of this project's; a run's files and Slurm's variables are named elsewhere."""


def between(text: str, begins: str, ends: str) -> str:
    """Return what stands between two strings, each there once in its place."""
    assert begins in text, begins
    found, end, _ = text.partition(begins)[2].partition(ends)
    assert end, ends
    return found


def named(text: str) -> list[str]:
    """Return what stands between back-ticks."""
    return re.findall(r"`([^`]+)`", text)


def listed(text: str, begins: str, ends: str = ")") -> list[str]:
    """Return the words of a list with commas between."""
    return [word.strip() for word in between(text, begins, ends).split(",")]


def first_cells(text: str) -> list[str]:
    """Return the names in the first column of the tables."""
    return [name for line in text.splitlines() if line.startswith("| ") for name in named(line.split(" | ")[0])]


@functools.cache
def strings() -> frozenset[str]:
    """Return the strings of the code except the table of variables, and what stands between the values of f-strings."""
    files = {path for package in CODE for path in (REPOSITORY / package).rglob("*.py")} - {Path(environment.__file__)}
    nodes = (node for path in files for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    return frozenset(node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str))


@pytest.mark.parametrize(
    ("document", "code"),
    [
        (listed(RUN_DIRECTORY, "| `phase` | ", " |"), Phase),
        (listed(RUN_DIRECTORY, "what its PyTorch makes of CUDA: ", ";"), Cuda),
        (first_cells(between(RUN_DIRECTORY, "| kind | done when answered |", "\nThe learner looks")), RequestKind),
        (named(between(RUN_DIRECTORY, "Only those whose change is exact:", "any other")), APPLICABLE),
    ],
)
def test_a_list_has_each_name_once_and_no_other(document: list[str], code: Iterable[str]) -> None:
    assert sorted(document) == sorted(map(str, code))


def test_each_environment_variable_of_ours_is_named_and_no_other() -> None:
    assert set(filter(OURS.fullmatch, strings())) <= set(first_cells(REFERENCE["environment.md"]))
    assert set(map(str, Variable)) <= strings()


def test_what_is_only_listed_as_a_blueprint_is_named_and_no_other() -> None:
    sentence = between(HOW_TO["faults.md"], "The log names each once. ", "are listed as blueprints")
    for kind in ("lidar", "radar"):
        assert (kind in sentence) is any(kind in blueprint for blueprint in LISTED_ONLY)


# Keys


def keys(values: Mapping[str, Any], before: str = "") -> Iterator[str]:
    """Yield the dotted keys of a configuration, sections included."""
    for key, value in values.items():
        yield f"{before}{key}"
        if isinstance(value, Mapping):
            yield from keys(value, f"{before}{key}.")


def test_each_key_that_is_named_is_one() -> None:
    agents, launchers = config.dump(config.AgentConfig()), yaml.safe_load(SHIPPED.read_text(encoding="utf-8"))
    known = {*keys(agents), *keys(launchers)}
    texts = (text for name, text in HOW_TO.items() if name != "upgrade.md")
    dotted = {
        name
        for name in named("".join([RUN_DIRECTORY, *REFERENCE.values(), *texts]))
        if re.fullmatch(r"[a-z_\d]+(?:\.[a-z_\d]+)+", name)
    }
    of_sections = {name for name in dotted if name.partition(".")[0] in {*agents, *launchers}}
    files = {name for name in of_sections if name in strings()} - known
    assert of_sections - known - files == set()


# Commands

PROGRAMS: dict[str, Any] = {
    "scripts/launch.py": get_command(launcher_app),
    "launch.py": get_command(launcher_app),
    "carla-launcher": get_command(launcher_app),
    "carla-td3": get_command(agent_app),
    "carla-lite": lite_command,
}


def commands() -> Iterator[tuple[str, list[str]]]:
    """Yield the documents' command lines of this project's programs: which program, and its words."""
    for document in DOCUMENTS:
        text = document.read_text(encoding="utf-8").replace("\\\n", " ")
        fenced = [line for block in re.findall(r"```bash\n(.*?)```", text, re.S) for line in block.splitlines()]
        for line in [*fenced, *(line.replace("\n", " ") for line in named(re.sub(r"```.*?```", "", text, flags=re.S)))]:
            found = re.search(
                r"(?:python3? |^)(carla-(?:launcher|td3|lite)|launch\.py|(?:scripts|benchmarks)/\w+\.py) ", line
            )
            if found:
                words = re.split(r" #|\|| && | > | & |&$|;", line[found.end() :])[0]
                yield found[1], shlex.split(words.replace("…", ""))


def options(command: Any) -> set[str]:
    return {name for each in command.params for name in (*each.opts, *each.secondary_opts)} | {"--help"}


def known_options(program: str, words: list[str]) -> set[str]:
    """Return the options of a program, or of the command of it that the words begin with."""
    if program in ("scripts/train_td3.py", "scripts/evaluate_td3.py"):
        return options(PROGRAMS["carla-td3"].commands[program[8:].partition("_")[0]])
    if program == "carla-lite" and words[:1] == ["coverage"]:
        return options(coverage.main)
    found = PROGRAMS.get(program)
    if found is not None:
        return options(found.commands[words[0]] if hasattr(found, "commands") else found)
    source = (REPOSITORY / program).read_text(encoding="utf-8")
    parameters = set(re.findall(r"^ +(\w+): ", source, re.M))
    by_name = {f"--{no}{name.replace('_', '-')}" for name in parameters for no in ("", "no-")}
    return by_name | set(re.findall(r'"(--[\w-]+)', source))


_PROMISES = (REPOSITORY / "docs" / "promises.md").read_text(encoding="utf-8")


def test_each_test_that_shows_a_promise_is_there() -> None:
    named = re.findall(r"`(tests/[^`]+)`", _PROMISES)
    assert len(named) > 40
    assert [each for each in named if not _is_there(*each.split("::"))] == []


def test_each_promise_names_a_test() -> None:
    rows = re.findall(r"^\| (?!promise|---)(.+?) \| (.+) \|$", _PROMISES, re.M)
    assert len(rows) > 20
    assert [promise for promise, shown in rows if "`tests/" not in shown and "same file operations" not in shown] == []


def _is_there(path: str, test: str = "") -> bool:
    """Return whether a file of tests exists, and has this test."""
    place = REPOSITORY / path
    return place.exists() and (not test or f"\ndef {test}(" in place.read_text(encoding="utf-8"))


def test_each_command_line_in_the_documents_is_understood() -> None:
    lines = list(commands())
    for program, words in lines:
        own = words[: words.index("--")] if "--" in words else words
        given = {word.partition("=")[0] for word in own if re.match("--[a-z]", word)}
        assert given - known_options(program, words) == set(), (program, words)
    assert {program for program, _ in lines} >= {"carla-launcher", "carla-td3", "carla-lite", "benchmarks/driving.py"}


# Prose

LONGEST_PARAGRAPH = 600


def paragraphs(text: str) -> Iterator[str]:
    """Yield paragraphs, points of lists and cells of tables, each as one line; neither headings nor code."""
    text = re.sub(r"^ *```.*?^ *```", "", text, flags=re.S | re.M)
    for block in re.split(r"\n\s*\n|\n(?=\s*(?:[-*>]|\d+\.) )", text):
        lines = block.splitlines()
        yield " ".join(line.strip() for line in lines if not re.match(r"\s*[|#]", line))
        yield from (cell for line in lines if line.startswith("|") for cell in line.split(" | "))


def test_no_paragraph_is_a_wall_of_text() -> None:
    """A list of names in code, as in coverage.md, is looked up and not read."""
    found = [
        f"{document.relative_to(REPOSITORY)}: {len(paragraph)} characters: {paragraph[:60]}…"
        for document in DOCUMENTS
        for paragraph in paragraphs(document.read_text(encoding="utf-8"))
        if len(paragraph) > LONGEST_PARAGRAPH and len(re.sub(r"`[^`]+`(?:, )?", "", paragraph)) > 20
    ]
    assert found == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_each_table_is_shown_as_one(document: Path) -> None:
    """It begins after an empty line, with a head: else the site, or GitHub, shows its bars."""
    lines = ["", *document.read_text(encoding="utf-8").splitlines()]
    begins = [at for at, line in enumerate(lines) if line.startswith("|") and not lines[at - 1].startswith("|")]
    broken = [lines[at] for at in begins if lines[at - 1] or not re.fullmatch(r"\|[\s:|-]+\|", lines[at + 1])]
    assert broken == []


def test_design_page_and_readme_stay_short() -> None:
    design = (REPOSITORY / "docs" / "architecture.md").read_text(encoding="utf-8")
    assert len(design.splitlines()) <= 150
    assert len(DOCUMENTS[0].read_text(encoding="utf-8").splitlines()) <= 120
    assert len(re.findall(r"!\[[^\]]+\]\(images/\w+\.svg\)", design)) == 3


# Made pages


def test_the_reference_is_what_its_script_makes() -> None:
    made, folder = reference.pages(), reference.FOLDER
    assert {path.name for path in (folder / "reference").iterdir()} == {Path(name).name for name in made} - {
        "coverage.md"
    }
    assert {name: (folder / name).read_text(encoding="utf-8") for name in made} == made, (
        "run: python scripts/reference.py"
    )
