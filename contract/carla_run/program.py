"""How a program meets its terminal: characters that it lacks, a reader that has gone, and Ctrl-C at any moment.

Owns the look-alikes and the word for an interruption. A program whose work is to be kept takes Ctrl-C by
``carla_run.signals`` instead, from where it has any.
"""

from __future__ import annotations

import codecs
import contextlib
import io
import os
import sys
import unicodedata
from collections.abc import Iterator

from carla_run.exits import Exit

_ERRORS = "look-alike"
_PAIRS = ("−-", "–-", "—-", "·.", "×x", "±+-", "≤<=", "≥>=", "→->", "←<-", "↑^", "█#", "▓=", "▒-", "░.", "▚%")
_ALIKE = {pair[0]: pair[1:] for pair in _PAIRS}


@contextlib.contextmanager
def program(name: str, extra: str) -> Iterator[None]:
    """Run a whole program, its imports included: nothing that it prints fails, Ctrl-C and a missing package are words.

    Args:
        name: what its sentences begin with.
        extra: of this distribution, that brings what a base install leaves out.

    Raises:
        SystemExit: 130, after Ctrl-C; 65, where a package is missing.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=_ERRORS)
    try:
        with _flushed(), interruptible(name):
            yield
    except ModuleNotFoundError as error:
        if (error.name or "carla_").startswith("carla_"):
            raise
        print(f"{name}: {error.name} isn't installed: pip install 'carla-td3-lowmem[{extra}]'.", file=sys.stderr)
        raise SystemExit(int(Exit.BAD_CONFIG)) from None


@contextlib.contextmanager
def interruptible(name: str) -> Iterator[None]:
    """Let Ctrl-C end the program with a word.

    Raises:
        SystemExit: 130, after Ctrl-C.
    """
    try:
        yield
    except KeyboardInterrupt:
        print(f"{name}: interrupted.", file=sys.stderr)
        raise SystemExit(int(Exit.INTERRUPTED)) from None


@contextlib.contextmanager
def _flushed() -> Iterator[None]:
    """Write out what is left at the end; a reader that has gone, as `| head`, is no error."""
    try:
        yield
    finally:
        try:
            sys.stdout.flush()
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the interpreter's own flush


def _alike(error: UnicodeError) -> tuple[str, int]:
    """Return what ASCII has for characters that a stream's encoding lacks."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(map(_in_ascii, error.object[error.start : error.end])), error.end


def _in_ascii(character: str) -> str:
    plain = unicodedata.normalize("NFKD", character).encode("ascii", "ignore").decode()
    return _ALIKE.get(character) or plain or "?"


codecs.register_error(_ERRORS, _alike)
