"""The sensors that the server computes: a module each, or a few that share something; all in this folder count.

A class here, entered for its blueprint, and the blueprint's row in ``blueprints.sensors`` are all that a new sensor
takes. ``sensor.other.lane_invasion`` has no class of its own, because the client computes it.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from carla_lite.actors.actor import Actor, enter

for _module in iter_modules(__path__, f"{__name__}."):
    import_module(_module.name)
enter(Actor, "sensor.other.lane_invasion")
