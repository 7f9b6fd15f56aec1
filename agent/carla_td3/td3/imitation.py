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


def imitation_loss(acted: Tensor, vector: Tensor, privileged: Tensor, counts: Tensor | None = None) -> Tensor:
    """Return Σ w |a - p_a|² of actions a (B, 2); p_a, the last two of (B, P), is the expert's action.

    w is ``STARTING`` where the expert starts, else 1; the square of the steering counts ``STEERING`` times.
    ``counts`` (B,), if given, multiplies it.
    """
    advised = privileged[:, -ACTION:]
    starts = (vector[:, 0] < STANDING) & (advised[:, 1] > 0)
    weight = torch.where(starts, STARTING, 1.0)
    weight = weight if counts is None else weight * counts
    off = acted - advised
    return (weight * (STEERING * off[:, 0].square() + off[:, 1].square())).sum()


def smoothness_loss(acted: Tensor, vector: Tensor) -> Tensor:
    """Return Σ |a - u|² of actions a (B, 2); u, the last two of (B, 53), is the present steering and pedal."""
    return (acted - vector[:, -ACTION:]).square().sum()
