"""The real client against a real server: people who walk, are hit, and find their ways on the navigation mesh."""

from __future__ import annotations

import itertools
import math
import queue
from pathlib import Path

import carla
import pytest

ONE_SERVER = True

WAIT_S = 10.0
MAPS = Path(__file__).resolve().parents[3] / "shared" / "maps"


def beside(session, right_m, ahead_m=0.0, place=0, z=1.0):
    """Return a transform beside a spawn point, facing along the road."""
    where = session.world.get_map().get_spawn_points()[place]
    where.location += carla.Location(where.get_right_vector() * right_m + where.get_forward_vector() * ahead_m)
    where.location.z = z
    return where


def walker(session, where, name="walker.pedestrian.0001", **attributes):
    actor = session.world.spawn_actor(session.blueprint(name, **attributes), where)
    session.actors.append(actor)
    return actor


@pytest.mark.any_simulator
def test_blueprints_have_what_traffic_scripts_choose_from(session):
    library = session.world.get_blueprint_library()
    people = library.filter("walker.pedestrian.*")
    assert len(people) >= 50
    for one in people:
        speeds = one.get_attribute("speed").recommended_values
        assert [float(speed) for speed in speeds] == sorted(float(speed) for speed in speeds)
        assert len(speeds) == 3
        assert one.get_attribute("age").as_str() in ("child", "teenager", "adult", "elderly")
        one.set_attribute("is_invincible", "false")
        if one.get_attribute("can_use_wheelchair").as_bool():
            one.set_attribute("use_wheelchair", "true")
    assert {int(one.get_attribute("generation")) for one in people} == {1, 2}


@pytest.mark.any_simulator
def test_a_walkers_box_reaches_from_the_ground_to_its_crown(session):
    person = walker(session, beside(session, 3.0))
    session.ticks(30)
    ground = session.world.get_map().get_spawn_points()[0].location.z
    assert person.get_location().z == pytest.approx(person.bounding_box.extent.z, abs=abs(ground) + 0.3)
    assert person.bounding_box.extent.z == pytest.approx(0.93, abs=0.05)


@pytest.mark.any_simulator
def test_children_are_smaller(session):
    child = walker(session, beside(session, 3.0), "walker.pedestrian.0010")
    session.ticks(20)
    assert 0.4 < child.bounding_box.extent.z < 0.7
    assert child.get_location().z == pytest.approx(child.bounding_box.extent.z, abs=0.05)


@pytest.mark.any_simulator
def test_a_walker_goes_where_and_as_fast_as_its_control_says(session):
    person = walker(session, beside(session, 3.0))
    session.ticks(20)
    ahead = person.get_transform().get_forward_vector()
    start = person.get_location()
    person.apply_control(carla.WalkerControl(ahead, 2.0, False))
    session.ticks(40)
    moved = person.get_location() - start
    assert moved.x * ahead.x + moved.y * ahead.y == pytest.approx(4.0, abs=0.5)
    assert person.get_velocity().length() == pytest.approx(2.0, abs=0.1)
    control = person.get_control()
    assert (control.speed, control.jump) == (2.0, False)
    assert control.direction.x == pytest.approx(ahead.x, abs=1e-5)


@pytest.mark.any_simulator
def test_it_turns_to_where_it_walks_and_stops_at_speed_0(session):
    person = walker(session, beside(session, 3.0))
    right = person.get_transform().get_right_vector()
    person.apply_control(carla.WalkerControl(right * -1.0, 1.0, False))
    session.ticks(20)
    facing = person.get_transform().get_forward_vector()
    assert facing.x * -right.x + facing.y * -right.y > 0.99
    person.apply_control(carla.WalkerControl(right, 0.0, False))
    session.ticks(10)
    assert person.get_velocity().length() == 0.0


def test_a_control_moves_a_walker_without_physics(session):
    """Of programs that switch them off, as scenario runners do, and of a controller that has been stopped."""
    person = walker(session, beside(session, 3.0))
    person.set_simulate_physics(False)
    controller = session.world.spawn_actor(session.blueprint("controller.ai.walker"), carla.Transform(), person)
    session.world.tick()
    controller.start()
    controller.go_to_location(session.world.get_random_location_from_navigation())
    session.ticks(20)
    controller.stop()
    session.ticks(2)
    before = person.get_location()
    session.ticks(10)
    assert person.get_location() == before
    person.apply_control(carla.WalkerControl(carla.Vector3D(1.0, 0.0, 0.0), 2.0, False))
    session.ticks(10)
    assert person.get_velocity().x == pytest.approx(2.0)
    assert 0.3 < person.get_location().x - before.x < 1.0


