"""Detects a failed simulator: how it ended, or that it doesn't answer, and what its log says. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from carla_launcher.config import LauncherConfig
from carla_launcher.decide.detectors import vulkan
from carla_launcher.decide.detectors.causes import Cause, Finding
from carla_launcher.decide.detectors.ends import EndDetector
from carla_launcher.decide.detectors.kills import RecentOomKills
from carla_launcher.observe.observation import Ended, Observation, Sign, SimulatorSeen
from carla_launcher.observe.pools import PROCESS_POOLS, OwnerKind, PoolKind
from carla_run.exits import KILLED, TERMINATED, exit_in_words

MISCONFIGURED = {
    Sign.LAVAPIPE: vulkan.ON_THE_CPU,
    Sign.NO_VULKAN: "the simulator finds no Vulkan driver that it can use, and a restart won't help: " + vulkan.CURE,
    Sign.VULKAN_FAILED: "the simulator's Vulkan driver doesn't start, though the GPU has free memory, and a restart "
    "won't help: restart the machine if its driver was upgraded, or give the container the GPU by the nvidia runtime "
    "with NVIDIA_DRIVER_CAPABILITIES=all",
    Sign.ROOT: "the simulator refuses to run as root, as every Unreal program does: start the launcher as another "
    "user, and don't change the user of the container's image",
    Sign.NO_LIBRARY: "the simulator lacks a shared library ({line}), and a restart won't help: install it",
}
"""Problems that a restart can't solve, with advice, by the sign in the log; the gravest first."""
RAN_OUT = {
    Sign.OUT_OF_VRAM: (Cause.SIMULATOR_OUT_OF_VRAM, "out of video memory"),
    Sign.OUT_OF_RAM: (Cause.SIMULATOR_HOST_OOM, "out of host memory"),
}
EXPLAINED = {**RAN_OUT, Sign.PORT_TAKEN: (Cause.SIMULATOR_CRASH, "its port is in use")}
"""Signs in the log that count however much memory was free."""
CRASHED = {
    Sign.DEVICE_LOST: "a GPU fault",
    Sign.RENDERER_HUNG: "its render thread hung",
    Sign.VULKAN_FAILED: "its Vulkan driver didn't start",
}
CRASHED_SHORT = {PoolKind.VRAM: Cause.SIMULATOR_OUT_OF_VRAM, PoolKind.RAM: Cause.SIMULATOR_HOST_OOM}


