"""Makes of the options what the lanes of an evaluation share on this machine: addresses, memory, what starts programs.

Owns the refusals of what the machine hasn't.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from carla_launcher import hooks, ports, up, wiring
from carla_launcher.act.local.processes import Program, ShimmedProcess, Shims
from carla_launcher.act.local.runtime import LocalRuntime
from carla_launcher.act.run_spec import RunSpec
from carla_launcher.act.runtime import Role, Runtime, Start, StartError
from carla_launcher.config import LauncherConfig
from carla_launcher.observe.gpu_lock import GpuInUseError
from carla_launcher.observe.health import Address
from carla_launcher.observe.memory import MemoryReader
from carla_launcher.observe.pools import Gpu
from carla_launcher.observe.simulator import Questions
from carla_launcher.options import RefusedError, RunOptions, RuntimeKind, SimulatorKind
from carla_launcher.resolve import cards, choosing
from carla_launcher.resolve.machine import CARLA_PORT, spec_of
from carla_launcher.routes.desk import Assignment
from carla_launcher.routes.journal import RouteJournal
from carla_launcher.simulators import PORTS, asked_for, simulator_of
from carla_run.configuration.routes_section import Routes
from carla_run.exits import Exit
from carla_run.paths import RunPaths
from carla_run.signals import StopRequests

Say = Callable[[str], None]


WITHOUT_COMMAND = (
    "There is a GPU, and nothing here says how CARLA is started: give its command in the launcher's configuration "
    "(simulator.command), name one that runs (--simulator-host), or choose --simulator carla-lite, whose scores are "
    "another world's."
)


class DriveRuntime:
    """Starts what drives; a ``runtime.Runtime``."""

    def __init__(self, inherited: tuple[int, ...]) -> None:
        self._shims, self._next = Shims(inherited), dict[int, Program]()

    def set_program(self, lane: int, program: Program) -> None:
        """Say what a lane's next start starts."""
        self._next[lane] = program

    def start(self, start: Start) -> ShimmedProcess:
        """Start it.

        Raises:
            StartError: this machine has no room for another process.
        """
        program = self._next[start.number]
        try:
            return self._shims.start(program)
        except OSError as error:
            raise StartError(f"{program.command[0]} can't be started ({error.strerror}).") from None

    def left(self, role: Role) -> None:
        """Return None: what drives ends with its launcher."""

    def clear(self) -> None:
        """Do nothing: of a program that has ended nothing is left."""

    def close(self) -> None:
        """Let go of the lifelines."""
        self._shims.close()


@dataclass(frozen=True)
class Setting:
    """Shared by all lanes of an evaluation.

    Attributes:
        config: the launcher's; its agent's grace is that of a drive.
        card_uuid: of the card that drives compute on; empty for none in particular.
        questions: how each simulator is asked, by its number.
    """

    spec: RunSpec
    config: LauncherConfig
    rules: Routes
    journal: RouteJournal
    memory: MemoryReader
    simulators: Runtime
    drives: DriveRuntime
    questions: Callable[[int], Questions]
    card_uuid: str
    stop: StopRequests
    say: Callable[[str], None]

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
        card = {"CUDA_VISIBLE_DEVICES": self.card_uuid} if self.card_uuid else {}
        environment = {"PYTHONUNBUFFERED": "1", **known, **card, **self.rules.variables(places)}
        words, grace_s = self.rules.words(places), self.rules.stop_grace_s
        return Program(Role.AGENT, words, drive.log, grace_s, environment, folder=self.rules.folder)

    def _free_port(self) -> int:
        """Return a port that no simulator of this evaluation has, also while it is started again."""
        draw, taken = random.Random(), range(self.spec.port, self.spec.port + PORTS * self.spec.simulators)
        while (port := ports.free_ports(draw, 1)) in taken:
            pass
        return port or 0

    def cut_short(self) -> bool:
        """Return whether a second request to stop ends every grace."""
        return self.stop.count > 1


