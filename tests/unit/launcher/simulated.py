"""A supervisor among simulated programs, memory and time: what its tests and hours of simulated running need."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from carla_launcher import config
from carla_launcher.act.effects import Effects, Forecast, State, Watched
from carla_launcher.act.journal import Journal
from carla_launcher.act.launcher_state import LauncherState, read_previous
from carla_launcher.act.run import Run
from carla_launcher.act.run_spec import RunSpec
from carla_launcher.act.runtime import Child, Role, Start
from carla_launcher.act.supervisor import Supervisor
from carla_launcher.config import LauncherConfig
from carla_launcher.decide.detectors.causes import Cause, Finding
from carla_launcher.decide.detectors.expectations import BandKey
from carla_launcher.decide.holders import Holders
from carla_launcher.decide.ladder import Ladder, Needs, RungStep
from carla_launcher.hooks import StepBefore
from carla_launcher.observe.health import Health
from carla_launcher.observe.observation import AgentSeen, Ended, Observation, SimulatorSeen
from carla_launcher.observe.pools import Cards, Gpu, Owner, OwnerKind, Pool, PoolKind, Reading, measured
from carla_launcher.resolve.footprint import program
from carla_launcher.rungs.apply import Apply
from carla_launcher.rungs.quality import Quality
from carla_launcher.rungs.restart_agent import FreshAgent
from carla_launcher.rungs.restart_simulator import FreshSimulator
from carla_launcher.rungs.stop import EndRun
from carla_launcher.simulators import Carla, CarlaLite, Elsewhere
from carla_run.events import LauncherEvent
from carla_run.heartbeat import Cuda, Heartbeat, Phase
from carla_run.paths import RunPaths
from carla_run.readers import read_lines
from carla_run.requests import Answer, Result
from carla_run.signals import StopRequests

LIMITS = config.load()
HEALTHY, DEAD = Health("0.9.16", 7), Health(problem="nothing listens there")
LADDER: Ladder = {
    PoolKind.VRAM: (
        RungStep("micro_batches", Apply, "slower", {"td3.micro_batch": 128}, frees_mib={PoolKind.VRAM: 80}),
        RungStep("micro_batches", Apply, "slower", {"td3.micro_batch": 64}, frees_mib={PoolKind.VRAM: 40}),
        RungStep("restart_simulator", FreshSimulator, "an episode"),
        RungStep(
            "agent_cpu",
            FreshAgent,
            "slow",
            {"device": "cpu"},
            frees_mib={PoolKind.VRAM: 600, PoolKind.RAM: -300},
        ),
        RungStep("carla_low", Quality, "coarse pictures", quality="Low", frees_mib={PoolKind.VRAM: 700}),
        RungStep("stop", EndRun, "the run"),
    )
}
BASE = {"td3.batch_size": 256, "td3.micro_batch": None, "device": "cuda"}


class KilledError(BaseException):
    """The launcher is gone, at once."""


@dataclass
class Clock:
    now_s: float = 1000.0

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float, /) -> None:
        self.now_s += seconds


@dataclass
class Program:
    """A program whose end is written by the test; SIGTERM ends it with ``on_terminate``, None ignores it."""

    pid: int
    role: Role
    start: Start
    world: World
    on_terminate: int | None
    log: Path
    began_s: float
    overrides: dict[str, Any]
    ended: Ended | None = None
    grown_mib: float = 0.0
    leak_mib_s: float = 0.0
    stuck: bool = False
    gave_way: str = ""
    driven_s: float = 0.0

    def poll(self) -> Ended | None:
        return self.ended

    def pids(self) -> frozenset[int]:
        return frozenset() if self.ended else frozenset({self.pid})

    def end(self, code: int, oom_killed: bool = False) -> None:
        self.ended = self.ended or Ended(code, oom_killed)

    def terminate(self) -> None:
        with self.world.point(f"terminate {self.role.value}"):
            if self.on_terminate is not None:
                self.end(self.on_terminate)

    def kill(self) -> None:
        with self.world.point(f"kill {self.role.value}"):
            self.end(137)


class StopAsked(StopRequests):
    """Asked for by Ctrl-C, as often as a test counts."""

    def __init__(self) -> None:
        super().__init__()
        self.signal = signal.SIGINT


class MortalJournal(Journal):
    """A journal at each of whose writes the launcher may be killed."""

    world: World

    def event(
        self, event: LauncherEvent, cause: str = "", incident: str | None = None, *, kept: bool = False, **numbers: Any
    ) -> dict[str, Any]:
        with self.world.point(f"event {event}", quiet=True):
            return super().event(event, cause, incident, kept=kept, **numbers)

    def save(self) -> None:
        with self.world.point("save", quiet=True):
            super().save()


class Point:
    """A moment before and a moment after something is done, at which the launcher may be killed."""

    def __init__(self, world: World) -> None:
        self._world = world

    def __enter__(self) -> None:
        self._world.maybe_die()

    def __exit__(self, failed: object, *_: object) -> None:
        if failed is None:
            self._world.maybe_die()


@dataclass
class World:
    """A supervisor among fakes. The programs outlive it, as containers do; ``launch`` makes the next supervisor."""

    run: RunPaths
    external: bool = False
    simulators: int = 1
    config: LauncherConfig = LIMITS
    ladder: Ladder = field(default_factory=lambda: LADDER)
    quality: str | None = "Epic"
    clock: Clock = field(default_factory=Clock)
    diary: list[str] = field(default_factory=list)
    programs: list[Program] = field(default_factory=list)
    stop: StopAsked = field(default_factory=StopAsked)
    said: list[str] = field(default_factory=list)
    health: Callable[[], Health] = lambda: HEALTHY
    diagnose: Callable[[Observation], tuple[Finding, ...]] | None = None
    checks_in_use: list[bool] = field(default_factory=list)
    findings: tuple[Finding, ...] = ()
    free_mib: float = 2000.0
    total_mib: float = 5745.0
    cards: Cards = field(default_factory=Cards)
    agent_card_free_mib: float = 2000.0
    agent_mib: float = 0.0
    needs: Needs | None = None
    cuda: Cuda = Cuda.USABLE
    foreign_mib: float = 0.0
    newcomer_mib: float = 0.0
    episode_s: float = 60.0
    answers: Callable[[str], bool] | None = lambda _kind: True
    agent_stops_with: int | None = 75
    simulator_stops_with: int | None = 0
    laid: dict[str, Any] = field(default_factory=dict)
    planned: dict[BandKey, float] = field(default_factory=dict)
    step_before: StepBefore | None = None
    looked_s: float = 0.0
    answers_checks: bool = False
    drained: bool = False
    person_drained: bool = False
    expected: list[Child] = field(default_factory=list)
    asked: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    unheard: set[int] = field(default_factory=set)
    die_at: int | None = None
    points: int = 0
    point_names: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.run.logs.mkdir(parents=True, exist_ok=True)
        self.launch()

    def launch(self) -> None:
        """Begin with a launcher that knows what the last one wrote."""
        before = read_previous(self.run)
        new = LauncherState("test", {}, "127.0.0.1", 2000, self.quality)
        state = new if before is None else before.state
        self.journal = MortalJournal(self.run, state, lambda: self.clock.now_s)
        self.journal.world = self
        holders = Holders(600.0)

        def diagnose(seen: Observation) -> tuple[Finding, ...]:
            holders.look(seen.time_s, seen.memory)
            return (self.diagnose or plainly)(seen) + self.findings

        effects = Effects(
            runtime=self,
            observer=self,  # type: ignore[arg-type]
            diagnose=diagnose,
            holders=holders,
            check=self.check,
            requests=self,  # type: ignore[arg-type]
            clock=self.clock,
            draw=lambda: 0.0,
            stop=self.stop,
            say=self.said.append,
            expect=self.planned.update,
            further=self.further(),
        )
        needs = self.needs or (lambda values: needs_by(self.ladder, self.agent_mib, values))
        forecast = Forecast(
            self.ladder,
            BASE,
            needs,
            bands=lambda values, _: {
                ("agent", self.cards.pool_of(OwnerKind.AGENT), "updating"): needs(values).get(PoolKind.VRAM, 0.0)
            },
            program=program(),
        )
        simulator = Elsewhere() if self.external else CarlaLite() if self.quality is None else Carla()
        spec = RunSpec(self.run, simulator, 2000, cards=self.cards, resume=before is not None)
        spec = replace(spec, step_before=self.step_before, simulators=self.simulators)
        self.supervisor = Supervisor(Run(spec, self.config, effects, self.journal), forecast)

    def further(self) -> tuple[Watched, ...]:
        """Return what looks at each simulator from the second on; a plain world has one simulator."""
        return ()

    # The launcher's death

    def point(self, name: str, quiet: bool = False) -> Point:
        if not quiet:
            self.diary.append(name)
        self.point_names.append(name)
        return Point(self)

    def maybe_die(self) -> None:
        self.points += 1
        if self.die_at is not None and self.points == self.die_at:
            self.die_at = None
            raise KilledError

    # The runtime

    def start(self, start: Start) -> Program:
        with self.point(f"start {start.role.value}"):
            stops = self.agent_stops_with if start.role is Role.AGENT else self.simulator_stops_with
            log = self.run.logs / f"{start.role.value}.log"
            log.touch()
            program = Program(
                100 + len(self.programs), start.role, start, self, stops, log, self.clock.now_s, dict(self.laid)
            )
            self.programs.append(program)
            self.answers_checks &= start.role is Role.AGENT
            if start.role is Role.AGENT:
                self.drained = False
        return program

    def left(self, role: Role) -> Child | None:
        return next(iter(self.living(role)), None)

    def clear(self) -> None:
        pass

    def close(self) -> None:
        pass

    # The agent's ear

    def send(self, kind: str, values: Mapping[str, Any] | None = None) -> int:
        with self.point(f"ask {kind}"):
            self.asked.append((kind, dict(values or {})))
            self.drained = {"drain": True, "resume": False}.get(kind, self.drained)
            if kind == "apply" and self.living(Role.AGENT):
                self.last(Role.AGENT).overrides.update(values or {})
        return len(self.asked)

    def answer(self, number: int) -> Answer | None:
        if self.answers is None or number in self.unheard:
            return None
        kind = self.asked[number - 1][0]
        result = Result.OK if self.answers(kind) else Result.REFUSED
        return Answer(id=number, kind=kind, result=result, sentence="Done.", steps=0, updates=0, checkpoint=None)

    def write_overrides(self, values: Mapping[str, Any]) -> None:
        with self.point("lay", quiet=True):
            self.laid = dict(values)

    def drained_by_person(self) -> bool:
        return self.person_drained

    def started_with(self) -> dict[str, Any]:
        return dict(self.last(Role.AGENT).overrides)

    # What is seen

    def check(self, in_use: bool) -> Health:
        self.checks_in_use.append(in_use)
        health = self.health()
        self.answers_checks = health.ok
        return health

    def look(
        self, now_s: float, simulator: Child | None, agent: Child | None, _further: frozenset[int] = frozenset()
    ) -> Observation:
        return Observation(
            now_s,
            self.reading(),
            SimulatorSeen(simulator is not None and simulator.poll() is None, self.end(simulator), healthy=True),
            AgentSeen(agent is not None and agent.poll() is None, self.end(agent), self.beat(agent)),
        )

    def expect_end(self, child: Child) -> None:
        self.expected.append(child)

    def end(self, child: Child | None) -> Ended | None:
        ended = None if child is None else child.poll()
        return None if ended is None else replace(ended, planned=any(child is each for each in self.expected))

    def reading(self) -> Reading:
        owners = [Owner("Xorg", OwnerKind.FOREIGN, (7,), measured(85 + self.foreign_mib))]
        owners += [
            Owner("simulator", OwnerKind.SIMULATOR, (p.pid,), measured(3000)) for p in self.living(Role.SIMULATOR)
        ]
        agents = [Owner("agent", OwnerKind.AGENT, (p.pid,), measured(600)) for p in self.living(Role.AGENT)]
        shared = self.cards.simulator == self.cards.agent
        owners += agents if shared else []
        if self.newcomer_mib:
            owners.append(Owner("game", OwnerKind.FOREIGN, (8,), measured(self.newcomer_mib)))
        free_mib = self.free_mib - self.foreign_mib - self.newcomer_mib
        held = [(OwnerKind.SIMULATOR, free_mib, owners)]
        held += [] if shared else [(OwnerKind.AGENT, self.agent_card_free_mib, agents)]
        vram = (
            Pool(self.cards.pool_of(whose), PoolKind.VRAM, measured(self.total_mib), measured(free), tuple(those))
            for whose, free, those in held
        )
        return Reading((*vram, Pool("ram", PoolKind.RAM, measured(16000), measured(8000))), Gpu.OK)

    def beat(self, agent: Child | None) -> Heartbeat | None:
        if agent is None or agent.poll() is not None:
            return None
        program = self.last(Role.AGENT)
        lived_s = self.clock.now_s - program.began_s
        if self.answers_checks and not self.drained and (self.external or self.living(Role.SIMULATOR)):
            program.driven_s += min(lived_s, self.clock.now_s - self.looked_s)
        self.looked_s = self.clock.now_s
        driven_s = program.driven_s
        values = {**BASE, **program.overrides}
        return Heartbeat(
            time=self.clock.now_s,
            pid=program.pid,
            phase=Phase.STARTING if lived_s < 3 else Phase.DRAINED if self.drained else Phase.UPDATING,
            step=int(10 * driven_s),
            total_steps=1_000_000,
            updates=int(10 * driven_s),
            episode=int(driven_s / self.episode_s),
            device="cpu" if self.cuda not in (None, Cuda.USABLE) else values["device"],
            batch=values["td3.batch_size"],
            micro_batch=values["td3.micro_batch"] or values["td3.batch_size"],
            ticks=int(10 * driven_s),
            tick_outstanding_s=0.0,
            collector_restarts=0,
            cuda=self.cuda,
            gave_way=program.gave_way,
        )

    # For tests

    def living(self, role: Role) -> list[Program]:
        return [program for program in self.programs if program.role is role and program.ended is None]

    def last(self, role: Role) -> Program:
        return [program for program in self.programs if program.role is role][-1]

    def step(self) -> None:
        self.supervisor.step()
        self.clock.sleep(self.config.poll_s)

    def steps_until(self, state: State, at_most: int = 100_000) -> None:
        self.steps_while(lambda: self.supervisor.state is not state, at_most)

    def steps_while(self, condition: Callable[[], bool], at_most: int = 100_000) -> None:
        for _ in range(at_most):
            if not condition():
                return
            self.step()
        raise AssertionError(f"{self.supervisor.state}: {self.diary[-20:]}")

    def steps_for(self, seconds: float) -> None:
        until_s = self.clock.now_s + seconds
        self.steps_while(lambda: self.clock.now_s < until_s)

    def events(self, *names: str) -> list[dict[str, Any]]:
        return [row for row in read_lines(self.run.launcher_events) if not names or row["event"] in names]

    def code(self) -> int:
        assert self.supervisor.ending is not None
        return int(self.supervisor.ending.code)


def needs_by(ladder: Ladder, vram_mib: float, overrides: Mapping[str, Any]) -> Mapping[PoolKind, float]:
    """Return what an agent takes that each rung makes smaller by what the ladder says, however many others hold."""
    needed = dict.fromkeys(PoolKind, 1000.0) | {PoolKind.VRAM: vram_mib}
    for steps in ladder.values():
        for rung in dict.fromkeys(step.rung for step in steps if step.values):
            same = [step for step in steps if step.rung == rung]
            held = [index for index, step in enumerate(same) if step.values.items() <= overrides.items()]
            for step in same[: max(held, default=-1) + 1]:
                for kind, mib in step.frees_mib.items():
                    needed[kind] -= mib
    return needed


def plainly(seen: Observation) -> tuple[Finding, ...]:
    """Name unrequested ends, and nothing else: the only diagnosis that tests of the supervisor need."""
    found = []
    if seen.simulator.ended is not None and not seen.simulator.ended.planned:
        code = seen.simulator.ended.code
        found.append(Finding(Cause.SIMULATOR_CRASH, f"the simulator ended ({code})", exit_code=code))
    if seen.agent.ended is not None and not seen.agent.ended.planned and seen.agent.ended.code not in (0, 2, 65, 75):
        code = seen.agent.ended.code
        cause = Cause.AGENT_CUDA_OOM if code == 71 else Cause.AGENT_CRASH
        found.append(Finding(cause, f"the agent ended ({code})", exit_code=code))
    return tuple(found)
