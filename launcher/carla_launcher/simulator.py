"""``simulator``: runs one simulator on this machine, for a collector whose learner is on another machine.

Starts, observes and restarts it as a local process until standard input closes, which happens even if the parent
process is killed. Writes its state to ``simulator.json``.
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

from carla_launcher import config, hooks, ports, wiring
from carla_launcher.act.local.runtime import LocalRuntime
from carla_launcher.act.program import ProgramState, SupervisedProcess
from carla_launcher.act.run_spec import RunSpec
from carla_launcher.act.runtime import Child, Role
from carla_launcher.config import LauncherConfig
from carla_launcher.decide.detectors.causes import Cause, Finding
from carla_launcher.decide.detectors.simulator import unrecoverable
from carla_launcher.observe.memory import MemoryReader
from carla_launcher.observe.observation import SimulatorSeen
from carla_launcher.observe.pools import Cards
from carla_launcher.options import RefusedError, RunOptions, RuntimeKind
from carla_launcher.resolve import choosing
from carla_launcher.resolve.machine import spec_of
from carla_launcher.simulators import NAMED, PORTS
from carla_run.exits import Exit
from carla_run.files import write_whole
from carla_run.locks import HeldError, Lock
from carla_run.memory.nvml import Nvml
from carla_run.paths import RunPaths
from carla_run.signals import StopRequests

STDIN = 0
SLOT = "carla-td3-simulator-{}.lock"
"""Lock files in the folder for temporary files, which spread several simulators over the GPUs."""
MAX_SLOTS = 256


def run(folder: Path, asked: RunOptions, say: Callable[[str], None]) -> Exit:
    """Run a simulator until standard input closes, or until a signal asks it to stop.

    Raises:
        ExitError: this machine can't run the simulator.
    """
    if (named := NAMED.get(asked.simulator)) is not None and not named.ours:
        raise RefusedError(f"--simulator {asked.simulator.value}: expected one that this command can start.")
    stop = StopRequests()
    stop.install()
    restart = threading.Event()
    signal.signal(signal.SIGUSR1, lambda *_: restart.set())
    limits, run_ = config.load(asked.launcher_config), RunPaths(folder)
    run_.logs.mkdir(parents=True, exist_ok=True)
    with _slot() as slot:
        cards = asked.gpu or _cards(slot, say)
        memory = MemoryReader(folder, cards, allotted_mib=hooks.memory_limit_mib())
        wanted = asked.model_copy(update={"runtime": RuntimeKind.PROCESS, "gpu": cards})
        options, reason = choosing.choose(wanted, memory.read(), limits.simulator.command is not None)
        port = asked.port or ports.free_ports(random.Random(), PORTS)
        if port is None:
            raise RefusedError(f"No {PORTS} consecutive ports are free on 127.0.0.1.", Exit.NO_SIMULATOR)
        say(f"{options.simulator.value} ({reason}) at port {port}, GPU {cards.simulator}")
        simulator = _Simulator(spec_of(run_, options, port), limits, say)
        try:
            while not stop.count and not _ended(limits.watch.interval_s / 2):
                simulator.look(time.monotonic(), restart)
                write_whole(folder / "simulator.json", json.dumps(simulator.state(memory)), durable=False)
        finally:
            simulator.close()
    return Exit.STOPPED


class _Simulator:
    """The simulator and its restarts."""

    def __init__(self, spec: RunSpec, limits: LauncherConfig, say: Callable[[str], None]) -> None:
        self._spec, self._limits, self._say = spec, limits, say
        self._runtime = LocalRuntime(spec, limits, show=False)
        questions = wiring.questions(spec.address, limits, ours=True)
        self._monitor = wiring.monitor_of(spec, questions)
        spread = random.Random()
        self._program = SupervisedProcess(
            self._runtime,
            Role.SIMULATOR,
            limits.simulator,
            start_limit=spec.simulator.start_limit(limits.simulator),
            draw=lambda: spread.uniform(-1.0, 1.0),
        )
        self._restarts, self._cause = 0, ""

    def look(self, now_s: float, restart: threading.Event) -> None:
        """Start the simulator if it is due, check it, and end it if it has failed or if a restart was asked for."""
        program = self._program

        def probe(now_s: float, child: Child | None) -> tuple[SimulatorSeen, Finding | None]:
            asked = restart.is_set()
            restart.clear()
            seen = self._monitor.look(now_s, child, in_use=True)
            return seen, self._trouble(seen, asked)

        match program.look(now_s, self._spec.simulator.quality(self._limits.simulator), probe):
            case ProgramState.UP:
                self._say(f"it answers and ticks after {now_s - program.started_s:.1f} s")
            case Finding() as finding:
                wait_s, self._cause = program.fail(finding, now_s), finding.sentence
                given_up = program.state is ProgramState.GIVEN_UP
                self._restarts += not given_up
                again = program.no_restart if given_up else f"it is restarted in {wait_s:.1f} s"
                self._say(f"{self._cause}; {again}")

    def _trouble(self, seen: SimulatorSeen, asked: bool) -> Finding | None:
        if refused := unrecoverable(seen.signs):
            return Finding(Cause.MISCONFIGURATION, refused)
        if asked:
            return Finding(Cause.SIMULATOR_HANG, "a restart was requested, since a call to it didn't return")
        if seen.ended is not None:
            return Finding(Cause.SIMULATOR_CRASH, f"it ended ({seen.ended})", exit_code=seen.ended.code)
        if seen.checks_failed >= self._limits.watch.checks_failed:
            return Finding(Cause.SIMULATOR_HANG, f"it no longer answers: {seen.problem}")
        return None

    def state(self, memory: MemoryReader) -> dict[str, object]:
        """Return the content of ``simulator.json``."""
        child, pools = self._program.child, memory.read(self._program.pids()).pools
        return {
            "host": self._spec.address.host,
            "port": self._spec.address.port,
            "pid": None if child is None else child.pid,
            "state": {ProgramState.STARTING: "starting", ProgramState.UP: "healthy"}.get(self._program.state, "down"),
            "restarts": self._restarts,
            "cause": self._cause,
            "memory_mib": {pool.name: {"total": pool.total.mib, "free": pool.free.mib} for pool in pools},
        }

    def close(self) -> None:
        """End the simulator."""
        for _ in self._program.stop(time.monotonic, lambda: False):
            time.sleep(self._limits.poll_s / 4)
        self._program.forget()
        self._monitor.close()
        self._runtime.close()


def _cards(slot: int, say: Callable[[str], None]) -> Cards:
    """Return the GPU of a slot: the first ones in turn."""
    count = Nvml.count()
    if count is None:
        say("NVIDIA's driver fails, so the number of GPUs is unknown: GPU 0 is taken; name another with --gpu.")
    return Cards(slot % max(1, count or 1))


@contextlib.contextmanager
def _slot() -> Iterator[int]:
    """Lock the first number that no other simulator of this machine has."""
    for number in range(MAX_SLOTS):
        with contextlib.suppress(HeldError, OSError):  # another user's file counts as locked
            lock = Lock(Path(tempfile.gettempdir()) / SLOT.format(number), of_all_users=True)
            break
    else:
        raise RefusedError(
            f"{tempfile.gettempdir()} has no free {SLOT.format('N')} with N below {MAX_SLOTS}: remove those that no "
            "simulator uses, or set TMPDIR to a folder of yours."
        )
    with lock:
        yield number


def _ended(wait_s: float) -> bool:
    """Wait, and return whether standard input has closed."""
    return bool(select.select([STDIN], [], [], wait_s)[0]) and not os.read(STDIN, 1)
