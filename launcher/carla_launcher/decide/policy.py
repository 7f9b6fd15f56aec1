"""From one finding to one decision."""

from __future__ import annotations

from carla_launcher.config import LauncherConfig, Restarts
from carla_launcher.decide.choose import Context, Deficit
from carla_launcher.decide.decisions import Decision, Degrade, Ending, Nothing, RestartAgent, RestartSimulator, Stop
from carla_launcher.decide.detectors.causes import Cause, Finding
from carla_launcher.decide.restarts import delay_s
from carla_launcher.decide.room import who_holds
from carla_launcher.observe.pools import OwnerKind, PoolKind
from carla_run.exits import Exit

FATAL = {Cause.GPU_LOST: Exit.NO_SIMULATOR, Cause.MISCONFIGURATION: Exit.BAD_CONFIG}
SIMULATOR_FAILED = (
    Cause.SIMULATOR_OUT_OF_VRAM,
    Cause.SIMULATOR_HOST_OOM,
    Cause.SIMULATOR_HANG,
    Cause.SIMULATOR_CRASH,
    Cause.SIMULATOR_NOT_READY,
)
AGENT_FAILED = (
    Cause.CONTAINER_LOST_GPU,
    Cause.AGENT_CUDA_OOM,
    Cause.AGENT_HOST_OOM,
    Cause.AGENT_DISK_FULL,
    Cause.AGENT_HANG,
    Cause.AGENT_CRASH,
)
SHORT = (Cause.LEAK, Cause.PRESSURE, Cause.FOREIGN_PROCESS)
ORDER = (*FATAL, *SIMULATOR_FAILED, *AGENT_FAILED, *SHORT)
"""Causes that lead to a decision, the gravest first."""

RAN_OUT = {
    Cause.SIMULATOR_OUT_OF_VRAM: PoolKind.VRAM,
    Cause.SIMULATOR_HOST_OOM: PoolKind.RAM,
    Cause.AGENT_CUDA_OOM: PoolKind.VRAM,
    Cause.AGENT_HOST_OOM: PoolKind.RAM,
    Cause.AGENT_DISK_FULL: PoolKind.DISK,
}
ANY_MIB = 0.1
"""A deficit that any rung covers: figures are rounded to this."""
MEASURED = "measured before"
TO_FREE = {
    PoolKind.VRAM: "the GPU's memory",
    PoolKind.RAM: "the host's memory",
    PoolKind.DISK: "the disk that the run is on",
}
"""Memory that a user should free if no rung is left."""
SIMULATOR_REFUSALS = (Exit.USAGE, Exit.BAD_CONFIG, Exit.NO_SIMULATOR)
"""Exit codes of a simulator after which a restart would change nothing."""


def decide_for_simulator(
    finding: Finding, failures: int, ever_healthy: bool, context: Context, config: LauncherConfig, draw: float
) -> Decision:
    """Return what to do about a simulator that has ended or doesn't work.

    A simulator that refuses to run isn't restarted. A first start that takes too long is repeated, since the next one
    finds in the page cache what this one read from the disk. If memory ran out twice in a row the run degrades.

    Args:
        finding: what happened.
        failures: number of failures in a row, this one included.
        ever_healthy: whether this run has had a healthy simulator.
        context: state of the run, for the choice of steps.
        config: budget and delays.
        draw: a random number in [-1, 1] that spreads the delay.
    """
    refused = finding.exit_code in SIMULATOR_REFUSALS
    too_slow = finding.exit_code is None and context.simulator_ours
    if not ever_healthy and not too_slow and (refused or finding.exit_code is None or finding.exit_code < 128):
        code = finding.exit_code if refused and finding.exit_code else Exit.NO_SIMULATOR
        return Stop(Ending(code, finding.sentence))
    if failures > 1 and (reduces := _after_it_ran_out(finding, OwnerKind.SIMULATOR, context, config)):
        return reduces
    wait_s = delay_s(failures, config.simulator.restarts, draw)
    if wait_s is None:
        never = not ever_healthy and too_slow
        return _spent(finding.sentence, config.simulator.restarts, Exit.NO_SIMULATOR if never else Exit.BUDGET_SPENT)
    return RestartSimulator(finding.sentence, wait_s)


def decide_for_agent(
    finding: Finding, failures: int, context: Context, config: LauncherConfig, draw: float
) -> Decision:
    """Return what to do about an agent that ended or hangs: degrade if memory ran out, otherwise restart it.

    If no rung is left it is restarted as long as the budget lasts, since a foreign process may free its memory. A
    restart makes a new container, which has the GPU again; ``failures`` counts the losses of a GPU apart from others.
    """
    if reduces := _after_it_ran_out(finding, OwnerKind.AGENT, context, config):
        return reduces
    kind = RAN_OUT.get(finding.cause)
    if kind is not None and finding.exit_code is None:
        return Nothing("the agent still runs, and no rung is left that helps")
    wait_s = delay_s(failures, config.agent.restarts, draw)
    if wait_s is not None:
        # A restarted agent that hangs again may hang because of a simulator that only looks healthy.
        return RestartAgent(finding.sentence, wait_s, simulator_too=finding.cause is Cause.AGENT_HANG and failures > 1)
    if kind is not None:
        return _no_rung_left(finding, kind, context)
    lost = finding.cause is Cause.CONTAINER_LOST_GPU
    return _spent(finding.sentence, config.agent.restarts, Exit.NO_SIMULATOR if lost else Exit.BUDGET_SPENT)


