"""What a plan stands on: card, memory, what is run here, whom to ask for sizes. ``plan`` and ``up`` both ask here.

Owns the refusals of what the machine hasn't. Starts nothing but a question to Docker, and writes nothing.
"""

from __future__ import annotations

import contextlib
import importlib.util
from dataclasses import dataclass
from typing import TYPE_CHECKING

from contract.exits import Exit, ExitError
from launcher.act.run_spec import LOOPBACK, Setup
from launcher.act.runtime import Role, StartError
from launcher.config import LauncherConfig
from launcher.observe.memory import MemoryReader
from launcher.observe.nvml import Nvml
from launcher.observe.pools import OwnerKind, Reading
from launcher.options import RuntimeKind, Wish
from launcher.resolve import agent_args, cards, choosing
from launcher.resolve.choosing import Choice
from launcher.resolve.footprint import Footprint
from launcher.resolve.planning import ImpossibleError, PlanRequest, Simulates

if TYPE_CHECKING:
    from launcher.act.compose.runtime import ComposeRuntime

CARLA_PORT = 2000
WHOSE = {Role.SIMULATOR: OwnerKind.SIMULATOR, Role.AGENT: OwnerKind.AGENT}


class RefusedError(ExitError):
    """The wish can't be granted; the message is one sentence, nothing was started or changed."""

    code = Exit.BAD_CONFIG


@dataclass(frozen=True)
class Basis:
    """What a plan stands on: this machine's memory and cards, what is run here, and whom to ask for sizes.

    Attributes:
        stack: the runtime of containers, if that was chosen.
        gpu_index: of the card that is planned with, as the driver counts.
        remark: what the plan doesn't count with, a sentence; empty if nothing.
    """

    choice: Choice
    survey: MemoryReader
    asked: PlanRequest
    reading: Reading
    footprint: Footprint
    stack: ComposeRuntime | None
    gpu_index: int
    remark: str

    def clear(self) -> None:
        """Remove what a question to the agent's container left, a network; harmless where none was asked."""
        if self.stack is not None and not _agent_is_here():
            with contextlib.suppress(StartError):
                self.stack.clear()


def lay(wanted: Wish, limits: LauncherConfig, remembered: str = "") -> Basis:
    """Return what a plan of a wish stands on.

    Args:
        wanted: complete.
        limits: the launcher's configuration.
        remembered: the card that the run has had, if it goes on and no other is named.

    Raises:
        RefusedError: the machine isn't what the wish needs, or nobody can say what it is.
    """
    try:
        card = cards.pick(wanted, remembered)
        survey = MemoryReader(wanted.run.path, Nvml(card.index))
        reading = survey.read()
        choice = choosing.choose(wanted, reading, limits.simulator.command is not None)
        _refuse_another_card(choice, card.index, limits)
        stack = None
        if choice.runtime is RuntimeKind.COMPOSE:
            stack = compose_of(_any_setup(wanted), limits, choice)
            survey.expect_containers(_containers_mib(stack))
            reading = survey.read()
            stack.close()
        asked = PlanRequest(
            *(wanted.run.path.parent, choice.simulator, wanted.quality, wanted.device),
            *(wanted.policy, wanted.map, card.index),
        )
        remark = card.remark if stack is not None and choice.simulator is Simulates.CARLA else ""
        return Basis(choice, survey, asked, reading, _footprint(wanted, stack), stack, card.index, remark)
    except StartError as error:
        raise RefusedError(str(error)) from None
    except ImpossibleError as error:
        raise RefusedError(str(error), error.code) from None


def _refuse_another_card(choice: Choice, index: int, limits: LauncherConfig) -> None:
    """Refuse to have an installed CARLA draw on another card than is planned: it takes the first unless it is told."""
    installed = choice.runtime is RuntimeKind.PROCESS and choice.simulator is Simulates.CARLA
    if installed and index > 0 and not limits.simulator.picks_gpu:
        raise RefusedError(
            f"simulator.command doesn't say on which card CARLA draws, expected GPU {index}: add "
            "-graphicsadapter={gpu} to it, or leave --gpu out."
        )


def _agent_is_here() -> bool:
    return importlib.util.find_spec("torch") is not None


def _footprint(wanted: Wish, stack: ComposeRuntime | None) -> Footprint:
    """Return whom to ask for the agent's sizes: the agent that is installed here, else the one in the image."""
    if _agent_is_here():
        return Footprint(str(wanted.config), settings=_settings(wanted))
    if stack is None:
        raise RefusedError(
            "PyTorch isn't installed beside the launcher, so nobody can say what the agent takes: "
            "`pip install '.[agent]'` into this environment, or take containers (--runtime compose)."
        )
    stack.expect_images(Role.AGENT)
    return Footprint(stack.config_inside(), stack.agent_command(), _settings(wanted), environment=stack.environment)


def _containers_mib(stack: ComposeRuntime) -> dict[OwnerKind, float]:
    """Return what the containers may take: what a plan must know of them before there are any."""
    found = stack.memory_limits_mib()
    return {whose: found[role] for role, whose in WHOSE.items() if role in found}


def _any_setup(wanted: Wish) -> Setup:
    """Return a setup for questions, before a port is chosen; it must be one, for Compose reads it."""
    return setup_of(wanted, CARLA_PORT, LOOPBACK)


def _settings(wanted: Wish) -> tuple[str, ...]:
    """Return what the agent's own options change, for the footprint to count it: ``--set`` among its arguments."""
    return tuple(words[1] for words in agent_args.by_key(wanted.agent_args).values() if words[0] == "--set")


def setup_of(
    wanted: Wish, port: int, host: str, inherited: tuple[int, ...] = (), gpu_uuid: str = "", gpu_index: int = 0
) -> Setup:
    """Return what either runtime starts a wish's programs with."""
    assert wanted.config is not None
    device = () if wanted.device is None else ("--device", wanted.device)
    return Setup(
        run=wanted.run,
        config=wanted.config,
        port=port,
        host=host,
        map=wanted.map,
        seed=wanted.seed,
        max_timesteps=wanted.max_timesteps,
        agent_args=(*device, *wanted.agent_args),
        simulator_args=wanted.simulator_args,
        inherited=inherited,
        gpu_uuid=gpu_uuid,
        gpu_index=gpu_index,
        stack=wanted.stack,
    )


def compose_of(setup: Setup, limits: LauncherConfig, choice: Choice) -> ComposeRuntime:
    """Return the runtime of containers."""
    # The engine's SDK takes memory and half a second: only a run of containers pays for it.
    from launcher.act.compose.runtime import ComposeRuntime

    return ComposeRuntime(setup, limits, lite=choice.simulator is Simulates.LITE)
