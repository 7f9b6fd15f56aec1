"""Shapes of the networks, and the bytes that one update holds at its peak: arithmetic, nothing is allocated.

Owns the same knowledge of layers as ``td3.networks``, as numbers; a test holds the two together, name by name and
byte by byte. Imports no torch.
"""

from __future__ import annotations

from itertools import pairwise
from math import prod

from agent.config import NetworkConfig
from agent.td3.frames import ACTION, BLOCK, SIDE, STACK, VECTOR

FLOAT = 4  # bytes; parameters, gradients, moments and everything after the encoder
_PIXELS = STACK * SIDE * SIDE
_CONVOLVED = (20 * 20, 9 * 9, 7 * 7)  # cells after each convolution
_STRIP = STACK + 1  # frames of a sampled transition

Shapes = dict[str, tuple[int, ...]]


def parameter_shapes(network: NetworkConfig) -> Shapes:
    """Return the shape of each learned parameter under its name in ``TD3.online``."""
    first, second, third = network.channels
    features = network.features
    return {
        **_layer("encoder.conv1", first, STACK * BLOCK * BLOCK, 2, 2),
        **_layer("encoder.conv2", second, first, 4, 4),
        **_layer("encoder.conv3", third, second, 3, 3),
        **_layer("encoder.trunk", features, third * _CONVOLVED[-1]),
        **_norm("encoder.norm", features),
        **_mlp("actor.body", (features + VECTOR, *network.hidden, ACTION), norm=False),
        **_mlp("critic.q1", (features + VECTOR + ACTION, *network.hidden, 1), norm=True),
        **_mlp("critic.q2", (features + VECTOR + ACTION, *network.hidden, 1), norm=True),
    }


def size(shapes: Shapes, prefix: str = "") -> int:
    """Return the float32 bytes of the parameters whose names begin so."""
    return FLOAT * sum(prod(shape) for name, shape in shapes.items() if name.startswith(prefix))


def batch_bytes(batch: int) -> int:
    """Return the bytes of a sampled ``Batch``: frames in uint8, two vectors, action, reward, terminated."""
    return batch * (_STRIP * SIDE * SIDE + FLOAT * (2 * VECTOR + ACTION + 1 + 1))


def activation_bytes(network: NetworkConfig, batch: int, precision: str, cached_rows: int | None) -> int:
    """Return the most that an update holds at once beside parameters, gradients and the batch.

    The largest of three moments: the convolutions' outputs kept, and the heads at work; the way back through the first
    convolution, with the frames converted again; and the same through the second. The way forwards, and the target
    networks, which keep nothing, stay below these.

    Args:
        network: the widths.
        batch: transitions that go through the networks together.
        precision: of the encoder's arithmetic; other than float32 it takes 2 bytes a number.
        cached_rows: rows that go through the convolutions together (``td3.convolutions``); None for all.
    """
    element = FLOAT if precision == "float32" else 2
    rows = min(batch, cached_rows or batch)
    first, second, last = (channels * cells for channels, cells in zip(network.channels, _CONVOLVED, strict=True))
    kept = element * batch * (first + second + last)
    returning = kept + batch * (element * last + FLOAT * network.features)
    converted = _PIXELS + element * _PIXELS
    return max(
        kept + batch * _head_bytes(network, element) + _cast_trunk(network, element),
        returning + rows * (converted + element * first),
        returning + rows * element * (first + second),
    )


def _head_bytes(network: NetworkConfig, element: int) -> int:
    """Return a sample's bytes in trunk and twin critics, with two widest layers more for gradients under way."""
    trunk = (element + 2 * FLOAT + (FLOAT if element != FLOAT else 0)) * network.features
    inputs = network.features + VECTOR + ACTION
    critics = inputs + 2 * 2 * sum(network.hidden)  # before LayerNorm and after ReLU, twice
    return trunk + FLOAT * (critics + 2 * max(inputs, *network.hidden))


def _cast_trunk(network: NetworkConfig, element: int) -> int:
    """Return the bytes of the trunk's weight in a smaller format: kept until the way back has passed it."""
    return 0 if element == FLOAT else element * size(parameter_shapes(network), "encoder.trunk.") // FLOAT


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
