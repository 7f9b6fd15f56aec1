"""The look of vehicles: panels of a saloon, van, truck, bus or two-wheeler with its rider around a bounding box.

Owns the shapes and the colours of their parts. Never touches cameras or pixels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum, IntEnum, IntFlag
from functools import cached_property, lru_cache

import numpy as np

from carla_lite.roads.reference_line import FloatArray

BGR = tuple[int, int, int]
Corner = tuple[float, float, float]

GLASS: BGR = (86, 74, 62)
TYRE: BGR = (38, 36, 36)
RIM: BGR = (150, 150, 150)
UNDERSIDE: BGR = (50, 48, 48)
SHADOW: BGR = (52, 51, 50)
TAIL_LIGHT: BGR = (40, 36, 214)
HEAD_LIGHT: BGR = (232, 240, 244)
PLATE: BGR = (222, 224, 224)
INDICATOR: BGR = (0, 150, 255)
JACKET: BGR = (66, 58, 54)
TROUSERS: BGR = (92, 66, 44)
HELMET: BGR = (40, 44, 52)


class Glow(IntEnum):
    """Kind of light on a panel."""

    SUN = 0
    UNSHADED = 1
    SIGNAL = 2
    """The panel shines, and glares at night."""
    LAMP = 3
    """The panel shines through any haze, and always glares."""


class Part(IntEnum):
    """Part that a panel belongs to, for cameras that tell things apart."""

    BODY = 0
    RIDER = 1
    SHADOW = 2
    """Shadow, which counts as ground."""
    FLAT = 3
    """A panel on another panel of the body, and within it."""


@dataclass(frozen=True, eq=False)
class VehicleMesh:
    """Convex panels in drawing order, metres around the box's centre; each is hidden when it faces away."""

    rows: FloatArray
    """(p + f, 4): x, y, z and 1 for each point; then for each panel its outward normal and the distance of the centre
    before it, so that the product with a place's x, y, z and 1 is positive in front of the panel.
    """
    count: int
    """Number of points, p."""
    traits: FloatArray
    """(f, 7) for each panel: BGR colour; ``Glow``; its first point and the next panel's; ``Part``."""

    @cached_property
    def reach_m(self) -> float:
        """Largest distance of a point from the centre."""
        return float(np.linalg.norm(self.rows[: self.count, :3], axis=1).max())


class Lights(IntFlag):
    """The visible flags of CARLA's VehicleLightState."""

    POSITION = 1
    LOW_BEAM = 2
    HIGH_BEAM = 4
    BRAKE = 8
    RIGHT_BLINKER = 16
    LEFT_BLINKER = 32
    REVERSE = 64
    FOG = 128


BEAMS = Lights.LOW_BEAM | Lights.HIGH_BEAM
BLINKERS = Lights.RIGHT_BLINKER | Lights.LEFT_BLINKER
_Lit = tuple[tuple[Lights, BGR], ...]
_HEAD: _Lit = ((BEAMS, (255, 255, 255)), (Lights.POSITION | Lights.FOG, (225, 242, 255)))
_TAIL: _Lit = ((Lights.BRAKE, (100, 96, 255)), (Lights.POSITION | Lights.FOG | BEAMS, (52, 42, 238)))


FAR_PX, FINE_PX = 3.0, 16.0
"""Half height in pixels below which a vehicle is drawn as a distant one, and from which on all its parts are drawn."""


class Detail(IntEnum):
    """Size that a vehicle must have in the image for a part to be drawn: a part below most of a pixel isn't."""

    FAR = 0
    NEAR = 1
    FINE = 2

    @staticmethod
    def of(half_px: float) -> Detail:
        """Return the detail for a vehicle with this half height in pixels."""
        return Detail.FAR if half_px < FAR_PX else Detail.NEAR if half_px < FINE_PX else Detail.FINE


