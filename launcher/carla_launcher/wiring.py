"""Creates a supervisor's forecast and real effects for one run."""

from __future__ import annotations

import contextlib
import math
import random
import time
from collections.abc import Callable, Mapping, Sequence

from carla_launcher.act.agent_requests import AgentRequests
from carla_launcher.act.command_requests import CommandRequests
from carla_launcher.act.effects import Effects, Forecast, Watched
from carla_launcher.act.run_spec import LOOPBACK, RunSpec
from carla_launcher.act.runtime import Runtime
from carla_launcher.config import LauncherConfig
from carla_launcher.decide.detectors.diagnostician import Diagnostician
from carla_launcher.decide.detectors.drive import DriveDetector
from carla_launcher.decide.detectors.expectations import BandKey, Expectations
from carla_launcher.decide.detectors.kills import RecentOomKills
from carla_launcher.decide.fit import planned_bands
from carla_launcher.decide.ladder import variants_of
from carla_launcher.observe import health
from carla_launcher.observe.command import CommandMonitor
from carla_launcher.observe.health import Address, Health
from carla_launcher.observe.observer import ReadMemory, RunObserver
from carla_launcher.observe.pools import PoolKind
from carla_launcher.observe.simulator import Questions, SimulatorMonitor
from carla_launcher.resolve import planning
from carla_launcher.resolve.agent_sizes import AgentSizes
from carla_launcher.resolve.footprint import FootprintError
from carla_launcher.resolve.planning import PlanResult
from carla_launcher.sizes import CPU, DEVICE, Sizes, Values
from carla_run.signals import StopRequests

NOWHERE = Address(LOOPBACK, 0)
"""Address of the simulators on a cluster's nodes, which the launcher doesn't observe."""


def forecast(plan: PlanResult, sizes: AgentSizes) -> Forecast:
    """Return the plan's predictions for every rung that the run may take."""
    situation = plan.situation
    device, agent = {DEVICE: situation.base[DEVICE]}, plan.program
    on_card = device[DEVICE] != CPU
    without_cuda = variants_of(plan.rungs, agent.present(planning.cpu_base(plan))) if on_card else []

    def of(overrides: Values) -> Sizes | None:
        look_up = sizes.look_up if plan.measured is None else plan.sizes_of  # what was measured counts at once
        with contextlib.suppress(FootprintError):
            (found,) = look_up([{**device, **overrides}])
            return None if found.refusal else found
        return None

    def needs(overrides: Values) -> Mapping[PoolKind, float]:
        return {} if (found := of(overrides)) is None else found.mib

    def request_sizes(overrides: Sequence[Values], wait: bool) -> None:
        sizes.ask([*({**device, **each} for each in overrides), *without_cuda], wait)

    def bands(overrides: Values, quality: str | None) -> Mapping[BandKey, float]:
        return planned_bands(situation, of(overrides), quality)

    def without_card() -> Forecast:
        return forecast(planning.on_cpu(plan, sizes.look_up), sizes)

    return Forecast(situation.ladder, situation.base, needs, request_sizes, bands, without_card, agent, plan.measured)


def effects(
    spec: RunSpec,
    plan: PlanResult,
    limits: LauncherConfig,
    runtime: Runtime,
    read_memory: ReadMemory,
    stop: StopRequests,
    say: Callable[[str], None],
) -> Effects:
    """Return the real effects of a run."""
    spread, command = random.Random(), spec.command
    ask = questions(spec.address, limits, ours=spec.simulator.ours, ticked_by_others=command is not None)
    if not spec.sees_simulator:
        ask = Questions(lambda _: Health(), Health, limits.watch.check_every_s)
    requests, agent = AgentRequests(spec.run), None
    if command is not None:
        agent = CommandMonitor(spec.run, command.file, command.folder, spec.run.logs / "agent.log", say)
        requests = CommandRequests(spec.run, command.file, command.folder, agent)
    expected = expectations(plan, spec)
    diagnostician = Diagnostician(limits, expected)
    return Effects(
        runtime=runtime,
        observer=RunObserver(spec.run, monitor_of(spec, ask), read_memory, limits.watch.gap_s, agent),
        diagnose=diagnostician.look,
        holders=diagnostician.holders,
        expect=diagnostician.expect,
        check=ask.ready,
        requests=requests,
        clock=time,
        draw=lambda: spread.uniform(-1.0, 1.0),
        stop=stop,
        say=say,
        further=tuple(_watched(spec, limits, expected, number) for number in range(1, spec.simulators)),
    )


def expectations(plan: PlanResult, spec: RunSpec) -> Expectations:
    """Return what diagnosis measures against.

    No tick is expected in any time of a program that tells of none, nor where the launcher sees no simulator: on a
    cluster a collector may wait for a node, and the agent itself gives it up.
    """
    base, keys = plan.situation.base, plan.program.keys
    timeout_s, margin_s = (float(base.get(key, "inf")) for key in (keys.tick_timeout_s, keys.tick_margin_s))
    if not spec.sees_simulator:
        timeout_s = math.inf
    return Expectations(timeout_s, margin_s, plan.program.exits, spec.agent_in_container)


def _watched(spec: RunSpec, limits: LauncherConfig, expected: Expectations, number: int) -> Watched:
    drive = DriveDetector(limits, expected, RecentOomKills(limits.watch.sign_s), number)
    ask = questions(spec.address_of(number), limits, ours=True)
    return Watched(monitor_of(spec, ask, number), drive)


def monitor_of(spec: RunSpec, ask: Questions, number: int = 0) -> SimulatorMonitor:
    """Return what looks at one of a run's simulators."""
    ours, address = spec.simulator.ours, spec.address_of(number) if spec.sees_simulator else NOWHERE
    return SimulatorMonitor(address, ask, spec.simulator_log(number) if ours else None)


def questions(address: Address, limits: LauncherConfig, *, ours: bool, ticked_by_others: bool = False) -> Questions:
    """Return the queries of a simulator. One that isn't ours is never ticked, since other clients may use it.

    If nothing reports a program's ticks (``ticked_by_others``), the game thread itself must answer.
    """
    timeout_s = limits.simulator.check_timeout_s
    alive = health.check if ticked_by_others else health.answers
    return Questions(
        ready=lambda in_use: health.check(address, timeout_s, may_tick=ours and not in_use),
        answers=lambda: alive(address, timeout_s),
        every_s=limits.watch.check_every_s,
    )
