"""Losses that draw the actor's actions towards the expert's action, and towards the present steering and pedals.

Owns what these two know of the task: which numbers of an observation they use, and the weight of a row. The algorithms
know neither.
"""

from __future__ import annotations

import torch
from torch import Tensor

from carla_td3.td3.replay.frames import ACTION

STARTING, STANDING = 10.0, 0.1
"""Weight of a row in which the car is nearly standing (1 m/s) and the expert uses the throttle. For each of these rows
there are dozens before a red light, and an actor that isn't sure of a green light would brake, as their mean does.
"""
STEERING = 20.0
"""Weight of a steering error against a pedal error of the same size: its spread is less than a fourth."""
CAREFUL = 4.0
"""Weight of a pedal above the expert's in a moving car. With 1, an actor that isn't sure of a person learns the mean of
braking and throttle, and drives on.
"""


def imitation_loss(acted: Tensor, vector: Tensor, privileged: Tensor, counts: Tensor | None = None) -> Tensor:
    """Return Σ w |a - p_a|² of actions a (B, 2); p_a, the last two of (B, P), is the expert's action.

    w is ``STARTING`` where the expert starts, else 1; the square of the steering counts ``STEERING`` times, that of a
    pedal above the expert's in a moving car ``CAREFUL`` times. ``counts`` (B,), if given, multiplies w.
    """
    advised = privileged[:, -ACTION:]
    stands = vector[:, 0] < STANDING
    starts = stands & (advised[:, 1] > 0)
    weight = torch.where(starts, STARTING, 1.0)
    weight = weight if counts is None else weight * counts
    steer, pedal = (acted - advised).unbind(dim=1)
    careful = torch.where(~stands & (pedal > 0), CAREFUL, 1.0)
    return (weight * (STEERING * steer.square() + careful * pedal.square())).sum()


def smoothness_loss(acted: Tensor, vector: Tensor) -> Tensor:
    """Return Σ |a - u|² of actions a (B, 2); u, the last two of (B, 53), is the present steering and pedal."""
    return (acted - vector[:, -ACTION:]).square().sum()
