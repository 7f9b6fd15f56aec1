"""``up``: takes a run from its options to its end: lock, plan, programs, supervision, report, summary."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from carla_launcher import hooks, ports, wiring
from carla_launcher.act import journal as journals
from carla_launcher.act import notify
from carla_launcher.act.journal import Journal
from carla_launcher.act.leftovers import await_leftovers
from carla_launcher.act.local.runtime import LocalRuntime
from carla_launcher.act.run import Run
from carla_launcher.act.run_spec import RunSpec
from carla_launcher.act.runtime import Runtime, StartError
from carla_launcher.act.split_runtime import SplitRuntime
from carla_launcher.act.supervisor import Supervisor
from carla_launcher.config import LauncherConfig
from carla_launcher.decide.decisions import Ending
from carla_launcher.observe.gpu_lock import GpuInUseError
from carla_launcher.observe.memory import MemoryReader
from carla_launcher.options import RefusedError, RunOptions
from carla_launcher.resolve.agent_sizes import AgentSizes
from carla_launcher.resolve.machine import compose_of
from carla_launcher.resolve.prepare import PreparedRun, prepare
from carla_launcher.resolve.resuming import RunRequest, run_request
from carla_launcher.show import summary
from carla_launcher.show.report_process import write_report
from carla_launcher.simulators import PORTS
from carla_run import formats
from carla_run.events import LauncherEvent
from carla_run.exits import Exit, ExitError
from carla_run.locks import Lock
from carla_run.paths import RunPaths
from carla_run.signals import StopRequests

Say = Callable[[str], None]


def run(run_: RunPaths, options: RunOptions, resume: bool, say: Say, command: str = "up") -> Ending:
    """Run to the end, write the report, and return how the run ended.

    Raises:
        ExitError: configuration, run directory or machine can't be used, no port is free, or another launcher holds the
            run.
    """
    with contextlib.ExitStack() as open_page:  # until the report is written, so that an open page shows the end
        ending = _run(run_, options, resume, say, open_page, of_command=command == "run")
        summary.print_summary(run_, ending, say, command)
    return ending


def _run(
    run_: RunPaths,
    options: RunOptions,
    resume: bool,
    say: Say,
    open_page: contextlib.ExitStack,
    of_command: bool,
) -> Ending:
    stop = StopRequests()
    stop.install(closing_terminal=True)
    asked = run_request(run_, options, resume, of_command)  # refuse before writing anything
    with locked(run_, asked.limits) as lock:
        asked = run_request(run_, options, resume, of_command)
        prepared = _prepared(asked, stop, hooks.begin_step(run_, os.environ, time.time()))
        wanted = asked.options
        for note in (*asked.notes, *filter(None, [prepared.resolved.note]), *prepared.planned.notes):
            say(note)
        refuse_taken_ports(prepared.spec, first_start=asked.before is None)
        to_terminal = sys.stdout.isatty()
        page = open_page.enter_context(
            hooks.serve_page(run_, wanted.dashboard_port, say, wanted.launcher_config, to_terminal=to_terminal)
        )
        if page is not None:
            prepared.resolved.memory.count_as_launcher(page)
        with cards_held(prepared.resolved.memory, prepared.cards, wanted.share_gpu, say) as cards:
            runtime = _runtime(prepared, asked.limits, (lock.descriptor, *cards))
            try:
                ending = _supervise(prepared, asked, runtime, stop, say)
                _clear(runtime, say)
            finally:
                runtime.close()
        if problem := write_report(run_):  # a full disk doesn't change how the run ended
            say(problem)  # the lock is held until now, so that `down` waits for the report
    return ending


def _prepared(asked: RunRequest, stop: StopRequests, before: hooks.StepBefore | None) -> PreparedRun:
    """Return the prepared run.

    Raises:
        ExitError: the run can't be started, or a stop was requested meanwhile.
    """
    try:
        prepared = prepare(asked, before)
    except ExitError:  # Ctrl-C also reaches the plan's child processes
        _refuse_if_stopped(stop)
        raise
    if stop.count:
        prepared.resolved.clear()
    _refuse_if_stopped(stop)
    return prepared


def _refuse_if_stopped(stop: StopRequests) -> None:
    if stop.count:
        code = Exit.INTERRUPTED if stop.signal is signal.SIGINT else Exit.STOPPED
        raise RefusedError(f"Stopped by {stop.cause} while it planned; nothing was started.", code)


@contextlib.contextmanager
def locked(run_: RunPaths, limits: LauncherConfig) -> Iterator[Lock]:
    """Create a run's folder and lock it for this launcher, once an earlier launcher's programs have ended.

    A folder that this start created is removed if the start is refused before the run's first event.

    Raises:
        RefusedError: the folder can't be written.
        ExitError: another launcher holds it.
    """
    is_new = not run_.path.exists()
    try:
        run_.path.parent.mkdir(parents=True, exist_ok=True)
        run_.path.mkdir(mode=0o755, exist_ok=True)  # whatever the umask: the group can't write it
        run_.logs.mkdir(mode=0o755, exist_ok=True)
        await_leftovers(run_, limits.agent.stop_grace_s + limits.simulator.stop_grace_s)
        lock = journals.lock(run_)
        formats.stamp(run_)
    except OSError as error:
        raise RefusedError(f"{run_.path}: can't be written ({error.strerror}); choose another --runs-dir.") from None
    try:
        yield lock
    except ExitError:
        if is_new and not run_.launcher_events.exists():
            shutil.rmtree(run_.path, ignore_errors=True)
        raise
    finally:
        lock.release()


def refuse_taken_ports(spec: RunSpec, first_start: bool) -> None:
    """Refuse if another program uses a port of the run's simulators; its own containers may, to be taken over."""
    if not spec.simulator.ours or (spec.in_containers and not first_start):
        return
    each = range(PORTS if spec.in_containers else spec.simulator.ports)
    for port in (spec.address_of(number).port + port for number in range(spec.simulators) for port in each):
        if holder := ports.holder(port):
            raise RefusedError(
                f"Port {port} is taken by {holder}: end it, or choose another with --port.", Exit.NO_SIMULATOR
            )


