"""A machine in simulated time: a card, RAM, a simulator, an agent and foreign processes that behave as such things do.

The supervisor, the diagnosis, the policy and the ladder are the real ones; only what they look at and act on is
simulated. Memory is arithmetic: a program that asks for more than there is ends as the real one would.

By its seed a run is plain, has CUDA graphs, or has two simulators on a card large enough for both.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from carla_launcher import config
from carla_launcher.act.effects import Watched
from carla_launcher.act.runtime import Child, Role, Start
from carla_launcher.config import LauncherConfig
from carla_launcher.decide.detectors.diagnostician import Diagnostician
from carla_launcher.decide.detectors.drive import DriveDetector
from carla_launcher.decide.detectors.expectations import Expectations
from carla_launcher.decide.detectors.kills import RecentOomKills
from carla_launcher.decide.ladder import Ladder, build_ladder, picked_rungs
from carla_launcher.observe.observation import AgentSeen, Observation, Sign, SimulatorSeen
from carla_launcher.observe.pools import Figure, Gpu, Owner, OwnerKind, Pool, PoolKind, Reading, estimated, measured
from carla_launcher.resolve import footprint
from carla_launcher.sizes import Simulator, Sizes, Values
from carla_run.events import CannotFit, MemoryPool
from carla_run.exits import Exit
from carla_run.heartbeat import CollectorBeat, CollectorFigures, CollectorState, Heartbeat, Phase
from tests.unit.launcher.planned import AGENT, RUNGS
from tests.unit.launcher.simulated import Program, World

TOTAL_MIB = {PoolKind.VRAM: 5745.0, PoolKind.RAM: 15_800.0, PoolKind.DISK: 60_000.0}
DESKTOP_MIB = {PoolKind.VRAM: 85.0, PoolKind.RAM: 3000.0, PoolKind.DISK: 0.0}
PEAK_MIB = {"Low": 4200.0, "Epic": 4800.0}
SIMULATOR_RAM_MIB = 4000.0
COLLECTOR_MIB = 150.0
GRAPHS_MIB = 96.0
BASE: Values = {
    "device": "cuda",
    "td3.batch_size": 256,
    "td3.micro_batch": None,
    "td3.cuda_graph": False,
    "memory.offload": [],
    "environment.camera.width": 84,
    "environment.camera.height": 84,
    "environment.traffic.vehicles": 20,
    "environment.traffic.walkers": 0,
    "evaluation.video": True,
    "training.keep_checkpoints": 3,
    "replay.capacity": 100_000,
    "training.collectors": 1,
    "collector.at_work": None,
}
EVERYTHING = tuple(rung.name for ladder in RUNGS.values() for rung in ladder)
TICK_TIMEOUT_S = 20.0
COLLECTOR_MARGIN_S = 5.0
CHECKPOINT_EVERY_STEPS = 5000
STEPS_PER_S = 10.0
WARM_AFTER_S = 8.0
READY_AFTER_S, SLOW_S = 12.0, 200.0


def limits() -> LauncherConfig:
    """Return the launcher's configuration with looks far enough apart for hours to pass quickly."""
    shipped = config.load()
    watch = shipped.watch.model_copy(update={"interval_s": 5.0, "gap_s": 60.0})
    return shipped.model_copy(update={"watch": watch, "poll_s": 1.0})


def agent_mib(values: Values) -> dict[PoolKind, float]:
    """Return what an agent of these values, over ``BASE``, takes at its peak."""
    given = {**BASE, **values}
    micro = given["td3.micro_batch"] or given["td3.batch_size"]
    work = micro * 0.9 * (given["environment.camera.width"] / 84) ** 2
    state = 30.0 + (0.0 if given["memory.offload"] else 45.0)
    on_card = given["device"] == "cuda"
    host = 600.0 + given["environment.traffic.vehicles"] * 2 + (60.0 if given["evaluation.video"] else 0.0)
    host += COLLECTOR_MIB * (at_work(given) - 1)
    state += GRAPHS_MIB if given["td3.cuda_graph"] and not given["memory.offload"] and on_card else 0.0
    host += (30.0 + work + state) if not on_card else 45.0 * bool(given["memory.offload"])
    disk = given["replay.capacity"] * 0.007 + 36.0 * given["training.keep_checkpoints"]
    return {PoolKind.VRAM: 300.0 + work + state if on_card else 0.0, PoolKind.RAM: host, PoolKind.DISK: disk}


