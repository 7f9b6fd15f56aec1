"""Loaded by every Python that has this folder on its path: a process that trains leaks, whatever it is at."""

import sys
import threading
import time

MIB_PER_S = 50
"""By the time that the process has computed: how busy the machine is makes no difference."""


def leak() -> None:
    kept: list[bytes] = []
    while True:
        while len(kept) < time.process_time() * MIB_PER_S:
            kept.append(b"\1" * 2**20)
        time.sleep(0.02)


if sys.orig_argv[1:4] == ["-m", "carla_td3", "train"]:
    threading.Thread(target=leak, daemon=True).start()
