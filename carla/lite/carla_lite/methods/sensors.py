"""RPC methods of sensors, besides spawning; ``refused`` has most others."""

from __future__ import annotations

from carla_lite.methods.table import method
from carla_lite.support import without_effect
from carla_lite.world import World


@method
def are_gbuffers_enabled(_world: World, _sensor: int) -> bool:
    """Return False: ``enable_gbuffers`` is refused."""
    return False


@method
def disable_sensor_for_ros(_world: World, _stream: int) -> None:
    """Change nothing: no sensor is ever enabled for ROS."""


@method
def is_sensor_enabled_for_ros(_world: World, _stream: int) -> bool:
    """Return False: ``enable_sensor_for_ros`` is refused."""
    return False


@method(without_effect("windows are drawn opaque, so cameras never see what is behind them"))
def set_annotations_traverse_translucency(_world: World, _enabled: bool) -> None:
    """Change nothing."""
