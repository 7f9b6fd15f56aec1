"""From a wish to a run that only has to be begun: what it goes on with, what fits, which rung it is on.

Owns what a second ``up`` may ask for. Starts nothing but a question for the agent's sizes, and writes nothing.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from contract.exits import Exit
from contract.paths import RunPaths
from launcher import config, ports, wiring
from launcher.act.journal import LauncherState, Recalled, UnusableStateError, recall
from launcher.act.run_spec import LOOPBACK
from launcher.config import LauncherConfig, LauncherConfigError
from launcher.decide.ladder import PolicyError
from launcher.observe.memory import MemoryReader
from launcher.observe.pools import Gpu
from launcher.options import RuntimeKind, Wish
from launcher.resolve import basis, planning, resuming
from launcher.resolve.basis import CARLA_PORT, Basis
from launcher.resolve.basis import RefusedError as RefusedError
from launcher.resolve.choosing import Choice
from launcher.resolve.footprint import FootprintError
from launcher.resolve.planning import ImpossibleError, PlanResult, Simulates

DEFAULT_CONFIG = Path("config/td3_config_lowmem.yaml")


@dataclass(frozen=True)
class Prepared:
    """A run that only has to be begun.

    Attributes:
        goes_on: the agent has collected something already.
    """

    wish: Wish
    basis: Basis
    planned: PlanResult
    state: LauncherState
    goes_on: bool
    understood: Understood

    @property
    def choice(self) -> Choice:
        """Return which simulator is run by what."""
        return self.basis.choice

    @property
    def survey(self) -> MemoryReader:
        """Return the reader of the run's memory."""
        return self.basis.survey

    @property
    def uses_card(self) -> bool:
        """Return whether the GPU is there and simulator or agent need it."""
        situation = self.planned.situation
        needs = situation.base["device"] == "cuda" or self.choice.simulator is Simulates.CARLA
        return situation.reading.gpu is Gpu.OK and needs

    @property
    def card(self) -> str:
        """Return the UUID of the GPU that simulator and agent are given; empty for none, and where Compose's variables
        name it."""
        return self.survey.card_uuid() if self.uses_card and not self.basis.remark else ""


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
    # A card's UUID holds where the machine counts anew, its number doesn't.
    remembered = found.before.gpu_uuid if found.before is not None and wanted.gpu is None else ""
    wanted, before = found.wish, found.before
    assert wanted.config is not None
    stands_on = basis.lay(wanted.model_copy(update={"gpu": None}) if remembered else wanted, limits, remembered)
    try:
        planned = _make_plan(stands_on, limits, begins=before is None)
    except RefusedError:
        stands_on.clear()
        raise
    goes_on = wanted.run.holds_a_run()
    prepared = Prepared(wanted, stands_on, planned, _state(wanted, before, stands_on.choice, planned), goes_on, found)
    prepared.state.gpu_uuid = prepared.card
    return prepared


def _make_plan(stands_on: Basis, limits: LauncherConfig, begins: bool) -> PlanResult:
    try:
        planned = planning.make_plan(stands_on.asked, limits, stands_on.reading, stands_on.footprint)
    except (FootprintError, PolicyError) as error:
        raise RefusedError(str(error)) from None
    except ImpossibleError as error:
        raise RefusedError(str(error), error.code) from None
    if begins and planned.plan.start is None:
        raise RefusedError(f"{planned.plan.reason[0].upper()}{planned.plan.reason[1:]}.", Exit.OUT_OF_MEMORY)
    return planned


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
    if found.wish.simulator is Simulates.ELSEWHERE and found.wish.simulator_host is None:
        raise RefusedError("--simulator elsewhere doesn't say where: name its machine with --simulator-host.")
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


def _recalled(run: RunPaths) -> tuple[Recalled | None, str]:
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


def _state(wanted: Wish, before: LauncherState | None, choice: Choice, planned: PlanResult) -> LauncherState:
    """Return where the run stands as it begins: an old one on its own rung, and what was left open as it was chosen."""
    assert wanted.config is not None
    simulator = choice.simulator
    chosen: dict[str, Any] = {"config": wanted.config.resolve(), "runtime": choice.runtime}
    chosen |= {} if simulator is Simulates.ELSEWHERE else {"simulator": simulator}
    now: dict[str, Any] = {
        "options": wanted.options().model_copy(update=chosen),
        "host": wanted.simulator_host or LOOPBACK,
        "port": _port(wanted, before, choice.runtime),
        "quality": wiring.quality_of(planned),
    }
    if before is not None:
        return replace(before, **now)
    return LauncherState(run=wanted.run.path.name, taken=wiring.starting_steps(planned), **now)


def _port(wanted: Wish, before: LauncherState | None, runtime: RuntimeKind) -> int:
    """Return the first of the simulator's ports; one that nobody named may change where somebody else has it now."""
    if wanted.port is not None:
        return wanted.port
    if wanted.simulator_host is not None:
        return CARLA_PORT
    if before is not None and before.host == LOOPBACK:
        containers_left = runtime is RuntimeKind.COMPOSE  # the run's own may still have it
        if containers_left or not any(map(ports.holder, range(before.port, before.port + 3))):
            return before.port
    port = ports.free_port_triple(random.Random())
    if port is None:
        raise RefusedError(
            "No three neighbouring ports are free on 127.0.0.1: name the first with --port.", Exit.NO_SIMULATOR
        )
    return port
