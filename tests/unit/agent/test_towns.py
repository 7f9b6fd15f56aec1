"""Which town is next: a function of the episodes begun, whatever was killed in between."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carla_td3 import config
from carla_td3.config import ConfigError
from carla_td3.trainer.towns import Assignment, Towns


def towns(**values: object) -> Towns:
    settings = {"simulator": {"map": "Lite02"}, "training": {"towns": values or None}}
    return Towns.of(config.validate(settings, "test"))


def test_without_towns_there_is_one_station_for_everything() -> None:
    assert towns().driving(0) == towns().driving(10**6) == towns().evaluating(7) == Assignment("Lite02")


def test_a_new_seed_comes_every_so_many_episodes() -> None:
    seeded = towns(every_episodes=3, first_seed=50)
    assert [seeded.driving(begun).map for begun in (0, 2, 3, 8)] == [
        f"Lite:seed={seed},size=400" for seed in (50, 50, 51, 52)
    ]


def test_named_maps_and_folders_come_round(tmp_path: Path) -> None:
    for name in ("b", "a"):
        (tmp_path / f"{name}.xodr").touch()
    listed = towns(maps=["Town01", str(tmp_path)], every_episodes=1)
    files = [str(tmp_path / f"{name}.xodr") for name in "ab"]
    assert [listed.driving(begun).map for begun in range(4)] == ["Town01", *files, "Town01"]


def test_each_of_several_collectors_drives_in_towns_of_its_own() -> None:
    settings = config.validate({"training": {"towns": {"every_episodes": 2}, "collectors": 3}}, "test")
    seeds = [[Towns.of(settings, number).driving(begun).map for begun in (0, 1, 2, 5)] for number in range(3)]
    assert seeds == [[f"Lite:seed={1000 + number + 3 * turn},size=400" for turn in (0, 0, 1, 2)] for number in range(3)]
    assert Towns.of(settings, 2).driving(2).until_episode == 4


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="a folder without"):
        towns(maps=[str(tmp_path)])


def test_nobody_drives_for_training_where_evaluations_are() -> None:
    assert towns(evaluation_map="Lite01").evaluating(5) == Assignment("Lite01", until_episode=0)
    assert towns(every_episodes=4).evaluating(5) == towns(every_episodes=4).driving(5)


@given(st.integers(0, 10**6), st.integers(1, 100))
def test_a_town_ends_where_the_next_begins(begun: int, every: int) -> None:
    seeded = towns(every_episodes=every)
    here = seeded.driving(begun)
    assert here.until_episode is not None
    assert begun < here.until_episode <= begun + every
    assert seeded.driving(here.until_episode - 1) == here
    assert seeded.driving(here.until_episode).map != here.map