@pytest.mark.any_simulator
def test_a_jump_leads_back_to_the_ground(session):
    person = walker(session, beside(session, 3.0))
    session.ticks(10)
    start = person.get_location().z
    person.apply_control(carla.WalkerControl(carla.Vector3D(1, 0, 0), 0.0, True))
    session.world.tick()
    assert person.get_control().jump
    heights = [person.get_location().z]
    person.apply_control(carla.WalkerControl(carla.Vector3D(1, 0, 0), 0.0, False))
    for _ in range(30):
        session.world.tick()
        heights.append(person.get_location().z)
    assert start + 1.0 < max(heights) < start + 1.4  # 5 m/s upwards reach 1.27 m
    assert heights[-1] == pytest.approx(start, abs=0.01)


@pytest.mark.any_simulator
def test_a_held_jump_is_jumped_again(session):
    person = walker(session, beside(session, 3.0))
    session.ticks(10)
    start = person.get_location().z
    person.apply_control(carla.WalkerControl(carla.Vector3D(1, 0, 0), 0.0, True))
    heights = []
    for _ in range(60):
        session.world.tick()
        heights.append(person.get_location().z)
    assert person.get_control().jump
    assert max(heights[:20]) > start + 1.0
    assert min(heights[15:35]) < start + 0.3
    assert max(heights[30:]) > start + 1.0


@pytest.mark.any_simulator
def test_batches_control_and_place_walkers(session):
    one, two = (walker(session, beside(session, right)) for right in (3.0, 4.5))
    target = carla.Transform(two.get_location() + carla.Location(x=1.0), carla.Rotation(yaw=90.0))
    session.world.tick()
    batch = [
        carla.command.ApplyWalkerControl(one, carla.WalkerControl(carla.Vector3D(0, 1, 0), 1.5, False)),
        carla.command.ApplyWalkerState(two, target, 1.4),
    ]
    assert [answer.error for answer in session.client.apply_batch_sync(batch, True)] == ["", ""]
    assert two.get_transform().rotation.yaw == pytest.approx(90.0, abs=1e-3)
    assert two.get_velocity().y == pytest.approx(1.4, abs=1e-3)
    assert two.get_location().x == pytest.approx(target.location.x, abs=1e-3)
    session.ticks(10)
    assert one.get_velocity().y == pytest.approx(1.5, abs=1e-3)


@pytest.mark.any_simulator
def test_nobody_is_spawned_into_another_or_into_a_car(session):
    where = beside(session, 3.0)
    walker(session, where)
    assert session.world.try_spawn_actor(session.blueprint("walker.pedestrian.0002"), where) is None
    car = session.car(1)
    session.world.tick()
    inside = carla.Transform(car.get_location() + carla.Location(z=0.5))
    assert session.world.try_spawn_actor(session.blueprint("walker.pedestrian.0002"), inside) is None
    first = session.world.get_map().get_spawn_points()[2]
    walker(session, first)
    assert session.world.try_spawn_actor(session.blueprint("vehicle.tesla.model3"), first) is None


@pytest.mark.parametrize("invincible", [True, False])
def test_a_car_that_hits_a_walker_tells_both_and_throws_it(session, invincible):
    car = session.car()
    person = walker(session, beside(session, 0.0, 15.0), is_invincible=str(invincible).lower())
    heard: dict[str, queue.Queue[carla.CollisionEvent]] = {"car": queue.Queue(), "person": queue.Queue()}
    session.sensor("sensor.other.collision", car, heard["car"].put)
    session.sensor("sensor.other.collision", person, heard["person"].put)
    start = person.get_location()
    car.apply_control(carla.VehicleControl(throttle=0.7))
    for _ in range(120):
        session.world.tick()
        if not heard["car"].empty():
            break
    by_car, by_person = (heard[who].get(timeout=WAIT_S) for who in ("car", "person"))
    assert by_car.other_actor.id == person.id
    assert by_person.other_actor.id == car.id
    assert "walker" in by_car.other_actor.type_id
    assert by_car.normal_impulse.length() == pytest.approx(by_person.normal_impulse.length())
    speed = person.get_velocity().length()
    assert speed > 2.0
    assert car.get_velocity().length() > 0.8 * speed
    session.ticks(5)
    lies = abs(person.get_transform().rotation.pitch) > 45.0
    assert lies is not invincible
    assert person.is_alive
    assert person.get_location().distance(start) > 0.5
    if not invincible:
        car.apply_control(carla.VehicleControl(brake=1.0))
        session.ticks(250)
        assert abs(person.get_transform().rotation.pitch) < 1.0


