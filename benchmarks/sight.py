"""From which distance the agent's frame distinguishes a red light from a green one, and shows a walker and a stopped
car.

Puts the agent's car before a stop line at each distance, takes the frame of each camera with and without (a light: red
and green), and measures their difference. Owns no environment: poses are exact, nothing moves. Run:
``python benchmarks/sight.py --maps "Lite01 Lite02" --out runs/sight`` (with ``--map-dir`` also Town01 and Town02).

Detectability is Rose's (1948): k = contrast / noise × √pixels, detectable from k = 5 on. Contrast is the mean
difference of the pixels that differ, noise the standard deviation of their surroundings in the same picture, at least
``LEAST_NOISE``. Both are Euclidean over the channels. The k of grey pictures is too good: in a single picture, only a
lamp's place in the head tells its colour. Look at the sheets.
"""

from __future__ import annotations

import json
import math
import statistics
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import carla
import cv2
import numpy as np
import psutil
import torch
import typer
from lite_server import lite_process
from measuring import leave, machine
from numpy.typing import NDArray

from carla_td3.config import NetworkConfig, SimulatorConfig, TD3Config
from carla_td3.env.car import BLUEPRINT, ROLE
from carla_td3.env.sensors import FrameCamera
from carla_td3.env.session import ROLE_PREFIX, Session
from carla_td3.td3.dry_run import zero_batch
from carla_td3.td3.replay.frames import FrameStack
from carla_td3.td3.replay.layout import bytes_for
from carla_td3.td3.td3 import TD3

DISTANCES_M = (0, 3, 5, 8, 12, 16, 20, 25, 30, 40, 60)
"""Distances from the front bumper: to the stop line, to the walker, to the other car's rear."""
TOLD_FROM = 5.0
LEAST_NOISE, LEAST_DIFFERENCE = 2.0, 6.0
STRAIGHT_RAD = math.radians(4.0)
WEATHERS = ("ClearNoon", "WetNoon", "ClearNight")
COMFORT_MPS2, REACTION_S = 4.0, 0.5
WINDOW, SCALE = 24, 4
"""Pixels of a cell of the sheet's pictures, and how much larger they are shown."""
TICKS, ROUNDS = 150, 4
STACKS = (
    FrameStack(),
    FrameStack(planes=3),
    FrameStack(planes=4),
    FrameStack(planes=4, frames=2, every=4),
    FrameStack(planes=4, frames=3, every=3),
)
AWAY = carla.Transform(carla.Location(z=-300.0))

Picture = NDArray[np.uint8]


@dataclass(frozen=True)
class View:
    """A camera that the agent could have."""

    name: str
    width: int = 84
    height: int = 84
    fov_deg: float = 100.0
    pitch_deg: float = -12.0
    yaw_deg: float = 0.0
    grey: bool = False
    on_roof: bool = False
    """Above the rear seats, as CARLA's agents have it: 2.7 m farther from what stands beside the stop line."""

    @property
    def frame_bytes(self) -> int:
        """Bytes of one frame in the replay."""
        return self.width * self.height * (1 if self.grey else 3)

    def pose(self) -> carla.Transform:
        """Where it is on the car."""
        where = carla.Location(x=-1.5, z=2.0) if self.on_roof else carla.Location(x=1.2, z=1.8)
        return carla.Transform(where, carla.Rotation(pitch=self.pitch_deg, yaw=self.yaw_deg))

    def seen(self, bgra: Picture) -> Picture:
        """Return (height, width, channels) as the agent would see it."""
        if self.grey:
            return np.asarray(cv2.cvtColor(bgra, cv2.COLOR_BGRA2GRAY), np.uint8)[..., None]
        return np.ascontiguousarray(bgra[..., :3])


