"""The detector: its views' geometry, frames that stand still though the car moves, what teaches it, and its updates."""

from __future__ import annotations

import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from torch import Tensor

from carla_run.exits import Exit
from carla_td3.config import CameraConfig, NarrowConfig, NetworkConfig, Offload, StackConfig, TD3Config
from carla_td3.env import expert, observation, privileged
from carla_td3.td3 import detector
from carla_td3.td3.detector import KINDS, Alignment, Maps, columns, detection_loss, seen_at
from carla_td3.td3.dry_run import dry_run
from carla_td3.td3.executor import whole_batch
from carla_td3.td3.graphs import Graphs
from carla_td3.td3.replay.frames import PRIVILEGED, FrameStack, View
from carla_td3.td3.replay.replay import Batch
from carla_td3.td3.td3 import TD3
from tests.crowd import PATIENCE_S
from tests.unit.agent.batches import CPU, bits, in_parts, random_batch
from tests.unit.agent.watched import distance

CUDA = torch.device("cuda")
LEVEL = View(1, fov_deg=90.0, yaw_deg=0.0, pitch_deg=0.0, x_m=0.0, z_m=0.95)
ASIDE = View(1, fov_deg=60.0, yaw_deg=-26.0, pitch_deg=-4.0, x_m=-1.5, z_m=2.0)
CAMERA = CameraConfig(
    width=64,
    height=64,
    channels="rgb",
    narrow=NarrowConfig(yaw_deg=-26.0, fov_deg=60.0),
    stack=StackConfig(frames=2, every=4),
)
STACK = FrameStack.of(CAMERA)
CONFIG = TD3Config(
    network=NetworkConfig(encoder="detector", features=16, hidden=(16,)),
    batch_size=4,
    policy_delay=2,
    auxiliary=1.0,
    critic_sees="privileged",
    encoder_learns_from="auxiliary",
    critic_learning_rate=1e-3,
)
BOTH: tuple[Offload, ...] = get_args(Offload)


def made(seed: int = 0, offload: tuple[Offload, ...] = (), device: torch.device = CPU, **values: Any) -> TD3:
    return TD3(CONFIG.model_copy(update=values), device, seed, offload, stack=STACK, privileged=PRIVILEGED)


def batch(seed: int, size: int = 4) -> Batch:
    return random_batch(size, seed, PRIVILEGED, STACK)


def told(*people: tuple[float, float, float, float]) -> Tensor:
    """Return the privileged numbers (1, P) of people at metres ahead and to the right, who walk at m/s."""
    found = torch.zeros(1, PRIVILEGED)
    scales = torch.tensor(privileged._SCALES[0], dtype=torch.float32)
    found[0, KINDS[0].listed][: 4 * len(people)] = (torch.tensor(people).view(-1, 4) / scales).flatten()
    return found


def cells(numbers: Tensor, view: View, side: int) -> tuple[Tensor, Tensor]:
    return detector.cells(numbers, KINDS[0], view, side)


def test_its_constants_are_those_of_the_environment() -> None:
    assert (detector.WHEELBASE_M, detector.MAX_STEER_RAD) == (expert.WHEELBASE_M, expert.MAX_STEER_RAD)
    assert detector.SPEED_SCALE_MPS == observation.SPEED_SCALE_MPS
    assert len(privileged.NAMES) == PRIVILEGED
    for kind, listed, at, scales in zip(
        KINDS, ("person", "vehicle"), ("walker", "vehicle"), privileged._SCALES, strict=True
    ):
        assert privileged.NAMES[kind.at] == tuple(f"{at}_at_{each}" for each in detector.BEARINGS)
        of_one = ("ahead", "right", "speed_ahead", "speed_right")
        expected = tuple(f"{listed}_{name}_{rank}" for rank in range(privileged.NEAREST) for name in of_one)
        assert privileged.NAMES[kind.listed] == expected
        assert scales[:2].tolist() == [detector.LISTED_M] * 2
    assert (KINDS[0].seen_m, KINDS[0].nearest) == (privileged.WALKER_SEEN_M, privileged.WALKER)
    assert KINDS[1].nearest == 1.0


@pytest.mark.parametrize("view", [LEVEL, ASIDE])
@pytest.mark.parametrize("away_m", [2.0, 30.0])
def test_a_point_on_a_view_s_axis_is_in_its_middle_and_one_behind_is_not_seen(view: View, away_m: float) -> None:
    yaw, pitch = math.radians(view.yaw_deg), math.radians(view.pitch_deg)
    axis = math.cos(pitch) * math.cos(yaw), math.cos(pitch) * math.sin(yaw), math.sin(pitch)
    ahead, behind = (
        [of + sign * away_m * along for of, along in zip((view.x_m, 0.0, view.z_m), axis, strict=True)]
        for sign in (1.0, -1.0)
    )
    u, v, before = seen_at(view, torch.tensor(ahead[0]), torch.tensor(ahead[1]), ahead[2])
    assert (float(u), float(v)) == pytest.approx((0.0, 0.0), abs=1e-6)
    assert bool(before)
    assert not seen_at(view, torch.tensor(behind[0]), torch.tensor(behind[1]), behind[2])[2]


