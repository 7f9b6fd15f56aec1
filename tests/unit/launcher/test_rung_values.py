"""A rung sets keys that the agent has, to values that they can have: asked of the agent's own footprint."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from carla_launcher.decide.ladder import Ladder, build_ladder, picked_rungs
from carla_launcher.observe.pools import PoolKind
from carla_launcher.resolve import footprint
from carla_launcher.rungs.apply import RungError
from carla_launcher.rungs.restart_agent import FreshAgent
from carla_launcher.rungs.rung import Rung
from carla_launcher.sizes import Sizes, Values
from carla_td3 import config as agent_config
from carla_td3.memory import estimate
from tests.unit.launcher.planned import AGENT, BASE, RUNGS

ALL = picked_rungs(RUNGS, None)


def of_the_agent(variants: Sequence[Values]) -> list[Sizes]:
    """Return sizes by the rule, or the agent's own refusal of a variant."""
    asked = [dict(values) for values in variants]
    found = estimate.variants(agent_config.validate({}, "a test"), asked)["variants"]
    return [footprint.read(values, row) for values, row in zip(asked, found, strict=True)]


def checked(rungs: dict[PoolKind, tuple[Rung, ...]]) -> Ladder:
    return build_ladder(rungs, AGENT.present(BASE), None, of_the_agent)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"td3.micro_batch": "halve"}, "`td3.micro_batch` is 'halve'; expected a whole number"),
        ({"td3.micro_batch": -1}, "`td3.micro_batch` is -1; expected at least 1"),
        ({"td3.micro_bach": 8}, "unknown key `td3.micro_bach` (did you mean `td3.micro_batch`?)"),
        ({"td3.micro_bach": "half"}, "`td3.micro_bach: half` is of no amount that the agent has; expected one of"),
        ({"device": "half"}, "`device: half` is of no amount"),
        ({"memory.offload": ["network"]}, "`memory.offload.0` is 'network'; expected 'optimizer' or 'targets'"),
        ({"evaluation.video": "perhaps"}, "`evaluation.video` is 'perhaps'; expected true or false"),
    ],
)
def test_a_rung_that_sets_what_the_agent_has_not_is_refused_by_name(values: dict[str, Any], expected: str) -> None:
    rung = FreshAgent(name="wrong", values=values, cost="")
    with pytest.raises(RungError, match=r"^Rung wrong of ladder\.ram can't be taken: ") as refused:
        checked({PoolKind.RAM: (*ALL[PoolKind.RAM], rung)})
    assert expected in str(refused.value)


def test_the_shipped_rungs_and_one_that_only_this_configuration_refuses_stand() -> None:
    checked(ALL)
    halved = FreshAgent(name="r", values={"replay.capacity": "half"}, cost="")  # below 1 000 at last
    checked({PoolKind.DISK: (halved,)})
