"""Adopting an agent's heartbeat as a rung: only for lack of memory, never if PyTorch can't use the card."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from carla_launcher.act.effects import State
from carla_launcher.act.runtime import Role
from carla_launcher.decide.adoption import WITHOUT_CUDA, cpu_reason, lowered_values, rung_with
from carla_launcher.decide.ladder import Needs
from carla_launcher.observe.pools import PoolKind
from carla_launcher.resolve.footprint import program
from carla_run.configuration import program_file
from carla_run.heartbeat import Cuda
from carla_run.paths import RunPaths
from tests.unit.beats import BEAT
from tests.unit.launcher.simulated import BASE, LIMITS, World

ON_CARD: dict[str, Any] = {"device": "cuda", "td3.batch_size": 64, "td3.micro_batch": None}
ON_CPU = {**ON_CARD, "device": "cpu"}
MICRO, CPU, NOTHING = {"td3.micro_batch": 32}, {"device": "cpu"}, dict[str, Any]()


@pytest.mark.parametrize(
    ("expected", "beat", "rung", "without"),
    [
        (ON_CARD, {}, NOTHING, False),
        (ON_CARD, {"micro_batch": 32, "gave_way": "out_of_memory"}, MICRO, False),
        (ON_CPU, {"micro_batch": 32, "gave_way": "micro_batch_lowered", "device": "cpu"}, MICRO, False),
        (ON_CARD, {"micro_batch": 32}, NOTHING, False),
        (ON_CARD, {"device": "cpu", "gave_way": "out_of_memory"}, CPU, False),
        (ON_CARD, {"device": "cpu", "gave_way": "device"}, CPU, False),
        (ON_CARD, {"device": "cpu", "cuda": Cuda.CPU_BUILD}, NOTHING, True),
        (ON_CARD, {"device": "cpu", "cuda": Cuda.NO_DEVICE}, NOTHING, True),
        (ON_CARD, {"device": "cpu", "cuda": Cuda.REFUSED}, NOTHING, True),
        (ON_CARD, {"device": "cpu", "cuda": Cuda.HIDDEN}, NOTHING, True),
        (ON_CARD, {"device": "cpu"}, NOTHING, True),
        (ON_CARD, {"device": "cpu", "cuda": None}, NOTHING, True),
        (ON_CARD, {"device": "cpu", "cuda": Cuda.CPU_BUILD, "gave_way": "micro_batch_lowered"}, NOTHING, True),
        (ON_CARD, {"device": "cpu", "cuda": Cuda.CPU_BUILD, "gave_way": "out_of_memory"}, NOTHING, True),
        (ON_CPU, {"device": "cpu", "cuda": Cuda.CPU_BUILD}, NOTHING, False),
    ],
)
def test_only_what_was_given_up_for_memory_is_a_rung(
    expected: dict[str, Any], beat: dict[str, Any], rung: dict[str, Any], without: bool
) -> None:
    reported = replace(BEAT, **{"cuda": Cuda.USABLE, **beat})
    assert lowered_values(reported, expected, program()) == rung
    assert (cpu_reason(reported, expected, program()) is not None) is without


@pytest.mark.parametrize(("batch", "taken"), [(256, {}), (192, {}), (128, {"batch_size": 128})])
def test_another_program_gives_up_one_of_its_values(batch: int, taken: dict[str, int]) -> None:
    rung = {"name": "batch", "values": {"batch_size": [256, 128, 64]}, "by_itself": ["smaller"]}
    other = program_file.validate({"rungs": [rung], "heartbeat": {"batch_size": "batch"}}, "train.yaml")
    assert lowered_values(replace(BEAT, batch=batch, gave_way="smaller"), {"batch_size": 256}, other) == taken


def test_a_rung_of_which_the_heartbeat_shows_a_part_is_found() -> None:
    rung = {"name": "smaller", "values": {"batch": "half", "workers": 2}, "by_itself": ["out_of_memory"]}
    other = program_file.validate({"rungs": [rung], "heartbeat": {"batch": "micro_batch"}}, "train.yaml")
    beat = replace(BEAT, micro_batch=64, gave_way="out_of_memory")
    values = lowered_values(beat, {"batch": 128, "workers": 4}, other)
    assert (values, rung_with(values, [], other)) == ({"batch": 64}, "smaller")


def test_every_case_of_the_agent_has_its_words() -> None:
    assert set(Cuda) <= WITHOUT_CUDA.keys()


@pytest.mark.parametrize("cuda", [Cuda.CPU_BUILD, Cuda.NO_DEVICE, Cuda.REFUSED])
def test_a_card_that_torch_cant_use_is_said_once_and_planned_without_and_neither_restored_nor_restarted_for(
    tmp_path: Path, cuda: Cuda
) -> None:
    world = World(RunPaths(tmp_path / "run"), cuda=cuda)
    world.steps_until(State.RUNNING)
    world.steps_for(2 * LIMITS.restore.hold_s + 4 * world.episode_s)
    (planned,) = world.events("planned_without_cuda")
    assert planned["reason"] == cuda
    assert len([line for line in world.said if WITHOUT_CUDA[cuda] in line]) == 1
    assert world.diary == ["start simulator", "start agent"]
    assert world.journal.state.taken == ()
    assert not world.events("rung_adopted", "rung_left", "agent_restart")


def test_what_is_asked_of_the_plan_from_then_on_is_the_plan_with_the_agent_on_the_cpu(tmp_path: Path) -> None:
    world = World(RunPaths(tmp_path / "run"), cuda=Cuda.CPU_BUILD)
    asked: list[str] = []

    def needs(name: str) -> Needs:
        def answer(_values: Mapping[str, Any]) -> Mapping[PoolKind, float]:
            asked.append(name)
            return {PoolKind.RAM: 10.0}

        return answer

    before = world.supervisor._ladder.forecast
    after = replace(before, base={**BASE, "device": "cpu"}, needs=needs("without"))
    world.supervisor._ladder.forecast = replace(before, needs=needs("with"), on_cpu=lambda: after)
    world.steps_until(State.RUNNING)
    world.steps_for(30)
    asked.clear()
    world.last(Role.AGENT).end(139)
    world.steps_for(30)
    assert set(asked) == {"without"}


def test_a_person_who_asks_for_a_smaller_micro_batch_takes_no_rung(tmp_path: Path) -> None:
    world = World(RunPaths(tmp_path / "run"))
    world.steps_until(State.RUNNING)
    world.last(Role.AGENT).overrides["td3.micro_batch"] = 64
    world.steps_for(60)
    assert world.journal.state.taken == ()
