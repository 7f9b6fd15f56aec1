"""Blueprints that CARLA has and this server can't spawn: cameras of other kinds, lidar.

Owns their ids and attributes, CARLA's defaults (ActorBlueprintFunctionLibrary.cpp). CARLA's own programs look them up,
or choose among them, before they know whether they will use them: they are found, and spawning one is refused in words.
"""

from __future__ import annotations

from carla_lite.blueprints.catalogue import Attribute, Blueprint, Kind, register, role
from carla_lite.blueprints.sensor_attributes import FILM, LENS, ROLES, floats, integers

_PICTURE = (*integers(image_size_x="800", image_size_y="600"), *floats(sensor_tick="0.0", fov="90.0"), *LENS)
_DVS = (
    *floats(positive_threshold="0.3", negative_threshold="0.3"),
    *floats(sigma_positive_threshold="0.0", sigma_negative_threshold="0.0", log_eps="0.001"),
    *integers(refractory_period_ns="0"),
    Attribute("use_log", Kind.BOOL, "true"),
)
_LIDAR = (
    *integers(channels="32", points_per_second="56000", noise_seed="0"),
    *floats(sensor_tick="0.0", range="10.0", rotation_frequency="10.0", upper_fov="10.0", lower_fov="-30.0"),
    *floats(horizontal_fov="360.0", atmosphere_attenuation_rate="0.004", dropoff_general_rate="0.45"),
    *floats(dropoff_intensity_limit="0.8", dropoff_zero_intensity="0.4", noise_stddev="0.0"),
)
_SENSORS: dict[str, tuple[Attribute, ...]] = {
    "sensor.camera.cosmos_visualization": _PICTURE,
    "sensor.camera.depth": _PICTURE,
    "sensor.camera.dvs": (*_PICTURE, *FILM, *_DVS),
    "sensor.camera.instance_segmentation": _PICTURE,
    "sensor.camera.normals": _PICTURE,
    "sensor.camera.optical_flow": _PICTURE,
    "sensor.camera.semantic_segmentation": _PICTURE,
    "sensor.lidar.ray_cast": _LIDAR,
}
LISTED_ONLY = frozenset(_SENSORS)
"""Their ids."""

for _name, _attributes in _SENSORS.items():
    register(Blueprint(_name, (*_attributes, role(*ROLES))))