@dataclass(frozen=True)
class _Panel:
    corners: Sequence[Corner]
    colour: BGR
    glowing: Glow = Glow.SUN
    detail: Detail = Detail.FAR
    lit: _Lit = ()
    """Its colours when it shines; the first one whose light is on counts."""
    only_lit: bool = False
    part: Part = Part.BODY

    def switched(self, on: int) -> _Panel | None:
        """Return the panel with these lights on; None if it isn't visible then. A shining panel always is."""
        for lights, colour in self.lit:
            if on & lights:
                return replace(self, colour=colour, glowing=Glow.LAMP, detail=Detail.FAR)
        return None if self.only_lit else self


_SHADE = _Panel(
    [(1.03, 1.06, 0.01), (1.03, -1.06, 0.01), (-1.03, -1.06, 0.01), (-1.03, 1.06, 0.01)],
    SHADOW,
    Glow.UNSHADED,
    part=Part.SHADOW,
)


class Shape(Enum):
    """Shape drawn into a bounding box."""

    SALOON = "saloon"
    VAN = "van"
    TRUCK = "truck"
    BUS = "bus"
    MOTORCYCLE = "motorcycle"
    BICYCLE = "bicycle"


@lru_cache(maxsize=1024)
def vehicle_mesh(
    shape: Shape, extent: tuple[float, float, float], colour: BGR, detail: Detail = Detail.FINE, lights: int = 0
) -> VehicleMesh:
    """Return a vehicle of this shape with half sizes ``extent`` (m), with these ``Lights`` on, in this detail."""
    panels = [panel.switched(lights) for panel in _PANELS[shape](colour)]
    return _mesh([panel for panel in panels if panel is not None and panel.detail <= detail], extent)


def _block(
    along: tuple[float, float],
    half: float,
    span: tuple[float, float],
    colour: BGR,
    front: bool = True,
    detail: Detail = Detail.FAR,
) -> Iterator[_Panel]:
    """Yield a box from ``along[0]`` to ``along[1]``, ``half`` wide to each side, over the height ``span``.

    Coordinates of all panels: x from -1 (rear) to 1 (front), y from -1 (left) to 1 (right), z from 0 (ground) to 1
    (roof).
    """
    (rear, ahead), (low, high) = along, span
    if front:
        yield _across(ahead, half, low, high, colour, detail)
    yield _across(rear, half, low, high, colour, detail)
    for y in (half, -half):
        yield _Panel([(ahead, y, low), (rear, y, low), (rear, y, high), (ahead, y, high)], colour, detail=detail)
    top = [(ahead, half, high), (rear, half, high), (rear, -half, high), (ahead, -half, high)]
    yield _Panel(top, colour, detail=detail)


def _van(body: BGR) -> Iterator[_Panel]:
    yield from _underneath((0.66, -0.62), 0.1, 0.16)
    outline = [(0.98, 0.12), (1.0, 0.45), (0.78, 0.56), (0.5, 0.97), (0.4, 1.0), (-1.0, 1.0), (-1.0, 0.12)]
    for side in (1.0, -1.0):
        yield _Panel([(x, side, z) for x, z in outline], body)
        yield _Panel([(x, 1.01 * side, z) for x, z in ((0.7, 0.58), (0.48, 0.9), (0.1, 0.9), (0.1, 0.58))], GLASS)
    yield _across(0.99, 0.98, 0.12, 0.45, body)
    yield _slope((0.78, 0.96, 0.56), (1.0, 0.97, 0.45), body)
    yield _slope((0.5, 0.9, 0.96), (0.78, 0.94, 0.57), GLASS)
    yield _slope((-1.0, 0.97, 1.0), (0.45, 0.92, 1.0), body)
    yield _across(-1.0, 0.97, 0.12, 1.0, body)
    yield _across(-1.01, 0.8, 0.58, 0.9, GLASS)
    yield from _lights(0.2, 0.3)


def _truck(body: BGR) -> Iterator[_Panel]:
    """Yield a cab and, behind it and higher, the load; they don't overlap in any view."""
    load = (min(255, 40 + body[0]), min(255, 40 + body[1]), min(255, 40 + body[2]))
    yield from _underneath((0.72, -0.35, -0.66), 0.09, 0.13)
    yield from _block((0.5, 1.0), 0.97, (0.1, 0.8), body)
    yield _across(1.005, 0.88, 0.45, 0.74, GLASS)
    for side in (0.98, -0.98):
        yield _Panel([(x, side, z) for x, z in ((0.94, 0.46), (0.94, 0.72), (0.62, 0.72), (0.62, 0.46))], GLASS)
    yield from _block((-1.0, 0.46), 1.0, (0.16, 1.0), load, front=False)
    yield _across(0.46, 1.0, 0.8, 1.0, body)
    yield from _lights(0.18, 0.26)


