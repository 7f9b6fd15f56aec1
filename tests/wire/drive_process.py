"""A drive in a process whose client may be of another version, from connecting to the last sensor.

Usage: drive_process.py PORT TRAFFIC_MANAGER_PORT. Prints one JSON line: what was seen.
"""

from __future__ import annotations

import json
import os
import queue
import sys
from typing import Any

import carla

SENSORS = ("sensor.camera.rgb", "sensor.other.gnss", "sensor.other.imu")
TICKS = 40


def main(port: int, manager_port: int) -> None:
    client = carla.Client("127.0.0.1", port)
    client.set_timeout(20.0)
    world = client.load_world("Lite01")
    settings = world.get_settings()
    settings.synchronous_mode, settings.fixed_delta_seconds = True, 0.05
    world.apply_settings(settings)
    manager = client.get_trafficmanager(manager_port)
    manager.set_synchronous_mode(True)
    world.tick()
    library, points = world.get_blueprint_library(), world.get_map().get_spawn_points()
    car = world.spawn_actor(library.find("vehicle.lincoln.mkz_2017"), points[0])
    spawn = carla.command.SpawnActor(library.find("vehicle.tesla.model3"), points[4])
    autopilot = carla.command.SetAutopilot(carla.command.FutureActor, True, manager_port)
    (answer,) = client.apply_batch_sync([spawn.then(autopilot)], True)
    walker = world.spawn_actor(library.filter("walker.pedestrian.*")[0], points[8])
    seen: dict[str, queue.Queue[Any]] = {name: queue.Queue() for name in SENSORS}
    sensors = [world.spawn_actor(library.find(name), carla.Transform(carla.Location(z=2.0)), car) for name in SENSORS]
    hits: queue.Queue[Any] = queue.Queue()
    sensors.append(world.spawn_actor(library.find("sensor.other.collision"), carla.Transform(), car))
    for sensor, wanted in zip(sensors, [*seen.values(), hits], strict=True):
        sensor.listen(wanted.put)
    other = world.get_actor(answer.actor_id)
    start, other_start = car.get_location(), other.get_location()
    car.apply_control(carla.VehicleControl(throttle=0.6))
    last = {}
    for _ in range(TICKS):
        frame = world.tick()
        last = {name: wanted.get(timeout=20.0) for name, wanted in seen.items()}
    here, place = car.get_location(), sensors[1].get_location()
    there = world.get_map().transform_to_geolocation(place)
    gnss = last["sensor.other.gnss"]
    walker.destroy()
    found = {
        "version": client.get_server_version(),
        "frames": [data.frame == frame for data in last.values()],
        "pixels": len(set(bytes(last["sensor.camera.rgb"].raw_data))),
        "driven_m": here.distance(start),
        "autopilot_m": other.get_location().distance(other_start),
        "gnss": abs(gnss.latitude - there.latitude) + abs(gnss.longitude - there.longitude),
        "wheels": len(car.get_physics_control().wheels),
        "lights": len(world.get_actors().filter("traffic.traffic_light")),
        "limit": car.get_speed_limit(),
    }
    print(json.dumps(found), flush=True)
    os._exit(0)  # leaving in order can abort the client


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