@contextlib.contextmanager
def cards_held(memory: MemoryReader, cards: tuple[int, ...], shared: bool, say: Say) -> Iterator[tuple[int, ...]]:
    """Lock GPUs for this launcher; give the locks' descriptors.

    With ``shared`` a GPU that another launcher holds is no error.
    """
    descriptors = []
    with contextlib.ExitStack() as held:
        for index in cards:
            try:
                lock = memory.hold(index)
            except GpuInUseError as error:
                if not shared:
                    raise
                say(f"shares the GPU (--share-gpu): {error}")
                continue
            if lock is not None:
                held.callback(lock.release)
                descriptors.append(lock.descriptor)
        yield tuple(descriptors)


def _runtime(prepared: PreparedRun, limits: LauncherConfig, inherited: tuple[int, ...]) -> Runtime:
    spec = replace(prepared.spec, inherited=inherited)
    if not spec.in_containers:
        return LocalRuntime(spec, limits)
    runtime = compose_of(spec, limits)
    prepared.resolved.memory.name_containers(runtime.container_name)
    runtime.check()
    return runtime if spec.command is None else SplitRuntime(runtime, LocalRuntime(spec, limits))


def _clear(runtime: Runtime, say: Say) -> None:
    try:
        runtime.clear()
    except StartError as error:
        say(str(error))


def _supervise(prepared: PreparedRun, asked: RunRequest, runtime: Runtime, stop: StopRequests, say: Say) -> Ending:
    resolved, planned, spec, on_event = prepared.resolved, prepared.planned, prepared.spec, asked.options.on_event
    notifiers = notify.notifiers(on_event)
    journal = Journal(spec.run, prepared.state, time.time, notifiers)
    journal.event(
        LauncherEvent.RUN_STARTED,
        resume=spec.resume,
        config=str(spec.config) if spec.command is None else "",
        command=() if spec.command is None else spec.command.words,
        reason=planned.plan.reason,
        changed=dict(asked.changed),
        before="" if spec.step_before is None else spec.step_before.sentence,
    )
    say(f"run {spec.run.path}: {spec.simulator.kind.value} ({resolved.reason}), {planned.plan.reason}")
    sizes = AgentSizes(planned.sizes_of)
    effects = wiring.effects(spec, planned, asked.limits, runtime, resolved.memory.read, stop, say)
    try:
        supervisor = Supervisor(Run(spec, asked.limits, effects, journal), wiring.forecast(planned, sizes))
        ending = supervisor.run()
        if not supervisor.progressed and (kept := asked.state_if_refused(ending.code)) is not None:
            journal.change(options=kept.options, gpu_uuids=kept.gpu_uuids)
            journal.save()
            each = ", ".join(f"{name}: {old}, not {new}" for name, (old, new) in asked.changed.items())
            say(f"the run keeps its earlier options, since it made no step with the new ones ({each})")
        return ending
    finally:
        sizes.close()
        effects.observer.close()
        for notifier in notifiers:
            notifier.close()
