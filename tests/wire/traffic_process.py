"""Traffic in a process of its own: a Traffic Manager can abort or hang the process that it lives in.

Usage: traffic_process.py PORT TRAFFIC_MANAGER_PORT CARS TICKS. Prints one JSON line: what became of the cars. SIGALRM
ends it if a tick takes longer than ``STUCK_S``.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time

import carla

STUCK_S = 60


def main(port: int, manager_port: int, count: int, ticks: int) -> None:
    signal.alarm(STUCK_S)
    client = carla.Client("127.0.0.1", port)
    client.set_timeout(20.0)
    world = client.get_world()
    settings = world.get_settings()
    settings.synchronous_mode, settings.fixed_delta_seconds = True, 0.05
    world.apply_settings(settings)
    manager = client.get_trafficmanager(manager_port)
    manager.set_synchronous_mode(True)
    manager.set_random_device_seed(1)
    library = world.get_blueprint_library()
    autopilot = carla.command.SetAutopilot(carla.command.FutureActor, True, manager_port)
    points = world.get_map().get_spawn_points()[: 4 * count : 4]
    batch = [carla.command.SpawnActor(library.find("vehicle.tesla.model3"), point).then(autopilot) for point in points]
    answers = client.apply_batch_sync(batch, True)
    cars = [world.get_actor(answer.actor_id) for answer in answers if not answer.error]
    driven = dict.fromkeys((car.id for car in cars), 0.0)
    off_lane = 0.0
    before = {car.id: car.get_location() for car in cars}
    came_at_red: dict[int, bool] = {}
    waited: set[int] = set()
    lights = {"left_on_green": 0, "ran_red": 0}
    for _ in range(ticks):
        signal.alarm(STUCK_S)
        world.tick()
        time.sleep(0.0005)  # back to back, the client's Traffic Manager can wait for itself for ever; seldom even so
        for car in cars:
            here = car.get_location()
            driven[car.id] += here.distance(before[car.id])
            before[car.id] = here
            red = car.get_traffic_light_state() == carla.TrafficLightState.Red
            if not car.is_at_traffic_light():
                lights["left_on_green"] += car.id in waited
                lights["ran_red"] += came_at_red.pop(car.id, False)
                waited.discard(car.id)
            elif not red:
                came_at_red[car.id] = False
            elif came_at_red.setdefault(car.id, True) and car.get_velocity().length() < 0.1:
                waited.add(car.id)
    for car in cars:
        lane = world.get_map().get_waypoint(car.get_location())
        off_lane = max(off_lane, lane.transform.location.distance(car.get_location()))
    outcome = {"spawned": len(cars), "driven_m": list(driven.values()), "off_lane_m": off_lane, **lights}
    print(json.dumps(outcome), flush=True)
    os._exit(0)  # leaving in order can abort the client


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:]))
