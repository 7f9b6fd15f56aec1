"""From a wish to a run that only has to be begun: what it goes on with, what runs it, what fits, which rung it is on.

Owns the refusals. Starts nothing but a question for the agent's sizes, and writes nothing.
"""

from __future__ import annotations

import importlib.util
import random
import shutil
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from launcher import config, outfit, ports, resuming, wish
from launcher.config import LauncherConfig, LauncherConfigError
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
from launcher.supervising.journal import LauncherState, Recalled, UnusableStateError, recall
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
    understood: Understood


@dataclass(frozen=True)
class Understood:
    """What is asked for, all in all.

    Attributes:
        wish: with what it leaves open taken from the run that it goes on with.
        before: where that run stands; None for a new one, or where nobody knows.
        changed: options that are given anew, before and now.
        notes: sentences for a person.
    """

    wish: Wish
    before: LauncherState | None = None
    changed: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def default_name(now: float) -> str:
    """Return ``run-20260131-235959``: the start in local time."""
    return time.strftime("run-%Y%m%d-%H%M%S", time.localtime(now))


def prepare(wanted: Wish, limits: LauncherConfig) -> Prepared:
    """Return the run that a wish comes to: a new one on the plan's rung, or an old one on its own.

    Raises:
        RefusedError: it can't be had.
    """
    found = understood(wanted)
    wanted, before = found.wish, found.before
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
    goes_on = wanted.run.holds_a_run()
    return Prepared(wanted, choice, foreseen, _state(wanted, before, choice, foreseen), survey, goes_on, found)


def understood(given: Wish) -> Understood:
    """Return what a start is asked for, all in all.

    Raises:
        RefusedError: it can't be; nothing is written.
    """
    recalled, problem = _recalled(given.run)
    killed = recalled is not None and recalled.killed
    if given.run.holds_a_run() and not given.resume and not killed:
        why = f" ({problem})" if problem else ""
        raise RefusedError(
            f"{given.run.path} already holds a run{why}: add --resume to go on with it, or choose another --run-name."
        )
    found = _told(given, recalled if killed or given.resume else None, problem)
    path = found.wish.config
    if path is None or not path.is_file():
        raise RefusedError(f"{path}: there is no such file; give the path of the agent's YAML with --config.")
    return replace(found, before=None if recalled is None else recalled.state)


def limits_of(found: Understood) -> LauncherConfig:
    """Return the launcher's configuration as it is now.

    Raises:
        RefusedError: it can't be used.
    """
    try:
        return config.load(found.wish.launcher_config)
    except LauncherConfigError as error:
        raise RefusedError(f"--launcher-config {error}") from None


def _recalled(run: RunDirectory) -> tuple[Recalled | None, str]:
    """Return what the run's last launcher left, and why that can't be used, a clause."""
    try:
        return recall(run), ""
    except UnusableStateError as error:
        return None, str(error)


def _told(given: Wish, recalled: Recalled | None, problem: str) -> Understood:
    if recalled is None:
        own = given.run.config if given.run.config.is_file() and given.run.holds_a_run() else None
        path = given.config or own or DEFAULT_CONFIG
        notes = (f"{problem}; the run goes by {path} and by what is given now.",) if problem else ()
        return Understood(given.model_copy(update={"config": path}), notes=notes)
    found = resuming.resumed(given, recalled)
    changes = (f"{name}: {old} → {new}" for name, (old, new) in found.changed.items())
    return Understood(found.wish, changed=found.changed, notes=(*found.withheld, *changes))


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


def _state(wanted: Wish, before: LauncherState | None, choice: Choice, foreseen: Outlook) -> LauncherState:
    """Return where the run stands as it begins: an old one on its own rung, and what was left open as it was chosen."""
    assert wanted.config is not None
    port, simulator = _port(wanted), choice.simulator
    chosen = {"config": wanted.config.resolve(), "runtime": choice.runtime, "port": port}
    chosen |= {} if simulator is Simulates.ELSEWHERE else {"simulator": simulator}
    now: dict[str, Any] = {
        "options": wanted.options().model_copy(update=chosen),
        "host": wanted.simulator_host or LOOPBACK,
        "port": port,
        "quality": outfit.quality_of(foreseen),
    }
    if before is not None:
        return replace(before, **now)
    return LauncherState(run=wanted.run.path.name, taken=outfit.starting_steps(foreseen), **now)


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
