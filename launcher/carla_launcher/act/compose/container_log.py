"""Copies a container's output into a file: each line exactly once, even if the launcher is replaced meanwhile.

The file ``.position`` beside it holds the container, the time of a line, and the length of the log just after it. A
launcher that was killed may have written more lines since; the next one counts them and skips as many.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
import traceback
from pathlib import Path
from typing import Any, BinaryIO

from carla_launcher.act.compose.engine import Engine, EngineError, seconds
from carla_launcher.act.local.process_shim import plain
from carla_run.files import bytes_in, open_to_append, open_to_read, write_whole
from carla_run.readers import number, read_object

RETRY_S = 1.0
CLOSING_S = 1.0
SAVE_S = 2.0


class ContainerLog:
    """Copies one container's output in a thread, from where the last launcher stopped."""

    def __init__(self, engine: Engine, container: str, path: Path) -> None:
        self._engine, self._container, self._path = engine, container, path
        self._position = path.with_name(f"{path.name}.position")
        self._known, self._last = self._last_position()
        self._saved_s = time.monotonic()
        self._closed = threading.Event()
        self._stream: Any = None
        self._failed = False
        self._thread = threading.Thread(target=self._follow, daemon=True, name=f"log of {container[:12]}")
        self._thread.start()

    def finish(self, limit_s: float) -> None:
        """Wait until all output is written, at most ``limit_s``, then stop reading."""
        self._thread.join(limit_s)
        self._closed.set()
        if self._thread.is_alive() and (stream := self._stream) is not None:
            with contextlib.suppress(OSError, AttributeError):  # it ended at this moment
                stream.close()
            self._thread.join(CLOSING_S)

    def _last_position(self) -> tuple[int, str]:
        """Return how many lines the file has after the saved one, and the time of that one."""
        saved = read_object(self._position)
        if saved.get("container") != self._container:
            self._save("")
            return 0, ""
        return _lines_after(self._path, int(number(saved.get("size")) or 0)), str(saved.get("time", ""))

    def _follow(self) -> None:
        while not self._closed.is_set() and self._goes_on():
            self._closed.wait(RETRY_S)
        if self._known == 0:
            self._save(self._last)

    def _goes_on(self) -> bool:
        """Read until the stream ends or breaks; return whether there may be more output."""
        try:
            with open_to_append(self._path) as file:
                self._listen(file)
            container = self._engine.container(self._container)
        except (EngineError, OSError):  # engine or disk may recover; poll() reports an engine that doesn't
            return True
        except Exception:  # any error of the stream: try again, for the output that follows
            if not self._failed and not self._closed.is_set():  # a closed stream may raise anything
                traceback.print_exc()
            self._failed = True
            return True
        return container is not None and container.running

    def _listen(self, file: BinaryIO) -> None:
        rest = b""
        with self._engine.output(self._container, seconds(self._last)) as self._stream:
            for chunk in self._stream:
                if self._closed.is_set():
                    return
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    self._add(line, file)
        if rest:
            self._add(rest, file)

    def _add(self, line: bytes, file: BinaryIO) -> None:
        moment, _, text = line.partition(b" ")
        if (stamp := moment.decode(errors="replace")) <= self._last:  # equal lengths, in UTC: they sort as times
            return
        self._last = stamp
        if self._known > 0:
            self._known -= 1
            return
        with contextlib.suppress(OSError):  # a full disk is no reason to end the launcher
            file.write(plain(text))
        if time.monotonic() - self._saved_s >= SAVE_S:
            self._save(stamp)

    def _save(self, moment: str) -> None:
        self._saved_s = time.monotonic()
        with contextlib.suppress(OSError):  # not synced: losing it only repeats some lines
            place = {"container": self._container, "time": moment, "size": bytes_in(self._path)}
            write_whole(self._position, json.dumps(place), durable=False)


def _lines_after(path: Path, size: int) -> int:
    try:
        with open_to_read(path) as file:
            file.seek(size)
            return file.read().count(b"\n")
    except OSError:
        return 0
