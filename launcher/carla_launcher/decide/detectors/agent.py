"""Detects a failed agent: how it ended, or that it hangs. Pure."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from typing import Any

from carla_launcher.config import LauncherConfig
from carla_launcher.decide.detectors.causes import Cause, Finding
from carla_launcher.decide.detectors.ends import EndDetector
from carla_launcher.decide.detectors.kills import RecentOomKills
from carla_launcher.observe.observation import AgentSeen, Ended, Observation
from carla_launcher.observe.pools import PROCESS_POOLS, Gpu, OwnerKind, PoolKind
from carla_run.configuration.program_life import End
from carla_run.events import CannotFit, CollectorRestarted, Failed, MemoryPool, NoCuda, decisive
from carla_run.exits import KILLED, TERMINATED, exit_in_words
from carla_run.heartbeat import CollectorState, Heartbeat, Phase

PATIENT_PHASES = (
    *(Phase.WAITING_FOR_SIMULATOR, Phase.DRAINED, Phase.DRAINING, Phase.STOPPING),
    *(Phase.FINISHED, Phase.STOPPED),
)
"""Phases in which the agent may stand still without being hung: they have other time limits."""

RAN_OUT = {
    MemoryPool.DEVICE: (Cause.AGENT_CUDA_OOM, "GPU memory"),
    MemoryPool.HOST: (Cause.AGENT_HOST_OOM, "host memory"),
    MemoryPool.DISK: (Cause.AGENT_DISK_FULL, "disk space"),
}
"""Cause and words for an agent that refused to start or ran out of memory, by the memory that it lacked."""
OF_HOST_MEMORY = (KILLED, TERMINATED)
"""A failed GPU allocation doesn't end a process by these signals; users and guards of host memory send them."""
CRASHED_SHORT = {PoolKind.VRAM: Cause.AGENT_CUDA_OOM, PoolKind.RAM: Cause.AGENT_HOST_OOM}

_OTHER_ENDS: Mapping[End, tuple[Cause, str]] = {
    End.BAD_ARGUMENTS: (Cause.MISCONFIGURATION, "the agent doesn't know one of its arguments"),
    End.BAD_CONFIGURATION: (Cause.MISCONFIGURATION, "the agent refused its configuration, or a disk refused its files"),
    End.NO_SIMULATOR: (Cause.SIMULATOR_NOT_READY, "the agent found no simulator in time"),
}
_BUS_ERROR = (
    "SIGBUS, a page of a mapped file couldn't be read or written, since the file was cut short, or its disk fails "
    "(see `dmesg`) or is full"
)
PREVENTED_BY = '"exec-opts": ["native.cgroupdriver=cgroupfs"] in /etc/docker/daemon.json'
"""Setting with which ``systemctl daemon-reload`` leaves containers their GPU (nvidia-container-toolkit issue 48)."""
AT_ONCE_S = 10.0
"""A program that ends in this time has ended at once. If it leaves others running, it went into the background."""


