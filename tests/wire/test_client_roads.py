"""Road networks that a client sends: what it would not survive comes back as a sentence, all others can be driven."""

from __future__ import annotations

import math

import carla
import pytest

ONE_SERVER = True
ROAD = """<OpenDRIVE xmlns="http://code.asam.net/simulation/standard/opendrive_schema"><header/>
 <road id="A1" length="120" junction="-1" rule="{rule}">
  <planView><geometry hdg="0.4" length="120"><line/></geometry></planView>
  <lanes><laneSection><left><lane id="1" type="Driving"><width a="{width}"/></lane></left>
   <center><lane id="0"/></center>
   <right><lane id="-1" type="Driving"><width a="{width}"/></lane></right></laneSection></lanes>
  <signals>{signals}</signals></road></OpenDRIVE>"""


@pytest.mark.parametrize(("width", "rule"), [(3.5, "LHT"), (2.3, "RHT")])
def test_a_road_that_leaves_much_out_is_driven_along_its_lanes(session, width: float, rule: str):
    world = session.client.generate_opendrive_world(ROAD.format(width=width, rule=rule, signals=""))
    settings = world.get_settings()
    settings.synchronous_mode, settings.fixed_delta_seconds = True, 0.05
    world.apply_settings(settings)
    places = world.get_map().get_spawn_points()
    assert places
    for place in places:
        lane = world.get_map().get_waypoint(place.location).transform
        assert math.hypot(lane.location.x - place.location.x, lane.location.y - place.location.y) < 0.1
        assert abs(math.remainder(lane.rotation.yaw - place.rotation.yaw, 360.0)) < 0.1
    car = world.spawn_actor(world.get_blueprint_library().find("vehicle.tesla.model3"), places[0])
    car.apply_control(carla.VehicleControl(throttle=1.0))
    for _ in range(60):
        world.tick()
    ahead = places[0].get_forward_vector()
    assert (car.get_location() - places[0].location).dot(ahead) > 2.0


def test_a_road_that_would_end_the_client_is_a_sentence(session):
    dangling = '<signalReference id="lost" s="10" t="0" orientation="+"/>'
    with pytest.raises(RuntimeError, match="road 0, signal 'lost': no <signal> has this id"):
        session.client.generate_opendrive_world(ROAD.format(width=3.5, rule="RHT", signals=dangling))
    assert session.world.tick() > 0
