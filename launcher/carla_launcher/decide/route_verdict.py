"""Judges the end of a drive, and whether the next one is to have a fresh simulator. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from carla_run.configuration.routes_section import DrivenSimulator, Routes, Shows
from carla_run.exits import exit_in_words


class Outcome(str, Enum):
    """Result of a drive for its item."""

    DONE = "done"
    FAILED = "failed"
    """A failure of the driver's, which is the item's result."""
    AGAIN = "again"
    """It left no result: the item is driven again, or left."""
    UNDONE = "undone"
    """It was cut short, and counts for nothing."""


class Why(str, Enum):
    """Why a drive left no result."""

    SIMULATOR = "simulator"
    TIME_LIMIT = "time_limit"
    NOT_VALID = "not_valid"
    """The program file says that what it left is no result."""
    EXIT = "exit"
    """How it ended isn't how a drive ends that is done."""
    NOT_STARTED = "not_started"
    STOPPED = "stopped"
    LAUNCHER_KILLED = "launcher_killed"


KEPT = {Outcome.DONE: "it is done", Outcome.FAILED: "it failed, and that is its result"}
"""The outcomes that are kept as an item's result, with their sentences."""
LONGEST = 160
"""Characters of the last line that a program printed."""


@dataclass(frozen=True)
class DriveEnd:
    """How a drive ended.

    Attributes:
        exit_code: of its program; 128 + n if signal n ended it.
        cut: why it was ended from here; None if it ended by itself.
        simulator: what happened to its simulator meanwhile, a sentence; empty for nothing.
        result: what is in the result's file, as far as it is read; None if there is none, or it is empty.
        output: the end of what it printed.
        oom_killed: the kernel killed it for memory.
    """

    exit_code: int
    cut: Why | None = None
    simulator: str = ""
    result: str | None = None
    output: str = ""
    oom_killed: bool = False


@dataclass(frozen=True)
class Verdict:
    """Judgement on a drive.

    Attributes:
        why: None where the drive left a result.
        sentence: for people, without its full stop.
    """

    outcome: Outcome
    why: Why | None
    sentence: str


def judge(end: DriveEnd, rules: Routes) -> Verdict:
    """Return what an end means; a drive whose simulator was lost is none, unless the program file is sure of it."""
    if end.cut is Why.STOPPED:
        return Verdict(Outcome.UNDONE, end.cut, "the evaluation was stopped")
    void = rules.again is not None and _holds(rules.again, end)
    for outcome, shows in ((Outcome.FAILED, rules.failed), (Outcome.DONE, rules.shows_done)):
        if shows is None or void or not _holds(shows, end):
            continue
        if shows.sure or (not end.simulator and end.cut is None):
            return Verdict(outcome, None, KEPT[outcome])
    return Verdict(Outcome.AGAIN, *_why_not(end, rules, void))


def _why_not(end: DriveEnd, rules: Routes, void: bool) -> tuple[Why, str]:
    """Return why a drive left no result, and the same for people."""
    ended = exit_in_words(end.exit_code) + (", killed for memory" if end.oom_killed else "")
    if end.simulator:
        return Why.SIMULATOR, end.simulator
    if end.cut is Why.TIME_LIMIT:
        return end.cut, f"it took longer than {rules.time_limit_s:g} s"
    if end.cut is not None:
        return end.cut, "its program can't be started"
    if void:
        return Why.NOT_VALID, f"what it left is no result, by `again` ({ended})"
    without = "" if end.result is not None or not rules.shows_done.of_result else ", without a result"
    said = next((f": {line.strip()[:LONGEST]}" for line in reversed(end.output.splitlines()) if line.strip()), "")
    return Why.EXIT, f"its program ended with {ended}{without}{said}"


def _holds(shows: Shows, end: DriveEnd) -> bool:
    return (
        (shows.exit_codes is None or end.exit_code in shows.exit_codes)
        and (shows.result is None or shows.result == (end.result is not None))
        and (shows.result_has is None or re.search(shows.result_has, end.result or "") is not None)
        and (shows.output_has is None or re.search(shows.output_has, end.output) is not None)
    )


def why_fresh(rules: DrivenSimulator, drives: int, left_a_result: bool, held_mib: Mapping[str, float]) -> str:
    """Return why the next drive is to have a fresh simulator, a sentence; empty if the one that runs will do.

    Args:
        rules: the program file's.
        drives: that it has served.
        left_a_result: whether the last of them did.
        held_mib: what it holds, by kind of memory.
    """
    if not left_a_result and rules.after_failure:
        return "the last drive in it left no result"
    if rules.every is not None and drives >= rules.every:
        return f"it has served {drives} drives (simulator.every is {rules.every})"
    over = (kind for kind, most in rules.most_mib.items() if held_mib.get(kind, 0.0) > most)
    for kind in over:
        return f"it holds {held_mib[kind]:.0f} MiB of {kind} (simulator.most_mib is {rules.most_mib[kind]:.0f})"
    return ""
