"""Write docs/reference and docs/coverage.md from pydantic, typer, click, the docstrings of enums, and .env.example.

Run ``python scripts/reference.py`` after a change. A test fails while a page is out of date.
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import enum
import inspect
import itertools
import json
import re
import textwrap
import types
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from typer.main import get_command

from carla_launcher.cli import app as launcher_app
from carla_launcher.config import load
from carla_launcher.places import SHIPPED
from carla_lite import coverage
from carla_lite.command import main as lite_command
from carla_lite.support import Status
from carla_run.configuration.program_file import ProgramFile
from carla_run.environment import Variable
from carla_run.events import AgentEvent, Decisive, LauncherEvent
from carla_run.exits import Exit
from carla_run.paths import RunPaths
from carla_td3.__main__ import app as agent_app
from carla_td3.config import ENVIRONMENT, AgentConfig

FOLDER = Path(__file__).resolve().parent.parent / "docs"
LONGEST = 120
"""Longest value that a table shows, in characters."""
MADE = "<!-- Made by scripts/reference.py. Change the code, not this page. -->\n"
LIMITS = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}
"""Signs of the bounds in `annotated_types`, by attribute."""
COVERAGE_LEAD = """
    Made from the code: `carla-lite coverage` prints the same, `carla-lite coverage --json` every row.

    *Works*: as in CARLA; what sensors see are carla-lite's simple shapes. *Approximated*: it does the same with less
    accuracy or another look. *Without effect*: accepted, so that programs run on; the first such call is named in the
    server's log. *Refused*: an error whose sentence says why, or for calls that wait for no answer the same in the log.
    *Absent*: the client of CARLA 0.9.16 can call it, and carla-lite doesn't know it.

    `vehicle.*` means all vehicles, with an attribute all that have it. How vehicles and collisions are modelled is in
    [carla-lite-model.md](carla-lite-model.md), which of other people's programs run in [programs.md](programs.md).
