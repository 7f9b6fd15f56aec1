"""The environment objects of a map: buildings, trees, street lights, signs and everything else beside the roads.

Clients list, disable and paint them, and unload their layers. Owns their ids and names, which of them are enabled, and
the scene of the enabled objects. Sensors don't see a disabled object, and vehicles can't hit it. Never touches vehicles
or time.
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
# Bits of carla.MapLayer. Signs and their posts are in no layer.
_BUILDINGS, _FOLIAGE, _STREET_LIGHTS = 1, 4, 128
_BLACK = (0, 0, 0)


@dataclass(frozen=True, slots=True)
class MapObject:
    """One object, in world coordinates."""

    number: int
    """Id by which clients enable and disable it."""
    tag: int
    """CityObjectLabel."""
    centre: Vector
    """In metres."""
    extent: Vector
    """Half sizes, in metres."""
    yaw: float
    """In radians."""
    layer: int
    """Bit of its layer; 0 if it is in none."""

    @property
    def name(self) -> str:
        """Name by which clients paint it."""
        return f"{wire.LABELS[self.tag]}_{self.number}"


class Environment:
    """The objects of one episode.

    An object's number is the index of its box in the map's scene. The numbers of signs come after these.

    Args:
        full_scene: scene with all of the map's objects.
        signage: traffic lights and signs.
        layers: bits of the layers that are loaded at first.
    """

    def __init__(self, full_scene: Scene, signage: Signage, layers: int) -> None:
        self._full_scene, self._signage, self._layers = full_scene, signage, ALL_LAYERS
        boxes = full_scene.statics.boxes
        self.lights = StreetLights({i: (box.x, box.y, box.top) for i, box in enumerate(boxes) if box.lamp})
        self._disabled: set[int] = set()
        self._colours: dict[int, tuple[int, int, int]] = {}
        self._changes: tuple[object, ...] = frozenset(), frozenset(), ()
        """Hidden objects, dark lamps and colours of ``scene``."""
        self.scene = full_scene
        """The scene of the enabled objects."""
        self.signs = StaticIndex(map(_sign_box, self._sign_objects()))
        """Boxes of the plates of signs and the heads of lights. A vehicle can hit them."""
        self.load_layers(ALL_LAYERS & ~layers, False)

    @cached_property
    def _objects(self) -> list[MapObject]:
        boxes = enumerate(self._full_scene.statics.boxes)
        objects = [MapObject(i, box.tag, box.centre, box.extent, box.yaw, _layer(box)) for i, box in boxes]
        return objects + self._sign_objects()

    def _sign_objects(self) -> list[MapObject]:
        first = len(self._full_scene.statics.boxes)
        return [_sign_object(number, sign.face) for number, sign in enumerate(self._signage.signs, first)]

    def listed(self) -> list[MapObject]:
        """Return the objects of the loaded layers. Disabled objects are included, as in CARLA."""
        return [one for one in self._objects if not one.layer or one.layer & self._layers]

    def visible(self) -> list[MapObject]:
        """Return the objects of the loaded layers that are enabled."""
        return [one for one in self.listed() if one.number not in self._disabled]

    def enable(self, numbers: Sequence[int], enabled: bool) -> None:
        """Enable or disable objects.

        Raises:
            RpcError: an object doesn't exist. The others are changed anyway.
        """
        known = [number for number in numbers if number < len(self._objects)]
        (self._disabled.difference_update if enabled else self._disabled.update)(known)
        self._update_scene()
        if unknown := set(numbers) - set(known):
            raise RpcError(f"environment object {min(unknown)} does not exist; get_environment_objects() lists them")

    def load_layers(self, layers: int, loaded: bool) -> None:
        """Load or unload layers."""
        self._layers = self._layers | layers if loaded else self._layers & ~layers
        self._update_scene()

    def set_night(self, night: bool) -> None:
        """Switch the automatic street lights on for the night, or off for the day."""
        self.lights.set_night(night)
        self._update_scene()

    def update_lights(self, states: Sequence[Sequence[Any]]) -> None:
        """Apply the changes of a client's light manager.

        Raises:
            RpcError: a light doesn't exist, for example because it belongs to an earlier map. The others are changed.
        """
        refused = [refusal for state in states if (refusal := self.lights.update(state))]
        self._update_scene()
        if refused:
            raise RpcError(refused[0])

    def paint(self, names: Sequence[str], bgr: tuple[int, int, int] | None) -> None:
        """Paint the named objects in one colour. None changes no colour and only checks the names.

        Raises:
            RpcError: no object has one of these names.
        """
        wanted = set(names)
        found = [one.number for one in self.listed() if one.name in wanted]
        if not found:
            raise RpcError("unable to find Actor to apply the texture: get_names_of_all_objects() lists all names")
        if bgr is not None:
            self._colours.update(dict.fromkeys(found, bgr))
            self._update_scene()

    def _update_scene(self) -> None:
        """Build the scene again if an object, a lamp or a colour has changed since it was built."""
        hidden = frozenset(self._disabled)
        if self._layers != ALL_LAYERS:
            hidden |= {one.number for one in self._objects if one.layer and not one.layer & self._layers}
        changes = hidden, self.lights.dark, tuple(sorted(self._colours.items()))
        if changes == self._changes:
            return
        self._changes = changes
        full = self._full_scene
        boxes = full.statics.boxes
        kept = [self._changed(number, box) for number, box in enumerate(boxes) if number not in hidden]
        self.scene = (
            Scene(StaticIndex(kept), full.height, full.metres_per_pixel, lambda: full.ground, lambda: full.labels)
            if any(changes)
            else full
        )
        signs = enumerate(self._signage.signs, len(boxes))
        self._signage.hidden = frozenset(sign.id for number, sign in signs if number in hidden)
        self.signs = StaticIndex(_sign_box(one) for one in self._sign_objects() if one.number not in hidden)

    def _changed(self, number: int, box: StaticBox) -> StaticBox:
        """Return an object's box in its painted colour, and with its lamp off if the street light is off."""
        if number in self._colours:
            box = replace(box, colour=self._colours[number])
        return replace(box, lamp=False) if number in self.lights.dark else box


def _layer(box: StaticBox) -> int:
    if box.lamp:
        return _STREET_LIGHTS
    return {TAG_BUILDING: _BUILDINGS, TAG_VEGETATION: _FOLIAGE}.get(box.tag, 0)


def _sign_object(number: int, face: SignFace) -> MapObject:
    at = face.pose
    return MapObject(number, face.tag, (at.x, at.y, at.z), face.extent, at.yaw, 0)


def _sign_box(sign: MapObject) -> StaticBox:
    """Return the box of a sign without its post. ``solid=False``: a car that is placed inside is moved outside."""
    return StaticBox(*sign.centre, *sign.extent, sign.yaw, _BLACK, sign.tag, solid=False)
