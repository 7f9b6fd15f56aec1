"""RPC methods that are always refused; each one's sentence says what to do instead.

``console_command`` exists only as a command of ``apply_batch``, in LibCarla but not in Python's client.
"""

from __future__ import annotations

from carla_lite.methods.table import refuse

_NO_CARSIM = "carla-lite has no CarSim, which is a licensed program: vehicles move by carla-lite's model, leave {} out"
_NO_BUFFERS = (
    "carla-lite has no G-buffers: sensor.camera.depth, semantic_segmentation, instance_segmentation, normals and "
    "optical_flow send what most of them hold"
)

refuse("enable_carsim", _NO_CARSIM.format("enable_carsim"))
refuse("use_carsim_road", _NO_CARSIM.format("use_carsim_road"))
refuse(
    "enable_chrono_physics",
    "carla-lite has no Chrono: vehicles move by carla-lite's model, leave enable_chrono_physics out",
)
refuse("get_gbuffer_token", _NO_BUFFERS)
refuse("enable_gbuffers", _NO_BUFFERS)
refuse(
    "enable_sensor_for_ros",
    "carla-lite has no ROS publisher: run CARLA's ROS bridge as a client, or publish what listen() receives",
)
refuse("send", "carla-lite has no V2X radio: messages between vehicles are not simulated, leave send out")
refuse(
    "set_ignored_vehicles",
    "carla-lite's sensors can't ignore vehicles: a camera doesn't see the vehicle that it sits in or on, for others "
    "leave set_ignored_vehicles out",
)
refuse(
    "console_command", "carla-lite has no Unreal console: set weather, settings and layers by the client's own calls"
)