@pytest.mark.any_simulator
def test_who_walks_against_a_parked_car_stops_there(session):
    car = session.car()
    session.ticks(20)
    person = walker(session, beside(session, 4.0), is_invincible="false")
    toward = car.get_location() - person.get_location()
    person.apply_control(carla.WalkerControl(toward.make_unit_vector(), 1.5, False))
    session.ticks(60)
    away = person.get_location() - car.get_location()
    assert math.hypot(away.x, away.y) > car.bounding_box.extent.y
    assert abs(person.get_transform().rotation.pitch) < 1.0
    assert car.get_velocity().length() < 0.1


def bones_of(person):
    return {bone.name: bone for bone in person.get_bones().bone_transforms}


def seen_from(frame, place):
    """Return where a place in a Transform's frame is outside it."""
    # The client's method changes what it is given.
    return frame.transform(carla.Location(place.x, place.y, place.z))


def test_bones_reach_from_feet_to_head_and_hang_together(session):
    person = walker(session, beside(session, 3.0))
    session.ticks(20)
    bones, at, box = bones_of(person), person.get_transform(), person.bounding_box.extent
    assert len(bones) == 66
    for side in "LR":
        assert bones[f"crl_toe__{side}"].world.location.z == pytest.approx(at.location.z - box.z, abs=0.05)
        assert 0.5 * box.z < bones[f"crl_eye__{side}"].world.location.z - at.location.z < box.z
        chain = ["crl_hips__C", *(f"crl_{part}__{side}" for part in ("thigh", "leg", "foot", "toe", "toeEnd"))]
        for parent, bone in itertools.pairwise(chain):
            found = bones[bone].component.location
            hung = seen_from(bones[parent].component, bones[bone].relative.location)
            assert carla.Location(hung).distance(found) < 1e-3
            assert carla.Location(seen_from(at, found)).distance(bones[bone].world.location) < 1e-2
    left, right = (bones[f"crl_hand__{side}"].component.location for side in "LR")
    assert left.y == pytest.approx(-right.y, abs=1e-3)
    assert 0.15 < right.y < 0.4


def test_the_feet_of_who_walks_swing(session):
    person = walker(session, beside(session, 3.0))
    person.apply_control(carla.WalkerControl(person.get_transform().get_forward_vector(), 1.4, False))
    ahead = []
    for _ in range(40):
        session.world.tick()
        bones = bones_of(person)
        ahead.append(bones["crl_foot__L"].component.location.x - bones["crl_foot__R"].component.location.x)
    assert min(ahead) < -0.2
    assert max(ahead) > 0.2


def test_a_pose_of_ones_own_is_blended_in_and_seen(session):
    car = session.car()
    camera = session.camera(car, 160, 120)
    person = walker(session, beside(session, 1.0, 4.5))
    session.ticks(20)
    before = bones_of(person)["crl_foreArm__R"]
    picture = bytes(camera.at(session.world.tick()).raw_data)
    up = carla.Transform(before.relative.location, carla.Rotation(yaw=180.0))
    control = carla.WalkerBoneControlIn()
    control.bone_transforms = [("crl_foreArm__R", up), ("no_bone", up)]
    person.set_bones(control)
    session.world.tick()
    assert bones_of(person)["crl_foreArm__R"].world == before.world
    person.show_pose()
    session.world.tick()
    bones = bones_of(person)
    assert bones["crl_foreArm__R"].world.location.distance(before.world.location) < 1e-3
    assert bones["crl_hand__R"].component.location.z > bones["crl_foreArm__R"].component.location.z + 0.1
    assert bytes(camera.at(session.world.tick()).raw_data) != picture
    person.hide_pose()
    assert bytes(camera.at(session.world.tick()).raw_data) == picture


def test_people_are_seen(session):
    car = session.car()
    camera = session.camera(car, 160, 120)
    session.ticks(20)
    before = bytes(camera.at(session.world.tick()).raw_data)
    walker(session, beside(session, 1.0, 8.0))
    after = bytes(camera.at(session.world.tick()).raw_data)
    changed = sum(before[i : i + 3] != after[i : i + 3] for i in range(0, len(before), 4))
    assert 60 < changed < 2000


def crowd(session, count, seed=7):
    """Spawn people with controllers at random places of the mesh and send them on their ways."""
    session.world.set_pedestrians_seed(seed)
    session.world.set_pedestrians_cross_factor(0.5)
    people = session.world.get_blueprint_library().filter("walker.pedestrian.*")
    places = [session.world.get_random_location_from_navigation() for _ in range(count)]
    assert all(place is not None for place in places)
    spawn = [carla.command.SpawnActor(people[i], carla.Transform(place)) for i, place in enumerate(places)]
    ids = [answer.actor_id for answer in session.client.apply_batch_sync(spawn, True) if not answer.error]
    brain = session.world.get_blueprint_library().find("controller.ai.walker")
    batch = [carla.command.SpawnActor(brain, carla.Transform(), number) for number in ids]
    brains = [answer.actor_id for answer in session.client.apply_batch_sync(batch, True) if not answer.error]
    assert len(brains) == len(ids) > 0.8 * count
    session.world.tick()
    walkers, controllers = session.world.get_actors(ids), session.world.get_actors(brains)
    for controller in controllers:
        controller.start()
        controller.go_to_location(session.world.get_random_location_from_navigation())
        controller.set_max_speed(1.4)
    return list(walkers), list(controllers)


