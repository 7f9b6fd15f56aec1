"""The navigation mesh: areas, polygons without gaps, tiles that join, and Detour's layout read back."""

from __future__ import annotations

import struct
from dataclasses import replace
from itertools import pairwise

import cv2
import numpy as np
import pytest

from carla_lite.navigation import detour, mesh
from carla_lite.navigation.areas import Area, area_map
from carla_lite.navigation.polygons import Labels, polygons
from carla_lite.roads import network

LITE02 = network.load("Lite02")
LONG_ROAD = """<OpenDRIVE><header/><road id="1" length="1200" junction="-1">
 <planView><geometry s="0" x="0" y="0" hdg="0" length="1200"><line/></geometry></planView>
 <lanes><laneSection s="0"><center><lane id="0"/></center><right>
  <lane id="-1" type="driving"><width sOffset="0" a="3.5"/></lane>
  <lane id="-2" type="sidewalk"><width sOffset="0" a="3"/></lane></right></laneSection></lanes></road></OpenDRIVE>"""
TWO: Labels = np.kron([[0, 0, 0, 0], [0, 1, 3, 0], [0, 1, 1, 0], [0, 0, 0, 0]], np.ones((8, 8))).astype(np.uint8)


def area_of(found):
    total = dict.fromkeys(set(found.labels), 0.0)
    for ring, label in zip(found.rings, found.labels, strict=True):
        x, y = found.corners[ring].T
        total[label] -= 0.5 * float(x @ np.roll(y, -1) - y @ np.roll(x, -1))
    return total


def test_polygons_cover_each_area_exactly_and_turn_one_way():
    found = polygons(TWO, step_px=5.0)
    assert area_of(found) == {1: 3 * 64.0, 3: 64.0}
    assert all(3 <= len(ring) <= 6 for ring in found.rings)


def test_no_edge_is_used_twice_in_one_direction():
    found = polygons(TWO, step_px=5.0)
    edges = [edge for ring in found.rings for edge in pairwise([*ring, ring[0]])]
    assert len(set(edges)) == len(edges)


def test_a_town_is_covered_but_for_the_smoothing_of_its_outlines():
    areas = area_map(LITE02.lanes, [outline[:, :2] for outline in LITE02.crossings.crosswalks])
    found = polygons(areas.labels, step_px=16.0)
    covered = area_of(found)
    for area in (Area.SIDEWALK, Area.CROSSWALK, Area.ROAD):
        assert covered[area] == pytest.approx(float((areas.labels == area).sum()), rel=0.02)


def test_every_crosswalk_joins_a_sidewalk():
    areas = area_map(LITE02.lanes, [outline[:, :2] for outline in LITE02.crossings.crosswalks])
    found = polygons(areas.labels, step_px=16.0)
    owner = {edge: i for i, ring in enumerate(found.rings) for edge in pairwise([*ring, ring[0]])}
    joined = {
        found.labels[owner[b, a]]
        for ring, label in zip(found.rings, found.labels, strict=True)
        if label == Area.CROSSWALK
        for a, b in pairwise([*ring, ring[0]])
        if (b, a) in owner
    }
    assert joined >= {Area.SIDEWALK, Area.ROAD}


def test_a_short_crosswalk_is_drawn_out_to_both_sidewalks():
    for outline in LITE02.crossings.crosswalks[:6]:
        whole = outline[:4, :2]
        sideways = np.linalg.norm(whole[1] - whole[0]) > np.linalg.norm(whole[2] - whole[1])
        short = whole + (whole[[1, 0, 3, 2] if sideways else [3, 2, 1, 0]] - whole) * 0.3
        labels = area_map(LITE02.lanes, [short]).labels
        around = cv2.dilate((labels == Area.CROSSWALK).astype(np.uint8), np.ones((3, 3), np.uint8))
        count, _ = cv2.connectedComponents(around * (labels == Area.SIDEWALK).astype(np.uint8))
        assert count - 1 == 2


