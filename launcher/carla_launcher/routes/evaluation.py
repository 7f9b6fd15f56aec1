"""``routes``: from a program file to an evaluation whose items all have a result, or are named.

Owns the order of things: lock, items, simulators, the lanes side by side, the table at the end.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from carla_launcher import config, up
from carla_launcher.act.notify import NEWS, Notifier
from carla_launcher.config import LauncherConfig
from carla_launcher.decide.decisions import Ending
from carla_launcher.options import RefusedError, RunOptions
from carla_launcher.routes import items, table
from carla_launcher.routes.desk import Desk
from carla_launcher.routes.journal import RouteJournal
from carla_launcher.routes.lane import Lane
from carla_launcher.routes.progress import Progress, RouteEvent, Standing, cut_off, progress_of
from carla_launcher.routes.setting import Setting, setting_of
from carla_run.configuration import routes_section
from carla_run.configuration.routes_section import Routes, RoutesFileError
from carla_run.exits import Exit
from carla_run.files import write_whole
from carla_run.locks import is_held
from carla_run.paths import RunPaths
from carla_run.readers import read_lines
from carla_run.signals import StopRequests

Say = Callable[[str], None]


def run(run_: RunPaths, program: Path, asked: RunOptions, simulators: int, say: Say) -> Ending:
    """Drive all items that have no result yet, leave the table, and return how it ended.

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
    found = items.read(rules.items, rules.folder or Path())
    if run_.launcher_state.exists():
        raise RefusedError(f"{run_.path} is a run of `up`: choose another --run-name.")
    with up.locked(run_, limits) as lock, _listening(asked.on_event) as listener:
        journal = RouteJournal(run_, listener)
        desk = Desk(run_, found, rules, journal, stop)
        if desk.has_work:
            journal.add(RouteEvent.RUN_STARTED, table.sentence(journal.progress), config=str(program))
            shared = setting_of(run_, asked, simulators, limits, rules, journal, lock.descriptor, stop, say)
            with shared as setting:
                _drive(desk, setting)
            ending = _ending(desk, journal.progress, stop)
            journal.add(RouteEvent.RUN_ENDED, ending.reason, exit_code=int(ending.code))
        else:
            ending = _ending(desk, journal.progress, stop)
            say("nothing is left to drive; another --run-name begins again")
        with contextlib.suppress(OSError):
            write_whole(run_.path / "report.md", table.page(run_, journal.progress))
        for line in (*table.left(journal.progress), table.sentence(journal.progress), ending.reason):
            say(line)
    return ending


def status(run_: RunPaths, as_json: bool) -> None:
    """Print where an evaluation stands.

    Raises:
        RefusedError: there is none.
    """
    if not run_.routes_journal.exists():
        raise RefusedError(f"{run_.path} holds no evaluation: start one with `routes --program FILE`.")
    progress = progress_of(read_lines(run_.routes_journal))
    if not is_held(run_.launcher_lock):
        progress = progress_of([*read_lines(run_.routes_journal), *cut_off(progress)])
    if as_json:
        print(json.dumps(table.as_plain(run_, progress), indent=1))
    else:
        print(f"{run_.path}: {table.sentence(progress)}\n\n{table.text(progress)}")


def _drive(desk: Desk, setting: Setting) -> None:
    lanes = [Lane(number, desk, setting) for number in range(setting.spec.simulators)]
    scripts = [lane.run() for lane in lanes]
    try:
        while scripts:
            scripts = [script for script in scripts if next(script, True) is None]
            time.sleep(setting.config.poll_s if scripts else 0.0)
    finally:
        for lane in lanes:
            lane.close()


def _ending(desk: Desk, progress: Progress, stop: StopRequests) -> Ending:
    if desk.over is not None:
        return desk.over
    if stop.count:
        return Ending(Exit.STOPPED, f"stopped on request ({stop.cause}): the same command goes on")
    left = [item for item in progress.items if progress.standing(item) is Standing.LEFT]
    if left:
        return Ending(Exit.BUDGET_SPENT, f"{len(left)} of {len(progress.items)} items are left without a result")
    return Ending(Exit.FINISHED, "all items have a result")


def _rules(program: Path) -> Routes:
    """Return the program file's part, with the folder from which its paths go.

    Raises:
        RoutesFileError: it can't be used, or its command isn't there.
    """
    rules = routes_section.load(program)
    folder = (program.absolute().parent / (rules.folder or Path()).expanduser()).resolve()
    if not folder.is_dir():
        raise RoutesFileError(f"{program}: routes.folder is {folder}, expected a folder that is there.")
    word = rules.command[0]
    if "{" not in word and shutil.which(word if "/" not in word else str(folder / word)) is None:
        raise RoutesFileError(f"{program}: routes.command begins with {word!r}, which is no program here.")
    return rules.model_copy(update={"folder": folder})


def _limits(asked: RunOptions, rules: Routes) -> LauncherConfig:
    limits = config.load(asked.launcher_config)
    return limits.model_copy(update={"agent": limits.agent.model_copy(update={"stop_grace_s": rules.stop_grace_s})})


@contextlib.contextmanager
def _listening(on_event: str) -> Iterator[Callable[[Mapping[str, Any]], None]]:
    if not on_event:
        yield lambda _row: None
        return
    with contextlib.closing(Notifier(on_event, news=NEWS | {RouteEvent.DRIVE_ENDED})) as notifier:
        yield notifier
