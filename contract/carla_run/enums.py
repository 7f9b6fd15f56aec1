"""The base of enums whose members are words in files."""

from __future__ import annotations

from enum import Enum


class StrEnum(str, Enum):
    """``enum.StrEnum``, which Python 3.10 lacks: a member is, prints and is written as its value."""

    def __str__(self) -> str:
        return str(self.value)
