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


def activation_bytes(network: NetworkConfig, batch: int, precision: str) -> int:
    """Return the most that an update holds at once beside parameters, gradients and the batch.

    The largest of: the frames stacked and converted; the encoder's and the heads' saved outputs; and, on the way back,
    the gradients before and after each convolution's ReLU with everything below still saved. The target networks'
    forward pass keeps nothing and stays below these.

    Args:
        network: the widths.
        batch: transitions that go through the networks together.
        precision: of the encoder's arithmetic; other than float32 it takes 2 bytes a number.
    """
    element = FLOAT if precision == "float32" else 2
    outputs = [_PIXELS, *(channels * cells for channels, cells in zip(network.channels, _CONVOLVED, strict=True))]
    loading = _PIXELS + element * _PIXELS
    returning = [
        element * (sum(outputs[: layer + 1]) + 2 * outputs[layer]) + FLOAT * network.features
        for layer in range(1, len(outputs))
    ]
    cast_weights = 0 if element == FLOAT else element * size(parameter_shapes(network), "encoder.") // FLOAT
    heads = batch * (element * sum(outputs) + _head_bytes(network, element)) + cast_weights
    return max(batch * loading, batch * max(returning), heads)


def _head_bytes(network: NetworkConfig, element: int) -> int:
    """Return a sample's bytes in trunk and twin critics, with two widest layers more for gradients under way."""
    trunk = (element + 2 * FLOAT + (FLOAT if element != FLOAT else 0)) * network.features
    inputs = network.features + VECTOR + ACTION
    critics = inputs + 2 * 2 * sum(network.hidden)  # before LayerNorm and after ReLU, twice
    return trunk + FLOAT * (critics + 2 * max(inputs, *network.hidden))


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
