"""How a wait for a node's answer ends without one."""

from __future__ import annotations


class LostError(Exception):
    """The actor is gone, with its node or alone; Ray starts another."""


class GaveUpError(Exception):
    """Whoever waited for an answer doesn't any more."""