@pytest.mark.parametrize("view", [LEVEL, ASIDE])
def test_a_pixel_s_ray_is_seen_at_that_pixel(view: View) -> None:
    places = torch.tensor((view.x_m, 0.0, view.z_m)) + 7.0 * detector._rays(view, 64)
    points = torch.cat((places, torch.ones(64, 64, 1)), -1)
    u, v, deep = (points @ torch.tensor(detector.camera(view)).T).unbind(-1)
    middles = (torch.arange(64) + 0.5) / 32.0 - 1.0
    torch.testing.assert_close(u / deep, middles.expand(64, 64), rtol=0, atol=1e-5)
    torch.testing.assert_close(v / deep, middles[:, None].expand(64, 64), rtol=0, atol=1e-5)
    assert (deep > 0).all()


def test_a_person_covers_the_cells_that_show_it() -> None:
    is_there, velocity = cells(told((8.0, 0.0, 0.3, -1.5)), LEVEL, 21)
    assert is_there[0].nonzero().tolist() == [[9, 10], [10, 10], [11, 10]]  # 1.3 cells a metre, 1.8 m high
    torch.testing.assert_close(velocity[0, :, 10, 10], torch.tensor((-1.0, 0.2)))
    assert not velocity[0, :, 10, 11].any()
    right, _ = cells(told((8.0, 4.0, 0.0, 0.0)), LEVEL, 21)
    assert set(right[0].nonzero()[:, 1].tolist()) == {15}
    for nobody in (told(), told((26.0, 0.0, 0.0, 0.0)), told((-8.0, 0.0, 0.0, 0.0)), told((8.0, 9.0, 0.0, 0.0))):
        assert not cells(nobody, LEVEL, 21)[0].any()


def test_before_another_person_the_nearer_one_s_walk_is_told() -> None:
    for pair in ((12.0, 6.0), (6.0, 12.0)):
        _, velocity = cells(told(*((away, 0.0, 0.0, away / 6.0) for away in pair)), LEVEL, 21)
        assert float(velocity[0, 0, 10, 10]) == pytest.approx(1.0 / privileged.WALKING_MPS)


def scene(view: View, side: int, x: float, y: float, yaw: float) -> Tensor:
    """Return the picture (1, 1, S, S) that a car at this pose has of a wall, ``FAR_M`` around the camera of a car at
    (0, 0), that is painted with stripes in both directions.
    """
    middle = torch.tensor((view.x_m, 0.0, view.z_m))
    cos, sin = math.cos(yaw), math.sin(yaw)
    turn = torch.tensor(((cos, sin, 0.0), (-sin, cos, 0.0), (0.0, 0.0, 1.0)))  # rows: the car's axes
    camera, rays = middle @ turn + torch.tensor((x, y, 0.0)), detector._rays(view, side) @ turn
    off = camera - middle
    a = (rays[..., :2] ** 2).sum(-1)
    half_b = (rays[..., :2] * off[:2]).sum(-1)
    reach = (-half_b + (half_b**2 - a * ((off[:2] ** 2).sum() - detector.FAR_M**2)).sqrt()) / a
    seen = off + rays * reach[..., None]
    return (torch.sin(10.0 * torch.atan2(seen[..., 1], seen[..., 0])) + torch.sin(seen[..., 2]))[None, None]


@pytest.mark.parametrize("view", [LEVEL, ASIDE])
@pytest.mark.parametrize(
    ("speed_mps", "wheel", "back"), [(0.0, 0.0, 1), (6.0, 0.0, 1), (4.0, 0.2, 1), (4.0, -0.2, 1), (2.0, 0.1, 3)]
)
def test_what_stands_still_stands_still_in_an_aligned_frame(
    view: View, speed_mps: float, wheel: float, back: int
) -> None:
    every, parts = 4, 1000
    x = y = yaw = 0.0
    for _ in range(parts):  # the way back, in small parts
        way = speed_mps * detector.STEP_S * every * back / parts
        turn = -way * math.tan(wheel * expert.MAX_STEER_RAD) / expert.WHEELBASE_M
        x, y, yaw = x - way * math.cos(yaw + turn / 2.0), y - way * math.sin(yaw + turn / 2.0), yaw + turn
    now, earlier = scene(view, 84, 0.0, 0.0, 0.0), scene(view, 84, x, y, yaw)
    aligned = Alignment(view, 84, every)(earlier, back, torch.tensor([speed_mps]), torch.tensor([wheel]))
    middle = (..., slice(28, 56), slice(28, 56))
    torch.testing.assert_close(aligned[middle], now[middle], rtol=0, atol=0.03)
    if speed_mps:
        assert (earlier[middle] - now[middle]).abs().max() > 0.5


