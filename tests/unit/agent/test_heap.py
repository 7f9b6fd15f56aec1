"""The C library's heap: told to keep what it has, it asks the system for nothing twice; told to give back, it does."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.crowd import PATIENCE_S

REPOSITORY = Path(__file__).resolve().parents[3]
glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library is not glibc")

# Sizes below and above the 32 MiB at which glibc always turns to the system by itself; all are freed each time.
FAULTS = """
import json, os, resource, sys
import torch
from carla_td3.memory import heap
from carla_run.memory.processes import held_mib
torch.set_num_threads(1)
taken = heap.keep() if sys.argv[1] == "keep" else None
def allocate():
    blocks = [torch.empty(size * 2**18).fill_(1) for size in (1, 6, 14, 40)]
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(8):  # until each size has found its place
    allocate()
before = faults()
for _ in range(10):
    allocate()
seen = faults() - before
held = held_mib(os.getpid())
heap.give_back()
print(json.dumps({"taken": taken, "faults": seen, "held_mib": held, "after_mib": held_mib(os.getpid())}))
"""


def ended(how: str) -> dict[str, Any]:
    command = [sys.executable, "-c", FAULTS, how]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=REPOSITORY, timeout=PATIENCE_S)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@glibc
def test_a_heap_that_is_kept_asks_for_no_page_twice_and_gives_back_when_asked() -> None:
    kept = ended("keep")
    assert kept["taken"] is True
    assert kept["faults"] < 100
    assert kept["held_mib"] - kept["after_mib"] > 50
    assert ended("default")["faults"] > 10_000, "without the setting each round takes 61 MiB anew, page by page"


LIMITED = """
import mmap, resource, sys
import torch
from carla_td3.memory import heap
from carla_td3.memory.heap import RESERVED_BYTES
def mapped():
    return 4096 * int(open("/proc/self/statm").read().split()[0])
def used_up(size):
    blocks = []
    try:
        while True:
            blocks.append(torch.empty(size * 2**18).fill_(1))
    except RuntimeError:
        return len(blocks)
torch.set_num_threads(1)
heap.keep()
before = mapped()
resource.setrlimit(resource.RLIMIT_AS, (before + 48 * 2**20, resource.RLIM_INFINITY))
found = [used_up(4)]
heap.give_back()
for size in (2, 1):
    found.append(used_up(size) * size)
    mmap.mmap(-1, RESERVED_BYTES - 8 * 2**20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS).close()  # not the heap's
print(*found)
"""


@glibc
def test_a_heap_that_grew_up_to_the_limit_leaves_room_for_what_is_mapped() -> None:
    command = [sys.executable, "-c", LIMITED]
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=REPOSITORY, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    first, *later = map(int, done.stdout.split())
    assert 4 <= first <= 12
    assert all(mib >= 48 + 64 / 2 for mib in later), "tensors have most of it, less what the heap's pieces don't fit"


LESS = """
import json, os
import torch
from carla_td3.memory import heap
from carla_td3.memory.recovery import Recovery
from carla_run.memory.processes import held_mib
torch.set_num_threads(1)
heap.keep()
recovery = Recovery(batch=64, micro_batch=None, release=lambda: None, report=print)
held = []
for micro_batch in (None, 8, None):
    recovery.take(micro_batch)
    held.append(held_mib(os.getpid()))
    recovery.attempt("critic", lambda rows: [torch.empty(2**18).fill_(1) for _ in range(rows)] and None, 64)
    held.append(held_mib(os.getpid()))
print(json.dumps({"held_mib": held, "micro_batch": recovery.micro_batch}))
"""


@glibc
def test_a_smaller_micro_batch_that_is_asked_for_frees_memory_at_once() -> None:
    command = [sys.executable, "-c", LESS]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=REPOSITORY, timeout=PATIENCE_S)
    found = json.loads(done.stdout)
    begun, whole, less, part, _, again = found["held_mib"]
    assert whole - begun > 60
    assert less - begun < 10
    assert part - less < 12
    assert again - begun > 50
    assert found["micro_batch"] == 64
