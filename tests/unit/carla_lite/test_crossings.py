"""Crosswalks and stop lines: those of the file, those at junctions, and what is painted for them."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import replace

import numpy as np
import pytest

from carla_lite.roads import network
from carla_lite.roads.network import RoadNetwork, RoadPaint
from carla_lite.scenery.paint import paint
from carla_lite.scenery.zebra import painted_on

OUTLINE = ((-4.0, -1.5), (4.0, -1.5), (4.0, 1.5), (-4.0, 1.5))


def bare():
    """Return the OpenDRIVE tree of Lite01 without objects."""
    root = ET.fromstring(network.load("Lite01").xodr)
    for road in root.iterfind("road"):
        for objects in road.findall("objects"):
            road.remove(objects)
    return root


LITE01 = RoadNetwork.parse("Lite01", ET.tostring(bare(), encoding="unicode"))


def with_crosswalk(s=30.0, heading=1.5707963):
    """Return Lite01 with one crosswalk object across its first road."""
    root = bare()
    objects = ET.SubElement(root.findall("road")[0], "objects")
    crosswalk = ET.SubElement(objects, "object", id="1", type="crosswalk", s=str(s), t="0", hdg=str(heading))
    outline = ET.SubElement(crosswalk, "outline")
    for u, v in OUTLINE:
        ET.SubElement(outline, "cornerLocal", u=str(u), v=str(v), z="0")
    return RoadNetwork.parse("one", ET.tostring(root, encoding="unicode"))


def test_a_map_without_crosswalks_gets_one_at_every_mouth():
    crossings = LITE01.crossings
    mouths = {
        (road.get("id"), end)
        for road in ET.fromstring(LITE01.xodr).iterfind("road[@junction='-1']")
        for end in ("predecessor", "successor")
        if road.find(f"link/{end}[@elementType='junction']") is not None
    }
    assert len(crossings.crosswalks) == len(crossings.stop_lines) == len(mouths) > 10
    for crosswalk in crossings.crosswalks:
        sides = np.linalg.norm(np.diff(crosswalk[:, :2], axis=0), axis=1)
        assert sides.min() == pytest.approx(3.0)


def test_a_map_with_crosswalks_keeps_to_its_own():
    one = with_crosswalk()
    assert len(one.crossings.crosswalks) == 1
    assert len(one.crossings.stop_lines) == len(LITE01.crossings.stop_lines)


def test_the_client_reads_the_same_crosswalks_from_the_file():
    carla = pytest.importorskip("carla")
    one = with_crosswalk()
    theirs = np.array([(p.x, p.y, p.z) for p in carla.Map("one", one.xodr).get_crosswalks()])
    ours = one.crossings.crosswalks[0]
    assert np.abs(theirs[: len(ours)] - ours).max() < 1e-3


def test_a_stop_line_lies_before_the_crosswalk():
    length = float(ET.fromstring(LITE01.xodr).find("road").attrib["length"])  # type: ignore[union-attr]
    near = with_crosswalk(s=length - 4.0)
    crosswalk = near.crossings.crosswalks[0][:, :2]
    moved = [line for line in near.crossings.stop_lines if _distance(line, crosswalk) < 5.0]
    assert moved
    assert min(_distance(line, crosswalk) for line in moved) > 0.2


def _distance(line, crosswalk):
    return float(np.linalg.norm(line[:, None, :2] - crosswalk[None], axis=2).min())


def test_stripes_lie_across_the_way_that_people_walk():
    stripes = list(painted_on(LITE01.crossings))[:5]
    longer = LITE01.crossings.crosswalks[0][1, :2] - LITE01.crossings.crosswalks[0][0, :2]
    for stripe in stripes:
        long_side = max(np.diff(stripe, axis=0), key=lambda side: float(np.linalg.norm(side)))
        cosine = long_side @ longer / np.linalg.norm(long_side) / np.linalg.norm(longer)
        assert abs(cosine) < 0.01


def test_stripes_are_painted_on_the_asphalt_only():
    image = paint(LITE01, [], 0)
    before = paint(replace(LITE01, painted=lambda: RoadPaint(LITE01.markings)), [], 0)
    changed = (image.levels[0] != before.levels[0]).any(axis=2)
    assert (image.levels[0][changed].min(axis=1) > before.levels[0][changed].min(axis=1)).mean() > 0.99
    area = changed.sum() * image.metres_per_pixel**2
    crosswalks = len(LITE01.crossings.crosswalks)
    assert 10.0 * crosswalks < area < 40.0 * crosswalks
