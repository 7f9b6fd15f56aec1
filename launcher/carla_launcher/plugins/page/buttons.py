"""The page's buttons, which send the same requests as the commands, and the result of the last one."""

from __future__ import annotations

import threading
import traceback

from carla_launcher import down
from carla_launcher.config import LauncherConfig
from carla_run import requests
from carla_run.exits import Exit, ExitError
from carla_run.locks import is_held
from carla_run.paths import RunPaths
from carla_run.requests import RequestKind

REQUESTS = (RequestKind.CHECKPOINT, RequestKind.DRAIN, RequestKind.RESUME)
STOP = "stop"


class Buttons:
    """The buttons of one run."""

    def __init__(self, run: RunPaths, limits: LauncherConfig) -> None:
        self._run, self._limits = run, limits
        self._pressing = threading.Lock()
        self._asked: tuple[str, int] | None = None
        self._stopping, self._stop_said = False, ""

    def open(self, phase: str) -> dict[str, bool]:
        """Return which buttons are enabled, by name, without those that nothing in this folder has ever served.

        Args:
            phase: the agent's phase.
        """
        listens = is_held(self._run.learner_lock) and not requests.is_open(self._run) and not self._stopping
        buttons = {
            "checkpoint": listens and phase != "drained",
            "drain": listens and phase != "drained",
            "resume": listens and phase == "drained",
            STOP: (is_held(self._run.launcher_lock) or listens) and not self._stopping,
        }
        asked = self._run.learner_lock.exists()  # a drive, or a command that reports nothing, takes none
        launched = self._run.launcher_lock.exists()
        return {name: enabled for name, enabled in buttons.items() if asked or (launched and name == STOP)}

    def press(self, what: str) -> str:
        """Send a button's request; return a sentence on its state.

        Raises:
            ExitError: there is no such button, or no agent runs. The message is one sentence for the user.
            OSError: the run directory can't be written.
        """
        with self._pressing:
            if what == STOP:
                return self._stop()
            if what not in REQUESTS:
                raise ExitError(f"There is no button {what[:20]!r}.", Exit.USAGE)
            self._asked, self._stop_said = (what, requests.send(self._run, what, {})), ""
            return self.said()

    def said(self) -> str:
        """Return the state of the last button's request, as a sentence; empty before the first one."""
        if self._stop_said or self._asked is None:
            return self._stop_said
        what, number = self._asked
        answer = requests.answer_to(self._run, number)
        return f"{what} was requested …" if answer is None else f"{what}: {answer.sentence}"

    def _stop(self) -> str:
        if is_held(self._run.launcher_lock):
            self._stopping, self._stop_said = True, "The run is being stopped; its program gets time to end."
            threading.Thread(target=self._down, daemon=True).start()
        else:
            self._asked = STOP, requests.send(self._run, RequestKind.STOP, {})
        return self.said()

    def _down(self) -> None:
        try:
            self._stop_said = down.run(self._run, self._limits)
        except ExitError as error:
            self._stop_said = str(error)
        except Exception as error:  # otherwise the page would always show that the run is being stopped
            traceback.print_exc()
            self._stop_said = f"The run can't be stopped from here ({type(error).__name__}): use `down`."
        self._stopping = False  # after a failure the button works again
