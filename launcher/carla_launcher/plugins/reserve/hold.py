"""The holder process as its parent sees it: opened, ordered to hold an amount, closed."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys

from carla_launcher.plugins.reserve import holder
from carla_launcher.plugins.reserve.memory import UnreadableError


class HoldError(Exception):
    """The memory can't be held, now; the message says why, without its full stop."""


class Hold:
    """One holder process; closed, it is gone with all its memory.

    Attributes:
        mib: of blocks that it holds, its CUDA context not counted.
    """

    def __init__(self, gpu: int | None) -> None:
        """``gpu``: its index as ``nvidia-smi`` counts; None for RAM. Takes nothing yet."""
        self.mib = 0
        environment = {**os.environ, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}  # as nvidia-smi counts, and all of them
        environment.pop("CUDA_VISIBLE_DEVICES", None)
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", holder.__file__, "ram" if gpu is None else str(gpu)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
            start_new_session=True,  # Ctrl-C is not for it
        )

    @property
    def pid(self) -> int:
        """Return its process id."""
        return self._process.pid

    def open(self) -> None:
        """Have it make its CUDA context (nothing for RAM).

        Raises:
            HoldError: no memory for the context.
            UnreadableError: no CUDA driver, no such GPU.
        """
        self._order("open")

    def hold(self, mib: int) -> None:
        """Have it hold this much in blocks.

        Raises:
            HoldError: there isn't as much; what could be had is held. Or the holder is gone.
            UnreadableError: the driver fails.
        """
        self._order(f"hold {mib}")

    def close(self) -> None:
        """End it; everything it held is free when this returns."""
        self.mib = 0
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with contextlib.suppress(OSError):  # an order that it never read
                pipe.close()

    def _order(self, line: str) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            print(line, file=self._process.stdin, flush=True)
            word, _, rest = self._process.stdout.readline().strip().partition(" ")
        except OSError:
            word, rest = "", ""
        if word == "held":
            self.mib = int(rest)
        elif word == "short":
            raise HoldError(rest)
        elif word == "broken":
            raise UnreadableError(f"Memory can't be held ({rest}): see what `nvidia-smi` says, or use --pool ram.")
        else:
            self.mib = 0
            raise HoldError("the holder was killed, as the kernel does where RAM runs out")
