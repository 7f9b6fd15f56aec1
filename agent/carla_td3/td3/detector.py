"""An encoder that detects people and vehicles, and how they move, in each direction; and the loss that teaches it.

Each view goes through convolutions of 3×3 at two and four pixels a cell. 1×1 heads at each cell of four pixels then
tell what is there, from the cell's features, its place in the picture, and the car's own speed and wheel. What all
places of a picture share generalises to towns that training never used; a layer over the whole picture learns its rows
by heart (docs/trials.md). The features are the largest value of each column, beside a trunk as ``networks.Encoder`` has
it. They don't depend on the frame's size.

Two frames show how people walk only to an eye that knows how the car itself moved. So the earlier frames are first
drawn as the car would see them from its present place (``Alignment``): what stands still then stands still in the
frames, too.

Owns its layers, the geometry of views, and which privileged numbers teach it. Knows no optimizer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from carla_td3.config import NetworkConfig
from carla_td3.td3.kernels.colour import over_red_green_blue
from carla_td3.td3.layers import arithmetic, orthogonal
from carla_td3.td3.replay.frames import BLOCK, COLUMNS, LISTED, MAPS, VECTOR, FrameStack, View

WHEELBASE_M, MAX_STEER_RAD = 2.875, math.radians(70.0)
"""Of the car, for the way that it came. A test compares them with the expert's."""
SPEED_SCALE_MPS = 10.0
"""Of the vector's speed."""
STEP_S = 0.095
"""Seconds that a step moves the picture by: a little less than the step, because the speed is that of its end."""
FAR_M = 12.0
"""Distance at which what the picture shows is taken to stand, for the way that it moves: people further away move
less than a pixel in error, and nearer ones are seen anyway.
"""
WIDTHS = (16, 32)
"""Channels at two and at four pixels a cell."""
HEAD = 64
TRUNK = 5
"""Cells of the trunk's side."""
BEARINGS = tuple(range(-50, 60, 10))
"""Middles of the ten degrees of ``Kind.at``."""
RARE = 4.0
"""Weight of a cell that shows one of a kind against one that doesn't."""
NEAR, THERE, MOVES = 0.2, 0.05, 0.06
"""Weights beside the auxiliary loss: nearness of each direction, whether a cell shows one, how it moves."""


@dataclass(frozen=True)
class Kind:
    """What is detected: its size, and which of the privileged numbers teach it (``env.privileged``)."""

    half_width_m: float
    half_height_m: float
    middle_m: float
    """Height of its middle."""
    seen_m: float
    """Distance up to which a cell of four pixels can show it."""
    cells: float
    """Cells of a view that show some in a usual row: a constant, so that the loss is a sum over rows."""
    listed: slice
    """The nearest ones: ahead and to the right, in ``LISTED_M``, and their velocities."""
    at: slice
    """Nearness in each of ``BEARINGS``."""
    nearest: float
    """Its number at the front bumper."""


KINDS = (
    Kind(0.3, 0.9, 0.95, 25.0, 3.0, slice(0, 32), slice(LISTED + 16, LISTED + 27), 2.0),
    Kind(1.0, 0.7, 0.75, 35.0, 1.0, slice(32, 64), slice(LISTED + 27, LISTED + 38), 1.0),
)
"""People and vehicles."""
LISTED_M = 20.0


@dataclass(frozen=True)
class Maps:
    """What the heads of one view tell at each of C × C cells, float32: ``frames.MAPS`` numbers."""

    near: Tensor
    """(B, 2, C, C), logits of the nearness of people and vehicles, 0 to 1."""
    there: Tensor
    """(B, 2, C, C), logits of one of them."""
    moves: Tensor
    """(B, 2, 2, C, C), how it moves to the right and ahead, as ``env.privileged`` scales it."""


