"""A generated town with other traffic lights and signs than its own: one of each, in odd orders."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ET
from collections import defaultdict

from carla_lite.towns import generator


def signalled(name: str = "Lite01") -> str:
    """Return the town with a light for each road into a junction, a controller each, and three signs, and no others."""
    root = ET.fromstring(generator.generate(name))
    for parent in root.iter():
        for tag in ("signals", "controller"):
            for element in parent.findall(tag):
                parent.remove(element)
    roads = {road.get("id"): road for road in root.iterfind("road")}
    controllers: list[ET.Element] = []
    for junction in root.iterfind("junction"):
        arms: dict[str, list[ET.Element]] = defaultdict(list)
        for connection in junction.iterfind("connection"):
            arms[connection.attrib["incomingRoad"]].append(connection)
        # Written last first: a junction's order is in its controllers' `sequence`.
        for sequence, (arm, connections) in reversed(list(enumerate(arms.items()))):
            number = f"{junction.get('id')}{arm}"
            ahead = connections[0].find("laneLink").attrib["from"].startswith("-")  # type: ignore[union-attr]
            _add(roads[arm], number, "1000001", ahead)
            for connection in connections:
                lanes = [link.attrib["to"] for link in connection.iterfind("laneLink")]
                _refer(roads[connection.attrib["connectingRoad"]], number, lanes)
            controllers.append(ET.Element("controller", name=f"ctrl{number}", id=f"9{number}", sequence=str(sequence)))
            ET.SubElement(controllers[-1], "control", signalId=number, type="")
            ET.SubElement(junction, "controller", id=f"9{number}", type="0", sequence=str(sequence))
    first = next(root.iterfind("road"))
    for place, (kind, subtype) in enumerate((("206", "-1"), ("205", "-1"), ("274", "60"))):
        sign = _add(first, f"77{place}", kind, ahead=True, subtype=subtype, s=20.0 + 5.0 * place)
        ET.SubElement(sign, "validity", fromLane="-1", toLane="-1")
    root.extend(controllers)
    return ET.tostring(root, encoding="unicode")


def _signals(road: ET.Element) -> ET.Element:
    found = road.find("signals")
    return ET.SubElement(road, "signals") if found is None else found


def _add(
    road: ET.Element, number: str, kind: str, ahead: bool, subtype: str = "-1", s: float | None = None
) -> ET.Element:
    """Add a signal beside the end at which lanes of one direction leave the road."""
    length = float(road.attrib["length"])
    place = {"s": str(s if s is not None else length - 1.0 if ahead else 1.0), "t": "-9.5" if ahead else "9.5"}
    turn = {"orientation": "-" if ahead else "+", "hOffset": "0" if ahead else str(math.pi)}
    rest = {"zOffset": "0", "name": "", "dynamic": "yes", "country": "OpenDRIVE", "subtype": subtype, "value": "-1"}
    signal = ET.SubElement(_signals(road), "signal", {"id": number, "type": kind} | place | turn | rest)
    if s is None:
        ET.SubElement(signal, "validity", fromLane="0", toLane="0")
    return signal


def _refer(road: ET.Element, number: str, lanes: list[str]) -> None:
    for lane in lanes:
        reference = ET.SubElement(_signals(road), "signalReference", id=number, s="1", t="0", orientation="-")
        ET.SubElement(reference, "validity", fromLane=lane, toLane=lane)