def _bus(body: BGR) -> Iterator[_Panel]:
    yield from _underneath((0.6, -0.55), 0.08, 0.13)
    yield from _block((-1.0, 1.0), 1.0, (0.1, 1.0), body)
    for side in (1.005, -1.005):
        for start in (0.62, 0.22, -0.18, -0.58):
            window = ((start + 0.32, 0.52), (start + 0.32, 0.84), (start, 0.84), (start, 0.52))
            yield _Panel([(x, side, z) for x, z in window], GLASS)
    yield _across(1.005, 0.9, 0.42, 0.88, GLASS)
    yield _across(-1.005, 0.8, 0.55, 0.84, GLASS)
    yield from _lights(0.2, 0.28)


def _motorcycle(body: BGR) -> Iterator[_Panel]:
    yield from _two_wheeler(body, wheel=0.3, frame=(0.2, 0.56), thick=0.26)
    yield _patch(1.0, 0.0, 0.2, (0.44, 0.52), HEAD_LIGHT, _HEAD)
    yield _patch(-0.95, 0.0, 0.16, (0.44, 0.5), TAIL_LIGHT, _TAIL)


def _bicycle(body: BGR) -> Iterator[_Panel]:
    yield from _two_wheeler(body, wheel=0.38, frame=(0.32, 0.46), thick=0.08)
    yield _lamp(0.62, 0.0, 0.15, (0.48, 0.54), _HEAD)
    yield _lamp(-0.9, 0.0, 0.12, (0.4, 0.46), _TAIL)


def _two_wheeler(body: BGR, wheel: float, frame: tuple[float, float], thick: float) -> Iterator[_Panel]:
    """Yield two wheels, a frame, and the rider: legs, trunk and head."""
    for side in (1.0, -1.0):
        for x in (0.62, -0.62):
            yield _wheel(x, 0.1 * side, wheel, 0.19, TYRE, Detail.FAR, hub=0.19)
    yield from _block((-0.55, 0.6), thick, frame, body)
    yield _across(0.5, 0.9, frame[1], frame[1] + 0.04, UNDERSIDE)
    for along, half, span, colour in (
        ((-0.25, 0.15), 0.45, (0.28, 0.56), TROUSERS),
        ((-0.3, 0.1), 0.55, (0.54, 0.86), JACKET),
        ((-0.15, 0.08), 0.25, (0.86, 1.0), HELMET),
    ):
        yield from (replace(panel, part=Part.RIDER) for panel in _block(along, half, span, colour))


def _underneath(wheels: Sequence[float], length: float, height: float) -> Iterator[_Panel]:
    """Yield the shadow, the dark floor and the wheels of a large vehicle."""
    yield _SHADE
    yield from _block((-0.98, 0.97), 0.96, (0.06, 0.14), UNDERSIDE, detail=Detail.NEAR)
    for side in (1.0, -1.0):
        for x in wheels:
            yield _wheel(x, 1.01 * side, length, height, TYRE, hub=height)


