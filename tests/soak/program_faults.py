"""A program that knows nothing of the launcher, struck again and again until it ends, and what each fault cost.

``python -m tests.soak.program_faults --program FILE --cwd FOLDER -- COMMAND`` strikes any command that ``carla-launcher
run`` starts: see docs/how-to/any-training.md. Exit 1 if a step was repeated that need not have been, or if something
was left running. The limit of memory is that of a real control group, which needs root.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer
from rich import print as show

from tests.control_group import Group
from tests.wire.launched import Launched, own_limits

QUICK = {
    "watch.check_every_s": 1,
    "watch.interval_s": 0.5,
    "simulator.restarts.first_delay_s": 0.1,
    "simulator.restarts.longest_delay_s": 0.5,
    "simulator.restarts.budget": 40,
    "agent.restarts.first_delay_s": 0.1,
    "agent.restarts.longest_delay_s": 0.5,
    "agent.restarts.budget": 40,
}
"""What comes in months of nights comes in minutes here, so no budget of restarts may end it."""


class Fault(str, Enum):
    """What happens to a run."""

    SIMULATOR_KILLED = "simulator killed"
    SIMULATOR_HUNG = "simulator hung"
    PROGRAM_KILLED = "program killed"
    MEMORY_CUT = "memory limit cut"
    LAUNCHER_KILLED = "launcher killed"


ALL = (
    *(Fault.SIMULATOR_KILLED, Fault.SIMULATOR_HUNG) * 5,
    Fault.PROGRAM_KILLED,
    Fault.MEMORY_CUT,
    Fault.LAUNCHER_KILLED,
)
CAUSES = {
    Fault.SIMULATOR_KILLED: "simulator_crash",
    Fault.SIMULATOR_HUNG: "simulator_hang",
    Fault.PROGRAM_KILLED: "agent_crash",
    Fault.MEMORY_CUT: "agent_host_oom",
}
"""The cause that the launcher must name; of its own death it names none."""


@dataclass
class Struck:
    """A fault, the step at which it came, and the first one that was seen after it."""

    fault: Fault
    step: int
    resumed_at: int | None = None


@dataclass
class Outcome:
    """What came of a run.

    Attributes:
        code: the launcher's exit code.
        reported_lost: steps that the launcher's events count as lost.
    """

    struck: list[Struck]
    code: int
    output: str
    causes: list[str]
    reported_lost: int
    problems: list[str] = field(default_factory=list)


class StruckRun(Launched):
    """A run of a command in its control group."""

    def __init__(self, folder: Path, group: Group) -> None:
        super().__init__(folder)
        self.group = group
        self._first: int | None = None
        self._struck = 0

    def begin(self, *words: str) -> None:
        """Start a launcher; without words one that goes on."""
        self.run_command(*words)
        self.group.take(self.process.pid)

    def until_driven(self, steps: int) -> int:
        """Wait until the present process of the program has shown that it made so many steps; return the last one."""
        first = last = self._next((0, 0))
        while last[1] < first[1] + steps:
            last = self._next(last)
            if last[0] != first[0]:
                first = last
        self._first = first[1]
        return last[1]

    def _next(self, last: tuple[int, int]) -> tuple[int, int]:
        """Return process id and step once they are others: a slow training is waited for step by step."""
        now = last

        def moved() -> bool:
            nonlocal now
            beat = self.beat
            if beat.get("phase") == "updating" and self._struck != beat["pid"] == self._pid("agent"):
                now = (beat["pid"], int(beat["step"]))
            return now != last

        self.until(moved)
        return now

    def output(self) -> str:
        """Return all output once the launcher has ended, however long that takes a program that makes steps."""
        while True:
            step = self.beat.get("step")
            try:
                return super().output()
            except subprocess.TimeoutExpired:
                if self.beat.get("step") == step:
                    raise

    @property
    def first(self) -> int | None:
        """The first step that the present process was seen to make."""
        return self._first

    def strike(self, fault: Fault) -> None:
        """Let a fault happen, and return once it has been noticed."""
        before, self._struck = len(self.events("finding")), self._pid("agent")
        getattr(self, f"_{fault.name.lower()}")()
        if fault is not Fault.LAUNCHER_KILLED:
            wanted = CAUSES[fault]
            self.until(lambda: wanted in [row["diagnosis"] for row in self.events("finding")[before:]])
            self.group.free()

    def _simulator_killed(self) -> None:
        os.kill(self._pid("simulator"), signal.SIGKILL)

    def _simulator_hung(self) -> None:
        os.kill(self._pid("simulator"), signal.SIGSTOP)

    def _program_killed(self) -> None:
        os.kill(self._pid("agent"), signal.SIGKILL)

    def _memory_cut(self) -> None:
        self.group.cut()

    def _launcher_killed(self) -> None:
        self.process.kill()
        self.process.communicate()
        self.begin()

    def _pid(self, program: str) -> int:
        return int((self.state.get(program) or {}).get("pid") or 0)


def struck(group: Group, folder: Path, words: tuple[str, ...], *, every: int, resumes: bool) -> Outcome:
    """Strike a command with one fault after the other, each after more than ``every`` steps, and let it end.

    Args:
        group: for all of its processes.
        folder: for the runs.
        words: options of ``run``, and the command after ``--``.
        every: steps between two checkpoints; of one that doesn't resume: steps before the next fault.
        resumes: it goes on from its checkpoint.
    """
    run = StruckRun(folder, group)
    try:
        run.begin(*words)
        found: list[Struck] = []
        for fault in ALL:
            step = run.until_driven(every + 1 if resumes else every)
            if found:
                found[-1].resumed_at = run.first
            found.append(Struck(fault, step))
            run.strike(fault)
        run.until_driven(1)
        found[-1].resumed_at = run.first
        output = run.output()
        lost = sum(row.get("steps_lost") or 0 for row in run.events("stood_still"))
        causes = [row["diagnosis"] for row in run.events("finding")]
        outcome = Outcome(found, run.process.returncode, output, causes, lost)
        outcome.problems = list(_problems(outcome, run, every if resumes else None))
        return outcome
    finally:
        run.end()


def _problems(outcome: Outcome, run: StruckRun, every: int | None) -> Iterator[str]:
    if outcome.code:
        yield f"exit code {outcome.code}: {outcome.output[-2000:]}"
    for each in outcome.struck:
        back = each.step - (each.resumed_at or 0)
        if every is not None and back > every:
            yield f"{each.fault.value} at step {each.step}: went on at {each.resumed_at}, beyond {every} steps"
    if missing := [cause for cause in CAUSES.values() if cause not in outcome.causes]:
        yield f"never named: {', '.join(missing)}"
    if left := run.group.left():
        yield f"left running: {left}"
    if not (run.run / "report.html").exists():
        yield "there is no report"
    if every is None and not outcome.reported_lost:
        yield "the report counts no lost steps"


def main(
    command: Annotated[list[str], typer.Argument(help="Command, after `--`.")],
    program: Annotated[Path, typer.Option(help="Program file of the command.")],
    cwd: Annotated[Path, typer.Option(help="Working directory of the command.")] = Path(),
    every: Annotated[int, typer.Option(help="Steps between two checkpoints.")] = 100,
    resumes: Annotated[bool, typer.Option(help="Whether the command resumes from its checkpoint.")] = True,
    port: Annotated[int | None, typer.Option(help="Port of the simulator, for a command that takes no port.")] = None,
    map_dir: Annotated[Path | None, typer.Option(help="Folder with CARLA's maps for carla-lite.")] = None,
) -> None:
    """Strike a command 13 times beside carla-lite."""
    options: tuple[str, ...] = (
        "--simulator",
        "carla-lite",
        "--cwd",
        str(cwd.absolute()),
        "--program",
        str(program.absolute()),
    )
    options += () if port is None else ("--port", str(port))
    limits = QUICK if map_dir is None else {**QUICK, "simulator.map_dir": str(map_dir.absolute())}
    with tempfile.TemporaryDirectory() as folder, contextlib.closing(Group()) as group:
        words = (*own_limits(Path(folder), limits), *options, "--", *command)
        outcome = struck(group, Path(folder), words, every=every, resumes=resumes)
    for each in outcome.struck:
        show(f"{each.fault.value} at step {each.step}: went on at {each.resumed_at}")
    show(f"lost by the launcher's count: {outcome.reported_lost} steps; causes: {', '.join(outcome.causes)}")
    show("\n".join(outcome.problems) or "nothing was lost that a checkpoint held, and nothing was left running")
    sys.exit(1 if outcome.problems else 0)


if __name__ == "__main__":
    typer.run(main)
