"""Encoder, actor and twin critics, and the policy that the collector drives with.

Owns shapes, initialisation and the forward passes. Knows no optimizer, no loss and no file.
The widths default to those of NatureCNN, as in Stable-Baselines3's CnnPolicy.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from carla_td3.config import NetworkConfig
from carla_td3.td3.detector import Detector, Maps
from carla_td3.td3.kernels.colour import over_red_green_blue
from carla_td3.td3.kernels.convolutions import convolved
from carla_td3.td3.kernels.linear import Linear
from carla_td3.td3.layers import arithmetic, orthogonal
from carla_td3.td3.replay.frames import ACTION, DEFAULT, LISTED, VECTOR, FrameStack, convolved_sides, known

AUXILIARY_HIDDEN = 64
"""Hidden width of the auxiliary head: small, so that the features themselves must carry the information."""

_RELU_GAIN = 2**0.5
# Heading errors and near route points are hundredths. Adam's steps know no scale, so these would be learned last. On a
# path-following task (bicycle model, this reward, 5 000 steps, 3 seeds) 100 % of the routes were completed with a gain
# of 5, and 53 % with 1.
_VECTOR_GAIN = 5.0
# The privileged numbers must not be learned last either: a light's colour is one number of 70. With a fifth of this
# gain, a driver still ran six of ten lights after 17 000 updates of the preset `traffic`.
_TOLD_GAIN = 5.0


class Encoder(nn.Module):
    """NatureCNN on space-to-depth frames, then Linear → LayerNorm → tanh (the trunk of DrQ-v2, Yarats et al. 2021).

    The trunk bounds the image features, so that they neither dominate the vector nor diverge while the critic's loss
    trains the encoder.
    """

    def __init__(self, config: NetworkConfig, stack: FrameStack = DEFAULT) -> None:
        super().__init__()
        first, second, third = config.channels
        self._stack = stack
        self.conv1 = nn.Conv2d(stack.channels, first, kernel_size=2)  # 8×8 stride 4 over all planes, exactly
        self.conv2 = nn.Conv2d(first, second, kernel_size=4, stride=2)
        self.conv3 = nn.Conv2d(second, third, kernel_size=3)
        self.trunk = Linear(third * convolved_sides(stack.side)[-1] ** 2, config.features)
        self.norm = nn.LayerNorm(config.features)
        for layer in (self.conv1, self.conv2, self.conv3):
            orthogonal(layer, _RELU_GAIN)
        orthogonal(self.trunk, 1.0)
        # With 1, all features together weigh as much as the vector: 512 untrained features would drown the steering
        # inputs.
        self._weight = config.picture_weight * (VECTOR / config.features) ** 0.5
        for layer in (self.conv1, self.conv2, self.conv3):
            layer.weight.data = layer.weight.data.contiguous(memory_format=torch.channels_last)

    def seen(self, frames: Tensor, vector: Tensor) -> tuple[Tensor, list[Maps]]:  # noqa: ARG002 (a detector reads it)
        """Return the features, and no maps."""
        return self(frames), []

    def forward(self, frames: Tensor) -> Tensor:
        """Return features (B, features) float32 of frames (B, 4, 21, 21, 16 a plane) uint8."""
        # Pixels stay 0..255 (exact in bfloat16, too). Dividing 8 thousand weights by 255 replaces dividing 7 million
        # pixels. Not folded into the stored weights: Adam's steps would be 255 times too long for them.
        weights = [self.over_pixels() * (1 / 255), self.conv2.weight, self.conv3.weight]
        biases = [layer.bias for layer in (self.conv1, self.conv2, self.conv3) if layer.bias is not None]
        return self.bounded(convolved(frames, weights, biases, arithmetic(frames)))

    def of_floats(self, cells: Tensor, vector: Tensor) -> Tensor:  # noqa: ARG002 (a detector reads it)
        """Return the features for float frames of the same shape: bytes have no gradient."""
        x = cells.permute(0, 2, 3, 1, 4).flatten(3).permute(0, 3, 1, 2)
        x = functional.conv2d(x, self.over_pixels() / 255, self.conv1.bias).relu()
        x = self.conv3(self.conv2(x).relu()).relu()
        return self.bounded(x.permute(0, 2, 3, 1).flatten(1))

    def over_pixels(self) -> Tensor:
        """Return the first convolution's weights (channels, planes, 2, 2) over grey levels, or red, green and blue."""
        learned = self.conv1.weight
        if not self._stack.colour:
            return learned
        outputs, _, *cells = learned.shape
        planes = list(learned.reshape(outputs, self._stack.frames, self._stack.planes, -1, *cells).unbind(2))
        for at in self._stack.colour:
            planes[at : at + 3] = over_red_green_blue(*planes[at : at + 3])
        return torch.stack(planes, 2).flatten(1, 3).contiguous(memory_format=torch.channels_last)

    def bounded(self, convolutions: Tensor) -> Tensor:
        """Return the features (B, features) float32 for the convolutions' output (B, cells × channels)."""
        bounded: Tensor = torch.tanh(self.norm(self.trunk(convolutions).float())) * self._weight
        return bounded