VIEWS = (
    View("grey 84, 100°", grey=True),
    View("rgb 84, 100°"),
    View("rgb 128, 100°", 128, 128),
    View("rgb 160×84, 100°", 160, 84, pitch_deg=-4.0),
    View("rgb 84, 60°", fov_deg=60.0, pitch_deg=-4.0),
    View("grey 84, 100°, roof", pitch_deg=-8.0, grey=True, on_roof=True),
    View("rgb 84, 100°, roof", pitch_deg=-8.0, on_roof=True),
    View("rgb 84, 80°, roof", fov_deg=80.0, pitch_deg=-4.0, on_roof=True),
    View("rgb 84, 60°, 20° to the right, roof", fov_deg=60.0, pitch_deg=-4.0, yaw_deg=20.0, on_roof=True),
    View("grey 84, 60°, 26° to the left, roof", fov_deg=60.0, pitch_deg=-4.0, yaw_deg=-26.0, grey=True, on_roof=True),
    View("rgb 84, 45°, roof", fov_deg=45.0, pitch_deg=-2.0, on_roof=True),
    View("grey 84, 45°, roof", fov_deg=45.0, pitch_deg=-2.0, grey=True, on_roof=True),
    View("grey 84, 35°, roof", fov_deg=35.0, pitch_deg=-2.0, grey=True, on_roof=True),
    View("rgb 84, 35°, roof", fov_deg=35.0, pitch_deg=-2.0, on_roof=True),
)


@dataclass(frozen=True)
class Sight:
    """Visibility of a thing in one pair of pictures: difference and noise."""

    pixels: int
    contrast: float
    noise: float

    @property
    def rose(self) -> float:
        """k; 0 if nothing differs."""
        return self.contrast / self.noise * math.sqrt(self.pixels) if self.pixels else 0.0


def sight(one: Picture, other: Picture) -> Sight:
    """Return how well two (H, W, C) pictures, with and without the thing, can be distinguished."""
    gap = np.linalg.norm(one.astype(np.float32) - other, axis=2)
    differs = gap > LEAST_DIFFERENCE
    count = int(differs.sum())
    if not count:
        return Sight(0, 0.0, LEAST_NOISE)
    rows, columns = np.nonzero(differs)
    reach = 4 + max(np.ptp(rows), np.ptp(columns)) // 2
    window = np.zeros_like(differs)
    window[
        max(0, rows.min() - reach) : rows.max() + reach + 1, max(0, columns.min() - reach) : columns.max() + reach + 1
    ] = 1
    around = other[window & ~differs].astype(np.float32)
    noise = float(np.sqrt(around.var(axis=0).sum())) if len(around) else 0.0
    return Sight(count, float(gap[differs].mean()), max(noise, LEAST_NOISE))


