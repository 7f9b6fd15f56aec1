"""From what a start is asked for to a run that only has to be begun: what fits, on which rung, at which port.

Starts nothing but a question for the agent's sizes, and writes nothing.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from carla_launcher import ports
from carla_launcher.act.launcher_state import LauncherState
from carla_launcher.act.run_spec import LOOPBACK, RunSpec
from carla_launcher.config import LauncherConfig
from carla_launcher.decide.ladder import Taken, kind_of
from carla_launcher.observe.pools import Cards, Gpu
from carla_launcher.options import RefusedError, RunOptions, RuntimeKind
from carla_launcher.resolve.footprint import program
from carla_launcher.resolve.machine import CARLA_PORT, Resolved, resolve
from carla_launcher.resolve.planning import PlanResult, count_of, make_plan
from carla_launcher.resolve.resuming import Requested
from carla_launcher.simulators import PORTS, simulator_of
from carla_launcher.sizes import CUDA, DEVICE
from carla_run.exits import Exit, ExitError


@dataclass(frozen=True)
class Prepared:
    """A run that only has to be begun, and where it stands then.

    Attributes:
        cards: that simulator and agent need, each once; none where one can't be read.
    """

    resolved: Resolved
    planned: PlanResult
    spec: RunSpec
    state: LauncherState
    cards: tuple[int, ...]


def prepare(asked: Requested, limits: LauncherConfig) -> Prepared:
    """Return the run that is asked for: a new one on the plan's rung, or an old one on its own.

    Raises:
        ExitError: it can't be had.
    """
    run, before, options = asked.run, asked.before, asked.options
    resolved = resolve(run, options, limits, asked.gpu_uuids)
    if resolved.obstacle:
        raise RefusedError(resolved.obstacle)
    try:
        planned = make_plan(resolved.options, run.path.parent, limits, resolved.reading, resolved.footprint)
        if before is None and planned.plan.start is None:
            reason = planned.plan.reason
            raise RefusedError(f"{reason[0].upper()}{reason[1:]}.", Exit.OUT_OF_MEMORY)
    except ExitError:
        resolved.clear()
        raise
    needed = _cards_needed(resolved, planned)
    count = _simulators(resolved, planned)
    spec = RunSpec(
        run,
        resolved.options,
        _port(options, before, resolved.options.runtime, PORTS * count),
        options.simulator_host or LOOPBACK,
        resume=run.holds_a_run(),
        gpu_uuids=_uuids(resolved) if needed else ("", ""),
        simulators=count,
    )
    return Prepared(resolved, planned, spec, _state(options, before, spec, planned, limits), needed)


def _cards_needed(resolved: Resolved, planned: PlanResult) -> tuple[int, ...]:
    situation = planned.situation
    if situation.reading.gpu is not Gpu.OK:
        return ()
    simulator = {situation.cards.simulator} if simulator_of(resolved.options).needs_card else set()
    agent = {situation.cards.agent} if situation.base[DEVICE] == CUDA else set()
    return tuple(sorted(simulator | agent))


def _simulators(resolved: Resolved, planned: PlanResult) -> int:
    """Return how many simulators are run here.

    Raises:
        RefusedError: several, in containers.
    """
    count = count_of(planned.situation.base)
    if not simulator_of(resolved.options).ours:
        return 1
    if count > 1 and resolved.options.runtime is RuntimeKind.COMPOSE:
        resolved.clear()
        raise RefusedError(
            f"{program().keys.simulators} is {count}, and Compose runs one simulator: use --runtime process, or set it "
            "to 1."
        )
    return count


def _uuids(resolved: Resolved) -> tuple[str, str]:
    cards = resolved.options.gpu or Cards()
    return resolved.memory.card_uuid(cards.simulator), resolved.memory.card_uuid(cards.agent)


def _state(
    options: RunOptions, before: LauncherState | None, spec: RunSpec, planned: PlanResult, limits: LauncherConfig
) -> LauncherState:
    """Return where the run stands as it begins: an old one on its own rung, a new one on the plan's.

    Saved are the options with what was left open as it was chosen, but for the cards' numbers.
    """
    chosen = {"config": spec.config, "runtime": spec.options.runtime}
    if spec.simulator.ours:
        chosen["simulator"] = spec.options.simulator
    saved, quality = options.model_copy(update=chosen), spec.simulator.quality(limits.simulator)
    if before is None:
        before = LauncherState(spec.run.path.name, saved, spec.host, spec.port, taken=_starting_steps(planned))
    return replace(before, options=saved, host=spec.host, port=spec.port, quality=quality, gpu_uuids=spec.gpu_uuids)


def _starting_steps(planned: PlanResult) -> tuple[Taken, ...]:
    """Return the rung that a new run starts on, as the plan chose it."""
    chosen, ladder = planned.plan.start, planned.situation.ladder
    return tuple(
        Taken(step.rung, kind_of(step, ladder).value, planned.plan.reason, dict(step.values), step.quality)
        for step in (chosen.steps if chosen is not None else ())
    )


def _port(options: RunOptions, before: LauncherState | None, runtime: RuntimeKind, count: int) -> int:
    """Return the first of the simulators' ports, so many in a row.

    One that wasn't given may change where another process has it now.
    """
    if options.port is not None:
        return options.port
    if options.simulator_host is not None:
        return CARLA_PORT
    if before is not None and before.host == LOOPBACK:
        containers_left = runtime is RuntimeKind.COMPOSE  # the run's own may still have it
        if containers_left or not any(map(ports.holder, range(before.port, before.port + count))):
            return before.port
    port = ports.free_ports(random.Random(), count)
    if port is None:
        raise RefusedError(
            f"No {count} neighbouring ports are free on 127.0.0.1: name the first with --port.", Exit.NO_SIMULATOR
        )
    return port
