"""``VectorDriving-v0``: the driving environment with a row of numbers and no picture as its observation.

For scripts that take nothing else, as CleanRL's: ``--env-id vector_driving:VectorDriving-v0``, with this folder in
PYTHONPATH.
"""

from __future__ import annotations

from typing import Any

import gymnasium
from gymnasium.wrappers import FilterObservation, FlattenObservation

import carla_td3.env  # noqa: F401 (registers the environment)


def make(**options: Any) -> gymnasium.Env[Any, Any]:
    """Return the environment; ``options`` as those of ``CarlaTD3/Driving-v0``."""
    return FlattenObservation(FilterObservation(gymnasium.make("CarlaTD3/Driving-v0", **options), ["vector"]))


gymnasium.register(id="VectorDriving-v0", entry_point=make)
