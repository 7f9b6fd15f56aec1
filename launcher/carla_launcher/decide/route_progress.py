"""Reads an evaluation's events: each item's drives, where it stands, and which one is next. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from enum import Enum
from typing import Any

from carla_launcher.decide.route_verdict import KEPT, Outcome, Why
from carla_run.events import LauncherEvent
from carla_run.readers import number
from carla_run.records import RecordError, record


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
        why: None where it left a result.
        cause: a sentence: why it came to that.
        took_s: None where it is unknown.
        peak_mib: by owner (simulator, program) and kind of memory.
    """

    number: int
    folder: str
    outcome: Outcome | None = None
    why: Why | None = None
    cause: str = ""
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


def progress_of(rows: Iterable[Mapping[str, Any]], found: Progress | None = None) -> Progress:
    """Return what rows of a journal come to, after what was found before; an odd row changes nothing."""
    found = found or Progress()
    items, most, drives = found.items, found.most, dict(found.drives)  # one copy, however many rows there are
    for row in rows:
        event, item = row.get("event"), row.get("item")
        if event == LauncherEvent.ITEMS:
            names = row.get("items")
            items = tuple(map(str, names)) if isinstance(names, list | tuple) else ()
            most = int(number(row.get("drives")) or 1)
        elif isinstance(item, str):
            before = drives.get(item, ())
            if event == LauncherEvent.DRIVE_STARTS:
                drives[item] = (*before, Drive(len(before) + 1, str(row.get("folder", ""))))
            elif event == LauncherEvent.DRIVE_ENDED and before and before[-1].outcome is None:
                drives[item] = (*before[:-1], _ended(before[-1], row))
    return Progress(items, most, drives)


def cut_off(progress: Progress) -> list[dict[str, Any]]:
    """Return the ends of drives that a launcher that is gone left open: such a drive counts for nothing."""
    about = {"cause": "the launcher was killed", "outcome": Outcome.UNDONE.value, "why": Why.LAUNCHER_KILLED.value}
    return [
        {"event": LauncherEvent.DRIVE_ENDED, **about, "item": item, "drive": len(progress.of(item))}
        for item in progress.under_way()
    ]


def _ended(drive: Drive, row: Mapping[str, Any]) -> Drive:
    """Return a drive after its end; a row with odd values ends it without a result."""
    names = {each.name for each in fields(Drive)}
    try:
        return record(Drive, {**vars(drive), **{name: value for name, value in row.items() if name in names}})
    except RecordError:
        return replace(drive, outcome=Outcome.UNDONE)
