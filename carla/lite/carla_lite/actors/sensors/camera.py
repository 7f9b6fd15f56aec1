"""The cameras: colour, depth, labels, instance numbers and more.

Owns what a camera sees of the world and the pixel formats (protocol, section 3.5). Cameras at one place with the same
lens share their view; those that show surfaces also share each pixel's surface number.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from carla_lite.actors.actor import Identity, register
from carla_lite.actors.sensor import Message, Sensor, TickSnapshot
from carla_lite.protocol import wire
from carla_lite.scenery.camera import Camera, Drawn, Look, Pose
from carla_lite.scenery.projection import Lens, View
from carla_lite.scenery.scene import Scene
from carla_lite.scenery.strokes import BEAM_SEEN_M, sight_m
from carla_lite.scenery.surfaces import FARTHEST_M, LABELS, Before, Surfaces
from carla_lite.support import Support, approximated

# Beyond this distance a car is hardly more than a dot on a small image.
_SIGHT_M = 200.0
# Beyond this distance a sign's lamp is less than a pixel on an image of 800 × 600.
_SIGNS_M = 150.0
# Depth is a 24-bit number with red as the lowest byte; its maximum means 1000 m.
_DEEPEST = np.float32((1 << 24) - 1) / np.float32(FARTHEST_M)


def _cosmos_colors() -> NDArray[np.uint8]:
    """Return the BGRA colour of each label (GetColorByTag in CosmosControlSensor.cpp)."""
    colors = np.zeros((LABELS, 4), np.uint8)
    colors[:, 3] = 255
    colors[[12, 13], :3] = 0, 255, 0  # people, riders too
    colors[14:20, :3] = 0, 0, 255  # vehicles
    colors[6, :3] = 144, 40, 66  # poles
    colors[7, :3] = 155, 157, 252  # traffic lights
    colors[8, :3] = 155, 175, 131  # traffic signs
    colors[24, :3] = 249, 183, 98  # lines
    return colors


_COSMOS = _cosmos_colors()


class Viewer(Sensor):
    """Any camera. It does not see the vehicle that it is in or on; a chase camera does."""

    def __init__(self, identity: Identity, place: Pose) -> None:
        super().__init__(identity, place)
        width, height = int(self.number("image_size_x", 1, 8192)), int(self.number("image_size_y", 1, 8192))
        fov = self.number("fov", 1.0, 179.0)
        self._camera = Camera(width, height, fov)
        self._image_head = wire.IMAGE.pack(width, height, fov)

    def prepare(self, scene: Scene) -> None:
        """Paint the ground in advance: it takes up to half a second per map."""
        _ = scene.ground

    def _key(self, where: Pose) -> tuple[Pose, Lens, int]:
        return where, self._camera.lens, 0 if self.parent is None else self.parent.id

    def _look(self, snapshot: TickSnapshot, where: Pose) -> tuple[Look, Sequence[Drawn]]:
        """Return the view, and the vehicles whose lamps may light it."""
        key = self._key(where)
        seen = snapshot.looks.get(key)
        if seen is None:
            seen = snapshot.looks[key] = self._looked(snapshot, where)
        return seen

    def _looked(self, snapshot: TickSnapshot, where: Pose) -> tuple[Look, Sequence[Drawn]]:
        lens, daylight = self._camera.lens, snapshot.conditions.daylight
        by_night = daylight.lamps > 0.0
        reach_m = min(max(sight_m(lens), BEAM_SEEN_M if by_night else 0.0), _SIGHT_M)
        view = View(where, lens)
        near, people = snapshot.drawn(view, reach_m, all_around=by_night)
        seen: list[Drawn] = [
            figure
            for actor, figure in near
            if not (self.hangs_on(actor) and actor.surrounds(where.x, where.y, where.z))
        ]
        seen += snapshot.signage.faces(where.x, where.y, min(lens.focal, _SIGNS_M))
        return self._camera.look(snapshot.scene, view, seen, daylight, people), [figure for _, figure in near]


class ImageSensor(Viewer):
    """A camera that sends whole pictures."""

    def messages(self, snapshot: TickSnapshot) -> Iterator[Message]:
        """Yield the image of this snapshot."""
        where = self.pose
        yield self.header(snapshot, where), self._image_head, self.pixels(snapshot, where).data.cast("B")

    @abstractmethod
    def pixels(self, snapshot: TickSnapshot, where: Pose) -> NDArray[Any]:
        """Return the pixels as sent, row by row from the upper left; ``where`` is the sensor's pose."""


class RgbCamera(ImageSensor):
    """A colour camera."""

    kind: ClassVar[int] = 13
    support: ClassVar[Support] = approximated("simple shapes without textures or reflections, lit by the weather")

    def pixels(self, snapshot: TickSnapshot, where: Pose) -> NDArray[Any]:
        """Return BGRA colours."""
        look, beaming = self._look(snapshot, where)
        return self._camera.picture(look, snapshot.conditions, beaming)


