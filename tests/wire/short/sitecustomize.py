"""Loaded by every Python that has this folder on its path: a learner's updates get a limit of addresses (RLIMIT_AS).

From outside nobody could set it at the very moment at which an update begins. What runs out is real memory in the real
allocators; between updates there is no limit.
"""

import os
import resource
import sys
from pathlib import Path
from typing import Any

ROOM, HOW_MANY = "SHORT_ROOM_MIB", "SHORT_UPDATES"
"""Variables: what an update may take beside what the learner keeps; how many updates, from the rehearsed one on."""


def shorten(room_mib: float, how_many: int) -> None:
    """Have a learner's first updates fail where they take more than so much."""
    from agent.memory import heap
    from agent.td3.td3 import TD3

    whole, done = TD3.update, 0

    def update(*arguments: Any) -> Any:
        nonlocal done
        mapped = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * os.sysconf("SC_PAGE_SIZE")
        aside = sum(map(len, heap._aside))  # given up at the first shortage, for what fails then to fit
        if done < how_many:
            limit(round(mapped - aside + room_mib * 2**20))
        try:
            return whole(*arguments)
        finally:
            limit(resource.RLIM_INFINITY)
            done += 1

    TD3.update = update  # type: ignore[assignment, method-assign]


def limit(addresses: int) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (addresses, resource.RLIM_INFINITY))


if ROOM in os.environ and sys.orig_argv[1:4] == ["-m", "agent", "train"]:
    shorten(float(os.environ[ROOM]), int(os.environ[HOW_MANY]))
