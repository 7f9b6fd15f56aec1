"""NoCrash's routes: drawn once by a seed, kept, and refused on another map."""

from __future__ import annotations

from pathlib import Path

import carla
import pytest

from carla_lite.towns import generator
from carla_td3.env.route import Planner, RouteError
from carla_td3.evaluation import nocrash


@pytest.fixture(scope="module")
def planner() -> Planner:
    name = "Lite:seed=2,size=400"
    return Planner(carla.Map(name, generator.generate(name)))


def test_routes_are_a_function_of_the_seed(planner: Planner) -> None:
    routes = nocrash.draw(planner, 0)
    assert len({route.name for route in routes}) == nocrash.ROUTES
    assert all(300.0 <= route.length_m <= 1000.0 and route.junctions >= 3 for route in routes)
    assert [route.name for route in nocrash.draw(planner, 0)] == [route.name for route in routes]
    assert [route.name for route in nocrash.draw(planner, 1)] != [route.name for route in routes]


def test_long_routes_are_drawn_by_their_length(planner: Planner) -> None:
    asked = nocrash.LENGTHS.model_copy(update={"min_length_m": 600.0})
    assert all(600.0 <= route.length_m <= 1000.0 for route in nocrash.draw(planner, 0, asked))


def test_kept_routes_are_refused_on_another_map(planner: Planner, tmp_path: Path) -> None:
    routes, kept = nocrash.draw(planner, 0), tmp_path / "town.json"
    nocrash.write(kept, routes, "town", 0)
    assert [(route.name, route.length_m) for route in nocrash.read(kept, planner)] == [
        (route.name, route.length_m) for route in routes
    ]
    other = Planner(carla.Map("other", generator.generate("Lite:seed=3,size=400")))
    with pytest.raises(RouteError, match="isn't the one of"):
        nocrash.read(kept, other)


@pytest.mark.parametrize("town", ["Town01", "Town02", "Lite:seed=7,size=400"])
def test_empty_regular_and_dense_are_told_apart_in_every_town(town: str) -> None:
    empty, regular, dense = nocrash.densities(town)
    assert (empty.vehicles, empty.walkers) == (0, 0)
    assert 0 < regular.vehicles < dense.vehicles
    assert 0 < regular.walkers < dense.walkers
