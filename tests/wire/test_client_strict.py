"""The real client against a server with ``--strict`` and one without: what CARLA refuses, or hasn't."""

from __future__ import annotations

import contextlib

import carla
import pytest

# A road without sidewalks.
ROAD = """<?xml version="1.0"?><OpenDRIVE><header revMajor="1" revMinor="4" name="" version="1"/>
<road name="" length="200" id="1" junction="-1"><link/><planView><geometry s="0" x="0" y="0" hdg="0" length="200">
<line/></geometry></planView><lanes><laneSection s="0"><center><lane id="0" type="none"/></center><right>
<lane id="-1" type="driving"><width sOffset="0" a="3.5" b="0" c="0" d="0"/></lane></right></laneSection></lanes></road>
</OpenDRIVE>"""


@pytest.mark.parametrize("strict", [True, False])
def test_strict_has_what_carla_has(start_faulty, connect, tmp_path, strict):
    (tmp_path / "Road.xodr").write_text(ROAD)
    faulty = start_faulty("--map-dir", str(tmp_path), *(("--strict",) if strict else ()))
    session = connect(faulty.server)
    assert faulty.status()["strict"] == ("yes" if strict else "no")
    session.world = session.client.load_world("Road")
    assert (session.world.get_random_location_from_navigation() is None) == strict

    where = session.world.get_map().get_spawn_points()[0]
    where.location.z = session.world.get_map().get_waypoint(where.location).transform.location.z
    blueprint = session.blueprint("vehicle.tesla.model3")
    assert (session.world.try_spawn_actor(blueprint, where) is None) == strict
    where.location += carla.Location(x=15.0, z=0.3)
    session.actors.append(session.world.spawn_actor(blueprint, where))

    gone = session.actors.pop()
    session.world.tick()
    assert connect(faulty.server).world.get_actor(gone.id).destroy()
    with pytest.raises(RuntimeError, match="does not exist") if strict else contextlib.nullcontext():
        gone.set_simulate_physics(True)

    def houses_left(name):
        session.world = session.client.load_world(name)
        session.world.unload_map_layer(carla.MapLayer.Buildings)
        return len(session.world.get_environment_objects(carla.CityObjectLabel.Buildings))

    assert (houses_left("Road") > 0) == strict
    assert houses_left("Road_Opt") == 0
    assert ("unload_map_layer" in faulty.status()["unsupported"]) == strict