class Alignment(nn.Module):
    """Draws an earlier frame of a view as it would be from the car's present place, if all stood ``FAR_M`` away."""

    places: Tensor
    camera: Tensor

    def __init__(self, view: View, side: int, every: int) -> None:
        super().__init__()
        self._side, self._seconds = side, STEP_S * every
        rays = _rays(view, side).flatten(0, 1)
        places = torch.tensor([view.x_m, 0.0, view.z_m]) + rays * (FAR_M / rays[:, :2].norm(dim=-1, keepdim=True))
        self.register_buffer("places", functional.pad(places, (0, 1), value=1.0).T.contiguous(), persistent=False)
        self.register_buffer("camera", torch.tensor(camera(view)), persistent=False)

    def forward(self, frames: Tensor, back: int, speed: Tensor, wheel: Tensor) -> Tensor:
        """Return frames (B, planes, S, S) of ``back`` stacked frames ago, moved.

        Args:
            speed: of the car now, m/s, (B,).
            wheel: its position, -1 to 1, (B,).
        """
        way = speed * (self._seconds * back)
        turn = way * torch.tan(wheel * MAX_STEER_RAD) / WHEELBASE_M
        chord = way * torch.sinc(turn / (2.0 * math.pi))
        cos, sin, ahead, aside = turn.cos(), turn.sin(), chord * (turn / 2.0).cos(), chord * (turn / 2.0).sin()
        zero, one = torch.zeros_like(turn), torch.ones_like(turn)
        # From the car's present frame to that of its earlier place, from which it has gone ahead and turned.
        rows = (
            (cos, -sin, zero, cos * ahead + sin * aside),
            (sin, cos, zero, sin * ahead - cos * aside),
            (zero, zero, one, zero),
            (zero, zero, zero, one),
        )
        moved = torch.stack([torch.stack(row, -1) for row in rows], -2)
        seen = self.camera @ moved @ self.places
        grid = (seen[:, :2] / seen[:, 2:].clamp(min=0.4)).view(-1, 2, self._side, self._side).permute(0, 2, 3, 1)
        return functional.grid_sample(frames, grid, padding_mode="border", align_corners=False)