class AgentDetector:
    """Detects failures of the agents, one after the other.

    Args:
        config: the launcher's.
        kills: what the kernel killed for memory.
        exits: what the agent's exit codes say.
        in_container: each start of the agent makes a container.
    """

    def __init__(
        self, config: LauncherConfig, kills: RecentOomKills, exits: Mapping[int, End], in_container: bool = False
    ) -> None:
        self._exits, self._in_container = exits, in_container
        self._limits, self._recent_s, self._kills = config.agent, config.watch.sign_s, kills
        self._ends = EndDetector(config.memory, kills, OwnerKind.AGENT, CRASHED_SHORT)
        self._started_s: float | None = None
        self._moved_s = 0.0
        self._place: object = None
        self._beat: Heartbeat | None = None
        self._failure = self._said = ""
        self._child_killed_s = -float("inf")
        self._ran_out: MemoryPool | None = None
        self._gpu_lost = self._no_gpu = self._no_simulator = self._host_has_gpu = False
        self._refused: CannotFit | None = None
        self._has_card = True

    def forget(self) -> None:
        """Restart all time limits after a gap between looks."""
        self._started_s, self._place = None, None
        self._child_killed_s = -float("inf")
        self._ends.forget()

    def look(self, seen: Observation) -> tuple[Finding, ...]:
        """Return at most one finding."""
        agent = seen.agent
        if self._ends.look(seen.time_s, seen.memory, agent):
            self._begin()
        self._beat = agent.beat or self._beat
        self._has_card = seen.memory.gpu is not Gpu.NONE
        self._host_has_gpu = seen.memory.gpu is Gpu.OK and bool(seen.memory.of(PoolKind.VRAM))
        self._read_events(seen.time_s, agent.events)
        if agent.ended is not None:
            found = None if agent.ended.planned or agent.ended.done else self._end(seen.time_s, agent.ended)
        else:
            found = self._child_killed(seen.time_s) or self._hang(seen.time_s, agent) if agent.running else None
        return () if found is None else (found,)

    def _begin(self) -> None:
        self._started_s, self._place, self._beat = None, None, None
        self._failure, self._said, self._ran_out, self._refused = "", "", None, None
        self._gpu_lost = self._no_gpu = self._no_simulator = False
        self._child_killed_s = -float("inf")

    def _read_events(self, now_s: float, events: tuple[Mapping[str, Any], ...]) -> None:
        for event in map(decisive, events):
            if isinstance(event, CannotFit):
                self._refused = event
            elif isinstance(event, Failed) or (isinstance(event, NoCuda) and event.device == "cuda"):
                self._failure, self._ran_out = event.cause, event.pool
                self._gpu_lost = isinstance(event, Failed) and event.gpu_lost
                self._no_gpu = isinstance(event, Failed) and event.no_gpu
                self._no_simulator = isinstance(event, Failed) and event.no_simulator
                self._said = event.cause if isinstance(event, Failed) and not event.error else ""
            elif isinstance(event, CollectorRestarted) and event.signal == signal.SIGKILL:
                self._child_killed_s = now_s

    def _end(self, now_s: float, ended: Ended) -> Finding | None:
        code, end = ended.code, self._exits.get(ended.code)
        finished = end is End.FINISHED
        why = self._unfinished(now_s, ended) if finished else None
        if why is not None or (finished and _says_so(self._beat, code)):
            return why  # a killed child was replaced: the learner itself says that it has finished
        killed_in = self._ends.killed_in()
        if ended.oom_killed or (killed_in and (finished or code == KILLED)):
            words = f"the kernel killed the agent, or a child of it, for memory ({exit_in_words(code)})"
            return self._finding(Cause.AGENT_HOST_OOM, words, code, killed_in)
        if end in (End.FINISHED, End.STOPPED):
            return None
        ran_out = self._ran_out is not None and (end is None or self._ran_out is not MemoryPool.DISK)
        if end is End.OUT_OF_MEMORY or ran_out:  # an agent with its own code for a disk refused to begin there
            return self._out_of_memory(code)
        if end is None:
            return self._crash(code)
        cause, words = _OTHER_ENDS[end]
        said = f": {self._failure.rstrip('.')}" if self._failure and cause is Cause.MISCONFIGURATION else ""
        return self._finding(cause, f"{words} ({exit_in_words(code)}){said}", code)

    def _unfinished(self, now_s: float, ended: Ended) -> Finding | None:
        """Return why an end with a code that says so isn't the end of its work; None if it may be."""
        said = f"the agent ended ({exit_in_words(ended.code)})"
        if ended.left and now_s - (now_s if self._started_s is None else self._started_s) < AT_ONCE_S:
            words = (
                f"{said} at once and left {ended.left} running, ended since: it puts itself into the background, "
                "expected a command that runs until its work is done; have it stay in the foreground"
            )
            return self._finding(Cause.MISCONFIGURATION, words, ended.code)
        words = f"{said} without {ended.undone}, by which it shows that it is done"
        return self._finding(Cause.AGENT_CRASH, words, ended.code) if ended.undone else None

    def _crash(self, code: int) -> Finding:
        """Return the cause of an end without a known exit code: by the free memory, else by the agent's error."""
        explained = self._said.rstrip(".") or (_BUS_ERROR if code == 128 + signal.SIGBUS else "")
        said = f": {explained}" if explained else ""
        crash = self._finding(Cause.AGENT_CRASH, f"the agent crashed ({exit_in_words(code)}){said}", code)
        on_cpu = self._beat is not None and not self._beat.device.startswith("cuda")
        kinds = (PoolKind.RAM,) if on_cpu or code in OF_HOST_MEMORY else PROCESS_POOLS
        if short := self._ends.explained(crash, kinds):
            return short
        said = self._failure.partition("\n")[0].rstrip(".")
        if self._container_lost_gpu:
            words = (
                f"the agent's container lost the GPU, which the host still has ({said}); `systemctl daemon-reload` "
                f"does that, and {PREVENTED_BY} prevents it"
            )
            return self._finding(Cause.CONTAINER_LOST_GPU, words, code)
        if self._gpu_lost:
            return self._finding(Cause.GPU_LOST, f"the agent lost the GPU ({said}): restart the machine", code)
        return crash

    @property
    def _container_lost_gpu(self) -> bool:
        """Return whether only the agent's container lost the GPU. One that never had it has done no work."""
        worked = self._beat is not None and self._beat.started
        return self._in_container and self._host_has_gpu and (self._gpu_lost or (self._no_gpu and worked))

    def _out_of_memory(self, code: int) -> Finding:
        """Return which memory ran out: as the agent reported it, else that of the device that it computed on.

        A command may compute on a card wherever there is one.
        """
        if (refused := self._refused) is not None:
            cause, what = RAN_OUT[refused.pool]
            words = f"the agent needs more {what} than is free ({exit_in_words(code)}){_shortage(refused)}"
            return self._finding(cause, words, code, _disk_of(cause))
        on_cuda = self._beat is not None and self._beat.device.startswith("cuda")
        on_cuda &= self._has_card and code not in OF_HOST_MEMORY
        computed_on = MemoryPool.DEVICE if on_cuda else MemoryPool.HOST
        cause, what = RAN_OUT[self._ran_out or computed_on]
        return self._finding(cause, f"the agent ran out of {what} ({exit_in_words(code)})", code, _disk_of(cause))

    def _child_killed(self, now_s: float) -> Finding | None:
        """Return a finding if the kernel killed a collector for memory; the learner has replaced it by now."""
        pool = self._kills.recent("agent")
        if not pool or now_s - self._child_killed_s > self._recent_s:
            return None
        self._child_killed_s = -float("inf")
        return self._finding(Cause.AGENT_HOST_OOM, "the kernel killed the agent's collector for memory", None, pool)

    def _hang(self, now_s: float, agent: AgentSeen) -> Finding | None:
        self._started_s = now_s if self._started_s is None else self._started_s
        watched_s, beat = now_s - self._started_s, agent.beat
        silent_s = watched_s if beat is None else min(agent.beat_age_s, watched_s)
        limit_s = self._limits.warming_limit_s if beat is None else self._limits.beat_limit_s
        if agent.done is not None and agent.done.limit_s is not None:
            return None
        if silent_s > limit_s:
            missing = f"shown no progress ({agent.awaited})" if agent.awaited else "sent no heartbeat"
            words = f"the agent has {missing} for {silent_s:.0f} s, {limit_s:g} s are allowed"
            if agent.done is not None:
                words += (
                    f"; it had shown {agent.done.sign}, so it is done: done.exits_within_s would end it as finished"
                )
            return self._finding(Cause.AGENT_HANG, words, None)
        return None if beat is None else self._stuck(now_s, beat)

    def _stuck(self, now_s: float, beat: Heartbeat) -> Finding | None:
        """Return a finding if the agent makes no progress though its heartbeat goes on."""
        place = (beat.phase, beat.step, beat.updates, beat.ticks, beat.collector_restarts, beat.collector.state)
        if place != self._place or beat.phase in PATIENT_PHASES or beat.collector.state is CollectorState.CONNECTING:
            self._place, self._moved_s = place, now_s
        still_s = now_s - self._moved_s
        if still_s <= self._limits.warming_limit_s:
            return None
        words = f"the agent has made no progress for {still_s:.0f} s ({beat.phase}, step {beat.step})"
        return self._finding(Cause.AGENT_HANG, words, None)

    def _finding(self, cause: Cause, sentence: str, code: int | None, pool: str = "") -> Finding:
        numbers: dict[str, float | int | str | None] = {"failure": self._failure} if self._failure else {}
        numbers |= {"no_simulator": True} if self._no_simulator else {}
        if self._beat is not None:
            numbers |= {"phase": self._beat.phase, "step": self._beat.step, "device": self._beat.device}
        return Finding(
            cause,
            sentence,
            pool=pool,
            owner="agent",
            deficit_mib=0.0 if self._refused is None else self._refused.missing_mib,
            exit_code=code,
            numbers=numbers,
        )


def _says_so(beat: Heartbeat | None, code: int) -> bool:
    """Return whether the last heartbeat says that the learner ended as its exit code does."""
    return beat is not None and beat.phase is Phase.FINISHED and beat.exit_code == code


def _disk_of(cause: Cause) -> str:
    return PoolKind.DISK.value if cause is Cause.AGENT_DISK_FULL else ""


def _shortage(refused: CannotFit) -> str:
    where = f" in {refused.folder}" if refused.folder else ""
    return (
        f": {refused.needed_mib:.0f} MiB and a reserve of {refused.reserve_mib:.0f} MiB are needed{where}, "
        f"{refused.free_mib:.0f} MiB are free"
    )
