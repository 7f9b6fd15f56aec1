"""Two other accounts of this machine, for tests that run as root: what each of them may, in a process of its own.

The process is forked with everything imported: another account may not be allowed to read this Python's files.
"""

from __future__ import annotations

import json
import os
import traceback
from collections.abc import Callable
from typing import Any

import pytest

ALICE, BOB = 65_533, 65_532
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act for two accounts")


def as_user(user: int, act: Callable[[], Any]) -> Any:
    """Return what an account gets for it, as JSON has it."""
    source, sink = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(source)
            os.setgroups([])
            os.setgid(user)
            os.setuid(user)
            os.write(sink, json.dumps(act()).encode())
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    os.close(sink)
    with os.fdopen(source, "rb") as answer:
        found = answer.read()
    assert os.waitpid(child, 0)[1] == 0, "it failed, as printed above"
    return json.loads(found)
