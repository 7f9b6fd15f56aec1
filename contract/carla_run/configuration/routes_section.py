"""The part of a program file that an evaluation has: its items, how one is driven, and what the end of a drive means.

Owns the schema. An item is what the program evaluates at a time: a route, a scenario, a seed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePath
from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from carla_run.configuration.section import MOST_EXIT_CODE, Section, refuse_odd_variable

PLACES = ("item", "host", "port", "tm_port", "result", "folder", "gpu")
_PLACE = re.compile(r"\{([a-z_]+)\}")


class ItemSource(Section):
    """Where the items come from: one of these keys."""

    names: tuple[str | int, ...] | None = Field(None, description="The items themselves.")
    routes_xml: Path | None = Field(None, description="Route file of the Leaderboard. Each route's `id` is an item.")
    lines_of: Path | None = Field(None, description="Text file. Each line that isn't empty is an item.")
    command: tuple[str, ...] | None = Field(
        None, min_length=1, description="Command. Each line that it prints is an item."
    )

    @model_validator(mode="after")
    def _is_one(self) -> ItemSource:
        given, known = [name for name, value in self if value is not None], ", ".join(type(self).model_fields)
        if len(given) != 1:
            raise ValueError(f"items has {', '.join(given) or 'no key'}; expected one of {known}")
        return self


class Shows(Section):
    """Conditions on the end of a drive. All conditions that are given must hold.

    The launcher checks `again` first, then `failed`, then `done`. If none holds, the drive left no result.
    """

    exit_codes: tuple[Annotated[int, Field(ge=0, le=MOST_EXIT_CODE)], ...] | None = Field(
        None, description="The exit code is one of these. 128 + n means signal n."
    )
    result: bool | None = Field(None, description="Whether the file `{result}` is there, and isn't empty.")
    result_has: str | None = Field(None, description="Regular expression that matches in the file `{result}`.")
    output_has: str | None = Field(None, description="Regular expression that matches at the end of the output.")
    sure: bool = Field(
        False,
        description="For `done` and `failed`: whether the conditions also count if the simulator was lost or the time "
        "limit ended the drive. Set it only if a lost simulator can't cause what they look for. The program then has "
        "`stop_grace_s` after a loss to end by itself.",
    )

    @field_validator("result_has", "output_has")
    @classmethod
    def _is_a_pattern(cls, pattern: str | None, info: ValidationInfo) -> str | None:
        try:
            re.compile(pattern or "")
        except re.error as error:
            raise ValueError(
                f"{info.field_name} is {pattern!r}, expected a regular expression of Python's: {error}"
            ) from None
        return pattern

    @model_validator(mode="after")
    def _says_something(self) -> Shows:
        known = ("exit_codes", "result", "result_has", "output_has")
        if all(getattr(self, name) is None for name in known):
            raise ValueError(f"expected one of {', '.join(known)}: without any, every end would be meant")
        return self

    @property
    def of_result(self) -> bool:
        """Return whether it goes by the result's file."""
        return self.result is not None or self.result_has is not None


class DrivenSimulator(Section):
    """The simulator of the drives, and when it is restarted between two drives although it is healthy."""

    by_program: bool = Field(
        False, description="The program starts its own simulator at `{port}`. The launcher starts and watches none."
    )
    every: int | None = Field(None, ge=1, description="Restart it after this many drives. null: no limit.")
    after_failure: bool = Field(
        True, description="Restart it after a drive without a result, which may leave a world that waits for ticks."
    )
    most_mib: dict[Literal["vram", "ram"], float] = Field(
        {}, description="Restart it before the next drive if it holds more, in MiB."
    )


class Routes(Section):
    """An evaluation that runs item by item, such as route by route."""

    items: ItemSource = Field(description="Where the items of the evaluation come from.")
    command: tuple[str, ...] = Field(
        min_length=1,
        description="Command that drives one item, word by word; no shell reads it. In its words `{item}`, `{host}`, "
        "`{port}` (of the simulator), `{tm_port}` (free, for a Traffic Manager), `{result}` (a file that it writes), "
        "`{folder}` (of this drive) and `{gpu}` (index of its card) stand for what they name.",
    )
    folder: Path | None = Field(
        None, description="Folder in which the command runs; relative paths start there. Default: the program file's."
    )
    environment: dict[str, str] = Field({}, description="Environment variables; names in braces are replaced too.")
    result: str = Field("result.json", description="Name of the file that `{result}` stands for.")
    time_limit_s: float | None = Field(
        None, gt=0, description="Time limit of one drive, in seconds; the drive is ended then. null: no limit."
    )
    stop_grace_s: float = Field(10.0, ge=0, description="Seconds between SIGTERM and SIGKILL.")
    done: Shows | None = Field(
        None,
        description="When an item is done. Default: exit code 0, and the file `{result}` if the command has it.",
    )
    failed: Shows | None = Field(
        None, description="When the driver failed. The failure is the item's result. Overrides `done`."
    )
    again: Shows | None = Field(
        None, description="When a drive has no valid result and is repeated. Overrides `done` and `failed`."
    )
    drives: int = Field(
        2,
        ge=1,
        description="Number of drives without a result after which an item is given up and named. Stops don't count.",
    )
    give_up_after: int | None = Field(
        10, ge=1, description="The evaluation ends after this many drives in a row without a result. null: never."
    )
    simulator: DrivenSimulator = DrivenSimulator()

    @field_validator("result")
    @classmethod
    def _is_a_name(cls, result: str) -> str:
        if not result or PurePath(result).name != result or result in ("..", "log.txt"):
            raise ValueError(f"result is {result!r}, expected the name of a file in the drive's folder, as result.json")
        return result

    @model_validator(mode="after")
    def _fills_in_what_there_is(self) -> Routes:
        for name in self.environment:
            refuse_odd_variable(name)
        used = set(self._places())
        if odd := sorted(used - {*PLACES}):
            raise ValueError(f"command or environment has {{{odd[0]}}}; known are {{{'}, {'.join(PLACES)}}}")
        if "item" not in used:
            raise ValueError("command has no {item}: each of its drives would be the same")
        by_file = [name for name in ("done", "failed", "again") if (shows := getattr(self, name)) and shows.of_result]
        if by_file and not used & {"result", "folder"}:
            raise ValueError(f"{by_file[0]} goes by the result's file, but command has no {{result}}: let it say where")
        return self

    @property
    def shows_done(self) -> Shows:
        """Return what shows that an item is done."""
        return self.done or Shows(exit_codes=(0,), result=True if "result" in self._places() else None)

    @property
    def ends_by_itself(self) -> bool:
        """Return whether a drive may come to a result after its simulator was lost."""
        return any(shows is not None and shows.sure for shows in (self.failed, self.done))

    def words(self, places: Mapping[str, str]) -> tuple[str, ...]:
        """Return the command of one drive; ``places`` has a value for each of ``PLACES``."""
        return tuple(_filled(word, places) for word in self.command)

    def variables(self, places: Mapping[str, str]) -> dict[str, str]:
        """Return the environment of one drive likewise."""
        return {name: _filled(value, places) for name, value in self.environment.items()}

    def _places(self) -> Iterator[str]:
        for word in (*self.command, *self.environment.values()):
            yield from _PLACE.findall(word)


def _filled(word: str, places: Mapping[str, str]) -> str:
    return _PLACE.sub(lambda found: places[found[1]], word)
