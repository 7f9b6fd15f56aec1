"""Local programs under shims, so that no program outlives a killed launcher.

Creates the pipes between launcher and shims. Decides nothing.
"""

from __future__ import annotations

import os
import shlex
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
from carla_run.exits import KILLED
from carla_run.files import open_to_append
from carla_run.memory.processes import tree
from carla_run.signals import wait_or_kill

SHIM_PATIENCE_S = 8.0


@dataclass(frozen=True)
class Program:
    """One local program to run.

    Attributes:
        role: chooses its lifeline.
        environment: variables added to the launcher's.
        log: the file to which its output is appended.
        show: copy its output to the terminal.
        grace_s: seconds between SIGTERM and SIGKILL if the launcher dies.
        folder: in which it runs; None for the launcher's own.
        most_log_bytes: of its log, the newest part of which is kept; 0 keeps all.
        id_file: file with the id of the container that it runs; None if it runs none.
        ending: command that ends this container.
    """

    role: Role
    command: tuple[str, ...]
    log: Path
    grace_s: float
    environment: Mapping[str, str] = field(default_factory=dict)
    show: bool = False
    folder: Path | None = None
    most_log_bytes: int = 0
    id_file: Path | None = None
    ending: tuple[str, ...] = ()


class ShimmedProcess:
    """A program under its shim; implements ``runtime.Child``.

    Attributes:
        pid: the program's process id, not the shim's.
        log: the file to which its output is appended.
    """

    def __init__(self, process: subprocess.Popen[bytes], pid: int, log: Path, answers: BinaryIO) -> None:
        self.pid, self.log, self._answers = pid, log, answers
        self._process, self._oom_kills = process, OomKills()
        self._killed_here = False
        self._ended: Ended | None = None

    def poll(self) -> Ended | None:
        """Return None while it runs, then how it ended; 128 + n if signal n ended it or its shim.

        The kernel counts OOM kills per control group, not per process. A SIGKILL that the launcher didn't send counts
        as one if the group's counter has risen since the start.
        """
        code = self._process.poll()
        if code is not None and self._ended is None:
            code = code if code >= 0 else 128 - code
            killed = code == KILLED and not self._killed_here and self._oom_kills.look()
            self._ended = Ended(code, killed, left=self._left())
        return self._ended

    def _left(self) -> int:
        """Return how many processes it left running, as its shim has said; 0 where that was killed itself."""
        with self._answers as answers:
            written = answers.readline().strip()
        return int(written) if written.isdigit() else 0

    def pids(self) -> frozenset[int]:
        """Return the ids of its processes now, including its shim."""
        return tree(self._process.pid) if self.poll() is None else frozenset()

    def terminate(self) -> None:
        """Let the shim send SIGTERM to the program, which stops its children itself."""
        self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Let the shim kill the whole process tree, and wait for it; harmless if it has ended."""
        if self.poll() is not None:
            return
        self._killed_here = True
        self._process.send_signal(signal.SIGQUIT)
        wait_or_kill(self._process, SHIM_PATIENCE_S)  # the death signal kills the program as well


class Shims:
    """Starts programs, each under a shim.

    The lifelines are two pipes to which nothing is written. The agent's shim reads the one whose other end only the
    launcher holds; the simulator's shim reads the one whose other end launcher and agent's shim hold. So the death of
    the launcher stops the agent, and the simulator stops after the agent has written its checkpoint and ended.
    """

    def __init__(self, inherited: tuple[int, ...] = ()) -> None:
        """``inherited``: descriptors that the shims hold too, such as the run's lock."""
        self._inherited = inherited
        self._launcher_lives, self._launcher_end = os.pipe()
        self._work_goes_on, self._work_end = os.pipe()

    def start(self, program: Program) -> ShimmedProcess:
        """Start a program under a shim; return once its process id is known, after milliseconds.

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
                    start_new_session=True,  # Ctrl-C reaches only the launcher, which stops programs in order
                )
            except OSError:
                answers.close()
                raise
            finally:
                os.close(report)
            written = answers.readline().strip()
        return ShimmedProcess(process, int(written) if written else process.pid, program.log, answers)

    def close(self) -> None:
        """Close the lifelines."""
        for end in (self._launcher_lives, self._launcher_end, self._work_goes_on, self._work_end):
            os.close(end)


def _under_a_shim(program: Program, lifeline: int, report: int, log: int) -> list[str]:
    options = [f"--lifeline={lifeline}", f"--report={report}", f"--grace-s={program.grace_s}", f"--log={log}"]
    options += [f"--most-log-bytes={program.most_log_bytes}"] if program.most_log_bytes else []
    if program.id_file is not None:
        options += [f"--id-file={program.id_file}", f"--ending={shlex.join(program.ending)}"]
    show = ["--show"] if program.show else []
    return [sys.executable, "-I", "-S", process_shim.__file__, *options, *show, "--", *program.command]