def _after_it_ran_out(finding: Finding, owner: OwnerKind, context: Context, config: LauncherConfig) -> Degrade | None:
    """Return the steps to take if simulator or agent ran out of memory; None if it didn't, or if no step helps."""
    if (kind := RAN_OUT.get(finding.cause)) is None:
        return None
    # A refusal says how much is missing. Other ends don't: any rung may be enough, and what one frees may be a guess.
    deficit_mib = finding.deficit_mib or config.memory.oom_step_mib[kind]
    steps = context.choose(context.deficit(owner, kind, deficit_mib, finding.pool))
    if not steps and not finding.deficit_mib:
        steps = context.choose(context.deficit(owner, kind, ANY_MIB, finding.pool), lasting=True)
    return Degrade(steps, kind, finding.sentence) if steps else None


def decide_for_leak(finding: Finding, restarts: int, context: Context, config: LauncherConfig) -> Decision:
    """Return what to do about a leak: restart the program that leaks, within a budget.

    Restarts that follow each other cost more than they save; then the run continues until memory is short.

    Args:
        finding: the owner that leaks, and the time until the pool is exhausted.
        restarts: number of this program's restarts for leaks in a row, including the one to decide on.
        context: state of the run.
        config: budget and time limits.
    """
    ours = finding.owner == "agent" or (finding.owner == "simulator" and context.simulator_ours)
    if not ours:
        return Nothing()
    if restarts > config.memory.leak_restarts.budget:
        spent = f"its {config.memory.leak_restarts.budget} restarts for leaks are used up"
        return Nothing(f"{spent}, and the run continues until memory is short")
    soon = _is_urgent(finding, config)
    if finding.owner == "simulator":
        return RestartSimulator(finding.sentence, failed=False, waits=not soon)
    return RestartAgent(finding.sentence, failed=False, waits=not soon)


def _is_urgent(finding: Finding, config: LauncherConfig) -> bool:
    return finding.exhausted_in_s is not None and finding.exhausted_in_s <= config.memory.urgent_s


def decide_for_memory(finding: Finding, context: Context, config: LauncherConfig) -> Decision:
    """Return what to do about a pool that is short."""
    if finding.deficit_mib <= 0:
        return Nothing()
    kind = PoolKind(finding.pool.partition(":")[0])
    if steps := context.choose(Deficit(kind, finding.deficit_mib, finding.pool)):
        return Degrade(steps, kind, finding.sentence)
    return _without_a_rung(finding, kind, context, _is_urgent(finding, config))


def _without_a_rung(finding: Finding, kind: PoolKind, context: Context, soon: bool) -> Decision:
    if finding.cause is Cause.FOREIGN_PROCESS:
        return Nothing(f"waits until {finding.owner} frees memory, since no rung is left that helps")
    if soon:
        return _no_rung_left(finding, kind, context)
    return Nothing(f"no rung is left that helps; {kind.value} is short, but it isn't running out")


def decide(
    finding: Finding, failures: int, ever_healthy: bool, context: Context, config: LauncherConfig, draw: float
) -> Decision:
    """Return what to do about a finding; see the functions above. For a leak, ``failures`` counts restarts."""
    if finding.cause in FATAL:
        return Stop(Ending(FATAL[finding.cause], finding.sentence))
    if finding.cause in SIMULATOR_FAILED:
        return decide_for_simulator(finding, failures, ever_healthy, context, config, draw)
    if finding.cause in AGENT_FAILED:
        return decide_for_agent(finding, failures, context, config, draw)
    if finding.cause is Cause.LEAK:
        return decide_for_leak(finding, failures, context, config)
    if finding.cause in SHORT:
        return decide_for_memory(finding, context, config)
    return Nothing()


def invalidates_figures(finding: Finding, owner: str) -> bool:
    """Return whether a finding makes a program's peak useless to later runs: it leaked, grew or failed."""
    if owner == "simulator" and finding.cause in SIMULATOR_FAILED:
        return True
    if finding.owner != owner:
        return False
    numbers = finding.numbers
    grew = numbers.get("expected") == MEASURED and (numbers.get("held_mib") or 0) > (numbers.get("expected_mib") or 0)  # type: ignore[operator]
    ran_out = finding.cause in (Cause.AGENT_CUDA_OOM, Cause.AGENT_HOST_OOM)
    return ran_out or finding.cause in (Cause.LEAK, Cause.PRESSURE) or (finding.cause is Cause.OUT_OF_BAND and grew)


def gravest(findings: tuple[Finding, ...]) -> list[Finding]:
    """Return the findings that lead to a decision, the gravest first."""
    return sorted((each for each in findings if each.cause in ORDER), key=lambda each: ORDER.index(each.cause))


def _no_rung_left(finding: Finding, kind: PoolKind, context: Context) -> Stop:
    pools = (pool for pool in context.reading.of(kind) if finding.pool in ("", pool.name))
    held = "; ".join(f"in {pool.name} {held}" for pool in pools if (held := who_holds(pool)))
    words = f"{finding.sentence}, and no rung of the ladder is left that helps: free some of {TO_FREE[kind]}"
    words += f" ({held}), or wait for it with `bash scripts/wait_and_run.sh`" if held else ""
    return Stop(Ending(Exit.OUT_OF_MEMORY, words))


def _spent(sentence: str, limits: Restarts, code: Exit = Exit.BUDGET_SPENT) -> Stop:
    return Stop(Ending(code, f"{sentence}, and its {limits.budget} restarts are used up"))
