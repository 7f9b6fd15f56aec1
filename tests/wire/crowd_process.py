"""Drives among cars and people in a process of its own, which a Traffic Manager can abort or hang.

Usage: crowd_process.py PORT. Prints one JSON line: whom two drivers met in an evaluation, who was there in drawn
drives, where in drives paired by a seed, and how far from the start of drives with a distance limit.
"""

from __future__ import annotations

import json
import os
import sys

import numpy as np

from carla_td3.config import EnvironmentConfig, SimulatorConfig, TrafficConfig
from carla_td3.env.driving import DrivingEnv
from carla_td3.env.expert import Action, PidPurePursuit
from carla_td3.env.observation import DriverState, Observation
from carla_td3.env.route import Route, held_out_routes
from carla_td3.evaluation.drivers import Driver, StopDriver
from carla_td3.evaluation.routes import completed, evaluate

SECOND = 10
NEAR_M = 70.0


class Watched:
    """A driver that notes where the others are for a second."""

    def __init__(self, env: DrivingEnv, other: Driver) -> None:
        self._env, self._other = env, other
        self.met: dict[str, list[list[tuple[str, float, float]]]] = {}

    def act(self, observation: Observation, state: DriverState) -> Action:
        places = self.met.setdefault(state.route.name, [])
        if len(places) < SECOND:
            places.append(standing(self._env))
        return self._other.act(observation, state)


def main(port: int) -> None:
    config = EnvironmentConfig(
        traffic=TrafficConfig(vehicles=(2, 6), walkers=(3, 8)),
        weather=("ClearNoon", "HardRainSunset"),
        blocked_s=3.0,  # of a driver that stands, in an evaluation
    )
    env = DrivingEnv(config, SimulatorConfig(host="127.0.0.1", port=port, patience_s=60.0))
    routes = held_out_routes(env.planner, config.route, 2, seed=3)
    evaluated = [met(env, other, routes) for other in (StopDriver(), PidPurePursuit())]
    drawn = []
    paired: list[list[list[tuple[str, float, float]]]] = []
    for seed in range(6):
        env.reset(seed=seed)
        drawn.append((*seen(env), env.session.world.get_weather().sun_altitude_angle))
    for seed in (11, 12, 11):
        # Drivers that leave the world differently: one drives, one stands.
        driver = PidPurePursuit() if paired else None
        for route in routes[::-1]:
            observation, _ = env.reset(options={"route": route, "seed": seed, "continue_after_infractions": True})
            places = []
            for _ in range(SECOND):
                action = np.array((0.0, -1.0), np.float32) if driver is None else driver.act(observation, env.state)
                observation, _, _, _, info = env.step(action)
                places.append(standing(env))
        paired.append(places)
    infractions = [each.kind for each in info["infractions"]]
    env.close()
    outcome = {"evaluated": evaluated, "drawn": drawn, "paired": paired, "infractions": infractions}
    print(json.dumps({**outcome, "away": [away(port, within) for within in (None, NEAR_M)]}), flush=True)
    os._exit(0)  # leaving in order can abort the client


def away(port: int, within_m: float | None) -> list[list[float]]:
    """Return how far cars and people are from the car as drives begin, a list a drive."""
    config = EnvironmentConfig(traffic=TrafficConfig(vehicles=5, walkers=12, within_m=within_m))
    env = DrivingEnv(config, SimulatorConfig(host="127.0.0.1", port=port, patience_s=60.0))
    found = []
    for seed in range(4):
        env.reset(seed=seed)
        x, y = env.state.route.points[0]
        found.append([float(np.hypot(at_x - x, at_y - y)) for _, at_x, at_y in standing(env)])
    env.close()
    return found


def met(env: DrivingEnv, driver: Driver, routes: list[Route]) -> dict[str, list[list[tuple[str, float, float]]]]:
    watched = Watched(env, driver)
    completed(evaluate(env, watched, routes, "watched", seed=4))
    return watched.met


def seen(env: DrivingEnv) -> tuple[int, int, int]:
    """Return how many cars, people and controllers of ours the simulator has."""
    actors = env.session.world.get_actors()
    roles = [actor.attributes.get("role_name") for actor in actors]
    return roles.count("td3-traffic"), roles.count("td3-walker"), len(actors.filter("controller.ai.walker"))


def standing(env: DrivingEnv) -> list[tuple[str, float, float]]:
    """Return the places of all others, in the order in which they came."""
    own = env.car.actor.id if env.car else 0
    others = [a for a in env.session.world.get_actors() if a.type_id.startswith(("vehicle", "walker")) and a.id != own]
    places = [(actor.type_id, actor.get_location()) for actor in sorted(others, key=lambda actor: int(actor.id))]
    return [(kind, place.x, place.y) for kind, place in places]


if __name__ == "__main__":
    main(int(sys.argv[1]))
