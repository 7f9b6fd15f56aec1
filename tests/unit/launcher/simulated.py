"""A supervisor among simulated processes and time: what its tests and hours of simulated running need."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from launcher import config
from launcher.journal import Journal, LauncherState
from launcher.run_directory import RunDirectory, read_lines
from launcher.runtimes.job import Job
from launcher.runtimes.runtime import Role
from launcher.supervisor import Edges, Plan, State, Supervisor
from launcher.watching.health import Address, Health

LIMITS = config.load()
HEALTHY, DEAD = Health("0.9.16", 7), Health(problem="nothing listens there")


@dataclass
class Clock:
    now_s: float = 1000.0

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float, /) -> None:
        self.now_s += seconds


@dataclass
class FakeChild:
    """A process whose end is written by the test; SIGTERM ends it with ``on_terminate``, None ignores it."""

    pid: int
    role: Role
    diary: list[str]
    on_terminate: int | None
    code: int | None = None

    def poll(self) -> int | None:
        return self.code

    def terminate(self) -> None:
        self.diary.append(f"terminate {self.role.value}")
        self.code = self.on_terminate if self.code is None else self.code

    def kill(self) -> None:
        self.diary.append(f"kill {self.role.value}")
        self.code = 137 if self.code is None else self.code


@dataclass
class Requests:
    count: int = 0
    cause: str = "Ctrl-C"


@dataclass
class World:
    """A supervisor among fakes."""

    run: RunDirectory
    external: bool = False
    clock: Clock = field(default_factory=Clock)
    diary: list[str] = field(default_factory=list)
    children: list[FakeChild] = field(default_factory=list)
    requests: Requests = field(default_factory=Requests)
    said: list[str] = field(default_factory=list)
    health: Callable[[], Health] = lambda: HEALTHY
    checks_in_use: list[bool] = field(default_factory=list)
    agent_stops_with: int | None = 75
    simulator_stops_with: int | None = 0

    def __post_init__(self) -> None:
        self.run.logs.mkdir(parents=True, exist_ok=True)
        simulator = Job(Role.SIMULATOR, ("simulator",), self.run.logs / "simulator.log", 5)
        agent = Job(Role.AGENT, ("agent",), self.run.logs / "agent.log", 60)
        state = LauncherState("test", "process", "127.0.0.1", 2000, None, None)
        self.journal = Journal(self.run, state, lambda: self.clock.now_s)
        edges = Edges(self, self.check, self.clock, lambda: 0.0, self.requests, self.said.append)
        plan = Plan(Address("127.0.0.1", 2000), None if self.external else simulator, agent)
        self.supervisor = Supervisor(plan, LIMITS, edges, self.journal)

    def start(self, job: Job) -> FakeChild:
        self.diary.append(f"start {job.role.value}")
        stops = self.agent_stops_with if job.role is Role.AGENT else self.simulator_stops_with
        child = FakeChild(100 + len(self.children), job.role, self.diary, stops)
        self.children.append(child)
        return child

    def check(self, address: Address, in_use: bool) -> Health:
        assert address.port == 2000
        self.checks_in_use.append(in_use)
        return self.health()

    def last(self, role: Role) -> FakeChild:
        return [child for child in self.children if child.role is role][-1]

    def steps_until(self, state: State, at_most: int = 100_000) -> None:
        for _ in range(at_most):
            if self.supervisor.state is state:
                return
            self.supervisor.step()
            self.clock.sleep(LIMITS.poll_s)
        raise AssertionError(f"{self.supervisor.state} instead of {state}: {self.diary}")

    def events(self) -> list[str]:
        return [row["event"] for row in read_lines(self.run.launcher_events)]

    def code(self) -> int:
        assert self.supervisor.ending is not None
        return int(self.supervisor.ending.code)
