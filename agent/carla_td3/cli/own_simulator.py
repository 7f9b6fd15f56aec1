"""A carla-lite for one command: started by its name, gone with the command.

Owns the process. The agent doesn't import carla-lite.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from carla_run.exits import Exit
from carla_run.signals import wait_or_kill
from carla_td3.exits import AgentError

START_LIMIT_S, STOP_LIMIT_S, POLL_S = 60.0, 5.0, 0.02


@contextlib.contextmanager
def carla_lite(map: str) -> Iterator[int]:
    """Run a carla-lite on a free port of the loopback while the block lasts, and give its port.

    It ends with this process, whatever ends that.

    Raises:
        AgentError: it isn't installed, or refuses the map (its own sentence is passed on).
    """
    with tempfile.TemporaryDirectory(prefix="carla-td3-") as folder:
        ready = Path(folder) / "ready.json"
        words = ["--port", "0", "--map", map, "--ready-file", str(ready), "--end-with-input"]
        with (Path(folder) / "output").open("w+") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "carla_lite", *words],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is for the command
            )
            try:
                _await(ready, process, Path(output.name))
                yield int(json.loads(ready.read_text())["port"])
            finally:
                assert process.stdin is not None
                process.stdin.close()
                wait_or_kill(process, STOP_LIMIT_S)


def _await(ready: Path, process: subprocess.Popen[bytes], output: Path) -> None:
    until_s = time.monotonic() + START_LIMIT_S
    while not ready.exists():
        if process.poll() is not None:
            said = output.read_text(errors="replace").strip()
            if "No module named" in said:
                said = "No carla-lite is installed: `pip install carla-lite`, or name a simulator with --simulator."
            raise AgentError(said or f"carla-lite ended with {process.returncode}.", Exit.NO_SIMULATOR)
        if time.monotonic() > until_s:
            raise AgentError(f"carla-lite didn't listen within {START_LIMIT_S:g} s.", Exit.NO_SIMULATOR)
        time.sleep(POLL_S)
