"""One search for the start and for the run: for the same shortage both take the same steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

from launcher.decide import plan
from launcher.decide.choose import Ground, Lack
from launcher.decide.fit import Candidate, Situation, Sum, lives_in
from launcher.observe.pools import Owner, OwnerKind, Pool, PoolKind, Reading, measured
from tests.unit.launcher.planned import LIMITS, Rule, reading, simulator, situation

NAMES = ("micro_batches", "offload", "agent_cpu", "carla_low", "smaller_batch", "no_video", "fewer_checkpoints")
rules = st.builds(
    Rule,
    networks=st.integers(1, 400),
    optimizer=st.integers(0, 200),
    row=st.integers(0, 2),
    processes=st.integers(100, 1000),
)
machines: Any = st.fixed_dictionaries(
    {
        "vram": st.integers(4500, 7000),
        "xorg": st.integers(0, 400),
        "ram": st.integers(7_500, 9_500),
        "disk": st.integers(1_100, 1_500),
    }
)
policies = st.none() | st.lists(st.sampled_from(NAMES), min_size=1, max_size=len(NAMES), unique=True)


def running(made: Situation, asked: Candidate) -> Reading:
    """Return the same machine while simulator and agent hold exactly what the plan says that they take."""
    runs = made.simulator
    assert runs is not None

    def with_both(pool: Pool) -> Pool:
        takes = {
            OwnerKind.SIMULATOR: runs.peak(runs.quality, pool.kind).mib or 0.0,
            OwnerKind.AGENT: asked.agent.mib.get(pool.kind, 0.0),
        }
        held = {whose: mib for whose, mib in takes.items() if lives_in(whose, pool.name, pool.kind, made.cards)}
        owners = tuple(Owner(whose.value, whose, (1,), measured(mib)) for whose, mib in held.items())
        assert pool.free.mib is not None
        free = measured(max(0.0, pool.free.mib - sum(held.values())))
        return replace(pool, free=free, owners=(*pool.owners, *owners))

    return replace(made.reading, pools=tuple(map(with_both, made.reading.pools)))


@given(seen=machines, agent=rules, quality=st.sampled_from(["Epic", "Low"]), policy=policies)
def test_for_the_same_shortage_start_and_run_choose_the_same_steps(
    seen: dict[str, float], agent: Rule, quality: str, policy: list[str] | None
) -> None:
    made = situation(reading(**seen), agent, simulator(quality), policy)
    planned = plan.make_plan(made, agent)
    short: list[Sum] = [each for each in planned.asked.sums if each.short_mib]
    assume(len(short) == 1)  # in a run each pool that is short is a finding of its own

    def needs(values: Mapping[str, Any]) -> Mapping[PoolKind, float]:
        return agent.one({**made.base, **values}).mib

    fresh = {kind: made.simulator.peak(quality, kind).mib or 0.0 for kind in PoolKind if made.simulator}
    ground = Ground(made.ladder, (), running(made, planned.asked), LIMITS.memory.reserve_mib, needs, fresh)
    chosen = ground.choose(Lack(short[0].kind, short[0].short_mib, short[0].pool))
    assert chosen == (planned.start.steps if planned.start else ())
