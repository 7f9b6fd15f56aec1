"""The faults, one class each; the first line of its docstring is its help text. A new fault is one class here.

Owns what each fault does to the process, and to what the hooks of world and server pass to it.
"""

from __future__ import annotations

import mmap
import os
import signal
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, NoReturn

from carla_lite.faults.carla_log import LINES
from carla_lite.faults.fault import Fault, Lasting, above, key, whole

if TYPE_CHECKING:
    from carla_lite.actors.sensor import Message, Sensor

_DEADLY = ("SEGV", "ABRT", "KILL", "BUS", "FPE", "ILL", "TERM")
# Only those that this system has.
_SIGNALS = {one.name[3:]: int(one) for name in _DEADLY for one in signal.Signals if one.name == f"SIG{name}"}
# All methods that CARLA answers outside its game thread: CarlaServer.cpp binds every other method to it (BIND_SYNC).
_OFF_THE_GAME_THREAD = frozenset({"version", "get_available_maps"})
_BLACK = b"\x00\x00\x00\xff"  # BGRA


def _signal(text: str) -> int:
    name = text.upper().removeprefix("SIG")
    number = _SIGNALS[name] if name in _SIGNALS else int(text)
    if number not in _SIGNALS.values():
        raise ValueError(text)
    return number


def _script(text: str) -> str:
    if text not in LINES:
        raise ValueError(text)
    return text


@dataclass(eq=False, kw_only=True)
class Crash(Fault):
    """Dies by a signal; the default is SEGV."""

    kind: ClassVar[str] = "crash"
    early: ClassVar[bool] = True

    signal: int = key(_signal, f"one of {', '.join(_SIGNALS)} or its number", _SIGNALS["SEGV"])

    def begin(self) -> NoReturn:
        """Die without a message and without a core file."""
        import resource  # imported here, because a system without it can run all other faults

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if self.signal != _SIGNALS["KILL"]:
            signal.signal(self.signal, signal.SIG_DFL)
        os.kill(os.getpid(), self.signal)
        # The first process of a container can't kill itself: the kernel drops the signal. So exit with a shell's code
        # for it.
        os._exit(128 + self.signal)


@dataclass(eq=False, kw_only=True)
class Exit(Fault):
    """Ends with an exit code and no message."""

    kind: ClassVar[str] = "exit"
    early: ClassVar[bool] = True

    code: int = key(whole(0, 255), "a whole number from 0 to 255")

    def begin(self) -> NoReturn:
        """End at once, without cleaning up."""
        os._exit(self.code)


@dataclass(eq=False, kw_only=True)
class SlowStart(Fault):
    """Opens its ports late. Only at start-up. For a server that opens its ports but answers late: dead-rpc:for_s=S."""

    kind: ClassVar[str] = "slow-start"
    early: ClassVar[bool] = True
    only_at_start: ClassVar[bool] = True

    by_s: float = key(above(0.0), "a number of seconds above 0")

    def begin(self) -> None:
        """Wait before the ports open."""
        time.sleep(self.by_s)


@dataclass(eq=False, kw_only=True)
class Log(Fault):
    """Prints messages of CARLA."""

    kind: ClassVar[str] = "log"
    early: ClassVar[bool] = True

    lines: str = key(_script, f"one of {', '.join(LINES)}")

    def begin(self) -> None:
        """Print the lines."""
        print(*LINES[self.lines], sep="\n", flush=True)


@dataclass(eq=False, kw_only=True)
class Hang(Lasting):
    """Hangs: no tick returns and no frame comes, but version is still answered."""

    kind: ClassVar[str] = "hang"
    halts: ClassVar[bool] = True

    def defers(self, method: str) -> bool:
        """Return whether the game thread would answer this method."""
        return method not in _OFF_THE_GAME_THREAD


@dataclass(eq=False, kw_only=True)
class IgnoreSigterm(Fault):
    """Ignores SIGTERM from then on."""

    kind: ClassVar[str] = "ignore-sigterm"
    early: ClassVar[bool] = True

    def begin(self) -> None:
        """Ignore the signal."""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)