class Stage:
    """The agent's car with every view's camera, a walker and another car, in one map."""

    def __init__(self, session: Session) -> None:
        self._session, self._world = session, session.world
        library = self._world.get_blueprint_library()
        self.car = self._placed(library.find(BLUEPRINT), session.map.get_spawn_points()[0])
        self.half_m = self.car.bounding_box.extent.x
        self.cameras = {view: _camera(session, self.car, view) for view in VIEWS}
        self.walker = self._placed(library.find("walker.pedestrian.0010"), session.map.get_spawn_points()[1])
        self.other = self._placed(library.find("vehicle.audi.tt"), session.map.get_spawn_points()[2])
        for actor in (self.walker, self.other):
            actor.set_transform(AWAY)
        self.lights = list(self._world.get_actors().filter("traffic.traffic_light"))
        self._world.freeze_all_traffic_lights(True)

    def weather(self, name: str) -> None:
        """Set the weather, with dipped headlights at night."""
        self._world.set_weather(getattr(carla.WeatherParameters, name))
        lit = carla.VehicleLightState.Position | carla.VehicleLightState.LowBeam
        self.car.set_light_state(carla.VehicleLightState(lit if "Night" in name else carla.VehicleLightState.NONE))

    def approaches(self, count: int) -> list[tuple[Any, Any]]:
        """Return lights with a stop area and 70 m of straight lane before it, spread over the map."""
        found = []
        for light in sorted(self.lights, key=lambda light: light.id):
            for stop in light.get_stop_waypoints():
                behind = stop.previous(70.0)
                if behind and all(_turn(stop, stop.previous(step)[0]) < STRAIGHT_RAD for step in range(10, 71, 10)):
                    found.append((light, stop))
        if not found:
            raise SystemExit("No light of this map has 70 m of straight road before it: give another map.")
        return [found[int(i)] for i in np.linspace(0, len(found) - 1, min(count, len(found)))]

    def pairs(
        self, light: Any, stop: Any, distance_m: float
    ) -> Iterator[tuple[str, dict[View, tuple[Picture, Picture]]]]:
        """Yield each thing, and both pictures of each view."""
        self._drive_to(self.car, stop, -(distance_m + self.half_m))
        self._show(light, carla.TrafficLightState.Red)
        red = self._pictures()
        self._show(light, carla.TrafficLightState.Green)
        green = self._pictures()
        yield "light", {view: (red[view], green[view]) for view in VIEWS}
        for name, actor, ahead_m, right_m in (
            ("walker at the kerb", self.walker, 0.0, 0.5 * stop.lane_width + 0.9),
            ("walker on the road", self.walker, 0.0, 0.0),
            ("stopped car", self.other, self.other.bounding_box.extent.x, 0.0),
        ):
            self._drive_to(actor, stop, ahead_m, right_m)
            there = self._pictures()
            actor.set_transform(AWAY)
            yield name, {view: (there[view], green[view]) for view in VIEWS}

    def close(self) -> None:
        """Remove everything."""
        for camera in self.cameras.values():
            camera.destroy()
        self._session.destroy([self.car, self.walker, self.other])

    def _placed(self, blueprint: Any, where: Any) -> Any:
        if blueprint.has_attribute("role_name"):
            blueprint.set_attribute("role_name", ROLE if blueprint.id == BLUEPRINT else f"{ROLE_PREFIX}sight")
        actor = self._world.spawn_actor(blueprint, where)
        actor.set_simulate_physics(False)
        return actor

    def _drive_to(self, actor: Any, stop: Any, ahead_m: float, right_m: float = 0.0) -> None:
        pose = stop.transform
        pose.location += pose.get_forward_vector() * ahead_m + pose.get_right_vector() * right_m
        # Things on wheels have their origin on the ground, a walker in its centre.
        pose.location.z += actor.bounding_box.extent.z if actor.type_id.startswith("walker.") else 0.0
        actor.set_transform(pose)

    def _show(self, light: Any, state: Any) -> None:
        for each in self.lights:
            each.set_state(state if each.id == light.id else carla.TrafficLightState.Green)

    def _pictures(self) -> dict[View, Picture]:
        self._session.tick()
        frame = self._session.tick()  # what was moved between two ticks is certainly in the second one
        return {view: view.seen(camera.image(frame)) for view, camera in self.cameras.items()}


def main(
    out: Annotated[Path, typer.Option(help="Folder for sight.json and the contact sheets.")],
    maps: Annotated[str, typer.Option(help="Names of maps, separated by blanks.")] = "Lite02",
    map_dir: Annotated[Path | None, typer.Option(help="Folder with CARLA's maps, such as Town01.xodr.")] = None,
    places: Annotated[int, typer.Option(min=1, help="Traffic lights per map; the results are their medians.")] = 4,
) -> None:
    out.mkdir(parents=True, exist_ok=True)
    report: dict[str, Any] = {
        "places": places,
        "distances_m": DISTANCES_M,
        "machine": machine("carla", "numpy"),
        "maps": {},
        "tick_ms": {},
    }
    for name in maps.split():
        with ExitStack() as stack:
            port, pid = stack.enter_context(
                lite_process(str(map_dir / f"{name}.xodr") if map_dir and (map_dir / f"{name}.xodr").exists() else name)
            )
            session = Session(SimulatorConfig(host="127.0.0.1", port=port))
            session.connect()
            report["tick_ms"][name] = tick_ms(session, pid)
            stage = Stage(session)
            seen, sheets = look(stage, places)
            sheets["frames"] = frames(stage)
            stage.close()
            session.close()
        report["maps"][name] = figures(seen)
        for thing, sheet in sheets.items():
            cv2.imwrite(str(out / f"{name}-{thing.replace(' ', '-')}.png".replace(":", "-")), sheet)
        show(name, report["maps"][name])
    report["updates"] = updates()
    for row in report["updates"]:
        print("  {updates_per_s:6.1f} updates/s  {row_bytes:6d} B a row  {stack}, channels {channels}".format(**row))
    (out / "sight.json").write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    leave()


