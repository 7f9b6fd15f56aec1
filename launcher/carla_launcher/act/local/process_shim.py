"""A shim: the parent of one program, which ends the program and its descendants even if the launcher is killed.

The launcher starts this file (``python -I -S``, standard library only, a few MiB), and the shim starts the program in a
new session. It forwards one SIGTERM, and kills the program on SIGQUIT. When the lifeline closes, since no process holds
the other end of this pipe after the launcher's death, it asks the program to stop. It adopts orphaned descendants and
ends them with the program. It exits with the program's exit code (128 + n for signal n), and writes only the log, which
it inherits open.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import fcntl
import os
import re
import select
import shlex
import signal
import struct
import subprocess
import sys
import termios
import time
import tty
from pathlib import Path
from typing import BinaryIO

# <linux/prctl.h>. The death signal covers the case that the lifeline can't: the shim itself is killed.
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
LEFTOVERS_GRACE_S = 1.0
SWEEP_LIMIT_S = 5.0
TERMINAL_PATIENCE_S = 1.0
ENDING_LIMIT_S = 20.0
CHUNK = 2**16
AT_ONCE = 4096
"""Bytes that a pipe or terminal takes without blocking, if it takes any (PIPE_BUF, pipe(7))."""
BLOCK = 2**20
REST_S = 0.05
"""Between two looks at output of which there is little: a look costs the same for one line as for fifty."""
LITTLE = 2048
"""Bytes in that time; a terminal holds twice as much for the program that writes to it."""
REDRAWN_S = 5.0
"""Between two redraws of a progress bar that are kept as lines."""
MAX_LINE_BYTES = 2**16
"""Bytes of a line without an end: the newest are kept."""
ESCAPE = re.compile(rb"\x1b\[[0-9;?]*[ -/]*[@-~]")


def plain(line: bytes) -> bytes:
    """Return the visible text of a terminal line, for a log: without colours and redraws of a progress bar."""
    return ESCAPE.sub(b"", line.rstrip(b"\r\n").rpartition(b"\r")[2]) + b"\n"


def end_container(id_file: Path, ending: list[str]) -> None:
    """End the container whose id is in a file, if it still runs, and remove the file.

    Args:
        id_file: ``docker run --cidfile``; missing or empty if no container was created.
        ending: command that ends a container, such as ``docker kill``; its id is added.
    """
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        if identity := id_file.read_text().strip():
            command = [*ending, identity]
            subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=ENDING_LIMIT_S)
    with contextlib.suppress(OSError):
        id_file.unlink()


class Output:
    """The program's output: into the log, or (``show``) through the shim into the log and the shim's stdout.

    The program never writes to the terminal itself, since a closed or stopped terminal must not stop training.
    """

    def __init__(self, log: BinaryIO, show: bool, most_bytes: int = 0) -> None:
        """Take the log; of more than ``most_bytes`` the newest half is kept, 0 keeps all."""
        self._log, self._most_bytes = log, most_bytes
        self._size = os.fstat(log.fileno()).st_size
        self._line, self._kept_s = b"", time.monotonic()
        self._shown = show
        self._patience_s = TERMINAL_PATIENCE_S
        self._recent, self._since_s = 0, 0.0
        self.rests_until_s = 0.0
        self.source: int | None = None
        self.sink = self._log.fileno()
        if show or most_bytes:
            self.source, self.sink = _terminal_pair() if show and os.isatty(1) else os.pipe()

    def started(self) -> None:
        """Close the program's end here, so that the stream ends with its last writer."""
        if self.source is not None:
            os.close(self.sink)

    def pump(self) -> None:
        """Copy the output that is available now."""
        try:
            chunk = os.read(self.source, CHUNK) if self.source is not None else b""
        except OSError:  # EIO: the other end of the terminal pair was closed
            chunk = b""
        if not chunk:
            self.source = None
            return
        self._rest(len(chunk))
        self._show(chunk)
        *lines, self._line = (self._line + chunk).split(b"\n")
        self._line = self._line[-MAX_LINE_BYTES:]
        self._keep(lines or self._redrawn())

    def _redrawn(self) -> list[bytes]:
        """Return a progress bar's last whole redraw, every few seconds: its line may end only with the training."""
        shown, redrawn, newest = self._line.rpartition(b"\r")
        if not redrawn or not newest or time.monotonic() - self._kept_s < REDRAWN_S:
            return []
        self._line = newest
        return [shown] if shown.strip(b"\r") else []

    def _rest(self, count: int) -> None:
        now_s = time.monotonic()
        if now_s - self._since_s > REST_S:
            self._recent, self._since_s = 0, now_s
        self._recent += count
        self.rests_until_s = now_s + REST_S if self._recent < LITTLE else 0.0

    def drain(self) -> None:
        """Copy the rest of the output."""
        while self.source is not None and select.select([self.source], [], [], 0)[0]:
            self.pump()
        if self._line:
            self._keep([self._line])

    def _keep(self, lines: list[bytes]) -> None:
        if not lines:
            return
        self._kept_s = time.monotonic()
        text = b"".join([line + b"\n" for line in lines])
        if b"\x1b" in text or b"\r" in text:
            text = b"".join(map(plain, lines))
        with contextlib.suppress(OSError):  # a full disk is no reason to end training
            self._log.write(text)
            self._size += len(text)
            if self._most_bytes and self._size > self._most_bytes:
                self._cut()

    def _cut(self) -> None:
        """Begin the log again with the newest half of what it may hold, from a whole line on; a block at a time."""
        with open(f"/proc/self/fd/{self._log.fileno()}", "r+b") as log:  # noqa: PTH123 - of the open log, by no name
            begin = log.seek(self._size - self._most_bytes // 2)
            begin += len(log.readline())
            log.seek(0)
            size = log.write(b"[launcher: %d older bytes are left out]\n" % begin)
            for place in range(begin, self._size, BLOCK):
                log.seek(place)
                block = log.read(min(BLOCK, self._size - place))
                log.seek(size)
                size += log.write(block)
            log.truncate(size)
        self._size = size

    def _show(self, chunk: bytes) -> None:
        try:
            for place in range(0, len(chunk) if self._shown else 0, AT_ONCE):
                takes = bool(select.select([], [1], [], self._patience_s)[1])
                self._patience_s = TERMINAL_PATIENCE_S if takes else 0.0  # a stopped one is waited for once
                if takes:
                    os.write(1, chunk[place : place + AT_ONCE])
        except OSError:  # the terminal was closed
            self._shown = False


def _terminal_pair() -> tuple[int, int]:
    """Return (read, write) ends of a terminal of the same size, so that progress bars and colours are kept."""
    source, sink = os.openpty()
    tty.setraw(sink)
    size = os.get_terminal_size(1)
    fcntl.ioctl(sink, termios.TIOCSWINSZ, struct.pack("4H", size.lines, size.columns, 0, 0))
    return source, sink


class Shim:
    """One program, from its start to the end of its last descendant.

    Attributes:
        left: number of processes that it left running at its end, and that had to be killed.
    """

    def __init__(self, command: list[str], output: Output, lifeline: int, grace_s: float) -> None:
        self.left = 0
        self._wakeups, wakeup = os.pipe()
        for end in (self._wakeups, wakeup):
            os.set_blocking(end, False)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGQUIT, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: None)  # the number arrives through the wake-up pipe
        signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)
        self._output, self._grace_s = output, grace_s
        self._lifeline: int | None = lifeline
        self._asked = self._killed = False
        self._kill_at: float | None = None
        libc, shim = ctypes.CDLL(None), os.getpid()
        libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

        def die_with_the_shim() -> None:
            libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != shim:
                os._exit(1)

        # Keep the Popen: when it is deleted it collects an ended child, and the exit code is lost.
        self._child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output.sink,
            stderr=output.sink,
            start_new_session=True,
            preexec_fn=die_with_the_shim,  # noqa: PLW1509 - this process has one thread
        )
        self.pid = self._child.pid
        output.started()

    def run(self) -> int:
        """Return the program's exit code once its whole process tree has ended."""
        while (code := self._reap()) is None:
            self._wait()
        self._sweep()
        self._output.drain()
        return code

    def _wait(self) -> None:
        """Wait for an event, and handle it."""
        now_s = time.monotonic()
        rests = self._output.source is not None and now_s < self._output.rests_until_s
        source = None if rests else self._output.source
        watched = [end for end in (self._wakeups, self._lifeline, source) if end is not None]
        due = [*([self._output.rests_until_s] if rests else []), *([self._kill_at] if self._kill_at else [])]
        ready = select.select(watched, [], [], max(0.0, min(due) - now_s) if due else None)[0]
        numbers = os.read(self._wakeups, 64) if self._wakeups in ready else b""
        if signal.SIGTERM in numbers:
            self._ask()
        if self._lifeline in ready:
            self._lifeline = None
            self._ask()
            self._kill_at = time.monotonic() + self._grace_s
        if signal.SIGQUIT in numbers or (self._kill_at is not None and time.monotonic() >= self._kill_at):
            self._killed, self._kill_at = True, None
            self._kill_tree()
        if source in ready:
            self._output.pump()

    def _ask(self) -> None:
        if not self._asked:  # once: to many programs a second signal means "at once"
            self._asked = True
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGTERM)

    def _kill_tree(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        for pid in _children():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _reap(self) -> int | None:
        """Collect ended children; return the exit code if the program is among them."""
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == self.pid:
                    code = os.waitstatus_to_exitcode(status)
                    return code if code >= 0 else 128 - code
                if pid == 0:
                    return None
        return None

    def _sweep(self) -> None:
        """End the program's orphans, which become children of this process, their sub-reaper."""
        start = time.monotonic()
        while (waited_s := time.monotonic() - start) < SWEEP_LIMIT_S:
            if self._killed or waited_s > LEFTOVERS_GRACE_S:
                self.left = max(self.left, 0 if self._killed else len(_children()))
                self._kill_tree()
            try:
                if os.waitpid(-1, os.WNOHANG)[0] == 0:
                    time.sleep(0.01)
                if self._output.source is not None and select.select([self._output.source], [], [], 0)[0]:
                    self._output.pump()
            except ChildProcessError:
                return


def _children() -> list[int]:
    with contextlib.suppress(OSError):
        return [int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]
    return []


def main() -> int:
    """Run the command after ``--``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--lifeline", type=int, required=True, help="read end of a pipe; when it closes the program is stopped"
    )
    parser.add_argument(
        "--report",
        type=int,
        required=True,
        help="descriptor for the program's process id and, at its end, the number of processes that it left",
    )
    parser.add_argument("--grace-s", type=float, required=True, help="time from SIGTERM to SIGKILL then")
    parser.add_argument("--log", type=int, required=True, help="descriptor of the log")
    parser.add_argument("--most-log-bytes", type=int, default=0, help="maximum size of the log; 0 for no maximum")
    parser.add_argument("--id-file", type=Path, help="file with the id of the container that the program runs")
    parser.add_argument("--ending", type=shlex.split, help="command that ends this container")
    parser.add_argument("--show", action="store_true", help="copy the output to stdout as well")
    parser.add_argument("command", nargs="+")
    given = parser.parse_args()
    log = os.fdopen(given.log, "ab", buffering=0)
    try:
        shim = Shim(given.command, Output(log, given.show, given.most_log_bytes), given.lifeline, given.grace_s)
    except OSError as error:
        log.write(f"{given.command[0]} can't be started: {error.strerror}.\n".encode())
        return 127
    with contextlib.suppress(BrokenPipeError):  # the launcher has ended and closed the lifeline: run() ends the program
        os.write(given.report, f"{shim.pid}\n".encode())
    code = shim.run()
    if given.id_file is not None:  # a container is no descendant of the program: it outlives a client that was killed
        end_container(given.id_file, given.ending)
    with contextlib.suppress(BrokenPipeError):
        os.write(given.report, f"{shim.left}\n".encode())
    return code


if __name__ == "__main__":
    sys.exit(main())
