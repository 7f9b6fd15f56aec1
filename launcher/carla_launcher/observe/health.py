"""Health checks: whether a simulator at an address answers ``version`` and advances its frames.

Speaks CARLA's wire protocol (carla-wire-protocol.md, sections 2 and 3) instead of using the client: the client has no
short time-out, prints to the terminal and can abort its process. Starts and stops nothing.
"""

from __future__ import annotations

import itertools
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgpack

STREAM_HEADER = struct.Struct("<QQ")  # sensor type index, frame; 32 more bytes follow
WORLD_OBSERVERS = (16, 17)
"""Of CARLA 0.9.15, and of 0.9.16, which has one more sensor before it."""
# stream id, port, protocol, address type (0: the host that was asked, 1: the four bytes that follow)
TOKEN = struct.Struct("<IHBB4s12x")
MAX_MESSAGE_BYTES = 64 * 2**20
FRAMES_READ = 50


@dataclass(frozen=True)
class Address:
    """Address of a simulator's RPC port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True)
class Health:
    """Result of a check; ``problem`` is a clause for messages, empty if the simulator is healthy."""

    version: str = ""
    frame: int = 0
    problem: str = ""

    @property
    def ok(self) -> bool:
        """Return whether the simulator answers and ticks."""
        return not self.problem


class ProtocolError(Exception):
    """The other side's answer isn't one of CARLA's protocol."""


def check(address: Address, timeout_s: float = 1.0, *, may_tick: bool = False) -> Health:
    """Return the simulator's health; never raises, takes a few ``timeout_s`` at most.

    An open port proves nothing, and CARLA answers ``version`` even when its simulation hangs (facts.md section 4). So
    the check must see two different frame numbers. A simulator in synchronous mode advances only when it is ticked:
    with ``may_tick`` the check ticks it twice; otherwise its client ticks, and an answer to a question about its
    settings is enough, since the simulating thread gives that.
    """
    return _asked(address, timeout_s, lambda rpc, version: _ticking(rpc, version, address, timeout_s, may_tick))


def answers(address: Address, timeout_s: float = 1.0) -> Health:
    """Return whether ``version`` is answered; never raises, takes two ``timeout_s`` at most.

    For a simulator that was healthy and that a client ticks. CARLA's game thread answers all other calls, and it may
    be waiting for a tick.
    """
    return _asked(address, timeout_s, lambda _, version: Health(version))


def _asked(address: Address, timeout_s: float, further: Callable[[Rpc, str], Health]) -> Health:
    """Ask for ``version``, then return the result of ``further``, or the problem."""
    try:
        with Rpc(address, timeout_s) as rpc:
            return further(rpc, str(rpc.call("version")))
    except ConnectionRefusedError:
        return Health(problem="nothing listens there")
    except TimeoutError:
        return Health(problem="the port is open, but `version` isn't answered")
    except (OSError, ValueError, LookupError, TypeError, msgpack.UnpackException, ProtocolError) as error:
        return Health(problem=f"what listens there doesn't speak CARLA's protocol ({error})")


def _ticking(rpc: Rpc, version: str, address: Address, timeout_s: float, may_tick: bool) -> Health:
    try:
        # CARLA answers this on the thread that simulates, so a hung simulator doesn't answer.
        synchronous = bool(rpc.call("get_episode_settings")[0])
        if synchronous and not may_tick:
            return Health(version)
        return Health(version, _advancing_frame(rpc, address, timeout_s, synchronous))
    except TimeoutError:
        return Health(version, problem=f"`version` is answered ({version}), but its frames don't advance")


class Rpc:
    """One msgpack-rpc connection; each call waits for its reply."""

    def __init__(self, address: Address, timeout_s: float) -> None:
        self._socket = socket.create_connection((address.host, address.port), timeout_s)
        self._replies = msgpack.Unpacker(max_buffer_size=MAX_MESSAGE_BYTES)
        self._ids = itertools.count(1)

    def __enter__(self) -> Rpc:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def call(self, method: str) -> Any:
        """Return the value of a call without arguments.

        Raises:
            TimeoutError: no reply came.
            ProtocolError: an error came, or something that is no reply.
        """
        number = next(self._ids)
        self._socket.sendall(msgpack.packb([0, number, method, [[False]]]))  # [False]: not asynchronous
        while True:
            for reply in self._replies:
                if not isinstance(reply, list) or len(reply) != 4 or reply[0] != 1:
                    raise ProtocolError(f"answered {str(reply)[:60]!r}")
                if reply[1] == number:
                    return _value(method, reply)
            received = self._socket.recv(65_536)
            if not received:
                raise ProtocolError("closed the connection")
            self._replies.feed(received)


def _value(method: str, reply: list[Any]) -> Any:
    """Return the value T of a reply ``[1, id, nil, [[1, T]]]`` (protocol section 2.1)."""
    match reply[3]:
        case [[1, value]]:
            return value
    raise ProtocolError(f"{method} answered {str(reply[2] or reply[3])[:60]!r}")


def _advancing_frame(rpc: Rpc, address: Address, timeout_s: float, synchronous: bool) -> int:
    """Return a frame number that is greater than the first one.

    Raises:
        TimeoutError: the frame number doesn't change.
    """
    match rpc.call("get_episode_info"):
        case [_, [bytes(packed)]] if len(packed) == TOKEN.size:
            stream_id, port, _, address_type, ip = TOKEN.unpack(packed)
        case other:
            raise ProtocolError(f"get_episode_info answered {str(other)[:60]!r}")
    host = socket.inet_ntoa(ip) if address_type == 1 else address.host
    with socket.create_connection((host, port), timeout_s) as stream:
        stream.sendall(struct.pack("<I", stream_id))
        first: int | None = None
        for _ in range(FRAMES_READ):
            if synchronous:
                rpc.call("tick_cue")
            frame = _frame(stream)
            if first is not None and frame > first:
                return frame
            first = frame if first is None else first
    raise TimeoutError


def _frame(stream: socket.socket) -> int:
    """Return the frame number of the stream's next message (protocol section 3)."""
    (size,) = struct.unpack("<I", _exactly(stream, 4))
    if not STREAM_HEADER.size <= size <= MAX_MESSAGE_BYTES:
        raise ProtocolError(f"a world message of {size} bytes")
    kind, frame = STREAM_HEADER.unpack_from(_exactly(stream, size))
    if kind not in WORLD_OBSERVERS:
        raise ProtocolError(f"a message of type {kind} on the world's stream")
    return int(frame)


def _exactly(stream: socket.socket, count: int) -> bytes:
    received = bytearray()
    while len(received) < count:
        part = stream.recv(count - len(received))
        if not part:
            raise ProtocolError("closed the world's stream")
        received += part
    return bytes(received)
