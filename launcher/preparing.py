"""From a wish to a run that only has to be begun: what it goes on with, what fits, which rung it is on.

Owns what a second ``up`` may ask for. Starts nothing but a question for the agent's sizes, and writes nothing.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, replace
from pathlib import Path

from launcher import basis, outfit, ports
from launcher.basis import CARLA_PORT, Basis
from launcher.basis import RefusedError as RefusedError
from launcher.choosing import Choice
from launcher.config import LauncherConfig
from launcher.exits import Exit
from launcher.memory.pools import Gpu
from launcher.memory.survey import Survey
from launcher.planning import outlook
from launcher.planning.footprint import FootprintError
from launcher.planning.outlook import ImpossibleError, Outlook, Simulates
from launcher.planning.steps import PolicyError
from launcher.run_directory import RunDirectory
from launcher.runtimes.setup import LOOPBACK
from launcher.supervising.journal import LauncherState, recall
from launcher.wish import RuntimeKind, Wish

DEFAULT_CONFIG = Path("config/td3_config_lowmem.yaml")


@dataclass(frozen=True)
class Prepared:
    """A run that only has to be begun.

    Attributes:
        card: name of the GPU that simulator and agent are given; empty for none, and where Compose's variables name it.
        again: an earlier launcher left its state, perhaps also containers.
        goes_on: the agent has collected something already.
    """

    wish: Wish
    basis: Basis
    outlook: Outlook
    state: LauncherState
    card: str
    again: bool
    goes_on: bool

    @property
    def choice(self) -> Choice:
        """Return which simulator is run by what."""
        return self.basis.choice

    @property
    def survey(self) -> Survey:
        """Return the reader of the run's memory."""
        return self.basis.survey

    @property
    def uses_card(self) -> bool:
        """Return whether the GPU is there and simulator or agent need it."""
        situation = self.outlook.situation
        needs = situation.base["device"] == "cuda" or self.choice.simulator is Simulates.CARLA
        return situation.reading.gpu is Gpu.OK and needs


def default_name(now: float) -> str:
    """Return ``run-20260131-235959``: the start in local time."""
    return time.strftime("run-%Y%m%d-%H%M%S", time.localtime(now))


def prepare(wanted: Wish, limits: LauncherConfig) -> Prepared:
    """Return the run that a wish comes to: a new one on the plan's rung, or an old one on its own.

    Raises:
        RefusedError: it can't be had.
    """
    named = wanted.gpu
    wanted, before = understood(wanted)
    remembered = before.gpu_uuid if before is not None and named is None else ""
    if remembered:
        wanted = replace(wanted, gpu=None)  # its name holds where the machine counts anew, its number doesn't
    assert wanted.config is not None
    found = basis.lay(wanted, limits, remembered)
    try:
        foreseen = outlook.foresee(found.asked, limits, found.reading, found.footprint)
    except (FootprintError, PolicyError) as error:
        raise RefusedError(str(error)) from None
    except ImpossibleError as error:
        raise RefusedError(str(error), error.code) from None
    if before is None and foreseen.plan.start is None:
        raise RefusedError(f"{foreseen.plan.reason[0].upper()}{foreseen.plan.reason[1:]}.", Exit.CANNOT_FIT)
    choice = found.choice
    state = before or _new_state(wanted, choice, foreseen)
    if choice.runtime is RuntimeKind.PROCESS:  # left containers keep theirs
        state.port = wanted.port or state.port
    state.chosen = {"config": str(wanted.config.resolve()), "simulator": choice.simulator.value}
    state.chosen |= {"policy": list(wanted.policy) if wanted.policy else None, "device": wanted.device}
    again = before is not None
    goes_on = again and wanted.run.holds_a_run()
    card = "" if found.remark else found.survey.card_uuid()
    prepared = Prepared(wanted, found, foreseen, state, card, again, goes_on)
    if not prepared.uses_card:
        prepared = replace(prepared, card="")
    state.gpu_uuid = prepared.card
    return prepared


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
