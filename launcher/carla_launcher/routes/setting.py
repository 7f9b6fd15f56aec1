"""Makes of the options what the lanes of an evaluation share on this machine: addresses, memory, what starts programs.

Owns the refusals of what the machine hasn't.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

from carla_launcher import hooks, ports, up
from carla_launcher.act.journal import Journal
from carla_launcher.act.local.processes import Program
from carla_launcher.act.local.runtime import LocalRuntime
from carla_launcher.act.run_spec import RunSpec
from carla_launcher.act.runtime import Role, Runtime
from carla_launcher.config import LauncherConfig
from carla_launcher.observe.health import Address
from carla_launcher.observe.memory import MemoryReader
from carla_launcher.observe.pools import Gpu
from carla_launcher.options import RefusedError, RunOptions, RuntimeKind, SimulatorKind
from carla_launcher.resolve import cards, choosing, prepare
from carla_launcher.resolve.machine import CARLA_PORT, spec_of
from carla_launcher.routes.desk import Assignment
from carla_launcher.simulators import PORTS, Carla, asked_for, simulator_of
from carla_run.configuration.routes_section import Routes
from carla_run.paths import RunPaths
from carla_run.signals import StopRequests

WITHOUT_COMMAND = (
    "Nothing here says how CARLA is started: give its command in the launcher's configuration "
    "(simulator.command), name one that runs (--simulator-host), or choose --simulator carla-lite, whose scores are "
    "another world's."
)


@dataclass(frozen=True)
class Setting:
    """Shared by all lanes of an evaluation.

    Attributes:
        config: the launcher's; its agent's grace is that of a drive.
        drives: what is to be driven next in each simulator, by its number.
    """

    spec: RunSpec
    config: LauncherConfig
    rules: Routes
    journal: Journal
    memory: MemoryReader
    runtime: Runtime
    drives: dict[int, Program]
    stop: StopRequests
    say: up.Say

    @property
    def has_simulator(self) -> bool:
        """Return whether there is a simulator that the launcher starts, or looks at."""
        return self.spec.simulator.exists and not self.rules.simulator.by_program

    def program(self, drive: Assignment, address: Address) -> Program:
        """Return what drives an item, in the simulator at an address."""
        places = {
            "item": drive.item,
            "host": address.host,
            "port": str(address.port),
            "tm_port": str(self._free_port()),
            "result": str(drive.result),
            "folder": str(drive.folder),
            "gpu": str(self.spec.cards.agent),
        }
        known = {"CARLA_HOST": places["host"], "CARLA_PORT": places["port"], "CARLA_TM_PORT": places["tm_port"]}
        uuid = self.memory.card_uuid(self.spec.cards.agent)
        card = {"CUDA_VISIBLE_DEVICES": uuid} if uuid else {}
        environment = {"PYTHONUNBUFFERED": "1", **known, **card, **self.rules.variables(places)}
        words, grace_s = self.rules.words(places), self.rules.stop_grace_s
        return Program(Role.AGENT, words, drive.log, grace_s, environment, folder=self.rules.folder)

    def _free_port(self) -> int:
        """Return a port that no simulator of this evaluation has, also while it is started again."""
        draw, taken = random.Random(), range(self.spec.port, self.spec.port + PORTS * self.spec.simulators)
        while (port := ports.free_ports(draw, 1)) in taken:
            pass
        return port or 0


@contextlib.contextmanager
def setting_of(
    run: RunPaths,
    asked: RunOptions,
    simulators: int,
    limits: LauncherConfig,
    rules: Routes,
    journal: Journal,
    lock: int,
    stop: StopRequests,
    say: up.Say,
) -> Iterator[Setting]:
    """Give what the lanes share; the card that simulators draw on is held for this launcher meanwhile.

    Args:
        run: the evaluation's.
        asked: for the simulators.
        simulators: how many.
        limits: the launcher's configuration.
        rules: the program file's.
        journal: of the evaluation; its state gets the simulators' address.
        lock: descriptor of the run's lock, which everything that is started holds, too.
        stop: requests to stop.
        say: prints a line.

    Raises:
        ExitError: this machine has no such simulators, card or ports.
    """
    picked = cards.pick(asked)
    memory = MemoryReader(run.path, picked, allotted_mib=hooks.memory_limit_mib(), in_job=hooks.in_job())
    cards.refuse_without_any(asked, memory.read().gpu)
    wanted = asked.model_copy(update={"runtime": RuntimeKind.PROCESS, "gpu": picked})
    spec, which = _spec(run, wanted, simulators, limits, rules, memory)
    needed = (picked.simulator,) if spec.simulator.needs_card or rules.simulator.by_program else ()
    with contextlib.ExitStack() as held:
        cards_held = held.enter_context(up.cards_held(memory, needed, asked.share_gpu, say))
        spec = replace(spec, inherited=(lock, *cards_held))
        drives: dict[int, Program] = {}
        local = LocalRuntime(spec, limits, show=False, beside=drives.__getitem__)
        runtime = held.enter_context(contextlib.closing(local))
        journal.change(host=spec.host, port=spec.port)
        say(f"evaluation {run.path}: {which}")
        yield Setting(spec, limits, rules, journal, memory, runtime, drives, stop, say)


def _spec(
    run: RunPaths, asked: RunOptions, simulators: int, limits: LauncherConfig, rules: Routes, memory: MemoryReader
) -> tuple[RunSpec, str]:
    """Return what simulators are started with, and which they are, for a person."""
    if rules.simulator.by_program:
        options, which = asked.model_copy(update={"simulator": SimulatorKind.ELSEWHERE}), "its program starts CARLA"
    else:
        if asked.simulator is SimulatorKind.ELSEWHERE and asked.simulator_host is None:
            raise RefusedError(choosing.WITHOUT_ADDRESS)
        reading, named, installed = memory.read(), asked_for(asked), limits.simulator.command is not None
        if not installed and (named is Carla or (named is None and reading.gpu is Gpu.OK)):
            raise RefusedError(WITHOUT_COMMAND)
        options, reason = choosing.choose(asked, reading, installed)
        which = f"{options.simulator.value} ({reason})"
        if simulators > 1 and simulator_of(options).kind is SimulatorKind.ELSEWHERE:
            raise RefusedError(
                f"--simulators is {simulators}; expected 1, as the simulator that runs elsewhere is one."
            )
    here = rules.simulator.by_program or simulator_of(options).kind is not SimulatorKind.ELSEWHERE
    spec = replace(spec_of(run, options), simulators=simulators)
    spec = replace(spec, port=prepare.port_of(options, PORTS * simulators) if here else options.port or CARLA_PORT)
    up.refuse_taken_ports(spec, first_start=True)
    return spec, which
