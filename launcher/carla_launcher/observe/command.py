"""A command that writes no heartbeat, as it shows from outside: its process, its output, what its file calls progress.

Writes the heartbeat in its place, so that status, report and page read one file whichever program runs. A program that
writes it itself, by the contract's library, is left to. Starts, stops and judges nothing.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from carla_launcher.observe import observation
from carla_launcher.observe.agent import AgentMonitor
from carla_launcher.observe.observation import AgentSeen, Ended, Program
from carla_launcher.observe.tail import Tail
from carla_run.configuration import program_life
from carla_run.configuration.program_file import ProgramFile
from carla_run.configuration.program_life import Alive, End
from carla_run.events import Failed, MemoryPool
from carla_run.exits import Exit
from carla_run.files import bytes_in, write_whole, written_s
from carla_run.heartbeat import Heartbeat, Phase, read_heartbeat
from carla_run.memory.errors import Meaning, disk_is_full, meaning_of, no_simulator
from carla_run.paths import RunPaths
from carla_run.readers import last_lines

LAST_LINES = 100
"""Number of last lines of a command's output that are searched for an error after the command ended."""
LEAST_BYTES = 2**16
"""Free bytes below which a disk counts as full: nothing more can be written."""
IN_CLEANUP = tuple(128 + each for each in (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGILL, signal.SIGFPE))
"""Exit codes of a crash in native code, such as that of a library at a program's exit."""
PYTHONS_ERROR = 1
"""Exit code of Python after a traceback."""
TRACEBACK = "Traceback (most recent call last):"
EXCEPTION = re.compile(r"[A-Za-z_][\w.]*(: .*)?")
"""The line that ends a traceback; its other lines are indented."""
Stamp = tuple[int, int, int]
"""When a file was written, nanoseconds since 1970, its size and its inode."""
POOLS: dict[Meaning | None, MemoryPool] = {Meaning.HOST: MemoryPool.HOST, Meaning.DEVICE: MemoryPool.DEVICE}