def at_work(values: Values) -> int:
    """Return the number of collectors that drive."""
    return int(values["collector.at_work"] or values["training.collectors"])


def ladder(base: Values = BASE, policy: tuple[str, ...] | None = None) -> Ladder:
    """Return the shipped ladder of a run with these values."""

    def sizes_of(asked: Any) -> list[Sizes]:
        return [
            Sizes(values, agent_mib({**base, **values}), context=estimated(300.0 * (values.get("device") == "cuda")))
            for values in asked
        ]

    peaks: dict[str, dict[PoolKind, Figure]] = {
        quality: {PoolKind.VRAM: estimated(mib), PoolKind.RAM: estimated(SIMULATOR_RAM_MIB)}
        for quality, mib in PEAK_MIB.items()
    }
    runs = Simulator("Epic", peaks, base["training.collectors"])
    return build_ladder(picked_rungs(RUNGS, policy), AGENT.present(base), runs, sizes_of)


class Kind(Enum):
    """What a run has."""

    PLAIN = 0
    GRAPHS = 1
    TWO_SIMULATORS = 2


@dataclass
class Agent:
    """The agent's files and its learning, which outlive its processes."""

    steps: float = 0.0
    updates: float = 0.0
    saved_updates: float = 0.0
    episodes: int = 0
    disk_mib: float = 0.0


