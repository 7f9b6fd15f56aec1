"""The simulator beside a collector on its node: started, observed, and ended with it.

The launcher's command `simulator` starts, watches and restarts it. This process holds the command by its standard
input, which closes when this process ends, however that happens.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from carla_run.exits import Exit
from carla_run.readers import last_lines, read_object
from carla_run.signals import wait_or_kill
from carla_td3.exits import AgentError

START_LIMIT_S = 60.0
"""Seconds until the command must have chosen a port. The simulator then takes more time to start."""
STOP_LIMIT_S = 15.0


class Simulator:
    """A simulator on this node.

    Args:
        folder: where the command writes ``simulator.json`` and logs.
        options: of the command.
    """

    def __init__(self, folder: Path, options: Sequence[str]) -> None:
        self._folder = folder
        self._log = folder / "keeper.log"
        self._command = (sys.executable, "-m", "carla_launcher", "simulator", "--folder", str(folder), *options)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> tuple[str, int]:
        """Start the command; return host and port of its simulator, which may still be starting.

        Raises:
            AgentError: it can't be started on this node (exit 69).
        """
        if self._process is None or self._process.poll() is not None:
            (self._folder / "simulator.json").unlink(missing_ok=True)
            with self._log.open("ab") as log:
                self._process = subprocess.Popen(
                    self._command, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True
                )
        until_s = time.monotonic() + START_LIMIT_S
        while not (found := self.seen).get("port"):
            if self._process.poll() is not None or time.monotonic() > until_s:
                words = last_lines(self._log) or "it said nothing"
                raise AgentError(f"The simulator can't be started on its node: {words}", Exit.NO_SIMULATOR)
            time.sleep(0.05)
        return str(found["host"]), int(found["port"])

    @property
    def seen(self) -> Mapping[str, Any]:
        """Return what the command reports of it; empty before its first report."""
        return read_object(self._folder / "simulator.json")

    def restart(self) -> None:
        """Restart the simulator: it didn't answer the last call."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGUSR1)

    def close(self) -> None:
        """End it."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            wait_or_kill(self._process, STOP_LIMIT_S)  # the shim's lifeline ends the rest