class SimulatorDetector:
    """Detects failures of the simulators at one address, one after the other."""

    def __init__(self, config: LauncherConfig, kills: RecentOomKills) -> None:
        self._limits = config.watch
        self._ends = EndDetector(config.memory, kills, OwnerKind.SIMULATOR, CRASHED_SHORT)
        self._failed_before = 0
        self._last_failed = 0
        self._lost_s: float | None = None
        self._ready = False
        self._signs: list[tuple[float, Sign, str]] = []
        self._misconfigured: tuple[Sign, str] | None = None
        self._ever_ready = False

    def forget(self) -> None:
        """Restart all time limits after a gap between looks."""
        self._lost_s = None
        self._ends.forget()
        self._failed_before = self._last_failed

    def look(self, seen: Observation, ticks_go_on: bool) -> tuple[Finding, ...]:
        """Return at most one finding, the one that explains most."""
        simulator = seen.simulator
        if self._ends.look(seen.time_s, seen.memory, simulator):
            self._begin()
        self._read_signs(seen.time_s, simulator)
        found = self._judge(seen.time_s, simulator, ticks_go_on)
        return () if found is None else (found,)

    def blamed(self, finding: Finding) -> Finding:
        """Return a hang with the cause in the log, if there is one."""
        return self._by_signs(finding.sentence, None) if any(map(self._line, RAN_OUT)) else finding

    def _begin(self) -> None:
        self._lost_s = None
        self._ready = False
        self._signs = []
        self._misconfigured = None
        self._failed_before = self._last_failed = 0

    def _read_signs(self, now_s: float, simulator: SimulatorSeen) -> None:
        self._signs += [(now_s, sign, line) for sign, line in simulator.signs]
        if simulator.ended is None:  # after the end its signs stay
            self._signs = [each for each in self._signs if now_s - each[0] <= self._limits.sign_s]
        self._misconfigured = self._misconfigured or self._misconfiguration()

    def _misconfiguration(self) -> tuple[Sign, str] | None:
        """Return a problem that a restart can't solve, with its line; a driver that once started may start again."""
        may_start = self._ever_ready or self._ends.short_of((PoolKind.VRAM,), owned=False) is not None
        known = (sign for sign in MISCONFIGURED if sign is not Sign.VULKAN_FAILED or not may_start)
        return next(((sign, line) for sign in known if (line := self._line(sign))), None)

    def _judge(self, now_s: float, simulator: SimulatorSeen, ticks_go_on: bool) -> Finding | None:
        ended = simulator.ended
        if ended is not None and ended.planned:
            return None
        if self._misconfigured is not None and (simulator.running or ended is not None):
            return _misconfigured(*self._misconfigured, ended)
        if ended is not None:
            return self._end(ended)
        if not simulator.running:
            return None
        self._ready = self._ready or bool(simulator.healthy)
        self._ever_ready = self._ever_ready or self._ready
        return self._lost(now_s, simulator) or self._not_responding(simulator, ticks_go_on)

    def _end(self, ended: Ended) -> Finding:
        words = exit_in_words(ended.code)
        killed_in = self._ends.killed_in()
        if ended.oom_killed or (killed_in and ended.code == KILLED):
            sentence = f"the kernel killed the simulator for memory ({words})"
            return Finding(Cause.SIMULATOR_HOST_OOM, sentence, killed_in, "simulator", exit_code=ended.code)
        when = "" if self._ready else " during its start"
        return self._by_signs(f"the simulator ended by itself{when} ({words})", ended.code)

    def _lost(self, now_s: float, simulator: SimulatorSeen) -> Finding | None:
        if not simulator.connection_lost:
            self._lost_s = None
            return None
        self._lost_s = now_s if self._lost_s is None else self._lost_s
        if now_s - self._lost_s < self._limits.dying_s:
            return None
        return self._by_signs("the simulator closed its connections, and nothing has answered since", None)

    def _not_responding(self, simulator: SimulatorSeen, ticks_go_on: bool) -> Finding | None:
        if simulator.checks_failed < self._last_failed:
            self._failed_before = 0
        self._last_failed = simulator.checks_failed
        failed = simulator.checks_failed - self._failed_before
        if failed < self._limits.checks_failed or ticks_go_on:
            return None
        sentence = f"the simulator runs, but {failed} health checks in a row failed: {simulator.problem}"
        found = Finding(Cause.SIMULATOR_HANG, sentence, owner="simulator", numbers={"checks_failed": failed})
        return self.blamed(found)

    def _by_signs(self, sentence: str, code: int | None) -> Finding:
        """Return a failure with the cause in the log's last lines, else the one that the free memory suggests."""
        explained = next((EXPLAINED[sign] for sign in EXPLAINED if self._line(sign)), None)
        reasons = (reason for sign, reason in CRASHED.items() if self._line(sign))
        cause, reason = explained or (Cause.SIMULATOR_CRASH, next(reasons, ""))
        words = f"{sentence} after {reason}" if reason else sentence
        found = Finding(cause, words, owner="simulator", exit_code=code, numbers=self._numbers())
        return found if explained or code is None else self._by_memory(found, code)

    def _by_memory(self, crash: Finding, code: int) -> Finding:
        """Return a crash, with the pool that was short at its end, if any; for signals see ``AgentDetector``."""
        if self._line(Sign.VULKAN_FAILED) and (short := self._ends.explained(crash, (PoolKind.VRAM,), owned=False)):
            return short
        kinds = (PoolKind.RAM,) if code in (KILLED, TERMINATED) else PROCESS_POOLS
        return self._ends.explained(crash, kinds) or crash

    def _numbers(self) -> dict[str, float | int | str | None]:
        return {"log": self._signs[0][2]} if self._signs else {}

    def _line(self, wanted: Sign) -> str:
        return next((line for _, sign, line in self._signs if sign is wanted), "")


def unrecoverable(signs: Iterable[tuple[Sign, str]]) -> str:
    """Return why no restart can help, by the signs in a log; empty if no sign says so."""
    sure = (each for each in signs if each[0] in MISCONFIGURED and each[0] is not Sign.VULKAN_FAILED)
    return next((_misconfiguration(*each) for each in sure), "")


def _misconfiguration(sign: Sign, line: str) -> str:
    return MISCONFIGURED[sign].replace("{line}", line)


def _misconfigured(sign: Sign, line: str, ended: Ended | None) -> Finding:
    return Finding(
        Cause.MISCONFIGURATION,
        _misconfiguration(sign, line),
        owner="simulator",
        exit_code=None if ended is None else ended.code,
        numbers={"log": line},
    )
