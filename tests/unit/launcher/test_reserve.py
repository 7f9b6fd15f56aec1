"""``scripts/wait_and_run.sh`` with real processes: on a GPU that is a stand-in in C, and in real RAM."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from carla_run.processes import held_mib
from tests.conftest import REPOSITORY
from tests.crowd import until
from tests.gpu_stub import grow
from tests.gpu_stub.stub import Figures, build

SCRIPT = REPOSITORY / "scripts" / "wait_and_run.sh"
GROW = (sys.executable, grow.__file__)
RESERVED, CONTEXT, STEP, BLOCK = 2048, 300, 128, 32
CARLA = 4_200_001  # above what Linux gives out
SLACK = 16
OURS = (str(REPOSITORY / "launcher"), str(REPOSITORY / "contract"))
RAM = ("--pool", "ram", "--min-free", "64")


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("stub"))


@pytest.fixture
def figures(tmp_path: Path, libraries: Path) -> Figures:
    """A card of which CARLA leaves just what is reserved."""
    figures = Figures(tmp_path / "figures", libraries)
    figures.hold(CARLA, figures.total_mib - RESERVED, kind="G", name="CarlaUE4")
    return figures


class Program:
    """A process that a test started."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.pid = process.pid

    def line(self) -> str:
        """Return its next line."""
        assert self.process.stdout
        return self.process.stdout.readline().strip()

    def waits(self) -> None:
        """Return once it has said that it looks again."""
        self.says("looking again in")

    def says(self, words: str) -> None:
        """Return once a line of its standard error has these words."""
        assert self.process.stderr
        assert any(words in line for line in iter(self.process.stderr.readline, "")), f"it never said: {words}"

    def go(self) -> None:
        """Give it a line."""
        assert self.process.stdin
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def ended(self, seconds: float = 120.0) -> tuple[int, str]:
        """Return its exit code and what it wrote to standard error."""
        _, said = self.process.communicate(timeout=seconds)
        return self.process.returncode, said


Start = Callable[..., Program]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start the script (words that begin with an option) or another program; killed after the test if it still runs."""
    started: list[subprocess.Popen[str]] = []

    def start(*words: str, environment: Mapping[str, str] | None = None) -> Program:
        if words[0].startswith("-"):
            words = ("bash", str(SCRIPT), *words)
        pipe = subprocess.PIPE
        process = subprocess.Popen(
            words, cwd=tmp_path, env=environment, stdin=pipe, stdout=pipe, stderr=pipe, text=True
        )
        started.append(process)
        return Program(process)

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def foreign_process(figures: Figures, start: Start) -> Callable[[int], Program]:
    """Return a process with a context beside what is reserved; on a line it insists on so many MiB."""

    def ready(mib: int) -> Program:
        figures.total_mib += CONTEXT
        figures.write()
        program = start(*GROW, "--insist", "--stay", "3600", str(mib), environment=figures.environment)
        assert program.line() == "begins"
        return program

    return ready


def held_by(figures: Figures) -> dict[int, float]:
    """Return the MiB that each living process has of the stand-in GPU, all at one moment."""
    held = _read(figures)
    while held != (again := _read(figures)):  # somebody took or gave meanwhile: together they'd be what never was
        held = again
    return held


def _read(figures: Figures) -> dict[int, float]:
    held = {}
    for file in figures.path.with_name("figures.d").iterdir():
        with contextlib.suppress(OSError, IndexError, ValueError):  # gone, or being written
            if (Path("/proc") / file.name / "stat").read_text().rpartition(")")[2].split()[0] != "Z":
                held[int(file.name)] = float(file.read_text())
    return held


def free_in(figures: Figures) -> float:
    """Return what lies free of what is reserved and of a foreign process's context beside it."""
    return figures.total_mib - (5745 - RESERVED) - sum(held_by(figures).values())


class Sample(NamedTuple):
    """MiB that are free, that the command has taken, that a foreign process holds."""

    free: float
    taken: float
    robbed: float


@contextlib.contextmanager
def sampled(figures: Figures, pid: int, robber: int) -> Iterator[list[Sample]]:
    """Look every few milliseconds, until a process ends."""
    samples: list[Sample] = []
    done = threading.Event()

    def look() -> None:
        while not done.wait(0.002):
            held = held_by(figures)
            if samples and samples[-1].taken > held.get(pid, 0.0):
                break
            free = figures.total_mib - (5745 - RESERVED) - sum(held.values())
            samples.append(Sample(free, held.get(pid, 0.0), held[robber]))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield samples
    finally:
        done.set()
        thread.join()


