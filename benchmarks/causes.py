"""Why did a drive fail? Each failed drive's first cause, from what the simulator knew at that moment.

Run: ``python benchmarks/causes.py --checkpoint benchmarks/results/learning/td3 --traffic dense --routes 10``. It drives
as ``driving.py`` does, by default in the validation town. The expert is asked in every state and drives nothing. One
line of JSON a drive goes to ``--out``; a line of a failed drive has the last ``WINDOW_S`` before the first collision,
or before the end. Drives that are there aren't repeated, so a stopped command resumes. The table counts the causes.

A person or a car counts as in view if its bearing is within the two cameras' fields and no car's box lies between.
Buildings, which hide people at corners, aren't considered.
"""

from __future__ import annotations

import dataclasses
import math
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from driving import Group, checkpoints_in, driven_before, end_with_parent, environment_of, left_to_drive
from measuring import leave
from rich.console import Console
from rich.table import Table

from carla_run.event_log import JsonLines
from carla_run.readers import read_lines
from carla_td3.env.driving import DrivingEnv
from carla_td3.env.expert import Expert
from carla_td3.env.infractions import Infraction
from carla_td3.env.route_line import Route, wrapped
from carla_td3.env.session import BlockedStart, SimulatorLost
from carla_td3.evaluation import nocrash
from carla_td3.evaluation.drivers import Driver
from carla_td3.evaluation.metrics import IMPULSE_NS, limit_s, succeeded
from carla_td3.evaluation.routes import steps

VALIDATION_TOWN = "Lite:seed=900,size=400"
WINDOW_S = 8.0
NEAR_M = 40.0
STANDING_MPS, LATERAL_MPS = 0.5, 0.3
SHORTLY_S, LONG_S = 1.0, 2.0
"""Who is in view for less than the first was hardly to be seen; where a car came from is read the second earlier."""
CONTACT_S = 0.5
"""In the last rows, the car pushes the person or car that it hits. So their motion is read this long before."""
BRAKES, STARTS = -0.1, 0.05
FIELD_RAD = math.radians(-56.0), math.radians(50.0)
"""Edges of the preset's two views together, from the nose."""
CAMERA_M, PIXELS_AT_1_M = -1.5, 42.0 / math.tan(math.radians(30.0))
PERSON_M = 1.8


@dataclass(frozen=True)
class Other:
    """A person or car in the car's frame: metres ahead and to the right of its centre, velocity over ground."""

    id: int
    is_person: bool
    ahead_m: float
    right_m: float
    turned_rad: float
    half_length_m: float
    half_width_m: float
    forward_mps: float
    rightward_mps: float


@dataclass(frozen=True)
class Row:
    """One step."""

    time_s: float
    speed_mps: float
    pedal: float
    expert_pedal: float
    in_junction: bool
    light: str
    light_gap_m: float | None
    lead_gap_m: float | None
    walker_gap_m: float | None
    crossing_gap_m: float | None
    others: tuple[Other, ...]


@dataclass(frozen=True)
class Cause:
    """The cause of a failure; the figures are None where no actor was met."""

    name: str
    speed_mps: float
    in_view_s: float | None = None
    """How long without a break it was in view before."""
    first_seen_m: float | None = None
    """Its distance when that began."""
    pixels: float | None = None
    """A person's height in the 84×84 picture a second before."""
    expert_braked_s: float | None = None
    """Since when the expert, asked in the policy's states, braked."""
    policy_braked_s: float | None = None


def cause(rows: Sequence[Row], kind: str) -> Cause:
    """Return the cause of a failure at the last of the rows; ``kind``: pedestrian, vehicle or static, or the end."""
    last = rows[-1]
    if kind == "static":
        return Cause("something fixed hit", last.speed_mps)
    if kind not in ("pedestrian", "vehicle"):
        return Cause(_stood(rows, kind), last.speed_mps)
    met = [other for other in last.others if other.is_person == (kind == "pedestrian")]
    if not met:
        return Cause(f"{kind} unknown", last.speed_mps)
    other = min(met, key=_gap)
    track = [(row, {each.id: each for each in row.others}.get(other.id)) for row in rows]
    view = _view(track)
    braked = _since(rows, lambda row: row.expert_pedal < BRAKES), _since(rows, lambda row: row.pedal < BRAKES)
    name = _person(track, view) if other.is_person else _car(track)
    before = _earlier(track, SHORTLY_S)
    pixels = PIXELS_AT_1_M * PERSON_M / max(1.0, _away(before)) if before and other.is_person else None
    return Cause(
        name, last.speed_mps, last.time_s - view[0][0] if view else 0.0, view[0][1] if view else None, pixels, *braked
    )


