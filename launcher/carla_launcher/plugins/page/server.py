"""The page's process: its HTTP server, whom it has patience with, and its end.

A connection that doesn't come to a whole request in time is closed, and so is one that doesn't take its answer: a
hundred of them keep nobody else out for longer.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
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
MOST_CONNECTIONS = 128
LAST_LOOK_S = 2.5
"""For pages that are open to see how the run ended."""


class PunctualProtocol(H11Protocol):
    """HTTP/1.1 with a client that must say what it wants in time, and take what it gets."""

    _patience: asyncio.TimerHandle | None = None
    _reading: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request."""
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Wait no longer once a request is there."""
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete and self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        for waiting in (self._patience, self._reading):
            if waiting is not None:
                waiting.cancel()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Begin to wait for the reader."""
        super().pause_writing()
        self._reading = self.loop.call_later(SLOW_S, self.transport.abort)

    def resume_writing(self) -> None:
        """Wait no longer: it reads."""
        super().resume_writing()
        if self._reading is not None:
            self._reading.cancel()

    def _wait(self) -> None:
        if self._patience is None:
            self._patience = self.loop.call_later(REQUEST_S, self._give_up)

    def _give_up(self) -> None:
        self._patience = None
        if self.cycle is None or self.cycle.response_complete:
            self.transport.abort()


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
            http=PunctualProtocol,
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
    if lifeline is not None:
        watching = asyncio.create_task(_end_of(lifeline))
        await asyncio.wait({serving, watching}, return_when=asyncio.FIRST_COMPLETED)
        if viewers.looking:
            await asyncio.wait({serving}, timeout=LAST_LOOK_S)
        server.should_exit = True
        watching.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await serving


async def _end_of(lifeline: IO[Any]) -> None:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), lifeline)
    await reader.read()
