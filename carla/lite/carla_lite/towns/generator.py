"""Generator of towns as OpenDRIVE 1.4 text: Lite01, Lite02, and one for each seed (``seeded``).

Owns the details of a plan's streets: ids, links, lanes, painted lines, kerbs. The same name gives the same bytes.
Imports nothing that reads OpenDRIVE.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Sequence
from dataclasses import replace
from itertools import count

from carla_lite.towns import seeded
from carla_lite.towns.geometry import Piece
from carla_lite.towns.junctions import Arm, Town, Turn, build
from carla_lite.towns.opendrive_xml import LaneSpec, Mark, add_lanes, metres, road_element
from carla_lite.towns.plan import LANE_M, PLANS, SHOULDER_M, SIDEWALK_M, Street
from carla_lite.towns.signs import Signs

NAMES = tuple(PLANS)
HOW_NAMED = seeded.HOW_NAMED
KNOWN = f"{', '.join(NAMES)}, {HOW_NAMED}"
"""The towns that are there, as a sentence lists them."""
FIRST_JUNCTION, FIRST_TURN = 500, 1000
# Centre lines and lane separators are solid this close to a crossing: no overtaking, no late change of lane.
SOLID_M = 15.0
# A way through a crossing that bends more than this has a lower speed limit.
TIGHT_PER_M, TURN_KMH = 1 / 30, 30
EDGE_LINE = (Mark("solid"),)
KERB = (Mark("curb"),)


def is_name(text: str) -> bool:
    """Return whether ``generate`` has a town of this name."""
    return text in PLANS or seeded.is_name(text)


def generate(name: str) -> str:
    """Return the OpenDRIVE text of a town in ``NAMES``, or named as ``seeded`` has it; KeyError for another name."""
    town = build(PLANS[name] if name in PLANS else seeded.plan_of(name))
    signs = Signs(town)
    root = ET.Element("OpenDRIVE")
    root.append(header_element(name, town))
    junction_ids = {crossing: FIRST_JUNCTION + i for i, crossing in enumerate(town.crossings)}
    for road_id, (street, line) in enumerate(town.streets):
        road = street_element(road_id, street, line, junction_ids, winds=name not in PLANS)
        road.extend(signs.of_street(road_id))
        root.append(road)
    turn_ids = count(FIRST_TURN)
    junctions = []
    for crossing, turns in town.crossings.items():
        junction = ET.Element("junction", id=str(junction_ids[crossing]), name=crossing)
        for turn in turns:
            road_id = next(turn_ids)
            road = turn_element(road_id, junction_ids[crossing], turn, town)
            road.extend(signs.of_turn(turn))
            root.append(road)
            junction.append(connection_element(len(junction), road_id, turn))
        junction.extend(signs.of_junction(crossing))
        junctions.append(junction)
    root.extend(signs.controllers())
    root.extend(junctions)
    ET.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(root, encoding="unicode")}\n'


def header_element(name: str, town: Town) -> ET.Element:
    """Return the header: name, extent, and the geographic origin that CARLA's towns use."""
    starts = [piece.start for _, line in town.streets for piece in line]
    east, north = [point.real for point in starts], [point.imag for point in starts]
    extent = {"north": max(north), "south": min(north), "east": max(east), "west": min(east)}
    header = ET.Element("header", revMajor="1", revMinor="4", name=name, version="1", vendor="carla-lite")
    header.attrib.update({key: metres(value) for key, value in extent.items()})
    ET.SubElement(header, "geoReference").text = "+lat_0=49.0 +lon_0=8.0"
    return header


def street_element(
    road_id: int, street: Street, line: Sequence[Piece], junction_ids: dict[str, int], winds: bool
) -> ET.Element:
    """Return a street between two crossings; if it ``winds``, each bend has a lane section."""
    attributes = {"name": f"{street.start} to {street.end}", "id": str(road_id), "junction": "-1"}
    ends = {"predecessor": street.start, "successor": street.end}
    links = {key: {"elementType": "junction", "elementId": str(junction_ids[end])} for key, end in ends.items()}
    road = road_element(attributes, line, links, street.speed_kmh)
    length = sum(piece.length for piece in line)
    centre = LaneSpec(0, "none", marks=centre_line(street, length))
    add_lanes(road, [*side_of(street, 1, length), centre, *side_of(street, -1, length)], line=line if winds else ())
    return road