"""
EVENTS = (AgentEvent, LauncherEvent)
EVENTS_LEAD = """
    An event is one line, a JSON object. Besides the fields below it has `time` (seconds since 1970), `event` (its name)
    and `cause`, a sentence for people that no program reads. An event of the launcher that belongs to an incident has
    its id as `incident`.

    If the agent lowers its own device or micro-batch, the launcher adopts `device` and `micro_batch` of the
    [heartbeat](../run-directory.md#heartbeat) as a rung. `gave_way` of the heartbeat names the event that says why.
"""
KEYS_LEAD = "A variable overrides a configuration file. If two variables set the same key, the later row wins."
EXAMPLE = FOLDER.parent / ".env.example"
TYPED = {kind.event: kind for kind in typing.get_args(Decisive)}
"""The classes of the events that have one."""
REQUIRED = "required"
WORDS = {
    int: "integer",
    float: "number",
    str: "text",
    bool: "`true` or `false`",
    Path: "path",
    type(None): "`null`",
}
"""Names of Python's types in YAML."""


COMMANDS: dict[str, Any] = {
    "carla-launcher": get_command(launcher_app),
    "carla-td3": get_command(agent_app),
    "carla-lite": lite_command,
}


def main() -> None:
    """Write the pages."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    (FOLDER / "reference").mkdir(exist_ok=True)
    for name, text in pages().items():
        (FOLDER / name).write_text(text, encoding="utf-8")


def pages() -> dict[str, str]:
    """Return each page's text by its path in docs."""
    return {
        "coverage.md": "\n".join(covered()),
        "reference/agent-configuration.md": configuration(
            "The agent's configuration",
            "A file contains only the keys that differ from these defaults; `extends: NAME` starts from a preset or "
            "another file. `--set KEY=VALUE` and a run's `overrides.yaml` override environment variables, which "
            "override the file.",
            AgentConfig(),
        ),
        "reference/launcher-configuration.md": configuration(
            "The launcher's configuration",
            "The default values are in `launcher/carla_launcher/launcher.yaml`. `--launcher-config FILE` uses another "
            "file, which must contain every key.",
            load(SHIPPED),
        ),
        "reference/program-file.md": configuration(
            "The program file",
            "What the launcher must know of a training (`carla-launcher run --program FILE -- COMMAND`) or of an "
            "evaluation (`carla-launcher routes --program FILE`). Every key of the top level is optional. "
            "Paths are relative to the folder in which the command runs. "
            "Examples are in `examples/programs/`; the agent's own is `agent/carla_td3/program.yaml`.",
            ProgramFile(),
        ),
        "reference/commands.md": "\n".join(
            [
                "# Commands",
                MADE,
                *(line for name, found in COMMANDS.items() for line in command(name, found)),
                *command("carla-lite coverage", coverage.main, 3),
            ]
        ),
        "reference/events.md": page("Events", EVENTS_LEAD, *(each for kind in EVENTS for each in events(kind))),
        "reference/exit-codes.md": page(
            "Exit codes",
            "Codes of the launcher and the agent. The launcher returns the agent's code.",
            *table("code | meaning", *((f"`{int(each)}`", meaning) for each, meaning in members(Exit))),
        ),
        "reference/run-files.md": page(
            "Files of a run",
            "Paths in `runs/NAME/`. [The run directory](../run-directory.md) has the formats.",
            *table("path | content", *run_files()),
        ),
        "reference/environment.md": page(
            "Environment variables", "Variables that the programs read or set.", *variables()
        ),
    }


def page(title: str, lead: str, *lines: str) -> str:
    """Return a page."""
    return "\n".join([f"# {title}", MADE, inspect.cleandoc(lead), *lines]) + "\n"


def table(head: str, *cells: Sequence[str]) -> list[str]:
    """Return the lines of a table after an empty line."""
    return [
        "",
        f"| {head} |",
        f"|{'---|' * (head.count('|') + 1)}",
        *(f"| {' | '.join(map(cell, row))} |" for row in cells),
    ]


def events(kind: type[enum.Enum]) -> list[str]:
    """Return the section of one file's events."""
    said = inspect.getdoc(kind) or ""
    rows = ((each, *meaning.partition("Fields: ")[::2]) for each, meaning in members(kind))
    filled = (
        (f"`{each.value}`", when, ", ".join(typed(TYPED[each])) if each in TYPED else given.strip().rstrip("."))
        for each, when, given in rows
    )
    return ["", f"## {said.split('``')[1]}", "", cell(said), *table("event | when | fields", *filled)]


def typed(event: type[Any]) -> Iterator[str]:
    """Yield the fields of an event's class with the values of enums and the docstrings."""
    hints, meanings = typing.get_type_hints(event), attributes(event)
    for name in (each.name for each in dataclasses.fields(event) if each.name != "cause"):
        parts = (hints[name], *typing.get_args(hints[name]))
        has_values = any(inspect.isclass(each) and issubclass(each, enum.Enum) for each in parts)
        meaning = meanings.get(name, "").rstrip(".").replace("None", "null")
        notes = [kind_of(hints[name]) if has_values else "", meaning[:1].lower() + meaning[1:]]
        yield f"`{name}` ({said})" if (said := "; ".join(filter(None, notes))) else f"`{name}`"


def members(kind: type[enum.Enum]) -> Iterator[tuple[Any, str]]:
    """Yield the members of an enum with their docstrings."""
    meanings = attributes(kind)
    yield from ((each, meanings[each.name]) for each in kind)


def attributes(kind: type) -> dict[str, str]:
    """Return the docstrings of a class's attributes by name."""
    (found,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(found, ast.ClassDef)
    return {
        ast.unparse(before.targets[0] if isinstance(before, ast.Assign) else before.target): str(after.value.value)
        for before, after in itertools.pairwise(found.body)
        if isinstance(before, ast.Assign | ast.AnnAssign)
        and isinstance(after, ast.Expr)
        and isinstance(after.value, ast.Constant)
    }


def run_files() -> Iterator[tuple[str, str]]:
    """Yield the path and the docstring of each file of a run."""
    run = RunPaths(Path())
    for name, found in vars(RunPaths).items():
        if isinstance(found, property):
            yield f"`{getattr(run, name)}`", found.__doc__ or ""


def variables() -> Iterator[str]:
    """Yield the tables of the environment variables."""
    sets = {name: [f"`{key}` of the agent's configuration"] for name, key in ENVIRONMENT.items()}
    for program, group in COMMANDS.items():
        for name, found in {"": group, **getattr(group, "commands", {})}.items():
            for each in found.params:
                for variable in names_of(each.envvar):
                    sets.setdefault(variable, []).append(f"`{f'{program} {name}'.strip()} {each.opts[0]}`")
    yield from ["", "## Keys and options", "", KEYS_LEAD]
    yield from table("variable | what it sets", *((f"`{name}`", ", ".join(what)) for name, what in sets.items()))
    example = re.findall(r"((?:^# .*\n)*?)^(?:# )?([A-Z_]+)=(.*)$", EXAMPLE.read_text(encoding="utf-8"), re.M)
    rows = ((f"`{name}`", value and f"`{value}`", said.replace("# ", "")) for said, name, value in example)
    yield from ["", "## Compose files", "", "Compose reads these variables from `.env`. `.env.example` has them all."]
    yield from table("variable | default | meaning", *rows)
    yield from [
        "",
        "## Others",
        *table("variable | meaning", *((f"`{each}`", said) for each, said in members(Variable))),
    ]


def names_of(variables: str | Sequence[str] | None) -> list[str]:
    """Return the environment variables of an option as a list."""
    return [variables] if isinstance(variables, str) else list(variables or ())


def covered() -> Iterator[str]:
    """Yield the lines of the page on what carla-lite supports of CARLA's API."""
    rows = coverage.rows()
    yield from [
        "# What carla-lite supports of CARLA's API",
        MADE,
        inspect.cleandoc(COVERAGE_LEAD),
        "",
        f"| | {' | '.join(status.value for status in Status)} |",
        f"|---|{'---|' * len(Status)}",
        *(f"| {kind}s | {' | '.join(map(str, found.values()))} |" for kind, found in coverage.counts(rows).items()),
    ]
    for kind in coverage.Kind:
        of_kind = [row for row in rows if row.kind is kind]
        groups = coverage.grouped(of_kind)
        yield from ["", f"## {kind.value.capitalize()}s", "", "| name | status | how, or why |", "|---|---|---|"]
        yield from (
            f"| {', '.join(map(code, names))} | {status.value} | {cell(how)} |" for status, how, names in groups
        )
        if kind is not coverage.Kind.ATTRIBUTE:
            working = [code(row.name) for row in of_kind if row.status is Status.WORKS]
            yield from ["", f"Works: {', '.join(working)}."]
        else:
            yield from ["", "All others work."]
    yield ""


def configuration(title: str, lead: str, defaults: BaseModel) -> str:
    """Return a page with one table for each section of a configuration."""
    tables = sections("", type(defaults), defaults.model_dump(mode="json"))
    return page(title, lead, *tables)


def sections(prefix: str, model: type[BaseModel], values: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of a section and of those below it; a section that is left out shows its own defaults."""
    below = {name: found for name, field in model.model_fields.items() if (found := section(field)) is not None}
    rows = [
        row(f"{prefix}{name}", field, values.get(name, REQUIRED))
        for name, field in model.model_fields.items()
        if name not in below or values.get(name) is None
    ]
    yield from [
        "",
        f"## `{prefix.rstrip('.')}`" if prefix else "## Top level",
        "",
        inspect.cleandoc(model.__doc__ or ""),
    ]
    yield from ["", "| key | value | default | meaning |", "|---|---|---|---|", *rows]
    for name, found in below.items():
        shown = values.get(name) if isinstance(values.get(name), Mapping) else None
        yield from sections(f"{prefix}{name}.", found, shown or found.model_construct().model_dump(mode="json"))


def section(field: FieldInfo) -> type[BaseModel] | None:
    """Return the model of a field that is a section, None for a value."""
    for each in (field.annotation, *typing.get_args(field.annotation)):
        if inspect.isclass(each) and issubclass(each, BaseModel):
            return each
    return None


def row(key: str, field: FieldInfo, value: Any) -> str:
    """Return a field as a row of a table."""
    kind = ", ".join([kind_of(field.annotation), *limits(field)]) if section(field) is None else "section or `null`"
    return f"| {code(key, quoted=False)} | {kind} | {code(value)} | {cell(field.description or '')} |"


def kind_of(annotation: Any) -> str:
    """Return a type in YAML's words."""
    origin, parts = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Annotated:
        found = kind_of(parts[0])
    elif origin is typing.Literal:
        found = " or ".join(code(part) for part in parts)
    elif origin in (typing.Union, types.UnionType):
        found = " or ".join(dict.fromkeys(kind_of(part) for part in parts))
    elif origin is tuple:
        found = f"list of {' or '.join(dict.fromkeys(kind_of(part) for part in parts if part is not Ellipsis))}"
    elif inspect.isclass(origin) and issubclass(origin, Mapping):
        found = f"mapping to {kind_of(parts[1])}"
    elif inspect.isclass(annotation) and issubclass(annotation, enum.Enum):
        found = " or ".join(code(each.value) for each in annotation)
    else:
        found = WORDS.get(annotation, "value")
    return found


def limits(field: FieldInfo) -> Iterator[str]:
    """Yield the bounds of a number."""
    for each in field.metadata:
        yield from (f"{sign} {getattr(each, name):g}" for name, sign in LIMITS.items() if hasattr(each, name))


def code(value: Any, quoted: bool = True) -> str:
    """Return a value between back-ticks, as YAML writes it."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if len(text) > LONGEST:
        return "see the file"
    return f"`{cell(text)}`" if text or not quoted else '`""`'


def cell(text: str) -> str:
    """Return text as one cell of a table."""
    return " ".join(text.replace("``", "`").split()).replace("|", "\\|")


def command(name: str, found: Any, level: int = 2) -> Iterator[str]:
    """Yield the lines of a command of typer's or click's, and of those below it."""
    yield from [f"{'#' * level} `{name}`", "", *paragraphs(found.help or "")]
    options = [each for each in found.params if each.name != "help" and not getattr(each, "hidden", False)]
    if options:
        yield from ["", "| option | default | meaning |", "|---|---|---|", *map(option, options)]
    yield ""
    for below_name, below in getattr(found, "commands", {}).items():
        if not below.hidden:
            yield from command(f"{name} {below_name}", below, level + 1)


def paragraphs(text: str) -> Iterable[str]:
    """Return the paragraphs of a help text, one line each."""
    return [part for each in inspect.cleandoc(text).split("\n\n") for part in (" ".join(each.split()), "")][:-1]


def option(parameter: Any) -> str:
    """Return an option or argument as a row of a table."""
    named = parameter.param_type_name == "option"
    words = ", ".join([*parameter.opts, *parameter.secondary_opts]) if named else parameter.metavar or parameter.name
    if named and not parameter.is_flag:
        words += f" {parameter.metavar or parameter.name.upper()}"
    default = parameter.default.value if isinstance(parameter.default, enum.Enum) else parameter.default
    said = code(str(default)) if isinstance(default, str | int | float | Path) and default != 0 else ""
    return f"| {code(words)} | {said} | {cell(parameter.help or '')}{environment(parameter.envvar)} |"


def environment(variables: str | Sequence[str] | None) -> str:
    """Return the sentence on the environment variables of an option."""
    names = names_of(variables)
    return f" Environment: {', '.join(map(code, names))}." if names else ""


if __name__ == "__main__":
    main()
