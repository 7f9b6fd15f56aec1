"""Random numbers as a function of seed, purpose and counter, so that no generator state can be lost.

A run that resumes at step n draws the same numbers as an uninterrupted one, and a killed collector loses nothing. Owns
the list of purposes: two with the same number would draw the same. (Target noise is the exception: torch's generator
draws it, and the checkpoint keeps its state.)
"""

from __future__ import annotations

import zlib
from enum import IntEnum

import numpy as np


class Purpose(IntEnum):
    """Purpose of the numbers, with the meaning of the counter in brackets."""

    WARM_UP = 1
    """Biased random driving [step]."""
    EXPLORATION = 2
    """Noise on the actor's action [step]."""
    EPISODE = 3
    """Route and start of an episode [step at its beginning]."""
    SAMPLING = 4
    """Rows of a batch [update]."""
    EVALUATION = 5
    """Routes of evaluations [0: the same every time]; traffic of a route, and its driver's numbers [of its name]."""
    DEMONSTRATIONS = 6
    """Rows of a batch from demonstrations [update]."""
    ERASING = 7
    """Erased rectangles of a batch's frames [update]."""
    COLLECTOR = 8
    """Seed of a further collector [its number]."""
    RESET = 9
    """New weights of a learner that is reset [update]."""
    HALTS = 10
    """Halts of a drive without a cause [step at its beginning]."""


def generator(seed: int, purpose: Purpose, counter: int) -> np.random.Generator:
    """Return the generator of one draw."""
    return np.random.default_rng([seed, purpose, counter])


def derived_seed(seed: int, purpose: Purpose, counter: int) -> int:
    """Return a 32-bit seed for code that needs an integer."""
    return int(np.random.SeedSequence([seed, purpose, counter]).generate_state(1)[0])


def counter(name: str) -> int:
    """Return the counter that stands for a name."""
    return zlib.crc32(name.encode())
