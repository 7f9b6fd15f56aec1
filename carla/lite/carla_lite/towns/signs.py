"""Traffic lights, signs and crosswalks of a town, in the form of CARLA's maps.

Owns which arm of a crossing has what, and its place. Each sign has a pole on the near side, to the right of the
incoming traffic. At the start of every turn from that arm is a reference to it, with the lane to which it applies.
There is one controller per arm, so that the arms take turns, and a crosswalk from kerb to kerb just inside the
crossing.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from cmath import rect
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from math import pi

from carla_lite.towns.geometry import Piece
from carla_lite.towns.junctions import Arm, Town, Turn, leads_across
from carla_lite.towns.opendrive_xml import metres
from carla_lite.towns.plan import LANE_M, SHOULDER_M, Street

FIRST_SIGNAL, FIRST_LIMIT, FIRST_CONTROLLER, FIRST_CROSSWALK = 10_000, 20_000, 30_000, 40_000
POLE_BEHIND_KERB_M, POLE_BEFORE_END_M = 0.5, 0.3
LIMIT_AFTER_START_M = 8.0
REFERENCE_M = 0.6  # place of a turn's reference: a car stops before it
CROSSWALK_M = (1.2, 4.2)  # from the street's end on
KERB_STEP_M = 0.25
# A side street has a stop sign if the main street is at least this fast, else a yield sign.
STOP_FROM_KMH = 50


class Control(str, Enum):
    """Right of way of an arm's traffic: OpenDRIVE's signal types, as CARLA reads them."""

    LIGHT = "1000001"
    STOP = "206"
    YIELD = "205"


LIMIT = "274"
# Name, height above the ground, height and width of the sign (m).
LOOKS = {
    Control.LIGHT.value: ("Signal_3Light_Post01", 0.0, 1.16, 0.525),
    Control.STOP.value: ("Sign_Stop", 2.4, 1.0, 0.97),
    Control.YIELD.value: ("Sign_Yield", 2.4, 0.9, 1.0),
    LIMIT: ("Speed", 2.2, 0.8, 0.6),
}


class Signs:
    """The numbered signals of a town, and their elements."""

    def __init__(self, town: Town) -> None:
        self._town = town
        self._signals: dict[tuple[int, bool], tuple[int, Control]] = {}
        self._controllers: dict[str, list[tuple[int, int]]] = {}
        for crossing, arms in town.arms.items():
            for arm in arms:
                if (control := control_of(arm, arms, town)) is not None:
                    i = len(self._signals)
                    self._signals[arm.street, arm.at_start] = FIRST_SIGNAL + i, control
                    if control is Control.LIGHT:
                        pair = FIRST_CONTROLLER + i, FIRST_SIGNAL + i
                        self._controllers.setdefault(crossing, []).append(pair)

    def of_street(self, index: int) -> list[ET.Element]:
        """Return a street's <objects> and <signals>."""
        street, line = self._town.streets[index]
        length = sum(piece.length for piece in line)
        objects, signals = ET.Element("objects"), ET.Element("signals")
        for crossing, at_start in ((street.start, True), (street.end, False)):
            arm = next(a for a in self._town.arms[crossing] if (a.street, a.at_start) == (index, at_start))
            number = FIRST_CROSSWALK + 2 * index + at_start
            objects.append(crosswalk_element(number, arm, self._town.crossings[crossing], 0.0 if at_start else length))
            if (index, at_start) in self._signals:
                signals.append(self._pole(arm, street, length))
            signals.append(limit_element(FIRST_LIMIT + 2 * index + at_start, street, length, at_start))
        return [objects, signals]

    def of_turn(self, turn: Turn) -> list[ET.Element]:
        """Return a turn's <signals>: a reference to the signal of its arm, if that has one."""
        if (turn.origin.street, turn.origin.at_start) not in self._signals:
            return []
        number, _ = self._signals[turn.origin.street, turn.origin.at_start]
        signals = ET.Element("signals")
        place = {"id": str(number), "s": metres(REFERENCE_M), "t": "0", "orientation": "-"}
        signals.append(valid_for(ET.Element("signalReference", place), -1, -1))
        return [signals]

    def controllers(self) -> Iterator[ET.Element]:
        """Yield the controllers of all lights."""
        for pairs in self._controllers.values():
            for sequence, (number, signal) in enumerate(pairs):
                ids = {"name": f"ctrl{number}", "id": str(number), "sequence": str(sequence)}
                controller = ET.Element("controller", ids)
                ET.SubElement(controller, "control", signalId=str(signal), type="")
                yield controller

    def of_junction(self, crossing: str) -> Iterator[ET.Element]:
        """Yield a junction's references to its controllers."""
        for sequence, (number, _) in enumerate(self._controllers.get(crossing, ())):
            yield ET.Element("controller", id=str(number), type="0", sequence=str(sequence))

    def _pole(self, arm: Arm, street: Street, length: float) -> ET.Element:
        number, control = self._signals[arm.street, arm.at_start]
        s = POLE_BEFORE_END_M if arm.at_start else length - POLE_BEFORE_END_M
        pole = signal_element(number, control.value, street, s, arm.at_start)
        pole.set("dynamic", "yes" if control is Control.LIGHT else "no")
        # The turns' references say to which lanes it applies.
        return valid_for(pole, 0, 0)