def tick_ms(session: Session, pid: int) -> dict[str, float]:
    """Return the simulator's processor time a tick with one camera of each view, and none, ms."""
    library, server = session.world.get_blueprint_library(), psutil.Process(pid)
    car = session.spawn_car(library.find(BLUEPRINT), session.map.get_spawn_points()[0])
    found = {}
    for view in (None, *VIEWS):
        camera = None if view is None else _camera(session, car, view)
        for ticks in (20, TICKS):
            before_s = sum(server.cpu_times()[:2])
            for _ in range(ticks):
                frame = session.tick()
                if camera is not None:
                    camera.image(frame)
        found["none" if view is None else view.name] = round(1000 * (sum(server.cpu_times()[:2]) - before_s) / TICKS, 2)
        if camera is not None:
            camera.destroy()
    session.destroy([car])
    return found


def updates() -> list[dict[str, Any]]:
    """Return the learner's updates of batch 64 per second of one thread's processor time, by the image's planes."""
    torch.set_num_threads(1)
    rows = []
    for channels in ((32, 64, 64), (16, 32, 32)):
        for stack in STACKS:
            td3 = TD3(
                TD3Config(batch_size=64, network=NetworkConfig(channels=channels)), torch.device("cpu"), 0, (), stack
            )
            batch = zero_batch(td3, 64)
            rates = []
            for _ in range(ROUNDS):
                begun_s = time.process_time()
                td3.update(batch)
                td3.update(batch)
                rates.append(2 / (time.process_time() - begun_s))
            size = bytes_for(2, stack.side, 0, stack.planes) - bytes_for(1, stack.side, 0, stack.planes)
            rows.append({"stack": asdict(stack), "channels": channels, "row_bytes": size, "updates_per_s": max(rates)})
    return rows


def _camera(session: Session, car: Any, view: View) -> FrameCamera:
    camera = FrameCamera(session, car, view.pose(), width=view.width, height=view.height, fov_deg=view.fov_deg)
    camera.wait_for_first()
    return camera


