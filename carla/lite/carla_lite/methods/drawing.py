"""RPC methods of ``world.debug``: shapes that clients draw into the world (protocol, section 2.3, DebugShape)."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from carla_lite.methods.table import method
from carla_lite.protocol import wire
from carla_lite.scenery import drawings
from carla_lite.scenery.drawings import Drawing
from carla_lite.support import approximated
from carla_lite.world import World

_POINT, _LINE, _ARROW, _BOX, _STRING = range(5)


@method(approximated("shapes of the head-up display (draw_hud_…) are not shown: CARLA draws them on its window"))
def draw_debug_shape(world: World, shape: list[Any]) -> None:
    """Draw a shape for ``life_time`` simulated seconds, or for ever if that is not above 0, as CARLA since 0.9.13.

    CARLA shows the shapes of its head-up display only in its window, to no camera; there is no window here.
    """
    (kind, figures), (red, green, blue), life_s, *_ = shape
    if kind > _STRING:
        world.report_unsupported("draw_hud_shape", "CARLA draws it on its window, and there is none here")
        return
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
        return replace(blank, lines=np.array([[place, place]]), thickness_m=size)
    if kind == _LINE:
        begin, end, thickness = figures
        return replace(blank, lines=drawings.line(wire.location(begin), wire.location(end)), thickness_m=thickness)
    if kind == _ARROW:
        (begin, end, thickness), size = figures
        lines = drawings.arrow(wire.location(begin), wire.location(end), size)
        return replace(blank, lines=lines, thickness_m=thickness)
    (centre, extent, *_), turn, thickness = figures
    pitch, yaw, roll = map(math.radians, wire.vector(turn))
    lines = drawings.box(wire.location(centre), wire.vector(extent), (pitch, yaw, roll))
    return replace(blank, lines=lines, thickness_m=thickness)