@dataclass
class Machine(World):
    """A world whose memory and programs behave by themselves; ``strike`` does harm to it."""

    seed: int = 0
    rng: random.Random = field(default_factory=random.Random)
    learned: Agent = field(default_factory=Agent)
    foreign_process: dict[PoolKind, float] = field(default_factory=dict)
    foreign_process_leaves_s: float = 0.0
    simulator_hangs: bool = False
    next_start_sticks: bool = False
    next_start_is_slow: bool = False
    never_starts: int | None = None
    slow: set[int] = field(default_factory=set)
    ticks: list[float] = field(default_factory=list)
    driver_fails_until_s: float = 0.0
    fills_disk_at_start: bool = False
    collector_hangs_since_s: float | None = None
    agent_hangs: bool = False
    gpu: Gpu = Gpu.OK
    wall_jump_s: float = 0.0
    signs: list[list[tuple[Sign, str]]] = field(default_factory=list)
    agent_events: list[Mapping[str, Any]] = field(default_factory=list)
    oom_kills: int = 0
    collector_restarts: int = 0
    moved_s: float = 0.0
    longest_stall_s: float = 0.0
    went_back: bool = False

    def __post_init__(self) -> None:
        self.config = limits()
        self.rng = random.Random(self.seed)
        self.kind = Kind(self.seed % len(Kind))
        self.simulators = 2 if self.kind is Kind.TWO_SIMULATORS else 1
        graphs = self.kind is Kind.GRAPHS
        self.base = {**BASE, "td3.cuda_graph": graphs, "training.collectors": self.simulators}
        self.total = {**TOTAL_MIB, PoolKind.VRAM: TOTAL_MIB[PoolKind.VRAM] + (self.simulators - 1) * PEAK_MIB["Epic"]}
        self.ticks, self.signs = [0.0] * self.simulators, [[] for _ in range(self.simulators)]
        policy = tuple(self.rng.sample(EVERYTHING, len(EVERYTHING))) if self.seed % 2 else None
        self.ladder = ladder(self.base, policy)
        self.needs = lambda values: agent_mib({**self.base, **values})
        self._begin_diagnosis()
        super().__post_init__()

    def _begin_diagnosis(self) -> None:
        exits = footprint.program().exits
        self.expectations = Expectations(TICK_TIMEOUT_S, COLLECTOR_MARGIN_S, exits, in_container=True)
        self.diagnose = Diagnostician(self.config, self.expectations).look

    def further(self) -> tuple[Watched, ...]:
        return tuple(map(self._watched, range(1, self.simulators)))

    def _watched(self, number: int) -> Watched:
        kills = RecentOomKills(self.config.watch.sign_s)
        drive = DriveDetector(self.config, self.expectations, kills, number)
        return Watched(Monitor(self, number), drive)  # type: ignore[arg-type]

    # Time

    def step(self) -> None:
        self.supervisor.step()
        self.clock.sleep(self.config.poll_s)
        self.pass_time(self.config.poll_s)

    def pass_time(self, seconds: float) -> None:
        if self.clock.now_s >= self.foreign_process_leaves_s:
            self.foreign_process = {}
        for program in (each for role in Role for each in self.living(role)):
            program.grown_mib += program.leak_mib_s * seconds
        for program in self.living(Role.AGENT):
            self._drive(program, seconds)
        self._run_out()
        if self.foreign_process or not self.moved_s:  # who waits for a foreign process isn't stuck
            self.moved_s = self.clock.now_s
        self.longest_stall_s = max(self.longest_stall_s, self.clock.now_s - self.moved_s)

    def _drive(self, agent: Program, seconds: float) -> None:
        if self.collector_hangs_since_s is not None:
            waited_s = self.clock.now_s - self.collector_hangs_since_s
            if waited_s > TICK_TIMEOUT_S + COLLECTOR_MARGIN_S:  # the agent replaces its collector
                self.collector_restarts += 1
                self.collector_hangs_since_s = self.clock.now_s if self.simulator_hangs else None
        moving = [number for number in self._driven(agent) if number or not self._first_hangs]
        if not moving or self.agent_hangs or self.drained or self._age_s(agent) < WARM_AFTER_S:
            return
        for number in moving:
            self.ticks[number] += STEPS_PER_S / len(moving) * seconds
        self.moved_s = self.clock.now_s
        before = self.learned
        self.learned.steps = before.steps + STEPS_PER_S * seconds
        self.learned.updates = before.updates + STEPS_PER_S * seconds
        self.learned.episodes = int(self.learned.steps / 600)
        if self.learned.updates - self.learned.saved_updates >= CHECKPOINT_EVERY_STEPS:
            self.learned.saved_updates = self.learned.updates

    def _run_out(self) -> None:
        """End, or shrink, each program that asks for more memory than there is."""
        for agent in self.living(Role.AGENT):
            while self._free(PoolKind.VRAM) < 0 and self._on_card(agent) and self._age_s(agent) >= WARM_AFTER_S:
                values = {**self.base, **agent.overrides}
                micro = values["td3.micro_batch"] or values["td3.batch_size"]
                if micro == 1:
                    agent.end(71)
                    break
                agent.overrides["td3.micro_batch"], agent.gave_way = micro // 2, "out_of_memory"
        if self._free(PoolKind.VRAM) < 0:
            self.crash_simulator(Sign.OUT_OF_VRAM)
        if self._free(PoolKind.RAM) < 0 and self.living(Role.AGENT):
            self.oom_kills += 1
            self.last(Role.AGENT).end(137, oom_killed=True)

    # Harm

    def take(self, kind: PoolKind, low_mib: float, high_mib: float) -> None:
        """Have a foreign process hold so much for a minute to half an hour."""
        self.foreign_process = {kind: self.rng.uniform(low_mib, high_mib)}
        self.foreign_process_leaves_s = self.clock.now_s + self.rng.uniform(60, 1800)

    def crash_simulator(
        self, sign: Sign | None = None, oom_killed: bool = False, program: Program | None = None
    ) -> None:
        if program := program or self.one(Role.SIMULATOR):
            if sign is not None:
                self.signs[program.start.number].append((sign, sign.value))
            program.end(137 if oom_killed else 139, oom_killed)
            self.oom_kills += oom_killed

    def one(self, role: Role) -> Program | None:
        """Return one of the living; None if there is none."""
        living = self.living(role)
        return self.rng.choice(living) if living else None

    def start(self, start: Start) -> Program:
        program = super().start(start)
        if start.role is Role.SIMULATOR:
            self.simulator_hangs &= start.number > 0
            if start.number == self.never_starts:
                program.end(69)
            program.stuck, self.next_start_sticks = self.next_start_sticks, False
            self.slow |= {program.pid} if self.next_start_is_slow else set()
            self.next_start_is_slow = False
        else:
            self.agent_hangs = False
            self.collector_hangs_since_s = self.clock.now_s if self.simulator_hangs else None
            self._take_disk(program)
            self.went_back |= self.learned.updates - self.learned.saved_updates > CHECKPOINT_EVERY_STEPS + STEPS_PER_S
            self.learned.updates = self.learned.saved_updates
        return program

    def _take_disk(self, agent: Program) -> None:
        """Lay the run's files out, or refuse before anything is written, as an agent does on a disk too full."""
        if self.fills_disk_at_start:
            self.fills_disk_at_start = False
            self.take(PoolKind.DISK, 59_300, 59_900)
        held_mib, wanted_mib = self.learned.disk_mib, self._agent_mib(agent)[PoolKind.DISK]
        needed_mib, free_mib = wanted_mib - held_mib, self._free(PoolKind.DISK)
        if needed_mib <= free_mib:
            self.learned.disk_mib = wanted_mib
            return
        refused = CannotFit(
            pool=MemoryPool.DISK,
            folder=str(self.run.path),
            needed_mib=needed_mib,
            free_mib=max(0.0, free_mib),
            reserve_mib=0.0,
        )
        self.agent_events.append(refused.row())
        agent.end(Exit.OUT_OF_MEMORY)

    def send(self, kind: str, values: Mapping[str, Any] | None = None) -> int:
        if self.agent_hangs or self._age_s(self.last(Role.AGENT)) < WARM_AFTER_S:
            self.unheard.add(len(self.asked) + 1)
        elif kind in ("checkpoint", "drain"):
            self.learned.saved_updates = self.learned.updates
        return super().send(kind, values)

    # What is seen

    def check(self, in_use: bool) -> Any:
        health = super().check(in_use)
        first = self.simulator(0)
        ready = first is not None and self._is_ready(first) and not first.stuck
        return health if ready else replace(health, version="", problem="nothing listens there")

    def look(
        self, now_s: float, simulator: Child | None, agent: Child | None, _further: frozenset[int] = frozenset()
    ) -> Observation:
        events, self.agent_events = tuple(self.agent_events), []
        running = simulator is not None and simulator.poll() is None
        beat = self.beat(agent)
        return Observation(
            now_s,
            self.reading(),
            SimulatorSeen(
                running, self.end(simulator), healthy=running, signs=self.new_signs(0), connection_lost=not running
            ),
            AgentSeen(
                agent is not None and agent.poll() is None,
                self.end(agent),
                beat,
                beat_age_s=self.clock.now_s - self.moved_s if self.agent_hangs else 0.0,
                events=events,
                pid=0 if agent is None else agent.pid,
            ),
        )

    def simulator(self, number: int) -> Program | None:
        """Return the living simulator of this number."""
        return next((each for each in self.living(Role.SIMULATOR) if each.start.number == number), None)

    def new_signs(self, number: int) -> tuple[tuple[Sign, str], ...]:
        """Return what the log of a simulator has said since the last call."""
        said, self.signs[number] = tuple(self.signs[number]), []
        return said

    def left(self, role: Role) -> Child | None:
        return self.simulator(0) if role is Role.SIMULATOR else super().left(role)

    def reading(self) -> Reading:
        pools = []
        for kind, name in ((PoolKind.VRAM, "vram:0"), (PoolKind.RAM, "ram"), (PoolKind.DISK, "disk")):
            owners = [Owner("Xorg", OwnerKind.FOREIGN, (7,), measured(DESKTOP_MIB[kind]))]
            if self.foreign_process.get(kind):
                owners.append(Owner("blender", OwnerKind.FOREIGN, (9,), measured(self.foreign_process[kind])))
            for whose, role in ((OwnerKind.SIMULATOR, Role.SIMULATOR), (OwnerKind.AGENT, Role.AGENT)):
                living = self.living(role)
                mib = sum(self._takes(program, kind) for program in living)
                if kind is PoolKind.DISK and role is Role.AGENT:
                    mib = self.learned.disk_mib
                if mib:
                    owners.append(Owner(whose.value, whose, tuple(each.pid for each in living), measured(mib)))
            owners.sort(key=lambda owner: -(owner.held.mib or 0.0))
            kills = self.oom_kills if kind is PoolKind.RAM else 0
            free = measured(max(0.0, self._free(kind)))
            pools.append(Pool(name, kind, measured(self.total[kind]), free, tuple(owners), kills))
        if self.gpu is Gpu.LOST:
            return Reading(tuple(pools[1:]), Gpu.LOST, "GPU is lost")
        if self.clock.now_s < self.driver_fails_until_s:
            return Reading(tuple(pools[1:]), self.gpu, "GPU 0 can't be read (NVML: Unknown Error).")
        return Reading(tuple(pools), self.gpu)

    def beat(self, agent: Child | None) -> Heartbeat | None:
        program = self.last(Role.AGENT) if self.living(Role.AGENT) else None
        if agent is None or program is None or agent.poll() is not None:
            return None
        values = {**self.base, **program.overrides}
        age_s = self._age_s(program)
        driven = self._driven(program)
        states = [
            CollectorState.ABSENT
            if number >= at_work(values)
            else CollectorState.STEPPING
            if number in driven
            else CollectorState.CONNECTING
            for number in range(self.simulators)
        ]
        hung_s = 0.0 if self.collector_hangs_since_s is None else self.clock.now_s - self.collector_hangs_since_s
        phase = Phase.DRAINED if self.drained else Phase.UPDATING if driven else Phase.WAITING_FOR_SIMULATOR
        return Heartbeat(
            time=self.clock.now_s,
            pid=program.pid,
            phase=Phase.STARTING if age_s < WARM_AFTER_S else phase,
            step=int(self.learned.steps),
            total_steps=10_000_000,
            updates=int(self.learned.updates),
            episode=self.learned.episodes,
            device=values["device"],
            batch=values["td3.batch_size"],
            micro_batch=values["td3.micro_batch"] or values["td3.batch_size"],
            ticks=int(self.learned.steps),
            tick_outstanding_s=hung_s,
            collector_restarts=self.collector_restarts,
            cuda=self.cuda,
            gave_way=program.gave_way,
            collector=CollectorFigures(program.pid, states[0]),
            collectors=tuple(
                CollectorBeat(
                    program.pid,
                    state,
                    steps=int(self.ticks[number]),
                    ticks=int(self.ticks[number]),
                    tick_outstanding_s=0.0 if number else hung_s,
                    restarts=0 if number else self.collector_restarts,
                )
                for number, state in enumerate(states)
                if self.simulators > 1
            ),
        )

    # Arithmetic

    @property
    def _first_hangs(self) -> bool:
        return self.simulator_hangs or self.collector_hangs_since_s is not None

    def _driven(self, agent: Program) -> list[int]:
        """Return the numbers of the simulators in which the agent drives, or would if they didn't hang."""
        wanted = range(at_work({**self.base, **agent.overrides}))
        return [number for number in wanted if (runs := self.simulator(number)) is not None and self._is_ready(runs)]

    def _age_s(self, program: Program) -> float:
        return self.clock.now_s - program.began_s

    def _is_ready(self, simulator: Program) -> bool:
        return self._age_s(simulator) > (SLOW_S if simulator.pid in self.slow else READY_AFTER_S)

    def _on_card(self, agent: Program) -> bool:
        return bool({**self.base, **agent.overrides}["device"] == "cuda")

    def _agent_mib(self, agent: Program) -> dict[PoolKind, float]:
        return agent_mib({**self.base, **agent.overrides})

    def _takes(self, program: Program, kind: PoolKind) -> float:
        if program.role is Role.SIMULATOR:
            share = min(1.0, self._age_s(program) / READY_AFTER_S)
            peak = {PoolKind.VRAM: PEAK_MIB[program.start.quality or "Epic"], PoolKind.RAM: SIMULATOR_RAM_MIB}.get(
                kind, 0.0
            )
            return peak * share + (program.grown_mib if kind is PoolKind.VRAM else 0.0)
        if kind is PoolKind.DISK:
            return 0.0
        share = min(1.0, self._age_s(program) / WARM_AFTER_S)
        leaked = program.grown_mib if kind is PoolKind.RAM else 0.0
        return self._agent_mib(program)[kind] * share + leaked

    def _free(self, kind: PoolKind) -> float:
        held = DESKTOP_MIB[kind] + self.foreign_process.get(kind, 0.0)
        held += self.learned.disk_mib if kind is PoolKind.DISK else 0.0
        held += sum(self._takes(program, kind) for role in Role for program in self.living(role))
        return self.total[kind] - held


@dataclass
class Monitor:
    """Sees a further simulator as ``Machine.look`` sees the first."""

    machine: Machine
    number: int

    def look(self, _now_s: float, program: Program, in_use: bool) -> SimulatorSeen:  # noqa: ARG002
        running = program.ended is None
        ready = running and self.machine._is_ready(program) and not program.stuck
        return SimulatorSeen(
            running,
            program.ended,
            healthy=ready,
            signs=self.machine.new_signs(self.number),
            connection_lost=not running,
            pid=program.pid,
        )

    def close(self) -> None:
        pass
