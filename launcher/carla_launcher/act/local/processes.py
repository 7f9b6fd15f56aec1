"""Local programs under shims, so that nothing outlives a launcher that was killed.

Owns the pipes between launcher and shims. Knows no simulator, no agent and no container; decides nothing.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from carla_launcher.act.local import process_shim
from carla_launcher.act.runtime import Role
from carla_launcher.observe.observation import Ended
from carla_launcher.observe.oom_kills import OomKills
from carla_run.files import open_to_append
from carla_run.memory.processes import tree

SHIM_PATIENCE_S = 8.0
SIGKILLED = 137


@dataclass(frozen=True)
class Program:
    """One local program to run.

    Attributes:
        role: whose lifeline it hangs on.
        environment: laid over the launcher's own.
        log: the file that its output is added to.
        show: its output goes to the terminal as well.
        grace_s: seconds between SIGTERM and SIGKILL if the launcher itself dies.
        folder: in which it runs; None for the launcher's own.
        most_log_bytes: of its log, the newest part of which is kept; 0 keeps all.
    """

    role: Role
    command: tuple[str, ...]
    log: Path
    grace_s: float
    environment: Mapping[str, str] = field(default_factory=dict)
    show: bool = False
    folder: Path | None = None
    most_log_bytes: int = 0


class ShimmedProcess:
    """A program under its shim; a ``runtime.Child``.

    Attributes:
        pid: the program's process id, not its shim's.
        log: the file that its output is added to.
    """

    def __init__(self, process: subprocess.Popen[bytes], pid: int, log: Path, answers: BinaryIO) -> None:
        self.pid, self.log, self._answers = pid, log, answers
        self._process, self._oom_kills = process, OomKills()
        self._killed_here = False
        self._ended: Ended | None = None

    def poll(self) -> Ended | None:
        """Return None while it runs, then how it ended; 128 + n if signal n ended it or its shim.

        The kernel counts OOM kills by control group and not by process: a SIGKILL that wasn't ours counts as one if
        the group of launcher and programs has had any since the start.
        """
        code = self._process.poll()
        if code is not None and self._ended is None:
            code = code if code >= 0 else 128 - code
            killed = code == SIGKILLED and not self._killed_here and self._oom_kills.look()
            self._ended = Ended(code, killed, left=self._left())
        return self._ended

    def _left(self) -> int:
        """Return how many processes it left running, as its shim has said; 0 where that was killed itself."""
        with self._answers as answers:
            written = answers.readline().strip()
        return int(written) if written.isdigit() else 0

    def pids(self) -> frozenset[int]:
        """Return the ids of its processes now, its shim among them: all that it starts descends from that."""
        return tree(self._process.pid) if self.poll() is None else frozenset()

    def terminate(self) -> None:
        """Have the shim send SIGTERM to the program, not to its children: stopping those is its own business."""
        self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Have the shim kill the whole tree and wait for it; nothing if it has ended."""
        if self.poll() is not None:
            return
        self._killed_here = True
        self._process.send_signal(signal.SIGQUIT)
        try:
            self._process.wait(SHIM_PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()  # its death signal takes the program along
            self._process.wait()


class Shims:
    """Starts programs, each under a shim.

    Two pipes that are never written to are the lifelines. The agent's shim reads the launcher's, the simulator's
    shim reads one whose other end the launcher and the agent's shim hold: a killed launcher stops the agent,
    and only when that has written its checkpoint and gone does the simulator stop.
    """

    def __init__(self, inherited: tuple[int, ...] = ()) -> None:
        """``inherited``: descriptors that the shims hold too, such as the run's lock."""
        self._inherited = inherited
        self._launcher_lives, self._launcher_end = os.pipe()
        self._work_goes_on, self._work_end = os.pipe()

    def start(self, program: Program) -> ShimmedProcess:
        """Start a program under a shim and return once its process id is known (milliseconds).

        Raises:
            OSError: this machine has no room for another process, or the log can't be written.
        """
        agent = program.role is Role.AGENT
        lifeline = self._launcher_lives if agent else self._work_goes_on
        held = (*self._inherited, self._work_end) if agent else self._inherited
        with open_to_append(program.log) as log:
            answer, report = os.pipe()
            answers = os.fdopen(answer, "rb")
            try:
                process = subprocess.Popen(
                    _under_a_shim(program, lifeline, report, log.fileno()),
                    stdin=subprocess.DEVNULL,
                    cwd=program.folder,
                    env={**os.environ, **program.environment},
                    pass_fds=(lifeline, report, log.fileno(), *held),
                    start_new_session=True,  # Ctrl-C reaches only the launcher, which knows the order
                )
            except OSError:
                answers.close()
                raise
            finally:
                os.close(report)
            written = answers.readline().strip()
        return ShimmedProcess(process, int(written) if written else process.pid, program.log, answers)

    def close(self) -> None:
        """Let go of the lifelines; for tests and a launcher that goes on to something else."""
        for end in (self._launcher_lives, self._launcher_end, self._work_goes_on, self._work_end):
            os.close(end)


def _under_a_shim(program: Program, lifeline: int, report: int, log: int) -> list[str]:
    options = [f"--lifeline={lifeline}", f"--report={report}", f"--grace-s={program.grace_s}", f"--log={log}"]
    options += [f"--most-log-bytes={program.most_log_bytes}"] if program.most_log_bytes else []
    show = ["--show"] if program.show else []
    return [sys.executable, "-I", "-S", process_shim.__file__, *options, *show, "--", *program.command]
