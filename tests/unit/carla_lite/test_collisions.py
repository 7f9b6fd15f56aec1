"""Contacts: which bodies touch, momentum, and that no body stays inside another."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from carla_lite.motion.collisions import PUSHED_MPS, resolve
from carla_lite.motion.physics import MODEL3, Body, Control, advance
from carla_lite.scenery.statics import TAG_BUILDING, TAG_POLE, TAG_VEGETATION, StaticBox, StaticIndex
from tests.unit.carla_lite.places import flat, scene

LENGTH, WIDTH = 2.0 * MODEL3.half_length_m, 2.0 * MODEL3.half_width_m


def wall(x: float, tag: int = TAG_BUILDING, solid: bool = True, z: float = 5.0) -> StaticBox:
    return StaticBox(x, 0.0, z, 1.0, 20.0, 5.0, 0.0, (0, 0, 0), tag, solid)


def moving(x: float, speed: float, y: float = 0.0, yaw: float = 0.0) -> Body:
    body = Body(x=x, y=y, yaw=yaw, placed=False)
    body.set_world_velocity(speed, 0.0)
    return body


def momentum(bodies: list[Body]) -> tuple[float, float]:
    velocities = [body.world_velocity() for body in bodies]
    return sum(v[0] for v in velocities) * MODEL3.mass_kg, sum(v[1] for v in velocities) * MODEL3.mass_kg


def test_cars_a_centimetre_apart_do_not_touch():
    assert resolve([moving(0.0, 10.0), moving(LENGTH + 0.01, 0.0)], scene()) == []


def test_rear_end_crash_keeps_momentum_and_pushes_the_cars_apart():
    bodies = [moving(0.0, 10.0), moving(LENGTH - 0.1, 0.0)]
    before = momentum(bodies)
    (contact,) = resolve(bodies, scene())
    assert (contact.index_a, contact.index_b, contact.static_tag) == (0, 1, 0)
    assert momentum(bodies) == pytest.approx(before)
    assert bodies[1].x - bodies[0].x >= LENGTH - 1e-9
    assert bodies[1].vx > bodies[0].vx
    assert contact.impulse[0] == pytest.approx(MODEL3.mass_kg * (bodies[0].vx - 10.0))


def test_wall_stops_a_car_and_reports_its_tag_and_impulse():
    body = moving(0.0, 10.0)
    (contact,) = resolve([body], scene(wall(MODEL3.half_length_m + 0.9)))
    assert (contact.index_a, contact.index_b, contact.static_tag) == (0, None, TAG_BUILDING)
    assert contact.impulse[0] == pytest.approx(-MODEL3.mass_kg * 10.0 * 1.1)
    assert body.vx <= 0.0


def test_full_throttle_does_not_drive_through_a_wall():
    body, world = Body(control=Control(throttle=1.0)), scene(wall(40.0))
    hits = 0
    for _ in range(100):
        advance(body, 0.1, flat)
        hits += len(resolve([body], world))
    assert body.x <= 39.0 - MODEL3.half_length_m + 0.01
    assert hits > 1


def test_a_pole_hit_off_centre_turns_the_car():
    body = moving(0.0, 15.0)
    pole = StaticBox(MODEL3.half_length_m, 0.8, 3.0, 0.1, 0.1, 3.0, 0.0, (0, 0, 0), TAG_POLE)
    (contact,) = resolve([body], scene(pole))
    assert contact.static_tag == TAG_POLE
    assert body.yaw_rate > 0.2  # the right front is held back: clockwise


def test_crowns_and_boxes_above_the_car_are_no_obstacle():
    crown = wall(1.0, TAG_VEGETATION, solid=False)
    bridge = wall(1.0, z=20.0)
    assert resolve([moving(0.0, 10.0)], scene(crown, bridge)) == []


def house(x: float, y: float = 0.0, half: float = 5.0, solid: bool = True, z: float = 5.0) -> StaticBox:
    return StaticBox(x, y, z, half, half, 5.0, 0.3, (0, 0, 0), TAG_BUILDING if solid else TAG_VEGETATION, solid)


@pytest.mark.parametrize(("x", "y"), [(0.0, 0.0), (3.0, 1.0), (-4.0, 2.0)])
def test_a_car_set_into_a_house_is_put_outside_and_leaves_it(x: float, y: float):
    body, world = Body(x=x, y=y), scene(house(0.0))
    (contact,) = resolve([body], world)
    assert math.hypot(*contact.impulse) == pytest.approx(MODEL3.mass_kg * PUSHED_MPS)
    vx, vy, _ = body.world_velocity()
    assert (vx, vy) == pytest.approx((contact.impulse[0] / MODEL3.mass_kg, contact.impulse[1] / MODEL3.mass_kg))
    assert vx * body.x + vy * body.y > 0.0
    assert not any(any(contact.impulse) for contact in resolve([body], world))


def test_a_car_set_into_a_row_of_houses_is_put_beside_the_row():
    along = [(10.0 * k * math.cos(0.3), 10.0 * k * math.sin(0.3)) for k in range(-3, 4)]
    body, world = Body(x=4.5, y=0.5, yaw=0.3), scene(*(house(x, y) for x, y in along))
    assert resolve([body], world)
    assert not any(any(contact.impulse) for contact in resolve([body], world))


def test_cars_set_into_one_another_part_and_keep_momentum():
    bodies = [Body(), Body(x=2.0, yaw=0.4)]
    (contact,) = resolve(bodies, scene())
    assert math.hypot(*contact.impulse) == pytest.approx(0.5 * MODEL3.mass_kg * PUSHED_MPS, rel=0.5)
    assert momentum(bodies) == pytest.approx((0.0, 0.0), abs=1e-6)


def test_a_crown_or_plate_is_hit_only_from_its_middle():
    crown = StaticBox(0.0, 0.0, 2.0, 1.5, 1.5, 1.5, 0.0, (0, 0, 0), TAG_VEGETATION, solid=False)
    plate = StaticIndex([StaticBox(20.0, 0.0, 1.0, 0.02, 0.4, 0.4, 0.0, (0, 0, 0), 8, solid=False)])
    for brushing in (Body(x=2.0, y=1.0), Body(x=20.0, y=1.2), moving(0.0, 5.0)):
        assert resolve([brushing], scene(crown), plate) == []
    inside = [Body(z=1.0), Body(x=20.0, y=0.4)]
    assert [contact.static_tag for contact in resolve(inside, scene(crown), plate)] == [TAG_VEGETATION, 8]


def test_a_car_that_does_not_move_by_physics_is_hit_like_a_wall():
    parked = Body(x=LENGTH - 0.1, simulate_physics=False)
    body = moving(0.0, 10.0)
    (contact,) = resolve([body, parked], scene())
    assert (parked.x, parked.vx) == (LENGTH - 0.1, 0.0)
    assert contact.impulse[0] == pytest.approx(-MODEL3.mass_kg * 10.0 * 1.1)


def test_scraping_along_a_wall_slows_by_friction_only():
    body = Body(y=0.0, yaw=0.0)
    body.set_world_velocity(20.0, 1.0)
    side = StaticBox(0.0, MODEL3.half_width_m + 0.95, 3.0, 50.0, 1.0, 3.0, 0.0, (0, 0, 0), TAG_BUILDING)
    resolve([body], scene(side))
    vx, vy, _ = body.world_velocity()
    assert 18.0 < vx < 20.0
    assert vy <= 0.05


def test_contacts_come_in_the_order_of_the_bodies():
    bodies = [moving(3 * (LENGTH - 0.2) - i * (LENGTH - 0.2), 0.0) for i in range(4)]
    pairs = [(c.index_a, c.index_b) for c in resolve(bodies, scene())]
    assert pairs[:3] == [(0, 1), (1, 2), (2, 3)]


@settings(max_examples=150)
@given(
    dx=st.floats(-6, 6),
    dy=st.floats(-6, 6),
    yaws=st.tuples(st.floats(-3.1, 3.1), st.floats(-3.1, 3.1)),
    velocities=st.tuples(*[st.floats(-30, 30)] * 4),
)
def test_any_crash_keeps_momentum_and_gains_no_energy(dx, dy, yaws, velocities):
    a, b = Body(yaw=yaws[0], placed=False), Body(x=dx, y=dy, yaw=yaws[1], placed=False)
    a.set_world_velocity(velocities[0], velocities[1])
    b.set_world_velocity(velocities[2], velocities[3])

    def energy() -> float:
        return sum(
            0.5 * MODEL3.mass_kg * (o.vx**2 + o.vy**2) + 0.5 * MODEL3.yaw_inertia_kgm2 * o.yaw_rate**2 for o in (a, b)
        )

    before, energy_before = momentum([a, b]), energy()
    touched = bool(resolve([a, b], scene()))
    assert momentum([a, b]) == pytest.approx(before, abs=1e-6)
    assert energy() <= energy_before * (1 + 1e-9) + 1e-6
    gap = math.hypot(a.x - b.x, a.y - b.y)
    if not touched:
        assert gap > WIDTH - 1e-6
    else:
        assert resolve([a, b], scene()) == [] or gap >= WIDTH - 1e-6


@settings(max_examples=50)
@given(
    places=st.lists(st.tuples(st.floats(-60, 60), st.floats(-60, 60), st.floats(-3, 3)), max_size=30),
    at=st.tuples(st.floats(-60, 60), st.floats(-60, 60)),
    radius=st.floats(0.1, 50),
)
def test_the_grid_finds_what_looking_at_every_box_finds(places, at, radius):
    boxes = [StaticBox(x, y, 1.0, 3.0, 1.0, 1.0, yaw, (0, 0, 0), TAG_BUILDING) for x, y, yaw in places]

    def apart(box: StaticBox) -> float:
        u = (at[0] - box.x) * math.cos(box.yaw) + (at[1] - box.y) * math.sin(box.yaw)
        v = (at[1] - box.y) * math.cos(box.yaw) - (at[0] - box.x) * math.sin(box.yaw)
        return math.hypot(max(0.0, abs(u) - 3.0), max(0.0, abs(v) - 1.0))

    near = StaticIndex(boxes).near(at[0], at[1], radius)
    assert near == [i for i, box in enumerate(boxes) if apart(box) <= radius]