def _saloon(body: BGR) -> Iterator[_Panel]:
    yield _SHADE
    lower = [(0.96, 0.17), (1.0, 0.42), (0.42, 0.62), (-0.90, 0.68), (-1.0, 0.6), (-0.97, 0.17)]
    glass = [(0.34, 0.64), (0.02, 0.93), (-0.36, 0.95), (-0.74, 0.70)]
    pillar = [(0.42, 0.62), (0.05, 0.97), (-0.36, 1.0), (-0.88, 0.68)]
    for side in (1.0, -1.0):
        yield _Panel([(x, side, z) for x, z in lower], body)
        sill = [(0.96, side, 0.13), (0.97, side, 0.22), (-0.97, side, 0.22), (-0.97, side, 0.13)]
        yield _Panel(sill, UNDERSIDE, detail=Detail.NEAR)
        for wheel in (0.62, -0.58):
            yield _wheel(wheel, 1.01 * side, 0.135, 0.22, TYRE)
            yield replace(_wheel(wheel, 1.02 * side, 0.085, 0.14, RIM), part=Part.FLAT)
        yield _Panel([(x, side * _tumblehome(z), z) for x, z in pillar], body)
        yield _Panel([(x, side * (_tumblehome(z) + 0.01), z) for x, z in glass], GLASS, part=Part.FLAT)
    yield _across(0.98, 0.97, 0.17, 0.42, body)
    yield _across(-0.985, 0.97, 0.17, 0.64, body)
    for x in (0.985, -0.99):
        yield _across(x, 0.95, 0.13, 0.25, UNDERSIDE, Detail.NEAR)
    yield _slope((0.42, 0.95, 0.62), (1.0, 0.93, 0.42), body)
    yield _slope((-0.99, 0.93, 0.64), (-0.86, 0.93, 0.69), body, Detail.NEAR)
    yield _slope((-0.86, 0.9, 0.69), (-0.36, 0.74, 1.0), GLASS)
    yield _slope((0.05, 0.74, 0.97), (0.42, 0.92, 0.62), GLASS)
    yield _slope((-0.36, 0.74, 1.0), (0.05, 0.74, 0.97), body)
    yield from _lights(0.33, 0.5)


def _lights(head: float, tail: float) -> Iterator[_Panel]:
    """Yield lamps and plates; ``head`` and ``tail`` are the heights of the lamps' lower edges."""
    for panel in _lamps(head, tail):
        yield replace(panel, part=Part.FLAT)


def _lamps(head: float, tail: float) -> Iterator[_Panel]:
    for side, blinker in ((0.72, Lights.RIGHT_BLINKER), (-0.72, Lights.LEFT_BLINKER)):
        yield _patch(-1.0, side, 0.22, (tail, tail + 0.1), TAIL_LIGHT, _TAIL)
        yield _patch(1.0, side, 0.2, (head, head + 0.08), HEAD_LIGHT, _HEAD)
        yield _lamp(-1.002, 0.8 * side, 0.1, (tail - 0.09, tail - 0.02), ((Lights.REVERSE, (244, 248, 250)),))
        orange = ((blinker, INDICATOR),)
        yield _lamp(-1.004, 1.2 * side, 0.13, (tail - 0.06, tail + 0.06), orange)
        yield _lamp(1.004, 1.2 * side, 0.13, (head - 0.08, head + 0.04), orange)
        yield _Panel([(x, 1.02 * side / 0.72, z) for x, z in _MIRROR_LAMP], INDICATOR, lit=orange, only_lit=True)
    yield _patch(-1.0, 0.0, 0.26, (tail - 0.2, tail - 0.12), PLATE)
    yield _patch(1.0, 0.0, 0.26, (head - 0.13, head - 0.07), PLATE)


_MIRROR_LAMP = ((0.5, 0.5), (0.44, 0.5), (0.44, 0.54), (0.5, 0.54))


def _tumblehome(z: float) -> float:
    """Return the half width at a height above the waist: 0.97 at the doors, 0.74 at the roof."""
    return 0.97 - (z - 0.62) * 0.23 / 0.38


def _wheel(
    x: float, y: float, length: float, height: float, colour: BGR, detail: Detail = Detail.FINE, hub: float = 0.22
) -> _Panel:
    turn = np.linspace(0.0, 2.0 * np.pi, 10, endpoint=False)
    rim = [(x + length * float(np.cos(t)), y, hub + height * float(np.sin(t))) for t in turn]
    return _Panel(rim, colour, detail=detail)


def _across(x: float, half: float, low: float, high: float, colour: BGR, detail: Detail = Detail.FAR) -> _Panel:
    return _Panel([(x, half, low), (x, half, high), (x, -half, high), (x, -half, low)], colour, detail=detail)


