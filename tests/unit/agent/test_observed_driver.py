"""An observer of a driver gets its routes and pictures, and changes nothing."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cv2
import numpy as np

from carla_td3.env.observation import DriverState
from carla_td3.evaluation.contact_sheet import GAP
from carla_td3.evaluation.drivers import RandomDriver
from carla_td3.evaluation.observed_driver import PICTURE_EVERY, SHEET_WIDTH, Album, ObservedDriver
from tests.unit.agent.roads import road, state

APART = SHEET_WIDTH + GAP


def states(name: str, count: int) -> list[DriverState]:
    route = road((49, 0.0), name=name)
    return [state(route, x) for x in range(count)]


def seen(step: int) -> dict[str, Any]:
    return {"image": np.full((4, 84, 84), 10 * step % 256, np.uint8)}


def looked_at() -> Any:
    camera = np.random.default_rng(0).integers(0, 256, (84, 84, 4), np.uint8)
    return SimpleNamespace(car=SimpleNamespace(sensors=SimpleNamespace(newest=camera)))


def test_each_route_is_told_once() -> None:
    drive = [*states("a>b", 5), *states("c>d", 3)]
    told: list[tuple[str, int]] = []
    watched = ObservedDriver("random", RandomDriver(np.random.default_rng(7)), lambda *each: told.append(each))
    alone = RandomDriver(np.random.default_rng(7))
    for step, now in enumerate(drive):
        assert (watched.act(seen(step), now) == alone.act(seen(step), now)).all()
    assert told == [("random", 1), ("random", 2)]


def test_an_album_has_a_sheet_and_an_observation(tmp_path: Path) -> None:
    album = Album(looked_at())
    assert album.write(tmp_path) == {}
    watched = ObservedDriver("td3", RandomDriver(np.random.default_rng(0)), lambda *_: None, album)
    for step, now in enumerate(states("a>b", 3 * PICTURE_EVERY)):
        watched.act(seen(step), now)
    found = album.write(tmp_path / "videos")
    assert found == {"eval/contact_sheet": "evaluation.png", "eval/observation": "observation.png"}
    sheet, observation = (cv2.imread(str(tmp_path / "videos" / file)) for file in found.values())
    assert sheet is not None
    assert observation is not None
    assert sheet.shape[1] == observation.shape[1] - APART  # three pictures beside four planes
    assert (observation[50, 50::APART] == 10 * 2 * PICTURE_EVERY % 256).all()


def test_a_disk_that_refuses_costs_the_pictures_alone(tmp_path: Path) -> None:
    album = Album(looked_at())
    album.see(seen(0), states("a>b", 1)[0])
    (tmp_path / "videos").touch()  # a file in the folder's place
    assert album.write(tmp_path / "videos") == {}
