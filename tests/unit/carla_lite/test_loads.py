"""Memory of a server for earlier towns: at most the previous one, however many it loads."""

from __future__ import annotations

import gc
import weakref

from carla_lite.maps import Maps
from carla_lite.methods.rays import cast_ray
from carla_lite.navigation import mesh
from carla_lite.protocol.channel import listen
from carla_lite.protocol.streams import Streams
from carla_lite.scenery.camera import Camera, Pose
from carla_lite.scenery.statics import StaticBox
from carla_lite.world import World


def boxes_alive() -> int:
    gc.collect()
    return sum(isinstance(thing, StaticBox) for thing in gc.get_objects())


def use(world: World) -> None:
    """Do what makes a server compute and keep something about its town."""
    place = world.network.spawn_points()[0]
    mesh.build(world.network)
    cast_ray(world, (place.x, place.y, 10.0), (place.x, place.y, -10.0))
    camera = Camera(320, 240, 90.0)
    for turn in range(4):
        camera.render(world.scene, Pose(place.x, place.y, 1.8, 0.0, 1.5 * turn), [])


def test_a_town_is_forgotten_after_two_others() -> None:
    with listen("127.0.0.1", 0) as listener:
        world = World(Streams(listener), Maps("Lite01"))
        others, towns, scenes, boxes = boxes_alive(), [], [], []
        for seed in range(4):
            world.load(world.maps.load(f"Lite:seed={seed},size=200"))
            use(world)
            towns.append(weakref.ref(world.network))
            scenes.append(weakref.ref(world.scene))
            boxes.append(len(world.scene.statics.boxes))
        assert boxes_alive() - others <= sum(boxes[-2:])
        assert [town() is None for town in towns] == [True, True, False, False]
        assert [scene() is None for scene in scenes] == [True, True, False, False]
        assert min(boxes) > 50
        before, present = (vars(scene()) for scene in scenes[-2:])
        pictures = {"ground", "mesh", "vistas"}
        assert pictures <= set(present)
        assert not pictures & set(before), "the largest part, and made again where somebody looks"