def _slope(behind: Corner, ahead: Corner, colour: BGR, detail: Detail = Detail.FAR) -> _Panel:
    (x0, y0, z0), (x1, y1, z1) = behind, ahead
    return _Panel([(x0, y0, z0), (x1, y1, z1), (x1, -y1, z1), (x0, -y0, z0)], colour, detail=detail)


def _patch(x: float, y: float, half: float, span: tuple[float, float], colour: BGR, lit: _Lit = ()) -> _Panel:
    low, high = span
    corners = [(x, y + half, low), (x, y + half, high), (x, y - half, high), (x, y - half, low)]
    return _Panel(corners, colour, Glow.UNSHADED, Detail.FINE if colour == PLATE else Detail.NEAR, lit)


def _lamp(x: float, y: float, half: float, span: tuple[float, float], lit: _Lit) -> _Panel:
    """Return a lamp that is visible only when it shines."""
    return replace(_patch(x, y, half, span, INDICATOR, lit), only_lit=True)


def _mesh(panels: Sequence[_Panel], extent: tuple[float, float, float]) -> VehicleMesh:
    scaled = [np.array(panel.corners, dtype=np.float64) * (1, 1, 2) - (0, 0, 1) for panel in panels]
    outlines = [_outwards(corners * extent) for corners in scaled]
    thirds = [outline[[0, len(outline) // 3, 2 * len(outline) // 3]] for outline in outlines]
    normals = np.array([np.cross(second - first, third - first) for first, second, third in thirds])
    normals /= np.linalg.norm(normals, axis=1, keepdims=True)
    looks = np.array([(*panel.colour, panel.glowing) for panel in panels])
    return packed(outlines, normals, looks, [panel.part for panel in panels])


def packed(
    outlines: Sequence[FloatArray], normals: FloatArray, looks: FloatArray, parts: Sequence[Part] = ()
) -> VehicleMesh:
    """Return the mesh of panels.

    Args:
        outlines: (n, 3) each.
        normals: outward (f, 3).
        looks: colour and glow (f, 4).
        parts: the part of each panel; default: the body.
    """
    starts = np.concatenate([[0], np.cumsum([len(outline) for outline in outlines])])
    offsets = [normal @ outline[0] for normal, outline in zip(normals, outlines, strict=True)]
    points = np.concatenate(outlines)
    rows = np.concatenate(
        [np.column_stack([points, np.ones(len(points))]), np.column_stack([normals, -np.array(offsets)])]
    )
    traits = np.column_stack([looks, starts[:-1], starts[1:], parts or [Part.BODY] * len(outlines)])
    return VehicleMesh(rows, len(points), traits.astype(np.float64))


def turned_outwards(faces: Iterable[FloatArray], middle: FloatArray) -> Iterator[tuple[FloatArray, FloatArray]]:
    """Yield the faces (n, 3) of a convex body around its centre, turned outwards, with their unit normals."""
    for face in faces:
        (a, b, c), (d, e, f) = (face[1:3] - face[0]).tolist()
        normal = np.array((b * f - c * e, c * d - a * f, a * e - b * d))  # np.cross takes 30 µs
        way = 1 if normal @ (face.mean(axis=0) - middle) >= 0.0 else -1
        yield face[::way], way * normal / max(float(np.linalg.norm(normal)), 1e-12)


def _outwards(outline: FloatArray) -> FloatArray:
    """Return the outline turned so that its normal points away from the car's centre (up for flat panels)."""
    third = len(outline) // 3
    normal = np.cross(outline[third] - outline[0], outline[2 * third] - outline[0])
    away = outline.mean(axis=0) - (0.0, 0.0, -0.3)
    if abs(normal[2]) > 0.99 * float(np.linalg.norm(normal)):
        away = np.array((0.0, 0.0, 1.0))
    return outline if normal @ away >= 0 else outline[::-1]


_PANELS: dict[Shape, Callable[[BGR], Iterator[_Panel]]] = {
    Shape.SALOON: _saloon,
    Shape.VAN: _van,
    Shape.TRUCK: _truck,
    Shape.BUS: _bus,
    Shape.MOTORCYCLE: _motorcycle,
    Shape.BICYCLE: _bicycle,
}