@contextlib.contextmanager
def setting_of(
    run: RunPaths,
    asked: RunOptions,
    simulators: int,
    limits: LauncherConfig,
    rules: Routes,
    journal: RouteJournal,
    lock: int,
    stop: StopRequests,
    say: Say,
) -> Iterator[Setting]:
    """Give what the lanes share; the card that simulators draw on is held for this launcher meanwhile.

    Args:
        run: the evaluation's.
        asked: for the simulators.
        simulators: how many.
        limits: the launcher's configuration.
        rules: the program file's.
        journal: of the evaluation.
        lock: descriptor of the run's lock, which everything that is started holds, too.
        stop: requests to stop.
        say: prints a line.

    Raises:
        ExitError: this machine has no such simulators, card or ports.
    """
    picked = cards.pick(asked)
    memory = MemoryReader(run.path, picked, allotted_mib=hooks.memory_limit_mib())
    wanted = asked.model_copy(update={"runtime": RuntimeKind.PROCESS, "gpu": picked})
    spec, which = _spec(run, wanted, simulators, limits, rules, memory)
    with contextlib.ExitStack() as held:
        card_held: tuple[int, ...] = ()
        if spec.simulator.needs_card or rules.simulator.by_program:
            card_held = _hold(held, memory, picked.simulator, asked.share_gpu, say)
        spec = replace(spec, inherited=(lock, *card_held))
        runtime = held.enter_context(contextlib.closing(LocalRuntime(spec, limits, show=False)))
        drives = held.enter_context(contextlib.closing(DriveRuntime(spec.inherited)))
        say(f"evaluation {run.path}: {which}")

        def questions(number: int) -> Questions:
            return wiring.questions(spec.address_of(number), limits, ours=spec.simulator.ours)

        card = memory.card_uuid(picked.agent)
        yield Setting(spec, limits, rules, journal, memory, runtime, drives, questions, card, stop, say)


def _spec(
    run: RunPaths, asked: RunOptions, simulators: int, limits: LauncherConfig, rules: Routes, memory: MemoryReader
) -> tuple[RunSpec, str]:
    """Return what simulators are started with, and which they are, for a person."""
    if rules.simulator.by_program:
        options, which = asked.model_copy(update={"simulator": SimulatorKind.ELSEWHERE}), "its program starts CARLA"
    else:
        reading = memory.read()
        options, reason = choosing.choose(asked, reading, limits.simulator.command is not None)
        if asked_for(asked) is None and reading.gpu is Gpu.OK and not simulator_of(options).needs_card:
            raise RefusedError(WITHOUT_COMMAND)
        which = f"{options.simulator.value} ({reason})"
        if simulators > 1 and not simulator_of(options).ours:
            raise RefusedError(
                f"--simulators is {simulators}; expected 1, as the simulator that runs elsewhere is one."
            )
    port = _port(options, simulators, rules.simulator.by_program)
    spec = replace(spec_of(run, options, port), simulators=simulators)
    up.refuse_taken_ports(spec, first_start=True)
    return spec, which


def _hold(held: contextlib.ExitStack, memory: MemoryReader, card: int, shared: bool, say: Say) -> tuple[int, ...]:
    """Hold a card; return the descriptor, none where the card can't be read or is shared."""
    try:
        lock = memory.hold(card)
    except GpuInUseError as error:
        if not shared:
            raise
        say(f"shares the card, as --share-gpu asks: {error}")
        return ()
    if lock is None:
        return ()
    held.callback(lock.release)
    return (lock.descriptor,)


def _port(options: RunOptions, simulators: int, by_program: bool) -> int:
    if options.port is not None:
        return options.port
    if not simulator_of(options).ours and not by_program:
        return CARLA_PORT
    if (port := ports.free_ports(random.Random(), PORTS * simulators)) is None:
        raise RefusedError(f"No {PORTS * simulators} neighbouring ports are free on 127.0.0.1.", Exit.NO_SIMULATOR)
    return port