@dataclass(eq=False, kw_only=True)
class DeadRpc(Lasting):
    """Accepts connections and calls but answers none; asynchronous frames continue."""

    kind: ClassVar[str] = "dead-rpc"

    def defers(self, method: str) -> bool:  # noqa: ARG002 (every method)
        """Return True."""
        return True


@dataclass(eq=False, kw_only=True)
class Sight(Lasting):
    """A fault of the sensors' messages.

    Attributes:
        for_ticks: it ends after this many frames.
    """

    for_ticks: int | None = key(whole(1), "a whole number of ticks from 1", None)


@dataclass(eq=False, kw_only=True)
class Drop(Sight):
    """Sends no sensor data; ticks continue."""

    kind: ClassVar[str] = "drop"

    def sees(self, sensor: Sensor, messages: Iterable[Message]) -> Iterable[Message]:  # noqa: ARG002 (any)
        """Return nothing."""
        return ()


@dataclass(eq=False, kw_only=True)
class Black(Sight):
    """Sends black pictures."""

    kind: ClassVar[str] = "black"

    def sees(self, sensor: Sensor, messages: Iterable[Message]) -> Iterator[Message]:
        """Yield the messages, with black pixels for cameras."""
        from carla_lite.actors.sensors.camera import ImageSensor

        for message in messages:
            if isinstance(sensor, ImageSensor):
                *heads, pixels = message
                yield (*heads, _BLACK * (len(pixels) // len(_BLACK)))
            else:
                yield message


@dataclass(eq=False, kw_only=True)
class Memory(Lasting):
    """A fault that takes memory: anonymous and touched, so that the kernel counts all of it. Ending it frees the
    memory.
    """

    held_mib: int = field(default=0, init=False)
    _blocks: list[mmap.mmap] = field(default_factory=list, init=False)

    def take(self, mib: int) -> None:
        """Hold ``mib`` MiB more.

        Raises:
            SystemExit: the system refuses it; with one sentence.
        """
        try:
            block = mmap.mmap(-1, mib << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except (OSError, OverflowError) as error:
            raise SystemExit(
                f"carla-lite: fault {self}: the system refuses {mib} MiB more ({error}); ask for fewer."
            ) from None
        block[:: mmap.PAGESIZE] = b"\x01" * (len(block) // mmap.PAGESIZE)
        self._blocks.append(block)
        self.held_mib += mib

    def end(self) -> None:
        """Free all of it."""
        for block in self._blocks:
            block.close()
        self._blocks.clear()
        self.held_mib = 0


@dataclass(eq=False, kw_only=True)
class Hold(Memory):
    """Takes RAM at once, and keeps it."""

    kind: ClassVar[str] = "hold"
    early: ClassVar[bool] = True

    mib: int = key(whole(1), "a whole number of MiB from 1")

    def begin(self) -> None:
        """Take the memory."""
        self.take(self.mib)


@dataclass(eq=False, kw_only=True)
class Grow(Memory):
    """Takes RAM gradually."""

    kind: ClassVar[str] = "grow"

    mib_per_min: float = key(above(0.0), "a number above 0")
    _begun_s: float = field(default=0.0, init=False)

    def begin(self) -> None:
        """Begin to grow now."""
        self._begun_s = time.monotonic()

    def turn(self) -> None:
        """Take what is due since the last turn."""
        due_mib = int((time.monotonic() - self._begun_s) / 60.0 * self.mib_per_min)
        if due_mib > self.held_mib:
            self.take(due_mib - self.held_mib)


def by_kind(faults: Iterable[type[Fault]]) -> dict[str, type[Fault]]:
    """Return the faults by kind.

    Raises:
        ValueError: two have the same kind.
    """
    found: dict[str, type[Fault]] = {}
    for each in faults:
        if (other := found.setdefault(each.kind, each)) is not each:
            raise ValueError(f"{each.__name__} and {other.__name__} are both of the kind {each.kind}: rename one.")
    return found


KINDS = by_kind((Crash, Exit, SlowStart, Log, Hang, IgnoreSigterm, DeadRpc, Drop, Black, Hold, Grow))
