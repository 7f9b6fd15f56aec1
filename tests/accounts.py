"""Two other accounts of this machine, for tests that run as root: what each of them may, in a process of its own.

The process is forked with everything imported: another account may not be allowed to read this Python's files.
"""

from __future__ import annotations

import contextlib
import json
import os
import traceback
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import pytest

from carla_run.exits import ExitError

ALICE, BOB = 65_533, 65_532
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act for two accounts")


def as_user(user: int, act: Callable[[], Any]) -> Any:
    """Return what an account gets for it, as JSON has it."""
    with meanwhile(user, act) as (_, found):
        return found


@contextlib.contextmanager
def meanwhile(user: int, act: Callable[[], Any]) -> Iterator[tuple[int, Any]]:
    """Have an account do something, and keep what it got by it until the block ends; give its process and the answer.

    What JSON hasn't is given as None.
    """
    (source, sink), (lifeline, end) = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        _live(user, act, sink, lifeline, (source, end))
    for theirs in (sink, lifeline):
        os.close(theirs)
    try:
        with os.fdopen(source, "rb") as answer:
            line = answer.readline()
        assert line, "it failed, as printed above"
        yield child, json.loads(line)
    finally:
        os.close(end)
        assert os.waitpid(child, 0)[1] == 0


def refusal(act: Callable[[], object]) -> str:
    """Return what it says that it refuses, or with which error it fails."""
    try:
        act()
    except ExitError as error:
        return str(error)
    except OSError as error:
        return type(error).__name__
    return ""


def _live(user: int, act: Callable[[], Any], sink: int, lifeline: int, others: tuple[int, ...]) -> NoReturn:
    code = 1
    try:
        for end in others:
            os.close(end)
        os.setgroups([])
        os.setgid(user)
        os.setuid(user)
        kept = act()
        os.write(sink, (json.dumps(kept, default=lambda _: None) + "\n").encode())
        os.close(sink)
        os.read(lifeline, 1)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)
