"""The types of faults: when one begins, how long it lasts, what it may do, and how its values are read from text.

The faults themselves are in ``kinds``; ``spec`` reads the text, and ``injector`` begins and ends them.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:  # the command's help is made of faults, without all that a sensor imports
    from carla_lite.actors.sensor import Message, Sensor


class FaultError(Exception):
    """A fault that isn't possible; the message is one sentence."""


def key(read: Callable[[str], Any], expected: str, default: Any = dataclasses.MISSING) -> Any:
    """Return a field of a fault that ``KEY=VALUE`` sets; ``read`` raises ``ValueError`` unless it is ``expected``."""
    metadata = {"read": read, "expected": expected}
    return dataclasses.field(default=default, metadata=metadata)


def above(low: float, up_to: float = math.inf) -> Callable[[str], float]:
    """Return a reader of finite numbers above ``low`` and at most ``up_to``."""

    def read(text: str) -> float:
        value = float(text)
        if not (low < value <= up_to and math.isfinite(value)):
            raise ValueError(text)
        return value

    return read


def whole(low: int, high: float = math.inf) -> Callable[[str], int]:
    """Return a reader of whole numbers from ``low`` to ``high``."""

    def read(text: str) -> int:
        value = int(text)
        if not low <= value <= high:
            raise ValueError(text)
        return value

    return read


@dataclass(eq=False, kw_only=True)
class Fault:
    """One thing that goes wrong.

    Attributes:
        after_s: seconds from the request (at start-up: from the opening of the port) to its beginning.
        after_ticks: ticks from then. Without either it begins at once.
        early: requested at start-up without either, it begins before the port opens.
        only_at_start: it can't begin later.
    """

    kind: ClassVar[str]
    early: ClassVar[bool] = False
    only_at_start: ClassVar[bool] = False

    after_s: float | None = key(above(0.0), "a number of seconds above 0", None)
    after_ticks: int | None = key(whole(1), "a whole number of ticks from 1", None)

    @property
    def triggered(self) -> bool:
        """Whether it waits for a time or a tick."""
        return self.after_s is not None or self.after_ticks is not None

    def __str__(self) -> str:
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self) if field.metadata}
        given = [f"{name}={value}" for name, value in values.items() if value is not None]
        return ":".join([self.kind, *([",".join(given)] if given else [])])

    def begin(self) -> None:
        """Do it, or start it."""


@dataclass(eq=False, kw_only=True)
class Lasting(Fault):
    """A fault that lasts until it is cleared.

    Attributes:
        for_s: it also ends after this many seconds.
        halts: the world stops; this matters only in asynchronous mode.
    """

    halts: ClassVar[bool] = False

    for_s: float | None = key(above(0.0), "a number of seconds above 0", None)

    def end(self) -> None:
        """Undo it."""

    def turn(self) -> None:
        """Continue it; called between two ticks, and at least every 50 ms."""

    def defers(self, method: str) -> bool:  # noqa: ARG002 (for those that do)
        """Return whether calls of this method are deferred."""
        return False

    def sees(self, sensor: Sensor, messages: Iterable[Message]) -> Iterable[Message]:  # noqa: ARG002 (the same)
        """Return the messages that leave a sensor instead of ``messages``."""
        return messages
