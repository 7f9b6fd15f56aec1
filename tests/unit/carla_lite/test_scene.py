"""Objects beside the streets keep off them, and the painted ground agrees with the network."""

from __future__ import annotations

from collections.abc import Iterator

import cv2
import numpy as np
import pytest

from carla_lite.roads import network as roads
from carla_lite.roads.network import Lane, Marking, RoadNetwork, RoadPaint
from carla_lite.scenery.paint import FINEST_M, MAX_PIXELS, GroundImage, paint, resolution_m
from carla_lite.scenery.scene import Scene
from carla_lite.scenery.statics import TAG_BUILDING, StaticBox, distance
from carla_lite.scenery.streetscape import BUILDING_CLEARANCE_M, furnish
from tests.unit.carla_lite.places import network_of


@pytest.fixture(scope="module", params=["Lite01", "Town01"])
def network(request: pytest.FixtureRequest) -> RoadNetwork:
    return network_of(request.param)


@pytest.fixture(scope="module")
def ground(network: RoadNetwork) -> GroundImage:
    return paint(network, [], 0)


def colour(ground: GroundImage, x: float, y: float) -> np.ndarray:
    places = (x - ground.x_min, y - ground.y_min)
    column, row = (round(place / ground.metres_per_pixel - 0.5) for place in places)
    pixel: np.ndarray = ground.levels[0][row, column].astype(int)
    return pixel


