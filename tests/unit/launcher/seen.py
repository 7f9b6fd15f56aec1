"""Series of observations as a run would give them: a look a second, one thing changed at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from carla_launcher import config
from carla_launcher.decide.detectors.causes import Cause, Finding
from carla_launcher.decide.detectors.diagnostician import Diagnostician
from carla_launcher.decide.detectors.expectations import BandKey, Expectations
from carla_launcher.observe.observation import AgentSeen, Observation, SimulatorSeen
from carla_launcher.observe.pools import Gpu, Owner, OwnerKind, Pool, PoolKind, Reading, measured
from carla_launcher.resolve.footprint import program
from carla_run.heartbeat import CollectorFigures, CollectorState, Phase
from tests.unit.beats import BEAT

LIMITS = config.load()
TIMEOUT_S = 20.0
EXPECTED = Expectations(timeout_s=TIMEOUT_S, collector_margin_s=5.0, exits=program().exits)
TOTAL_MIB = 5745.0
RESERVE_MIB = LIMITS.memory.reserve_mib[PoolKind.VRAM]
FULL_MIB = TOTAL_MIB - 1200 - 85
"""Held by the simulator when nothing is free."""

SIMULATOR = SimulatorSeen(running=True, healthy=True, pid=100)
AGENT = AgentSeen(running=True, beat=BEAT, beat_age_s=0.3, pid=200)

Value = float | Callable[[float], float]
Series = Callable[[float], Observation]


def vram(simulator: float = 3000.0, agent: float = 1200.0, foreign: float = 85.0, name: str = "Xorg") -> Reading:
    """Return a GPU's reading; an owner that holds nothing isn't there."""
    held = {
        ("simulator", OwnerKind.SIMULATOR, 100): simulator,
        ("agent", OwnerKind.AGENT, 200): agent,
        (name, OwnerKind.FOREIGN, 300): foreign,
    }
    owners = tuple(Owner(owner, kind, (pid,), measured(mib)) for (owner, kind, pid), mib in held.items() if mib > 0)
    free = TOTAL_MIB - simulator - agent - foreign
    return Reading((Pool("vram:0", PoolKind.VRAM, measured(TOTAL_MIB), measured(max(0.0, free)), owners),), Gpu.OK)


def ram(kills: int, free: float = 8000.0, name: str = "ram:agent") -> Reading:
    """Return a container's reading."""
    return Reading((Pool(name, PoolKind.RAM, measured(9000.0), measured(free), (), kills),))


def driving(time_s: float) -> Observation:
    """Return a look at a run that is well: ticks, steps and updates come on."""
    done = int(20 * time_s)
    beat = replace(BEAT, ticks=BEAT.ticks + done, step=BEAT.step + done, updates=BEAT.updates + done)
    return Observation(time_s, vram(), SIMULATOR, replace(AGENT, beat=beat))


def holding(simulator: Value = 3000.0, agent: Value = 1200.0, foreign: Value = 85.0, name: str = "Xorg") -> Series:
    """Return a run that is well, whose owners hold what functions of time say."""

    def at(value: Value, time_s: float) -> float:
        return value(time_s) if callable(value) else value

    def look(time_s: float) -> Observation:
        memory = vram(at(simulator, time_s), at(agent, time_s), at(foreign, time_s), name)
        return replace(driving(time_s), memory=memory)

    return look


def with_beat(seen: Observation, age_s: float = 0.3, **changed: Any) -> Observation:
    """Return the look with other figures in the heartbeat."""
    beat = seen.agent.beat
    assert beat is not None
    if "phase" in changed:
        changed["phase"] = Phase(changed["phase"])
    if "state" in changed:
        changed["collector"] = CollectorFigures(8, CollectorState(changed.pop("state")))
    return replace(seen, agent=replace(seen.agent, beat=replace(beat, **changed), beat_age_s=age_s))


def with_simulator(seen: Observation, **changed: Any) -> Observation:
    return replace(seen, simulator=replace(seen.simulator, **changed))


def with_agent(seen: Observation, **changed: Any) -> Observation:
    return replace(seen, agent=replace(seen.agent, **changed))


def seconds(until_s: float, start_s: float = 0.0, every_s: float = 1.0) -> Iterator[float]:
    """Yield the times of looks."""
    for look in range(int((until_s - start_s) / every_s)):
        yield start_s + look * every_s


Told = list[tuple[float, Finding]]


def diagnosed(
    looks: Iterable[Observation], expectations: Expectations = EXPECTED, planned: Mapping[BandKey, float] | None = None
) -> Told:
    """Return all findings with the times at which they were told."""
    diagnostician = Diagnostician(LIMITS, expectations)
    diagnostician.expect(planned or {})
    return [(seen.time_s, finding) for seen in looks for finding in diagnostician.look(seen)]


def causes(reported: Told) -> set[Cause]:
    return {finding.cause for _, finding in reported}


def first(reported: Told, cause: Cause) -> tuple[float, Finding]:
    """Return when a cause was told first, and the finding."""
    for time_s, finding in reported:
        if finding.cause is cause:
            return time_s, finding
    raise AssertionError(f"{cause} isn't among {causes(reported)}")
