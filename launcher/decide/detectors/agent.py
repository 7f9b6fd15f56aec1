"""What is wrong with the agent: how it ended, or that it doesn't come on. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from contract.exits import exit_in_words
from contract.heartbeat import CollectorState, Heartbeat, Phase
from contract.readers import number
from launcher.config import LauncherConfig
from launcher.decide.detectors.causes import Cause, Finding
from launcher.decide.detectors.kills import OomKills
from launcher.watching.observation import AgentSeen, Ended, Observation

FINISHED, USAGE, CONFIGURATION, NO_SIMULATOR, OUT_OF_MEMORY, STOPPED = 0, 2, 65, 69, 71, 75
"""The agent's exit codes (DESIGN.md); any other is a crash."""
KILLED = 128 + 9
PATIENT_PHASES = (
    *(Phase.WAITING_FOR_SIMULATOR, Phase.DRAINED, Phase.DRAINING, Phase.STOPPING),
    *(Phase.FINISHED, Phase.STOPPED),
)
"""Phases in which nothing moves without being hung: what they wait for has limits of its own."""

REFUSED = {
    "device": (Cause.AGENT_CUDA_OOM, "GPU memory"),
    "host": (Cause.AGENT_HOST_OOM, "host memory"),
    "disk": (Cause.AGENT_DISK_FULL, "disk"),
}
"""By the pool that the event ``cannot_fit`` names: what an agent lacked that was refused."""

_DEVICE_WORDS = re.compile(r"CUDA|CUBLAS|CUDNN")
_HOST_WORDS = re.compile(r"DefaultCPUAllocator|std::bad_alloc|could not (create|execute) a primitive|MemoryError")
_MEMORY_WORDS = re.compile(
    rf"[Oo]ut of memory|C(UBLAS|UDNN)_STATUS_ALLOC_FAILED|_ALLOCATION_FAILED|{_HOST_WORDS.pattern}"
)
_OTHER_ENDS = {
    USAGE: (Cause.MISCONFIGURATION, "the agent doesn't know its arguments"),
    CONFIGURATION: (Cause.MISCONFIGURATION, "the agent refused its configuration"),
    NO_SIMULATOR: (Cause.SIMULATOR_NOT_READY, "the agent found no simulator to drive in within its patience"),
}


