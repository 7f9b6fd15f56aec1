"""One search for the start and for the run: for the same shortage both take the same steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from carla_launcher.decide import plan
from carla_launcher.decide.choose import Context, Deficit
from carla_launcher.decide.fit import Candidate, Situation, uses_pool
from carla_launcher.observe.pools import Owner, OwnerKind, Pool, PoolKind, Reading, measured
from tests.unit.launcher.planned import LIMITS, Rule, reading, simulator, situation

NAMES = ("micro_batches", "offload", "agent_cpu", "carla_low", "smaller_batch", "no_video", "fewer_checkpoints")
rules = st.builds(
    Rule,
    networks=st.integers(1, 400),
    optimizer=st.integers(0, 200),
    row=st.integers(0, 2),
    processes=st.integers(100, 1000),
)
xorgs = st.integers(0, 400)
policies = st.none() | st.lists(st.sampled_from(NAMES), min_size=1, max_size=len(NAMES), unique=True)
LEFT_MIB = {PoolKind.VRAM: 1500, PoolKind.RAM: 1500, PoolKind.DISK: 200}
"""The most that a drawn machine has more, or less, than what was asked for takes."""


@st.composite
def short_of_one(draw: st.DrawFn) -> tuple[Situation, Rule]:
    """Draw what is asked for, then a machine with too little of one pool: in a run each that is short is a finding."""
    agent, quality, policy, xorg = draw(rules), draw(st.sampled_from(["Epic", "Low"])), draw(policies), draw(xorgs)

    def on(**machine: float) -> Situation:
        return situation(reading(xorg=xorg, **machine), agent, simulator(quality), policy)

    asked = plan.make_plan(on(disk=100_000), agent).asked  # an empty disk: what is needed is the run's
    short = draw(st.sampled_from(list(PoolKind)))
    left = {
        kind: draw(st.integers(-most, -1) if kind is short else st.integers(0, most)) for kind, most in LEFT_MIB.items()
    }
    return on(**{each.kind.value: each.needed_mib + left[each.kind] for each in asked.sums}), agent


def running(made: Situation, asked: Candidate) -> Reading:
    """Return the same machine while simulator and agent hold exactly what the plan says that they take."""
    runs = made.simulator
    assert runs is not None

    def with_both(pool: Pool) -> Pool:
        takes = {
            OwnerKind.SIMULATOR: runs.peak(runs.quality, pool.kind).mib or 0.0,
            OwnerKind.AGENT: asked.agent.mib.get(pool.kind, 0.0),
        }
        held = {whose: mib for whose, mib in takes.items() if uses_pool(whose, pool.name, pool.kind, made.cards)}
        owners = tuple(Owner(whose.value, whose, (1,), measured(mib)) for whose, mib in held.items())
        assert pool.free.mib is not None
        free = measured(max(0.0, pool.free.mib - sum(held.values())))
        return replace(pool, free=free, owners=(*pool.owners, *owners))

    return replace(made.reading, pools=tuple(map(with_both, made.reading.pools)))


@given(short_of_one())
def test_for_the_same_shortage_start_and_run_choose_the_same_steps(drawn: tuple[Situation, Rule]) -> None:
    made, agent = drawn
    planned = plan.make_plan(made, agent)
    (short,) = [each for each in planned.asked.sums if each.short_mib]

    def needs(values: Mapping[str, Any]) -> Mapping[PoolKind, float]:
        return agent.one({**made.base, **values}).mib

    runs = made.simulator
    fresh = {kind: runs.peak(runs.quality, kind).mib or 0.0 for kind in PoolKind if runs}
    context = Context(made.ladder, (), needs, running(made, planned.asked), LIMITS.memory.reserve_mib, fresh)
    chosen = context.choose(Deficit(short.kind, short.short_mib, short.pool))
    assert chosen == (planned.start.steps if planned.start else ())
