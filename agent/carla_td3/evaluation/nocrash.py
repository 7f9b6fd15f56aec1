"""NoCrash (Codevilla et al. 2019): three densities of traffic, and 25 routes per town that are drawn once and saved.

Owns the routes' files and the meaning of empty, regular and dense. Drives nothing.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from carla_run.files import write_whole
from carla_td3.config import RouteConfig
from carla_td3.env.route import Planner, Route, RouteError

ROUTES = 25
LENGTHS = RouteConfig(min_length_m=300.0, max_length_m=1000.0, held_out_fraction=0.0)
LONG = LENGTHS.model_copy(update={"min_length_m": 1000.0, "max_length_m": 2000.0})
"""For driving scores over long roads, in towns with a side of 800 m."""
MIN_JUNCTIONS = 3
SAME_LENGTH_M = 1.0


@dataclass(frozen=True)
class Density:
    """Numbers of cars and pedestrians in a drive."""

    name: str
    vehicles: int
    walkers: int


# The paper's numbers are for simulator 0.8. Its port to 0.9 uses up to 400 pedestrians, because most of CARLA 0.9's
# walk on pavements away from the car. Here half of the smaller number cross roads anywhere; 150 pedestrians on Town02's
# 1.5 km of road are already one every 10 m.
DENSITIES = {
    "Town01": (Density("empty", 0, 0), Density("regular", 20, 50), Density("dense", 100, 250)),
    "Town02": (Density("empty", 0, 0), Density("regular", 15, 50), Density("dense", 70, 150)),
}
GENERATED = DENSITIES["Town01"]
"""Densities for towns from a seed with the usual side of 400 m: as large as Town01."""


def densities(town: str) -> tuple[Density, ...]:
    """Return the densities empty, regular and dense of a town."""
    return DENSITIES.get(town, GENERATED)


def draw(planner: Planner, seed: int, lengths: RouteConfig = LENGTHS) -> list[Route]:
    """Return ``ROUTES`` different routes, by default of 300 to 1 000 m, through at least three junctions.

    Raises:
        RouteError: the map doesn't have so many.
    """
    rng, routes = np.random.default_rng(seed), {}
    for _ in range(40 * ROUTES):
        route = planner.sample(rng, lengths)
        if route.junctions >= MIN_JUNCTIONS:
            routes[route.name] = route
        if len(routes) == ROUTES:
            return list(routes.values())
    raise RouteError(f"Map {planner.name} has {len(routes)} routes of NoCrash's kind, {ROUTES} were asked for.")


def write(path: Path, routes: list[Route], town: str, seed: int) -> None:
    """Save the routes: their ends, and their lengths, by which a different map is recognised."""
    kept = [{"start": start, "end": end, "length_m": round(length, 1)} for start, end, length in map(_ends, routes)]
    write_whole(path, json.dumps({"town": town, "seed": seed, "routes": kept}, indent=1) + "\n")


def read(path: Path, planner: Planner) -> list[Route]:
    """Return the saved routes on this map.

    Raises:
        RouteError: the routes were drawn on another map.
    """
    places = {place.name: place for place in planner.places}
    routes = []
    for kept in json.loads(path.read_text(encoding="utf-8"))["routes"]:
        ends = [places.get(kept[end]) for end in ("start", "end")]
        route = planner.route(*ends) if None not in ends else None  # type: ignore[arg-type]
        if route is None or abs(route.length_m - kept["length_m"]) > SAME_LENGTH_M:
            raise RouteError(
                f"Map {planner.name} isn't the one of {path}: the route from {kept['start']} to {kept['end']}, "
                f"{kept['length_m']} m there, is {'missing' if route is None else f'{route.length_m:.1f} m'} here."
            )
        routes.append(route)
    return routes


def _ends(route: Route) -> tuple[str, str, float]:
    start, _, end = route.name.partition(">")
    return start, end, route.length_m
