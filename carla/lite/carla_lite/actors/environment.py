"""The objects of a map beside its roads: objects that clients list, hide and paint, layers, and street lights.

Owns the objects' numbers and names, which of them are enabled, and their scene. A disabled object can be neither seen
nor hit. Never touches vehicles or time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from carla_lite.actors.signage import Signage
from carla_lite.actors.street_lights import StreetLights
from carla_lite.protocol import wire
from carla_lite.protocol.wire import RpcError, Vector
from carla_lite.scenery.scene import Scene
from carla_lite.scenery.sign_faces import SignFace
from carla_lite.scenery.statics import TAG_BUILDING, TAG_VEGETATION, StaticBox, StaticIndex

ALL_LAYERS = 0xFFFF
# MapLayer, as the client numbers it; posts of signs are in no layer.
_BUILDINGS, _FOLIAGE, _STREET_LIGHTS = 1, 4, 128
_BLACK = (0, 0, 0)


@dataclass(frozen=True, slots=True)
class MapObject:
    """One object: centre, half sizes (m), yaw (rad), CityObjectLabel, and its layer (0: none)."""

    number: int
    tag: int
    centre: Vector
    extent: Vector
    yaw: float
    layer: int

    @property
    def name(self) -> str:
        """The name by which clients refer to it."""
        return f"{wire.LABELS[self.tag]}_{self.number}"


class Environment:
    """The objects of one episode. They are numbered like the boxes of the map's scene; signs follow."""

    def __init__(self, built: Scene, signage: Signage, layers: int) -> None:
        self._built, self._signage, self._layers = built, signage, ALL_LAYERS
        boxes = built.statics.boxes
        self.lights = StreetLights({i: (box.x, box.y, box.top) for i, box in enumerate(boxes) if box.lamp})
        self._disabled: set[int] = set()
        self._colours: dict[int, tuple[int, int, int]] = {}
        self._switched: tuple[object, ...] = frozenset(), frozenset(), ()
        self.scene = built
        """The scene of the enabled objects."""
        self.signs = StaticIndex(map(_plate, self._plates()))
        """Plates and heads of signs, which vehicles can also hit."""
        self.load_layers(ALL_LAYERS & ~layers, False)

    @cached_property
    def _objects(self) -> list[MapObject]:
        boxes = enumerate(self._built.statics.boxes)
        objects = [MapObject(i, box.tag, box.centre, box.extent, box.yaw, _layer(box)) for i, box in boxes]
        return objects + self._plates()

    def _plates(self) -> list[MapObject]:
        first = len(self._built.statics.boxes)
        return [_sign(number, sign.face) for number, sign in enumerate(self._signage.signs, first)]

    def listed(self) -> list[MapObject]:
        """Return the objects of the loaded layers, with disabled ones, as CARLA lists them."""
        return [one for one in self._objects if not one.layer or one.layer & self._layers]

    def seen(self) -> list[MapObject]:
        """Return the objects that are enabled and loaded."""
        return [one for one in self.listed() if one.number not in self._disabled]

    def enable(self, numbers: Sequence[int], enabled: bool) -> None:
        """Enable or disable objects.

        Raises:
            RpcError: one of them doesn't exist; the others are switched anyway.
        """
        known = [number for number in numbers if number < len(self._objects)]
        (self._disabled.difference_update if enabled else self._disabled.update)(known)
        self._show()
        if unknown := set(numbers) - set(known):
            raise RpcError(f"environment object {min(unknown)} does not exist; get_environment_objects() lists them")

    def load_layers(self, layers: int, loaded: bool) -> None:
        """Load or unload layers."""
        self._layers = self._layers | layers if loaded else self._layers & ~layers
        self._show()

    def set_night(self, night: bool) -> None:
        """Set whether it is night."""
        self.lights.set_night(night)
        self._show()

    def update_lights(self, states: Sequence[Sequence[Any]]) -> None:
        """Apply the changes of a client's light manager.

        Raises:
            RpcError: a light doesn't exist, such as those of an earlier map; the other lights are changed.
        """
        refused = [refusal for state in states if (refusal := self.lights.update(state))]
        self._show()
        if refused:
            raise RpcError(refused[0])

    def paint(self, names: Sequence[str], bgr: tuple[int, int, int] | None) -> None:
        """Give the named objects a colour (None: keep it).

        Raises:
            RpcError: none of them exists.
        """
        wanted = set(names)
        found = [one.number for one in self.listed() if one.name in wanted]
        if not found:
            raise RpcError("unable to find Actor to apply the texture: get_names_of_all_objects() lists what there is")
        if bgr is not None:
            self._colours.update(dict.fromkeys(found, bgr))
            self._show()

    def _show(self) -> None:
        """Rebuild the scene if its objects or their looks have changed."""
        hidden = frozenset(self._disabled)
        if self._layers != ALL_LAYERS:
            hidden |= {one.number for one in self._objects if one.layer and not one.layer & self._layers}
        switched = hidden, self.lights.dark, tuple(sorted(self._colours.items()))
        if switched == self._switched:
            return
        self._switched = switched
        boxes, built = self._built.statics.boxes, self._built
        kept = [self._look(number, box) for number, box in enumerate(boxes) if number not in hidden]
        self.scene = (
            Scene(StaticIndex(kept), built.height, lambda: built.ground, lambda: built.labels)
            if any(switched)
            else built
        )
        signs = enumerate(self._signage.signs, len(boxes))
        self._signage.hidden = frozenset(sign.id for number, sign in signs if number in hidden)
        self.signs = StaticIndex(_plate(one) for one in self._plates() if one.number not in hidden)

    def _look(self, number: int, box: StaticBox) -> StaticBox:
        """Return a box with its present look."""
        if number in self._colours:
            box = replace(box, colour=self._colours[number])
        return replace(box, lamp=False) if number in self.lights.dark else box


def _layer(box: StaticBox) -> int:
    if box.lamp:
        return _STREET_LIGHTS
    return {TAG_BUILDING: _BUILDINGS, TAG_VEGETATION: _FOLIAGE}.get(box.tag, 0)


def _sign(number: int, face: SignFace) -> MapObject:
    at = face.pose
    return MapObject(number, face.tag, (at.x, at.y, at.z), face.extent, at.yaw, 0)


def _plate(sign: MapObject) -> StaticBox:
    """Return a sign's box, besides its post, that vehicles can hit."""
    return StaticBox(*sign.centre, *sign.extent, sign.yaw, _BLACK, sign.tag, solid=False)
