"""A run's folder as launcher and agent leave it, its live page in this process, and raw requests to it."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import re
import socket
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from carla_launcher import config
from carla_launcher.plugins.page import server
from carla_run.paths import RunPaths
from tests.crowd import PATIENCE_S

TOKEN = "a-token-that-only-its-user-knows"
START = 1_795_364_585.0
BEAT = {
    **{"time": START, "pid": 7, "phase": "updating", "step": 2151, "total_steps": 100_000, "updates": 10},
    **{"episode": 9, "device": "cpu", "batch": 64, "micro_batch": 64, "ticks": 3000, "tick_outstanding_s": 0.0},
    "collector_restarts": 0,
}
POOLS = {"ram": {"total": 8000.0, "free": 5000.0, "owners": {"simulator": 700.0, "agent": 900.0, "blender <b>": 64.0}}}
PICTURE = b"\xff\xd8 not quite a picture"


class Reply(NamedTuple):
    """The page's answers."""

    status: int
    headers: Mapping[str, str]
    body: str


def folder(path: Path) -> RunPaths:
    """Make a run's folder with a little of everything."""
    run = RunPaths(path)
    run.live.mkdir(parents=True)
    run.logs.mkdir()
    run.heartbeat.write_text(json.dumps(BEAT))
    run.launcher_events.write_text(row("run_started") + row("rung_taken", rung="no_video", cause="memory short"))
    rows = [{"time": START + n, "step": n, "phase": "updating", "pools": POOLS} for n in range(0, 100, 10)]
    run.launcher_memory.write_text("".join(json.dumps(each) + "\n" for each in rows))
    run.metrics.write_text("".join(json.dumps({"step": n, "time/fps": 30 + n}) + "\n" for n in range(9)))
    run.live_frame.write_bytes(PICTURE)
    return run


def row(event: str, **fields: Any) -> str:
    return json.dumps({"time": START, "event": event, "cause": "", **fields}) + "\n"


class Page:
    """The page of a run, served by a thread."""

    def __init__(self, run: RunPaths, limits: config.LauncherConfig | None = None, port: int = 0) -> None:
        self.run, self._limits = run, limits or config.load()
        self._listening = socket.create_server(("127.0.0.1", port), backlog=256)
        self.port = int(self._listening.getsockname()[1])
        lifeline, self._end = os.pipe()
        self._lifeline = os.fdopen(lifeline)
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        asyncio.run(server.serve(self.run, self._limits, self._listening, TOKEN, self._lifeline))

    def close(self) -> None:
        os.close(self._end)
        self._thread.join()

    def ask(self, path: str, method: str = "GET", /, **headers: str) -> Reply:
        """Ask for exactly this path, with these headers (``_`` for ``-``) and no others but Host."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        connection.putheader("Host", headers.pop("host", f"127.0.0.1:{self.port}"))
        for name, value in headers.items():
            connection.putheader(name.replace("_", "-"), value)
        connection.endheaders()
        answer = connection.getresponse()
        reply = Reply(answer.status, dict(answer.getheaders()), answer.read().decode())
        connection.close()
        return reply

    @property
    def cookie(self) -> str:
        """The cookie that the token gives."""
        given = self.ask(f"/?token={TOKEN}").headers["set-cookie"]
        found = re.match(r"[^;]+", given)
        assert found
        return found[0]

    @property
    def own(self) -> dict[str, str]:
        """The headers of a request that the page's own script makes."""
        return {
            "cookie": self.cookie,
            "origin": f"http://127.0.0.1:{self.port}",
            "sec_fetch_site": "same-origin",
        }
