"""Requests to a running agent and its answers: ``request.json`` and ``request.ack.json``, one writer each at a time.

Launcher and command line ask, the agent polls its inbox and answers.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError, model_validator

from carla_run import refusal
from carla_run.enums import StrEnum
from carla_run.exits import Exit, ExitError
from carla_run.files import read_whole, user_name, write_whole
from carla_run.locks import is_held
from carla_run.paths import RunPaths
from carla_run.section import Section


class RequestKind(StrEnum):
    """What can be asked."""

    CHECKPOINT = "checkpoint"
    DRAIN = "drain"
    """Write a checkpoint, give the simulator back, and wait."""
    RESUME = "resume"
    """Drive again after a drain."""
    APPLY = "apply"
    """Go on with other values of the configuration."""
    STOP = "stop"


class Asker(StrEnum):
    """Who asks."""

    PERSON = "person"
    LAUNCHER = "launcher"


class Result(StrEnum):
    """What became of a request."""

    OK = "ok"
    REFUSED = "refused"


class Request(Section):
    """What is asked of the agent."""

    id: int = Field(ge=1, strict=True)
    """Greater than that of every earlier request of this run."""
    kind: RequestKind
    values: Mapping[str, Any] = Field(default_factory=dict)
    """For apply: configuration keys with dots, and their new values."""
    by: Asker = Asker.PERSON
    """The launcher ends a drain of its own, never a person's."""

    @model_validator(mode="after")
    def _values_belong_to_apply(self) -> Request:
        applies = self.kind is RequestKind.APPLY
        if bool(self.values) != applies:
            expected = "expected some keys" if applies else "only apply has any"
            raise ValueError(f"`values` of {self.kind} is {self.values!r}; {expected}")
        return self


class Answer(Section):
    """What became of a request; written when it is done."""

    id: int
    kind: str
    """As it was asked; not always one that there is."""
    result: Result
    sentence: str
    """What was done, or why it wasn't."""
    steps: int
    updates: int
    checkpoint: str | None
    """Name of the checkpoint, ``step-…``, that holds what was learned until now; None where it isn't saved."""
    time: float = Field(default_factory=lambda: round(time.time(), 3))
    """Seconds since 1970."""

    @property
    def ok(self) -> bool:
        """Whether it was done."""
        return self.result is Result.OK


@dataclass(frozen=True)
class Unfit:
    """A file that is no request."""

    id: int | None
    """None where it can't be read, so that no answer can be addressed."""
    kind: str
    sentence: str


class Inbox:
    """The agent's end. For the one process that holds the run's lock."""

    def __init__(self, run: RunPaths) -> None:
        self._requests, self._answers = run.request, run.answer
        self._seen: tuple[int, int, int] | None = None
        self._last = _id(_read(self._answers)) or 0
        self._unwritten: Answer | None = None

    def poll(self) -> Request | Unfit | None:
        """Return the request if it is new. One look at the file's times while nothing changes."""
        if self._unwritten is not None:
            self._write(self._unwritten)
        seen, self._seen = self._seen, _stamp(self._requests)
        if self._seen is None or self._seen == seen:
            return None
        found = _parsed(self._requests)
        return None if found.id is not None and found.id <= self._last else found

    def answer(self, answer: Answer) -> None:
        """Write an answer for good. Where the disk refuses it, :meth:`poll` tries again."""
        self._last = answer.id
        self._write(answer)

    def _write(self, answer: Answer) -> None:
        try:
            write_whole(self._answers, answer.model_dump_json(indent=1) + "\n")
            self._unwritten = None
        except OSError:
            self._unwritten = answer


