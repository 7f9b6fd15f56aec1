"""A program that takes GPU memory through libcuda, as torch would: a context, then allocations; by its path.

``python grow.py [--wait S] [--pause S] [--patience S] [--stay S] MIB …``: waits, makes a context, allocates these one
after the other with pauses, stays, ends with 0. Where one fails for as long as it has patience it says so as torch does
and ends with 71. With ``--insist`` it waits
for a line on standard input once it has its context, and then tries an allocation that fails again, all the time.
"""

from __future__ import annotations

import argparse
import ctypes
import sys
import time

MIB = 2**20


def demand(result: int) -> None:
    if result:
        print("torch.OutOfMemoryError: CUDA out of memory.", file=sys.stderr)
        sys.exit(71)


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("--wait", "--pause", "--patience", "--stay"):
        parser.add_argument(name, type=float, default=0.0)
    parser.add_argument("--insist", action="store_true")
    parser.add_argument("mib", type=float, nargs="*")
    wanted = parser.parse_args()
    time.sleep(wanted.wait)
    cuda = ctypes.CDLL("libcuda.so.1")
    context, address = ctypes.c_void_p(), ctypes.c_uint64()
    demand(cuda.cuInit(0))
    time.sleep(wanted.pause)  # the driver is loaded, and its context not made yet
    demand(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
    print("begins", flush=True)
    if wanted.insist:
        sys.stdin.readline()
    for mib in wanted.mib:
        time.sleep(wanted.pause)
        until = time.monotonic() + wanted.patience
        while result := cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(int(mib * MIB))):
            demand(result * (not wanted.insist and time.monotonic() >= until))
            time.sleep(0.001)
    print("grown", flush=True)
    time.sleep(wanted.stay)


if __name__ == "__main__":
    main()
