"""The options on this machine: cards, memory, simulator and runtime, and what is asked for the agent's sizes.

Owns the refusals of what the machine hasn't. ``plan`` and ``up`` both begin here.
"""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from carla_launcher import hooks
from carla_launcher.act.compose.daemon_words import explained
from carla_launcher.act.run_spec import LOOPBACK, RunSpec
from carla_launcher.act.runtime import Role, StartError
from carla_launcher.config import DEFAULT_CONFIG, LauncherConfig
from carla_launcher.decide.nodes import node_reading
from carla_launcher.observe.memory import MemoryReader
from carla_launcher.observe.pools import Cards, OwnerKind, PoolKind, Reading
from carla_launcher.options import RefusedError, RunOptions, RuntimeKind
from carla_launcher.resolve import agent_args, cards, choosing, cluster, commands
from carla_launcher.resolve.footprint import Footprint
from carla_launcher.resolve.planning import PlanRequest, PlanResult, SizedProgram, make_plan
from carla_launcher.simulators import simulator_of
from carla_run.paths import RunPaths

if TYPE_CHECKING:
    from carla_launcher.act.compose.runtime import ComposeRuntime

CARLA_PORT = 2000
OWNER_OF = {Role.SIMULATOR: OwnerKind.SIMULATOR, Role.AGENT: OwnerKind.AGENT}


@dataclass(frozen=True)
class Resolved:
    """A run as it is on this machine, and what a plan of it is made from.

    Attributes:
        spec: with simulator, runtime, cards and the agent's command; its ports aren't known yet.
        reason: for simulator and runtime.
        stack: the runtime of containers, if that was chosen.
        obstacle: why containers can't have the GPU that they need, a sentence; empty if nothing says so.
        note: which figures of the containers can't be trusted, a sentence; empty where all can.
    """

    spec: RunSpec
    reason: str
    request: PlanRequest
    memory: MemoryReader
    reading: Reading
    footprint: SizedProgram
    stack: ComposeRuntime | None
    obstacle: str
    note: str

    def plan(self, limits: LauncherConfig) -> PlanResult:
        """Return what fits.

        Raises:
            ExitError: nothing can be planned.
        """
        return make_plan(self.request, limits, self.reading, self.footprint)

    def clear(self) -> None:
        """Remove what a question to the agent's container left, a network; harmless where none was asked."""
        if self.stack is not None and self.spec.command is None and not _agent_is_here():
            with contextlib.suppress(StartError):
                self.stack.clear()


def resolve(
    run: RunPaths,
    asked: RunOptions,
    limits: LauncherConfig,
    remembered: tuple[str, str] = ("", ""),
    node_mib: Mapping[PoolKind, float] | None = None,
    starts: bool = True,
) -> Resolved:
    """Return what the options come to; Docker may be asked.

    Args:
        run: its folder need not exist.
        asked: for it.
        limits: the launcher's configuration.
        remembered: UUIDs of the cards that simulator and agent have had; empty for none, or where others are named.
        node_mib: for a cluster's node that has this instead of what this machine has, and starts its simulators by
            itself; None for this machine.
        starts: the run is to be started; False for a plan, which needs nothing that starts a simulator.

    Raises:
        RefusedError: the machine isn't what the options need.
        StartError: the Compose stack can't be used.
    """
    picked = cards.pick(asked, remembered)
    memory = MemoryReader(run.path, picked, allotted_mib=hooks.memory_limit_mib())
    reading = memory.read()
    installed = limits.simulator.command is not None
    if node_mib is not None:
        reading, installed = node_reading(reading, node_mib), True
        asked = asked.model_copy(update={"runtime": RuntimeKind.PROCESS})
    options, reason = choosing.choose(asked, reading, installed, starts=starts)
    spec = spec_of(run, options.model_copy(update={"gpu": picked}))
    if starts:
        _refuse_another_card(spec, limits)
    stack, obstacle, note = None, "", ""
    if spec.in_containers:
        stack = compose_of(spec, limits)
        obstacle, note = stack.obstacle, stack.not_counted
        if not note:
            memory.expect_containers(_containers_mib(stack))
        reading = memory.read()
        stack.close()
    runs, footprint = run.path.parent, _sized(spec, options, stack)
    request = PlanRequest(spec.simulator, picked, runs, options.device, options.policy, options.ignore_measured)
    return Resolved(spec, reason, request, memory, reading, footprint, stack, obstacle, note)


def spec_of(run: RunPaths, options: RunOptions, port: int = CARLA_PORT) -> RunSpec:
    """Return what a run is started with whose options leave neither simulator nor runtime open."""
    return RunSpec(
        run,
        simulator_of(options),
        port,
        options.simulator_host or LOOPBACK,
        options.config or DEFAULT_CONFIG,
        (*options.words(*agent_args.OWN), *_agent_words(options)),
        options.gpu or Cards(),
        options.runtime is RuntimeKind.COMPOSE,
        options.stack,
        on_cluster=options.cluster is not None,
        command=commands.command_of(options),
    )


def _agent_words(options: RunOptions) -> tuple[str, ...]:
    return (*cluster.agent_words(options), *options.agent_args)


def compose_of(spec: RunSpec, limits: LauncherConfig) -> ComposeRuntime:
    """Return the runtime of containers."""
    # The engine's SDK takes memory and half a second: only a run of containers pays for it.
    from carla_launcher.act.compose.runtime import ComposeRuntime

    return ComposeRuntime(spec, limits)


def _refuse_another_card(spec: RunSpec, limits: LauncherConfig) -> None:
    """Refuse to have an installed CARLA draw on another card than is planned: it takes the first by default."""
    installed = spec.simulator.needs_card and not spec.in_containers
    if installed and spec.simulator.card > 0 and not limits.simulator.picks_gpu:
        raise RefusedError(
            f"simulator.command doesn't say on which card CARLA draws, expected GPU {spec.simulator.card}: add "
            "-graphicsadapter={gpu} to it, or leave --gpu out."
        )


def _agent_is_here() -> bool:
    return importlib.util.find_spec("torch") is not None


def _sized(spec: RunSpec, options: RunOptions, stack: ComposeRuntime | None) -> SizedProgram:
    if spec.command is not None:
        return commands.CommandSizes(spec.command)
    return _footprint(spec, agent_args.settings(_agent_words(options)), stack)


def _footprint(spec: RunSpec, settings: Sequence[str], stack: ComposeRuntime | None) -> Footprint:
    """Return the agent that is asked for its sizes: the one that is installed here, else the one in the image."""
    if _agent_is_here():
        return Footprint(str(spec.config), settings=settings)
    if stack is None:
        raise RefusedError(
            "PyTorch isn't installed beside the launcher, so what the agent takes can't be asked: "
            "`pip install '.[agent]'` into this environment, or take containers (--runtime compose)."
        )
    if stack.obstacle:
        raise RefusedError(stack.obstacle)
    stack.expect_images(Role.AGENT)
    command, environment = stack.agent_command(), stack.environment
    return Footprint(stack.config_inside(), command, settings, environment=environment, explain=explained)


def _containers_mib(stack: ComposeRuntime) -> dict[OwnerKind, float]:
    """Return the containers' memory limits: what a plan must know of them before there are any."""
    found = stack.memory_limits_mib()
    return {kind: found[role] for role, kind in OWNER_OF.items() if role in found}
