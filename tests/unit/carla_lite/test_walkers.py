"""Walkers without a server: motion, obstacles, hits, and how people are drawn."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from carla_lite.actors import crowd
from carla_lite.actors.actor import Identity
from carla_lite.actors.crowd import STRIDE_M, Column, Crowd
from carla_lite.actors.walker_hits import resolve
from carla_lite.actors.walkers import LIES_S, Walker, WalkerControl
from carla_lite.blueprints.catalogue import CATALOGUE
from carla_lite.blueprints.walkers import WalkerBlueprint
from carla_lite.maps import Maps
from carla_lite.motion.physics import Body
from carla_lite.protocol.channel import listen
from carla_lite.protocol.streams import Streams
from carla_lite.scenery.camera import Pose
from carla_lite.scenery.daylight import NOON
from carla_lite.scenery.projection import Lens, View
from carla_lite.scenery.skeleton import PHASES
from carla_lite.scenery.statics import StaticBox, StaticIndex
from carla_lite.scenery.strokes import actor_strokes
from carla_lite.scenery.vista import Walls
from carla_lite.world import World
from tests.unit.carla_lite.places import flat

STEP_S = 0.05
NOTHING = StaticIndex()
NO_WALLS = Walls(np.zeros((0, 2)), np.zeros(0), np.zeros((0, 1)))


def person(x=0.0, y=0.0, number=1, **attributes):
    blueprint = CATALOGUE[f"walker.pedestrian.{number:04}"]
    assert isinstance(blueprint, WalkerBlueprint)
    identity = Identity(1, blueprint, blueprint.values({key: str(value) for key, value in attributes.items()}))
    return Walker(identity, Pose(x, y, blueprint.half_height_m, 0.0, 0.0, 0.0))


def walk(walker, steps, ground=flat, statics=NOTHING):
    for _ in range(steps):
        crowd.step(Crowd().hold([walker]), STEP_S, ground, statics)


def met(car, *people):
    return resolve([car], people, Crowd().hold(people))


def test_a_short_direction_is_a_part_of_the_speed():
    half, whole = person(), person()
    half.control, whole.control = WalkerControl((0.5, 0.0, 0.0), 2.0), WalkerControl((9.0, 0.0, 0.0), 2.0)
    walk(half, 40)
    walk(whole, 40)
    assert (half.vx, whole.vx) == (pytest.approx(1.0), pytest.approx(2.0))


def test_a_slope_is_walked_up_and_down_without_a_fall():
    one = person()
    one.control = WalkerControl((1.0, 0.0, 0.0), 1.5)
    for _ in range(200):
        walk(one, 1, lambda x, _y, _z: 0.2 * math.sin(x))
        assert one.z == pytest.approx(0.93 + 0.2 * math.sin(one.x), abs=1e-6)


def test_nobody_walks_through_a_wall():
    wall = StaticBox(3.0, 0.0, 2.0, 0.5, 5.0, 2.0, 0.0, (0, 0, 0), 3)
    one = person()
    one.control = WalkerControl((1.0, 0.2, 0.0), 2.0)
    walk(one, 60, statics=StaticIndex([wall]))
    assert one.x == pytest.approx(2.5 - one.radius_m, abs=1e-6)
    assert one.y > 0.9


def test_in_a_crowd_each_walks_as_alone_and_some_leave():
    wall = StaticIndex([StaticBox(3.0, 0.0, 2.0, 0.5, 5.0, 2.0, 0.4, (0, 0, 0), 3)])
    together, alone = ([person(0.5 * y, y, 1 + y) for y in range(6)] for _ in range(2))
    for number, walker in enumerate((*together, *alone)):
        walker.control = WalkerControl((1.0, 0.3 * (number % 6) - 1.0, 0.0), 1.5, number % 6 == 2)
        if number % 6 == 4:
            walker.hit(3.0, 1.0)
    members = Crowd()
    for tick in range(120):
        if tick == 60:
            del together[1], alone[1]
        crowd.step(members.hold(together), STEP_S, flat, wall)
        for walker in alone:
            walk(walker, 1, statics=wall)
        assert [one.state.tolist() for one in together] == [one.state.tolist() for one in alone]
    assert max(one.x for one in alone) - min(one.x for one in alone) > 1.0, "one that was hit, and lay"


def test_within_a_clearance_is_no_box():
    rng = np.random.default_rng(0)
    rows = rng.uniform((-60.0, -60.0, 0.1, 0.1, 0.0), (60.0, 60.0, 5.0, 5.0, 3.0), (40, 5))
    boxes = [StaticBox(x, y, 1.0, long, wide, 2.0, yaw, (0, 0, 0), 3) for x, y, long, wide, yaw in rows.tolist()]
    clearances, places = StaticIndex(boxes).clearances, rng.uniform(-90.0, 90.0, (2, 500))
    found = clearances.of(*places)
    assert found.tolist() == pytest.approx([clearances.at(x, y) for x, y in places.T.tolist()])
    for (x, y), free in zip(places.T.tolist(), found.tolist(), strict=True):
        for box in boxes:
            dx, dy = x - box.x, y - box.y
            along, across = abs(dx * box.cos + dy * box.sin), abs(dy * box.cos - dx * box.sin)
            assert free <= math.hypot(max(0.0, along - box.half_length_m), max(0.0, across - box.half_width_m))
    assert (found > 5.0).any()
    assert StaticIndex().clearances.at(0.0, 0.0) > 20.0


def test_a_crowds_place_counts_for_one_step():
    one = person()
    one.follow(Pose(5.0, 5.0, 0.0, 0.0, math.pi / 2, 0.0), 1.0, 0.0)
    walk(one, 1)
    assert (one.x, one.y, one.z) == (5.0, 5.0, 0.93)
    walk(one, 1)
    assert one.y == pytest.approx(5.0 + STEP_S)


def test_the_knocked_over_get_up_and_the_dead_are_gone():
    one, other = person(is_invincible="false"), person()
    one.hit(3.0, 0.0)
    other.die()
    one.follow(Pose(50.0, 0.0, 0.0, 0.0, 0.0, 0.0), 1.0, 0.0)
    walk(one, 10)
    walk(other, 10)
    assert one.lies
    assert one.x < 3.0
    assert one.z == pytest.approx(one.radius_m)
    walk(one, round(LIES_S / STEP_S))
    walk(other, round(LIES_S / STEP_S))
    assert (one.lies, one.is_gone) == (False, False)
    assert one.z == pytest.approx(0.93)
    assert other.is_gone


def test_a_hit_keeps_the_momentum():
    car, one = Body(x=0.0, vx=10.0), person(x=2.5)
    before = car.model.mass_kg * car.vx
    (hit,) = met(car, one)
    assert car.model.mass_kg * car.vx + one.mass_kg * one.vx == pytest.approx(before)
    assert hit.contact.impulse[0] == pytest.approx(-one.mass_kg * one.vx)
    assert one.vx == pytest.approx(car.vx)
    assert met(car, one) == []


def test_beside_behind_and_above_a_car_nobody_is_hit():
    car = Body(vx=10.0)
    high = person(x=1.0)
    high.place = Pose(1.0, 0.0, 5.0, 0.0, 0.0, 0.0)
    assert met(car, person(y=2.0), person(x=-4.0), high) == []


def panels(distance_m, strides=None, yaw=0.0, focal=400.0, number=1, **attributes):
    """Return what is drawn of a person straight ahead, who stands or is in the middle of a step."""
    walker = person(number=number, **attributes)
    walker.place = Pose(distance_m, 0.0, 0.93, 0.0, yaw, 0.0)
    if strides is not None:
        walker.state[Column.STRIDES_M] = strides * STRIDE_M
        walker.set_world_velocity(1.0, 0.0, 0.0)
    view = View(Pose(0.0, 0.0, 1.0, 0.0, 0.0, 0.0), Lens(640, 480, focal))
    held = Crowd()
    held.hold([walker])
    near, far = held.seen(view, 200.0)
    return actor_strokes([walker.drawn() for _ in near], far, NO_WALLS, view, NOON).strokes


def test_a_person_has_its_true_height_in_the_image_near_and_far():
    for distance_m in (5.0, 60.0):
        rows = np.concatenate([outline[:, 1] for _, outline, _, _ in panels(distance_m)]) / 16.0
        assert np.ptp(rows) == pytest.approx(400.0 * 1.86 / distance_m, rel=0.06)


def test_each_phase_of_a_stride_looks_different():
    for distance_m in (5.0, 40.0):
        sides = [panels(distance_m, strides=(i + 0.5) / PHASES, yaw=math.pi / 2) for i in range(PHASES)]
        shapes = {b"".join(outline.tobytes() for _, outline, _, _ in side) for side in sides}
        assert len(shapes) >= PHASES // 2


def test_what_is_far_away_costs_five_shapes():
    assert len(panels(60.0)) == 5
    assert len(panels(4.0)) > 20


def test_a_walker_is_shown_before_its_controller_spawns():
    with listen("127.0.0.1", 0) as listener:
        world = World(Streams(listener), Maps("Lite01"))
        ticked = []
        for synchronous in (False, True):
            world.settings = replace(world.settings, synchronous=synchronous)
            walker = world.spawn("walker.pedestrian.0001", {}, Pose(3.0 * synchronous, 0.0, 1.0))
            before = world.frame
            for _ in range(2):
                world.spawn("controller.ai.walker", {}, Pose(0.0, 0.0, 0.0), walker.id)
            ticked.append(world.frame - before)
    assert ticked == [1, 0]


def test_blueprints_look_different_and_a_wheelchair_is_seen():
    looks = {person(number=number).drawn().look for number in range(1, 53)}
    assert len(looks) > 40
    assert len(panels(5.0, use_wheelchair="true")) != len(panels(5.0))
