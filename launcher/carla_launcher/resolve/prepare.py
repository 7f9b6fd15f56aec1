"""Prepares a run's start: the plan, the rung and the ports.

Starts nothing but a query of the agent's sizes, and writes nothing.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from carla_launcher import ports
from carla_launcher.act.launcher_state import LauncherState
from carla_launcher.act.run_spec import LOOPBACK, RunSpec
from carla_launcher.config import LauncherConfig
from carla_launcher.decide.ladder import AppliedRung, kind_of
from carla_launcher.hooks import StepBefore
from carla_launcher.observe.pools import Gpu
from carla_launcher.options import RefusedError, RunOptions, RuntimeKind
from carla_launcher.resolve.machine import CARLA_PORT, ResolvedRun, resolve
from carla_launcher.resolve.planning import PlanResult, count_of
from carla_launcher.resolve.resuming import RunRequest
from carla_launcher.simulators import PORTS
from carla_launcher.sizes import CUDA, DEVICE
from carla_run.exits import Exit, ExitError


@dataclass(frozen=True)
class PreparedRun:
    """A run that is ready to start, with its state.

    Attributes:
        spec: complete settings, ports included.
        cards: the distinct GPUs that simulator and agent need; empty if one can't be read.
    """

    resolved: ResolvedRun
    planned: PlanResult
    spec: RunSpec
    state: LauncherState
    cards: tuple[int, ...]


def prepare(asked: RunRequest, step_before: StepBefore | None = None) -> PreparedRun:
    """Return the run: a new one on the plan's rung, an earlier one on its own.

    Args:
        asked: the request, with the earlier state.
        step_before: the batch job's step before; it counts if the last launcher was killed with it.

    Raises:
        ExitError: the run can't be started.
    """
    run, before, options, limits = asked.run, asked.before, asked.options, asked.limits
    resolved = resolve(run, options, limits, asked.gpu_uuids)
    if resolved.obstacle:
        raise RefusedError(resolved.obstacle)
    try:
        planned = resolved.plan(limits)
        if before is None and planned.plan.start is None:
            reason = planned.plan.reason
            raise RefusedError(f"{reason[0].upper()}{reason[1:]}.", Exit.OUT_OF_MEMORY)
        count = _simulators(resolved.spec, planned)
    except ExitError:
        resolved.clear()
        raise
    needed = _cards_needed(resolved.spec, planned)
    cards, uuid = resolved.spec.cards, resolved.memory.card_uuid
    spec = replace(
        resolved.spec,
        port=port_of(options, PORTS * count, before, resolved.spec.in_containers),
        resume=asked.began,
        tm_port=_tm_port(),
        gpu_uuids=(uuid(cards.simulator), uuid(cards.agent)) if needed else ("", ""),
        simulators=count,
        step_before=step_before if before is not None and before.incident else None,
    )
    return PreparedRun(resolved, planned, spec, _state(options, before, spec, planned, limits), needed)


def _tm_port() -> int:
    """Return a free port for a Traffic Manager."""
    return ports.free_ports(random.Random(), 1) or RunSpec.tm_port


def _cards_needed(spec: RunSpec, planned: PlanResult) -> tuple[int, ...]:
    if planned.situation.reading.gpu is not Gpu.OK:
        return ()
    simulator = {spec.cards.simulator} if spec.simulator.needs_card else set()
    agent = {spec.cards.agent} if planned.situation.base[DEVICE] == CUDA else set()
    return tuple(sorted(simulator | agent))


def _simulators(spec: RunSpec, planned: PlanResult) -> int:
    """Return how many simulators the launcher starts.

    Raises:
        RefusedError: several, in containers.
    """
    count, keys = count_of(planned.situation.base, planned.program), planned.program.keys
    if not spec.simulator.ours:
        return 1
    if count > 1 and spec.in_containers:
        raise RefusedError(
            f"{keys.simulators} is {count}, but Compose runs only one simulator: use --runtime process, or set it to 1."
        )
    return count


def _state(
    options: RunOptions, before: LauncherState | None, spec: RunSpec, planned: PlanResult, limits: LauncherConfig
) -> LauncherState:
    """Return the state at the start: a new run on the plan's rung, an earlier one on its own.

    Saves the options with the values chosen for open ones, except the GPUs' indices.
    """
    runtime = RuntimeKind.COMPOSE if spec.in_containers else RuntimeKind.PROCESS
    chosen: dict[str, object] = {"runtime": runtime}
    chosen |= {"config": spec.config} if spec.command is None else {"cwd": spec.command.folder}
    if spec.simulator.ours:
        chosen["simulator"] = spec.simulator.kind
    saved = options.model_copy(update=chosen).model_dump(mode="json", exclude_unset=True)
    quality = spec.simulator.quality(limits.simulator)
    if before is None:
        before = LauncherState(spec.run.path.name, saved, spec.host, spec.port, taken=_starting_steps(planned))
    return replace(before, options=saved, host=spec.host, port=spec.port, quality=quality, gpu_uuids=spec.gpu_uuids)


def _starting_steps(planned: PlanResult) -> tuple[AppliedRung, ...]:
    """Return the steps with which a new run starts, as planned."""
    chosen, ladder = planned.plan.start, planned.situation.ladder
    return tuple(
        AppliedRung(step.rung, kind_of(step, ladder).value, planned.plan.reason, dict(step.values), step.quality)
        for step in (chosen.steps if chosen is not None else ())
    )


def port_of(options: RunOptions, count: int, before: LauncherState | None = None, in_containers: bool = False) -> int:
    """Return the first of this many consecutive ports for the simulators.

    A port that wasn't given changes if another process uses it now; the run's own containers may still use it.
    """
    if options.port is not None or options.simulator_host is not None:
        return options.port or CARLA_PORT
    had = None if before is None or before.host != LOOPBACK else before.port
    if had is not None and (in_containers or not any(map(ports.holder, range(had, had + count)))):
        return had
    port = ports.free_ports(random.Random(), count)
    if port is None:
        raise RefusedError(
            f"No {count} consecutive ports are free on 127.0.0.1: name the first with --port.", Exit.NO_SIMULATOR
        )
    return port
