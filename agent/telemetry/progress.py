"""What a person sees while a run trains: a progress bar on a terminal, a plain line now and then elsewhere.

Owns the console. Reads no file and decides nothing.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

PLAIN_LINE_S = 10.0
"""Between two lines where there is no terminal."""


@dataclass(frozen=True)
class Shown:
    """The figures beside the bar."""

    steps: int
    steps_per_s: float
    updates_per_s: float
    mean_return: float | None
    mean_completion: float | None
    phase: str

    def text(self) -> str:
        """Return them as a short line."""
        parts = [f"{self.steps_per_s:5.1f} steps/s", f"{self.updates_per_s:5.1f} updates/s"]
        if self.mean_return is not None:
            parts.append(f"return {self.mean_return:6.1f}")
        if self.mean_completion is not None:
            parts.append(f"route {100 * self.mean_completion:3.0f} %")
        return " · ".join([*parts, self.phase.replace("_", " ")])


class ProgressLine:
    """The bar, or the lines. Use as a context manager."""

    def __init__(self, total_steps: int, console: Console) -> None:
        self._total = total_steps
        self._console = console
        self._last_line_s = time.monotonic()
        self._bar = Progress(
            TextColumn("training"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[figures]}"),
            console=console,
            transient=True,
        )
        self._task = self._bar.add_task("training", total=total_steps, figures="")

    def __enter__(self) -> ProgressLine:
        if self._console.is_terminal:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._console.is_terminal:
            self._bar.stop()

    def show(self, shown: Shown) -> None:
        """Show the figures; call as often as you like."""
        if self._console.is_terminal:
            self._bar.update(self._task, completed=shown.steps, figures=shown.text())
        elif time.monotonic() - self._last_line_s >= PLAIN_LINE_S:
            self._last_line_s = time.monotonic()
            self._console.print(f"{shown.steps}/{self._total} steps · {shown.text()}", highlight=False, soft_wrap=True)
