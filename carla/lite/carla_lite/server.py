"""The server: sockets, world and clock in one thread.

Owns the event loop and, in asynchronous mode, the pace of the ticks. Knows no method and no message.
"""

from __future__ import annotations

import contextlib
import selectors
import time
from types import TracebackType
from typing import Any

from carla_lite.maps import Maps

# Four of these modules enter their functions in the table of methods.
from carla_lite.methods import actor, commands, episode, table, vehicle  # noqa: F401
from carla_lite.protocol.channel import listen
from carla_lite.protocol.rpc import RpcServer
from carla_lite.protocol.streams import Streams
from carla_lite.world import World


class Server:
    """Listens on ``port`` (RPC) and ``port + 1`` (streams) from construction on; a context manager that closes both."""

    def __init__(self, host: str, port: int, maps: Maps, seed: int) -> None:
        """Listen and build the world.

        Raises:
            OSError: a port is in use.
        """
        self._sockets = contextlib.ExitStack()
        rpc_listener = self._sockets.enter_context(listen(host, port))
        stream_listener = self._sockets.enter_context(listen(host, port + 1))
        self._streams = Streams(stream_listener)
        self._world = World(self._streams, maps, seed)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._streams.selector.fileno(), selectors.EVENT_READ, self._serve_streams)
        self._rpc = RpcServer(rpc_listener, self._selector, self._answer)

    def __enter__(self) -> Server:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._rpc.close()
        self._streams.close()
        self._selector.close()
        self._sockets.close()

    def serve(self) -> None:
        """Serve until an exception ends it; in synchronous mode an idle server sleeps."""
        due_s = time.monotonic()
        while True:
            settings = self._world.settings
            wait_s = None if settings.synchronous else max(0.0, due_s - time.monotonic())
            for key, mask in self._selector.select(wait_s):
                key.data(mask)
            if not self._world.settings.synchronous and time.monotonic() >= due_s:
                self._world.tick()
                # Real time; a server that was held up does not hurry to catch up.
                due_s = max(due_s + self._world.settings.delta_s, time.monotonic())

    def _answer(self, name: str, args: list[Any]) -> object:
        return table.answer(self._world, name, args)

    def _serve_streams(self, _mask: int) -> None:
        self._streams.serve()