class CommandMonitor:
    """Looks at one process of the command after another; as ``AgentMonitor``.

    Attributes:
        reports: the program writes its heartbeat itself.
    """

    def __init__(
        self, run: RunPaths, file: ProgramFile, folder: Path, log: Path, say: Callable[[str], None] = print
    ) -> None:
        self._run, self._file, self._folder, self._log, self._say = run, file, folder, log, say
        self._named = False
        self._reporting = AgentMonitor(run)
        self.reports = False
        self._sign = Sign(file.alive, folder, log)
        self._done = Done(file.done, folder, log)
        self._program: Program | None = None
        self._beat: Heartbeat | None = None
        self._moved_s = 0.0
        self._stood = self._wrote = _written(run)
        self._begins = self._ends = bytes_in(log)
        if (before := read_heartbeat(run.heartbeat)) is not None:  # of an earlier launcher
            self._sign.step = before.step

    @property
    def pid(self) -> int:
        """The process of the command that was looked at last; 0 without one."""
        return 0 if self._program is None else self._program.pid

    @property
    def step(self) -> int:
        """The newest step that was read."""
        return self._sign.step

    def restart_age(self, now_s: float) -> None:
        """Count the time without progress from now."""
        self._reporting.restart_age(now_s)
        self._moved_s = now_s

    def look(self, now_s: float, program: Program | None) -> AgentSeen:
        """Return what it is now; ``program`` is None if there is none."""
        seen = self._look(now_s, program)
        self._ends = bytes_in(self._log)
        return seen

    def _look(self, now_s: float, program: Program | None) -> AgentSeen:
        if program is not self._program:
            self._program, self._moved_s, self._beat = program, now_s, None
            self._begins = self._ends  # what stood in the log at the last look is of a process before
            self._stood = _written(self._run)
            self._sign.begin()
            self._done.begin()
        self._done.look(now_s)
        if self._is_reporting(program):
            seen = self._reporting.look(now_s, program)
            if seen.ended is not None:
                return replace(seen, ended=self._judged(self._as_reported(seen.ended, seen.beat)))
            return replace(seen, done=self._done.shown(now_s) if seen.running else None)
        self._reporting.look(now_s, program)
        if program is None:
            self._name_idle_progress()
            return AgentSeen(running=False)
        ended = None if (polled := program.poll()) is None else self._judged(polled)
        if self._sign.look():
            self._moved_s = now_s
        self._name_odd_name(now_s)
        self._write(program, ended)
        failed = () if ended is None else tuple(self._failure(ended))
        beat = self._beat if self._sign.seen or ended is not None else None
        done = self._done.shown(now_s) if ended is None else None
        age_s, awaited = now_s - self._moved_s, self._sign.awaited
        return AgentSeen(ended is None, ended, beat, age_s, failed, program.pid, done, awaited)

    def close(self) -> None:
        """Let go of the files."""
        self._reporting.close()
        self._sign.close()
        self._done.close()

    def _is_reporting(self, program: Program | None) -> bool:
        """Return whether another than this monitor has written the heartbeat since the process began."""
        if program is not None and not self.reports:
            found = _written(self._run)
            self.reports = found is not None and found not in (self._stood, self._wrote)
        return self.reports

    def _name_idle_progress(self) -> None:
        """Say that what counts as progress also comes without the program."""
        if not self._named and self._sign.changes_by_itself():
            self._named = True
            self._say(
                f"alive: {self._sign.path} changes while the command isn't running, so it can't show that the command "
                "lives: name what only the command writes"
            )

    def _name_odd_name(self, now_s: float) -> None:
        """Say that what is written in the folder has no step in its name, once half of the time is over."""
        alive, odd = self._file.alive, self._sign.without_step
        if alive is not None and odd and not self._named and now_s - self._moved_s > alive.first_limit_s / 2:
            self._named = True
            self._say(
                f"alive.step_in_name: {odd} in {self._sign.path} is new, and its name has no step by the expression; "
                "while none has one, the command counts as hung in the end"
            )

    def _write(self, program: Program, ended: Ended | None) -> None:
        """Write what is known as a heartbeat would be."""
        finished = ended is not None and (bool(ended.done) or (self._finishes(ended) and not ended.undone))
        phase = Phase.FINISHED if finished else Phase.UPDATING if self._sign.seen else Phase.STARTING
        self._beat = Heartbeat(
            time=round(time.time(), 3),
            pid=program.pid,
            phase=phase,
            step=self._sign.step,
            total_steps=0 if self._file.alive is None else self._file.alive.steps or 0,
            updates=self._sign.count,
            episode=0,
            device="cuda",
            batch=0,
            micro_batch=0,
            ticks=0,
            tick_outstanding_s=0.0,
            collector_restarts=0,
            exit_code=0 if finished else None,
        )
        # Its device and updates are unknown to readers of the file.
        told = replace(self._beat, device="", updates=0)
        with contextlib.suppress(OSError):
            write_whole(self._run.heartbeat, told.json(), durable=False)
            self._wrote = self._beat.time, self._beat.pid

    def _failure(self, ended: Ended) -> list[dict[str, object]]:
        """Return what its last words say of memory, as the event of a program that reports."""
        words = self._last_words()
        meaning = meaning_of(words)
        last = _error(words) if ended.code == PYTHONS_ERROR else words.rpartition("\n")[2]
        end = self._file.exits.get(ended.code)
        if ended.done or (end not in (None, End.OUT_OF_MEMORY) and not self._done.missing):
            return []
        full = disk_is_full(last) or not _has_room(self._folder)  # its last words may be lost
        pool = MemoryPool.DISK if meaning is None and full else POOLS.get(meaning)
        lost, gone = meaning is Meaning.GPU_LOST, meaning is Meaning.NO_GPU
        alone = no_simulator(words)
        event = Failed(ended.code, "", pool, gpu_lost=lost, cause=last, no_gpu=gone, no_simulator=alone)
        return [event.row()]

    def _last_words(self) -> str:
        """Return the last lines of the present process; of a log that was cut meanwhile, its last lines."""
        return last_lines(self._log, LAST_LINES, self._begins if self._begins <= bytes_in(self._log) else 0)

    def _judged(self, ended: Ended) -> Ended:
        if ended.code not in self._file.exits:
            return replace(ended, done=self._done.shown_before(ended, self._last_words()))
        if not self._finishes(ended):
            return ended
        return replace(ended, undone=self._done.missing, left=0 if self._shows_done else ended.left)

    def _as_reported(self, ended: Ended, beat: Heartbeat | None) -> Ended:
        """Return an end with the code that the program reported: to exit with it is easily left out."""
        stopped = beat is not None and beat.exit_code == Exit.STOPPED and not self._shows_done
        return replace(ended, code=int(Exit.STOPPED)) if stopped and ended.code == Exit.FINISHED else ended

    @property
    def _shows_done(self) -> bool:
        return self._file.done is not None and not self._done.missing

    def _finishes(self, ended: Ended) -> bool:
        return self._file.exits.get(ended.code) is End.FINISHED


