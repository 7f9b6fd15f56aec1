"""Other cars, driven by a Traffic Manager in this process (it steps only where ``world.tick`` is called).

Owns the Traffic Manager and its cars, all with the role name ``td3-traffic``. Any time-out of a Traffic Manager aborts
the whole process (protocol section 5.5), so only a process that may die uses this.
"""

from __future__ import annotations

import contextlib
import math
import socket
import threading
from typing import Any

import msgpack
import numpy as np

from carla_td3.config import TrafficConfig
from carla_td3.env.session import ROLE_PREFIX, Session

ROLE = f"{ROLE_PREFIX}traffic"
CLEARANCE_M = 12.0
MAX_SEED = 2**31 - 1
LOOK_S = 1.0
"""Seconds between two looks at the tick. A round of the manager takes milliseconds."""
ANSWER_S = 2.0


class Traffic:
    """Cars on autopilot, none until ``resize``.

    Args:
        session: connected, made with ``traffic=True`` (its ticks are spaced).
        config: how far below the speed limit they drive, and how near to a drive's start they begin it.
        seed: for the cars' places, models and ways.
    """

    def __init__(self, session: Session, config: TrafficConfig, seed: int) -> None:
        self._session = session
        self._within_m = config.within_m
        # A port that a dead collector used takes 4 s to become free again; a new port is free at once (facts, section
        # 5).
        self._manager = session.client.get_trafficmanager(_free_port())
        self._manager.set_synchronous_mode(True)
        self._over = threading.Event()
        threading.Thread(target=self._keep_awake, name="traffic-alarm", daemon=True).start()
        # Its first round may still run in its thread: it forgets a car that the snapshot before it lacks, and the car
        # would never move. After a tick that round is over (protocol, section 5.8).
        session.tick()
        if config.slower_percent:
            self._manager.global_percentage_speed_difference(config.slower_percent)
        self._spawns = session.map.get_spawn_points()
        self.cars: list[Any] = []
        self._wanted = 0
        self.reseed(seed)

    def reseed(self, seed: int) -> None:
        """Make the cars spawned from now on a function of this seed."""
        self._rng = np.random.default_rng(seed)
        self._manager.set_random_device_seed(int(self._rng.integers(MAX_SEED)))

    def resize(self, count: int, start: tuple[float, float]) -> None:
        """Remove the last cars, or add some, none of them at the start (x, y); fewer are added if the map is full.

        Cars at the start, or too far from it, move to free spawn points.
        """
        self._clear_start(start)
        if count == self._wanted and len(self._living()) == len(self.cars):
            return  # also if the map is full: looking for room each time costs a call per place
        self._remove_from(count)
        self.cars += self._spawn(count - len(self.cars), start)
        self._wanted = count

    def empty(self) -> None:
        """Remove every car; the Traffic Manager stays."""
        self._remove_from(0)
        self._wanted = 0

    def _clear_start(self, start: tuple[float, float]) -> None:
        here = {i: car.get_transform().location for i, car in self._session.seen(self.cars).items()}
        misplaced = [car for car in self.cars if car.id in here and not self._may_be(here[car.id], start)]
        if not misplaced:
            return
        taken = list(here.values())
        for spawn in self._by_preference(start):
            if misplaced and all(_gap(spawn.location, other.x, other.y) >= CLEARANCE_M for other in taken):
                misplaced.pop().set_transform(spawn)
                taken.append(spawn.location)

    def mean_speed_mps(self) -> float | None:
        """Return the cars' mean speed in the newest frame; None without any."""
        speeds = [car.get_velocity().length() for car in self._session.seen(self.cars).values()]
        return sum(speeds) / len(speeds) if speeds else None

    def destroy(self) -> None:
        """End the Traffic Manager, then destroy its cars.

        Call it before any other vehicle is destroyed: the manager's last step asks the simulator about every vehicle
        that it has seen, and a refusal aborts the process.

        Raises:
            SimulatorLost: the simulator doesn't answer. The manager is left as it is: its end would wait for the
                simulator with Python's lock held, so that no other thread could run, and abort the process.
        """
        with self._session.answered():
            self._session.world.get_settings()
        self._over.set()  # no sooner: a manager that is left as it is still takes part in each tick
        self._manager.shut_down()
        self._session.destroy(self.cars)
        self.cars = []

    def _keep_awake(self) -> None:
        """Wake the manager where it missed a tick's notice and the tick waits for it (protocol, section 5.8)."""
        port, waiting = self._manager.get_port(), None
        while not self._over.wait(LOOK_S):
            waits = self._session.shown_tick()
            if waits is not None and waits == waiting:
                wake(port)
            waiting = waits

    def _living(self) -> list[Any]:
        """Return the cars that still exist: a Traffic Manager destroys a car that stands for too long."""
        seen = self._session.seen(self.cars)
        return [car for car in self.cars if car.id in seen]

    def _remove_from(self, count: int) -> None:
        living = self._living()
        self.cars, surplus = living[:count], living[count:]
        for car in surplus:
            car.set_autopilot(False, self._manager.get_port())
        self._session.destroy(surplus)

    def _may_be(self, location: Any, start: tuple[float, float]) -> bool:
        """Return whether a car may begin the drive there."""
        return CLEARANCE_M <= _gap(location, *start) <= (math.inf if self._within_m is None else self._within_m)

    def _by_preference(self, start: tuple[float, float]) -> list[Any]:
        """Return spawn points for cars that must move: farthest from the start first, or those within the limit."""
        if self._within_m is None:
            return sorted(self._spawns, key=lambda spawn: -_gap(spawn.location, *start))
        drawn = (self._spawns[index] for index in self._rng.permutation(len(self._spawns)))
        return [spawn for spawn in drawn if self._may_be(spawn.location, start)]

    def _spawn(self, count: int, start: tuple[float, float]) -> list[Any]:
        library = self._session.world.get_blueprint_library().filter("vehicle.*")
        # As CARLA's generate_traffic.py with --safe: trucks and buses get stuck in narrow turns and block a route for
        # good, and two-wheelers fall.
        blueprints = sorted((b for b in library if _is_car(b)), key=lambda blueprint: str(blueprint.id))
        cars: list[Any] = []
        for index in self._rng.permutation(len(self._spawns)):
            if len(cars) == count:
                break
            spawn = self._spawns[index]
            blueprint = blueprints[self._rng.integers(len(blueprints))]
            blueprint.set_attribute("role_name", ROLE)
            if self._may_be(spawn.location, start):
                car = self._session.world.try_spawn_actor(blueprint, spawn)
                if car is not None:
                    car.set_autopilot(True, self._manager.get_port())
                    cars.append(car)
        return cars


def wake(port: int) -> None:
    """Have the synchronous Traffic Manager at this port of this host begin a round; nothing if it doesn't answer.

    By the manager's own server: the client's call waits for the open tick, with Python's lock held. Leaving synchronous
    mode notifies the manager's thread again; it looks at the mode only after its round.
    """
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), ANSWER_S) as connection:
        for number, synchronous in enumerate((False, True)):
            connection.sendall(msgpack.packb([0, number, "set_synchronous_mode", [synchronous]]))
            connection.recv(64)


def _gap(location: Any, x: float, y: float) -> float:
    return math.hypot(location.x - x, location.y - y)


def _is_car(blueprint: Any) -> bool:
    return bool(blueprint.has_attribute("base_type") and blueprint.get_attribute("base_type") == "car")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])
