"""What a supervisor is given for one run: its brief from the plan, and real effects (clock, files, programs, memory).

Owns the putting together. Decides which rung a new run starts on only by taking the plan's word.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from contract.paths import RunPaths
from contract.signals import StopRequests
from launcher.act.agent_requests import AgentRequests
from launcher.act.effects import Brief, Effects
from launcher.act.runtime import Runtime
from launcher.config import LauncherConfig
from launcher.decide.detectors.diagnostician import Diagnostician
from launcher.decide.detectors.expectations import BandKey, Expectations
from launcher.decide.fit import planned_bands
from launcher.decide.ladder import Taken, kind_of, variants_of
from launcher.decide.sizes import LITE, Sizes, Values
from launcher.observe import health
from launcher.observe.health import Address
from launcher.observe.observer import RunObserver
from launcher.observe.pools import PoolKind, Reading
from launcher.observe.simulator import Questions
from launcher.resolve import planning
from launcher.resolve.agent_sizes import AgentSizes
from launcher.resolve.footprint import FootprintError
from launcher.resolve.planning import PlanResult

ReadMemory = Callable[[frozenset[int], frozenset[int]], Reading]


def brief(plan: PlanResult, sizes: AgentSizes, address: Address, simulator_ours: bool, resume: bool) -> Brief:
    """Return what the supervisor runs."""
    situation = plan.situation
    device = {"device": situation.base["device"]}
    without_cuda = [] if device["device"] == "cpu" else variants_of(plan.rungs, planning.cpu_base(plan))

    def of(overrides: Values) -> Sizes | None:
        with contextlib.suppress(FootprintError):
            (found,) = sizes.look_up([{**device, **overrides}])
            return None if found.refusal else found
        return None

    def needs(overrides: Values) -> Mapping[PoolKind, float]:
        return {} if (found := of(overrides)) is None else found.mib

    def ask_ahead(overrides: Sequence[Values], wait: bool) -> None:
        sizes.ask([*({**device, **each} for each in overrides), *without_cuda], wait)

    def bands(overrides: Values, quality: str | None) -> Mapping[BandKey, float]:
        return planned_bands(situation, of(overrides), quality)

    def on_cpu() -> Brief:
        with contextlib.suppress(FootprintError):
            return brief(planning.on_cpu(plan, sizes.look_up), sizes, address, simulator_ours, resume)
        at_least = replace(plan, situation=replace(situation, base=planning.cpu_base(plan)))
        return brief(at_least, sizes, address, simulator_ours, resume)

    return Brief(
        address,
        simulator_ours,
        situation.ladder,
        situation.base,
        needs=needs,
        ask_ahead=ask_ahead,
        bands=bands,
        resume=resume,
        on_cpu=on_cpu,
    )


def starting_steps(plan: PlanResult) -> list[Taken]:
    """Return the rung that a new run starts on, as the plan chose it."""
    chosen, ladder = plan.plan.start, plan.situation.ladder
    return [
        Taken(step.rung, kind_of(step, ladder).value, plan.plan.reason, dict(step.values), step.quality)
        for step in (chosen.steps if chosen is not None else ())
    ]


def quality_of(plan: PlanResult) -> str | None:
    """Return CARLA's quality before any step; None for a simulator that knows none."""
    simulator = plan.situation.simulator
    return None if simulator is None or simulator.quality == LITE else simulator.quality


def effects(
    run: RunPaths,
    plan: PlanResult,
    limits: LauncherConfig,
    runtime: Runtime,
    address: Address,
    read_memory: ReadMemory,
    stop: StopRequests,
    say: Callable[[str], None],
) -> Effects:
    """Return the real effects of a run."""
    timeout_s, spread = limits.simulator.check_timeout_s, random.Random()
    external = plan.situation.simulator is None
    ask = Questions(
        ready=lambda in_use: health.check(address, timeout_s, in_use),
        answers=lambda: health.answers(address, timeout_s),
        every_s=limits.watch.check_every_s,
    )
    log = None if external else run.logs / "simulator.log"
    base = plan.situation.base
    expected = Expectations(
        float(base["simulator.timeout_s"]),
        float(base["collector.hang_margin_s"]),
    )
    diagnostician = Diagnostician(limits, expected)
    return Effects(
        runtime=runtime,
        observer=RunObserver(run, address, read_memory, ask, limits.watch.gap_s, external, log),
        diagnose=diagnostician.look,
        expect=diagnostician.expect,
        check=ask.ready,
        requests=AgentRequests(run),
        clock=time,
        draw=lambda: spread.uniform(-1.0, 1.0),
        stop=stop,
        say=say,
    )