def most_free(samples: list[Sample], begins: float, ends: float) -> float:
    """Return the most that lay free while the process had taken from ``begins`` to less than ``ends`` MiB."""
    return max(sample.free for sample in samples if begins <= sample.taken < ends)


def noting_its_pid(file: Path, *words: str) -> tuple[str, ...]:
    """Return a command that writes its process id to a file and becomes another one."""
    return ("sh", "-c", f'echo $$ > {file}.new; mv {file}.new {file}; exec "$@"', "sh", *words)


def pid_in(file: Path) -> int:
    """Return the id as soon as it is there."""
    until(file.exists)
    return int(file.read_text())


def test_between_check_and_use_a_foreign_process_takes_the_memory_in_the_plain_way(
    figures: Figures, start: Start, foreign_process: Callable[[int], Program]
) -> None:
    robber = foreign_process(1500)
    assert free_in(figures) == RESERVED  # the check; so it is started
    command = start(*GROW, "--wait", "0.5", "1000", environment=figures.environment)
    robber.go()
    assert robber.line() == "grown"
    assert command.ended()[0] == 71


@pytest.mark.parametrize("listed", [True, False], ids=["told by process", "processes not told"])
def test_what_lies_free_while_the_command_grows_is_a_step_and_a_foreign_process_gets_nothing(
    figures: Figures, start: Start, foreign_process: Callable[[int], Program], tmp_path: Path, listed: bool
) -> None:
    figures.unlistable = not listed
    robber = foreign_process(500)
    # On a busy machine a pause is over before the holder has had its turn.
    paced = ("--wait", "0.3", "--pause", "0.1", "--patience", "20")
    growing = noting_its_pid(tmp_path / "pid", *GROW, *paced, *["90"] * 18)
    program = start("--min-free", str(RESERVED), "--", *growing, environment=figures.environment)
    pid = pid_in(tmp_path / "pid")
    robber.go()
    with sampled(figures, pid, robber.pid) as samples:
        code, said = program.ended()
    assert code == 0, said
    assert "2048 MiB of GPU 0 are held" in said
    assert "back: the command has all but the holder's own context" in said
    own_context_goes = RESERVED - CONTEXT - STEP
    assert len(samples) > 100
    # About to make a context, which can't be had in steps.
    assert STEP <= most_free(samples, 0, 1) <= CONTEXT + STEP + BLOCK + SLACK
    assert most_free(samples, CONTEXT + 90, own_context_goes) <= STEP + BLOCK + SLACK
    assert max(sample.robbed for sample in samples) == CONTEXT  # its own, from before


def test_memory_that_the_hold_denied_is_there_in_the_second_run(figures: Figures, start: Start, tmp_path: Path) -> None:
    """One allocation larger than a step fails while the rest is held."""
    big = (*GROW, "--pause", "0.3", "900")
    program = start("--min-free", str(RESERVED), "--fallback-batch", "2", "--", *big, environment=figures.environment)
    code, said = program.ended()
    assert code == 0, said
    assert "ran out of memory (exit code 71); once more with a batch of 2" in said
    assert "were still held for it" in said
    assert "torch.OutOfMemoryError" in said  # what the command says on standard error passes through


def test_memory_that_doesnt_come_free_is_named_with_its_holder_and_nothing_is_started(
    figures: Figures, start: Start, tmp_path: Path
) -> None:
    figures.hold(CARLA, figures.total_mib - 1000, kind="G", name="CarlaUE4")
    words = ("--min-free", "2048", "--sleep", "0.2", "--timeout", "0.5", "--", "touch", "started")
    code, said = start(*words, environment=figures.environment).ended()
    assert code == 71
    assert "1000 of 2048 MiB are free on GPU 0 (most hold CarlaUE4 4745 MiB); looking again in 0.2 s." in said
    assert "Gave up after 0.5 s" in said
    assert not (tmp_path / "started").exists()
    assert not held_by(figures)


