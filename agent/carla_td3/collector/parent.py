"""A child process that must not outlive its parent.

Owns the one system call for that. Linux only, like the mapped blocks and the locks around it.
"""

from __future__ import annotations

import ctypes
import os
import signal

_PR_SET_PDEATHSIG = 1


def die_with(parent_pid: int) -> None:
    """Have the kernel kill this process when the thread that started it ends; end at once if that has happened.

    SIGKILL, since the client library can hold the process so that nothing else ends it (facts.md section 5).
    """
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:
        os._exit(1)
