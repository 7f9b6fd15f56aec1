"""Losses that draw the actor's actions towards the expert's action, and towards the present steering and pedals.

Owns what these two know of the task: which numbers of an observation they use, and the weight of a row. The algorithms
know neither.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from carla_td3.td3.replay.frames import ACTION

STARTING, STANDING = 10.0, 0.1
"""Weight of a row in which the car is nearly standing (1 m/s) and the expert uses the throttle. For each of these rows
there are dozens before a red light, and an actor that isn't sure of a green light would brake, as their mean does.
"""
STEERING = 20.0
"""Weight of a steering error against a pedal error of the same size: its spread is less than a fourth."""
NEAR, PEDAL = 0.2, 3.5
"""A pedal error above ``NEAR`` counts by its size, not by its square (Huber's loss), times ``PEDAL``: one of 0.8 then
counts about as much as its square. The square's optimum is the mean of braking and throttle: an actor that isn't sure
whether to brake would do neither. That of the size is one of the two.
"""
CAREFUL, FAST = 4.0, 0.4
"""Weight of a pedal error where the expert brakes and the actor less, at 4 m/s (``FAST``) and above. There the actor
brakes where one in five such rows, or more, has a reason to brake. The weight falls to 1 at 1 m/s: with 4 at any
speed, and ``STARTING`` below that, the actor crept and braked in turns among people.
"""


def imitation_loss(acted: Tensor, vector: Tensor, privileged: Tensor, counts: Tensor | None = None) -> Tensor:
    """Return Σ w (``STEERING`` s² + c ``PEDAL`` h) of actions (B, 2): s is the steering error, h Huber's pedal loss.

    The last two of ``privileged`` (B, P) are the expert's action. w is ``STARTING`` where the expert starts, else 1; c
    is up to ``CAREFUL`` where it brakes harder than the actor in a moving car, else 1. ``counts`` (B,) multiplies w.
    """
    advised = privileged[:, -ACTION:]
    speed = vector[:, 0]
    starts = (speed < STANDING) & (advised[:, 1] > 0)
    weight = torch.where(starts, STARTING, 1.0)
    weight = weight if counts is None else weight * counts
    steer, pedal = (acted - advised).unbind(dim=1)
    driving = ((speed - STANDING) / (FAST - STANDING)).clamp(0.0, 1.0)
    careful = 1.0 + torch.where((advised[:, 1] < 0) & (pedal > 0), (CAREFUL - 1.0) * driving, 0.0)
    apart = functional.huber_loss(acted[:, 1], advised[:, 1], reduction="none", delta=NEAR)
    return (weight * (STEERING * steer.square() + careful * PEDAL * apart)).sum()


def smoothness_loss(acted: Tensor, vector: Tensor) -> Tensor:
    """Return Σ |a - u|² of actions a (B, 2); u, the last two of (B, 53), is the present steering and pedal."""
    return (acted - vector[:, -ACTION:]).square().sum()