Track = Sequence[tuple[Row, Other | None]]


def _person(track: Track, view: Sequence[tuple[float, float]]) -> str:
    last, other = track[-1][0], _before_contact(track)
    seen_s = last.time_s - view[0][0] if view else 0.0
    if last.speed_mps < STANDING_MPS:
        return "person walks into the standing car"
    if abs(other.rightward_mps) < LATERAL_MPS:
        side = "along the road" if math.hypot(other.forward_mps, other.rightward_mps) > LATERAL_MPS else "standing"
    else:
        side = "from the left" if other.rightward_mps > 0.0 else "from the right"
    where = " in a junction" if last.in_junction else ""
    hidden = ", hardly in view" if seen_s < SHORTLY_S else ""
    return f"person {side}{where}{hidden}"


def _earlier(track: Track, seconds: float) -> Other | None:
    """Return where it was, and how it moved, this long before the last row; None if it wasn't there yet."""
    until_s = track[-1][0].time_s - seconds
    return next((other for row, other in reversed(track) if other is not None and row.time_s <= until_s), None)


def _before_contact(track: Track) -> Other:
    other = _earlier(track, CONTACT_S) or track[-1][1]
    assert other is not None
    return other


def _car(track: Track) -> str:
    last, other = track[-1]
    assert other is not None
    before = _before_contact(track)
    bearing, speed = math.atan2(other.right_m, other.ahead_m), math.hypot(before.forward_mps, before.rightward_mps)
    if abs(bearing) > math.radians(120.0) and last.speed_mps < max(STANDING_MPS, speed):
        return "car hits from behind"
    if last.speed_mps < STANDING_MPS:
        return "car hits the standing car"
    if abs(before.turned_rad) > math.radians(135.0):
        return "car oncoming"
    if abs(before.turned_rad) > math.radians(45.0):
        return "car crossing" if speed > STANDING_MPS else "car standing across"
    earlier = _earlier(track, LONG_S)
    if earlier and abs(earlier.right_m) > 2.0:
        return "car cuts in"
    return "car ahead driving" if speed > STANDING_MPS else "car ahead standing"


def _stood(rows: Sequence[Row], end: str) -> str:
    """Return the reason for which the car stood, or that it had none: the expert would have driven on."""
    standing = [row for row in rows if row.speed_mps < STANDING_MPS]
    if 2 * len(standing) < len(rows):
        return f"{end}, on the move"
    would = sum(row.expert_pedal > STARTS for row in standing) / len(standing)
    if would > 0.5:
        return f"{end}, stands for nothing"
    gaps = {
        "a light": rows[-1].light_gap_m if rows[-1].light in ("red", "yellow") else None,
        "a car ahead": rows[-1].lead_gap_m,
        "a person": rows[-1].walker_gap_m,
        "a crossing car": rows[-1].crossing_gap_m,
    }
    there = {name: gap for name, gap in gaps.items() if gap is not None}
    return (
        f"{end}, stands before {min(there, key=lambda name: there[name])}" if there else f"{end}, stands as the expert"
    )


def _view(track: Track) -> list[tuple[float, float]]:
    """Return time and distance of the last unbroken stretch of rows in which it was in view."""
    found: list[tuple[float, float]] = []
    for row, other in track:
        if other is None or not in_view(other, row.others):
            # In contact, beside the nose, a person leaves the view: that ends nothing.
            found = found if found and other is not None and _gap(other) < 1.5 else []
        else:
            found.append((row.time_s, _away(other)))
    return found


def in_view(other: Other, others: Sequence[Other]) -> bool:
    """Return whether it is within the cameras' fields, and no other car's box lies between."""
    x, y = other.ahead_m - CAMERA_M, other.right_m
    if not FIELD_RAD[0] <= math.atan2(y, x) <= FIELD_RAD[1]:
        return False
    return not any(_hides(each, x, y) for each in others if each.id != other.id and not each.is_person)


