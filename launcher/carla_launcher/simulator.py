"""``simulator``: one simulator of this machine, for a collector whose learner is on another one.

Started by the runtime of local processes, watched, and started again, for as long as the standard input is open: who
asked for it holds that, and its end, however it comes, ends the simulator. Says how it is in ``simulator.json``.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import select
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from carla_launcher import config, ports, wiring
from carla_launcher.act.local.runtime import LocalRuntime
from carla_launcher.act.run_spec import PORTS, RunSpec
from carla_launcher.act.runtime import Child, Role, Start, StartError
from carla_launcher.config import LauncherConfig
from carla_launcher.decide.detectors.simulator import never_mended
from carla_launcher.decide.restarts import Tries
from carla_launcher.observe.memory import MemoryReader
from carla_launcher.observe.pools import Cards
from carla_launcher.observe.simulator import SimulatorMonitor
from carla_launcher.options import RefusedError, RunOptions, RuntimeKind, SimulatorKind
from carla_launcher.resolve import choosing
from carla_run.exits import Exit
from carla_run.files import write_whole
from carla_run.locks import HeldError, Lock
from carla_run.memory.nvml import Nvml
from carla_run.paths import RunPaths
from carla_run.signals import StopRequests

STDIN = 0
SLOT = "carla-td3-simulator-{}.lock"
"""In this machine's folder of temporary files: several simulators take its cards in turn."""
MOST_SLOTS = 256


def run(folder: Path, asked: RunOptions, say: Callable[[str], None]) -> Exit:
    """Run it until the standard input ends, or a signal asks for that.

    Raises:
        ExitError: this machine has no such simulator.
    """
    stop = StopRequests()
    stop.install()
    restart = threading.Event()
    signal.signal(signal.SIGUSR1, lambda *_: restart.set())
    limits, run_ = config.load(asked.launcher_config), RunPaths(folder)
    run_.logs.mkdir(parents=True, exist_ok=True)
    with _slot() as slot:
        cards = asked.gpu or Cards(slot % max(1, Nvml.count()))
        memory = MemoryReader(folder, cards)
        wanted = asked.model_copy(update={"runtime": RuntimeKind.PROCESS})
        options, reason = choosing.choose(wanted, memory.read(), limits.simulator.command is not None)
        port = asked.port or ports.free_ports(random.Random(), PORTS)
        if port is None:
            raise RefusedError(f"No {PORTS} neighbouring ports are free on 127.0.0.1.", Exit.NO_SIMULATOR)
        say(f"{options.simulator.value} ({reason}) at port {port}, card {cards.simulator}")
        spec = RunSpec(run_, options.model_copy(update={"gpu": cards}), port)
        simulator = _Simulator(spec, limits, say)
        try:
            while not stop.count and not _ended(limits.watch.interval_s / 2):
                simulator.look(time.monotonic(), restart)
                write_whole(folder / "simulator.json", json.dumps(simulator.told(memory)), durable=False)
        finally:
            simulator.close()
    return Exit.STOPPED


class _Simulator:
    """It and its restarts."""

    def __init__(self, spec: RunSpec, limits: LauncherConfig, say: Callable[[str], None]) -> None:
        self._spec, self._limits, self._say = spec, limits, say
        self._runtime = LocalRuntime(spec, limits, show=False)
        questions = wiring.questions(spec.address, limits, ours=True)
        log = spec.run.logs / "simulator.log"
        self._monitor = SimulatorMonitor(spec.address, questions, external=False, log=log)
        lite = spec.options.simulator is SimulatorKind.LITE
        self._quality = None if lite else spec.options.quality or limits.simulator.quality
        self._tries = Tries()
        self._restarts, self._cause = 0, ""
        self._child: Child | None = None

    def look(self, now_s: float, restart: threading.Event) -> None:
        """Start it if it is due; see whether it is well, and end it if it isn't, or if that was asked for."""
        if self._child is None:
            if now_s >= self._tries.due_s:
                self._start(now_s)
            return
        asked = restart.is_set()
        restart.clear()
        seen = self._monitor.look(now_s, self._child, in_use=True)
        _, limit_s = self._limits.simulator.ready_within(True, lite=self._quality is None)
        if refused := never_mended(seen.signs):
            self._give_up(refused)
        elif asked:
            self._failed("it was asked for: a call to it didn't come back", now_s)
        elif seen.ended is not None:
            self._failed(f"it ended ({seen.ended})", now_s)
        elif seen.checks_failed >= self._limits.watch.checks_failed:
            self._failed(f"it doesn't answer any more: {seen.problem}", now_s)
        elif seen.healthy and self._tries.healthy_s is None:
            self._tries.healthy_s = now_s
            self._say(f"it answers and ticks after {now_s - self._tries.started_s:.1f} s")
        elif self._tries.is_late(now_s, limit_s):
            self._failed(f"it isn't ready after {limit_s:g} s: {seen.problem}", now_s)

    def told(self, memory: MemoryReader) -> dict[str, object]:
        """Return what others are told."""
        pids = frozenset[int]() if self._child is None else self._child.pids()
        pools = {pool.name: {"total": pool.total.mib, "free": pool.free.mib} for pool in memory.read(pids).pools}
        address = self._spec.address
        return {
            "host": address.host,
            "port": address.port,
            "pid": None if self._child is None else self._child.pid,
            "state": "down" if self._child is None else "starting" if self._tries.healthy_s is None else "healthy",
            "restarts": self._restarts,
            "cause": self._cause,
            "memory_mib": pools,
        }

    def close(self) -> None:
        """End it."""
        if self._child is not None:
            self._child.terminate()
            until_s = time.monotonic() + self._limits.simulator.stop_grace_s
            while self._child.poll() is None and time.monotonic() < until_s:
                time.sleep(self._limits.poll_s / 4)
            self._child.kill()
        self._monitor.close()
        self._runtime.close()

    def _start(self, now_s: float) -> None:
        self._tries.start(now_s)
        try:
            self._child = self._runtime.start(Start(Role.SIMULATOR, quality=self._quality))
        except StartError as error:
            self._failed(str(error), now_s)

    def _failed(self, cause: str, now_s: float) -> None:
        waits_s = self._tries.fail(now_s, self._limits.simulator.restarts, random.uniform(-1.0, 1.0))
        self._cause, self._restarts = cause, self._restarts + 1
        self._say(f"{cause}; it is started again in {waits_s:.1f} s")
        self._end()

    def _give_up(self, cause: str) -> None:
        """Start it no more, and go on saying why."""
        self._cause, self._tries.due_s = cause, float("inf")
        self._say(cause)
        self._end()

    def _end(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._child = None


@contextlib.contextmanager
def _slot() -> Iterator[int]:
    """Hold the first number that no other of this machine's simulators has."""
    for number in range(MOST_SLOTS):
        with contextlib.suppress(HeldError, OSError):  # what another user laid there is as good as held
            lock = Lock(Path(tempfile.gettempdir()) / SLOT.format(number), of_all_users=True)
            break
    else:
        raise RefusedError(
            f"{tempfile.gettempdir()} has no free {SLOT.format('N')} with N below {MOST_SLOTS}: remove those that no "
            "simulator holds, or let TMPDIR name a folder of yours."
        )
    with lock:
        yield number


def _ended(wait_s: float) -> bool:
    """Return whether the standard input has ended; wait a moment for that."""
    return bool(select.select([STDIN], [], [], wait_s)[0]) and not os.read(STDIN, 1)
