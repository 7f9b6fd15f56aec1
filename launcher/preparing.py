"""From a wish to a run that only has to be begun: what it goes on with, what runs it, what fits, which rung it is on.

Owns the refusals. Starts nothing but a question for the agent's sizes, and writes nothing.
"""

from __future__ import annotations

import importlib.util
import random
import shutil
import subprocess
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from launcher import outfit, ports, wish
from launcher.config import LauncherConfig
from launcher.exits import Exit
from launcher.memory.nvml import Nvml
from launcher.memory.pools import Whose
from launcher.memory.survey import Survey
from launcher.planning import outlook
from launcher.planning.footprint import Footprint, FootprintError
from launcher.planning.outlook import Asked, ImpossibleError, Outlook, Simulates
from launcher.planning.steps import PolicyError
from launcher.run_directory import RunDirectory
from launcher.runtimes.runtime import Role, StartError
from launcher.runtimes.setup import LOOPBACK, Setup
from launcher.supervising.journal import LauncherState, recall
from launcher.wish import Choice, RuntimeKind, Wish

if TYPE_CHECKING:
    from launcher.runtimes.compose import ComposeRuntime

CARLA_PORT = 2000
DOCKER_LIMIT_S = 10.0
WHOSE = {Role.SIMULATOR: Whose.SIMULATOR, Role.AGENT: Whose.AGENT}
DEFAULT_CONFIG = Path("config/td3_config_lowmem.yaml")


class RefusedError(Exception):
    """The wish can't be granted; the message is one sentence, nothing was started or changed."""

    def __init__(self, sentence: str, code: Exit = Exit.CONFIGURATION) -> None:
        super().__init__(sentence)
        self.code = code


@dataclass(frozen=True)
class Prepared:
    """A run that only has to be begun."""

    wish: Wish
    choice: Choice
    outlook: Outlook
    state: LauncherState
    survey: Survey
    goes_on: bool


def default_name(now: float) -> str:
    """Return ``run-20260131-235959``: the start in local time."""
    return time.strftime("run-%Y%m%d-%H%M%S", time.localtime(now))


def prepare(wanted: Wish, limits: LauncherConfig) -> Prepared:
    """Return the run that a wish comes to: a new one on the plan's rung, or an old one on its own.

    Raises:
        RefusedError: it can't be had.
    """
    wanted, before = understood(wanted)
    assert wanted.config is not None
    survey = Survey(wanted.run.path, Nvml(wanted.gpu))
    reading = survey.read()
    choice = wish.choose(wanted, reading.gpu, _docker_answers(wanted), limits.simulator.command is not None)
    if choice.runtime is RuntimeKind.COMPOSE:
        survey.expect_containers(_containers_mib(wanted, choice, limits))
        reading = survey.read()
    asked = Asked(
        wanted.run.path.parent, choice.simulator, wanted.quality, wanted.device, wanted.policy, wanted.map, wanted.gpu
    )
    try:
        foreseen = outlook.foresee(asked, limits, reading, _footprint(wanted, choice, limits))
    except (FootprintError, PolicyError, StartError) as error:
        raise RefusedError(str(error)) from None
    except ImpossibleError as error:
        raise RefusedError(str(error), error.code) from None
    if before is None and foreseen.plan.start is None:
        raise RefusedError(f"{foreseen.plan.reason[0].upper()}{foreseen.plan.reason[1:]}.", Exit.CANNOT_FIT)
    state = before or _new_state(wanted, choice, foreseen)
    state.chosen = {"config": str(wanted.config.resolve()), "simulator": choice.simulator.value}
    state.chosen |= {"policy": list(wanted.policy) if wanted.policy else None, "device": wanted.device}
    return Prepared(wanted, choice, foreseen, state, survey, goes_on=before is not None and wanted.run.holds_a_run())


def understood(wanted: Wish) -> tuple[Wish, LauncherState | None]:
    """Return the wish with all that it leaves open, and the run that it goes on with; raise what it can't be."""
    before = recall(wanted.run)
    killed = before is not None and before.state != "stopped"
    if wanted.run.holds_a_run() and not wanted.resume and not killed:
        raise RefusedError(
            f"{wanted.run.path} already holds a run: add --resume to go on with it, or choose another --run-name."
        )
    wanted = _completed(wanted, before)
    if wanted.config is None or not wanted.config.is_file():
        raise RefusedError(f"{wanted.config}: there is no such file; give the path of the agent's YAML with --config.")
    return wanted, before