def _hides(car: Other, x: float, y: float) -> bool:
    """Return whether the line from the camera to (x, y), in the camera's frame, crosses the car's box."""
    share = np.linspace(0.02, 0.98, 49)
    dx, dy = share * x - (car.ahead_m - CAMERA_M), share * y - car.right_m
    cos, sin = math.cos(car.turned_rad), math.sin(car.turned_rad)
    along, beside = np.abs(cos * dx + sin * dy), np.abs(cos * dy - sin * dx)
    return bool(np.any((along < car.half_length_m) & (beside < car.half_width_m)))


def _since(rows: Sequence[Row], does: Callable[[Row], bool]) -> float:
    """Return for how many seconds before the last row it has been so without a break."""
    began = rows[-1].time_s
    for row in reversed(rows):
        if not does(row):
            break
        began = row.time_s
    return rows[-1].time_s - began


def _gap(other: Other) -> float:
    """Return about how far the other's box is from the car's."""
    size = max(other.half_width_m, 0.3)
    ahead = max(0.0, abs(other.ahead_m) - 2.4 - (size if other.is_person else other.half_length_m))
    return math.hypot(ahead, max(0.0, abs(other.right_m) - 1.1 - size))


def _away(other: Other) -> float:
    return math.hypot(other.ahead_m - CAMERA_M, other.right_m)


class Reader:
    """Reads a row from the environment after each step; the expert is asked and not obeyed."""

    def __init__(self, env: DrivingEnv, route: Route) -> None:
        self._env, self._route = env, route
        config, simulator = env.config, env.session.config
        self._expert = Expert(
            config.reward.target_speed_mps, simulator.fixed_delta_s, lambda: env.hazards, config.action_rate
        )
        self._delta_s = simulator.fixed_delta_s
        self._kinds: dict[int, tuple[bool, float, float] | None] = {}

    def row(self, number: int, pedal: float) -> Row:
        """Return the newest row."""
        seen, state, motion = self._env.hazards, self._env.state, self._env.drive.motion
        expert = float(self._expert.act({}, state)[1])
        at = min(int(np.searchsorted(self._route.s, state.place.s_m)), len(self._route.s) - 1)
        return Row(
            round(number * self._delta_s, 2),
            motion.speed_mps,
            pedal,
            expert,
            bool(self._route.junction[at]),
            seen.light.value,
            _known(seen.light_gap_m),
            _known(seen.lead_gap_m),
            _known(seen.walker_gap_m),
            _known(seen.crossing_gap_m),
            tuple(self._others(motion)),
        )

    def _others(self, motion: Any) -> Iterator[Other]:
        world, own = self._env.session.world, self._env.car.actor.id  # type: ignore[union-attr]
        cos, sin = math.cos(motion.yaw), math.sin(motion.yaw)
        for actor in world.get_snapshot():
            if actor.id not in self._kinds:
                for each in world.get_actors():
                    kind = each.type_id.split(".", 1)[0]
                    solid = kind in ("vehicle", "walker") and each.id != own
                    extent = each.bounding_box.extent if solid else None
                    self._kinds[each.id] = (kind == "walker", extent.x, extent.y) if solid else None  # type: ignore[union-attr]
                self._kinds.setdefault(actor.id, None)
            what = self._kinds[actor.id]
            if what is None:
                continue
            pose, velocity = actor.get_transform(), actor.get_velocity()
            dx, dy = pose.location.x - motion.x_m, pose.location.y - motion.y_m
            if max(abs(dx), abs(dy)) < NEAR_M:
                turned = float(wrapped(math.radians(pose.rotation.yaw) - motion.yaw))
                yield Other(
                    actor.id,
                    what[0],
                    *(cos * dx + sin * dy, cos * dy - sin * dx, turned, what[1], what[2]),
                    *(cos * velocity.x + sin * velocity.y, cos * velocity.y - sin * velocity.x),
                )


def _known(gap_m: float) -> float | None:
    return gap_m if math.isfinite(gap_m) else None


def driven(env: DrivingEnv, own: Driver, route: Route, seed: int) -> dict[str, Any]:
    """Drive a route; return its end, success, and of a failure cause and last rows.

    Raises:
        BlockedStart, SimulatorLost: see ``evaluation.routes``.
    """
    options = {"route": route, "limit_s": limit_s(route.length_m), "continue_after_infractions": True, "seed": seed}
    begun, reader, rows = env.reset(options=options), Reader(env, route), list[Row]()
    found: dict[str, Any] = {}
    for number, step in enumerate(steps(env, own, begun)):
        rows.append(reader.row(number, float(step.action[1])))
        hard = [each for each in step.info["infractions"] if _fails(each)]
        if hard and not found:
            found = _explained(rows, hard[0].other or "static")
        rows = rows[-round(WINDOW_S / env.session.config.fixed_delta_s) :]
    success = succeeded(step.info["end"], step.info["infractions"])
    if not success and not found:
        found = _explained(rows, step.info["end"])
    hits = Counter(each.other for each in step.info["infractions"] if each.kind == "collision")
    return {"end": step.info["end"], "success": success, "km": step.info["distance_m"] / 1e3, "hits": hits, **found}