def side_of(street: Street, side: int, length: float) -> list[LaneSpec]:
    """Return the lanes of the left (1) or right (−1) side of a street, from the centre line outwards."""
    driving = [LaneSpec(side * n, "driving", LANE_M, separator(side, length)) for n in range(1, street.lanes)]
    outermost = LaneSpec(side * street.lanes, "driving", LANE_M, EDGE_LINE)
    return [*driving, outermost, *kerbside(side * (street.lanes + 1))]


def kerbside(first_id: int) -> list[LaneSpec]:
    """Return the lanes beside the outermost driving lane: a narrow shoulder up to the kerb, then the sidewalk."""
    next_id = first_id + (1 if first_id > 0 else -1)
    return [LaneSpec(first_id, "shoulder", SHOULDER_M, KERB), LaneSpec(next_id, "sidewalk", SIDEWALK_M)]


def centre_line(street: Street, length: float) -> tuple[Mark, ...]:
    """Return a double solid line for an avenue; for a street a broken one that is solid near both crossings."""
    if street.lanes > 1:
        return (Mark("solid solid", "yellow"),)
    if length <= 2 * SOLID_M:
        return (Mark("solid", "yellow"),)
    return (Mark("solid", "yellow"), Mark("broken", "yellow", SOLID_M), Mark("solid", "yellow", length - SOLID_M))


def separator(side: int, length: float) -> tuple[Mark, ...]:
    """Return the line between two lanes of one direction: solid near a crossing."""
    free, closed = Mark("broken", lane_change="both"), Mark("solid")
    if length <= SOLID_M:
        return (closed,)
    if side < 0:
        return (free, Mark(closed.kind, start=length - SOLID_M))
    return (closed, Mark(free.kind, start=SOLID_M, lane_change=free.lane_change))


def turn_element(road_id: int, junction_id: int, turn: Turn, town: Town) -> ET.Element:
    """Return the road of one lane's way through a crossing, with the kerb at its corner if it has one."""
    attributes = {"name": f"turn {road_id}", "id": str(road_id), "junction": str(junction_id)}
    links = {"predecessor": road_end(turn.origin), "successor": road_end(turn.target)}
    street, _ = town.streets[turn.origin.street]
    bends = any(abs(piece.curvature) > TIGHT_PER_M for piece in turn.pieces)
    road = road_element(attributes, turn.pieces, links, TURN_KMH if bends else street.speed_kmh)
    lanes = [LaneSpec(-1, "driving", LANE_M, EDGE_LINE if turn.has_kerb else ())]
    if turn.has_kerb:
        lanes += kerbside(-2)
    before, after = turn.origin.incoming_id(turn.from_lane), turn.target.outgoing_id(turn.to_lane)
    for i, lane in enumerate(lanes):
        lanes[i] = replace(lane, links={"predecessor": further(before, i), "successor": further(after, i)})
    # The line runs in the middle of the lane, so that client waypoints 2 m apart are 2 m apart in a tight turn, too.
    add_lanes(road, [LaneSpec(0, "none"), *lanes], offset_m=LANE_M / 2)
    return road


def connection_element(connection_id: int, road_id: int, turn: Turn) -> ET.Element:
    """Return the junction's entry for a turn, including its sidewalk."""
    incoming = str(turn.origin.street)
    ids = {"id": str(connection_id), "incomingRoad": incoming, "connectingRoad": str(road_id), "contactPoint": "start"}
    connection = ET.Element("connection", ids)
    for outwards in range(3 if turn.has_kerb else 1):
        before = further(turn.origin.incoming_id(turn.from_lane), outwards)
        ET.SubElement(connection, "laneLink", {"from": str(before), "to": str(-1 - outwards)})
    return connection


def road_end(arm: Arm) -> dict[str, str]:
    """Return the link of a turn to the end of a street."""
    contact = "start" if arm.at_start else "end"
    return {"elementType": "road", "elementId": str(arm.street), "contactPoint": contact}


def further(lane_id: int, outwards: int) -> int:
    """Return the id of the lane ``outwards`` lanes further from the centre line."""
    return lane_id + outwards if lane_id > 0 else lane_id - outwards
