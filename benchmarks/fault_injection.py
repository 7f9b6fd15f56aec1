"""Faults to inject into a run: which ones, their victims, and their seeded order and times.

Knows a run by its directory and the simulator by its control port; ``night`` observes the effect of a fault.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from carla_lite.testing import tell
from carla_run.heartbeat import read_heartbeat
from carla_run.paths import RunPaths
from carla_run.readers import inner, read_object

FOREIGN_S = 30.0
LEAK_MIB_PER_MIN = 1_200
_FOREIGN_PROCESS = """
import sys, time
taken = bytearray(int(sys.argv[1]) << 20)
taken[::4096] = b"1" * len(taken[::4096])
time.sleep(float(sys.argv[2]))
"""


class NotRunningError(Exception):
    """The victim isn't running now."""


@dataclass(frozen=True)
class Scene:
    """Where faults are injected.

    Attributes:
        run: the run directory.
        control_port: of carla-lite.
        launcher: returns the launcher's process id.
        foreign_mib: returns the MiB that a foreign process must take for the RAM pool to fall below its reserve.
    """

    run: RunPaths
    control_port: int
    launcher: Callable[[], int]
    foreign_mib: Callable[[], int]

    def pid(self, victim: str) -> int:
        """Return the process id of ``simulator``, ``learner``, ``collector`` or ``launcher``.

        Raises:
            NotRunningError: there is none now.
        """
        if victim == "launcher":
            return self.launcher()
        if victim == "collector":
            beat = read_heartbeat(self.run.heartbeat)
            pid = beat.collector.pid if beat else None
        else:
            pid = inner(read_object(self.run.launcher_state), "agent" if victim == "learner" else victim).get("pid")
        if not pid or not Path(f"/proc/{pid}").exists():
            raise NotRunningError(victim)
        return int(pid)


Fault = Callable[[Scene], str]
"""Injects a fault, and returns what it did in a few words; raises NotRunningError."""


def _signals(victim: str, number: signal.Signals) -> Fault:
    def inject(scene: Scene) -> str:
        pid = scene.pid(victim)
        os.kill(pid, number)
        return f"{number.name} to the {victim}, process {pid}"

    return inject


def _of_simulator(fault: str) -> Fault:
    def inject(scene: Scene) -> str:
        scene.pid("simulator")
        try:
            tell(scene.control_port, f"fault {fault}")
        except OSError as error:
            raise NotRunningError("simulator") from error
        return f"fault {fault} of the simulator"

    return inject


def _foreign_process(scene: Scene) -> str:
    mib = scene.foreign_mib()
    # The launcher recognises it among the machine's programs by its name.
    words = ["foreign", "-I", "-S", "-c", _FOREIGN_PROCESS, str(mib), str(FOREIGN_S)]
    process = subprocess.Popen(words, executable=os.path.realpath(sys.executable))
    return f"process {process.pid} takes {mib} MiB for {FOREIGN_S:g} s"


FAULTS: dict[str, Fault] = {
    "simulator killed": _signals("simulator", signal.SIGKILL),
    "simulator segfault": _signals("simulator", signal.SIGSEGV),
    "simulator hangs": _of_simulator("hang"),
    "simulator out of VRAM": _of_simulator("vulkan-oom"),
    "simulator leaks": _of_simulator(f"grow:mib_per_min={LEAK_MIB_PER_MIN}"),
    "collector killed": _signals("collector", signal.SIGKILL),
    "collector hangs": _signals("collector", signal.SIGSTOP),
    "learner killed": _signals("learner", signal.SIGKILL),
    "learner hangs": _signals("learner", signal.SIGSTOP),
    "launcher killed": _signals("launcher", signal.SIGKILL),
    "foreign process takes RAM": _foreign_process,
}


def instants(seed: int, shortest_s: float, longest_s: float) -> Iterator[tuple[float, str]]:
    """Yield waiting times and faults for ever; every kind once, in a random order, then again."""
    draw = random.Random(seed)
    while True:
        for kind in draw.sample(sorted(FAULTS), len(FAULTS)):
            yield round(draw.uniform(shortest_s, longest_s), 1), kind