def inner_places(network: RoadNetwork, kind: str) -> Iterator[tuple[float, float]]:
    for lane in network.lanes:
        if lane.kind == kind and not lane.in_junction and len(lane.centre) > 8:
            yield tuple(lane.centre[len(lane.centre) // 2, :2].tolist())


def test_buildings_keep_off_every_lane(network: RoadNetwork):
    buildings = [box for box in furnish(network, 0) if box.tag == TAG_BUILDING]
    assert len(buildings) > 50
    edges = np.concatenate([points[:, :2] for lane in network.lanes for points in (lane.left, lane.centre, lane.right)])
    for box in buildings:
        close = edges[np.abs(edges - (box.x, box.y)).max(axis=1) < box.reach_m + 5.0]
        assert all(distance(box, x, y) >= BUILDING_CLEARANCE_M for x, y in close)


def test_nothing_solid_stands_where_cars_drive(network: RoadNetwork):
    scene = Scene.build(network, 0)
    for lane in network.lanes:
        if lane.kind == "driving":
            half = 0.5 * float(lane.width_m.min())
            for x, y, _ in lane.centre[::3]:
                near = [scene.statics.boxes[i] for i in scene.statics.near(x, y, half)]
                assert not any(box.solid for box in near), (lane.road_id, lane.lane_id, x, y)


def test_between_the_turns_of_a_junction_there_is_no_grass():
    ground = paint(roads.load("Lite02"), [], 0)
    pixels = ground.levels[2].astype(int)
    grass = (pixels[:, :, 1] - pixels[:, :, 2] > 15).astype(np.uint8)
    _, _, patches, _ = cv2.connectedComponentsWithStats(grass)
    square_metres = patches[1:, cv2.CC_STAT_AREA] * (4 * ground.metres_per_pixel) ** 2
    assert square_metres.min() > 1000.0


def test_buildings_do_not_overlap_each_other(network: RoadNetwork):
    buildings = [box for box in furnish(network, 0) if box.tag == TAG_BUILDING]
    for i, box in enumerate(buildings):
        for other in buildings[i + 1 :]:
            if abs(box.x - other.x) + abs(box.y - other.y) < 40.0:
                # Half a metre for the pixels of the plan.
                assert all(
                    distance(other, 0.95 * x + 0.05 * box.x, 0.95 * y + 0.05 * box.y) > 0.0 for x, y in box.corners()
                )


def test_streets_have_buildings_lamps_and_trees(network: RoadNetwork):
    boxes = furnish(network, 0)
    assert {box.tag for box in boxes} == {3, 6, 9}
    assert len({box.colour for box in boxes if box.tag == TAG_BUILDING}) > 10


def test_the_seed_decides_the_street(network: RoadNetwork):
    assert furnish(network, 1) == furnish(network, 1)
    assert furnish(network, 1) != furnish(network, 2)


def test_ground_has_the_colours_of_its_surfaces(network: RoadNetwork, ground: GroundImage):
    asphalt = np.array([colour(ground, x, y) for x, y in inner_places(network, "driving")])
    pavement = np.array([colour(ground, x, y) for x, y in inner_places(network, "sidewalk")])
    assert (asphalt.mean(axis=1) < 125).mean() > 0.95
    assert (np.ptp(asphalt, axis=1) < 12).mean() > 0.95
    assert (pavement.mean(axis=1) > 150).mean() > 0.95
    blue, green, red = colour(ground, network.bounds[0] - 20.0, network.bounds[1] - 20.0)
    assert green > blue
    assert green > red


def test_painted_lines_are_where_the_network_has_them(network: RoadNetwork, ground: GroundImage):
    yellow = [m for m in network.markings if m.color == "yellow" and len(m.points) > 10]
    seen = 0
    for marking in yellow:
        pixels = np.array([colour(ground, x, y) for x, y, _ in marking.points])
        seen += bool((pixels[:, 2] - pixels[:, 0] > 60).any())
    assert yellow
    assert seen == len(yellow)


def test_memory_of_the_ground_is_bounded(ground: GroundImage):
    assert sum(level.nbytes for level in ground.levels) <= 150e6


def straight(length_m: float, marking: str = "solid") -> RoadNetwork:
    x = np.arange(0.0, length_m + 0.5, 1.0)
    edge = np.stack([x, np.zeros_like(x), np.zeros_like(x)], axis=1)
    right = edge + np.array((0.0, 3.5, 0.0))
    lane = Lane(0, 0, -1, "driving", False, 0.5 * (edge + right), edge, right, np.full(len(x), 3.5), 10.0)
    line = Marking(edge, marking, "white", 0.15)
    return RoadNetwork("straight", "", (lane,), (0.0, 0.0, length_m, 3.5), painted=lambda: RoadPaint((line,)))


def test_a_huge_map_gets_a_coarser_ground_of_the_same_memory():
    assert resolution_m(400.0, 330.0) == FINEST_M
    coarse = resolution_m(9000.0, 1500.0)
    assert coarse > 0.3
    assert 9000.0 * 1500.0 / coarse**2 <= 1.01 * MAX_PIXELS


def test_broken_lines_are_3_m_long_with_gaps_of_4_5_m():
    ground = paint(straight(100.0, "broken"), [], 0)
    places = np.arange(0.05, 100.0, 0.1)
    white = np.array([colour(ground, x, 0.0).min() > 160 for x in places])
    changes = np.flatnonzero(np.diff(white.astype(int)))
    lengths = np.diff(places[changes])
    assert lengths[::2] == pytest.approx(3.0, abs=0.25)
    assert lengths[1::2] == pytest.approx(4.5, abs=0.25)


def test_a_shadow_lies_away_from_the_sun():
    network = straight(60.0)
    box = StaticBox(30.0, -10.0, 5.0, 5.0, 3.0, 5.0, 0.0, (0, 0, 0), TAG_BUILDING)
    bare, shaded = paint(network, [], 0), paint(network, [box], 0)
    away, sunward = (32.0, -5.0), (28.0, -15.0)
    assert colour(shaded, *away).sum() < 0.75 * colour(bare, *away).sum()
    assert (colour(shaded, *sunward) == colour(bare, *sunward)).all()


def test_coarser_levels_show_the_same_places():
    ground = paint(straight(60.0), [], 0)
    for level in range(4):
        image = ground.levels[level]
        scale = ground.metres_per_pixel * 2**level
        column, row = int((30.0 - ground.x_min) / scale), int((1.75 - ground.y_min) / scale)
        assert image[row, column].mean() == pytest.approx(86.0, abs=20.0)


def test_building_a_scene_again_gives_the_kept_one():
    network = roads.load("Lite01")
    assert Scene.build(network, 0) is Scene.build(network, 0)
    assert Scene.build(network, 0) is not Scene.build(network, 5)