def frames(stage: Stage) -> Picture:
    """Return whole frames: one row per view, one column per distance, the first light red."""
    stage.weather("ClearNoon")
    light, stop = stage.approaches(1)[0]
    columns = [next(stage.pairs(light, stop, distance_m))[1] for distance_m in (0, 5, 12, 25)]
    rows = []
    for view in VIEWS:
        cells = [np.asarray(pictures[view][0]) for pictures in columns]
        shown = [
            cv2.resize(np.repeat(cell, 3 // cell.shape[2], axis=2), None, fx=2, fy=2, interpolation=cv2.INTER_NEAREST)
            for cell in cells
        ]
        row = np.concatenate(shown, axis=1)
        rows.append(np.pad(row, ((0, 4), (0, 1300 - row.shape[1]), (0, 0)), constant_values=255))
    return np.concatenate(rows)


Seen = dict[tuple[str, str, str, int], list[Sight]]


def look(stage: Stage, places: int) -> tuple[Seen, dict[str, Picture]]:
    """Return the figures by thing, weather, view and distance, and one sheet per thing for the first place."""
    seen: Seen = {}
    cells: dict[str, dict[tuple[str, str], list[Picture]]] = {}
    for weather in WEATHERS:
        stage.weather(weather)
        for number, (light, stop) in enumerate(stage.approaches(places)):
            for distance_m in DISTANCES_M:
                for thing, pictures in stage.pairs(light, stop, distance_m):
                    for view, pair in pictures.items():
                        seen.setdefault((thing, weather, view.name, distance_m), []).append(sight(*pair))
                        if number == 0:
                            row = cells.setdefault(thing, {}).setdefault((weather, view.name), [])
                            row.append(_cell(*pair))
    return seen, {thing: _sheet(rows) for thing, rows in cells.items()}


def figures(seen: Seen) -> dict[str, Any]:
    """Return by thing, weather and view: pixels and k by distance, and the range at which the thing is detectable."""
    report: dict[str, Any] = {}
    for (thing, weather, view, _), sights in seen.items():
        row = report.setdefault(thing, {}).setdefault(weather, {}).setdefault(view, {"pixels": [], "k": []})
        row["pixels"].append(statistics.median(one.pixels for one in sights))
        row["k"].append(round(statistics.median(one.rose for one in sights), 1))
    for weathers in report.values():
        for views in weathers.values():
            for row in views.values():
                row["told_m"] = _told(row["k"])
    return report


def _told(ks: list[float]) -> tuple[int, int] | None:
    """Return nearest and farthest of the longest run of distances at which k suffices; None without any."""
    runs: list[list[int]] = [[]]
    for distance_m, k in zip(DISTANCES_M, ks, strict=True):
        if k >= TOLD_FROM:
            runs[-1].append(distance_m)
        elif runs[-1]:
            runs.append([])
    longest = max(runs, key=len)
    return (longest[0], longest[-1]) if longest else None


def show(name: str, report: dict[str, Any]) -> None:
    """Print the range of detection of each thing for each view, by weather."""
    needed_m = 8.0 * REACTION_S + 8.0**2 / (2 * COMFORT_MPS2)
    print(f"{name}: told between (m; noon, wet, night). Needed at 8 m/s: {needed_m:.0f} m.")
    for view in VIEWS:
        columns = []
        for thing, weathers in report.items():
            rows = [weathers[weather][view.name] for weather in WEATHERS]
            columns.append(f"{thing}: " + " ".join(_span(row["told_m"]) for row in rows))
        print(f"  {view.name:18s} {view.frame_bytes:6d} B  {';  '.join(columns)}")


def _span(told: tuple[int, int] | None) -> str:
    return "–" if told is None else f"{told[0]}–{told[1]}"


def _turn(one: Any, other: Any) -> float:
    return abs(math.remainder(math.radians(one.transform.rotation.yaw - other.transform.rotation.yaw), math.tau))


def _cell(one: Picture, other: Picture) -> Picture:
    """Return both pictures around the difference (or the centre), enlarged, side by side."""
    gap = np.linalg.norm(one.astype(np.float32) - other, axis=2)
    rows, columns = np.nonzero(gap > LEAST_DIFFERENCE)
    middle = (np.mean(rows), np.mean(columns)) if len(rows) else (0.5 * one.shape[0], 0.5 * one.shape[1])
    top, left = (int(np.clip(at - WINDOW / 2, 0, size - WINDOW)) for at, size in zip(middle, one.shape, strict=False))
    shown = []
    for picture in (one, other):
        part = picture[top : top + WINDOW, left : left + WINDOW]
        colours = part if part.shape[2] == 3 else np.repeat(part, 3, axis=2)
        shown.append(np.kron(colours, np.ones((SCALE, SCALE, 1), np.uint8)))
    return np.pad(np.concatenate(shown, axis=1), ((1, 1), (1, 3), (0, 0)), constant_values=255)


def _sheet(rows: dict[tuple[str, str], list[Picture]]) -> Picture:
    """Return a sheet: one row per weather and view, one column per distance."""
    lines = []
    for (weather, view), cells in rows.items():
        label = np.full((cells[0].shape[0], 190, 3), 255, np.uint8)
        for line, text in enumerate((weather, view.replace("°", " deg").replace("×", "x"))):
            cv2.putText(label, text, (4, 30 + 22 * line), cv2.FONT_HERSHEY_SIMPLEX, 0.5, (0, 0, 0), 1, cv2.LINE_AA)
        lines.append(np.concatenate([label, *cells], axis=1))
    head = np.full((26, lines[0].shape[1], 3), 255, np.uint8)
    for column, distance_m in enumerate(DISTANCES_M):
        at = 190 + column * (lines[0].shape[1] - 190) // len(DISTANCES_M)
        cv2.putText(head, f"{distance_m} m", (at + 4, 18), cv2.FONT_HERSHEY_SIMPLEX, 0.5, (0, 0, 0), 1, cv2.LINE_AA)
    return np.concatenate([head, *lines])


if __name__ == "__main__":
    typer.run(main)
