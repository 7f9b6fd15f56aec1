"""The navigation mesh: areas, polygons without gaps, and Detour's layout read back."""

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


def test_the_file_is_laid_out_as_detour_reads_it():
    corners = np.array([(0, 0, 0), (0, 0, 2), (2, 0, 2), (2, 0, 0), (4, 0, 2), (4, 0, 0)], np.float64)
    file = detour.navigation_mesh(corners, [[0, 1, 2, 3], [3, 2, 4, 5]], [1, 3])
    assert struct.unpack_from("<iii", file) == (int.from_bytes(b"MSET", "big"), 1, 1)
    reference, size = struct.unpack_from("<Ii", file, 40)
    assert (reference, size) == (1 << 15, len(file) - 48)
    tile = file[48:]
    magic, version, *_, polygon_count, corner_count, links, details, _, triangles, nodes, _, base = struct.unpack_from(
        "<15i", tile
    )
    assert (magic, version) == (int.from_bytes(b"DNAV", "big"), 7)
    assert (polygon_count, corner_count, links, details, triangles, nodes, base) == (2, 6, 8, 2, 4, 3, 2)
    assert len(tile) == 100 + 12 * 6 + 32 * 2 + 12 * 8 + 12 * 2 + 4 * 4 + 16 * 3
    first = struct.unpack_from("<I6H6HHBB", tile, 172)
    assert first == (0, 0, 1, 2, 3, 0, 0, 0, 0, 2, 0, 0, 0, 2, 4, 1)


def test_more_than_a_tile_holds_is_refused():
    with pytest.raises(ValueError, match="one tile holds"):
        detour.navigation_mesh(np.zeros((3, 3)), [[0, 1, 2]] * (1 << 15), [1] * (1 << 15))


def test_the_files_name_changes_with_the_map_only():
    other = network.load("Lite01")
    assert mesh.file_name(LITE02) != mesh.file_name(other)
    assert mesh.file_name(LITE02).endswith(".bin")
    first = mesh.build(LITE02)
    mesh.build.cache_clear()
    assert mesh.build(LITE02) == first
