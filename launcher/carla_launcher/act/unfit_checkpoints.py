"""Checkpoints with which a program crashes at its start, such as one that was half written when the program was killed.

Renames such a checkpoint, so that the next start uses the one before. Deletes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from carla_launcher.act.command import UNFIT, Command, began_s
from carla_launcher.act.journal import Journal
from carla_run.events import LauncherEvent
from carla_run.files import written_s
from carla_run.paths import RunPaths

CRASHES = 2
"""Crashes with the same checkpoint after which it is set aside."""
MOST_IN_A_ROW = 3
"""Checkpoints that are set aside without progress in between; if none of them is fit, something else is wrong."""


class UnfitCheckpoints:
    """The checkpoints of one run's command.

    Args:
        run: the run's files.
        command: the command; None for the agent, which checks its checkpoints itself.
        journal: records what is set aside.
        say: tells the user.
    """

    def __init__(self, run: RunPaths, command: Command | None, journal: Journal, say: Callable[[str], None]) -> None:
        self._run, self._command, self._journal, self._say = run, command, journal, say
        self._newest: Path | None = None
        self._crashes = 0

    def worked(self) -> None:
        """Note that the program made progress."""
        self._newest, self._crashes = None, 0
        if self._journal.state.set_aside_in_a_row:
            self._journal.change(set_aside_in_a_row=0)

    def crashed(self, incident: str) -> bool:
        """Note a crash at a start from the newest checkpoint, before any progress; return whether it is set aside."""
        found = [] if self._command is None else self._command.checkpoints(began_s(self._run.launcher_events))
        newest = found[0] if found else None
        self._crashes = self._crashes + 1 if newest == self._newest else 1
        self._newest = newest
        # The only checkpoint stays: without it the program would begin from the start.
        unfit = len(found) > 1 and self._crashes >= CRASHES
        few = self._journal.state.set_aside_in_a_row < MOST_IN_A_ROW
        return unfit and few and self._set_aside(found[0], found[1], incident)

    def _set_aside(self, checkpoint: Path, before: Path, incident: str) -> bool:
        kept_as = _free_name(checkpoint)
        said = f"the agent crashed {CRASHES} times at its start from {checkpoint}"
        try:
            checkpoint.rename(kept_as)
        except OSError as error:
            self._say(f"{said}, which can't be renamed ({error.strerror}): move it away")
            return False
        state = self._journal.state
        self._journal.change(
            set_aside=(*state.set_aside, str(kept_as)), set_aside_in_a_row=state.set_aside_in_a_row + 1
        )
        self._journal.event(
            LauncherEvent.CHECKPOINT_SET_ASIDE,
            said,
            incident=incident,
            checkpoint=str(checkpoint),
            kept_as=str(kept_as),
            resumes_from=str(before),
        )
        self._say(f"{said}: it is kept as {kept_as.name}, and the agent resumes from {before.name}")
        return True


def _free_name(checkpoint: Path) -> Path:
    number, name = 1, checkpoint.with_name(checkpoint.name + UNFIT)
    while written_s(name) is not None:
        number += 1
        name = checkpoint.with_name(f"{checkpoint.name}.{number}{UNFIT}")
    return name
