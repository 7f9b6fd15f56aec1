"""Props as cameras see them: each fills its box, and those that have a shape of their own are no boxes."""

from __future__ import annotations

import math

import numpy as np
import pytest

from carla_lite.blueprints.catalogue import CATALOGUE
from carla_lite.blueprints.props import PropBlueprint
from carla_lite.roads.reference_line import FloatArray
from carla_lite.scenery.projection import Pose
from carla_lite.scenery.prop_meshes import SIDES, Thing
from carla_lite.scenery.vehicle_meshes import VehicleMesh

PROPS = {blueprint.id: blueprint for blueprint in CATALOGUE.values() if isinstance(blueprint, PropBlueprint)}


def seen(prop: PropBlueprint, side: int = 0, up: float = 1.0) -> VehicleMesh:
    length, width, height = prop.size_m
    turn = math.tau * side / SIDES
    thing = Thing(Pose(0.0, 0.0, 0.0), (0.5 * length, 0.5 * width, 0.5 * height), prop.colour, prop.shape)
    return thing.mesh((9.0 * math.cos(turn), 9.0 * math.sin(turn), up), True)


def points(mesh: VehicleMesh) -> FloatArray:
    return mesh.rows[: mesh.count, :3]


@pytest.mark.parametrize("name", sorted(PROPS))
def test_a_prop_fills_its_box_and_no_more(name: str) -> None:
    prop = PROPS[name]
    reach = np.abs(points(seen(prop))).max(axis=0) / (0.5 * np.array(prop.size_m))
    assert reach.max() <= 1.0 + 1e-6
    assert reach.min() > 0.9
    assert points(seen(prop))[:, 2].min() == pytest.approx(-0.5 * prop.size_m[2])


def test_shapes_are_of_their_kind() -> None:
    cone = points(seen(PROPS["static.prop.trafficcone01"]))
    tip, foot = (cone[np.abs(cone[:, 2] - z) < 0.01] for z in (cone[:, 2].max(), cone[:, 2].min()))
    assert np.ptp(tip[:, 1]) < 0.3 * np.ptp(foot[:, 1])
    under = points(seen(PROPS["static.prop.table"]))
    assert (np.abs(under[under[:, 2] < 0.0, :2]).min(axis=0) > 0.2).all(), "between its legs a table is empty"
    assert len({prop.shape for prop in PROPS.values()}) > 12


def test_of_the_parts_of_a_bench_the_one_in_front_is_drawn_last() -> None:
    bench = PROPS["static.prop.bench01"]

    def drawn_last(side: int) -> float:
        mesh = seen(bench, side)
        start, end = (int(bound) for bound in mesh.traits[-1, 4:6])
        return float(mesh.rows[start:end, 0].mean())

    assert drawn_last(SIDES // 2) < -0.2, "from behind, the back"
    assert drawn_last(0) > -0.2