def write_request(run: RunPaths, kind: str, values: Mapping[str, Any] | None = None, by: Asker = Asker.PERSON) -> int:
    """Write the next request, in the place of one that isn't answered yet, and return its id.

    Raises:
        ExitError: it is none.
        OSError: the run directory can't be written.
    """
    number = 1 + max(_id(_read(path)) or 0 for path in (run.request, run.answer))
    try:
        request = Request.model_validate({"id": number, "kind": kind, "values": dict(values or {}), "by": by})
    except ValidationError as error:
        raise ExitError(f"{refusal.clause(error, Request)}.", Exit.BAD_CONFIG) from None
    write_whole(run.request, request.model_dump_json() + "\n")
    return number


def send(run: RunPaths, kind: str, values: Mapping[str, Any]) -> int:
    """Send a request that no other is waiting before, to an agent that runs; return its id.

    Raises:
        ExitError: no agent runs there to read it, the last one isn't answered yet, or it is none.
    """
    if not is_held(run.learner_lock):
        raise ExitError(f"{run.path}: no agent runs there; start it, or name another --run-dir.", Exit.BAD_CONFIG)
    if is_open(run):
        raise ExitError(
            f"{run.path}: request {_id(_read(run.request))} isn't answered yet; wait for it.", Exit.BAD_CONFIG
        )
    try:
        return write_request(run, kind, values)
    except PermissionError as error:
        owner, own = user_name(run.path.stat().st_uid), user_name(os.getuid())
        raise ExitError(
            f"{run.request}: can't be written ({error.strerror}): {run.path} belongs to {owner} and this runs as "
            f"{own}; have its owner ask for it.",
            Exit.BAD_CONFIG,
        ) from None
    except OSError as error:
        raise ExitError(f"{run.request}: can't be written ({error.strerror}).", Exit.BAD_CONFIG) from None


def is_open(run: RunPaths) -> bool:
    """Return whether the newest request isn't answered yet."""
    return (_id(_read(run.request)) or 0) > (_id(_read(run.answer)) or 0)


def drained_by_person(run: RunPaths) -> bool:
    """Return whether the newest request is a person's, to drain."""
    newest = _parsed(run.request)
    return isinstance(newest, Request) and newest.kind is RequestKind.DRAIN and newest.by is Asker.PERSON


def answer_to(run: RunPaths, request_id: int) -> Answer | None:
    """Return the answer to a request; None while there is none."""
    try:
        found = Answer.model_validate(_read(run.answer))
    except ValidationError:
        return None
    return found if found.id == request_id else None


def await_answer(run: RunPaths, request_id: int, look_s: float = 0.1) -> Answer:
    """Return the answer to a request, however long it takes.

    Raises:
        ExitError: the agent ended without one, or answered a later request first.
    """
    while True:
        runs = is_held(run.learner_lock)  # asked first: the answer comes before the end
        if (found := answer_to(run, request_id)) is not None:
            return found
        answered = _id(_read(run.answer)) or 0
        if answered > request_id or not runs:
            reason = f"request {answered} came in its place" if answered > request_id else "the agent ended first"
            raise ExitError(f"{run.path}: request {request_id} was never answered, {reason}.", Exit.CRASH)
        time.sleep(look_s)


def _stamp(path: Path) -> tuple[int, int, int] | None:
    """Return what changes when a file is written again or replaced; None where there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def _parsed(path: Path) -> Request | Unfit:
    try:
        raw = json.loads(read_whole(path))
    except OSError as error:
        return Unfit(None, "", f"{path}: can't be read ({error.strerror}).")
    except (ValueError, RecursionError):
        return Unfit(None, "", f"{path}: isn't whole JSON; write it under another name and rename it.")
    try:
        return Request.model_validate(raw)
    except ValidationError as error:
        kind = str(raw.get("kind", ""))[:40] if isinstance(raw, dict) else ""
        return Unfit(_id(raw), kind, f"{path}: {refusal.clause(error, Request)}.")


def _read(path: Path) -> Any:
    with contextlib.suppress(OSError, ValueError, RecursionError):
        return json.loads(read_whole(path))
    return None


def _id(raw: Any) -> int | None:
    found = raw.get("id") if isinstance(raw, dict) else None
    return found if type(found) is int and found > 0 else None
