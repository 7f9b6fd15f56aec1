"""People on foot need a map that they can walk on."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import Any

import pytest

from agent.config import ConfigError
from agent.env.walkers import Walkers


def test_a_map_without_a_navigation_mesh_is_refused_in_a_sentence() -> None:
    person = SimpleNamespace(
        id="walker.pedestrian.0001",
        set_attribute=lambda *_: None,
        has_attribute=lambda _: False,
        get_attribute=lambda _: SimpleNamespace(recommended_values=("0.0", "1.4", "2.8")),
    )
    world = SimpleNamespace(
        set_pedestrians_cross_factor=lambda _: None,
        set_pedestrians_seed=lambda _: None,
        get_snapshot=lambda: None,
        get_random_location_from_navigation=lambda: None,
        get_blueprint_library=lambda: SimpleNamespace(filter=lambda _: [person]),
    )
    session: Any = SimpleNamespace(
        world=world,
        answered=contextlib.nullcontext,
        destroy=lambda _: None,
        map=SimpleNamespace(name="Carla/Maps/OpenDriveMap"),
        address="127.0.0.1:2000",
    )
    with pytest.raises(ConfigError, match=r"OpenDriveMap of the simulator at 127.0.0.1:2000 has no navigation mesh"):
        Walkers(session, 0.5, seed=1).resize(3)
