"""OpenDRIVE texts with many elements of one kind; the program loads them within limits of time and memory."""

from __future__ import annotations

import resource
import sys
from collections.abc import Callable

from carla_lite.roads.network import MapError, RoadNetwork
from tests.unit.carla_lite.test_roads_as_found import BASE

MEMORY, CPU_S = 3 << 30, 300
"""Far more than any of them takes, and less than one that hangs or grows."""
LANE = (
    '<lane id="-1" type="driving"><link><predecessor id="-1"/><successor id="-1"/></link>'
    '<width sOffset="0" a="3"/></lane>'
)
ROAD = (
    '<road length="1" id="{own}" junction="-1"><link><predecessor elementType="road" elementId="{last}" '
    'contactPoint="end"/><successor elementType="road" elementId="{next}" contactPoint="start"/></link>'
    '<planView><geometry s="0" x="{own}" y="0" hdg="0" length="1"><line/></geometry></planView>'
    f'<lanes><laneSection s="0"><center><lane id="0"/></center><right>{LANE}</right></laneSection></lanes></road>'
)


def circle(count: int) -> str:
    """Return roads of which each leads to the next one, and the last to the first."""
    ids = [100 + number for number in range(count)]
    return "".join(
        ROAD.format(own=own, last=last, next=after)
        for own, last, after in zip(ids, [ids[-1], *ids], [*ids[1:], ids[0]], strict=False)
    )


def sections(count: int) -> str:
    one = f'<laneSection s="{{}}"><center><lane id="0"/></center><right>{LANE}</right></laneSection>'
    return "".join(one.format(60 + 59 * (number + 1) / (count + 1)) for number in range(count))


def repeated(element: str) -> Callable[[int], str]:
    return lambda count: "".join(element.format(number, number * 1e-4, number + 3) for number in range(count))


SIGN = '<signal name="sl" id="x{}" s="50" t="-4" orientation="+" dynamic="no" type="274" value="50"/>'
KINDS: dict[str, tuple[str, Callable[[int], str]]] = {
    "lanes": ('<lane id="-2" type="sidewalk">', repeated('<lane id="-{2}" type="driving"><width a="0.01"/></lane>')),
    "sections": ("</lanes>", sections),
    "roads in a circle": ("<controller", circle),
    "signs": ("</signals>", repeated(SIGN)),
    "geometries": ("</planView>", repeated('<geometry s="{1}" x="0" y="0" hdg="0" length="70"><line/></geometry>')),
    "widths": ("<width ", repeated('<width sOffset="{1}" a="3"/>')),
    "marks": ("<roadMark ", repeated('<roadMark sOffset="{1}" type="solid" width="0.12"/>')),
    "corners": ("<cornerLocal ", repeated('<cornerLocal u="-2" v="-3.5" z="0"/>')),
    "elements in each other": ("<lateralProfile/>", lambda count: "<a>" * count + "</a>" * count),
    "elements without an end": ("<lateralProfile/>", lambda count: "<a>" * count),
}


def text(kind: str, count: int) -> str:
    """Return a text with so many more elements of a kind, before a place of the sound one."""
    place, more = KINDS[kind]
    before, found, after = BASE.partition(place)
    assert found
    return before + more(count) + found + after


def main(count: int) -> None:
    """Load each of them, and say how that ended."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
    for kind in KINDS:
        try:
            network = RoadNetwork.parse("map", text(kind, count))
            network.painted()
        except MapError as error:
            print(f"{kind}: {error}", flush=True)
        else:
            print(f"{kind}: loaded", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