class Agent:
    """Watches one agent after another."""

    def __init__(self, config: LauncherConfig, kills: OomKills) -> None:
        self._limits, self._recent_s, self._kills = config.agent, config.watch.sign_s, kills
        self._pid = 0
        self._running = False
        self._started_s: float | None = None
        self._moved_s = 0.0
        self._place: object = None
        self._beat: Heartbeat | None = None
        self._failure = ""
        self._child_killed_s = -float("inf")
        self._killed_in = ""
        self._refused: Mapping[str, Any] = {}

    def forget(self) -> None:
        """Begin to wait anew: time has passed in which nobody looked."""
        self._started_s, self._place = None, None
        self._child_killed_s = -float("inf")

    def look(self, seen: Observation) -> tuple[Finding, ...]:
        """Return what is wrong; one finding at most."""
        agent = seen.agent
        if agent.running and (not self._running or agent.pid != self._pid):
            self._begin()
        self._running, self._pid = agent.running, agent.pid
        self._beat = agent.beat or self._beat
        self._hear(seen.time_s, agent.events)
        if agent.ended is not None:
            found = None if agent.ended.planned else self._end(agent.ended)
        else:
            found = self._child_killed(seen.time_s) or self._hang(seen.time_s, agent) if agent.running else None
        return () if found is None else (found,)

    def _begin(self) -> None:
        self._started_s, self._place, self._beat = None, None, None
        self._failure, self._killed_in, self._refused = "", "", {}
        self._child_killed_s = -float("inf")

    def _hear(self, now_s: float, events: tuple[Mapping[str, Any], ...]) -> None:
        for row in events:
            cause = str(row.get("cause", ""))
            if row.get("event") == "cannot_fit":
                self._refused = row
            if row.get("event") == "failed" or (row.get("event") == "no_cuda" and row.get("device") == "cuda"):
                self._failure = cause
            if row.get("event") == "collector_restarted" and cause == "killed by SIGKILL":
                self._child_killed_s = now_s

    def _end(self, ended: Ended) -> Finding | None:
        code, beat = ended.code, self._beat
        if code == FINISHED and beat is not None and beat.phase is Phase.FINISHED and beat.exit_code == FINISHED:
            return None  # a child that was killed on the way was replaced: the learner itself says that all is done
        self._killed_in = self._killed_in or self._kills.lately("agent")
        if ended.oom_killed or (self._killed_in and code in (FINISHED, KILLED)):
            words = f"the kernel killed the agent, or a child of it, for memory ({exit_in_words(code)})"
            return self._finding(Cause.AGENT_HOST_OOM, words, code, self._killed_in)
        if code in (FINISHED, STOPPED):
            return None
        if code == OUT_OF_MEMORY or _MEMORY_WORDS.search(self._failure):
            return self._out_of_memory(code)
        cause, words = _OTHER_ENDS.get(code, (Cause.AGENT_CRASH, "the agent crashed"))
        said = f": {self._failure.rstrip('.')}" if self._failure and cause is Cause.MISCONFIGURATION else ""
        return self._finding(cause, f"{words} ({exit_in_words(code)}){said}", code)

    def _out_of_memory(self, code: int) -> Finding:
        """Return what ran out: a refusal names it; else words know better than the device, which not all lies on."""
        if (refused := REFUSED.get(str(self._refused.get("pool")))) is not None:
            cause, what = refused
            pool = "disk" if cause is Cause.AGENT_DISK_FULL else ""
            words = f"the agent was refused for {what} ({exit_in_words(code)}){_lack(self._refused)}"
            return self._finding(cause, words, code, pool)
        on_cuda = self._beat is not None and self._beat.device.startswith("cuda")
        if _HOST_WORDS.search(self._failure):
            on_cuda = False
        elif _DEVICE_WORDS.search(self._failure) and self._beat is None:
            on_cuda = True
        cause, what = (Cause.AGENT_CUDA_OOM, "GPU") if on_cuda else (Cause.AGENT_HOST_OOM, "host")
        return self._finding(cause, f"the agent ran out of {what} memory ({exit_in_words(code)})", code)

    def _child_killed(self, now_s: float) -> Finding | None:
        """Return that a collector was killed for memory; the learner lives, and has another by now."""
        pool = self._kills.lately("agent")
        if not pool or now_s - self._child_killed_s > self._recent_s:
            return None
        self._child_killed_s = -float("inf")
        return self._finding(Cause.AGENT_HOST_OOM, "the kernel killed the agent's collector for memory", None, pool)

    def _hang(self, now_s: float, agent: AgentSeen) -> Finding | None:
        self._started_s = now_s if self._started_s is None else self._started_s
        watched_s, beat = now_s - self._started_s, agent.beat
        silent_s = watched_s if beat is None else min(agent.beat_age_s, watched_s)
        limit_s = self._limits.warming_limit_s if beat is None else self._limits.beat_limit_s
        if silent_s > limit_s:
            words = f"the agent has given no heartbeat for {silent_s:.0f} s, {limit_s:g} are allowed"
            return self._finding(Cause.AGENT_HANG, words, None)
        return None if beat is None else self._stuck(now_s, beat)

    def _stuck(self, now_s: float, beat: Heartbeat) -> Finding | None:
        """Return that the heartbeat's thread lives, and nothing else."""
        place = (beat.phase, beat.step, beat.updates, beat.ticks, beat.collector_restarts, beat.collector.state)
        if place != self._place or beat.phase in PATIENT_PHASES or beat.collector.state is CollectorState.CONNECTING:
            self._place, self._moved_s = place, now_s
        still_s = now_s - self._moved_s
        if still_s <= self._limits.warming_limit_s:
            return None
        words = f"the agent has been {beat.phase} at step {beat.step} for {still_s:.0f} s without coming on"
        return self._finding(Cause.AGENT_HANG, words, None)

    def _finding(self, cause: Cause, sentence: str, code: int | None, pool: str = "") -> Finding:
        numbers: dict[str, float | int | str | None] = {"failure": self._failure} if self._failure else {}
        if self._beat is not None:
            numbers |= {"phase": self._beat.phase, "step": self._beat.step, "device": self._beat.device}
        return Finding(
            cause,
            sentence,
            pool=pool,
            owner="agent",
            deficit_mib=_missing_mib(self._refused),
            exit_code=code,
            numbers=numbers,
        )


def _lack(row: Mapping[str, Any]) -> str:
    """Return the numbers of a refusal, as far as the event has them."""
    needed, free, reserve = (number(row.get(f"{name}_mib")) for name in ("needed", "free", "reserve"))
    if needed is None or free is None:
        return ""
    where = f" in {folder}" if (folder := row.get("folder")) else ""
    return f": {needed:.0f} MiB are needed{where} beside a reserve of {reserve or 0:.0f}, {free:.0f} are free"


def _missing_mib(row: Mapping[str, Any]) -> float:
    """Return what a start that was refused for memory lacked, by the agent's own numbers."""
    needed, free, reserve = (number(row.get(f"{name}_mib")) or 0.0 for name in ("needed", "free", "reserve"))
    return max(0.0, needed + reserve - free)