def _error(words: str) -> str:
    """Return the line that ends the last traceback, else the last line: a container mixes its outputs."""
    last = words.rpartition("\n")[2]
    _, found, traceback = words.rpartition(TRACEBACK)
    return next(filter(EXCEPTION.fullmatch, traceback.splitlines()), last) if found else last


def _has_room(folder: Path) -> bool:
    try:
        return shutil.disk_usage(folder).free >= LEAST_BYTES
    except OSError:
        return True


def _written(run: RunPaths) -> tuple[float, int] | None:
    """Return when and by which process the heartbeat was written; None without one."""
    found = read_heartbeat(run.heartbeat)
    return None if found is None else (found.time, found.pid)


class Done:
    """What shows that one process after another has done its work."""

    def __init__(self, done: program_life.Done | None, folder: Path, log: Path) -> None:
        done = done or program_life.Done()
        self._path = None if done.file is None else folder / done.file
        self._limit_s = done.exits_within_s
        self._pattern = None if done.log is None else re.compile(done.log)
        self._sign = str(done.file) if done.log is None else f"a line that fits `{done.log}`"
        self._tail = Tail(log, from_end=True)
        self._since_s: float | None = None
        self._still = False
        self._before = self._now = stamp(self._path)

    @property
    def missing(self) -> str:
        """Return what would show that it is done, and isn't there; empty if nothing is missing."""
        if self._pattern is not None:
            is_shown = self._since_s is not None
        else:
            is_shown = self._path is None or written_s(self._path) is not None
        return "" if is_shown else self._sign

    def begin(self) -> None:
        """Forget what was shown: another process begins."""
        self._since_s, self._still, self._before = None, False, self._now

    def look(self, now_s: float) -> None:
        """Look at what was printed or written since the look before."""
        if self._pattern is not None:
            if any([*map(self._pattern.search, self._tail.look())]):
                self._since_s = now_s if self._since_s is None else self._since_s
            return
        before, self._now = self._now, stamp(self._path)
        self._still = self._now == before
        if self._now is None or self._now == self._before:
            self._since_s = None
        elif self._since_s is None or not self._still:
            self._since_s = now_s

    def shown(self, now_s: float) -> observation.Done | None:
        """Return what the present process has shown; a file counts from its last change."""
        return None if self._since_s is None else observation.Done(self._sign, now_s - self._since_s, self._limit_s)

    def shown_before(self, ended: Ended, words: str) -> str:
        """Return what it showed before it crashed; empty if nothing, or a file that may be half written.

        Args:
            ended: how it ended.
            words: the last ones that it printed.
        """
        if self._since_s is None:
            return ""
        ran_out = ended.oom_killed or meaning_of(words) is not None or disk_is_full(words.rpartition("\n")[2])
        whole = self._pattern is not None or self._still or (ended.code in IN_CLEANUP and not ran_out)
        return self._sign if whole else ""

    def close(self) -> None:
        """Let go of the log."""
        self._tail.close()


