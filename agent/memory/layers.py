"""Shapes of the networks and of a batch, and their bytes: arithmetic, nothing is allocated.

Owns the same knowledge of layers as ``td3.networks``, as numbers; a test holds the two together, name by name and
byte by byte. Imports no torch.
"""

from __future__ import annotations

from itertools import pairwise
from math import prod

from agent.config import NetworkConfig
from agent.td3.frames import ACTION, BLOCK, SIDE, STACK, VECTOR, convolved_sides

FLOAT = 4  # bytes; parameters, gradients, moments and everything after the encoder
KERNELS = (2 * 2, 4 * 4, 3 * 3)
_STRIP = STACK + 1  # frames of a sampled transition

Shapes = dict[str, tuple[int, ...]]


def convolved(side: int = SIDE) -> tuple[int, ...]:
    """Return the cells after each convolution."""
    return tuple(across * across for across in convolved_sides(side))


def parameter_shapes(network: NetworkConfig, side: int = SIDE) -> Shapes:
    """Return the shape of each learned parameter under its name in ``TD3.online``."""
    first, second, third = network.channels
    features = network.features
    return {
        **_layer("encoder.conv1", first, STACK * BLOCK * BLOCK, 2, 2),
        **_layer("encoder.conv2", second, first, 4, 4),
        **_layer("encoder.conv3", third, second, 3, 3),
        **_layer("encoder.trunk", features, third * convolved(side)[-1]),
        **_norm("encoder.norm", features),
        **_mlp("actor.body", (features + VECTOR, *network.hidden, ACTION), norm=False),
        **_mlp("critic.q1", (features + VECTOR + ACTION, *network.hidden, 1), norm=True),
        **_mlp("critic.q2", (features + VECTOR + ACTION, *network.hidden, 1), norm=True),
    }


def size(shapes: Shapes, prefix: str = "") -> int:
    """Return the float32 bytes of the parameters whose names begin so."""
    return FLOAT * sum(prod(shape) for name, shape in shapes.items() if name.startswith(prefix))


def page_locked(shapes: Shapes) -> int:
    """Return the bytes of copies that a GPU reads from the host: PyTorch rounds each block up to a power of two."""
    return sum(1 << (FLOAT * prod(shape) - 1).bit_length() for shape in shapes.values())


def batch_bytes(batch: int, side: int = SIDE) -> int:
    """Return the bytes of a sampled ``Batch``: frames in uint8, two vectors, action, reward, terminated."""
    return batch * (_STRIP * side * side + FLOAT * (2 * VECTOR + ACTION + 1 + 1))


def _layer(name: str, outputs: int, *inputs: int) -> Shapes:
    return {f"{name}.weight": (outputs, *inputs), f"{name}.bias": (outputs,)}


def _norm(name: str, width: int) -> Shapes:
    return {f"{name}.weight": (width,), f"{name}.bias": (width,)}


def _mlp(name: str, sizes: tuple[int, ...], norm: bool) -> Shapes:
    """Return the layers under their places in ``nn.Sequential``, where ReLU and LayerNorm have places, too."""
    stride = 3 if norm else 2
    shapes: Shapes = {}
    for index, (inputs, outputs) in enumerate(pairwise(sizes)):
        shapes |= _layer(f"{name}.{stride * index}", outputs, inputs)
        if norm and index < len(sizes) - 2:
            shapes |= _norm(f"{name}.{stride * index + 1}", outputs)
    return shapes
