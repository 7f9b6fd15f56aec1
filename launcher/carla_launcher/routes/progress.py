"""Reads an evaluation's journal: each item's drives, where it stands, and which one is next. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from carla_launcher.routes.verdict import KEPT, Outcome, Why
from carla_run.enums import StrEnum
from carla_run.readers import inner, number


class RouteEvent(StrEnum):
    """Events in ``routes.jsonl``; ``carla-launcher routes`` writes each before it acts."""

    ITEMS = "items"
    """The list of items is new or has changed. Fields: ``items``, ``drives`` (most drives without a result)."""
    DRIVE_STARTS = "drive_starts"
    """A drive of an item is about to start. Fields: ``item``, ``drive`` (from 1), ``simulator``, ``folder``."""
    DRIVE_ENDED = "drive_ended"
    """A drive ended, or the next launcher found that the last one was killed during the drive.
    Fields: ``item``, ``drive``, ``outcome`` (done; failed: this is its result; again: no result; undone: it doesn't
    count), ``why`` (simulator, time_limit, not_valid, exit, not_started, stopped, launcher_killed; null with a result),
    ``exit_code``, ``took_s``, ``result``, ``peak_mib`` (of simulator and program, by kind of memory).
    """
    SIMULATOR_STARTED = "simulator_started"
    """A simulator has a process. Fields: ``simulator``, ``pid``, ``log``."""
    SIMULATOR_HEALTHY = "simulator_healthy"
    """A simulator answers and ticks. Fields: ``simulator``, ``took_s``."""
    SIMULATOR_RESTART = "simulator_restart"
    """A simulator is restarted. Fields: ``simulator``, ``delay_s`` (after a failed start)."""
    RUN_STARTED = "run_started"
    """A launcher begins. Fields: ``config``."""
    RUN_ENDED = "run_ended"
    """The launcher ends. Fields: ``exit_code``."""


class Standing(str, Enum):
    """Where an item stands."""

    OPEN = "open"
    UNDER_WAY = "under_way"
    DONE = "done"
    FAILED = "failed"
    """By itself: that is its result."""
    LEFT = "left"
    """Driven as often as it may be, without a result."""


@dataclass(frozen=True)
class Drive:
    """One drive of an item.

    Attributes:
        number: from 1 on, of its item.
        folder: in the run's.
        outcome: None while it lasts.
        sentence: why it came to that.
        took_s: None where it is unknown.
        peak_mib: by owner (simulator, program) and kind of memory.
    """

    number: int
    folder: str
    outcome: Outcome | None = None
    why: Why | None = None
    sentence: str = ""
    exit_code: int | None = None
    took_s: float | None = None
    result: str = ""
    peak_mib: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Progress:
    """All of it.

    Attributes:
        items: in their order.
        most: drives without a result, after which an item is left.
        drives: of each item, also of those that are no longer among ``items``.
    """

    items: tuple[str, ...] = ()
    most: int = 1
    drives: Mapping[str, tuple[Drive, ...]] = field(default_factory=dict)

    def with_row(self, row: Mapping[str, Any]) -> Progress:
        """Return it after one more row; a row that isn't understood changes nothing."""
        event, item = row.get("event"), row.get("item")
        if event == RouteEvent.ITEMS:
            names = row.get("items")
            items = tuple(map(str, names)) if isinstance(names, list | tuple) else ()
            return replace(self, items=items, most=int(number(row.get("drives")) or 1))
        if not isinstance(item, str):
            return self
        before = self.drives.get(item, ())
        if event == RouteEvent.DRIVE_STARTS:
            started = Drive(len(before) + 1, str(row.get("folder", "")))
            return replace(self, drives={**self.drives, item: (*before, started)})
        if event == RouteEvent.DRIVE_ENDED and before and before[-1].outcome is None:
            return replace(self, drives={**self.drives, item: (*before[:-1], _ended(before[-1], row))})
        return self

    def of(self, item: str) -> tuple[Drive, ...]:
        """Return an item's drives."""
        return self.drives.get(item, ())

    def without_result(self, item: str) -> int:
        """Return how many of an item's drives count as tries."""
        return sum(drive.outcome is Outcome.AGAIN for drive in self.of(item))

    def standing(self, item: str) -> Standing:
        """Return where an item stands."""
        drives = self.of(item)
        if kept := next((drive.outcome for drive in drives if drive.outcome in KEPT), None):
            return Standing.DONE if kept is Outcome.DONE else Standing.FAILED
        if drives and drives[-1].outcome is None:
            return Standing.UNDER_WAY
        return Standing.LEFT if self.without_result(item) >= self.most else Standing.OPEN

    def next_item(self) -> str | None:
        """Return what is to be driven next: what has failed least, so that one item can't hold up the others.

        A launcher that was killed counts here: it may have been the item that ran the machine out of memory.
        """

        def failures(item: str) -> int:
            return sum(drive.why is not Why.STOPPED for drive in self.of(item))

        return min((item for item in self.items if self.standing(item) is Standing.OPEN), key=failures, default=None)

    def under_way(self) -> list[str]:
        """Return the items that are being driven, or were when the journal ended."""
        return [item for item, drives in self.drives.items() if drives[-1].outcome is None]

    def result_of(self, item: str) -> Drive | None:
        """Return the drive whose result is the item's; None if it has none."""
        return next((drive for drive in self.of(item) if drive.outcome in KEPT), None)

    def again(self) -> Counter[Why]:
        """Return why items were driven again, and how often: each drive that another one followed counts."""
        followed = (drive for item in self.items for drive in self.of(item)[:-1])
        return Counter(drive.why for drive in followed if drive.why is not None)


def progress_of(rows: Iterable[Mapping[str, Any]]) -> Progress:
    """Return what a journal's rows come to."""
    found = Progress()
    for row in rows:
        found = found.with_row(row)
    return found


def cut_off(progress: Progress) -> list[dict[str, Any]]:
    """Return the rows that close what a launcher that is gone left open: such a drive counts for nothing."""
    event, why = RouteEvent.DRIVE_ENDED.value, "the launcher was killed"
    about = {"outcome": Outcome.UNDONE.value, "why": Why.LAUNCHER_KILLED.value}
    return [{"event": event, "cause": why, "item": item, **about} for item in progress.under_way()]


def _ended(drive: Drive, row: Mapping[str, Any]) -> Drive:
    code = number(row.get("exit_code"))
    return replace(
        drive,
        outcome=_one_of(Outcome, row.get("outcome")) or Outcome.UNDONE,
        why=_one_of(Why, row.get("why")),
        sentence=str(row.get("cause", "")),
        exit_code=None if code is None else int(code),
        took_s=number(row.get("took_s")),
        result=str(row.get("result", "")),
        peak_mib=inner(row, "peak_mib"),
    )


def _one_of(kind: Any, value: object) -> Any:
    return next((each for each in kind if each.value == value), None)
