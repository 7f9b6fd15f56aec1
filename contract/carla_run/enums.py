"""The base of enums whose values are words in files."""

from __future__ import annotations

from enum import Enum


class StrEnum(str, Enum):
    """``enum.StrEnum`` for Python 3.10: a member equals its value, and is printed and written as it."""

    def __str__(self) -> str:
        return str(self.value)