def test_it_waits_until_the_memory_comes_free(figures: Figures, start: Start) -> None:
    figures.hold(CARLA, figures.total_mib - 1000, kind="G")
    program = start("--min-free", "1200", "--sleep", "0.1", "--", "true", environment=figures.environment)
    program.waits()
    assert program.process.poll() is None
    figures.hold(CARLA, figures.total_mib - 1300, kind="G")
    assert program.ended()[0] == 0


@pytest.mark.parametrize("signal_", [signal.SIGINT, signal.SIGTERM])
def test_a_request_to_stop_reaches_the_command_and_frees_all(
    figures: Figures, start: Start, tmp_path: Path, signal_: signal.Signals
) -> None:
    says = f'trap "echo told; exit 9" {signal_.name.removeprefix("SIG")}; echo runs; while :; do sleep 0.05; done'
    program = start("--min-free", "1000", "--", "bash", "-c", says, environment=figures.environment)
    assert program.line() == "runs"
    assert sum(held_by(figures).values()) == 1000 - STEP
    program.process.send_signal(signal_)
    assert program.line() == "told"
    assert not held_by(figures)
    assert program.ended()[0] == 9


def test_a_request_to_stop_ends_the_wait(figures: Figures, start: Start) -> None:
    figures.hold(CARLA, figures.total_mib - 100, kind="G")
    program = start("--min-free", "1000", "--", "true", environment=figures.environment)
    program.waits()
    program.process.terminate()
    code, said = program.ended()
    assert code == 75
    assert "Stopped by SIGTERM before the command was started." in said


def test_nothing_stays_held_when_it_is_killed(figures: Figures, start: Start) -> None:
    program = start("--min-free", "1000", "--", "sh", "-c", "echo runs; sleep 0.5", environment=figures.environment)
    assert program.line() == "runs"
    program.process.kill()
    until(lambda: not held_by(figures))


def test_a_command_that_has_settled_is_left_all_of_the_rest(figures: Figures, start: Start, tmp_path: Path) -> None:
    settled = noting_its_pid(tmp_path / "pid", *GROW, "--stay", "3600", "80")
    program = start("--min-free", "2048", "--settle", "0.6", "--", *settled, environment=figures.environment)
    until(lambda: len(held_by(figures)) == 2)  # holder and command
    until(lambda: sum(held_by(figures).values()) == CONTEXT + 80)
    os.kill(pid_in(tmp_path / "pid"), signal.SIGKILL)
    code, said = program.ended()
    assert code == 128 + signal.SIGKILL
    assert "the command hasn't grown for 0.6 s (it holds 380 MiB)" in said


def test_a_gpu_that_falls_off_the_bus_stops_the_hold_and_not_the_command(figures: Figures, start: Start) -> None:
    words = ("--min-free", "1000", "--", "sh", "-c", "echo runs; read go_on; exit 3")
    program = start(*words, environment=figures.environment)
    assert program.line() == "runs"
    figures.lose()
    program.says("are given back: GPU 0 can't be read")
    program.go()
    assert program.ended()[0] == 3


def test_what_can_never_be_is_refused_at_once(figures: Figures, start: Start) -> None:
    more = start("--min-free", "6000", "--", "true", environment=figures.environment)
    assert more.ended() == (71, "wait_and_run: GPU 0 has 5745 MiB in all, --min-free is 6000.\n")
    other = start("--gpu", "1", "--", "true", environment=figures.environment)
    code, said = other.ended()
    assert code == 65
    assert "GPU 1 can't be read" in said


def test_a_fresh_python_is_told_what_to_install_and_needs_nothing_for_ram(figures: Figures, start: Start) -> None:
    program = (
        "import sys; sys.path[:0] = [sys.argv.pop(1), sys.argv.pop(1)]; "
        "from carla_launcher.plugins.reserve.__main__ import main; sys.exit(main())"
    )
    bare = (sys.executable, "-S", "-c", program, *OURS)
    code, said = start(*bare, "--min-free", "100", "--", "true", environment=figures.environment).ended()
    assert code == 65
    assert "`python3 -m pip install nvidia-ml-py`, or --pool ram" in said
    assert start(*bare, *RAM, "--", "true", environment=figures.environment).ended()[0] == 0


