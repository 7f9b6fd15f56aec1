"""Gives items out, and keeps what comes of them: which is driven next, in which folder, with which result.

Owns the folders of drives and results. What an end means is ``decide/route_verdict``'s to say.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from carla_launcher.act.journal import Journal, JournalError
from carla_launcher.decide.decisions import Ending
from carla_launcher.decide.route_progress import Standing, cut_off, progress_of
from carla_launcher.decide.route_verdict import KEPT, DriveEnd, Outcome, Verdict, Why
from carla_launcher.observe.observation import Ended
from carla_run.configuration.routes_section import Routes
from carla_run.events import LauncherEvent
from carla_run.exits import Exit, ExitError
from carla_run.files import open_to_read, write_whole
from carla_run.paths import RunPaths
from carla_run.readers import LinesRead, read_lines, tail
from carla_run.signals import StopRequests

RESULT_BYTES, OUTPUT_BYTES = 2**20, 2**16
"""How much of a result's beginning and an output's end the program file's expressions are looked for in."""
NOT_STARTED = 127
_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")


@dataclass(frozen=True)
class Assignment:
    """A drive that was given out.

    Attributes:
        number: from 1 on, of its item.
        folder: of this drive only, made and empty.
        result: the file that its program is to write.
    """

    item: str
    number: int
    folder: Path
    result: Path

    @property
    def log(self) -> Path:
        """The file that its output is added to."""
        return self.folder / "log.txt"

    def __str__(self) -> str:
        return f"{self.item}, drive {self.number}"

    def end(self, ended: Ended | None, cut: Why | None, simulator: str) -> DriveEnd:
        """Return how it ended, with what it left; ``ended`` is None where it couldn't be started."""
        code, killed = (NOT_STARTED, False) if ended is None else (ended.code, ended.oom_killed)
        left = None
        with contextlib.suppress(OSError), open_to_read(self.result) as file:
            left = file.read(RESULT_BYTES).decode(errors="replace") or None
        return DriveEnd(code, cut, simulator, left, tail(self.log, OUTPUT_BYTES), killed)


class Desk:
    """All of an evaluation's items.

    Attributes:
        over: why it ends before all is driven; None while nothing says so.
        progress: what the run's events come to, those of earlier launchers and of ``begin`` included.
    """

    def __init__(
        self,
        run: RunPaths,
        items: tuple[str, ...],
        rules: Routes,
        journal: Journal,
        stop: StopRequests,
        say: Callable[[str], None],
    ) -> None:
        """Read what earlier launchers left; ``begin`` records it.

        Raises:
            ExitError: the journal is too large to be read.
        """
        self.over: Ending | None = None
        read = LinesRead(run.launcher_events.name)
        self.progress = progress_of(read_lines(run.launcher_events, read))
        if read.unread:
            raise ExitError(f"{run.path}: {read}, and with it the results: name another run.", Exit.BAD_CONFIG)
        if read.damaged:
            say(f"{read}: an item whose result was in one is driven again")
        self._run, self._rules, self._journal, self._stop = run, rules, journal, stop
        self._in_a_row = 0
        self._due = cut_off(self.progress)
        if (self.progress.items, self.progress.most) != (items, rules.drives):
            self._due.append({"event": LauncherEvent.ITEMS, "items": items, "drives": rules.drives})
        self.progress = progress_of(self._due, self.progress)

    def begin(self) -> None:
        """Record the end of what a launcher that is gone left open, and which items there are; call it once, first.

        Raises:
            JournalError: the disk refuses it.
        """
        for row in self._due:
            self._journal.event(row.pop("event"), kept=True, **row)

    @property
    def stopping(self) -> bool:
        """Return whether nothing more is given out, and what is driven ends."""
        return self._stop.count > 0 or self.over is not None

    @property
    def has_work(self) -> bool:
        """Return whether an item waits to be driven."""
        return not self.stopping and self.progress.next_item() is not None

    @property
    def may_have_work(self) -> bool:
        """Return whether one may come to wait: others are under way."""
        return not self.stopping and bool(self.progress.under_way())

    def take(self, simulator: int) -> Assignment | None:
        """Give the next item out, to be driven in one of several simulators; None if none waits.

        Raises:
            JournalError: the disk refuses it.
        """
        if not self.has_work or (item := self.progress.next_item()) is None:
            return None
        number = len(self.progress.of(item)) + 1
        folder = self._run.drives / file_name(item) / str(number)
        inside = str(folder.relative_to(self._run.path))
        self._keep(LauncherEvent.DRIVE_STARTS, item=item, drive=number, simulator=simulator, folder=inside)
        drive = Assignment(item, number, folder, folder / self._rules.result)
        try:
            self._kept(drive).unlink(missing_ok=True)  # of a launcher that was killed before it had written that
            shutil.rmtree(folder, ignore_errors=True)  # of a journal that was taken away
            folder.mkdir(parents=True)
        except OSError as error:
            raise JournalError(folder, error) from None
        return drive

    def give_back(
        self,
        drive: Assignment,
        verdict: Verdict,
        exit_code: int,
        took_s: float,
        peak_mib: Mapping[str, Mapping[str, float]],
        incident: str = "",
    ) -> Standing:
        """Keep what a drive left, and return where its item stands now.

        Raises:
            JournalError: the disk refuses it.
        """
        kept = self._keep_result(drive) if verdict.outcome in KEPT and drive.result.is_file() else ""
        self._keep(
            LauncherEvent.DRIVE_ENDED,
            cause=verdict.sentence,
            incident="" if verdict.outcome in KEPT else incident,
            item=drive.item,
            drive=drive.number,
            outcome=verdict.outcome.value,
            why=None if verdict.why is None else verdict.why.value,
            exit_code=exit_code,
            took_s=round(took_s, 2),
            result=kept,
            peak_mib=peak_mib,
        )
        self._count(drive, verdict)
        return self.progress.standing(drive.item)

    def _keep(self, event: LauncherEvent, **fields: Any) -> None:
        """Record an event, and wait until it is on the disk."""
        self.progress = progress_of([self._journal.event(event, kept=True, **fields)], self.progress)

    def _keep_result(self, drive: Assignment) -> str:
        """Copy a result to where all results are; it is there whole, or not at all."""
        there = self._kept(drive)
        try:
            there.parent.mkdir(exist_ok=True)
            write_whole(there, drive.result.read_bytes())
        except OSError as error:
            raise JournalError(there, error) from None
        return str(there.relative_to(self._run.path))

    def _kept(self, drive: Assignment) -> Path:
        return self._run.results / (file_name(drive.item) + drive.result.suffix)

    def _count(self, drive: Assignment, verdict: Verdict) -> None:
        if verdict.outcome is Outcome.UNDONE:
            return
        self._in_a_row = self._in_a_row + 1 if verdict.outcome is Outcome.AGAIN else 0
        if self._rules.give_up_after is not None and self._in_a_row >= self._rules.give_up_after:
            why = f"{self._in_a_row} drives in a row left no result, the last one ({drive}) because {verdict.sentence}"
            self.over = Ending(Exit.BUDGET_SPENT, f"{why}; its log is {drive.log}")


def file_name(item: str) -> str:
    """Return an item as the name of a file: itself if it is one, else what is left of it and a digest."""
    if _FILE_NAME.fullmatch(item):
        return item
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", item).strip("-.")[:60]
    return f"{plain}-{hashlib.sha256(item.encode()).hexdigest()[:10]}".lstrip("-")
