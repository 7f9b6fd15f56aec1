"""The heartbeat's thread: ``agent.json`` once a second while a training lives.

Never stops the training: a write that the disk refuses is lost, and that is said once on stderr.
"""

from __future__ import annotations

import sys
import threading
import traceback
from pathlib import Path
from typing import Callable

from carla_run.files import write_whole
from carla_run.heartbeat import Heartbeat

INTERVAL_S = 1.0


class HeartbeatWriter:
    """The thread. Use as a context manager: the last heartbeat is written when it ends."""

    def __init__(self, path: Path, figures: Callable[[], Heartbeat]) -> None:
        """Write nothing yet.

        Args:
            path: of the heartbeat.
            figures: returns the present ones, at once; called in the thread.
        """
        self._path, self._figures = path, figures
        self._complained = False
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)

    def __enter__(self) -> HeartbeatWriter:
        self._write()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()
        self._write()

    def _beat(self) -> None:
        while not self._end.wait(INTERVAL_S):
            self._write()

    def _write(self) -> None:
        try:
            write_whole(self._path, self._figures().json(), durable=False)
        except OSError as error:
            self._complain(f"{self._path}: can't be written ({error.strerror}); the work goes on.\n")
        except Exception:  # of a card that fails, say: whatever it is, silence would be taken for a hang
            self._complain(traceback.format_exc())

    def _complain(self, words: str) -> None:
        if not self._complained:
            sys.stderr.write(words)
        self._complained = True