class Actor(nn.Module):
    """π: features and vector → action in [-1, 1].

    The outputs are normalised before the tanh (Wang et al. 2020, "Striving for Simplicity and Performance in Off-Policy
    DRL", section 4): where their mean size exceeds 1 they are divided by it. A young critic otherwise drives them into
    the tanh's flat ends, where hardly a gradient leads back: in a one-step task two of three seeds still sat there
    after 1 000 updates. One action alone can reach ±0.96, both together ±0.76; exploration noise adds to that.
    """

    def __init__(self, config: NetworkConfig, stack: FrameStack = DEFAULT) -> None:
        super().__init__()
        self.body = nn.Sequential(*_layers((known(config, stack) + VECTOR, *config.hidden, ACTION), norm=False))
        # Near zero everywhere at first: a saturated tanh has no gradient to return by.
        orthogonal(self.body[-1], 0.01)

    def forward(self, features: Tensor, vector: Tensor) -> Tensor:
        """Return actions (B, 2); pass detached features, because only the critic trains the encoder."""
        mu = self.body(joined(features, vector))
        return torch.tanh(mu / mu.abs().mean(dim=1, keepdim=True).clamp(min=1))


class Critic(nn.Module):
    """Twin Q functions: features, vector and action → (Q₁, Q₂).

    LayerNorm after each hidden layer bounds how far Q can extrapolate to actions the replay does not hold
    (Ball et al. 2023, RLPD, section 4.2): without it Q(s, π(s)) can explode while Q on replayed actions looks fine.
    """

    def __init__(self, config: NetworkConfig, stack: FrameStack = DEFAULT, seen: int = 0) -> None:
        """``seen``: number of privileged numbers that it reads besides the observation (Pinto et al. 2018)."""
        super().__init__()
        self.seen = seen
        sizes = (known(config, stack) + VECTOR + ACTION + seen, *config.hidden, 1)
        self.q1 = _QFunction(*_layers(sizes, norm=True))
        self.q2 = _QFunction(*_layers(sizes, norm=True))

    def forward(self, features: Tensor, vector: Tensor, action: Tensor, privileged: Tensor) -> tuple[Tensor, Tensor]:
        """Return Q₁ and Q₂, each (B,); the last ``seen`` of ``privileged`` (B, P) are read."""
        x = self.joined(features, vector, action, privileged)
        return self.q1(x), self.q2(x)

    def joined(self, features: Tensor, vector: Tensor, action: Tensor, privileged: Tensor) -> Tensor:
        """Return the input of Q₁ and Q₂, (B, numbers)."""
        return joined(features, vector, action, privileged[:, privileged.shape[1] - self.seen :] * _TOLD_GAIN)


class _QFunction(nn.Sequential):
    def forward(self, x: Tensor) -> Tensor:
        """Return Q (B,) for the output of ``Critic.joined``."""
        q: Tensor = super().forward(x).squeeze(1)  # type: ignore[no-untyped-call]
        return q


