"""Trainings forked from a process that has torch loaded: each saves three seconds of processor time.

For tests that look at neither a training's start, environment, memory nor process tree: its modules are loaded when it
begins, Python's hashes are those of its siblings, and its parent is the fork server. There is one of those a pytest
process, which starts with its first training and ends with pytest, however that ends.
"""

from __future__ import annotations

import os
import runpy
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path

# Adam imports torch._dynamo when it is first made. None of these starts a thread of torch's.
LOADED = ["carla_td3.cli.commands", "carla_td3.memory.preflight", "carla_td3.trainer.loop", "torch._dynamo", __name__]
ForkServerContext().set_forkserver_preload(LOADED)


class ForkedAgent(ForkServerProcess):
    """``python -m carla_td3``, with what tests use of a :class:`subprocess.Popen` whose output is one pipe of text."""

    def __init__(self, arguments: Sequence[str], directory: Path, environment: Mapping[str, str]) -> None:
        super().__init__(daemon=True)  # pytest's own end stops what a failed test left, and doesn't wait for it
        self._arguments, self._directory, self._environment = arguments, directory, environment
        output = os.fdopen(os.memfd_create("output"), encoding="utf-8")
        self._written = f"/proc/{os.getpid()}/fd/{output.fileno()}"
        self.start()
        self._output = output

    def run(self) -> None:
        """Become, in the fork, what a fresh process would be."""
        os.chdir(self._directory)
        os.environ.clear()
        os.environ.update(self._environment)
        output = os.open(self._written, os.O_WRONLY)
        os.dup2(output, sys.stdout.fileno())
        os.dup2(output, sys.stderr.fileno())
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))  # one of them would keep the server alive
        sys.argv[1:] = self._arguments
        runpy.run_module("carla_td3", run_name="__main__", alter_sys=True)

    @property
    def returncode(self) -> int | None:
        return self.exitcode

    def poll(self) -> int | None:
        return self.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self.join(timeout)
        if self.exitcode is None:
            raise subprocess.TimeoutExpired(self._arguments, timeout or 0.0)
        return self.exitcode

    def communicate(self, timeout: float | None = None) -> tuple[str, None]:
        self.wait(timeout)
        return self._output.read(), None

    def send_signal(self, number: signal.Signals) -> None:
        if self.exitcode is None and self.pid is not None:
            os.kill(self.pid, number)
