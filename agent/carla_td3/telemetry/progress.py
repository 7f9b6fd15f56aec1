"""Progress of long work: a progress bar on a terminal, elsewhere a plain line now and then.

Owns the console. Reads no file and decides nothing.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

BAR_WIDTH = 12
PLAIN_LINE_S = 10.0
"""Seconds between two lines without a terminal."""


@dataclass(frozen=True)
class Shown:
    """The figures beside a training's bar."""

    steps: int
    steps_per_s: float
    updates_per_s: float
    mean_return: float | None
    mean_completion: float | None
    phase: str
    """Name of the phase, for people."""

    def text(self) -> str:
        """Return the figures as a short line."""
        parts = [f"{self.steps_per_s:5.1f} steps/s", f"{self.updates_per_s:5.1f} updates/s"]
        if self.mean_return is not None:
            parts.append(f"return {self.mean_return:6.1f}")
        if self.mean_completion is not None:
            parts.append(f"route {100 * self.mean_completion:3.0f} %")
        return " · ".join([*parts, self.phase])

    def beside_bar(self) -> tuple[str, str]:
        """Return the text before and after a bar: less than ``text``, so that it fits 80 columns."""
        doing, _, where = self.phase.partition(": ")
        speeds = f"{self.steps_per_s:.0f} steps/s · {self.updates_per_s:.0f} updates/s"
        route = "" if self.mean_completion is None else f" · route {100 * self.mean_completion:.0f} %"
        return doing, where or speeds + route


class ProgressLine:
    """The bar, or the lines. Use as a context manager.

    Args:
        total: of the work; None if unknown.
        what: name of the work.
        unit: of ``total``.
    """

    def __init__(self, total: int | None, console: Console, what: str = "training", unit: str = "steps") -> None:
        self._total, self._what, self._unit = total, what, unit
        self._console = console
        self._last_line_s = time.monotonic()
        columns = (MofNCompleteColumn(), TimeRemainingColumn()) if total is not None else ()
        figures = TextColumn("{task.fields[figures]}")
        bar = BarColumn(BAR_WIDTH)
        self._bar = Progress(TextColumn("{task.description}"), bar, *columns, figures, console=console, transient=True)
        self._task = self._bar.add_task(what, total=total, figures="")

    def __enter__(self) -> ProgressLine:
        if self._console.is_terminal:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._console.is_terminal:
            self._bar.stop()

    def show(self, shown: Shown) -> None:
        """Show a training's figures; call as often as you like."""
        if self._console.is_terminal:
            doing, figures = shown.beside_bar()
            self._bar.update(self._task, completed=shown.steps, description=doing, figures=figures)
        else:
            self.move(shown.steps, shown.text())

    def move(self, done: int, text: str = "") -> None:
        """Show how much is done, and a text beside it; call as often as you like."""
        if self._console.is_terminal:
            self._bar.update(self._task, completed=done, figures=text)
        elif time.monotonic() - self._last_line_s >= PLAIN_LINE_S:
            self._last_line_s = time.monotonic()
            head = self._what if self._total is None else f"{done}/{self._total} {self._unit}"
            self._console.print(" · ".join(filter(None, (head, text))), highlight=False, soft_wrap=True)
