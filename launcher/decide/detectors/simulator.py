"""What is wrong with the simulator: how it ended, or that it doesn't answer, and what its log says about it. Pure."""

from __future__ import annotations

from contract.exits import exit_in_words
from launcher.config import LauncherConfig
from launcher.decide.detectors.causes import Cause, Finding
from launcher.decide.detectors.kills import OomKills
from launcher.observe.observation import Ended, Observation, Sign, SimulatorSeen

KILLED = 128 + 9


class Simulator:
    """Watches one simulator after another."""

    def __init__(self, config: LauncherConfig, kills: OomKills) -> None:
        self._limits, self._kills = config.watch, kills
        self._running = False
        self._pid = 0
        self._failed_before = 0
        self._last_failed = 0
        self._lost_s: float | None = None
        self._ready = False
        self._signs: list[tuple[float, Sign, str]] = []
        self._lavapipe = self._killed_in = ""

    def forget(self) -> None:
        """Start all waiting over: time has passed without a look."""
        self._lost_s = None
        self._failed_before = self._last_failed

    def look(self, seen: Observation, ticks_go_on: bool) -> tuple[Finding, ...]:
        """Return what is wrong; one finding at most, the one that explains most."""
        simulator = seen.simulator
        if simulator.running and (not self._running or simulator.pid != self._pid):
            self._begin()
        self._running, self._pid = simulator.running, simulator.pid
        self._read_signs(seen.time_s, simulator)
        found = self._judge(seen.time_s, simulator, ticks_go_on)
        return () if found is None else (found,)

    def blamed(self, finding: Finding) -> Finding:
        """Return a hang under the cause that the log gives for it, if it gives one."""
        return finding if not self._line(Sign.OUT_OF_VRAM) else self._by_signs(finding.sentence, None)

    def _begin(self) -> None:
        self._lost_s = None
        self._ready = False
        self._signs = []
        self._lavapipe = self._killed_in = ""
        self._failed_before = self._last_failed = 0

    def _read_signs(self, now_s: float, simulator: SimulatorSeen) -> None:
        self._signs += [(now_s, sign, line) for sign, line in simulator.signs]
        if simulator.ended is None:  # what explains an end explains it for as long as it is looked at
            self._signs = [each for each in self._signs if now_s - each[0] <= self._limits.sign_s]
        self._lavapipe = self._lavapipe or self._line(Sign.LAVAPIPE)

    def _judge(self, now_s: float, simulator: SimulatorSeen, ticks_go_on: bool) -> Finding | None:
        ended = simulator.ended
        if ended is not None and ended.planned:
            return None
        if self._lavapipe and (simulator.running or ended is not None):
            return _misconfigured(self._lavapipe, ended)
        if ended is not None:
            return self._end(ended)
        if not simulator.running:
            return None
        self._ready = self._ready or bool(simulator.healthy)
        return self._lost(now_s, simulator) or self._mute(simulator, ticks_go_on)

    def _end(self, ended: Ended) -> Finding:
        words = exit_in_words(ended.code)
        self._killed_in = self._killed_in or self._kills.lately("simulator")
        if ended.oom_killed or (self._killed_in and ended.code == KILLED):
            sentence = f"the kernel killed the simulator for memory ({words})"
            return Finding(Cause.SIMULATOR_HOST_OOM, sentence, self._killed_in, "simulator", exit_code=ended.code)
        when = "" if self._ready else " during its start"
        return self._by_signs(f"the simulator ended by itself{when} ({words})", ended.code)

    def _lost(self, now_s: float, simulator: SimulatorSeen) -> Finding | None:
        if not simulator.connection_lost:
            self._lost_s = None
            return None
        self._lost_s = now_s if self._lost_s is None else self._lost_s
        if now_s - self._lost_s < self._limits.dying_s:
            return None
        return self._by_signs("the simulator ended its connections, and nothing has answered there since", None)

    def _mute(self, simulator: SimulatorSeen, ticks_go_on: bool) -> Finding | None:
        if simulator.checks_failed < self._last_failed:
            self._failed_before = 0
        self._last_failed = simulator.checks_failed
        failed = simulator.checks_failed - self._failed_before
        if failed < self._limits.checks_failed or ticks_go_on:
            return None
        sentence = f"the simulator runs, but {failed} questions in a row failed: {simulator.problem}"
        found = Finding(Cause.SIMULATOR_HANG, sentence, owner="simulator", numbers={"checks_failed": failed})
        return self.blamed(found)

    def _by_signs(self, sentence: str, code: int | None) -> Finding:
        """Return a failure with what the log's last lines make of it."""
        cause, reason = Cause.SIMULATOR_CRASH, ""
        if self._line(Sign.OUT_OF_VRAM):
            cause, reason = Cause.SIMULATOR_OUT_OF_VRAM, "out of video memory"
        elif self._line(Sign.DEVICE_LOST):
            reason = "a GPU fault"
        elif self._line(Sign.PORT_TAKEN):
            reason = "its port is in use"
        said = f" after {reason}" if reason else ""
        return Finding(cause, sentence + said, owner="simulator", exit_code=code, numbers=self._numbers())

    def _numbers(self) -> dict[str, float | int | str | None]:
        return {"log": self._signs[0][2]} if self._signs else {}

    def _line(self, wanted: Sign) -> str:
        return next((line for _, sign, line in self._signs if sign is wanted), "")


def _misconfigured(line: str, ended: Ended | None) -> Finding:
    return Finding(
        Cause.MISCONFIGURATION,
        "the simulator renders on the CPU (lavapipe): Vulkan finds no GPU in there, which no memory mends; give it the "
        "GPU (NVIDIA_DRIVER_CAPABILITIES=all, the container toolkit)",
        owner="simulator",
        exit_code=None if ended is None else ended.code,
        numbers={"log": line},
    )