class Policy(nn.Module):
    """Encoder and actor together: everything that driving needs.

    Attributes:
        encoder: exists only if the policy sees pictures.
        precision: of the encoder: float32, bfloat16 or float16.
    """

    encoder: Encoder | Detector

    def __init__(self, config: NetworkConfig, stack: FrameStack = DEFAULT) -> None:
        super().__init__()
        self.stack, self.sees, self._known = stack, config.sees, known(config, stack)
        if self.sees == "image":
            self.encoder = (Detector if config.encoder == "detector" else Encoder)(config, stack)
        self.actor = Actor(config, stack)
        self.precision = "float32"

    def features(self, frames: Tensor, vector: Tensor, privileged: Tensor) -> Tensor:
        """Return f(s), (B, known) float32; see ``detected``."""
        return self.detected(frames, vector, privileged)[0]

    def detected(self, frames: Tensor, vector: Tensor, privileged: Tensor) -> tuple[Tensor, list[Maps]]:
        """Return f(s), (B, known) float32, and the maps of a detector.

        Args:
            frames: (B, 4, 21, 21, 16 a plane) uint8; ignored without an encoder.
            vector: (B, 53).
            privileged: (B, P); only read if the network sees privileged numbers.
        """
        if self.sees != "image":
            return privileged[:, LISTED : LISTED + self._known] * _TOLD_GAIN, []
        dtype = torch.float16 if self.precision == "float16" else torch.bfloat16
        with torch.autocast(frames.device.type, dtype=dtype, enabled=self.precision != "float32"):
            return self.encoder.seen(frames, vector)

    @torch.inference_mode()
    def act(
        self, image: NDArray[np.uint8], vector: NDArray[np.float32], privileged: NDArray[np.float32] | None = None
    ) -> NDArray[np.float32]:
        """Return the deterministic action (2,) float32 for one observation: image (C, S, S), vector (53,).

        Args:
            privileged: (P,), only read by a policy that is trained to see it.
        """
        place = next(self.actor.parameters()).device
        frames = self.stack.cells(image) if self.sees == "image" else image
        told = np.empty(0, np.float32) if privileged is None else privileged
        seen, read, told_row = (torch.from_numpy(each).unsqueeze(0).to(place) for each in (frames, vector, told))
        result: NDArray[np.float32] = self.actor(self.features(seen, read, told_row), read).squeeze(0).cpu().numpy()
        return result


class Networks(Policy):
    """The policy and the critics, once learned and once as targets; and a head used only for learning.

    Attributes:
        auxiliary: image features → privileged numbers, a head that trains the encoder to find them; None without.
    """

    def __init__(self, config: NetworkConfig, stack: FrameStack, seen: int = 0, predicted: int = 0) -> None:
        super().__init__(config, stack)
        self.critic = Critic(config, stack, seen)
        head = _layers((known(config, stack), AUXILIARY_HIDDEN, predicted), norm=False) if predicted else []
        self.auxiliary = nn.Sequential(*head) if predicted else None


@contextlib.contextmanager
def frozen(module: nn.Module) -> Iterator[None]:
    """Let gradients pass through a module without keeping its own: ``backward(inputs=…)`` drops them."""
    module.requires_grad_(False)
    try:
        yield
    finally:
        module.requires_grad_(True)


def joined(features: Tensor, vector: Tensor, *beside: Tensor) -> Tensor:
    """Return the inputs of actor and critics, (B, numbers)."""
    return torch.cat((features, vector * _VECTOR_GAIN, *beside), dim=1)


def _layers(sizes: Sequence[int], norm: bool) -> list[nn.Module]:
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(sizes[:-1]):
        hidden = Linear(inputs, outputs)
        orthogonal(hidden, _RELU_GAIN)
        layers += [hidden, nn.LayerNorm(outputs), nn.ReLU()] if norm else [hidden, nn.ReLU()]
    output = Linear(sizes[-2], sizes[-1])
    orthogonal(output, 1.0)
    return [*layers, output]
