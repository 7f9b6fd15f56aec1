"""A camera to look through at what the agent's camera sees: the same place and lens, with more pixels."""

from __future__ import annotations

import carla

from carla_td3.config import CameraConfig
from carla_td3.env.driving import DrivingEnv
from carla_td3.env.sensors import FrameCamera
from carla_td3.evaluation.overlay import FRONT, Lens


def lens(camera: CameraConfig) -> Lens:
    """Return place and lens of the agent's front camera."""
    return Lens(camera.x_m, camera.z_m, camera.pitch_deg, camera.fov_deg, camera.yaw_deg)


def viewing_camera(env: DrivingEnv) -> FrameCamera:
    """Put the camera on the environment's car, whose other sensors it goes with; that takes ticks.

    Raises:
        SimulatorLost: the simulator doesn't answer, or sends no picture.
    """
    assert env.car is not None
    own, session = lens(env.config.camera), env.session
    pose = carla.Transform(carla.Location(x=own.x_m, z=own.z_m), carla.Rotation(pitch=own.pitch_deg, yaw=own.yaw_deg))
    with session.answered():
        camera = FrameCamera(session, env.car.actor, pose, width=FRONT, height=FRONT, fov_deg=own.fov_deg)
    camera.wait_for_first()
    env.car.sensors.add(camera)
    return camera