@pytest.mark.parametrize("town", ["Lite02", "Town02"])
def test_a_crowd_walks_on_sidewalks_and_crosswalks(start_server, connect, town):
    if town != "Lite02" and not MAPS.is_dir():
        pytest.skip(f"no maps in {MAPS}")
    server = start_server(town, extra=() if town == "Lite02" else ("--map-dir", str(MAPS)))
    session = connect(server)
    walkers, controllers = crowd(session, 20)
    starts = [person.get_location() for person in walkers]
    town_map = session.world.get_map()
    on_road = 0
    for _ in range(15):
        session.ticks(20)
        for person in walkers:
            point = town_map.get_waypoint(person.get_location(), lane_type=carla.LaneType.Driving)
            near = person.get_location().distance(point.transform.location) < 0.4 * point.lane_width
            on_road += near and not point.is_junction
            assert abs(person.get_transform().rotation.pitch) < 1.0
    moved = [person.get_location().distance(start) for person, start in zip(walkers, starts, strict=True)]
    assert sum(distance > 5.0 for distance in moved) >= 0.8 * len(walkers), moved
    assert on_road < 0.1 * 15 * len(walkers)
    for controller in controllers:
        controller.stop()
    session.client.apply_batch_sync([carla.command.DestroyActor(actor) for actor in (*controllers, *walkers)], True)
    assert session.world.tick() > 0


def test_a_walker_goes_from_one_tile_of_the_mesh_into_the_next(session):
    """A mesh of 1 200 m has three tiles of 402.75 m, from 4 m before the road on (test_navigation_mesh.py)."""
    lanes = "".join(
        f'<lane id="{number}" type="{kind}"><width sOffset="0" a="{width}"/></lane>'
        for number, kind, width in ((-1, "driving", 3.5), (-2, "sidewalk", 3.0))
    )
    session.client.set_timeout(30.0)
    world = session.client.generate_opendrive_world(
        '<OpenDRIVE><header/><road id="1" length="1200" junction="-1"><planView>'
        '<geometry s="0" x="0" y="0" hdg="0" length="1200"><line/></geometry></planView><lanes><laneSection s="0">'
        f'<center><lane id="0"/></center><right>{lanes}</right></laneSection></lanes></road></OpenDRIVE>'
    )
    settings = world.get_settings()
    settings.synchronous_mode, settings.fixed_delta_seconds = True, 0.1
    world.apply_settings(settings)
    places = [world.get_random_location_from_navigation() for _ in range(60)]
    assert {int((place.x + 4.0) // 402.75) for place in places} == {0, 1, 2}
    person = world.spawn_actor(
        session.blueprint("walker.pedestrian.0001"), carla.Transform(carla.Location(391.0, 5.0, 1.0))
    )
    controller = world.spawn_actor(session.blueprint("controller.ai.walker"), carla.Transform(), person)
    world.tick()
    controller.start()
    goal = carla.Location(406.0, 5.0, 0.0)
    controller.go_to_location(goal)
    controller.set_max_speed(2.0)
    nearest = math.inf
    for _ in range(200):
        world.tick()
        where = person.get_location()
        nearest = min(nearest, math.hypot(where.x - goal.x, where.y - goal.y))
    assert nearest < 1.0


def trace(session):
    """Return every place of some walkers that controls drive, and one camera's last picture."""
    car = session.car()
    camera = session.camera(car)
    people = [walker(session, beside(session, 2.0 + i, 5.0 + i)) for i in range(4)]
    places = []
    for step in range(40):
        for i, person in enumerate(people):
            turn = 0.3 * step + i
            person.apply_control(
                carla.WalkerControl(carla.Vector3D(math.cos(turn), math.sin(turn)), 1.0 + i, step == 9)
            )
        session.world.tick()
        image = bytes(camera.next().raw_data)
        places += [(p.x, p.y, p.z) for p in (person.get_location() for person in people)]
    return places, image


def test_the_same_controls_give_the_same_places_and_pictures(start_server, connect):
    assert trace(connect(start_server())) == trace(connect(start_server()))
