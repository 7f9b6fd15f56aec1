"""The sensors that the server computes, one module for each or for a few that share code; all modules here are loaded.

A new sensor needs only a class here, registered for its blueprint, and the blueprint's row in ``blueprints.sensors``.
``sensor.other.lane_invasion`` has no class, because the client computes it.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from carla_lite.actors.actor import Actor, register

for _module in iter_modules(__path__, f"{__name__}."):
    import_module(_module.name)
register(Actor, "sensor.other.lane_invasion")
