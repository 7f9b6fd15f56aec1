"""What a fault is: when it begins, how long it lasts, what it may do, and how its values are read from text.

Owns these types. The faults themselves are in ``kinds``, the text around them is read by ``spec``, and ``injector``
begins and ends them.
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
    """A fault that can't be: one sentence for people."""


def key(read: Callable[[str], Any], expected: str, default: Any = dataclasses.MISSING) -> Any:
    """Return a field of a fault that ``KEY=VALUE`` sets; ``read`` raises ``ValueError`` for what isn't ``expected``."""
    metadata = {"read": read, "expected": expected}
    return dataclasses.field(default=default, metadata=metadata)


def above(low: float, up_to: float = math.inf) -> Callable[[str], float]:
    """Return a reader of finite numbers above ``low``, and not above ``up_to``."""

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
        after_s: seconds from when it was asked for (at start-up: from when the port opened) to its beginning.
        after_ticks: ticks from then. Neither: it begins at once.
        early: without either it begins before the port opens, where it was asked for at start-up.
        only_at_start: it can't come later.
    """

    kind: ClassVar[str]
    early: ClassVar[bool] = False
    only_at_start: ClassVar[bool] = False

    after_s: float | None = key(above(0.0), "a number of seconds above 0", None)
    after_ticks: int | None = key(whole(1), "a whole number of ticks from 1", None)

    @property
    def triggered(self) -> bool:
        """Whether it waits for something."""
        return self.after_s is not None or self.after_ticks is not None

    def __str__(self) -> str:
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self) if field.metadata}
        given = [f"{name}={value}" for name, value in values.items() if value is not None]
        return ":".join([self.kind, *([",".join(given)] if given else [])])

    def begin(self) -> None:
        """Do it, or begin with it."""


@dataclass(eq=False, kw_only=True)
class Lasting(Fault):
    """A fault that goes on until it is cleared.

    Attributes:
        for_s: or until so many seconds have passed.
        halts: the world stands still; only in asynchronous mode does that need saying.
    """

    halts: ClassVar[bool] = False

    for_s: float | None = key(above(0.0), "a number of seconds above 0", None)

    def end(self) -> None:
        """Undo it."""

    def turn(self) -> None:
        """Go on with it; called between any two ticks, and at least every 50 ms."""

    def defers(self, method: str) -> bool:  # noqa: ARG002 (for those that do)
        """Return whether a call of this method is deferred."""
        return False

    def sees(self, sensor: Sensor, messages: Iterable[Message]) -> Iterable[Message]:  # noqa: ARG002 (the same)
        """Return what leaves a sensor in place of ``messages``."""
        return messages
