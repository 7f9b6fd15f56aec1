"""Other cars, driven by a Traffic Manager in this very process (it steps only where ``world.tick`` is called).

Owns the Traffic Manager and its cars, all named ``td3-traffic``. Any time-out of a Traffic Manager aborts the whole
process (protocol section 5.5), which is why only a process that may die uses this.
"""

from __future__ import annotations

import math
import socket
from typing import Any

import numpy as np

from agent.env.session import ROLE_PREFIX, Session

ROLE = f"{ROLE_PREFIX}traffic"
CLEARANCE_M = 12.0
MOST_SEED = 2**31 - 1


class Traffic:
    """``count`` cars on autopilot.

    Args:
        session: connected, made with ``traffic=True`` (its ticks are spaced).
        keep_clear: (x, y) that stays free of new cars.
    """

    def __init__(self, session: Session, count: int, rng: np.random.Generator, keep_clear: tuple[float, float]) -> None:
        self._session = session
        # A port that a dead collector used takes 4 s to come back, a fresh one none (facts, section 5).
        self._manager = session.client.get_trafficmanager(_free_port())
        self._manager.set_synchronous_mode(True)
        self._manager.set_random_device_seed(int(rng.integers(MOST_SEED)))
        self._spawns = session.map.get_spawn_points()
        self.cars = self._spawn(count, rng, keep_clear)

    def clear(self, x: float, y: float) -> None:
        """Move cars that stand within ``CLEARANCE_M`` of (x, y) to free spawn points, the farthest first."""
        snapshot = self._session.world.get_snapshot()
        here = {car.id: snapshot.find(car.id).get_transform().location for car in self.cars if snapshot.find(car.id)}
        blocking = [car for car in self.cars if car.id in here and _gap(here[car.id], x, y) < CLEARANCE_M]
        if not blocking:
            return
        taken = list(here.values())
        for spawn in sorted(self._spawns, key=lambda spawn: -_gap(spawn.location, x, y)):
            if blocking and all(_gap(spawn.location, other.x, other.y) >= CLEARANCE_M for other in taken):
                blocking.pop().set_transform(spawn)
                taken.append(spawn.location)

    def destroy(self) -> None:
        """End the Traffic Manager, then destroy its cars.

        Call it before any other vehicle goes: the manager's last step asks the simulator about every vehicle that it
        has seen, and a refusal there aborts the process.
        """
        self._manager.shut_down()
        self._session.destroy(self.cars)
        self.cars = []

    def _spawn(self, count: int, rng: np.random.Generator, keep_clear: tuple[float, float]) -> list[Any]:
        library = self._session.world.get_blueprint_library().filter("vehicle.*")
        # As CARLA's generate_traffic.py with --safe: trucks and buses get stuck in narrow turns and block a route for
        # good, and two-wheelers fall.
        blueprints = sorted((b for b in library if _is_car(b)), key=lambda blueprint: str(blueprint.id))
        cars: list[Any] = []
        for index in rng.permutation(len(self._spawns)):
            if len(cars) == count:
                break
            spawn = self._spawns[index]
            blueprint = blueprints[rng.integers(len(blueprints))]
            blueprint.set_attribute("role_name", ROLE)
            if _gap(spawn.location, *keep_clear) >= CLEARANCE_M:
                car = self._session.world.try_spawn_actor(blueprint, spawn)
                if car is not None:
                    car.set_autopilot(True, self._manager.get_port())
                    cars.append(car)
        return cars


def _gap(location: Any, x: float, y: float) -> float:
    return math.hypot(location.x - x, location.y - y)


def _is_car(blueprint: Any) -> bool:
    return bool(blueprint.has_attribute("base_type") and blueprint.get_attribute("base_type") == "car")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])
