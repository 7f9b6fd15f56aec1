"""Observes a simulator from outside: its process, an idle connection, its answers and its log.

Starts, stops and decides nothing.
"""

from __future__ import annotations

import errno
import re
import select
import socket
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from carla_launcher.observe.health import Address, Health
from carla_launcher.observe.observation import Program, Sign, SimulatorSeen
from carla_launcher.observe.tail import Tail

UNDER_WAY = (0, errno.EINPROGRESS, errno.EALREADY, errno.EISCONN)

MAX_LINE_CHARACTERS = 400
"""Characters of a log line that are kept."""

_VK_RESULTS = {  # vulkan_core.h: every VkResult that is an error and that a program without a window can meet
    Sign.OUT_OF_VRAM: {-2: "OUT_OF_DEVICE_MEMORY"},
    Sign.OUT_OF_RAM: {-1: "OUT_OF_HOST_MEMORY"},
    Sign.NO_VULKAN: {
        -6: "LAYER_NOT_PRESENT",
        -7: "EXTENSION_NOT_PRESENT",
        -8: "FEATURE_NOT_PRESENT",
        -9: "INCOMPATIBLE_DRIVER",
        -11: "FORMAT_NOT_SUPPORTED",
    },
    Sign.VULKAN_FAILED: {-3: "INITIALIZATION_FAILED"},
    Sign.DEVICE_LOST: {-4: "DEVICE_LOST"},
    Sign.CRASH: {
        -5: "MEMORY_MAP_FAILED",
        -10: "TOO_MANY_OBJECTS",
        -12: "FRAGMENTED_POOL",
        -13: "UNKNOWN",
        -1000012000: "INVALID_SHADER_NV",
        -1000069000: "OUT_OF_POOL_MEMORY",
        -1000161000: "FRAGMENTATION",
    },
}
# Other messages of Unreal 4.26 and 5: VulkanRHI, LinuxDynamicRHI, Core's memory, and the loader of its libraries.
_WORDS = {
    Sign.OUT_OF_VRAM: r"Out of (?:Device|Local) Memory, Requested|Out of memory on Vulkan|Out of video memory"
    r"|Failed to allocate Device Memory",
    Sign.OUT_OF_RAM: r"Ran out of memory allocating|backup pool to handle out of memory|(?:Out of|allocate) Host Memory"
    r"|std::bad_alloc|what\(\):\s+(?:Cannot allocate memory|Resource temporarily unavailable)",
    Sign.NO_VULKAN: r"compatible Vulkan d(?:river|evice)|Vulkan driver doesn't contain|required Vulkan extension"
    r"|Vulkan failed to (?:create inst|select)|required Vulkan entry points|Unable to load Vulkan|initialize Vulkan"
    r"|support Vulkan were found|enumerate physical devices|(?:Vulkan|OpenGL) .*required to run the engine"
    r"|No Vulkan (?:driver|entry points) found|Incomplete Vulkan driver|Vulkan device not available|No devices found!",
    Sign.ROOT: r"Refusing to run with the root privileges",
    Sign.NO_LIBRARY: r"error while loading shared libraries|version `GLIBC\w*_[\d.]+' not found",
    Sign.LAVAPIPE: r"lavapipe is not a conformant",
    Sign.PORT_TAKEN: r"bind: Address already in use",
    Sign.RENDERER_HUNG: r"timed out waiting for RenderThread|GPU has hung or crashed|Rendering thread exception",
    # SIGILL, SIGABRT, SIGBUS, SIGFPE, SIGSEGV; a SIGTERM that Unreal reports in the same words is no crash.
    Sign.CRASH: r"Signal (?:4|6|7|8|11) caught|Assertion failed: |Fatal error: |Unhandled Exception: ",
}


def _pattern(sign: Sign) -> re.Pattern[str]:
    known = _VK_RESULTS.get(sign, {}).items()
    results = (rf"VkResult={code}(?!\d)|VK_ERROR_{name}(?:_[A-Z]+)?\b" for code, name in known)
    return re.compile("|".join((*filter(None, [_WORDS.get(sign)]), *results)), re.IGNORECASE)


_PATTERNS = tuple((sign, _pattern(sign)) for sign in Sign)
"""In the order of ``Sign``: the first match of a line with two meanings explains more."""


@dataclass(frozen=True)
class Questions:
    """The ways to query a simulator.

    Attributes:
        ready: checks that a simulator ticks (``health.check``); the argument is whether a client may drive it.
        answers: checks that it still answers (``health.answers``).
        every_s: interval between two checks of a simulator that is ready.
    """

    ready: Callable[[bool], Health]
    answers: Callable[[], Health]
    every_s: float


