"""Cameras and rays see the same: which thing each pixel is of, and how far away."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest

from carla_lite.maps import Maps
from carla_lite.protocol.channel import listen
from carla_lite.protocol.streams import Streams
from carla_lite.rays.field import NOTHING
from carla_lite.scenery.backdrop import GROUND_END_M, TAG_SKY
from carla_lite.scenery.projection import Lens, Pose
from carla_lite.scenery.statics import TAG_VEGETATION
from carla_lite.scenery.surfaces import FARTHEST_M, LAST_THING
from carla_lite.scenery.vista import CELL_M
from carla_lite.world import World

WIDTH, HEIGHT, FOV_DEG = 800, 450, 90.0
VEHICLES = ("tesla.model3", "carlamotors.carlacola", "kawasaki.ninja", "diamondback.century", "mitsubishi.fusorosa")
PROPS = ("trafficcone01", "bench01", "streetbarrier")


class Kept(Streams):
    """Streams with a listener each, which keep the last message."""

    def publish(self, stream: int, parts: object) -> None:
        self.last[stream] = b"".join(bytes(part) for part in parts)  # type: ignore[attr-defined]

    def has_subscribers(self, _stream: int) -> bool:
        return True

    last: dict[int, bytes]


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    """A street with vehicles, walkers and props, all of them near the first spawn point."""
    with listen("127.0.0.1", 0) as listener:
        streams = Kept(listener)
        streams.last = {}
        world = World(streams, Maps("Lite01"))

        def put(name: str, ahead_m: float, aside_m: float, up_m: float, turn: float) -> None:
            at = world.network.spawn_points()[0]
            c, s = math.cos(at.yaw), math.sin(at.yaw)
            x, y = at.x + c * ahead_m - s * aside_m, at.y + s * ahead_m + c * aside_m
            world.spawn(name, {}, Pose(x, y, at.z + up_m, 0.0, at.yaw + turn))

        for place, name in enumerate(VEHICLES):
            put(f"vehicle.{name}", 9.0 + 8.0 * place, 0.0, 0.3, 0.3 * place)
        for place in range(4):
            put("walker.pedestrian.0001", 6.0 + 3.0 * place, 3.0, 1.2, float(place))
        for place, name in enumerate(PROPS):
            put(f"static.prop.{name}", 7.0 + 2.0 * place, -3.0, 0.0, float(place))
        for _ in range(30):
            world.tick()
        yield world


def seen(world: World, where: Pose) -> tuple[np.ndarray, np.ndarray]:
    """Return depths (m) and names, label × 65536 + number, of all pixels as cameras see them."""
    size = {"image_size_x": str(WIDTH), "image_size_y": str(HEIGHT), "fov": str(FOV_DEG)}
    cameras = [world.spawn(f"sensor.camera.{kind}", size, where) for kind in ("depth", "instance_segmentation")]
    world.tick()
    assert isinstance(world.streams, Kept)
    depth, instance = (
        np.frombuffer(world.streams.last[camera.stream], np.uint8, offset=60).reshape(HEIGHT, WIDTH, 4).astype(int)  # type: ignore[attr-defined]
        for camera in cameras
    )
    for camera in cameras:
        world.destroy(camera.id)
    metres = (depth[..., 2] + 256 * depth[..., 1] + 65536 * depth[..., 0]) / (2**24 - 1) * FARTHEST_M
    return metres, 65536 * instance[..., 2] + 256 * instance[..., 0] + instance[..., 1]


def met(world: World, where: Pose) -> tuple[np.ndarray, np.ndarray]:
    """Return the same as rays through the middles of the pixels meet them; the ground ends where cameras' does."""
    lens, rays = Lens.of(WIDTH, HEIGHT, FOV_DEG), world.rays()
    across, down = np.meshgrid(np.arange(WIDTH) - 0.5 * (WIDTH - 1), np.arange(HEIGHT) - 0.5 * (HEIGHT - 1))
    ways = np.stack([np.full(across.shape, lens.focal), across, -down], axis=-1).reshape(-1, 3)
    lengths = np.linalg.norm(ways, axis=1, keepdims=True)
    ways = (ways / lengths) @ np.array(where.axes())
    eye = where.x, where.y, where.z
    hits = rays.cast(eye, ways.T, FARTHEST_M)
    depths = hits.distances * lens.focal / lengths[:, 0]
    sky = (hits.things == NOTHING) | (depths > GROUND_END_M)
    places = np.array(eye)[:, None] + np.where(sky, 0.0, hits.distances) * ways.T
    still = (hits.things >= 0) & (hits.things < rays.still.first_sign)
    numbers = np.where(still, LAST_THING - hits.things, rays.ids(hits.things).astype(int))
    names = 65536 * rays.tags(hits.things, places).astype(int) + numbers
    names[sky], depths[sky] = 65536 * TAG_SKY, FARTHEST_M
    return depths.reshape(HEIGHT, WIDTH), names.reshape(HEIGHT, WIDTH)


def crowns(world: World) -> list[int]:
    """Return the names of the crowns of trees."""
    boxes = world.scene.statics.boxes
    return [65536 * TAG_VEGETATION + LAST_THING - number for number, box in enumerate(boxes) if not box.solid]


def at_edges(names):
    """Return where a pixel has a neighbour of another name."""
    around = np.pad(names, 1, mode="edge")
    shifted = [around[row : row + HEIGHT, column : column + WIDTH] for row in range(3) for column in range(3)]
    return np.any([each != names for each in shifted], axis=0)


@pytest.mark.parametrize(
    ("ahead_m", "up_m", "pitch", "turn", "roll"),
    [(0.0, 1.6, 0.0, 0.0, 0.0), (0.0, 2.5, -0.2, 0.2, 0.15), (0.0, 6.0, -0.5, -0.3, 0.0), (60.0, 1.8, 0.05, 2.6, -0.1)],
)
def test_cameras_and_rays_see_the_same(world, ahead_m, up_m, pitch, turn, roll):
    at = world.network.spawn_points()[0]
    x, y = at.x + ahead_m * math.cos(at.yaw), at.y + ahead_m * math.sin(at.yaw)
    where = Pose(x, y, world.network.height(x, y) + up_m, pitch, at.yaw + turn, roll)
    (depths, names), (lengths, found) = seen(world, where), met(world, where)
    # What can't agree: crowns are discs for cameras and balls for rays, and posts nearer than a vista's cell are strips
    # that are turned to the middle of the cell.
    leafy = np.isin(names, crowns(world)) | np.isin(found, crowns(world))
    compared = ~leafy & ~((lengths < CELL_M) & (found >> 16 == 6))
    same = (names == found)[compared]
    assert compared.mean() > 0.9
    assert same.mean() >= 0.99
    # Of the rest, slits between a car's panels that strokes cover, and people who are drawn flat from afar.
    assert (same | at_edges(names)[compared]).mean() >= 0.9995
    deep = np.abs(depths - lengths) <= 0.1 + 0.02 * depths
    assert deep[compared][same].mean() >= 0.999
    assert len(np.unique(names[compared])) > 10
