"""``up``: from a wish to a finished run — lock, plan, programs, supervision, report, summary.

Owns the order of these, and what a second ``up`` makes of what the first one left.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

from contract.exits import Exit
from contract.locks import Lock
from contract.paths import RunPaths
from contract.signals import StopRequests
from launcher import ports, wiring
from launcher.act import journal as journals
from launcher.act.journal import Journal
from launcher.act.leftovers import await_leftovers
from launcher.act.local.runtime import LocalRuntime
from launcher.act.notify import Notifier
from launcher.act.runtime import Runtime, StartError
from launcher.act.supervisor import Supervisor
from launcher.config import LauncherConfig
from launcher.decide.ending import Ending
from launcher.observe.health import Address
from launcher.observe.nvml import GpuInUseError
from launcher.options import RuntimeKind, Wish
from launcher.resolve.agent_sizes import AgentSizes
from launcher.resolve.basis import RefusedError, compose_of, setup_of
from launcher.resolve.planning import Simulates
from launcher.resolve.preparing import Prepared, limits_of, prepare, understood
from launcher.show import summary
from launcher.show.report_process import write_report

Say = Callable[[str], None]


def run(wanted: Wish, say: Say) -> Ending:
    """Run the wish to its end, leave the report, and return how it ended.

    Raises:
        RefusedError: configuration, run directory or machine can't be used, or no port is free.
        RunInUseError: another launcher runs there.
    """
    requests = StopRequests()
    requests.install(closing_terminal=True)
    limits = limits_of(understood(wanted))  # what can't be is said before anything is written
    with locked(wanted.run, limits) as lock:
        prepared = prepare(wanted, limits)
        for note in prepared.understood.notes:
            say(note)
        _refuse_taken_ports(prepared)
        with _gpu_held(prepared) as gpu:
            held = (lock.descriptor, *(() if gpu is None else (gpu.descriptor,)))
            runtime = _runtime(prepared, limits, held)
            try:
                ending = _supervise(prepared, limits, runtime, requests, say)
                _clear(runtime, say)
            finally:
                runtime.close()
    if problem := write_report(wanted.run):  # a full disk doesn't change how the run ended
        say(problem)
    summary.tell(wanted.run, ending, say)
    return ending


@contextlib.contextmanager
def locked(run_: RunPaths, limits: LauncherConfig) -> Iterator[Lock]:
    """Hold a run for this launcher alone, its folder made if need be, once what an earlier one left has ended.

    Raises:
        RefusedError: the folder can't be written.
        RunInUseError: another launcher holds it.
    """
    try:
        run_.path.parent.mkdir(parents=True, exist_ok=True)
        run_.path.mkdir(mode=0o755, exist_ok=True)  # whatever the umask: not open to the group
        run_.logs.mkdir(exist_ok=True)
        await_leftovers(run_, limits.agent.stop_grace_s + limits.simulator.stop_grace_s)
        lock = journals.lock(run_)
    except OSError as error:
        raise RefusedError(f"{run_.path}: can't be written ({error.strerror}); choose another --runs-dir.") from None
    try:
        yield lock
    finally:
        lock.release()


def _refuse_taken_ports(prepared: Prepared) -> None:
    """Say who has a port that the run's simulator needs; the run's own containers may have them, and are taken over."""
    choice, first = prepared.choice, prepared.state.port
    adopts = choice.runtime is RuntimeKind.COMPOSE and prepared.understood.before is not None
    if choice.simulator is Simulates.ELSEWHERE or adopts:
        return
    alone = choice.simulator is Simulates.LITE and choice.runtime is RuntimeKind.PROCESS
    for port in range(first, first + (2 if alone else 3)):
        if who := ports.holder(port):
            raise RefusedError(
                f"Port {port} is taken by {who}: end it, or choose another with --port.", Exit.NO_SIMULATOR
            )


@contextlib.contextmanager
def _gpu_held(prepared: Prepared) -> Iterator[Lock | None]:
    """Hold the card, if this run uses it, for this launcher alone."""
    try:
        lock = prepared.survey.hold() if prepared.uses_card else None
    except GpuInUseError as error:
        raise RefusedError(str(error)) from None
    try:
        yield lock
    finally:
        if lock is not None:
            lock.release()


def _runtime(prepared: Prepared, limits: LauncherConfig, inherited: tuple[int, ...]) -> Runtime:
    setup = setup_of(
        prepared.wish, prepared.state.port, prepared.state.host, inherited, prepared.card, prepared.basis.gpu_index
    )
    if prepared.choice.runtime is RuntimeKind.PROCESS:
        return LocalRuntime(setup, limits)
    runtime = compose_of(setup, limits, prepared.choice)
    prepared.survey.name_containers(runtime.container_name)
    try:
        runtime.check()
    except StartError as error:
        raise RefusedError(str(error)) from None
    return runtime


def _clear(runtime: Runtime, say: Say) -> None:
    try:
        runtime.clear()
    except StartError as error:
        say(str(error))


def _supervise(
    prepared: Prepared, limits: LauncherConfig, runtime: Runtime, requests: StopRequests, say: Say
) -> Ending:
    wanted, state, planned = prepared.wish, prepared.state, prepared.planned
    address = Address(state.host, state.port)
    ours = planned.situation.simulator is not None
    notifier = Notifier(wanted.on_event) if wanted.on_event else None
    journal = Journal(wanted.run, state, time.time, () if notifier is None else (notifier,))
    changed, reason = dict(prepared.understood.changed), planned.plan.reason
    journal.event("run_started", resume=prepared.goes_on, config=str(wanted.config), reason=reason, changed=changed)
    say(f"run {wanted.run.path}: {prepared.choice.simulator.value} ({prepared.choice.reason}), {planned.plan.reason}")
    if prepared.basis.remark:
        say(prepared.basis.remark)
    sizes = AgentSizes(planned.sizes_of)
    brief = wiring.brief(planned, sizes, address, ours, prepared.goes_on)
    effects = wiring.effects(wanted.run, planned, limits, runtime, address, prepared.survey.read, requests, say)
    try:
        return Supervisor(brief, limits, effects, journal).run()
    finally:
        sizes.close()
        effects.observer.close()
        if notifier is not None:
            notifier.close()