class SimulatorMonitor:
    """Observes the simulators at one address, one after the other.

    Args:
        log: the simulators' log, whose present lines are ignored; None for one that the launcher doesn't start, of
            which there is no process either.
    """

    def __init__(self, address: Address, ask: Questions, log: Path | None) -> None:
        self._ask, self._external = ask, log is None
        self._connection = IdleConnection(address)
        self._tail = None if log is None else Tail(log, from_end=True)
        self._program: Program | None = None
        self._ready = False
        self._asked_s = 0.0
        self._seen = SimulatorSeen(running=self._external)

    def look(self, now_s: float, program: Program | None, in_use: bool) -> SimulatorSeen:
        """Return the simulator's state now; queries it at most once.

        Args:
            now_s: time of the observation's clock.
            program: the simulator's process; None if there is none.
            in_use: whether a client may drive it.
        """
        if program is not self._program:
            self._turn_to(program)
        # Poll before reading the log, so that the log is complete if the simulator has ended.
        ended = None if program is None else program.poll()
        seen = replace(self._seen, running=self._runs(ended is not None), ended=ended, signs=self._signs())
        seen = replace(seen, pid=0 if program is None else program.pid)
        if seen.running:
            seen = replace(seen, connection_lost=self._connection.look())
            seen = self._asked(seen, now_s, in_use)
        self._seen = seen
        return seen

    def close(self) -> None:
        """Close connection and log."""
        self._connection.close()
        if self._tail is not None:
            self._tail.close()

    def _turn_to(self, program: Program | None) -> None:
        """Restart the observation for another simulator, which may have another log."""
        self._program, self._ready, self._asked_s = program, False, 0.0
        self._seen = SimulatorSeen(running=self._external)
        self._connection.forget()
        if program is not None and (self._tail is None or self._tail.path != program.log):
            if self._tail is not None:
                self._tail.close()
            self._tail = Tail(program.log, from_end=False)

    def _runs(self, ended: bool) -> bool:
        return not ended and (self._program is not None or self._external)

    def _signs(self) -> tuple[tuple[Sign, str], ...]:
        return () if self._tail is None else signs_in(self._tail.look())

    def _asked(self, seen: SimulatorSeen, now_s: float, in_use: bool) -> SimulatorSeen:
        if seen.connection_lost:
            self._ready = self._ready and not self._external  # an external one must pass the full check again
            return replace(seen, healthy=False, problem="its connection ended")
        if self._ready and now_s - self._asked_s < self._ask.every_s:
            return seen
        found = self._ask.answers() if self._ready else self._ask.ready(in_use)
        failed = 0 if found.ok or not self._ready else seen.checks_failed + 1
        self._ready, self._asked_s = self._ready or found.ok, now_s
        return replace(seen, healthy=found.ok, problem=found.problem, checks_failed=failed)


class IdleConnection:
    """An idle TCP connection to the RPC port, which shows at once that the simulator died.

    It shows a SIGKILL after 1.8 ms (facts.md, section 5), while a query would have to time out. Connects by itself,
    and again after each end; never sends a byte, never waits. Nothing is reported before the first connection.

    A connection counts once it has lasted from one look to the next: Docker's proxy accepts every connection to a
    published port, and closes it at once if nothing listens behind it.
    """

    def __init__(self, address: Address) -> None:
        self._address = address
        self._where: tuple[Any, ...] | None = None
        self._socket: socket.socket | None = None
        self._established = False
        self._stood = False
        self._lost = False

    def look(self) -> bool:
        """Return whether the simulator closed the connection and nothing has answered since."""
        if self._socket is None:
            self._begin()
        elif not self._established:
            self._finish()
        elif not self._ended():
            self._stood, self._lost = True, False
        else:
            self._lost = self._lost or self._stood
            self.close()
        return self._lost

    def forget(self) -> None:
        """Close the connection and forget its end: the simulator was stopped or replaced."""
        self.close()
        self._lost = False

    def close(self) -> None:
        """Close the connection; the next look opens another."""
        if self._socket is not None:
            self._socket.close()
        self._socket, self._established, self._stood = None, False, False

    def _begin(self) -> None:
        try:
            if self._where is None:  # once, since a name look-up may take long
                found = socket.getaddrinfo(self._address.host, self._address.port, type=socket.SOCK_STREAM)
                self._where = found[0]
            family, kind, protocol, _, where = self._where
            self._socket = socket.socket(family, kind, protocol)
        except (OSError, UnicodeError):  # a name such as a..b can't be looked up
            return
        self._socket.setblocking(False)
        if self._socket.connect_ex(where) in UNDER_WAY:
            self._finish()
        else:
            self.close()

    def _finish(self) -> None:
        """Note whether the connection is established by now; after a refusal the next look connects again."""
        assert self._socket is not None
        _, writable, _ = select.select([], [self._socket], [], 0)
        if writable and self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self.close()
        elif writable:
            self._established = True

    def _ended(self) -> bool:
        assert self._socket is not None
        try:
            return not self._socket.recv(65_536)  # nothing was asked for, so ignore the bytes
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            return True


def sign_of(line: str) -> Sign | None:
    """Return the meaning of a log line; None if it has none. Of two meanings, the one that explains more."""
    return next((sign for sign, pattern in _PATTERNS if pattern.search(line)), None)


def signs_in(lines: list[str]) -> tuple[tuple[Sign, str], ...]:
    """Return the log lines that have a meaning, each with it."""
    found = ((sign_of(line), line.strip()[:MAX_LINE_CHARACTERS]) for line in lines)
    return tuple((sign, line) for sign, line in found if sign is not None)
