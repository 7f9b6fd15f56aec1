"""How a collector ended."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from carla_run.events import CollectorEnd


@dataclass(frozen=True)
class Ended:
    """How a collector ended: for a person, and the fields of ``CollectorRestarted``."""

    cause: str
    end: CollectorEnd
    exit_code: int | None = None
    signal: int | None = None

    def said(self) -> bytes:
        """Return it as it is sent."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def heard(cls, said: bytes) -> Ended:
        """Return what was sent."""
        fields: dict[str, Any] = json.loads(said)
        return cls(**{**fields, "end": CollectorEnd(fields["end"])})
