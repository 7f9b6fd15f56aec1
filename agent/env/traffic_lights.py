"""The map's traffic lights: whether they change, and how the agent's car stands to them.

Owns what each drive finds them at. Sees a light only as the car's own record shows it, as a Traffic Manager does, and
knows nothing of what an infraction costs.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

import carla

from agent.env.session import Session


class LightAhead(Enum):
    """What stands before the car, where a vehicle has to stop for a light."""

    NONE = "none"
    OPEN = "open"
    RED = "red"


def prepare(session: Session, changing: bool) -> None:
    """Let all lights begin their cycles, or (not ``changing``) be green for as long as nobody resets them.

    Call it after a Traffic Manager has started: that resets them all.

    Raises:
        SimulatorLost: the simulator doesn't answer.
    """
    with session.answered():
        lights = list(session.world.get_actors().filter("traffic.traffic_light"))
        if not lights:
            return
        session.world.freeze_all_traffic_lights(not changing)
        if changing:
            session.world.reset_all_traffic_lights()
        else:
            for light in lights:
                light.set_state(carla.TrafficLightState.Green)


def ahead(car: Any) -> LightAhead:
    """Return what the newest frame shows of a vehicle."""
    if not car.is_at_traffic_light():
        return LightAhead.NONE
    red = car.get_traffic_light_state() == carla.TrafficLightState.Red
    return LightAhead.RED if red else LightAhead.OPEN