def control_of(arm: Arm, arms: Sequence[Arm], town: Town) -> Control | None:
    """Return lights for four arms or with an avenue, else a sign for the side street only."""
    if len(arms) > 3 or any(other.lanes > 1 for other in arms):
        return Control.LIGHT
    if leads_across(arm, arms):
        return None
    fastest = max(town.streets[other.street][0].speed_kmh for other in arms if other is not arm)
    return Control.STOP if fastest >= STOP_FROM_KMH else Control.YIELD


def limit_element(number: int, street: Street, length: float, towards_end: bool) -> ET.Element:
    """Return the sign of a street's speed limit, for the traffic in one direction."""
    after = min(LIMIT_AFTER_START_M, length / 3)
    sign = signal_element(number, LIMIT, street, after if towards_end else length - after, not towards_end)
    limit = str(street.speed_kmh)
    sign.attrib.update(name=f"Speed_{limit}", dynamic="no", subtype=limit, value=limit, unit="km/h", text=limit)
    return valid_for(sign, *((-street.lanes, -1) if towards_end else (1, street.lanes)))


def signal_element(number: int, kind: str, street: Street, s: float, towards_start: bool) -> ET.Element:
    """Return a signal behind the kerb, on the right of the traffic in one direction and facing it."""
    name, above_m, height_m, width_m = LOOKS[kind]
    side = 1 if towards_start else -1
    attributes = {
        "name": name,
        "id": str(number),
        "s": metres(s),
        "t": metres(side * (street.kerb_m + POLE_BEHIND_KERB_M)),
        "zOffset": metres(above_m),
        "hOffset": metres(pi if towards_start else 0.0),
        "roll": "0",
        "pitch": "0",
        # As CARLA reads it: "+" for the lanes with positive ids.
        "orientation": "+" if towards_start else "-",
        "dynamic": "no",
        "country": "OpenDRIVE",
        "type": kind,
        "subtype": "-1",
        "value": "-1",
        "text": "",
        "height": metres(height_m),
        "width": metres(width_m),
    }
    return ET.Element("signal", attributes)


def valid_for(signal: ET.Element, first_lane: int, last_lane: int) -> ET.Element:
    """Return the element with a validity for these lanes of its road; 0 to 0 for none."""
    ET.SubElement(signal, "validity", fromLane=str(first_lane), toLane=str(last_lane))
    return signal


def crosswalk_element(number: int, arm: Arm, turns: Iterable[Turn], s: float) -> ET.Element:
    """Return the crosswalk in front of an arm, from kerb to kerb, as an object at the street's end."""
    near, far = CROSSWALK_M
    kerbs = [turn for turn in turns if turn.has_kerb]
    to_the_right = next(turn for turn in kerbs if turn.origin is arm)
    to_the_left = next(turn for turn in kerbs if turn.target is arm)
    right = [kerb_aside(to_the_right, arm, along) for along in CROSSWALK_M]
    left = [kerb_aside(to_the_left, arm, along) for along in CROSSWALK_M]
    # At a street's start, the way into the crossing is against s, and its right side is +t.
    ahead = -1.0 if arm.at_start else 1.0
    corners = [(near, right[0]), (far, right[1]), (far, left[1]), (near, left[0]), (near, right[0])]
    crosswalk = ET.Element(
        "object",
        {
            "id": str(number),
            "name": "ContinentalCrosswalk",
            "s": metres(s),
            "t": "0",
            "zOffset": "0",
            "hdg": "0",
            "roll": "0",
            "pitch": "0",
            "orientation": "+",
            "type": "crosswalk",
            "width": metres(far - near),
            "length": metres(right[0] - left[0]),
        },
    )
    outline = ET.SubElement(crosswalk, "outline")
    for along, aside in corners:
        ET.SubElement(outline, "cornerLocal", u=metres(ahead * along), v=metres(-ahead * aside), z="0")
    return crosswalk


def kerb_aside(turn: Turn, arm: Arm, along: float) -> float:
    """Return how far to the right of a street's middle line the kerb is, ``along`` metres into the crossing (m)."""
    before = None
    places = ((place - arm.end) / -arm.direction for place in kerb_of(turn))
    for place in places if turn.origin is arm else reversed(list(places)):
        if place.real >= along:
            if before is None:
                return -place.imag
            share = (along - before.real) / (place.real - before.real)
            return -(before.imag + share * (place.imag - before.imag))
        before = place
    raise ValueError(f"a turn's kerb ends less than {along} m from its street: use a wider corner")


def kerb_of(turn: Turn) -> Iterator[complex]:
    """Yield places along the kerb to the right of a turn."""
    aside = -1j * (LANE_M / 2 + SHOULDER_M)
    for piece in turn.pieces:
        steps = max(1, round(piece.length / KERB_STEP_M))
        for i in range(steps + 1):
            place, heading = along_piece(piece, piece.length * i / steps)
            yield place + rect(1.0, heading) * aside


def along_piece(piece: Piece, s: float) -> tuple[complex, float]:
    """Return place and heading at a distance along a line or arc."""
    heading = piece.heading + piece.curvature * s
    if not piece.curvature:
        return piece.start + rect(s, heading), heading
    centre = piece.start + 1j * rect(1 / piece.curvature, piece.heading)
    return centre - 1j * rect(1 / piece.curvature, heading), heading
