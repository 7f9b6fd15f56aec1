"""Where a point of the world appears in an image: poses, rotation, the pinhole.

Owns CARLA's rotation convention and the pinhole model. Never touches pixels or scenes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from carla_lite.roads.reference_line import FloatArray

NEAR_M = 0.2
ROUNDING_M = 1e-6


@dataclass(slots=True, unsafe_hash=True)  # not frozen: three times as slow to create, once per actor and tick
class Pose:
    """A place and a direction in CARLA's frame: metres, radians (pitch up, yaw clockwise, roll to the right).

    Never changed once created.
    """

    x: float
    y: float
    z: float
    pitch: float = 0.0
    yaw: float = 0.0
    roll: float = 0.0

    def axes(self) -> tuple[tuple[float, float, float], ...]:
        """Return the unit vectors forward, right and up in the world's frame.

        They are the columns of CARLA's ``Transform.get_matrix``.
        """
        cp, sp = math.cos(self.pitch), math.sin(self.pitch)
        cy, sy = math.cos(self.yaw), math.sin(self.yaw)
        cr, sr = math.cos(self.roll), math.sin(self.roll)
        return (
            (cp * cy, cp * sy, sp),
            (cy * sp * sr - sy * cr, sy * sp * sr + cy * cr, -cp * sr),
            (-cy * sp * cr - sy * sr, -sy * sp * cr + cy * sr, cp * cr),
        )


def all_axes(angles: FloatArray) -> FloatArray:
    """Return :meth:`Pose.axes` (3 axes, 3, n) for pitch, yaw and roll (3, n)."""
    plain = angles.ravel().tolist()
    cp, cy, cr = np.array(list(map(math.cos, plain))).reshape(angles.shape)
    sp, sy, sr = np.array(list(map(math.sin, plain))).reshape(angles.shape)
    return np.array(
        (
            (cp * cy, cp * sy, sp),
            (cy * sp * sr - sy * cr, sy * sp * sr + cy * cr, -cp * sr),
            (-cy * sp * cr - sy * sr, -sy * sp * cr + cy * sr, cp * cr),
        )
    )


@dataclass(frozen=True, slots=True)
class Lens:
    """An image's size and focal length in pixels; pixels are square."""

    width: int
    height: int
    focal: float

    @classmethod
    def of(cls, width: int, height: int, fov_deg: float) -> Lens:
        """Return the lens for an image whose width spans ``fov_deg`` degrees."""
        return cls(width, height, 0.5 * width / math.tan(math.radians(fov_deg) / 2.0))


class View:
    """A pinhole camera at a pose: projection from the world to the image and back."""

    def __init__(self, pose: Pose, lens: Lens) -> None:
        self.pose, self.lens = pose, lens
        width, height, focal = lens.width, lens.height, lens.focal
        self.position = np.array((pose.x, pose.y, pose.z))
        self.axes = forward, right, up = pose.axes()
        self.tangent = 0.5 * width / focal
        """How far the image's edge is aside per depth, and how far aside of it a thing must be to be outside, per its
        size.
        """
        self.slack = math.hypot(1.0, self.tangent)
        # Pixel centres are whole numbers, as in OpenCV, so the image's centre is half a pixel less than half its size.
        self.u, self.v = u, v = 0.5 * width - 0.5, 0.5 * height - 0.5
        # Plain numbers: for so few, an array costs more than the sums.
        across = [focal * r + u * f for r, f in zip(right, forward, strict=True)]
        down = [-focal * p + v * f for p, f in zip(up, forward, strict=True)]
        inside_right = [width * f - a for f, a in zip(forward, across, strict=True)]
        inside_lower = [height * f - d for f, d in zip(forward, down, strict=True)]
        # The rows give u × depth, v × depth, depth, and the distances inside the right and the lower edge, × depth.
        self.planes = np.array((across, down, forward, inside_right, inside_lower))
        self.matrix = self.planes[:3]

    def project(self, points: FloatArray) -> FloatArray:
        """Return (..., 3) u × depth, v × depth and depth (m) of points (..., 3) in the world's frame."""
        seen: FloatArray = (points - self.position) @ self.matrix.T
        return seen

    def shows(self, away: FloatArray, reaches: FloatArray, farthest_m: float) -> NDArray[np.bool_]:
        """Return whether things (3, n) from the camera (m), with parts up to ``reaches`` (m) away, may be between the
        image's left and right edge, and no deeper than ``farthest_m``.
        """
        depth, aside = np.array(self.axes[:2]) @ away
        # Somewhat wider: rounding may differ from that of a look at each.
        shown: NDArray[np.bool_] = (
            (depth > -reaches - ROUNDING_M)
            & (depth < farthest_m)
            & (np.abs(aside) < depth * self.tangent + self.slack * reaches + ROUNDING_M)
        )
        return shown

    def ground_homography(self, height: float, scale: float, x: float, y: float) -> FloatArray:
        """Return (3, 3) from image pixels to pixels of a picture of the ground.

        Args:
            height: of the camera above the ground (m).
            scale: metres per pixel of the picture.
            x: west edge of the picture (m).
            y: north edge of the picture (m).
        """
        u, v, focal = self.u, self.v, self.lens.focal
        px, py = self.pose.x, self.pose.y
        # Direction of the ray through pixel (u, v): rays @ (u, v, 1).
        rays = [(r, -p, focal * f - u * r + v * p) for f, r, p in zip(*self.axes, strict=True)]
        to_x = [
            ((px - x) * depth - height * ray) / scale - 0.5 * depth for ray, depth in zip(rays[0], rays[2], strict=True)
        ]
        to_y = [
            ((py - y) * depth - height * ray) / scale - 0.5 * depth for ray, depth in zip(rays[1], rays[2], strict=True)
        ]
        return np.array((to_x, to_y, rays[2]))
