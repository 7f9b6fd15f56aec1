"""Overlays on a picture are at the place of the thing, with the right text."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest

from carla_td3.config import CameraConfig
from carla_td3.env.hazards import NOTHING, Hazards, Light, OtherActors, StopLine, World
from carla_td3.env.observation import DriverState
from carla_td3.evaluation import overlay
from carla_td3.evaluation.overlay import (
    FRONT,
    GREEN,
    HEAT,
    RED,
    SIDE_WIDTH,
    TOWN_HEIGHT,
    WHITE,
    OverlayData,
    Picture,
    TownMap,
)
from tests.unit.agent.roads import road, state

LEVEL = CameraConfig(x_m=0.0, z_m=1.8, pitch_deg=0.0, fov_deg=90.0)
ROUTE = road((99, 0.0), half_m=1.75)
TOWN = TownMap([ROUTE.points])
at = partial(state, ROUTE)


def seen(state: DriverState, world: World | None = None, hazards: Hazards = NOTHING, **more: object) -> OverlayData:
    fields = {"action": (0.0, 0.5), "completion": 0.4, **more}
    return OverlayData(state=state, world=world or World(), hazards=hazards, **fields)  # type: ignore[arg-type]


def picture_of(shown: OverlayData, lens: CameraConfig = LEVEL, front: int = 84) -> Picture:
    dark = np.full((front, front, 3), 40, np.uint8)
    return overlay.composed(dark, lens, shown, TOWN, None)


def above(picture: Picture) -> Picture:
    return picture[:TOWN_HEIGHT, FRONT:]


def where(picture: Picture, colour: tuple[int, int, int]) -> tuple[float, float]:
    """Return the middle of what has this colour, (column, row)."""
    rows, columns = np.nonzero((np.abs(picture.astype(int) - colour) < 12).all(axis=2))
    assert len(rows), f"nothing is {colour}"
    return float(columns.mean()), float(rows.mean())


@pytest.mark.parametrize(
    ("point", "pixel"),
    [((10.0, 0.0), (50.0, 59.0)), ((10.0, 5.0), (75.0, 59.0)), ((20.0, -5.0), (37.5, 54.5))],
)
def test_points_of_the_ground_lie_where_the_camera_sees_them(
    point: tuple[float, float], pixel: tuple[float, float]
) -> None:
    found, before = overlay.projected(np.array([point]), LEVEL, at(0.0), 100)
    assert before.all()
    assert found[0] == pytest.approx(pixel)
    # From another place, and turned, it is the same.
    turned = at(0.0, yaw=math.pi / 2.0)
    found, _ = overlay.projected(np.array([(-point[1], point[0])]), LEVEL, turned, 100)
    assert found[0] == pytest.approx(pixel)


def test_a_camera_that_looks_down_sees_a_point_higher() -> None:
    down = LEVEL.model_copy(update={"pitch_deg": -12.0})
    points = np.array([(10.0, 0.0), (-3.0, 0.0)])
    (level, _), _ = overlay.projected(points, LEVEL, at(0.0), 100)
    (lower, _), before = overlay.projected(points, down, at(0.0), 100)
    assert lower[1] < level[1]
    assert before.tolist() == [True, False]


def test_a_camera_that_looks_to_the_right_has_there_in_its_middle() -> None:
    aside = LEVEL.model_copy(update={"x_m": 1.0, "yaw_deg": 30.0})
    there = np.array([(1.0 + 10.0 * math.cos(math.radians(30.0)), 10.0 * math.sin(math.radians(30.0))), (11.0, 0.0)])
    (middle, ahead), before = overlay.projected(there, aside, at(0.0), 100)
    assert before.all()
    assert middle == pytest.approx((50.0, 59.0))
    assert ahead[0] == pytest.approx(50.0 - 50.0 * math.tan(math.radians(30.0)))


def test_the_route_ahead_turns_with_the_car() -> None:
    plain = np.full((FRONT, FRONT, 3), 40, np.uint8)

    def column(state: DriverState) -> float:
        changed = picture_of(seen(state), front=FRONT)[:, :FRONT].astype(int) - plain
        rows, columns = np.nonzero(changed[100:, :, 1] > 30)
        assert rows.min() + 100 > FRONT / 2  # below the horizon
        return float(columns.mean())

    assert column(at(0.0)) == pytest.approx(FRONT / 2, abs=3)
    assert column(at(0.0, yaw=0.2)) < FRONT / 2 - 40
    assert column(at(0.0, yaw=-0.2)) > FRONT / 2 + 40


def test_the_view_from_above_shows_who_is_around() -> None:
    car = OtherActors(np.array([(20.0, 3.5)]), np.zeros(1), np.array([(2.4, 1.0)]), np.zeros((1, 2)), np.zeros(1))
    walker = OtherActors(np.array([(10.0, -6.0)]), np.zeros(1), np.array([(0.2, 0.2)]), np.zeros((1, 2)), np.zeros(1))
    world = World(car, walker, (StopLine(15.0, 0.0, 0.0, Light.RED),))
    town = above(picture_of(seen(at(0.0), world)))
    own, other = where(town, WHITE), where(town, overlay.BLUE)
    person, light = where(town, overlay.ORANGE), where(town, RED)
    assert own[0] == pytest.approx(SIDE_WIDTH / 2, abs=2)
    assert other[1] < light[1] < person[1] < own[1]  # what is farther ahead is higher
    assert person[0] < own[0] < other[0]  # and what is to the right is to the right


def test_bars_and_the_light_have_their_colours() -> None:
    ahead = Hazards(light=Light.RED, light_gap_m=12.0)

    def green(pedal: float) -> int:
        side = picture_of(seen(at(0.0), hazards=ahead, action=(0.0, pedal)))[TOWN_HEIGHT:, FRONT:]
        assert (side == RED).all(axis=2).any()
        return int((side == GREEN).all(axis=2).sum())

    assert green(1.0) > green(0.5) > green(-0.5) == 0


def test_heat_brightens_what_matters_and_darkens_the_rest() -> None:
    heat = np.zeros((84, 84), np.float32)
    heat[20:30, 50:60] = 3.0
    grey = np.full((168, 168, 3), 120, np.uint8)
    lit = overlay.with_heatmap(grey, heat).astype(int).sum(axis=2)
    assert lit[50, 110] > 2 * lit[120, 40]
    flat = overlay.with_heatmap(grey, np.zeros((84, 84), np.float32))  # where nothing matters nothing is lit
    assert flat.max() < 120


def test_sizes_are_what_the_encoder_is_told() -> None:
    heatmaps = {name: np.ones((84, 84), np.float32) for name in ("a", "b", "c")}
    for given in (None, heatmaps):
        dark = np.zeros((84, 84, 3), np.uint8)
        made = overlay.composed(dark, LEVEL, seen(at(0.0)), TOWN, given)
        assert (made.shape[1], made.shape[0]) == overlay.size_of(given is not None)
        assert made.shape[1] % 8 == made.shape[0] % 8 == 0
    assert overlay.size_of(True)[0] - overlay.size_of(False)[0] == HEAT


def test_a_film_keeps_its_size_and_shows_the_agents_own_view() -> None:
    picture = np.full((360, 640, 3), 40, np.uint8)
    own = overlay.views(np.full((1, 84, 84), 200, np.uint8), CameraConfig())
    drawn = overlay.filmed(picture, own, seen(at(0.0), title="td3"), TOWN)
    assert drawn.shape == (360, 640, 3)
    assert (drawn[20:170, 470:620] == 200).all()


def test_a_film_shows_all_views_from_left_to_right() -> None:
    camera = CameraConfig.model_validate(
        {"channels": "rgb", "yaw_deg": 20.0, "narrow": {"channels": "grey", "yaw_deg": -26.0}, "stack": {"frames": 2}}
    )
    frame = np.empty((4, 84, 84), np.uint8)
    frame[:] = np.array([250, 120, 10, 80], np.uint8)[:, None, None]  # red, green, blue, and the left view's grey
    own = overlay.views(frame, camera)
    assert [tuple(view[0, 0]) for view in own] == [(80, 80, 80), (10, 120, 250)], "blue first"
    picture = np.full((360, 640, 3), 40, np.uint8)
    drawn = overlay.filmed(picture, own, seen(at(0.0)), TOWN)
    assert (drawn[20:130, 510:624] == (10, 120, 250)).all()
    assert (drawn[20:130, 380:496] == 80).all()
