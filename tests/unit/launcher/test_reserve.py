"""``scripts/wait_and_run.sh`` with real processes: on a GPU that is a stand-in in C, and in real RAM."""

from __future__ import annotations

import signal
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tests.gpu_stub import grow
from tests.gpu_stub.stub import Figures, build

SCRIPT = REPOSITORY / "scripts" / "wait_and_run.sh"
GROW = (sys.executable, grow.__file__)
RESERVED, CONTEXT = 2048, 300
CARLA = 4_200_001  # above what Linux gives out
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


def test_an_allocation_of_all_that_was_waited_for_succeeds(figures: Figures, start: Start) -> None:
    big = (*GROW, str(RESERVED - CONTEXT))
    code, said = start("--min-free", str(RESERVED), "--", *big, environment=figures.environment).ended()
    assert (code, "2048 MiB of GPU 0 are free; starting" in said) == (0, True)


def test_a_command_that_another_program_beat_names_the_holders_and_runs_again(figures: Figures, start: Start) -> None:
    more = (*GROW, str(RESERVED))
    words = ("--min-free", str(RESERVED), "--fallback-batch", "2", "--", *more)
    code, said = start(*words, environment=figures.environment).ended()
    assert code == 71
    most = f"(exit code 71; most hold CarlaUE4 {5745 - RESERVED} MiB)"
    assert f"The command ran out of memory {most}; once more with a batch of 2." in said
    assert said.count("torch.OutOfMemoryError") == 2  # what the command says on standard error passes through


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


def test_it_waits_until_the_memory_comes_free(figures: Figures, start: Start) -> None:
    figures.hold(CARLA, figures.total_mib - 1000, kind="G")
    program = start("--min-free", "1200", "--sleep", "0.1", "--", "true", environment=figures.environment)
    program.waits()
    assert program.process.poll() is None
    figures.hold(CARLA, figures.total_mib - 1300, kind="G")
    assert program.ended()[0] == 0


def test_an_options_name_is_not_completed(start: Start) -> None:
    code, said = start("--min-fre", "9", "--", "true").ended()
    assert (code, "unrecognized arguments: --min-fre" in said) == (2, True), said


@pytest.mark.parametrize("signal_", [signal.SIGINT, signal.SIGTERM])
def test_a_request_to_stop_reaches_the_command(start: Start, signal_: signal.Signals) -> None:
    says = f'trap "echo told; exit 9" {signal_.name.removeprefix("SIG")}; echo runs; while :; do sleep 0.05; done'
    program = start(*RAM, "--", "bash", "-c", says)
    assert program.line() == "runs"
    program.process.send_signal(signal_)
    assert program.line() == "told"
    assert program.ended()[0] == 9


@pytest.mark.parametrize(("code", "ends"), [(999, 0), (18, 0), (15, 65)])
def test_a_wait_outlasts_a_driver_that_fails(figures: Figures, start: Start, code: int, ends: int) -> None:
    figures.hold(CARLA, figures.total_mib - 1000, kind="G")
    program = start("--min-free", "1200", "--sleep", "0.1", "--", "true", environment=figures.environment)
    program.waits()
    figures.fails = code
    figures.write()
    program.says("can't be read")
    figures.fails = 0
    figures.hold(CARLA, figures.total_mib - 1300, kind="G")
    assert program.ended()[0] == ends


def test_a_request_to_stop_ends_the_wait(figures: Figures, start: Start) -> None:
    figures.hold(CARLA, figures.total_mib - 100, kind="G")
    program = start("--min-free", "1000", "--", "true", environment=figures.environment)
    program.waits()
    program.process.terminate()
    code, said = program.ended()
    assert code == 75
    assert "Stopped by SIGTERM before the command was started." in said


def test_a_gpu_that_falls_off_the_bus_leaves_the_command_its_end(figures: Figures, start: Start) -> None:
    words = ("--min-free", "1000", "--", "sh", "-c", "echo runs; read go_on; exit 71")
    program = start(*words, environment=figures.environment)
    assert program.line() == "runs"
    figures.lose()
    program.go()
    code, said = program.ended()
    assert (code, "(exit code 71); --fallback-batch would run it once more." in said) == (71, True)


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


@pytest.mark.parametrize(("code", "batches"), [(71, ["unset unset", "2 2"]), (3, ["unset unset"])])
def test_the_fallback_batch_is_passed_once_to_what_ran_out(
    start: Start, tmp_path: Path, code: int, batches: list[str]
) -> None:
    says = f'echo "${{AGENT_BATCH-unset}} ${{RL_BATCH_SIZE-unset}}" >> batches; exit {code}'
    found, said = start(*RAM, "--fallback-batch", "2", "--", "sh", "-c", says).ended()
    assert (found, said.count("are free; starting sh.")) == (code, len(batches))
    assert (tmp_path / "batches").read_text().splitlines() == batches


def test_the_line_of_the_notes_runs_in_the_background_with_its_log(start: Start, tmp_path: Path) -> None:
    (tmp_path / "launcher").mkdir()  # the caller's folder is the command's own affair
    (tmp_path / "launcher" / "__init__.py").write_text("raise SystemExit('not this one')")
    options = "--min-free 64 --sleep 300 --timeout 7200 --fallback-batch 2 --pool ram"
    line = f"bash {SCRIPT} {options} -- sh -c 'pwd; echo $0 $1' --res 32 > master.log 2>&1 & wait $!"
    assert start("sh", "-c", line).ended()[0] == 0
    log = (tmp_path / "master.log").read_text()
    assert f"{tmp_path}\n--res 32\n" in log
    assert "64 MiB of RAM are free; starting sh." in log


def test_options_alone_are_for_training(start: Start) -> None:
    code, said = start(*RAM, "--", "--no-such-option").ended()
    assert code == 2
    assert "No such option: --no-such-option" in said


def test_a_command_that_doesnt_exist_is_not_waited_for(start: Start) -> None:
    code, said = start("--pool", "ram", "--min-free", "64", "--", "no-such-program").ended()
    assert code == 127
    assert "no-such-program: no such program" in said
