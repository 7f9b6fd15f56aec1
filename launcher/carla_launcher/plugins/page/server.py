"""The HTTP server of the page's process.

uvicorn never closes a connection whose request isn't completed or whose client reads nothing. A hundred such
connections would block all others, so this module closes them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import time
from typing import IO, Any

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from carla_launcher.config import LauncherConfig
from carla_launcher.plugins.page.guard import Guard
from carla_launcher.plugins.page.viewers import Viewers
from carla_run.paths import RunPaths

REQUEST_S = 5.0
"""Time limit for the head of a request, from the connection's start or its last response."""
SLOW_S = 10.0
"""Time limit for a client to read what was sent."""
LOOK_OVER_S = 0.25
MAX_CONNECTIONS = 128
LAST_LOOK_S = 2.5
"""Time for open pages to show the end of the run."""


class LazyPage:
    """The page's application, created at the first request, since its libraries take 60 MiB."""

    def __init__(self, run: RunPaths, limits: LauncherConfig, viewers: Viewers) -> None:
        self._run, self._limits, self._viewers = run, limits, viewers
        self._making = asyncio.Lock()
        self._made: ASGIApp | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        async with self._making:
            if self._made is None:
                self._made = await asyncio.to_thread(self._make)
        await self._made(scope, receive, send)

    def _make(self) -> ASGIApp:
        from carla_launcher.plugins.page.app import application
        from carla_launcher.plugins.page.buttons import Buttons
        from carla_launcher.plugins.page.parts import Parts

        return application(self._run, Parts(self._run, Buttons(self._run, self._limits)), self._viewers)


async def serve(
    run: RunPaths, limits: LauncherConfig, listening: socket.socket, token: str, lifeline: IO[Any] | None = None
) -> None:
    """Serve a run's page on a listening socket, until ``lifeline`` closes; without one, until a signal.

    The button that stops the run uses ``limits``.
    """
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # ignore the streams that are cut off at the end
    viewers = Viewers(run)
    server = uvicorn.Server(
        uvicorn.Config(
            Guard(LazyPage(run, limits, viewers), token, listening.getsockname()[1]),
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            limit_concurrency=MAX_CONNECTIONS,
            timeout_graceful_shutdown=1,
        )
    )
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    closing = asyncio.create_task(_close_those_that_wait(server))
    if lifeline is not None:
        watching = asyncio.create_task(_end_of(lifeline))
        await asyncio.wait({serving, watching}, return_when=asyncio.FIRST_COMPLETED)
        if viewers.looking:
            await asyncio.wait({serving}, timeout=LAST_LOOK_S)
        server.should_exit = True
        watching.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await serving
    closing.cancel()


async def _close_those_that_wait(server: uvicorn.Server) -> None:
    """Close connections without progress: no complete request came, or no response was read."""
    since: dict[tuple[H11Protocol, object, int], float] = {}
    while True:
        now_s = time.monotonic()
        seen = [
            (each, each.cycle, each.transport.get_write_buffer_size())
            for each in server.server_state.connections
            if isinstance(each, H11Protocol)
        ]
        since = {moment: since.get(moment, now_s) for moment in seen}
        for (connection, _, unsent), from_s in since.items():
            idle = connection.cycle is None or connection.cycle.response_complete
            if now_s - from_s > (SLOW_S if unsent else REQUEST_S) and (unsent or idle):
                connection.transport.abort()
        await asyncio.sleep(LOOK_OVER_S)


async def _end_of(lifeline: IO[Any]) -> None:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), lifeline)
    await reader.read()
