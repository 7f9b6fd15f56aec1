"""Memory counts to the phase that the heartbeats before and after it name."""

from __future__ import annotations

import pytest

from carla_launcher.decide.phase_peak import PhasePeak
from carla_launcher.observe.pools import PoolKind
from carla_run.heartbeat import Heartbeat, Phase

LEARNS, EVALUATES = Phase.UPDATING, Phase.EVALUATING


@pytest.mark.parametrize(
    ("looks", "counted"),
    [
        ([(1, LEARNS, 10), (2, LEARNS, 11), (3, LEARNS, 12)], [0, 10, 11]),
        ([(1, LEARNS, 10), (1, LEARNS, 30), (2, LEARNS, 12)], [0, 0, 30]),
        ([(1, LEARNS, 10), (1, LEARNS, 90), (2, EVALUATES, 90), (3, EVALUATES, 91)], [0, 0, 0, 90]),
        ([(1, Phase.COLLECTING, 10), (2, Phase.SAVING, 11)], [0, 10]),
    ],
)
def test_memory_counts_once_the_next_heartbeat_has_the_same_phase(
    looks: list[tuple[float, Phase, float]], counted: list[float]
) -> None:
    peak = PhasePeak()
    found = [peak.look(Heartbeat(time, 1, phase, 0), {PoolKind.RAM: mib}) for time, phase, mib in looks]
    assert [each.get(PoolKind.RAM, 0) for each in found] == counted