def test_a_map_without_sidewalks_gets_a_strip_beside_the_road():
    driving = [lane for lane in LITE02.lanes if lane.kind == "driving"]
    assert (area_map(driving, []).labels == Area.SIDEWALK).any()


def test_a_median_is_grass_but_for_where_it_is_crossed():
    median = next(lane for lane in LITE02.lanes if lane.kind == "driving" and not lane.in_junction)
    lanes = [replace(lane, kind="median") if lane is median else lane for lane in LITE02.lanes]
    outline = np.concatenate([median.left, median.right[::-1]])[:, :2]
    plain, planted = area_map(LITE02.lanes, []), area_map(lanes, [])
    changed = plain.labels != planted.labels
    assert set(plain.labels[changed]) == {Area.ROAD}
    assert set(planted.labels[changed]) == {Area.GRASS}
    whole = cv2.contourArea(outline.astype(np.float32)) / planted.pixel_m**2
    assert changed.sum() == pytest.approx(whole, rel=0.1)
    assert Area.GRASS in polygons(planted.labels, step_px=16.0).labels
    crossed = area_map(lanes, [outline]).labels[planted.labels == Area.GRASS]
    assert (crossed == Area.CROSSWALK).mean() > 0.9


@pytest.mark.parametrize("cut", [5, 8, 12, 16, 20])
@pytest.mark.parametrize("turned", [False, True])
def test_two_rasters_polygons_meet_where_an_area_is_cut(cut, turned):
    slanted = cv2.fillPoly(np.zeros((40, 32), np.uint8), [np.array([(3, 2), (28, 12), (20, 36), (6, 30)])], 1)
    cv2.fillPoly(slanted, [np.array([(0, 15), (31, 10), (31, 16), (0, 22)])], 3)
    labels = slanted.T if turned else slanted
    whole = np.ascontiguousarray(labels)
    parts = [np.ascontiguousarray(part) for part in (labels[:, :cut], labels[:, cut:])]
    found = [polygons(part, step_px=5.0) for part in parts]

    def on_cut(part, x):
        edges = [edge for ring in part.rings for edge in pairwise([*ring, ring[0]])]
        spans = (sorted(part.corners[list(edge), 1]) for edge in edges if (part.corners[list(edge), 0] == x).all())
        return sum(high - low for low, high in spans)

    cut_px = [float((part[:, column] > 0).sum()) for part, column in zip(parts, (-1, 0), strict=True)]
    assert [on_cut(found[0], cut), on_cut(found[1], 0)] == cut_px
    assert sum(sum(area_of(part).values()) for part in found) == pytest.approx(float((whole > 0).sum()), rel=0.04)


GRID = detour.Grid(x_min=-1.0, y_min=-1.0, width=5.0, depth=4.0)
SQUARES = np.array([(0, 0, 0), (0, 0, 2), (2, 0, 2), (2, 0, 0), (4, 0, 2), (4, 0, 0)], np.float64)


def tiles_of(file):
    """Return each tile's reference and bytes."""
    count, found, at = struct.unpack_from("<i", file, 8)[0], [], 40
    for _ in range(count):
        reference, size = struct.unpack_from("<Ii", file, at)
        found.append((reference, file[at + 8 : at + 8 + size]))
        at += 8 + size
    assert at == len(file)
    return found


def test_the_file_is_laid_out_as_detour_reads_it():
    file = detour.navigation_mesh([detour.Tile(0, 0, SQUARES, [[0, 1, 2, 3], [3, 2, 4, 5]], [1, 3])], GRID)
    assert struct.unpack_from("<iii", file) == (int.from_bytes(b"MSET", "big"), 1, 1)
    assert struct.unpack_from("<5fii", file, 12) == (-1.0, -2.0, -1.0, 5.0, 4.0, 1, 1 << 15)
    ((reference, tile),) = tiles_of(file)
    assert reference == 1 << 15
    magic, version, *_, polygon_count, corner_count, links, details, _, triangles, nodes, _, base = struct.unpack_from(
        "<15i", tile
    )
    assert (magic, version) == (int.from_bytes(b"DNAV", "big"), 7)
    # One of the eight edges is on the tile's side: the reader may give it two links more.
    assert (polygon_count, corner_count, links, details, triangles, nodes, base) == (2, 6, 10, 2, 4, 3, 2)
    assert len(tile) == 100 + 12 * 6 + 32 * 2 + 12 * 10 + 12 * 2 + 4 * 4 + 16 * 3
    first = struct.unpack_from("<I6H6HHBB", tile, 172)
    assert first == (0, 0, 1, 2, 3, 0, 0, 0, 0, 2, 0, 0, 0, 2, 4, 1)


