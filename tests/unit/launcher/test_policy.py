"""What follows from an end: restart or ending, code and sentence."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher import config, policy
from launcher.exits import Ending, Exit
from launcher.policy import Failure, Restart

LIMITS = config.load().simulator
CRASH = Failure(cause="ended by itself (signal 11)", exit_code=139, in_a_row=1, ever_healthy=True)


@pytest.mark.parametrize("code", [2, 65, 69])
def test_a_simulator_that_refuses_to_start_ends_the_run_with_its_own_code_and_words(code: int) -> None:
    refusal = Failure("ended", code, 1, ever_healthy=False, last_words="carla-lite: map Town99 doesn't exist")
    ending = policy.after_simulator_failure(refusal, LIMITS, 0.0)
    assert isinstance(ending, Ending)
    assert ending.code == code
    assert "Town99" in ending.reason


@pytest.mark.parametrize("code", [139, 1, 0, None])
def test_a_first_start_that_fails_is_not_tried_again(code: int | None) -> None:
    ending = policy.after_simulator_failure(Failure("isn't ready", code, 1, ever_healthy=False), LIMITS, 0.0)
    assert ending == Ending(Exit.NO_SIMULATOR, "the simulator isn't ready")


def test_exactly_the_budget_of_restarts_is_given() -> None:
    decisions = [
        policy.after_simulator_failure(dataclasses.replace(CRASH, in_a_row=count), LIMITS, 0.0)
        for count in range(1, LIMITS.restarts.budget + 2)
    ]
    assert all(isinstance(decision, Restart) for decision in decisions[:-1])
    assert isinstance(decisions[-1], Ending)
    assert decisions[-1].code == Exit.BUDGET_SPENT


@given(st.integers(1, LIMITS.restarts.budget), st.floats(-1, 1))
def test_delays_double_within_their_jitter_and_their_limit(count: int, draw: float) -> None:
    decision = policy.after_simulator_failure(dataclasses.replace(CRASH, in_a_row=count), LIMITS, draw)
    assert isinstance(decision, Restart)
    middle_s = min(LIMITS.restarts.first_delay_s * 2 ** (count - 1), LIMITS.restarts.longest_delay_s)
    assert decision.delay_s == pytest.approx(middle_s, rel=LIMITS.restarts.jitter + 1e-9)


def test_a_stable_time_forgives_earlier_failures() -> None:
    assert policy.failures_in_a_row(4, LIMITS.restarts.stable_after_s - 1, LIMITS) == 5
    assert policy.failures_in_a_row(4, LIMITS.restarts.stable_after_s, LIMITS) == 1


@given(st.integers(0, 255))
def test_the_agents_code_passes_through_when_nobody_stopped_it(code: int) -> None:
    assert policy.after_agent_exit(code, None).code == code


@pytest.mark.parametrize(
    ("code", "expected"),
    [(75, Exit.STOPPED), (0, Exit.FINISHED), (137, Exit.STOPPED), (143, Exit.STOPPED), (71, 71), (1, 1), (139, 139)],
)
def test_a_stop_on_request_is_never_read_as_a_crash_but_a_crash_stays_one(code: int, expected: int) -> None:
    ending = policy.after_agent_exit(code, Ending(Exit.STOPPED, "stopped on request (Ctrl-C)"))
    assert ending.code == expected
    assert ("crashed" in ending.reason) == (code in (1, 139))


@given(st.integers(0, 255))
def test_a_spent_budget_stays_the_reason_however_the_agent_ends(code: int) -> None:
    spent = Ending(Exit.BUDGET_SPENT, "restarts are spent")
    assert policy.after_agent_exit(code, spent) == spent
