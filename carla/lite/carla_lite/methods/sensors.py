"""RPC methods of sensors beside spawning them."""

from __future__ import annotations

from typing import NoReturn

from carla_lite.methods.table import method
from carla_lite.protocol.wire import RpcError
from carla_lite.world import World


@method
def get_gbuffer_token(world: World, _sensor: int, _texture: int) -> NoReturn:
    """Refuse: Unreal's intermediate textures have nothing here that they would be made from.

    Raises:
        RpcError: always; ``Sensor.listen_to_gbuffer`` raises it as a RuntimeError.
    """
    world.report_unsupported("get_gbuffer_token")
    raise RpcError(
        "carla-lite has no G-buffers: sensor.camera.depth, semantic_segmentation, instance_segmentation, normals and "
        "optical_flow send what most of them hold"
    )
