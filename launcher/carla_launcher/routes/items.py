"""Reads the items of an evaluation from where its program file says that they are."""

from __future__ import annotations

import subprocess
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

from carla_run.configuration.program_file import ProgramFileError
from carla_run.configuration.routes_section import ItemSource

COMMAND_LIMIT_S = 120.0
NUL = "\0"


def read(source: ItemSource, folder: Path) -> tuple[str, ...]:
    """Return the items in their order; relative paths go from ``folder`` on.

    Raises:
        ProgramFileError: they can't be read, there are none, or one stands twice.
    """
    if source.names is not None:
        where, found = "items.names", [str(name) for name in source.names]
    elif source.routes_xml is not None:
        path = folder / source.routes_xml
        where, found = str(path), _of_xml(path)
    elif source.lines_of is not None:
        path = folder / source.lines_of
        where, found = str(path), _lines(_text(path))
    else:
        assert source.command is not None
        where, found = f"`{source.command[0]}`", _lines(_printed(source.command, folder))
    return _checked(where, found)


def _checked(where: str, items: list[str]) -> tuple[str, ...]:
    if not items:
        raise ProgramFileError(f"{where} has no items, expected at least one.")
    if twice := [item for item, count in Counter(items).items() if count > 1]:
        raise ProgramFileError(
            f"{where} has the item {twice[0]!r} twice: results are kept by item, so keep one of them."
        )
    if odd := [item for item in items if not item or NUL in item or not item.isprintable()]:
        raise ProgramFileError(f"{where} has the item {odd[0]!r}, expected printable text.")
    return tuple(items)


def _of_xml(path: Path) -> list[str]:
    try:
        routes = list(ElementTree.fromstring(_text(path)).iter("route"))
    except ElementTree.ParseError as error:
        raise ProgramFileError(f"{path} isn't XML: {error}.") from None
    if any("id" not in route.attrib for route in routes):
        raise ProgramFileError(f"{path} has a route without an id, expected `<route id=…>` as the Leaderboard has it.")
    return [route.attrib["id"] for route in routes]


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig", errors="replace")
    except OSError as error:
        raise ProgramFileError(f"{path}: the items can't be read ({error.strerror}).") from None


def _printed(command: tuple[str, ...], folder: Path) -> str:
    try:
        asked = subprocess.run(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=COMMAND_LIMIT_S,
        )
    except OSError as error:
        raise ProgramFileError(f"`{command[0]}` can't be started for the items ({error.strerror}).") from None
    except subprocess.TimeoutExpired:
        raise ProgramFileError(f"`{command[0]}` hasn't printed the items within {COMMAND_LIMIT_S:g} s.") from None
    if asked.returncode:
        said = (_lines(asked.stderr) or ["it said nothing"])[-1]
        raise ProgramFileError(f"`{command[0]}`, asked for the items, ended with {asked.returncode}: {said}")
    return asked.stdout
