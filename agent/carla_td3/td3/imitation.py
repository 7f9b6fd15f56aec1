"""What the driver is drawn to beside its critics' word: what the expert would do, and where wheel and pedal are.

Owns what these two know of the task: which numbers of an observation they are, and what a row weighs. The algorithms
know neither.
"""

from __future__ import annotations

import torch
from torch import Tensor

from carla_td3.td3.replay.frames import ACTION

STARTING, STANDING = 10.0, 0.1
"""What a row weighs in which the car is as slow as that (1 m/s) and the expert has the throttle: dozens of rows before
a red light go with each of these, and an actor that isn't sure of a green stays at the brake by the mean of both."""
STEERING = 20.0
"""What an error of the steering weighs beside one of the pedal that is as large: its spread is less than a fourth."""


def imitation_loss(acted: Tensor, vector: Tensor, privileged: Tensor) -> Tensor:
    """Return Σ w |a - p_a|² of actions a (B, 2), p_a the last two of (B, P): what the expert would do.

    w is ``STARTING`` where the expert starts, else 1; the steering's square counts ``STEERING`` times.
    """
    advised = privileged[:, -ACTION:]
    starts = (vector[:, 0] < STANDING) & (advised[:, 1] > 0)
    weight = torch.where(starts, STARTING, 1.0)
    off = acted - advised
    return (weight * (STEERING * off[:, 0].square() + off[:, 1].square())).sum()


def smoothness_loss(acted: Tensor, vector: Tensor) -> Tensor:
    """Return Σ |a - u|² of actions a (B, 2), u the last two of (B, 53): where wheel and pedal are."""
    return (acted - vector[:, -ACTION:]).square().sum()
