"""``routes``: from a program file to an evaluation whose items all have a result, or are named.

Owns the order of things: lock, journal, items, simulators, the lanes side by side, the report at the end.
"""

from __future__ import annotations

import contextlib
import shutil
import sys
import time
from dataclasses import replace
from pathlib import Path

from carla_launcher import config, hooks, up
from carla_launcher.act.container_words import container_of
from carla_launcher.act.effects import State
from carla_launcher.act.journal import Journal
from carla_launcher.act.launcher_state import LauncherState, UnusableStateError, read_previous
from carla_launcher.act.monitor import pools_plain
from carla_launcher.act.notify import notifiers
from carla_launcher.config import LauncherConfig
from carla_launcher.decide.decisions import Ending
from carla_launcher.decide.route_progress import Standing
from carla_launcher.options import RefusedError, RunOptions, RuntimeKind
from carla_launcher.routes import items
from carla_launcher.routes.desk import Desk
from carla_launcher.routes.lane import Lane
from carla_launcher.routes.setting import Setting, setting_of
from carla_launcher.show import routes, summary
from carla_launcher.show.report_process import write_report
from carla_run import formats
from carla_run.configuration import program_file
from carla_run.configuration.program_file import ProgramFileError
from carla_run.configuration.routes_section import Routes
from carla_run.events import LauncherEvent
from carla_run.exits import Exit, ExitError
from carla_run.paths import RunPaths
from carla_run.signals import StopRequests


def run(run_: RunPaths, program: Path, asked: RunOptions, simulators: int, say: up.Say) -> Ending:
    """Drive all items that have no result yet, write the report, and return how it ended.

    Args:
        run_: the evaluation's folder; one that holds an evaluation goes on.
        program: its file.
        asked: for the simulators.
        simulators: that are driven in side by side.
        say: prints a line.

    Raises:
        ExitError: program file or machine can't be used, or another launcher drives there.
    """
    run_ = RunPaths(run_.path.absolute())  # the program runs in a folder of its choice
    stop = StopRequests()
    stop.install(closing_terminal=True)
    rules = _rules(program)
    limits = _limits(asked, rules)
    try:
        found = items.read(rules.items, rules.folder or Path())
    except ProgramFileError:
        if stop.count:  # the terminal's Ctrl-C ended the command that prints them, too
            raise ExitError("Stopped on request while the items were read.", Exit.STOPPED) from None
        raise
    _state(run_, program, asked)  # refuse before anything is written
    with up.locked(run_, limits) as lock, contextlib.ExitStack() as opened:
        listeners = [opened.enter_context(contextlib.closing(each)) for each in notifiers(asked.on_event)]
        journal = Journal(run_, _state(run_, program, asked), time.time, listeners)
        desk = Desk(run_, found, rules, journal, stop, say)
        with contextlib.ExitStack() as driving:
            setting = None
            if desk.has_work:  # refuses what this machine hasn't before anything is recorded
                setting = driving.enter_context(
                    setting_of(run_, asked, simulators, limits, rules, journal, lock.descriptor, stop, say)
                )
            port, to_terminal = asked.dashboard_port, sys.stdout.isatty()
            page = opened.enter_context(
                hooks.serve_page(run_, port, say, asked.launcher_config, to_terminal=to_terminal)
            )
            journal.event(LauncherEvent.RUN_STARTED, config=str(program))
            desk.begin()
            journal.change(incident="", state=State.RUNNING.value)  # the killed launcher's drives are closed
            try:
                if setting is not None:
                    if page is not None:
                        setting.memory.count_as_launcher(page)
                    _drive(desk, setting)
                else:
                    say("nothing is driven; another --run-name begins again")
                ending = _ending(desk, stop)
            except ExitError as error:
                driving.close()  # what it started ends before the run does
                _end(journal, Ending(error.code, str(error)))
                raise
        _end(journal, ending)
        if problem := write_report(run_):  # a full disk doesn't change how it ended
            say(problem)
        told = routes.told(run_, desk.progress)
        for line in (*routes.left(told), routes.sentence(told)):
            say(line)
        summary.print_summary(run_, ending, say, "")
    return ending


