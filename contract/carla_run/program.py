"""Runs a program in a terminal: handles Ctrl-C, closed pipes, and characters that the terminal's encoding lacks.

A program with work to save handles Ctrl-C by ``carla_run.signals`` instead, once it has any.
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
    """Run a program, including its imports. Printing never fails; Ctrl-C and a missing package end it with a sentence.

    Args:
        name: name of the program, with which its sentences begin.
        extra: extra of this distribution that installs the program's packages.

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
    """Let Ctrl-C end the program with a sentence instead of a traceback.

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
    """Flush the output at the end; a closed pipe, as of `| head`, is no error."""
    try:
        yield
    finally:
        try:
            sys.stdout.flush()
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the interpreter's own flush


def _alike(error: UnicodeError) -> tuple[str, int]:
    """Return ASCII replacements for characters that a stream's encoding lacks."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(map(_in_ascii, error.object[error.start : error.end])), error.end


def _in_ascii(character: str) -> str:
    plain = unicodedata.normalize("NFKD", character).encode("ascii", "ignore").decode()
    return _ALIKE.get(character) or plain or "?"


codecs.register_error(_ERRORS, _alike)
