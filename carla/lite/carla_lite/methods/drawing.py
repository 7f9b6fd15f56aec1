"""RPC methods of ``world.debug``: shapes that clients draw into the world (protocol, section 2.3, DebugShape)."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from carla_lite.methods.shapes import require
from carla_lite.methods.shapes import shape as shape_of
from carla_lite.methods.table import method
from carla_lite.protocol import wire
from carla_lite.protocol.wire import Vector
from carla_lite.scenery import drawings
from carla_lite.scenery.drawings import Drawing
from carla_lite.support import approximated
from carla_lite.world import World

_POINT, _LINE, _ARROW, _BOX, _STRING = range(5)

# As the wire sends them (protocol, section 2.3). A colour has an alpha, or none; a box may have an actor's id.
DebugShape: TypeAlias = tuple[tuple[int, list[Any]], tuple[int, int, int] | tuple[int, int, int, int], float, bool]
_Line: TypeAlias = tuple[Vector, Vector, float]
_Box: TypeAlias = tuple[Vector, Vector, Vector] | tuple[Vector, Vector, Vector, int]
_FIGURES = [
    shape_of(kind)
    for kind in (
        tuple[Vector, float],
        _Line,
        tuple[_Line, float],
        tuple[_Box, Vector, float],
        tuple[Vector, str, bool],
    )
]
"""What each kind of shape has, in the order of the kinds."""


@method(approximated("shapes of the head-up display (draw_hud_…) are not shown: CARLA draws them on its window"))
def draw_debug_shape(world: World, shape: DebugShape) -> None:
    """Draw a shape for ``life_time`` simulated seconds, or for ever if that is not above 0, as CARLA since 0.9.13.

    CARLA shows the shapes of its head-up display only in its window, to no camera; there is no window here.
    """
    (kind, figures), (red, green, blue, *_), life_s, _ = shape
    if not _POINT <= kind <= _STRING:
        world.report_unsupported("draw_hud_shape", "CARLA draws it on its window, and there is none here")
        return
    require(_FIGURES[kind], figures, "draw_debug_shape: the shape")
    until_s = world.elapsed_s + life_s if life_s > 0.0 else math.inf
    world.drawings.append(_shape(kind, figures, Drawing((blue, green, red), until_s)))


@method
def clear_debug_shape(world: World) -> None:
    """Remove all drawn shapes; strings stay."""
    world.drawings = [drawing for drawing in world.drawings if drawing.text]


@method
def clear_debug_string(world: World) -> None:
    """Remove all drawn strings."""
    world.drawings = [drawing for drawing in world.drawings if not drawing.text]


def _shape(kind: int, figures: list[Any], blank: Drawing) -> Drawing:
    """Return ``blank`` with its shape; RpcError if a place isn't valid."""
    if kind == _STRING:
        place, text, shaded = figures
        return replace(blank, text=text, place=wire.location(place), shaded=bool(shaded))
    if kind == _POINT:
        place, size = wire.location(figures[0]), figures[1]
        return replace(blank, lines=np.array([[place, place]]), thickness_m=wire.finite(size))
    if kind == _LINE:
        begin, end, thickness = figures
        return replace(
            blank, lines=drawings.line(wire.location(begin), wire.location(end)), thickness_m=wire.finite(thickness)
        )
    if kind == _ARROW:
        (begin, end, thickness), size = figures
        lines = drawings.arrow(wire.location(begin), wire.location(end), wire.finite(size))
        return replace(blank, lines=lines, thickness_m=wire.finite(thickness))
    (centre, extent, *_), turn, thickness = figures
    pitch, yaw, roll = map(math.radians, wire.vector(turn))
    lines = drawings.box(wire.location(centre), wire.vector(extent), (pitch, yaw, roll))
    return replace(blank, lines=lines, thickness_m=wire.finite(thickness))
