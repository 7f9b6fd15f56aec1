"""Begins and ends faults: at start-up, after seconds or ticks, or on command; it is the server's ``FaultHook``.

Owns which faults are waiting and which are active. What a fault does is in ``kinds``.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from carla_lite import compiled
from carla_lite.actors.sensor import Message, Sensor, TickSnapshot
from carla_lite.faults.fault import Fault, FaultError, Lasting
from carla_lite.faults.kinds import Memory, Sight
from carla_lite.server import Server


@dataclass(eq=False)
class _Waiting:
    """A fault that begins once both limits are reached."""

    fault: Fault
    at_s: float
    at_frame: int


@dataclass(eq=False)
class _Active:
    """A fault that ends once one of its limits is reached."""

    fault: Lasting
    until_s: float
    until_frame: float


class Injector:
    """The faults of one server. Create it before the server, and :meth:`attach` it afterwards."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        self._given = list(faults)
        self._waiting: list[_Waiting] = []
        self._active: list[_Active] = []
        self._server: Server | None = None

    def before_listening(self) -> None:
        """Begin the faults that were given for the time before the port opens, in order; one may end the process."""
        for fault in [fault for fault in self._given if fault.early and not fault.triggered]:
            self._given.remove(fault)
            self._begin(fault)

    def attach(self, server: Server) -> None:
        """Begin the other faults, or schedule them."""
        self._server = server
        server.attach(self)
        for fault in self._given:
            self.add(fault)
        self.turn()

    def add(self, fault: Fault) -> None:
        """Schedule a fault; without a time it begins at the next turn.

        Raises:
            FaultError: it comes too late.
        """
        if fault.only_at_start:
            raise FaultError(f"fault {fault.kind} can only be at the start, expected it on the command line")
        at_s = time.monotonic() + (fault.after_s or 0.0)
        self._waiting.append(_Waiting(fault, at_s, self._frame + (fault.after_ticks or 0)))

    def clear(self) -> None:
        """End active faults, which frees their memory and answers deferred calls; forget waiting ones."""
        self._waiting.clear()
        for active in list(self._active):
            self._end(active)

    def status(self) -> str:
        """Return the server's state as ``key=value`` with blanks between: frame, MiB held, active and waiting faults,
        how often clients called something unsupported, whether code is compiled and the server is strict.
        """
        held_mib = sum(active.fault.held_mib for active in self._active if isinstance(active.fault, Memory))
        at_work = ";".join(str(active.fault) for active in self._active)
        waiting = ";".join(str(waiting.fault) for waiting in self._waiting)
        calls = self._server.unsupported if self._server is not None else {}
        unsupported = ";".join(f"{name}:{count}" for name, count in sorted(calls.items()))
        code = "yes" if compiled.running.compiled else "no"
        strict = "yes" if self._server is not None and self._server.strict else "no"
        faults = f"held_mib={held_mib} active={at_work} waiting={waiting}"
        return f"frame={self._frame} {faults} unsupported={unsupported} compiled={code} strict={strict}"

    @property
    def halts(self) -> bool:
        """Whether the world is stopped, also in asynchronous mode."""
        return any(active.fault.halts for active in self._active)

    def answers(self, method: str) -> bool:
        """Return whether this method is answered now, given the active faults."""
        return not any(active.fault.defers(method) for active in self._active)

    def seen(self, sensor: Sensor, snapshot: TickSnapshot) -> Iterable[Message]:
        """Return a sensor's messages as the active faults change them."""
        messages: Iterable[Message] = sensor.messages(snapshot)
        for active in self._active:
            messages = active.fault.sees(sensor, messages)
        return messages

    def turn(self) -> None:
        """End faults that are over, begin those that are due, continue the others."""
        now_s, frame = time.monotonic(), self._frame
        for active in [one for one in self._active if now_s >= one.until_s or frame >= one.until_frame]:
            self._end(active)
        for waiting in [one for one in self._waiting if now_s >= one.at_s and frame >= one.at_frame]:
            self._waiting.remove(waiting)
            self._begin(waiting.fault)
        for active in self._active:
            active.fault.turn()

    @property
    def _frame(self) -> int:
        return self._server.frame if self._server is not None else 0

    def _begin(self, fault: Fault) -> None:
        print(f"carla-lite: fault {fault}", flush=True)
        fault.begin()
        if isinstance(fault, Lasting):
            for_s = math.inf if fault.for_s is None else fault.for_s
            ticks = fault.for_ticks if isinstance(fault, Sight) else None
            until_frame = math.inf if ticks is None else self._frame + ticks
            self._active.append(_Active(fault, time.monotonic() + for_s, until_frame))

    def _end(self, active: _Active) -> None:
        self._active.remove(active)
        active.fault.end()
        if self._server is not None:
            self._server.resume()
        print(f"carla-lite: fault {active.fault} ended", flush=True)
