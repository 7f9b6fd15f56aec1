"""Two faults at once, and more after them: drawn histories of a real run under the launcher, which loses nothing.

Each history begins with two faults within two seconds. Whatever stands is lifted then, and the run must drive on, under
a next launcher where a fault ended the last one. A history can be shrunk. ``make soak`` runs this too.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections import Counter
from pathlib import Path

import psutil
import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from carla_run.exits import Exit
from tests.crowd import PATIENCE_S
from tests.disks import fill, small_disk
from tests.soak.witness import Witness
from tests.wire.launched import ENDLESS, Launched, first_time, gone, own_limits, processes_of
from tests.wire.staged import CARLA, QUICK, card_of
from tests.wire.staged import settings as agent_settings

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(shutil.which("cc") is None or os.geteuid() != 0, reason="needs a C compiler, and root to mount"),
]

DISK_MIB, LEFT_KIB = 1200, 64
CARD_MIB, CARLA_MIB = 5745, 1500
UNKNOWN_ERROR = 999
GRACE_S = 30.0
ENDS = (Exit.STOPPED, Exit.BAD_CONFIG, Exit.NO_SIMULATOR, Exit.BUDGET_SPENT, Exit.OUT_OF_MEMORY)
"""With these a launcher may end while faults stand."""
AGENT = agent_settings(
    simulator__timeout_s=3.0,
    collector__hang_margin_s=0.5,
    replay__capacity=20_000,
    training__checkpoint_every_steps=100,
)
ROLES = {
    "agent": ("agent", "carla_td3"),
    "collector": ("agent", "carla_td3.collector"),
    "simulator": ("simulator", "carla_lite"),
}
"""Role in ``launcher.json`` and module of each victim that the launcher starts."""
VICTIMS = st.sampled_from(["launcher", *ROLES])
FAULTS = st.one_of(
    st.tuples(st.sampled_from(["kill", "stop", "hang"]), VICTIMS),
    st.tuples(st.sampled_from(["full disk", "foreign memory", "NVML fails", "TERM to all", "TERM twice, then KILL"])),
)
injected: Counter[str] = Counter()
"""Faults of all histories, by name."""


class TwoFaults(RuleBasedStateMachine):
    """One run, the card and the disk below it, and a foreign process beside it."""

    def __init__(self) -> None:
        super().__init__()
        self._stack = contextlib.ExitStack()
        folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory()))
        disk = self._stack.enter_context(small_disk(folder, DISK_MIB))
        self.card = self._stack.enter_context(contextlib.contextmanager(card_of)(folder, CARD_MIB))
        self.foreign = subprocess.Popen(["sleep", "3600"])
        self.disk, self.faults = disk, 0
        self.filler: Path | None = None
        self.stopped: list[psutil.Process] = []
        self.run = Launched(disk)
        self.witness = Witness(self.run.run / "replay")

    @initialize(slow_s=st.sampled_from([0, 8]), first=FAULTS, second=FAULTS, gap_s=st.sampled_from([0.0, 0.3, 2.0]))
    def begin(self, slow_s: int, first: tuple[str, ...], second: tuple[str, ...], gap_s: float) -> None:
        """Two faults, one soon after the other, in a run whose simulator may take its time to come back."""
        limits = {**QUICK, "simulator.command": CARLA, "sizes.vram_mib.Low": CARLA_MIB}
        options = ("--simulator", "carla", "--device", "cpu", *own_limits(self.disk, limits))
        slow = {"LITE_FAULTS": f"slow-start:by_s={slow_s}"} if slow_s else {}
        self.run = Launched(self.disk, environment={**self.card.environment, **slow})
        self.run.up(*first_time(self.disk, ENDLESS), *options, *AGENT)
        self.run.until_training()
        self.inject(first)
        time.sleep(gap_s)
        self.inject(second)

    @rule(fault=FAULTS)
    def one_more(self, fault: tuple[str, ...]) -> None:
        """A fault on top of what stands."""
        self.inject(fault)

    @rule()
    def settle(self) -> None:
        """What stands is lifted: the run drives on, and nothing that was finished is lost or doubled."""
        self.lift()
        before, deadline = self.witness.look(), time.monotonic() + 2 * PATIENCE_S
        while self.witness.steps <= before + 20:
            if self.run.process.poll() is not None:
                self.next_launcher()
            assert time.monotonic() < deadline, f"it doesn't drive on: {self.run.beat}\n{self.run.events()[-20:]}"
            time.sleep(0.1)
        assert self.witness.problems() == []
        assert self.foreign.poll() is None, "the foreign process was ended"
        assert psutil.Process(self.foreign.pid).status() != psutil.STATUS_STOPPED

    def teardown(self) -> None:
        """End the run in order; nothing of it is left."""
        try:
            if self.faults:
                self.settle()
                ours = processes_of(self.run)
                self.run.stop()
                gone(ours)
                assert not processes_of(self.run)
                assert self.faults >= 2, "a history without its faults"
        finally:
            self.lift()
            self.run.end()
            self.foreign.kill()
            self.foreign.wait()
            self._stack.close()

    def inject(self, fault: tuple[str, ...]) -> None:
        """Let a fault happen, and see that it did."""
        name, *victim = fault
        injected[name] += 1
        self.faults += 1
        self.witness.look()
        if name in ("kill", "stop", "hang"):
            for process in self.processes(victim[0]):
                self.strike(name, process)
        elif name == "full disk" and self.filler is None:
            self.filler = filler = fill(self.disk)
            os.truncate(filler, filler.stat().st_size - 1024 * LEFT_KIB)
            assert psutil.disk_usage(str(self.disk)).free <= 2 * 1024 * LEFT_KIB
        elif name == "foreign memory":
            self.card.hold(self.foreign.pid, CARD_MIB - CARLA_MIB, name="borrower")
        elif name == "NVML fails":
            self.card.fails = UNKNOWN_ERROR
            self.card.write()
        elif name.startswith("TERM"):
            self.end_as_slurm(twice="twice" in name)

    def strike(self, name: str, process: psutil.Process) -> None:
        """Kill a process, hold it up for a second, or for as long as the faults stand."""
        with contextlib.suppress(psutil.NoSuchProcess):
            if name == "kill" and process.pid == self.run.process.pid:
                self.run.process.kill()
                self.run.process.wait()
            elif name == "kill":
                process.kill()
                gone([process])
            else:
                process.suspend()
                self.stopped.append(process)
            if name == "stop":
                time.sleep(1.0)
                process.resume()

    def end_as_slurm(self, twice: bool) -> None:
        """Send TERM to all processes of the run at one instant; if ``twice``, again after 1 s, and KILL after 30 s."""
        ours = self.processes("launcher")
        ours += [child for process in ours for child in process.children(recursive=True)]
        for delay_s in (0.0, 1.0) if twice else (0.0,):
            time.sleep(delay_s)
            signalled(ours, signal.SIGTERM)
        if twice:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.run.process.wait(GRACE_S)
            signalled(ours, signal.SIGKILL)

    def processes(self, victim: str) -> list[psutil.Process]:
        """Return the victim's process; none if it isn't there now."""
        if victim == "launcher":
            return [psutil.Process(self.run.process.pid)] if self.run.process.poll() is None else []
        role, module = ROLES[victim]
        with contextlib.suppress(psutil.Error):
            process = psutil.Process((self.run.state.get(role) or {}).get("pid") or 0)
            return [each for each in (process, *process.children()) if runs(each, module)][:1]
        return []

    def lift(self) -> None:
        """End what still stands of the faults."""
        if self.filler is not None:
            self.filler.unlink()
            self.filler = None
        for process in self.stopped:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.resume()
        self.stopped.clear()
        self.card.fails = 0
        self.card.release(self.foreign.pid)

    def next_launcher(self) -> None:
        """Start the run's next launcher, once its last one and all that it left have ended."""
        output, code = self.run.output(), self.run.process.returncode
        assert code in (*ENDS, -signal.SIGKILL, -signal.SIGTERM), output
        assert "Traceback" not in output
        gone(processes_of(self.run))
        assert self.witness.problems() == []
        self.run.up("--resume")
        self.run.until(lambda: self.run.state.get("pid") == self.run.process.pid)


def runs(process: psutil.Process, module: str) -> bool:
    """Return whether a process is ``python -m module``."""
    with contextlib.suppress(psutil.Error):
        words = process.cmdline()
        return "-m" in words and words[words.index("-m") + 1] == module
    return False


def signalled(processes: list[psutil.Process], number: signal.Signals) -> None:
    """Send a signal to each process that is there."""
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(number)


def test_no_history_of_faults_loses_anything() -> None:
    few = settings(
        max_examples=int(os.environ.get("TWO_FAULTS", "3")),
        stateful_step_count=4,
        deadline=None,
        derandomize=True,
        database=None,
        phases=(Phase.generate, Phase.shrink),
    )
    injected.clear()
    run_state_machine_as_test(TwoFaults, settings=few)
    assert sum(injected.values()) >= 2, injected