def _completed(wanted: Wish, before: LauncherState | None) -> Wish:
    """Return the wish with what it doesn't say taken from the run that it goes on with, or from the defaults."""
    if before is None:
        return replace(wanted, config=wanted.config or _own_config(wanted.run) or DEFAULT_CONFIG)
    chosen, external = before.chosen, before.host != LOOPBACK
    policy = chosen.get("policy")
    return replace(
        wanted,
        config=wanted.config or Path(chosen.get("config") or _own_config(wanted.run) or DEFAULT_CONFIG),
        runtime=RuntimeKind(before.runtime) if wanted.runtime is RuntimeKind.AUTO else wanted.runtime,
        simulator=_kept(wanted.simulator, chosen.get("simulator")),
        quality=wanted.quality or before.quality,
        device=wanted.device or chosen.get("device"),
        policy=wanted.policy or (tuple(policy) if policy else None),
        map=wanted.map or before.map,
        seed=before.seed if wanted.seed is None else wanted.seed,
        simulator_host=wanted.simulator_host or (before.host if external else None),
        port=wanted.port or before.port,
    )


def _own_config(run: RunDirectory) -> Path | None:
    return run.config if run.config.is_file() and run.holds_a_run() else None


def _kept(wanted: Simulates, before: str | None) -> Simulates:
    known = {each.value for each in Simulates} - {Simulates.ELSEWHERE.value}
    return Simulates(before) if wanted is Simulates.AUTO and before in known else wanted


def _footprint(wanted: Wish, choice: Choice, limits: LauncherConfig) -> Footprint:
    """Return whom to ask for the agent's sizes: the agent that is installed here, else the one in the image."""
    if importlib.util.find_spec("torch") is not None or choice.runtime is not RuntimeKind.COMPOSE:
        return Footprint(str(wanted.config), settings=_settings(wanted))
    runtime = compose_of(_any_setup(wanted), limits, choice)
    return Footprint(runtime.config_inside(), runtime.agent_command(), _settings(wanted))


def _containers_mib(wanted: Wish, choice: Choice, limits: LauncherConfig) -> dict[Whose, float]:
    """Return what the containers may take: what a plan must know of them before there are any."""
    try:
        found = compose_of(_any_setup(wanted), limits, choice).memory_limits_mib()
    except StartError as error:
        raise RefusedError(str(error)) from None
    return {whose: found[role] for role, whose in WHOSE.items() if role in found}


def _any_setup(wanted: Wish) -> Setup:
    """Return a setup for questions, before a port is chosen; it must be one, for Compose reads it."""
    return setup_of(wanted, CARLA_PORT, LOOPBACK)


def _settings(wanted: Wish) -> tuple[str, ...]:
    """Return what the agent's own options change, for the footprint to count it: ``--set`` among its arguments."""
    pairs = zip(wanted.agent_args, wanted.agent_args[1:], strict=False)
    return tuple(value for name, value in pairs if name == "--set")


def _new_state(wanted: Wish, choice: Choice, foreseen: Outlook) -> LauncherState:
    return LauncherState(
        run=wanted.run.path.name,
        runtime=choice.runtime.value,
        host=wanted.simulator_host or LOOPBACK,
        port=_port(wanted),
        map=wanted.map,
        seed=wanted.seed,
        quality=outfit.quality_of(foreseen),
        taken=outfit.starting_steps(foreseen),
    )


def _port(wanted: Wish) -> int:
    if wanted.port is not None:
        return wanted.port
    if wanted.simulator_host is not None:
        return CARLA_PORT
    port = ports.free_port_triple(random.Random())
    if port is None:
        raise RefusedError(
            "No three neighbouring ports are free on 127.0.0.1: name the first with --port.", Exit.NO_SIMULATOR
        )
    return port


def _docker_answers(wanted: Wish) -> bool:
    if wanted.runtime is RuntimeKind.PROCESS or shutil.which("docker") is None:
        return False
    return subprocess.run(["docker", "info"], capture_output=True, check=False, timeout=DOCKER_LIMIT_S).returncode == 0


def setup_of(wanted: Wish, port: int, host: str, inherited: tuple[int, ...] = ()) -> Setup:
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
    )


def compose_of(setup: Setup, limits: LauncherConfig, choice: Choice) -> ComposeRuntime:
    """Return the runtime of containers."""
    # The engine's SDK takes memory and half a second: only a run of containers pays for it.
    from launcher.runtimes.compose import ComposeRuntime

    return ComposeRuntime(setup, limits, lite=choice.simulator is Simulates.LITE)
