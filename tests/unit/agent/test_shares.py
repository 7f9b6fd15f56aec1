"""Division among several collectors: settings, seeds and steps; no division with a single one."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from carla_td3 import config
from carla_td3.config import AgentConfig, dump
from carla_td3.trainer.shares import CollectorProgress, settings_of, step_limits

SEVERAL = {
    "seed": 5,
    "simulator": {"port": 3000},
    "replay": {"capacity": 10_000},
    "training": {"collectors": 4, "warmup_steps": 400},
}


def several(**training: object) -> AgentConfig:
    return config.validate({**SEVERAL, "training": {**SEVERAL["training"], **training}}, "test")  # type: ignore[dict-item]


@given(st.integers(0, 10_000))
def test_an_only_collector_is_sent_the_runs_own_settings(steps: int) -> None:
    alone = config.validate({"seed": 3, "simulator": {"map": "Lite02"}}, "test")
    assert settings_of(alone, 0, "Lite02", steps, steps) == dump(alone)


def test_each_has_its_simulator_its_seed_and_its_part_of_the_ring() -> None:
    sent = [config.validate(settings_of(several(), number, None, 0, 0), "test") for number in range(4)]
    assert [each.simulator.port for each in sent] == [3000, 3003, 3006, 3009]
    assert {each.replay.capacity for each in sent} == {2500}
    assert sent[0].seed == 5
    assert len({each.seed for each in sent}) == 4
    assert [each.seed for each in sent] == [settings_of(several(), number, None, 9, 99)["seed"] for number in range(4)]


def test_addresses_that_are_named_win() -> None:
    values = {**SEVERAL, "simulator": {"host": "here", "others": "a:1,b:2,c:3"}}
    sent = [settings_of(config.validate(values, "test"), number, None, 0, 0)["simulator"] for number in range(4)]
    assert [(each["host"], each["port"]) for each in sent] == [("here", 2000), ("a", 1), ("b", 2), ("c", 3)]


def test_the_rest_of_the_warm_up_is_shared() -> None:
    def ends(own: int, steps: int) -> int:
        return int(settings_of(several(), 1, None, own, steps)["training"]["warmup_steps"])

    assert ends(0, 0) == 100
    assert ends(30, 200) == 80
    assert ends(0, 400) == 0  # one that joins when the others are through drives by the policy at once
    assert ends(900, 4000) == 400


@given(st.integers(0, 10**6), st.integers(0, 100), st.booleans())
def test_an_only_collector_may_have_all_steps(allowed: int, steps: int, drives: bool) -> None:
    assert step_limits(allowed, [CollectorProgress(steps, 7, drives)], 5) == [allowed]


STANDINGS = st.lists(
    st.builds(CollectorProgress, st.integers(0, 50), st.integers(0, 80), st.just(True)), min_size=2, max_size=6
)


@given(STANDINGS, st.integers(0, 400), st.integers(1, 100))
def test_together_they_get_what_is_allowed_and_nothing_is_taken_back(
    standings: list[CollectorProgress], allowed: int, most: int
) -> None:
    limits = step_limits(allowed, standings, most)
    left = [limit - each.steps for limit, each in zip(limits, standings, strict=True)]
    had = [max(0, each.limit - each.steps) for each in standings]
    assert all(now >= before for now, before in zip(left, had, strict=True))
    assert sum(limits) <= max(allowed, sum(each.steps for each in standings) + sum(had))
    if sum(limits) < allowed:
        assert min(left) >= most
    given = [now for now, before in zip(left, had, strict=True) if now > before]
    assert not given or max(given) <= min(left) + 1, "who has the fewest left comes first"


def test_one_without_a_simulator_holds_up_nobody() -> None:
    standings = [CollectorProgress(10, 20, True), CollectorProgress(10, 20, False)]
    assert step_limits(40, standings, 100) == [30, 10]
    assert step_limits(40, [replace(each, drives=False) for each in standings], 100) == [20, 20]


def test_the_last_step_is_taken_by_one() -> None:
    standings = [CollectorProgress(33, 33, True), CollectorProgress(33, 33, True), CollectorProgress(33, 33, True)]
    assert sum(step_limits(100, standings, 10)) == 100