def _state(run_: RunPaths, program: Path, asked: RunOptions) -> LauncherState:
    """Return the state with which this launcher begins.

    Raises:
        RefusedError: the folder holds another run, or what its last launcher left can't be used.
        FormatError: a later version continued the evaluation.
    """
    formats.require_readable(run_)
    try:
        before = read_previous(run_)
    except UnusableStateError as error:
        raise RefusedError(f"{error}: choose another --run-name.") from None
    if run_.holds_a_run() or (before is not None and not before.state.evaluation):
        raise RefusedError(f"{run_.path} is a run of `up`: choose another --run-name.")
    earlier = program if before is None else Path(before.state.evaluation)
    if earlier.exists() and not earlier.samefile(program):  # one that was moved goes on
        raise RefusedError(f"{run_.path} is the evaluation of {earlier}, not of {program}: choose another --run-name.")
    saved = asked.model_copy(update={"runtime": RuntimeKind.PROCESS}).model_dump(mode="json", exclude_unset=True)
    state = LauncherState(run_.path.name, {}, "", 0) if before is None else before.state
    return replace(state, options=saved, evaluation=str(program.absolute()))


def _drive(desk: Desk, setting: Setting) -> None:
    lanes = [Lane(number, desk, setting) for number in range(setting.spec.simulators)]
    scripts = [lane.run() for lane in lanes]
    drawn_s = float("-inf")
    try:
        while scripts:
            scripts = [script for script in scripts if next(script, True) is None]
            if scripts and time.monotonic() - drawn_s >= setting.config.memory.timeline_s:
                drawn_s = time.monotonic()
                _draw(lanes, setting)
            time.sleep(setting.config.poll_s if scripts else 0.0)
    finally:
        for lane in lanes:
            lane.close()


def _draw(lanes: list[Lane], setting: Setting) -> None:
    """Add what all lanes hold to the timeline of memory."""
    simulators, programs = zip(*(lane.pids() for lane in lanes), strict=True)
    reading = setting.memory.read(frozenset().union(*simulators), frozenset().union(*programs))
    setting.journal.memory({"pools": pools_plain(reading)})


def _ending(desk: Desk, stop: StopRequests) -> Ending:
    if desk.over is not None:
        return desk.over
    if stop.count:
        return Ending(Exit.STOPPED, f"stopped on request ({stop.cause}): the same command goes on")
    progress = desk.progress
    left = [item for item in progress.items if progress.standing(item) is Standing.LEFT]
    if left:
        return Ending(Exit.BUDGET_SPENT, f"{len(left)} of {len(progress.items)} items are left without a result")
    return Ending(Exit.FINISHED, "all items have a result")


def _end(journal: Journal, ending: Ending) -> None:
    code = int(ending.code)
    journal.change(state=State.STOPPED.value, exit_code=code, reason=ending.reason)
    journal.event(LauncherEvent.RUN_ENDED, ending.reason, exit_code=code)


def _rules(program: Path) -> Routes:
    """Return the program file's part, with the folder from which its paths go.

    Raises:
        ProgramFileError: it can't be used, or its command isn't there, or is a container that can't be supervised.
    """
    if (rules := program_file.load(program).routes) is None:
        raise ProgramFileError(f"{program} has no `routes`: examples/programs/leaderboard.yaml has it.")
    folder = (program.absolute().parent / (rules.folder or Path())).resolve()
    if not folder.is_dir():
        raise ProgramFileError(f"{program}: routes.folder is {folder}, expected a folder that is there.")
    word = rules.command[0]
    if "{" not in word and shutil.which(word if "/" not in word else str(folder / word)) is None:
        raise ProgramFileError(f"{program}: routes.command begins with {word!r}, which is no program here.")
    if (container := container_of(rules.command)) is not None and container.refusal:
        raise ProgramFileError(f"{program}: routes.command: {container.refusal}")
    return rules.model_copy(update={"folder": folder})


def _limits(asked: RunOptions, rules: Routes) -> LauncherConfig:
    limits = config.load(asked.launcher_config)
    return limits.model_copy(update={"agent": limits.agent.model_copy(update={"stop_grace_s": rules.stop_grace_s})})
