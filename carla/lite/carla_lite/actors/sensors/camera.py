"""The colour camera."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import ClassVar

from carla_lite.actors.actor import Identity, enter
from carla_lite.actors.sensor import Message, Sensor, TickSnapshot
from carla_lite.protocol import wire
from carla_lite.scenery.camera import Camera, Drawn, Pose
from carla_lite.scenery.scene import Scene
from carla_lite.scenery.strokes import BEAM_SEEN_M, LARGEST_M, sight_m

# As far as a car is more than a dot on a small image.
_SIGHT_M = 200.0
# As far as a sign's lamp is a pixel on an image of 800 × 600.
_SIGNS_M = 150.0


class RgbCamera(Sensor):
    """A colour camera. It does not see the vehicle that it sits in or on; a chase camera does."""

    kind: ClassVar[int] = 13

    def __init__(self, identity: Identity, place: Pose) -> None:
        super().__init__(identity, place)
        width, height = int(self.number("image_size_x", 1, 8192)), int(self.number("image_size_y", 1, 8192))
        fov = self.number("fov", 1.0, 179.0)
        self._camera = Camera(width, height, fov)
        self._image_head = wire.IMAGE.pack(width, height, fov)

    def prepare(self, scene: Scene) -> None:
        """Have the ground painted: it takes about a second once a map."""
        _ = scene.ground

    def messages(self, snapshot: TickSnapshot) -> Iterator[Message]:
        """Yield the image of this snapshot."""
        where = self.pose
        lens = self._camera.lens
        by_night = snapshot.conditions.daylight.lamps > 0.0
        reach_m = min(max(sight_m(lens), BEAM_SEEN_M if by_night else 0.0), _SIGHT_M)
        near = snapshot.drawn(where, reach_m, math.inf if by_night else LARGEST_M)
        seen: list[Drawn] = [
            figure
            for actor, figure in near
            if not (self.hangs_on(actor) and actor.surrounds(where.x, where.y, where.z))
        ]
        seen += snapshot.signage.faces(where.x, where.y, min(lens.focal, _SIGNS_M))
        beaming = [figure for _, figure in near]
        image = self._camera.render(snapshot.scene, where, seen, snapshot.conditions, beaming)
        yield self.header(snapshot, where), self._image_head, image.data.cast("B")


enter(RgbCamera, "sensor.camera.rgb")
