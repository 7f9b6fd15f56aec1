"""Random numbers as a function of seed, purpose and counter, so that there is no generator state to lose.

A run that resumes at step n draws what it would have drawn; a collector that was killed takes nothing with it.
Owns the list of purposes: two that shared a number would draw the same. (Target noise is the exception: torch's
generator draws it, and the checkpoint keeps that one's state.)
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np


class Purpose(IntEnum):
    """What the numbers are for; the counter that goes with it in brackets."""

    WARM_UP = 1
    """Biased random driving [step]."""
    EXPLORATION = 2
    """Noise on the actor's action [step]."""
    EPISODE = 3
    """Route and start of an episode [step at its beginning]."""
    SAMPLING = 4
    """Rows of a batch [update]."""
    EVALUATION = 5
    """Random baseline and routes of evaluations [0: the same every time]; who is met on a route [its name's CRC]."""
    DEMONSTRATIONS = 6
    """Rows of a batch that others drove [update]."""
    ERASING = 7
    """What is erased of a batch's frames [update]."""
    COLLECTOR = 8
    """The seed of all that a further collector draws [its number]."""
    RESET = 9
    """Weights of a learner that begins anew [update]."""
    HALTS = 10
    """When a drive is halted for no reason [step at its beginning]."""


def generator(seed: int, purpose: Purpose, counter: int) -> np.random.Generator:
    """Return the generator of one draw."""
    return np.random.default_rng([seed, purpose, counter])


def derived_seed(seed: int, purpose: Purpose, counter: int) -> int:
    """Return a 32-bit seed for something that wants an integer."""
    return int(np.random.SeedSequence([seed, purpose, counter]).generate_state(1)[0])
