from __future__ import annotations

import contextlib
import math
from pathlib import Path

import carla
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from carla_lite.roads import network
from carla_td3.config import RouteConfig
from carla_td3.env.route import Planner, Route, RouteError, Split, held_out_routes
from carla_td3.env.route_line import WINDOW_AHEAD_M, WINDOW_BACK_M

MAPS = Path(__file__).resolve().parents[3].parent / "shared" / "maps"
CONFIG = RouteConfig()


def line(*corners: tuple[float, float]) -> Route:
    """A route through corners, a point every metre."""
    points = [np.array(corners[0], float)]
    for corner in corners[1:]:
        metres = round(float(np.hypot(*(np.array(corner) - points[-1]))))
        points.extend(np.linspace(points[-1], corner, metres + 1)[1:])
    flat = np.array(points)
    return Route.through("test", np.column_stack([flat, np.zeros(len(flat))]), np.full(len(flat), 2.0), 0)


def winding() -> Route:
    return line((0.0, 0.0), (40.0, 7.0), (60.0, 40.0), (100.0, 30.0), (110.0, 60.0))


@pytest.fixture(scope="module", params=["Town01", "Town02", "Lite01", "Lite02"])
def planner(request: pytest.FixtureRequest) -> Planner:
    if request.param.startswith("Lite"):
        return Planner(carla.Map(request.param, network.load(request.param).xodr))
    path = MAPS / f"{request.param}.xodr"
    if not path.exists():
        pytest.skip(f"{path.name} is not beside the repository")
    return Planner(carla.Map(request.param, path.read_text(encoding="utf-8")))


def sampled(planner: Planner, count: int = 25, min_turns: int = 0) -> list[Route]:
    rng = np.random.default_rng(0)
    return [planner.sample(rng, CONFIG, "train", min_turns) for _ in range(count)]


def test_routes_have_the_length_and_the_turns_asked_for(planner: Planner) -> None:
    for route in sampled(planner, min_turns=2):
        assert CONFIG.min_length_m <= route.length_m <= CONFIG.max_length_m
        assert route.turns >= 2


def test_a_route_is_smooth_enough_to_drive(planner: Planner) -> None:
    for route in sampled(planner):
        assert 0.8 < np.diff(route.s).min() <= np.diff(route.s).max() < 1.2
        assert np.abs(np.diff(route.yaw)).max() < 0.6  # no corner; 0.6 rad a metre is a radius under 2 m
        assert 1.0 < route.half_lane.min() <= route.half_lane.max() < 4.0


def test_routes_never_make_a_u_turn(planner: Planner) -> None:
    for route in sampled(planner):
        within_15_m = route.yaw[15:] - route.yaw[:-15]
        assert np.abs(within_15_m).max() < math.radians(170)