def test_a_column_tells_the_walk_of_the_person_that_it_shows() -> None:
    near, there = torch.full((2, 1, 2, 21, 21), -9.0)
    moves = torch.zeros(1, 2, 2, 21, 21)
    near[0, 0, 5, 3], there[0, 0, 5, 3], moves[0, 0, 0, 5, 3] = 9.0, 9.0, 1.5
    found = columns(Maps(near, there, moves)).view(8, 21)
    assert float(found[0, 3]) == pytest.approx(1.0, abs=1e-3)
    assert float(found[2, 3]) == pytest.approx(1.0, abs=1e-3)
    assert float(found[4, 3]) == pytest.approx(1.5, abs=1e-2)
    assert found[:, 4:].abs().max() < 1e-3


def test_its_loss_is_a_sum_over_rows_and_falls_where_the_maps_are_right() -> None:
    given = batch(0, 6)
    with torch.no_grad():
        maps = made().online.detected(given.frames[:, : STACK.frames], given.vector, given.privileged)[1]
        whole = detection_loss(maps, STACK.views, given.privileged)
        parts = [
            detection_loss(
                [Maps(each.near[rows], each.there[rows], each.moves[rows]) for each in maps],
                STACK.views,
                given.privileged[rows],
            )
            for rows in (slice(0, 1), slice(1, 6))
        ]
    torch.testing.assert_close(sum(parts), whole)
    known = told((8.0, 0.0, 0.0, 1.5))
    is_there, velocity = cells(known, LEVEL, 21)
    there = torch.stack((20.0 * is_there.float() - 10.0, torch.full((1, 21, 21), -10.0)), 1)
    right = Maps(torch.zeros(1, 2, 21, 21), there, torch.stack((velocity, velocity), 1))
    wrong = [replace(right, there=-right.there), replace(right, moves=-right.moves)]
    losses = [float(detection_loss([each], (LEVEL,), known)) for each in (right, *wrong)]
    assert losses[0] < min(losses[1:])


@pytest.mark.parametrize("micro_batch", [1, 5])
def test_parts_have_nearly_the_same_gradient(micro_batch: int) -> None:
    """Only nearly: a sum that is rounded otherwise can change which place of a column is its largest."""
    gradients = []
    for attempt in (whole_batch, in_parts(micro_batch)):
        td3 = made()
        td3.update(batch(0, 21), attempt)
        gradients.append({name: each.grad for name, each in td3.online.named_parameters() if each.grad is not None})
    assert distance(*gradients) < 0.02


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "float16"])
def test_it_learns_a_small_batch_in_any_precision(precision: str) -> None:
    td3, given = made(precision=precision, critic_learning_rate=3e-3), batch(0)
    losses = [float(td3.update(given)["auxiliary_loss"]) for _ in range(25)]
    assert sum(losses[-3:]) < 0.8 * sum(losses[:3])


def test_a_resumed_learner_continues_bit_for_bit_also_from_static_inputs() -> None:
    straight, static = made(), made(cuda_graph=True)
    static.graphs = Graphs(static.executor, static.phases, everywhere=True)
    for number in range(4):
        if number == 2:
            resumed = made(99, cuda_graph=True)
            resumed.graphs = Graphs(resumed.executor, resumed.phases, everywhere=True)
            resumed.load_state(static.state())
            dry_run(resumed, 4, whole_batch)
            static = resumed
        straight.update(batch(number))
        static.update(batch(number))
    assert bits(static) == bits(straight)


def test_what_lives_on_the_host_and_a_move_change_no_number() -> None:
    plain, offloaded = made(), made(offload=BOTH)
    for number in range(4):
        for each in (plain, offloaded):
            each.update(batch(number), in_parts(3))
        plain.executor.move(CPU)
    assert bits(plain) == bits(offloaded)


def test_a_training_without_a_teacher_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "carla_td3", "train", "--run-dir", str(tmp_path)]
    command += ["--set", "td3.network.encoder=detector", "--set", "environment.action_rate.steer_range=1.0"]
    ended = subprocess.run(command, check=False, capture_output=True, text=True, timeout=PATIENCE_S)
    assert ended.returncode == Exit.BAD_CONFIG
    assert "td3.auxiliary is 0, so its maps would learn from nothing" in " ".join(ended.stderr.split())
    assert not any(tmp_path.iterdir())


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
@pytest.mark.parametrize(("offload", "graph"), [((), True), (BOTH, False)])
def test_on_a_gpu_it_updates_with_graphs_and_with_what_lives_on_the_host(
    offload: tuple[Offload, ...], graph: bool
) -> None:
    td3, plain = made(device=CUDA, offload=offload, cuda_graph=graph), made()
    dry_run(td3, 4, whole_batch)
    for number in range(4):
        losses = [float(each.update(batch(number))["auxiliary_loss"]) for each in (td3, plain)]
        assert losses[0] == pytest.approx(losses[1], rel=0.05)
    assert td3.without_graphs == ""
