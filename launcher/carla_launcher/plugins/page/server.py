"""The page's process: its HTTP server, which connections it closes, and its end.

uvicorn waits for ever for a request that is never finished, and for a reader that takes nothing: a hundred such
connections would keep everybody else out. The server's connections are looked over instead.
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
"""For the head of a request, from the connection's beginning or its last answer."""
SLOW_S = 10.0
"""For a reader to take what was sent."""
LOOK_OVER_S = 0.25
MOST_CONNECTIONS = 128
LAST_LOOK_S = 2.5
"""For pages that are open to see how the run ended."""


class AtFirstLook:
    """The page, made when it is first looked at: what draws it takes 60 MiB."""

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
    """Serve a run's page on a socket that listens, until ``lifeline`` ends; without one, until a signal.

    ``limits`` are those by which its button stops the run.
    """
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # the streams that are cut off at the end
    viewers = Viewers(run)
    server = uvicorn.Server(
        uvicorn.Config(
            Guard(AtFirstLook(run, limits, viewers), token, listening.getsockname()[1]),
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            limit_concurrency=MOST_CONNECTIONS,
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
    """Close the connections on which nothing has moved for too long: no whole request came, or no answer was taken."""
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