def test_reserving_imports_this_project_and_the_standard_library_only() -> None:
    program = """
import sys
sys.path += sys.argv[1:]
import carla_launcher.plugins.reserve.__main__
print(*sorted({name.partition(".")[0] for name in sys.modules} - sys.stdlib_module_names))
"""
    packages = sysconfig.get_paths()["purelib"]  # there to be found, but not by themselves: site is left out
    bare = (sys.executable, "-S", "-c", program, *OURS, packages)
    found = subprocess.run(bare, capture_output=True, text=True, check=True).stdout.split()
    assert found == ["__main__", "carla_launcher", "carla_run"]


TOUCH = """
import mmap, time
blocks = []
for _ in range(6):
    blocks.append(mmap.mmap(-1, 64 * 2**20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE))
    time.sleep(0.15)
"""


def test_ram_is_really_held_and_handed_over(start: Start, tmp_path: Path) -> None:
    command = noting_its_pid(tmp_path / "pid", sys.executable, "-S", "-c", TOUCH)
    # A session of its own, as the launcher gives to what it starts: seen as a descendant all the same.
    program = start("--pool", "ram", "--min-free", "448", "--", "setsid", "--wait", *command)
    pid = pid_in(tmp_path / "pid")
    seen = []
    while program.process.poll() is None:
        holders = [child for child in children(program.pid) if child != pid]
        seen.append((held_mib(pid) or 0.0, sum(held_mib(holder) or 0.0 for holder in holders)))
        time.sleep(0.005)
    code, said = program.ended()
    assert code == 0, said
    grown = seen.index(max(seen))
    assert seen[0][1] > 448 - STEP - SLACK
    for taken, held in seen[: grown - 1]:
        assert taken + held > 448 - STEP - SLACK
        assert taken + held < 448 + 2 * 64  # what it has just touched is seen a moment later
    assert seen[grown][1] < 448 - seen[grown][0] + 64
    assert "the command hasn't" not in said


def children(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def test_the_fallback_batch_is_passed_once(start: Start, tmp_path: Path) -> None:
    says = 'echo "${AGENT_BATCH-unset} ${RL_BATCH_SIZE-unset}" >> batches; exit 71'
    code, said = start(*RAM, "--fallback-batch", "2", "--", "sh", "-c", says).ended()
    assert code == 71
    assert (tmp_path / "batches").read_text().splitlines() == ["unset unset", "2 2"]
    assert said.count("are held; starting sh.") == 2


def test_other_failures_are_not_run_again(start: Start, tmp_path: Path) -> None:
    code, _ = start(*RAM, "--fallback-batch", "2", "--", "sh", "-c", "echo x >> runs; exit 3").ended()
    assert code == 3
    assert (tmp_path / "runs").read_text() == "x\n"


def test_the_line_of_the_notes_runs_in_the_background_with_its_log(start: Start, tmp_path: Path) -> None:
    (tmp_path / "launcher").mkdir()  # the caller's folder is the command's own affair
    (tmp_path / "launcher" / "__init__.py").write_text("raise SystemExit('not this one')")
    options = "--min-free 64 --sleep 300 --timeout 7200 --fallback-batch 2 --pool ram"
    line = f"bash {SCRIPT} {options} -- sh -c 'pwd; echo $0 $1' --res 32 > master.log 2>&1 & wait $!"
    assert start("sh", "-c", line).ended()[0] == 0
    log = (tmp_path / "master.log").read_text()
    assert f"{tmp_path}\n--res 32\n" in log
    assert "64 MiB of RAM are held; starting sh." in log


def test_options_alone_are_for_training(start: Start) -> None:
    code, said = start(*RAM, "--", "--no-such-option").ended()
    assert code == 2
    assert "No such option: --no-such-option" in said


def test_a_command_that_doesnt_exist_is_not_waited_for(start: Start) -> None:
    code, said = start("--pool", "ram", "--min-free", "64", "--", "no-such-program").ended()
    assert code == 127
    assert "no-such-program: no such program" in said


def test_the_command_can_read_what_is_still_held_for_it(figures: Figures, start: Start) -> None:
    words = ("--min-free", "1000", "--", "sh", "-c", 'cat "$MEMORY_HELD_FILE"')
    program = start(*words, environment=figures.environment)
    assert program.line() == '{"gpu": 0, "held_mib": 872}'
    assert program.ended()[0] == 0