def test_edges_on_a_tiles_side_name_the_direction():
    grid = detour.Grid(x_min=0.0, y_min=0.0, width=2.0, depth=2.0)
    moved = [SQUARES[:4] + np.array((2 * (i % 2), 0, 2 * (i // 2))) for i in range(4)]
    tiles = [detour.Tile(i % 2, i // 2, moved[i], [[0, 1, 2, 3]], [1]) for i in range(4)]
    read = tiles_of(detour.navigation_mesh(tiles, grid))
    # Two bits for the tile above fifteen for the polygon, and salt 1 above both.
    assert [reference for reference, _ in read] == [(4 + i) << 15 for i in range(4)]
    assert [struct.unpack_from("<2i", tile, 8) for _, tile in read] == [(0, 0), (1, 0), (0, 1), (1, 1)]
    # The square's edges face smaller x, larger y, larger x and smaller y.
    sides = struct.unpack_from("<6H", read[0][1], 100 + 12 * 4 + 16)
    assert sides == (0x8000 | 4, 0x8000 | 2, 0x8000, 0x8000 | 6, 0, 0)


def test_a_wide_map_has_tiles_of_one_size_and_a_small_one_has_one():
    (one,) = tiles_of(mesh.build(LITE02))
    assert one[0] == 1 << 15
    road = network.RoadNetwork.parse("long", LONG_ROAD)
    tiles = [tile for _, tile in tiles_of(mesh.build(road))]
    columns, lows, highs = zip(*[(tile[8:12], *struct.unpack_from("<f8xf", tile, 72)) for tile in tiles], strict=True)
    assert [int.from_bytes(column, "little") for column in columns] == [0, 1, 2]
    assert [high - low for low, high in zip(lows, highs, strict=True)] == pytest.approx([402.75] * 3)


def test_a_tile_in_which_nobody_can_walk_is_left_out():
    """Two roads of 700 m, at right angles: nothing is in the corner beside both."""
    second = LONG_ROAD.replace('id="1"', 'id="2"').replace('hdg="0"', 'hdg="1.5707963"').partition("<road")[2]
    both = LONG_ROAD.replace("</OpenDRIVE>", "<road" + second).replace("1200", "700")
    tiles = tiles_of(mesh.build(network.RoadNetwork.parse("corner", both)))
    places = [struct.unpack_from("<2i", tile, 8) for _, tile in tiles]
    assert len(places) == 3
    assert set(places) < {(0, 0), (1, 0), (0, 1), (1, 1)}


def test_more_than_a_tile_or_a_reference_holds_is_refused():
    tile = detour.Tile(0, 0, np.zeros((3, 3)), [[0, 1, 2]] * (1 << 15), [1] * (1 << 15))
    with pytest.raises(ValueError, match="one tile holds"):
        detour.navigation_mesh([tile], GRID)
    small = detour.Tile(0, 0, SQUARES[:4], [[0, 1, 2, 3]], [1])
    with pytest.raises(ValueError, match="129 tiles, a reference holds 128"):
        detour.navigation_mesh([small] * 129, GRID)
    with pytest.raises(ValueError, match="nowhere to walk"):
        detour.navigation_mesh([], GRID)


def test_the_files_name_changes_with_the_map_only():
    other = network.load("Lite01")
    assert mesh.file_name(LITE02) != mesh.file_name(other)
    assert mesh.file_name(LITE02).endswith(".bin")
    first = mesh.build(LITE02)
    mesh.build.cache_clear()
    assert mesh.build(LITE02) == first
