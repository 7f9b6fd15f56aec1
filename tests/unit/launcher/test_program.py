"""One program's life: every transition, and what is waited for between two."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from carla_launcher.act.program import ProgramState, SupervisedProcess, Transition
from carla_launcher.act.runtime import Role, Start, StartError
from carla_launcher.decide.detectors.causes import Cause, Finding
from carla_launcher.observe.observation import Ended, SimulatorSeen
from tests.unit.launcher.simulated import LIMITS

BUDGET = LIMITS.simulator.restarts
GRACE_S = LIMITS.simulator.stop_grace_s
LATE = "it isn't ready after 5 s (simulator.start_limit_s is 5 s): silent"
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

    told: list[tuple[Transition, str]] = field(default_factory=list)
    elsewhere: bool = False

    def __post_init__(self) -> None:
        self.program = SupervisedProcess(
            None if self.elsewhere else self,  # type: ignore[arg-type]
            Role.SIMULATOR,
            LIMITS.simulator,
            number=1,
            start_limit=("simulator.start_limit_s", 5.0),
            tell=lambda _program, move, cause: self.told.append((move, cause)),
        )

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

    def look(self, after_s: float = 1.0) -> ProgramState | Finding | None:
        """Move on; one that failed is put away."""
        self.now_s += after_s
        seen = SimulatorSeen(running=True, healthy=self.healthy, problem="silent")
        moved = self.program.look(self.now_s, None, lambda _now_s, _child: (seen, self.found))
        if isinstance(moved, Finding):
            self.program.fail(moved, self.now_s)
        return moved


@pytest.mark.parametrize(
    ("world", "moves", "state", "done"),
    [
        (World(), [ProgramState.STARTING, None], ProgramState.STARTING, ["start"]),
        (World(healthy=True), [ProgramState.STARTING, ProgramState.UP, None], ProgramState.UP, ["start"]),
        (World(healthy=True, elsewhere=True), [ProgramState.STARTING, ProgramState.UP, None], ProgramState.UP, []),
        (World(refuses=True), ["no room for another process"], ProgramState.BACKING_OFF, []),
        (
            World(found=CRASH),
            [ProgramState.STARTING, "it ended", ProgramState.STARTING],
            ProgramState.STARTING,
            ["start", "kill", "start"],
        ),
        (
            World(found=NO_VULKAN),
            [ProgramState.STARTING, "no Vulkan driver", None],
            ProgramState.GIVEN_UP,
            ["start", "kill"],
        ),
        (World(), [ProgramState.STARTING, *[None] * 4, LATE], ProgramState.BACKING_OFF, ["start", "kill"]),
    ],
)
def test_transitions(
    world: World, moves: list[ProgramState | str | None], state: ProgramState, done: list[str]
) -> None:
    seen = [world.look() for _ in moves]
    assert [each.sentence if isinstance(each, Finding) else each for each in seen] == moves
    assert (world.program.state, world.done) == (state, done)


def test_back_off_grows_to_the_longest_delay_for_ever() -> None:
    world = World(refuses=True)
    waits = []
    for _ in range(BUDGET.budget + 3):
        assert isinstance(world.look(0.0), Finding)
        waits.append(world.program.due_s - world.now_s)
        assert world.look(waits[-1] / 2) is None, "not before it is due"
        world.now_s = world.program.due_s
    assert waits[:3] == [BUDGET.first_delay_s * 2**index for index in range(3)]
    assert waits[-3:] == pytest.approx([BUDGET.longest_delay_s] * 3)


@pytest.mark.parametrize(
    ("codes", "was_up", "given_up"),
    [
        ((65, 65, 65), False, True),
        ((65, 65), False, False),
        ((65, 69, 65), False, False),
        ((139, 139, 139, 139), False, False),
        ((65, 65, 65, 65), True, False),
    ],
)
def test_one_that_was_never_up_and_ends_the_same_way_each_time_is_given_up(
    codes: tuple[int, ...], was_up: bool, given_up: bool
) -> None:
    world = World(healthy=was_up)
    assert [world.look() for _ in range(1 + was_up)][-1] is (ProgramState.UP if was_up else ProgramState.STARTING)
    for code in codes:
        if world.program.state is ProgramState.BACKING_OFF:
            world.found = None
            assert world.look(BUDGET.longest_delay_s) is ProgramState.STARTING
        world.found = replace(CRASH, exit_code=code)
        assert world.look() == world.found
    assert (world.program.state is ProgramState.GIVEN_UP) == given_up


def test_moves_are_told_before_they_are_made() -> None:
    world = World(healthy=True)
    world.look()
    world.program.kill("it hangs")
    assert world.told == [(Transition.STARTS, ""), (Transition.STARTED, ""), (Transition.KILLED, "it hangs")]
    world.program.kill("it hangs")
    world.program.forget("it is of no use")
    assert len(world.told) == 3, "it lives no more"


def test_stable_time_forgives_earlier_failures() -> None:
    world = World(healthy=True)
    world.program.failures = BUDGET.budget
    assert [world.look(), world.look()] == [ProgramState.STARTING, ProgramState.UP]
    world.found = CRASH
    assert world.look(BUDGET.stable_after_s) == CRASH
    assert world.program.due_s - world.now_s == BUDGET.first_delay_s


@pytest.mark.parametrize(
    ("ends_in_time", "cut_short", "causes", "waited_s"),
    [
        (True, False, [], 1.0),
        (False, False, ["its grace period is over"], GRACE_S),
        (False, True, ["a second request to stop"], 0.0),
    ],
)
def test_stop(ends_in_time: bool, cut_short: bool, causes: list[str], waited_s: float) -> None:
    world = World()
    world.look()
    for _ in world.program.stop(lambda: world.now_s - 1.0, lambda: cut_short):
        world.now_s += 1.0
        world.ended = Ended(0) if ends_in_time else None
    assert [cause for move, cause in world.told if move is Transition.KILLED] == causes
    assert world.now_s - 1.0 == waited_s
    assert [move for move, _ in world.told][-1] is Transition.STOPPED
    assert world.done == ["start", "terminate", *["kill"] * len(causes)]
    assert world.program.state is ProgramState.STOPPED
