"""Resolves options on this machine: GPUs, memory, simulator, runtime, and the source of the agent's sizes.

Refuses what the machine can't do. ``plan`` and ``up`` both begin here.
"""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from carla_launcher import hooks
from carla_launcher.act.compose.daemon_errors import explanation
from carla_launcher.act.run_spec import LOOPBACK, RunSpec
from carla_launcher.act.runtime import Role, StartError
from carla_launcher.config import LauncherConfig
from carla_launcher.decide.nodes import node_reading
from carla_launcher.observe.memory import MemoryReader
from carla_launcher.observe.pools import Cards, OwnerKind, PoolKind, Reading
from carla_launcher.options import RefusedError, RunOptions, RuntimeKind
from carla_launcher.places import DEFAULT_CONFIG
from carla_launcher.resolve import agent_args, cards, choosing, commands
from carla_launcher.resolve.footprint import Footprint, program
from carla_launcher.resolve.planning import PlanResult, SizedProgram, make_plan
from carla_launcher.simulators import simulator_of
from carla_run.paths import RunPaths

if TYPE_CHECKING:
    from carla_launcher.act.compose.runtime import ComposeRuntime

CARLA_PORT = 2000


@dataclass(frozen=True)
class ResolvedRun:
    """A run on this machine, and the input of its plan.

    Attributes:
        spec: settings of the run; its ports aren't chosen yet.
        options: with simulator and runtime chosen.
        reason: why this simulator and runtime were chosen.
        stack: the Compose runtime, if that was chosen.
        obstacle: why containers can't have the GPU that they need, a sentence; empty if they can.
        note: which memory figures of containers are missing, a sentence; empty if all are known.
    """

    spec: RunSpec
    options: RunOptions
    reason: str
    memory: MemoryReader
    reading: Reading
    footprint: SizedProgram
    stack: ComposeRuntime | None
    obstacle: str
    note: str

    def plan(self, limits: LauncherConfig) -> PlanResult:
        """Return the plan.

        Raises:
            ExitError: the run can't be planned.
        """
        return make_plan(self.spec, self.options, limits, self.reading, self.footprint)

    def clear(self) -> None:
        """Remove the network that a query of the agent's container left; harmless without one."""
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
) -> ResolvedRun:
    """Return the run that options describe on this machine. May query Docker.

    Args:
        run: its folder need not exist.
        asked: the options.
        limits: the launcher's configuration.
        remembered: UUIDs of the GPUs that simulator and agent used before; empty for none, or if others are named.
        node_mib: memory of a cluster's node, to plan for it; None for this machine.
        starts: the run will be started; False for a plan.

    Raises:
        RefusedError: the machine can't do what the options ask for.
        StartError: the Compose stack can't be used.
    """
    picked = cards.pick(asked, remembered)
    memory = MemoryReader(run.path, picked, allotted_mib=hooks.memory_limit_mib(), in_job=hooks.in_job())
    reading = memory.read()
    installed = limits.simulator.command is not None
    if node_mib is not None:
        reading, installed = node_reading(reading, node_mib), True
        asked = asked.model_copy(update={"runtime": RuntimeKind.PROCESS})
    # A command that began with a GPU may be resumed without it: it has no --device, and its --gpu then has no effect.
    if not (asked.command and run.launcher_state.exists()):
        cards.refuse_without_any(asked, reading.gpu)
    options, reason = choosing.choose(asked, reading, installed, starts=starts)
    spec = spec_of(run, options.model_copy(update={"gpu": picked}))
    if starts:
        _refuse_another_card(spec, limits)
    stack, obstacle, note = None, "", ""
    expected = commands.container_mib(spec.command)
    if spec.in_containers:
        stack = compose_of(spec, limits)
        obstacle, note = stack.obstacle, stack.not_counted
        # A plan needs the containers' limits before the containers exist.
        expected |= {} if note else {OwnerKind(role.value): mib for role, mib in stack.memory_limits_mib().items()}
        stack.close()
    if expected:
        memory.expect_containers(expected)
        reading = memory.read()
    footprint = _sized(spec, options, stack)
    return ResolvedRun(spec, options, reason, memory, reading, footprint, stack, obstacle, note)


def spec_of(run: RunPaths, options: RunOptions, port: int = CARLA_PORT) -> RunSpec:
    """Return the settings of a run whose options name simulator and runtime."""
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
    settings = {**hooks.cluster_settings(options), program().keys.simulators: options.collectors}
    words = (("--set", f"{key}={value}") for key, value in settings.items() if value is not None)
    return (*(word for pair in words for word in pair), *options.agent_args)


def compose_of(spec: RunSpec, limits: LauncherConfig) -> ComposeRuntime:
    """Return the Compose runtime."""
    # The engine's SDK takes memory and half a second: only a run of containers pays for it.
    from carla_launcher.act.compose.runtime import ComposeRuntime

    return ComposeRuntime(spec, limits)


def _refuse_another_card(spec: RunSpec, limits: LauncherConfig) -> None:
    """Refuse to start an installed CARLA that would render on another GPU than planned; its default is the first."""
    installed = spec.simulator.needs_card and not spec.in_containers
    if installed and spec.simulator.card > 0 and not limits.simulator.picks_gpu:
        raise RefusedError(
            f"simulator.command doesn't choose the GPU on which CARLA renders, expected GPU {spec.simulator.card}: add "
            "-graphicsadapter={gpu} to it, or leave out --gpu."
        )


def _agent_is_here() -> bool:
    return importlib.util.find_spec("torch") is not None


def _sized(spec: RunSpec, options: RunOptions, stack: ComposeRuntime | None) -> SizedProgram:
    if spec.command is not None:
        return commands.CommandSizes(spec.command)
    return _footprint(spec, agent_args.settings(_agent_words(options)), stack)


def _footprint(spec: RunSpec, settings: Sequence[str], stack: ComposeRuntime | None) -> Footprint:
    """Return the source of the agent's sizes: the installed agent, else the one in the image."""
    if _agent_is_here():
        return Footprint(str(spec.config), settings=settings)
    if stack is None:
        raise RefusedError(
            "PyTorch isn't installed here, so the agent can't say how much memory it needs: "
            "`pip install '.[agent]'` into this environment, or use containers (--runtime compose)."
        )
    if stack.obstacle:
        raise RefusedError(stack.obstacle)
    stack.expect_images(Role.AGENT)
    command, environment = stack.agent_command(), stack.environment
    return Footprint(stack.config_inside(), command, settings, environment=environment, explain=explanation)
