"""Errors that end a wait for a node's answer."""

from __future__ import annotations


class LostError(Exception):
    """The actor is gone, with or without its node; Ray starts another."""


class GaveUpError(Exception):
    """The caller no longer waits for the answer."""
