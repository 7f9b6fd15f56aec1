"""How a collector ended."""

from __future__ import annotations

from dataclasses import dataclass

from contract.events import CollectorEnd


@dataclass(frozen=True)
class Ended:
    """How a collector ended: for a person, and the fields of ``CollectorRestarted``."""

    cause: str
    end: CollectorEnd
    exit_code: int | None = None
    signal: int | None = None
