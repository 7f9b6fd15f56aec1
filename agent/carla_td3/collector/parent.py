"""Ties a child process to its parent.

Owns the one system call for that. Linux only, like the mapped blocks and the locks.
"""

from __future__ import annotations

import ctypes
import os
import signal

_PR_SET_PDEATHSIG = 1


def die_with_parent(parent_pid: int) -> None:
    """Have the kernel kill this process when the thread that started it ends; exit at once if that has happened.

    It uses SIGKILL: the client library can block every other way to end the process (facts.md section 5).
    """
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:
        os._exit(1)
