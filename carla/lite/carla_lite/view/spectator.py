"""Motion of the spectator: turned by dragging, moved by wheel and keys, or attached to an actor. Pure."""

from __future__ import annotations

import math

from carla_lite.scenery.camera import Pose

STEEPEST = math.radians(89.0)
BEHIND_M, ABOVE_M, DOWN = 7.0, 3.2, math.radians(-14.0)


def turned(pose: Pose, yaw: float, pitch: float) -> Pose:
    """Return the pose after turning right and up, in radians; it never turns over."""
    steep = max(-STEEPEST, min(STEEPEST, pose.pitch + pitch))
    return Pose(pose.x, pose.y, pose.z, steep, math.remainder(pose.yaw + yaw, math.tau), 0.0)


def moved(pose: Pose, forward_m: float, right_m: float, up_m: float) -> Pose:
    """Return the pose after moving along its line of sight, sideways and straight up."""
    c, s, level = math.cos(pose.yaw), math.sin(pose.yaw), math.cos(pose.pitch)
    x = pose.x + forward_m * level * c - right_m * s
    y = pose.y + forward_m * level * s + right_m * c
    return Pose(x, y, pose.z + forward_m * math.sin(pose.pitch) + up_m, pose.pitch, pose.yaw, 0.0)


def behind(actor: Pose) -> Pose:
    """Return the pose that looks at an actor from behind and above."""
    back_x, back_y = BEHIND_M * math.cos(actor.yaw), BEHIND_M * math.sin(actor.yaw)
    return Pose(actor.x - back_x, actor.y - back_y, actor.z + ABOVE_M, DOWN, actor.yaw, 0.0)


def above(x: float, y: float, ground_m: float) -> Pose:
    """Return the pose that looks down on a place."""
    return Pose(x, y, ground_m + 25.0, math.radians(-60.0), 0.0, 0.0)
