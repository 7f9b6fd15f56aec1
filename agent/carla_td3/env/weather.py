"""The simulator's weather."""

from __future__ import annotations

import carla

from carla_td3.env.session import Session


def set_preset(session: Session, name: str) -> None:
    """Set one of CARLA's presets by its name in ``carla_td3.config.WEATHERS``; the next tick shows it.

    Raises:
        SimulatorLost: the simulator doesn't answer.
    """
    with session.answered():
        session.world.set_weather(getattr(carla.WeatherParameters, name))