def test_more_routes_than_a_map_has_are_refused_after_few_draws(
    planner: Planner, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = [planner.sample(np.random.default_rng(seed), CONFIG, "held_out") for seed in range(3)]
    drawn: list[Route] = []

    def sample(rng: np.random.Generator, *_: object) -> Route:
        drawn.append(few[int(rng.integers(len(few)))])
        return drawn[-1]

    monkeypatch.setattr(planner, "sample", sample)
    with pytest.raises(RouteError, match="has 3 held-out routes of this kind, 1000000 were asked for"):
        held_out_routes(planner, CONFIG, 1_000_000, seed=3)
    assert len(drawn) < 300


def test_held_out_routes_are_never_drawn_for_training(planner: Planner) -> None:
    held_out = {route.name for route in held_out_routes(planner, CONFIG, 10, seed=3)}
    assert len(held_out) == 10
    assert not held_out & {route.name for route in sampled(planner, 100)}


def test_the_same_seed_draws_the_same_routes(planner: Planner) -> None:
    again = held_out_routes(planner, CONFIG, 5, seed=3)
    assert [r.name for r in again] == [r.name for r in held_out_routes(planner, CONFIG, 5, seed=3)]
    assert [r.name for r in again] != [r.name for r in held_out_routes(planner, CONFIG, 5, seed=4)]


def test_as_many_drives_as_asked_for_begin_before_a_sign() -> None:
    name = "Lite:seed=1001,size=400"  # two stop signs
    map = carla.Map(name, network.load(name).xodr)
    planner = Planner(map)
    signs = [s.transform.location for kind in ("205", "206") for s in map.get_all_landmarks_of_type(kind)]

    def near(before_signs: float, split: Split = "train") -> int:
        rng, config = np.random.default_rng(0), RouteConfig(before_signs=before_signs)
        routes = [planner.sample(rng, config, split) for _ in range(40)]
        return sum(any(np.hypot(*(route.points[:80] - (at.x, at.y)).T).min() < 8.0 for at in signs) for route in routes)

    assert near(1.0) == 40
    assert near(0.5) > 10
    assert near(0.0) < 10
    assert near(1.0, "held_out") < 10


def test_an_end_behind_the_start_is_reached_on_the_way_round(planner: Planner) -> None:
    found = 0
    for start in planner.places:
        for end in planner.places:
            if start.lane == end.lane and end.index <= start.index:
                with contextlib.suppress(RouteError):
                    route, found = planner.route(start, end), found + 1
                    assert route.length_m > 30.0
                    assert route.map == planner.name
    assert found or planner.name.startswith("Lite")


def test_a_map_without_the_wanted_route_is_refused(planner: Planner) -> None:
    config = RouteConfig(min_length_m=9_000, max_length_m=9_100)
    with pytest.raises(RouteError, match=r"has no train route of 9000 to 9100 m .*: widen environment\.route"):
        planner.sample(np.random.default_rng(0), config)


def test_projection_onto_a_crossing_route_does_not_jump() -> None:
    eight = line((0, 0), (40, 0), (40, 20), (20, 20), (20, -20))  # crosses itself at (20, 0)
    first = eight.project(20.0, 0.0, hint_s_m=19.0)
    second = eight.project(20.0, 0.0, hint_s_m=eight.length_m - 21.0)
    assert first.s_m == pytest.approx(20.0, abs=0.5)
    assert second.s_m == pytest.approx(eight.length_m - 20.0, abs=1.0)


def test_cutting_a_corner_never_skips_arc_length() -> None:
    """Distance to goal would pay for the diagonal at once; the projection may move on only within its window."""
    hairpin = line((0, 0), (60, 0), (60, 8), (0, 8))
    across = hairpin.project(30.0, 8.0, hint_s_m=30.0)
    assert across.s_m < 40.0


@given(st.floats(1.0, 99.0), st.floats(-3.0, 3.0))
def test_projection_returns_offset_and_side_on_a_straight_line(along: float, right: float) -> None:
    place = line((0, 0), (100, 0)).project(along, right, hint_s_m=along)
    assert place.s_m == pytest.approx(along, abs=1e-6)
    assert place.lateral_m == pytest.approx(right, abs=1e-6)
    assert place.yaw == pytest.approx(0.0, abs=1e-9)


def test_points_past_the_end_go_straight_on() -> None:
    route = line((0, 0), (100, 0))
    ahead = route.ahead(90.0, 25, 2.0)
    np.testing.assert_allclose(ahead, np.stack((np.arange(92.0, 141.0, 2.0), np.zeros(25)), axis=1), atol=1e-9)


@given(st.integers(0, 10_000))
def test_a_projection_is_what_all_segments_give(seed: int) -> None:
    route, rng = winding(), np.random.default_rng(seed)
    hint_s_m = float(rng.uniform(0.0, route.length_m))
    x, y = (float(value) for value in rng.normal(route.points[int(hint_s_m)], 6.0))
    starts, segments = route.points[:-1], np.diff(route.points, axis=0)
    step = route.length_m / len(segments)
    first, last = int((hint_s_m - WINDOW_BACK_M) / step), int((hint_s_m + WINDOW_AHEAD_M) / step) + 1
    near = slice(max(0, first), last)
    offsets = np.array((x, y)) - starts[near]
    share = (offsets * segments[near]).sum(axis=1) / (segments[near] ** 2).sum(axis=1)
    share = np.clip(share, 0.0, 1.0)
    gaps = offsets - share[:, None] * segments[near]
    best = int(np.argmin((gaps**2).sum(axis=1)))
    found, i = route.project(x, y, hint_s_m), max(0, first) + best
    assert found.s_m == route.s[i] + share[best] * (route.s[i + 1] - route.s[i])
    assert abs(found.lateral_m) == math.hypot(*gaps[best])
    assert found.yaw == route.yaw[i] + share[best] * (route.yaw[i + 1] - route.yaw[i])
    assert found.half_lane_m == route.half_lane[i]


@given(st.floats(0.0, 140.0), st.floats(0.5, 4.0))
def test_points_ahead_are_interpolated_to_the_last_bit(s_m: float, spacing_m: float) -> None:
    route = winding()
    wanted = s_m + spacing_m * np.arange(1, 26)
    before_end = wanted < route.length_m
    by_axis = [np.interp(wanted, route.s, route.points[:, axis]) for axis in (0, 1)]
    expected = np.stack(by_axis, axis=1)[before_end]
    np.testing.assert_array_equal(route.ahead(s_m, 25, spacing_m)[before_end], expected)


def test_a_lane_that_begins_with_no_width_counts_as_a_metre_wide() -> None:
    flat = np.column_stack([np.arange(0.0, 20.0), np.zeros(20), np.zeros(20)])
    route = Route.through("opens", flat, np.linspace(0.0, 1.75, 20), 0)
    assert route.project(0.0, 0.004, 0.0).half_lane_m == 0.5
    assert route.half_lane[-1] == pytest.approx(1.75)


def test_two_points_are_no_route() -> None:
    with pytest.raises(RouteError, match="expected at least 3"):
        Route.through("x", np.zeros((2, 3)), np.ones(2), 0)