class Sign:
    """Detects progress of a program, over all of its processes in turn.

    Attributes:
        path: file or folder whose changes are progress; None if lines of output are.
        seen: whether there was progress since the start of the process.
        step: newest training step that was read; 0 before the first.
        count: number of times that there was progress, in all processes.
        without_step: newest file whose name should have a step and has none, while no other one has; else empty.
    """

    def __init__(self, alive: Alive | None, folder: Path, log: Path) -> None:
        self._alive = alive
        named = None if alive is None else alive.file or alive.folder
        self.path = None if named is None else folder / named
        self._idle: object = None
        self._pattern = re.compile(alive.log) if alive is not None and alive.log else None
        self._in_name = re.compile(alive.step_in_name) if alive is not None and alive.step_in_name else None
        self._tail = Tail(log, from_end=True)
        self._stamp = stamp(self.path)
        self._newest: tuple[Stamp, str, int] | None = None
        self.without_step = ""
        self.seen, self.step, self.count = alive is None, 0, 0
        self._step_of_newest()

    @property
    def awaited(self) -> str:
        """What the next progress is; empty if the program names nothing."""
        if self._pattern is not None:
            return f"a line that fits `{self._pattern.pattern}`"
        return "" if self.path is None else f"a change of {self.path}"

    def begin(self) -> None:
        """Forget that there was any: another process begins."""
        self.seen = self._alive is None
        self._stamp, self._idle = stamp(self.path), None
        self._step_of_newest()

    def changes_by_itself(self) -> bool:
        """Return whether the path has changed since the last look at which no process ran either."""
        now = stamp(self.path)
        before, self._idle = self._idle, now
        return before is not None and now != before

    def look(self) -> bool:
        """Return whether there was progress since the look before."""
        moved = self._alive is None or self._read_log() or self._read_path()
        self.seen = self.seen or moved
        self.count += moved
        return moved

    def close(self) -> None:
        """Let go of the log."""
        self._tail.close()

    def _read_log(self) -> bool:
        if self._pattern is None:
            return False
        newest = next((match for line in reversed(self._tail.look()) if (match := self._pattern.search(line))), None)
        if newest is None or not self._pattern.groups:
            return newest is not None
        step = as_step(newest[1])
        moved = step is not None and (step != self.step or not self.seen)
        self.step = self.step if step is None else step
        return moved

    def _read_path(self) -> bool:
        now = stamp(self.path)
        moved, self._stamp = now != self._stamp and now is not None, now
        if self._in_name is None or not moved:
            return moved
        step = self._step_of_newest()
        self.step = self.step if step is None else step
        return step is not None

    def _step_of_newest(self) -> int | None:
        """Return the step in the name of the newest file that has one; None if it is the same file as before."""
        if self.path is None or self._in_name is None:
            return None
        newest: tuple[Stamp, str, int] | None = None
        other: tuple[Stamp, str] | None = None
        for path in _files(self.path):
            found, match = _stamp(path), self._in_name.search(path.name)
            step = None if match is None else as_step(match[1])
            if found is not None and step is not None:
                newest = max(newest or (found, path.name, step), (found, path.name, step))
            elif found is not None:
                other = max(other or (found, path.name), (found, path.name))
        self.without_step = other[1] if newest is None and other is not None else ""
        if newest is None or newest == self._newest:
            return None
        self._newest = newest
        return newest[2]


def as_step(text: str | None) -> int | None:
    """Return a step as programs print it: with separators, as 1e5, or with a fraction; None for anything else."""
    try:
        return int(float((text or "").replace(",", "").replace("_", "")))
    except (ValueError, OverflowError):
        return None


def stamp(path: Path | None) -> object:
    """Return what changes when a file, or anything in a folder, does; None where there is nothing."""
    if path is None:
        return None
    if not os.path.isdir(path):  # noqa: PTH112 (says no for one that can't be looked at, too)
        return _stamp(path)
    found = [(str(each), _stamp(each)) for each in _files(path)]
    return len(found), hash(tuple(sorted(found)))


def _files(folder: Path) -> Iterator[Path]:
    """Yield the files in a folder and below it, without what a launcher writes all the time in the folder of a run."""
    for parent, folders, names in os.walk(folder):
        run, own = RunPaths(Path(parent)), set[str]()
        if run.launcher_lock.name in names:
            folders[:] = [each for each in folders if each not in (run.logs.name, run.live.name)]
            own = {each.name for each in (run.heartbeat, run.launcher_state, run.launcher_events, run.launcher_memory)}
            own |= {each for each in names if each.startswith(".")}  # on the way to their names
        yield from (run.path / each for each in names if each not in own)


def _stamp(path: Path) -> Stamp | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
