"""All static things of a map: objects beside the streets, and the ground as a picture.

Owns their assembly and caches. Never touches vehicles, time or perspective.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np

from carla_lite import heap
from carla_lite.roads.network import RoadNetwork
from carla_lite.scenery.daylight import Daylight
from carla_lite.scenery.ground_light import GroundLight, ground_light
from carla_lite.scenery.meshes import StaticMesh
from carla_lite.scenery.paint import TAG_TERRAIN, GroundImage, label, noon_shadow, paint, scale_of
from carla_lite.scenery.statics import StaticIndex
from carla_lite.scenery.streetscape import furnish
from carla_lite.scenery.vista import Vistas

_KEPT = 2
_UNPAVED = GroundImage((np.full((1, 1), TAG_TERRAIN, np.uint8),), 1.0, 0.0, 0.0)
_built: OrderedDict[tuple[str, int], Scene] = OrderedDict()


@dataclass(frozen=True, eq=False)
class Scene:
    """The static part of a world.

    ``height`` gives the road's height (m) at (x, y, z); ``paint`` and ``label`` make pictures of the ground.
    """

    statics: StaticIndex
    height: Callable[[float, float, float], float]
    metres_per_pixel: float
    """Of both pictures."""
    paint: Callable[[], GroundImage]
    label: Callable[[], GroundImage] = lambda: _UNPAVED

    @classmethod
    def build(cls, network: RoadNetwork, seed: int) -> Scene:
        """Return the scene of a network. The last two scenes are cached. Only the newest keeps its pictures.

        So a reload of the newest town costs nothing. A return to the previous town only makes its pictures again.
        """
        key = (network.xodr, seed)
        if key not in _built:
            boxes = furnish(network, seed)
            _built[key] = cls(
                StaticIndex(boxes),
                network.ground,
                scale_of(network),
                partial(paint, network, boxes, seed),
                partial(label, network),
            )
            if len(_built) > _KEPT:
                _built.popitem(last=False)
        for scene in _built.values():
            if scene is not _built[key]:
                scene._forget_pictures()
        return _built[key]

    def _forget_pictures(self) -> None:
        """Free the pictures for cameras, up to 200 MB; a camera that needs them makes them again."""
        for picture in ("ground", "labels", "mesh", "vistas", "_lights", "_noon_shadow"):
            self.__dict__.pop(picture, None)

    @cached_property
    def ground(self) -> GroundImage:
        """The ground as a picture. It is painted only when a camera needs it, because that takes the longest."""
        picture = self.paint()
        heap.give_back()
        return picture

    @cached_property
    def labels(self) -> GroundImage:
        """The CityObjectLabel of each place of the ground, made for the first camera that needs labels."""
        return self.label()

    @cached_property
    def mesh(self) -> StaticMesh:
        """The boxes as arrays, which a camera projects all together."""
        return StaticMesh.of(self.statics.boxes)

    def light(self, daylight: Daylight) -> GroundLight:
        """Return the light on the ground. The light of the last weather is cached."""
        if self._lights.get(daylight) is None:
            self._lights.clear()
            self._lights[daylight] = ground_light(self._noon_shadow, self.statics.boxes, daylight)
        return self._lights[daylight]

    @cached_property
    def _lights(self) -> dict[Daylight, GroundLight]:
        return {}

    @cached_property
    def _noon_shadow(self) -> GroundImage:
        return noon_shadow(self.ground, self.statics.boxes)

    @cached_property
    def vistas(self) -> Vistas:
        """Views of the static things from different places."""
        return Vistas(self.mesh)