class _SurfaceCamera(ImageSensor):
    """A camera that shows properties of surfaces instead of their colours."""

    def prepare(self, scene: Scene) -> None:
        """Label the ground in advance; its colours aren't needed."""
        _ = scene.labels

    def surfaces(self, snapshot: TickSnapshot, where: Pose) -> Surfaces:
        """Return the surfaces in view."""
        key = self._key(where)
        seen = snapshot.surfaces.get(key)
        if seen is None:
            seen = snapshot.surfaces[key] = Surfaces(self._look(snapshot, where)[0])
        return seen


class DepthCamera(_SurfaceCamera):
    """Distance of each pixel along the camera's axis."""

    kind: ClassVar[int] = 1

    def pixels(self, snapshot: TickSnapshot, where: Pose) -> NDArray[Any]:
        """Return BGRA with the depth in 24 bits: red is the lowest byte, blue the highest."""
        metres = self.surfaces(snapshot, where).metres
        scaled = metres * _DEEPEST
        steps = np.rint(scaled, out=scaled).astype(np.uint32)
        # On the other byte order, alpha (255) is the lowest byte and red the next.
        steps <<= 8
        steps |= 255
        image: NDArray[Any] = steps.byteswap(inplace=True).view(np.uint8)
        return image


class SemanticCamera(_SurfaceCamera):
    """The CityObjectLabel of each pixel."""

    kind: ClassVar[int] = 14

    def pixels(self, snapshot: TickSnapshot, where: Pose) -> NDArray[Any]:
        """Return BGRA with the label in red."""
        return self.surfaces(snapshot, where).tags()


class InstanceCamera(_SurfaceCamera):
    """The instance that each pixel shows, with its label.

    As in CARLA (InstanceSegmentationCamera.cpp, Tagger.cpp), green has the id's lower byte and blue the upper one. In
    CARLA it is Unreal's id of a mesh. Here it is the actor's id, or for each of ``get_environment_objects`` a number
    counted down from 65535; 0 for road, ground and sky.
    """

    kind: ClassVar[int] = 15
    support: ClassVar[Support] = approximated(
        "the number is the actor's id, or counted down from 65535 for what stands still; in CARLA it is Unreal's"
    )

    def pixels(self, snapshot: TickSnapshot, where: Pose) -> NDArray[Any]:
        """Return BGRA with the label in red and the number in green and blue."""
        return self.surfaces(snapshot, where).instances()


class CosmosCamera(_SurfaceCamera):
    """Control pictures for NVIDIA's Cosmos: vehicles, people, signs, poles and lines in colours, all else black.

    The colours are CARLA's (CosmosControlSensor.cpp). CARLA draws boxes around vehicles and people, and lines from its
    splines of roads, stop lines and crosswalks; here each thing is filled, and all paint on a road counts as a line.
    """

    kind: ClassVar[int] = 16
    support: ClassVar[Support] = approximated("each thing is filled in its colour, where CARLA draws boxes and lines")

    def pixels(self, snapshot: TickSnapshot, where: Pose) -> NDArray[Any]:
        """Return BGRA colours."""
        image: NDArray[Any] = _COSMOS[self.surfaces(snapshot, where).tags()[..., 2]]
        return image


class NormalsCamera(_SurfaceCamera):
    """The normal of each surface.

    CARLA's encoding isn't published. Here x, y and z of the unit vector in the world's frame are red, green and blue,
    with -1 as 0 and 1 as 255; the sky is black.
    """

    kind: ClassVar[int] = 2
    support: ClassVar[Support] = approximated(
        "how CARLA writes a normal isn't published; here x, y, z of the world's frame are red, green and blue"
    )

    def pixels(self, snapshot: TickSnapshot, where: Pose) -> NDArray[Any]:
        """Return BGRA with the normal in red, green and blue."""
        normals = self.surfaces(snapshot, where).normals()
        image = np.full((*normals.shape[:2], 4), 255, np.uint8)
        image[..., 2::-1] = np.where(normals.any(axis=2, keepdims=True), np.rint(127.5 * (normals + 1.0)), 0.0)
        return image


class OpticalFlowCamera(_SurfaceCamera):
    """The motion of each pixel since the last image; zero in the first one.

    The units are CARLA's, those of Unreal's velocities (OpticalFlowCamera.cpp; carla issue 4795): half widths of the
    image to the right, half heights upwards.
    """

    kind: ClassVar[int] = 8

    def __init__(self, identity: Identity, place: Pose) -> None:
        super().__init__(identity, place)
        self._before: Before | None = None

    def pixels(self, snapshot: TickSnapshot, where: Pose) -> NDArray[Any]:
        """Return two 32-bit floats per pixel."""
        look, _ = self._look(snapshot, where)
        now = Before(look.view, look.moving.poses())
        before, self._before = self._before or now, now
        return self.surfaces(snapshot, where).flow(before)


register(RgbCamera, "sensor.camera.rgb")
register(DepthCamera, "sensor.camera.depth")
register(SemanticCamera, "sensor.camera.semantic_segmentation")
register(InstanceCamera, "sensor.camera.instance_segmentation")
register(CosmosCamera, "sensor.camera.cosmos_visualization")
register(NormalsCamera, "sensor.camera.normals")
register(OpticalFlowCamera, "sensor.camera.optical_flow")
