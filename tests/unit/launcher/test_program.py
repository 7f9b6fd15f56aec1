"""One program's life: every transition, and what is waited for between two."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from carla_launcher.act.program import Failed, Life, SupervisedProcess
from carla_launcher.act.runtime import Role, Start, StartError
from carla_launcher.decide.detectors.causes import Cause, Finding
from carla_launcher.observe.observation import Ended, SimulatorSeen
from tests.unit.launcher.simulated import LIMITS

BUDGET = LIMITS.simulator.restarts
GRACE_S = LIMITS.simulator.stop_grace_s
LIMIT_S = 5.0
CRASH = Finding(Cause.SIMULATOR_CRASH, "it ended")
NO_VULKAN = Finding(Cause.MISCONFIGURATION, "no Vulkan driver")


@dataclass
class World:
    """A runtime and its one child, in simulated time; what is seen of it is what a test says."""

    refuses: bool = False
    healthy: bool = False
    found: Finding | None = None
    ended: Ended | None = None
    done: list[str] = field(default_factory=list)
    now_s: float = 0.0
    pid: int = 7
    log: Path = Path("simulator.log")

    def __post_init__(self) -> None:
        self.program = SupervisedProcess(self, Role.SIMULATOR, LIMITS.simulator, number=1)  # type: ignore[arg-type]

    def start(self, _start: Start) -> World:
        if self.refuses:
            raise StartError("no room for another process")
        self.ended = None
        self.done.append("start")
        return self

    def poll(self) -> Ended | None:
        return self.ended

    def terminate(self) -> None:
        self.done.append("terminate")

    def kill(self) -> None:
        self.done.append("kill")
        self.ended = Ended(137)

    def look(self, after_s: float = 1.0) -> Life | Failed | None:
        self.now_s += after_s
        seen = SimulatorSeen(running=True, healthy=self.healthy, problem="silent")
        return self.program.look(self.now_s, None, LIMIT_S, lambda _now_s, _child: (seen, self.found))


@pytest.mark.parametrize(
    ("world", "moves", "life", "done"),
    [
        (World(), [Life.STARTING, None], Life.STARTING, ["start"]),
        (World(healthy=True), [Life.STARTING, Life.HEALTHY, None], Life.HEALTHY, ["start"]),
        (World(refuses=True), ["no room for another process"], Life.DOWN, []),
        (World(found=CRASH), [Life.STARTING, "it ended", Life.STARTING], Life.STARTING, ["start", "kill", "start"]),
        (World(found=NO_VULKAN), [Life.STARTING, "no Vulkan driver", None], Life.DOWN, ["start", "kill"]),
        (World(), [Life.STARTING, *[None] * 5, "it isn't ready after 5 s: silent"], Life.DOWN, ["start", "kill"]),
    ],
)
def test_transitions(world: World, moves: list[Life | str | None], life: Life, done: list[str]) -> None:
    seen = [world.look() for _ in moves]
    assert [each.finding.sentence if isinstance(each, Failed) else each for each in seen] == moves
    assert (world.program.life, world.done) == (life, done)


def test_back_off_grows_to_the_longest_delay_for_ever() -> None:
    world = World(refuses=True)
    waits = []
    for _ in range(BUDGET.budget + 3):
        failed = world.look(0.0)
        assert isinstance(failed, Failed)
        assert world.look(failed.wait_s / 2) is None, "not before it is due"
        waits.append(failed.wait_s)
        world.now_s = world.program.due_s
    assert waits[:3] == [BUDGET.first_delay_s * 2**index for index in range(3)]
    assert waits[-3:] == [BUDGET.longest_delay_s] * 3


def test_stable_time_forgives_earlier_failures() -> None:
    world = World(healthy=True)
    world.program.failures = BUDGET.budget
    assert [world.look(), world.look()] == [Life.STARTING, Life.HEALTHY]
    world.found = CRASH
    assert world.look(BUDGET.stable_after_s) == Failed(CRASH, BUDGET.first_delay_s)


@pytest.mark.parametrize(
    ("ends_in_time", "cut_short", "causes", "waited_s"),
    [
        (True, False, [], 1.0),
        (False, False, ["its grace is over"], GRACE_S),
        (False, True, ["a second request"], 0.0),
    ],
)
def test_stop(ends_in_time: bool, cut_short: bool, causes: list[str], waited_s: float) -> None:
    world, told = World(), list[str]()
    world.look()
    for _ in world.program.stop(lambda: world.now_s - 1.0, lambda: cut_short, told.append):
        world.now_s += 1.0
        world.ended = Ended(0) if ends_in_time else None
    assert (told, world.now_s - 1.0) == (causes, waited_s)
    assert world.done == ["start", "terminate", *["kill"] * len(causes)]
    assert world.program.life is Life.DOWN