def _fails(each: Infraction) -> bool:
    return each.kind == "collision" and each.impulse_ns > IMPULSE_NS


def _explained(rows: Sequence[Row], kind: str) -> dict[str, Any]:
    return {"cause": dataclasses.asdict(cause(rows, kind)), "rows": [dataclasses.asdict(row) for row in rows]}


def read(line: Mapping[str, Any]) -> list[Row]:
    """Return the rows of a line of JSON."""
    return [Row(**{**row, "others": tuple(Other(**each) for each in row["others"])}) for row in line["rows"]]


def work(group: Group) -> None:
    """Drive a group in this process, and leave it."""
    end_with_parent()
    torch.set_num_threads(1)
    lines = JsonLines(group.lines)
    with environment_of(group) as (env, own, kept):
        for number in group.routes:
            try:
                found = driven(env, own, kept[number], group.traffic_seed(number))
            except (BlockedStart, SimulatorLost) as why:
                found = {"end": None, "why": str(why)}
            lines.append({**group.key(number), **found})
    leave()


def table(lines: Sequence[Mapping[str, Any]]) -> Table:
    """Return the causes of each traffic, the most frequent first, with the medians of their figures."""
    view = Table(title=f"Causes of {sum('cause' in line for line in lines)} failures in {len(lines)} drives")
    figures = [field.name for field in dataclasses.fields(Cause)][1:]
    for column in ("traffic", "cause", "drives", *figures):
        view.add_column(column.replace("_", " "))
    counted = Counter((line["traffic"], line["cause"]["name"]) for line in lines if "cause" in line)
    for (traffic, name), number in counted.most_common():
        of = [line["cause"] for line in lines if "cause" in line and line["traffic"] == traffic]
        values = [
            [each[figure] for each in of if each["name"] == name and each[figure] is not None] for figure in figures
        ]
        view.add_row(traffic, name, str(number), *(f"{np.median(each):.1f}" if each else "" for each in values))
    return view


def main(
    checkpoint: Annotated[str, typer.Option(help="Path of a run, a checkpoint or a folder of runs.")],
    town: Annotated[str, typer.Option(help="Town that has routes. Make choices on the validation towns only.")] = (
        VALIDATION_TOWN
    ),
    map: Annotated[str | None, typer.Option(help="The town's .xodr file, if it is a map of CARLA.")] = None,
    traffic: Annotated[str, typer.Option(help="Traffic densities of NoCrash, separated by commas.")] = "dense",
    weather: Annotated[str, typer.Option(help="Weather preset of CARLA.")] = "ClearNoon",
    routes: Annotated[
        int, typer.Option(min=1, max=nocrash.ROUTES, help="Number of routes, from the first one on.")
    ] = 10,
    seeds: Annotated[str | None, typer.Option(help="Training seeds, separated by commas. Default: all.")] = None,
    out: Annotated[Path, typer.Option(help="Folder for the results, one line per drive.")] = Path("runs/causes"),
) -> None:
    """Drive, and count why drives fail."""
    out.mkdir(parents=True, exist_ok=True)
    lines, wanted = out / "causes.jsonl", traffic.split(",")
    chosen = None if seeds is None else {int(text) for text in seeds.split(",")}
    named = [each for each in checkpoints_in([f"td3={checkpoint}"], False) if chosen is None or each[3] in chosen]
    for density in (each for each in nocrash.densities(town) if each.name in wanted):
        for who in named:
            group = Group(town, map or town, *who, density, weather, 45.0, 0.0, tuple(range(routes)), lines)
            group = dataclasses.replace(group, routes=left_to_drive(group, driven_before(lines)))
            if group.routes:
                process = get_context("spawn").Process(target=work, args=(group,))
                process.start()
                process.join()
    Console(width=None if sys.stdout.isatty() else 190).print(table([*read_lines(lines)]))


if __name__ == "__main__":
    typer.run(main)