class _Heads(nn.Module):
    """One view: convolutions, heads, and the trunk's part."""

    places: Tensor

    def __init__(self, view: View, stack: FrameStack) -> None:
        super().__init__()
        fine, coarse = WIDTHS
        self._frames, self._is_colour = stack.frames, view.planes == 3
        self.first = _convolution(stack.frames * view.planes, fine, 3, stride=2, padding=1)
        self.tower = nn.Sequential(
            nn.ReLU(inplace=True),
            _convolution(fine, fine, 3, padding=1),
            nn.ReLU(inplace=True),
            _convolution(fine, coarse, 3, stride=2, padding=1),
            nn.ReLU(inplace=True),
            _convolution(coarse, coarse, 3, padding=1),
            nn.ReLU(inplace=True),
            _convolution(coarse, coarse, 3, padding=2, dilation=2),
            nn.ReLU(inplace=True),
        )
        self.hidden = _convolution(coarse + 4, HEAD, 1)
        self.told = _convolution(HEAD, MAPS, 1)
        self.trunk = nn.Sequential(
            _convolution(coarse, coarse, 4, stride=2, padding=1),
            nn.ReLU(inplace=True),
            _convolution(coarse, coarse, 3, stride=2, padding=1),
            nn.ReLU(inplace=True),
        )
        with torch.no_grad():
            self.told.weight.mul_(0.3)
            assert self.told.bias is not None
            self.told.bias[:4] = -3.0  # at most places there is nothing
        cells = torch.linspace(-1.0, 1.0, stack.side // BLOCK)
        self.register_buffer("places", torch.stack(torch.meshgrid(cells, cells, indexing="ij"))[None], persistent=False)
        for layer in self.modules():
            if isinstance(layer, nn.Conv2d):
                layer.weight.data = layer.weight.data.contiguous(memory_format=torch.channels_last)

    def forward(self, pixels: Tensor, own: Tensor) -> tuple[Tensor, Maps]:
        """Return the trunk's part (B, 25 · 32), and the maps, for planes (B, n, S, S) of 0..255 and (B, 2)."""
        first = self.first
        found = self.tower(functional.conv2d(pixels, self._over_pixels(), first.bias, first.stride, first.padding))
        size = len(found), -1, *found.shape[2:]
        # Laid out as the convolutions' output is: else oneDNN converts what follows, which takes twice as long.
        beside = [
            each.to(found.dtype).expand(size).contiguous(memory_format=torch.channels_last)
            for each in (self.places, own[:, :, None, None])
        ]
        told = self.told(functional.relu(self.hidden(torch.cat((found, *beside), 1)))).float()
        trunk = functional.adaptive_avg_pool2d(self.trunk(found), TRUNK)
        return trunk.flatten(1), Maps(told[:, :2], told[:, 2:4], told[:, 4:].reshape(len(told), 2, 2, *told.shape[2:]))

    def _over_pixels(self) -> Tensor:
        """Return the first convolution's weights over grey levels, or red, green and blue, of 0..255."""
        learned = self.first.weight / 255.0
        if not self._is_colour:
            return learned
        outputs, _, *size = learned.shape
        of_frames = learned.reshape(outputs, self._frames, 3, *size)
        return torch.stack(over_red_green_blue(*of_frames.unbind(2)), 2).flatten(1, 2)


class Detector(nn.Module):
    """Encoder of ``td3.network.encoder: detector``."""

    def __init__(self, config: NetworkConfig, stack: FrameStack) -> None:
        super().__init__()
        self.stack = stack
        self.alignments = nn.ModuleList(Alignment(view, stack.side, stack.every) for view in stack.views)
        self.heads = nn.ModuleList(_Heads(view, stack) for view in stack.views)
        self.trunk = nn.Linear(WIDTHS[1] * TRUNK**2 * len(stack.views), config.features)
        self.norm = nn.LayerNorm(config.features)
        orthogonal(self.trunk, 1.0)
        self._weight = config.picture_weight * (VECTOR / config.features) ** 0.5

    def seen(self, frames: Tensor, vector: Tensor) -> tuple[Tensor, list[Maps]]:
        """Return features (B, features + columns) float32, and the maps of each view, for stored frames and (B, 53)."""
        # Not vector[:, [0, -2]]: a list of places would be copied to the device, which a CUDA graph can't record.
        own = torch.stack((vector[:, 0], vector[:, -2]), 1)
        # One view after the other: what the next one's planes take then isn't there while this one's maps are made.
        parts, maps = zip(
            *(heads(self._planes(at, frames, own), 2.0 * own) for at, heads in enumerate(self.heads)), strict=True
        )
        trunk = torch.tanh(self.norm(self.trunk(torch.cat(parts, 1)).float())) * self._weight
        return torch.cat((trunk, *(columns(each) for each in maps)), 1), list(maps)

    def of_floats(self, cells: Tensor, vector: Tensor) -> Tensor:
        """Return the features for float frames of the same shape: bytes have no gradient."""
        return self.seen(cells, vector)[0]

    def _planes(self, at: int, frames: Tensor, own: Tensor) -> Tensor:
        """Return a view's planes (B, frames · planes, S, S), the newest frame last and the earlier ones aligned.

        Grey levels stay 0..255, which bfloat16 has exactly; the first convolution divides by 255.
        """
        view, align, dtype = self.stack.views[at], self.alignments[at], arithmetic(frames)
        first = sum(each.planes for each in self.stack.views[:at])
        speed, wheel = own[:, 0] * SPEED_SCALE_MPS, own[:, 1]
        shown = frames[..., first * BLOCK**2 : (first + view.planes) * BLOCK**2]
        *before, newest = (_unfolded(each) for each in shown.unbind(1))
        with torch.autocast(frames.device.type, enabled=False):  # a place in half precision is off by a pixel
            moved = [
                align(each.float(), back, speed, wheel).to(dtype)
                for back, each in zip(range(len(before), 0, -1), before, strict=True)
            ]
        return torch.cat((*moved, newest.to(dtype)), 1).contiguous(memory_format=torch.channels_last)


def _unfolded(blocks: Tensor) -> Tensor:
    """Return a frame (B, planes, S, S) of its blocks (B, S / BLOCK, S / BLOCK, planes · BLOCK²)."""
    if blocks.dtype != torch.uint8:
        return functional.pixel_shuffle(blocks.permute(0, 3, 1, 2), BLOCK)
    # A block's row has four bytes, which one number moves at once: three times as fast.
    rows, across, _, numbers = blocks.shape
    of_rows = blocks.contiguous().view(torch.int32).reshape(rows, across, across, numbers // BLOCK**2, BLOCK)
    return of_rows.permute(0, 3, 1, 4, 2).reshape(rows, -1, across * BLOCK, across).view(torch.uint8)


def columns(maps: Maps) -> Tensor:
    """Return (B, ``MAPS`` · ``COLUMNS``): the largest of each column, and how what is there moves."""
    near, there = torch.sigmoid(maps.near).amax(2), torch.sigmoid(maps.there).amax(2)
    attention = torch.softmax(2.0 * maps.there, 2)[:, :, None]
    moves = (maps.moves.clamp(-2.0, 2.0) * attention).sum(3) * near[:, :, None]
    return functional.interpolate(torch.cat((near, there, moves.flatten(1, 2)), 1), COLUMNS).flatten(1)


def detection_loss(maps: list[Maps], views: tuple[View, ...], privileged: Tensor) -> Tensor:
    """Return the sum over rows of what the maps tell wrongly; ``privileged`` is (B, P), as ``env.privileged`` has it.

    Directions are taught by the nearest one in ten degrees; cells by the places and velocities of the nearest ones.
    """
    loss = torch.zeros((), device=privileged.device)
    for told, view in zip(maps, views, strict=True):
        side = told.near.shape[-1]
        nearest = torch.sigmoid(told.near).amax(2)
        for index, kind in enumerate(KINDS):
            wanted = privileged[:, kind.at] / kind.nearest
            for bearing, middle in enumerate(BEARINGS):
                if (shown := _columns_of(middle, view, side)) is not None:
                    off = nearest[:, index, shown].amax(1) - wanted[:, bearing]
                    loss = loss + NEAR / 2.0 * off.square().sum()
            is_there, velocity = cells(privileged, kind, view, side)
            rare = torch.where(is_there, RARE, 1.0)
            wrong = functional.binary_cross_entropy_with_logits(
                told.there[:, index], is_there.float(), rare, reduction="sum"
            )
            astray = ((told.moves[:, index] - velocity).square() * is_there[:, None]).sum()
            loss = loss + THERE * wrong / side**2 + MOVES * astray / kind.cells
    return loss


def cells(privileged: Tensor, kind: Kind, view: View, side: int) -> tuple[Tensor, Tensor]:
    """Return which cells show one of the nearest of a kind, (B, side, side), and how the nearest one there moves,
    (B, 2, side, side), to the right and ahead; 0 elsewhere.
    """
    listed = privileged[:, kind.listed].reshape(len(privileged), -1, 4)
    ahead, right = listed[..., 0] * LISTED_M, listed[..., 1] * LISTED_M
    away = torch.hypot(ahead, right)
    u, v, before = seen_at(view, ahead, right, kind.middle_m)
    there = (away > 0.0) & (away < kind.seen_m) & before & (u.abs() < 1.0) & (v.abs() < 1.1)
    scale = _focal(view) * side / 2.0 / away.clamp(min=1.5)
    at = torch.arange(side, device=away.device) + 0.5
    across = (at - ((u + 1.0) * side / 2.0)[..., None]).abs() < (kind.half_width_m * scale).clamp(min=0.5)[..., None]
    upright = (at - ((v + 1.0) * side / 2.0)[..., None]).abs() < (kind.half_height_m * scale).clamp(min=0.6)[..., None]
    covers = upright[..., :, None] & across[..., None, :] & there[..., None, None]
    nearest, which = torch.where(covers, away[..., None, None], torch.inf).min(1)
    moves = torch.stack([listed[..., axis].gather(1, which.flatten(1)).view_as(which) for axis in (3, 2)], 1)
    is_there = nearest < torch.inf
    return is_there, moves * is_there[:, None]


def seen_at(view: View, x: Tensor, y: Tensor, z: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return where a view shows points of the car's frame: -1 to 1 from the left, and from the top; and whether they
    are before the camera.
    """
    u, v, deep = (a * x + b * y + (c * z + d) for a, b, c, d in camera(view))
    return u / deep.clamp(min=0.4), v / deep.clamp(min=0.4), deep > 0.5


def camera(view: View) -> list[tuple[float, ...]]:
    """Return the matrix (3, 4) from points (x, y, z, 1) of the car's frame, metres, to a view's u · d, v · d and d; the
    picture is -1 to 1 in u and v, from the left and from the top, and d is the depth.
    """
    yaw, pitch, focal = math.radians(view.yaw_deg), math.radians(view.pitch_deg), _focal(view)
    axes = (
        (-focal * math.sin(yaw), focal * math.cos(yaw), 0.0),
        (focal * math.cos(yaw) * math.sin(pitch), focal * math.sin(yaw) * math.sin(pitch), -focal * math.cos(pitch)),
        (math.cos(yaw) * math.cos(pitch), math.sin(yaw) * math.cos(pitch), math.sin(pitch)),
    )
    return [(x, y, z, -x * view.x_m - z * view.z_m) for x, y, z in axes]


def _rays(view: View, side: int) -> Tensor:
    """Return the direction in the car's frame that each pixel looks in, (S, S, 3)."""
    at = (torch.arange(side) + 0.5) * 2.0 / side - 1.0
    v, u = torch.meshgrid(at, at, indexing="ij")
    yaw, pitch, focal = math.radians(view.yaw_deg), math.radians(view.pitch_deg), _focal(view)
    ahead, up = focal * math.cos(pitch) + v * math.sin(pitch), focal * math.sin(pitch) - v * math.cos(pitch)
    return torch.stack((ahead * math.cos(yaw) - u * math.sin(yaw), ahead * math.sin(yaw) + u * math.cos(yaw), up), -1)


def _focal(view: View) -> float:
    """Return the focal length, in halves of a picture's side."""
    return 1.0 / math.tan(math.radians(view.fov_deg) / 2.0)


def _columns_of(middle: int, view: View, side: int) -> slice | None:
    """Return the columns that show the ten degrees about a bearing; None if a view shows less than six of them."""
    half = view.fov_deg / 2.0
    low, high = max(middle - 5.0 - view.yaw_deg, -half), min(middle + 5.0 - view.yaw_deg, half)
    if high - low < 6.0:
        return None
    left, right = ((_focal(view) * math.tan(math.radians(each)) + 1.0) * side / 2.0 for each in (low, high))
    return slice(max(0, int(left)), min(side, math.ceil(right)))


def _convolution(
    inputs: int, outputs: int, size: int, stride: int = 1, padding: int = 0, dilation: int = 1
) -> nn.Conv2d:
    layer = nn.Conv2d(inputs, outputs, size, stride, padding, dilation)
    orthogonal(layer, 2**0.5)
    return layer
