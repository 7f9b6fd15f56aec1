"""Write docs/reference (configurations and commands, from pydantic, typer and click) and docs/coverage.md.

Run ``python scripts/reference.py`` after a change. A test fails while a page is out of date.
"""

from __future__ import annotations

import enum
import inspect
import json
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
from carla_td3.__main__ import app as agent_app
from carla_td3.config import AgentConfig

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


def main() -> None:
    """Write the pages."""
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
                *command("carla-launcher", get_command(launcher_app)),
                *command("carla-td3", get_command(agent_app)),
                *command("carla-lite", lite_command),
                *command("carla-lite coverage", coverage.main, 3),
            ]
        ),
    }


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
    return "\n".join([f"# {title}", MADE, lead, *tables]) + "\n"


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
    return " ".join(text.split()).replace("|", "\\|")


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
    names = [variables] if isinstance(variables, str) else list(variables or ())
    return f" Environment: {', '.join(map(code, names))}." if names else ""


if __name__ == "__main__":
    main()
