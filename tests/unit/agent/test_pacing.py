"""The next action of learner and collector: tables for the decisions, properties for their interplay."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from carla_td3.trainer.pacing import (
    Action,
    Counters,
    Pacing,
    Plan,
    decide,
    due_updates,
    learning_rate,
    learning_rate_factor,
    next_evaluation,
    phase,
    resumed,
    step_limit,
)

PLAN = Plan(
    total_steps=1000,
    final_updates=0,
    annealing=0.0,
    warmup_steps=100,
    pacing=Pacing(Fraction(1), 100),
    max_lead_steps=50,
    lockstep=False,
    evaluate_every_steps=0,
    final_evaluation=True,
    checkpoint_every_steps=10_000,
)


@pytest.mark.parametrize(
    ("ratio", "steps", "updates_due"),
    [("1", 99, 0), ("1", 100, 0), ("1", 101, 1), ("0.5", 103, 1), ("1.5", 102, 3), ("0.1", 110, 1), ("1", 5000, 900)],
)
def test_updates_due_are_the_ratio_of_the_steps_after_warm_up(ratio: str, steps: int, updates_due: int) -> None:
    assert due_updates(replace(PLAN, pacing=Pacing(Fraction(ratio), 100)), Counters(steps, 0)) == updates_due


@pytest.mark.parametrize(
    ("annealing", "updates", "factor"),
    [
        (0.0, 0, 1.0),
        (0.0, 999, 1.0),
        (0.5, 500, 1.0),
        (0.5, 750, 0.5),
        (0.5, 999, 0.002),
        (0.5, 1100, 0.0),
        (1.0, 100, 0.9),
    ],
)
def test_learning_rates_fall_to_0_over_the_last_share_of_all_updates(
    annealing: float, updates: int, factor: float
) -> None:
    assert learning_rate_factor(annealing, updates, 1000) == pytest.approx(factor)


def test_final_updates_are_owed_once_the_learner_has_begun_anew_after_the_last_step() -> None:
    plan = replace(PLAN, final_updates=50)
    assert [due_updates(plan, Counters(steps, 0)) for steps in (999, 1000, 1001)] == [899, 900, 900]
    counters = Counters(steps=1000, updates=900, saved_updates=900)
    assert decide(plan, counters) is Action.RESET
    begun = replace(counters, final_from=900)
    assert decide(plan, begun) is Action.UPDATE
    assert step_limit(plan, begun) == 1000
    ended = replace(begun, updates=950, saved_updates=950)
    assert decide(plan, ended) is Action.FINAL_EVALUATION
    assert decide(replace(plan, final_updates=60), ended) is Action.UPDATE, "more of them: the reset isn't repeated"


FINISHED = Counters(1000, 950, evaluated_at=1000, saved_updates=950, saved_steps=1000, finally_evaluated=950)


def test_a_finished_run_that_is_made_longer_learns_from_the_new_steps_and_comes_to_another_end() -> None:
    plan, finished = replace(PLAN, final_updates=50), replace(FINISHED, final_from=900)
    assert decide(plan, finished) is Action.FINISH
    assert resumed(finished, plan.pacing, 1000) == (finished, plan.pacing)

    counters, pacing = resumed(finished, plan.pacing, 1200)
    assert Pacing.from_plain(json.loads(json.dumps(pacing.plain()))) == pacing
    longer = replace(plan, total_steps=1200, pacing=pacing)
    assert step_limit(longer, counters) == 1050
    assert decide(longer, counters) is Action.WAIT
    assert decide(longer, replace(counters, steps=1001)) is Action.UPDATE
    taken = replace(counters, steps=1200, updates=1150, saved_updates=1150)
    assert decide(longer, taken) is Action.RESET
    done = replace(taken, final_from=1150, updates=1200, saved_updates=1200)
    assert decide(longer, done) is Action.FINAL_EVALUATION
    judged = replace(done, evaluated_at=1200, finally_evaluated=1200)
    assert decide(longer, judged) is Action.FINISH
    assert resumed(replace(judged, saved_steps=1200), pacing, 1300)[1].spent == 100


def test_steps_that_a_killed_learner_took_beyond_an_end_are_learned_from() -> None:
    counters, pacing = resumed(replace(FINISHED, final_from=900, steps=1200), PLAN.pacing, 1200)
    longer = replace(PLAN, total_steps=1200, final_updates=50, pacing=pacing)
    assert decide(longer, counters) is Action.UPDATE
    assert due_updates(longer, counters) == 950 + 200


def test_a_run_that_is_made_longer_within_its_final_updates_leaves_them() -> None:
    counters, pacing = resumed(Counters(1000, 920, saved_steps=1000, final_from=900), PLAN.pacing, 1100)
    assert (counters.final_from, pacing.updates_due(1000), pacing.updates_due(1100)) == (-1, 920, 1020)


SHORTER = replace(PLAN, total_steps=600, final_updates=50, evaluate_every_steps=200)
FEW = Pacing(Fraction(1, 1000), 1000, 950)
"""By which 200 steps more call for no update."""
TAKEN = replace(FINISHED, steps=1200)


@pytest.mark.parametrize(
    ("plan", "counters", "action"),
    [
        (replace(PLAN, total_steps=1200), FINISHED, Action.WAIT),
        (replace(PLAN, total_steps=1200), replace(TAKEN, updates=1100, saved_updates=1100), Action.FINAL_EVALUATION),
        (replace(PLAN, total_steps=1200, pacing=FEW), TAKEN, Action.FINAL_EVALUATION),
        (replace(PLAN, final_updates=100), FINISHED, Action.RESET),
        (replace(PLAN, total_steps=600), FINISHED, Action.FINISH),
        (SHORTER, Counters(800, 650, saved_updates=650), Action.RESET),
        (SHORTER, Counters(800, 700, saved_updates=700, final_from=650), Action.FINAL_EVALUATION),
    ],
)
def test_what_a_second_start_with_another_end_does(plan: Plan, counters: Counters, action: Action) -> None:
    assert decide(plan, counters) is action


ANNEALED = replace(PLAN, final_updates=100, annealing=0.1)
LONGER = replace(ANNEALED, total_steps=1200, pacing=PLAN.pacing.extended(100))


@pytest.mark.parametrize(
    ("plan", "counters", "rate"),
    [
        (ANNEALED, Counters(400, 300), 1.0),
        (ANNEALED, Counters(1000, 900), 1.0),
        (ANNEALED, Counters(1000, 900, final_from=900), 1.0),
        (ANNEALED, Counters(1000, 950, final_from=900), 0.5),
        # Made longer: 1200 - 100 + 100 updates of one run, and 100 of the end that it has gone beyond.
        (LONGER, Counters(1000, 1000), 1.0),
        (LONGER, Counters(1200, 1240, final_from=1200), 0.5),
        # Made shorter than it was by then.
        (replace(ANNEALED, total_steps=600), Counters(800, 650, final_from=650), 1.0),
    ],
)
def test_the_rate_falls_towards_the_end_that_the_run_comes_to(plan: Plan, counters: Counters, rate: float) -> None:
    assert learning_rate(plan, counters) == pytest.approx(rate)


def test_another_ratio_holds_from_where_it_was_given_and_leaves_debts_as_they_are() -> None:
    before = Pacing(Fraction(1), 100)
    assert before.continued(Fraction(1), 500) is before
    faster = before.continued(Fraction(2), 500)
    assert [faster.updates_due(steps) for steps in (500, 501, 600)] == [400, 402, 600]
    slower = before.continued(Fraction(1, 2), 500)
    assert [slower.updates_due(steps) for steps in (500, 502, 600)] == [400, 401, 450]
    assert slower.continued(Fraction(1), 600).updates_due(700) == 550
    assert before.continued(Fraction(4), 40).updates_due(101) == 4, "in the warm-up no update is due yet"
    # An update after the other; the collector isn't stopped for what the steps behind would have called for.
    plan = replace(PLAN, pacing=slower)
    assert decide(plan, Counters(500, 390, saved_updates=390)) is Action.UPDATE
    assert decide(plan, Counters(500, 400, saved_updates=400)) is Action.WAIT
    assert step_limit(replace(plan, lockstep=True), Counters(500, 400)) == 502
    assert Pacing.from_plain(json.loads(json.dumps(slower.plain()))) == slower


@pytest.mark.parametrize(
    ("plan", "counters", "limit"),
    [
        (PLAN, Counters(0, 0), 150),
        (PLAN, Counters(140, 30), 180),
        (PLAN, Counters(990, 900), 1000),
        (replace(PLAN, lockstep=True), Counters(0, 0), 101),
        (replace(PLAN, lockstep=True), Counters(130, 30), 131),
        (replace(PLAN, lockstep=True, pacing=Pacing(Fraction(1, 2), 100)), Counters(100, 0), 102),
        (replace(PLAN, lockstep=True, pacing=Pacing(Fraction(2), 100)), Counters(101, 1), 101),
        (replace(PLAN, evaluate_every_steps=120), Counters(110, 10), 120),
        (replace(PLAN, evaluate_every_steps=120), Counters(120, 20, evaluated_at=120), 170),
        (PLAN, Counters(140, 30, drained=True), 140),
    ],
)
def test_step_limit(plan: Plan, counters: Counters, limit: int) -> None:
    assert step_limit(plan, counters) == limit


@pytest.mark.parametrize(
    ("plan", "counters", "action"),
    [
        (PLAN, Counters(50, 0), Action.WAIT),
        (PLAN, Counters(101, 0), Action.UPDATE),
        (PLAN, Counters(101, 1), Action.WAIT),
        (PLAN, Counters(1000, 899), Action.UPDATE),
        (PLAN, Counters(1000, 900, tried_updates=900), Action.FINAL_EVALUATION),
        (PLAN, Counters(1000, 900, tried_updates=900, evaluated_at=1000, finally_evaluated=900), Action.FINISH),
        (replace(PLAN, checkpoint_every_steps=50), Counters(160, 50), Action.SAVE),
        (replace(PLAN, checkpoint_every_steps=50), Counters(160, 50, tried_updates=50), Action.UPDATE),
        (replace(PLAN, checkpoint_every_steps=50), Counters(210, 100, tried_updates=50), Action.SAVE),
        (PLAN, Counters(1000, 900), Action.SAVE_UNSAVED),
        (PLAN, Counters(1000, 900, saved_updates=900), Action.FINAL_EVALUATION),
        (PLAN, Counters(1000, 900, saved_updates=900, evaluating=True), Action.WAIT),
        (PLAN, Counters(1000, 900, saved_updates=900, evaluated_at=1000, finally_evaluated=900), Action.FINISH),
        (replace(PLAN, final_evaluation=False), Counters(1000, 900, saved_updates=900), Action.FINISH),
        (replace(PLAN, checkpoint_every_steps=100), Counters(250, 100), Action.SAVE),
        (replace(PLAN, checkpoint_every_steps=100), Counters(250, 150, saved_updates=100), Action.WAIT),
        (replace(PLAN, checkpoint_every_steps=100), Counters(1000, 200, saved_updates=100), Action.SAVE),
        (replace(PLAN, evaluate_every_steps=200), Counters(200, 100), Action.SAVE_UNSAVED),
        (replace(PLAN, evaluate_every_steps=200), Counters(200, 100, saved_updates=99), Action.SAVE_UNSAVED),
        (replace(PLAN, evaluate_every_steps=200), Counters(200, 100, saved_updates=100), Action.EVALUATE),
        (replace(PLAN, evaluate_every_steps=200), Counters(200, 90, saved_updates=90), Action.EVALUATE),
        (replace(PLAN, evaluate_every_steps=50), Counters(50, 0), Action.SAVE_UNSAVED),
        (replace(PLAN, evaluate_every_steps=200, lockstep=True), Counters(200, 90), Action.UPDATE),
        (replace(PLAN, evaluate_every_steps=200), Counters(200, 100, evaluating=True), Action.WAIT),
        (replace(PLAN, evaluate_every_steps=200), Counters(200, 90, evaluating=True), Action.WAIT),
        (replace(PLAN, evaluate_every_steps=200), Counters(200, 100, evaluated_at=200), Action.WAIT),
        (PLAN, Counters(400, 100, drained=True), Action.WAIT),
        (PLAN, Counters(1000, 900, drained=True), Action.WAIT),
        (replace(PLAN, checkpoint_every_steps=100), Counters(250, 150, drained=True), Action.WAIT),
    ],
)
def test_next_action(plan: Plan, counters: Counters, action: Action) -> None:
    assert decide(plan, counters) is action


@pytest.mark.parametrize(
    ("counters", "action", "word"),
    [
        (Counters(50, 0), Action.WAIT, "warming"),
        (Counters(150, 10), Action.UPDATE, "updating"),
        (Counters(150, 50), Action.WAIT, "collecting"),
        (Counters(150, 50), Action.SAVE, "saving"),
        (Counters(150, 50), Action.SAVE_UNSAVED, "saving"),
        (Counters(150, 50), Action.EVALUATE, "evaluating"),
        (Counters(150, 50, evaluating=True), Action.WAIT, "evaluating"),
        (Counters(150, 50, evaluating=True, drained=True), Action.WAIT, "drained"),
    ],
)
def test_phase(counters: Counters, action: Action, word: str) -> None:
    assert phase(PLAN, counters, action) == word


def test_the_last_evaluation_takes_the_place_of_one_at_the_last_step() -> None:
    assert next_evaluation(replace(PLAN, evaluate_every_steps=500), evaluated_at=500) is None


RATIOS = st.sampled_from([Fraction(r) for r in ("0.1", "0.3", "0.5", "1", "1.5", "2", "4")])


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    total = draw(st.integers(2, 60))
    warmup = draw(st.integers(0, total - 1))
    return Plan(
        total_steps=total,
        final_updates=draw(st.integers(0, 5)),
        annealing=0.0,
        warmup_steps=warmup,
        pacing=Pacing(draw(RATIOS), warmup),
        max_lead_steps=draw(st.integers(1, 20)),
        lockstep=draw(st.booleans()),
        evaluate_every_steps=draw(st.integers(0, 30)),
        final_evaluation=draw(st.booleans()),
        checkpoint_every_steps=draw(st.integers(1, 30)),
    )


@settings(max_examples=300)
@given(
    plans(),
    st.randoms(use_true_random=False),
    st.one_of(st.none(), RATIOS),
    st.lists(st.integers(-20, 20), max_size=2),
)
def test_every_plan_comes_to_its_end_with_the_ratio_kept(
    plan: Plan, chance: object, other_ratio: Fraction | None, more_steps: list[int]
) -> None:
    counters, ends = Counters(0, 0), 0
    for more in (0, *more_steps):
        plan = replace(plan, total_steps=max(plan.warmup_steps + 1, plan.total_steps + more))
        before, (counters, pacing) = counters, resumed(counters, plan.pacing, plan.total_steps)
        plan = replace(plan, pacing=pacing)
        plan, counters, resets = brought_to_its_end(plan, counters, chance, other_ratio)
        assert counters.steps == max(before.steps, plan.total_steps)
        if counters.steps > before.steps:
            ends += 1
            assert resets == (1 if plan.final_updates else 0)
            regular = Pacing(plan.pacing.ratio, plan.warmup_steps).updates_due(counters.steps)
            assert other_ratio is not None or counters.updates == regular + ends * plan.final_updates
            assert counters.evaluated_at == (counters.steps if plan.final_evaluation else counters.evaluated_at)
        else:
            assert (resets, counters.updates) == (0, before.updates), "nothing is left to do"
        assert counters.saved_updates == counters.updates
        assert (counters.finally_evaluated == counters.updates) == plan.final_evaluation


def brought_to_its_end(
    plan: Plan, counters: Counters, chance: object, other_ratio: Fraction | None
) -> tuple[Plan, Counters, int]:
    """Return the plan with its last ratio, the counters at its end, and how often the learner was reset."""
    resets = 0
    taken: list[tuple[Plan, Counters]] = []
    for _ in range(10_000):
        if chance.random() < 0.05:  # type: ignore[attr-defined]
            counters = replace(counters, drained=not counters.drained)
        if other_ratio is not None and chance.random() < 0.02:  # type: ignore[attr-defined]
            plan = replace(plan, pacing=plan.pacing.continued(other_ratio, counters.steps))
        allowed = step_limit(plan, counters)
        if counters.steps < allowed and not counters.evaluating and chance.random() < 0.5:  # type: ignore[attr-defined]
            taken.append((plan, counters))
            counters = replace(counters, steps=counters.steps + 1)
            continue
        action = decide(plan, counters)
        if action is Action.FINISH:
            break
        if action in (Action.EVALUATE, Action.FINAL_EVALUATION):
            assert counters.saved_updates == counters.updates, "what was learned is saved before an evaluation"
            assert (action is Action.FINAL_EVALUATION) == (counters.steps >= plan.total_steps)
        resets += action is Action.RESET
        counters = _after(action, counters, plan)
    if plan.lockstep and other_ratio is None:
        # Whatever the order of events, a step is taken at one number of updates only.
        assert all(then.updates == due_updates(by, then) for by, then in taken)
    return plan, replace(counters, drained=False), resets


def _after(action: Action, counters: Counters, plan: Plan) -> Counters:
    if action is Action.UPDATE:
        return replace(counters, updates=counters.updates + 1)
    if action is Action.RESET:
        return replace(counters, final_from=counters.updates)
    if action in (Action.EVALUATE, Action.FINAL_EVALUATION):
        return replace(counters, evaluating=True)
    if action in (Action.SAVE, Action.SAVE_UNSAVED):
        return replace(counters, saved_updates=counters.updates, saved_steps=counters.steps)
    if counters.evaluating and not counters.drained:
        judged = counters.updates if counters.steps >= plan.total_steps else -1
        return replace(counters, evaluating=False, evaluated_at=counters.steps, finally_evaluated=judged)
    return counters
