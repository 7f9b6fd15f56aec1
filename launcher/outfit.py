"""What a supervisor is given for one run: its brief from the plan, and real edges (clock, files, programs, memory).

Owns the putting together. Decides which rung a new run starts on only by taking the plan's word.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from contract.paths import RunPaths
from contract.signals import StopRequests
from launcher import planning
from launcher.agent_requests import AgentRequests
from launcher.config import LauncherConfig
from launcher.decide.detectors.diagnostician import Diagnostician
from launcher.decide.detectors.expectations import Expectations
from launcher.decide.ladder import Taken
from launcher.decide.sizes import LITE
from launcher.footprint import FootprintError
from launcher.memory.pools import PoolKind, Reading
from launcher.planning import PlanResult
from launcher.runtimes.runtime import Runtime
from launcher.supervising.edges import Brief, Edges
from launcher.watching import health
from launcher.watching.health import Address
from launcher.watching.simulator import Questions
from launcher.watching.watch import Watch

ReadMemory = Callable[[frozenset[int], frozenset[int]], Reading]


class Needs:
    """Says what the agent takes with overrides; what can't be sized takes nobody knows what."""

    def __init__(self, outlook: PlanResult) -> None:
        self._outlook = outlook
        self._device = outlook.situation.base["device"]

    def __call__(self, overrides: Mapping[str, Any]) -> Mapping[PoolKind, float]:
        """Return MiB by pool kind; asks the agent if it wasn't asked ahead."""
        with contextlib.suppress(FootprintError):
            (sizes,) = self._outlook.sizes_of([{"device": self._device, **overrides}])
            return {} if sizes.refusal else sizes.mib
        return {}

    def ask_ahead(self, overrides: Sequence[Mapping[str, Any]]) -> None:
        """Ask for many at once; they are known from then on."""
        with contextlib.suppress(FootprintError):
            self._outlook.sizes_of([{"device": self._device, **each} for each in overrides])


def brief(outlook: PlanResult, address: Address, simulator_ours: bool, resume: bool) -> Brief:
    """Return what the supervisor runs."""
    situation, needs = outlook.situation, Needs(outlook)

    def on_cpu() -> Brief:
        with contextlib.suppress(FootprintError):
            return brief(planning.on_cpu(outlook), address, simulator_ours, resume)
        at_least = replace(outlook, situation=replace(situation, base={**situation.base, "device": "cpu"}))
        return brief(at_least, address, simulator_ours, resume)

    return Brief(address, simulator_ours, situation.ladder, situation.base, needs, needs.ask_ahead, resume, on_cpu)


def starting_steps(outlook: PlanResult) -> list[Taken]:
    """Return the rung that a new run starts on, as the plan chose it."""
    chosen = outlook.plan.start
    kinds = {id(step): kind for kind, steps in outlook.situation.ladder.items() for step in steps}
    return [
        Taken(step.rung, kinds.get(id(step), PoolKind.RAM).value, outlook.plan.reason, dict(step.values), step.quality)
        for step in (chosen.steps if chosen is not None else ())
    ]


def quality_of(outlook: PlanResult) -> str | None:
    """Return CARLA's quality before any step; None for a simulator that knows none."""
    simulator = outlook.situation.simulator
    return None if simulator is None or simulator.quality == LITE else simulator.quality


def edges(
    run: RunPaths,
    outlook: PlanResult,
    limits: LauncherConfig,
    runtime: Runtime,
    address: Address,
    read_memory: ReadMemory,
    stop: StopRequests,
    say: Callable[[str], None],
) -> Edges:
    """Return the real edges of a run."""
    timeout_s, spread = limits.simulator.check_timeout_s, random.Random()
    external = outlook.situation.simulator is None
    ask = Questions(
        ready=lambda in_use: health.check(address, timeout_s, in_use),
        answers=lambda: health.answers(address, timeout_s),
    )
    log = None if external else run.logs / "simulator.log"
    base = outlook.situation.base
    expected = Expectations(
        float(base["simulator.timeout_s"]),
        float(base["collector.hang_margin_s"]),
        external,
        quality_of(outlook) is None,
    )
    return Edges(
        runtime=runtime,
        eyes=Watch(run, address, limits.watch, read_memory, ask, external, log),
        diagnose=Diagnostician(limits, expected).look,
        check=ask.ready,
        requests=AgentRequests(run),
        clock=time,
        draw=lambda: spread.uniform(-1.0, 1.0),
        stop=stop,
        say=say,
    )
