"""Requests to a running agent and its answers, in ``request.json`` and ``request.ack.json``.

Launcher and command line write requests; the agent polls its inbox and answers.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Mapping, Optional, Tuple, Union

from carla_run.enums import StrEnum
from carla_run.exits import Exit, ExitError
from carla_run.files import read_whole, user_name, write_whole
from carla_run.locks import is_held
from carla_run.paths import RunPaths
from carla_run.records import RecordError, record, text


class RequestKind(StrEnum):
    """Kind of a request."""

    CHECKPOINT = "checkpoint"
    DRAIN = "drain"
    """Write a checkpoint, release the simulator, and wait."""
    RESUME = "resume"
    """Drive again after a drain."""
    APPLY = "apply"
    """Continue with other values of the configuration."""
    STOP = "stop"


class Requester(StrEnum):
    """Sender of a request."""

    PERSON = "person"
    LAUNCHER = "launcher"


class Result(StrEnum):
    """Result of a request."""

    OK = "ok"
    REFUSED = "refused"


@dataclass(frozen=True)
class Request:
    """A request to the agent."""

    id: int
    """Greater than that of every earlier request of this run."""
    kind: RequestKind
    values: Mapping[str, Any] = field(default_factory=dict)
    """For apply: configuration keys with dots, and their new values."""
    by: Requester = Requester.PERSON
    """Sender. The launcher ends its own drains, never a user's."""

    def __post_init__(self) -> None:
        if self.id < 1:
            raise RecordError(f"`id` is {self.id}; expected at least 1")
        applies = self.kind is RequestKind.APPLY
        if bool(self.values) != applies:
            expected = "expected some keys" if applies else "only apply has any"
            raise RecordError(f"`values` of {self.kind} is {self.values!r}; {expected}")


@dataclass(frozen=True)
class Answer:
    """The answer to a request, written when it is done."""

    id: int
    kind: str
    """Kind in the request; may be an unknown one."""
    result: Result
    sentence: str
    """One sentence on what was done, or why it was refused."""
    steps: int
    updates: int
    checkpoint: Optional[str]
    """Name of the checkpoint (``step-…``) with everything learned so far; None if there is none."""
    time: float = field(default_factory=lambda: round(time.time(), 3))
    """Seconds since 1970."""

    @property
    def ok(self) -> bool:
        """Whether it was done."""
        return self.result is Result.OK


@dataclass(frozen=True)
class InvalidRequest:
    """A file that is no valid request."""

    id: Optional[int]
    """None if it can't be read, so that no answer is possible."""
    kind: str
    sentence: str


class Inbox:
    """The agent's inbox, for the process that holds the run's lock."""

    def __init__(self, run: RunPaths) -> None:
        self._requests, self._answers = run.request, run.answer
        self._seen: Optional[Tuple[int, int, int]] = None
        self._last = _id(_read(self._answers)) or 0
        self._unwritten: Optional[Answer] = None

    def poll(self) -> Union[Request, InvalidRequest, None]:
        """Return the request if it is new. While nothing changes this reads only the file's status."""
        if self._unwritten is not None:
            self._write(self._unwritten)
        seen, self._seen = self._seen, _stamp(self._requests)
        if self._seen is None or self._seen == seen:
            return None
        found = _parsed(self._requests)
        return None if found.id is not None and found.id <= self._last else found

    def answer(self, answer: Answer) -> None:
        """Write an answer. If the disk refuses it, :meth:`poll` tries again."""
        self._last = answer.id
        self._write(answer)

    def _write(self, answer: Answer) -> None:
        try:
            write_whole(self._answers, text(answer, indent=1))
            self._unwritten = None
        except OSError:
            self._unwritten = answer


def write_request(
    run: RunPaths, kind: str, values: Optional[Mapping[str, Any]] = None, by: Requester = Requester.PERSON
) -> int:
    """Write the next request, which replaces an unanswered one, and return its id.

    Raises:
        ExitError: the request is invalid.
        OSError: the run directory can't be written.
    """
    number = 1 + max(_id(_read(path)) or 0 for path in (run.request, run.answer))
    try:
        request = record(Request, {"id": number, "kind": kind, "values": dict(values or {}), "by": by})
    except RecordError as error:
        raise ExitError(f"{error}.", Exit.BAD_CONFIG) from None
    write_whole(run.request, text(request))
    return number


def send(run: RunPaths, kind: str, values: Mapping[str, Any]) -> int:
    """Send a request to a running agent that has answered all earlier ones; return its id.

    Raises:
        ExitError: no agent runs, the last request isn't answered yet, or the request is invalid.
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
            f"{own}; its owner must send the request.",
            Exit.BAD_CONFIG,
        ) from None
    except OSError as error:
        raise ExitError(f"{run.request}: can't be written ({error.strerror}).", Exit.BAD_CONFIG) from None


def is_open(run: RunPaths) -> bool:
    """Return whether the newest request isn't answered yet."""
    return (_id(_read(run.request)) or 0) > (_id(_read(run.answer)) or 0)


def drained_by_person(run: RunPaths) -> bool:
    """Return whether the newest request is a user's drain."""
    newest = _parsed(run.request)
    return isinstance(newest, Request) and newest.kind is RequestKind.DRAIN and newest.by is Requester.PERSON


def answer_to(run: RunPaths, request_id: int) -> Optional[Answer]:
    """Return the answer to a request; None while there is none."""
    try:
        found = record(Answer, _read(run.answer))
    except RecordError:
        return None
    return found if found.id == request_id else None


def await_answer(run: RunPaths, request_id: int, look_s: float = 0.1) -> Answer:
    """Wait for the answer to a request, without a time limit.

    Raises:
        ExitError: the agent ended without an answer, or answered a later request first.
    """
    while True:
        runs = is_held(run.learner_lock)  # check before reading the answer, which comes before the end
        if (found := answer_to(run, request_id)) is not None:
            return found
        answered = _id(_read(run.answer)) or 0
        if answered > request_id or not runs:
            reason = f"request {answered} came in its place" if answered > request_id else "the agent ended first"
            raise ExitError(f"{run.path}: request {request_id} was never answered, {reason}.", Exit.CRASH)
        time.sleep(look_s)


def _stamp(path: Path) -> Optional[Tuple[int, int, int]]:
    """Return a value that changes when a file is written or replaced; None if there is no file."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def _parsed(path: Path) -> Union[Request, InvalidRequest]:
    try:
        raw = json.loads(read_whole(path))
    except OSError as error:
        return InvalidRequest(None, "", f"{path}: can't be read ({error.strerror}).")
    except (ValueError, RecursionError):
        return InvalidRequest(None, "", f"{path}: isn't whole JSON; write it under another name and rename it.")
    try:
        return record(Request, raw)
    except RecordError as error:
        kind = str(raw.get("kind", ""))[:40] if isinstance(raw, dict) else ""
        return InvalidRequest(_id(raw), kind, f"{path}: {error}.")


def _read(path: Path) -> Any:
    with contextlib.suppress(OSError, ValueError, RecursionError):
        return json.loads(read_whole(path))
    return None


def _id(raw: Any) -> Optional[int]:
    found = raw.get("id") if isinstance(raw, dict) else None
    return found if type(found) is int and found > 0 else None
