"""Real processes under real signals: nothing that was started stays behind, however the launcher ends."""

from __future__ import annotations

import contextlib
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from carla_launcher.act.local import process_shim
from carla_launcher.act.local.process_shim import plain
from carla_launcher.act.local.processes import Program, ShimmedProcess, Shims
from carla_launcher.act.runtime import Role
from tests.crowd import PATIENCE_S, until

# Writes down its own process id and that of a child in a session of its own, as the agent's collector is; asked to
# stop, the ids in the folders beside its own whose processes live.
FAMILY = """
import os, pathlib, signal, subprocess, sys, time
folder = pathlib.Path(sys.argv[1])
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
def lives(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
def stop(number, frame):
    beside = [pid for file in folder.parent.glob("*/pids") if file.parent != folder for pid in file.read_text().split()]
    (folder / "stopped").write_text(" ".join(filter(lives, beside)))
    time.sleep(float(sys.argv[2]))
    os._exit(75)
signal.signal(signal.SIGTERM, stop)
(folder / "pids.part").write_text(f"{os.getpid()} {child.pid}")
(folder / "pids.part").rename(folder / "pids")
time.sleep(600)
"""
# A launcher in small: starts a simulator and an agent, then waits to be killed.
LAUNCHER = f"""
import pathlib, sys, time
from carla_launcher.act.local.processes import Shims, Program
from carla_launcher.act.runtime import Role
folder, shims = pathlib.Path(sys.argv[1]), Shims()
for role in (Role.SIMULATOR, Role.AGENT):
    own = folder / role.value
    own.mkdir()
    command = (sys.executable, "-c", {FAMILY!r}, str(own), sys.argv[2])
    shims.start(Program(role, command, own / "log", float(sys.argv[3])))
time.sleep(600)
"""

# A shim whose child has ended before Popen returns, as one that ends at once may have.
SLOW_TO_START = """
import pathlib, subprocess, sys, time
from carla_launcher.act.local import process_shim as shim
class Slow(subprocess.Popen):
    def __init__(self, *given, **named):
        super().__init__(*given, **named)
        time.sleep(0.5)
shim.subprocess.Popen = Slow
log = pathlib.Path(sys.argv[1])
output = shim.Output(log.open("ab", buffering=0), False)
held = shim.Shim([sys.executable, "-S", "-c", "raise SystemExit(65)"], output, 0, 5.0)
sys.exit(held.run())
"""


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def family(folder: Path) -> list[int]:
    until((folder / "pids").exists)
    return [int(pid) for pid in (folder / "pids").read_text().split()]


@pytest.fixture
def shims() -> Iterator[Shims]:
    shims = Shims()
    yield shims
    shims.close()


def start(shims: Shims, folder: Path, program: str, *arguments: str, show: bool = False) -> ShimmedProcess:
    command = (sys.executable, "-c", program, *arguments)
    return shims.start(Program(Role.AGENT, command, folder / "log", 1.0, {"GREETING": "hello"}, show))


def end_of(child: ShimmedProcess) -> int:
    until(lambda: child.poll() is not None)
    ended = child.poll()
    assert ended is not None
    return ended.code


@pytest.mark.parametrize(
    ("program", "code"),
    [
        ("raise SystemExit(65)", 65),
        ("import os; os.kill(os.getpid(), 11)", 139),
        ("import os; os.abort()", 134),
    ],
)
def test_the_exit_code_comes_back(shims: Shims, tmp_path: Path, program: str, code: int) -> None:
    assert end_of(start(shims, tmp_path, program)) == code


def test_a_program_that_does_not_exist_is_said_in_the_log(shims: Shims, tmp_path: Path) -> None:
    assert end_of(shims.start(Program(Role.AGENT, ("no-such-program",), tmp_path / "log", 1.0))) == 127
    assert "no-such-program can't be started" in (tmp_path / "log").read_text()


def test_environment_and_output_arrive(shims: Shims, tmp_path: Path) -> None:
    assert end_of(start(shims, tmp_path, "import os; print(os.environ['GREETING'])")) == 0
    assert (tmp_path / "log").read_text() == "hello\n"


def test_a_child_that_ends_takes_its_orphans_along(shims: Shims, tmp_path: Path) -> None:
    child = start(shims, tmp_path, FAMILY, str(tmp_path), "0")
    leader, orphan = family(tmp_path)
    assert leader == child.pid
    os.kill(leader, signal.SIGKILL)
    assert end_of(child) == 137
    assert not alive(orphan)


def test_terminate_lets_it_finish_and_kill_does_not(shims: Shims, tmp_path: Path) -> None:
    for name, wait_s, code in (("soft", "0.1", 75), ("hard", "600", 137)):
        folder = tmp_path / name
        folder.mkdir()
        child = start(shims, folder, FAMILY, str(folder), wait_s)
        pids = family(folder)
        child.terminate()
        until((folder / "stopped").exists)
        if name == "hard":
            child.kill()
        assert end_of(child) == code
        assert not any(map(alive, pids))


def test_a_shim_that_is_killed_takes_its_child_along(shims: Shims, tmp_path: Path) -> None:
    child = start(shims, tmp_path, FAMILY, str(tmp_path), "0")
    leader, orphan = family(tmp_path)
    shim = int(Path(f"/proc/{leader}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(shim, signal.SIGKILL)
    assert end_of(child) == 137
    until(lambda: not alive(leader))
    os.kill(orphan, signal.SIGKILL)  # its own parent's death signal would do this, as the agent's collector has it


@pytest.mark.parametrize(("answer_s", "grace_s"), [("0.5", "10"), ("600", "0.5")])
def test_killed_launcher_leaves_nothing(tmp_path: Path, answer_s: str, grace_s: str) -> None:
    launcher = subprocess.Popen([sys.executable, "-c", LAUNCHER, str(tmp_path), answer_s, grace_s])
    simulator, agent = (family(tmp_path / role) for role in ("simulator", "agent"))
    launcher.kill()
    launcher.wait()
    until(lambda: not any(map(alive, [*agent, *simulator])))
    seen_by = {role: (tmp_path / role / "stopped").read_text().split() for role in ("agent", "simulator")}
    assert seen_by == {"agent": list(map(str, simulator)), "simulator": []}


def test_launcher_killed_during_a_start_leaves_nothing(tmp_path: Path) -> None:
    lifeline, launchers_end = os.pipe()
    told, report = os.pipe()
    for end in (launchers_end, told):  # as the kernel closes them behind a killed one
        os.close(end)
    pipes = (f"--lifeline={lifeline}", f"--report={report}")
    with (tmp_path / "log").open("ab") as log:
        words = (*pipes, "--grace-s=10", f"--log={log.fileno()}", "--", "sleep", "600")
        given = (lifeline, report, log.fileno())
        shim = subprocess.Popen([sys.executable, process_shim.__file__, *words], pass_fds=given)
    for end in (lifeline, report):
        os.close(end)
    assert shim.wait(PATIENCE_S) == 128 + signal.SIGTERM, "the child's own code, after it was asked to end"


def test_progress_bar_is_shown_and_lines_are_kept(tmp_path: Path) -> None:
    program = r"""
import os, sys
print(os.isatty(1), os.get_terminal_size())
for step in range(5): print(f"\r\x1b[2Kstep {step}", end="", flush=True)
print("\r\x1b[2K\x1b[1mdone\x1b[0m")
"""
    outer = f"""
import pathlib, sys, time
from carla_launcher.act.local.processes import Shims, Program
from carla_launcher.act.runtime import Role
log = pathlib.Path({str(tmp_path / "log")!r})
child = Shims().start(Program(Role.AGENT, (sys.executable, "-c", {program!r}), log, 1.0, show=True))
while child.poll() is None: time.sleep(0.02)
"""
    source, sink = pty.openpty()
    subprocess.run([sys.executable, "-c", outer], stdout=sink, check=True, timeout=PATIENCE_S)
    os.close(sink)
    shown = b""
    with contextlib.suppress(OSError):  # EIO: all has been read
        while chunk := os.read(source, 4096):
            shown += chunk
    os.close(source)
    assert b"True" in shown
    assert b"\x1b[2Kstep 3" in shown
    assert (tmp_path / "log").read_text().splitlines()[1:] == ["done"]


def test_a_progress_bar_that_never_ends_leaves_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_shim, "REDRAWN_S", 0.0)
    with (tmp_path / "log").open("wb") as log:
        output = process_shim.Output(log, show=False, most_bytes=2**20)
        for redraw in (b"begins\n", b"\rstep 1", b"\rstep 2", b"\rst", b"ep 3\rstep 4\r", b"step 5"):
            os.write(output.sink, redraw)
            output.pump()
        output.started()
        output.drain()
        log.flush()
    assert (tmp_path / "log").read_text().splitlines() == ["begins", *(f"step {number}" for number in (1, 2, 4, 5))]


def test_a_child_survives_a_terminal_that_is_gone(tmp_path: Path) -> None:
    program = "import time\nfor _ in range(20): print('line ' * 100, flush=True); time.sleep(0.01)"
    outer = f"""
import pathlib, sys, time
from carla_launcher.act.local.processes import Shims, Program
from carla_launcher.act.runtime import Role

log = pathlib.Path({str(tmp_path / "log")!r})
child = Shims().start(Program(Role.AGENT, (sys.executable, "-c", {program!r}), log, 1.0, show=True))
while child.poll() is None: time.sleep(0.02)
sys.exit(child.poll().code)
"""
    source, sink = os.pipe()
    process = subprocess.Popen([sys.executable, "-c", outer], stdout=sink)
    os.close(sink)
    os.close(source)
    assert process.wait(PATIENCE_S) == 0
    assert len((tmp_path / "log").read_text().splitlines()) == 20


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        (b"plain", b"plain\n"),
        (b"plain\r", b"plain\n"),
        (b"10 %\r20 %\rdone", b"done\n"),
        (b"\x1b[2K\x1b[1;32mgreen\x1b[0m", b"green\n"),
        (b"", b"\n"),
    ],
)
def test_a_log_keeps_what_stays_visible(line: bytes, kept: bytes) -> None:
    assert plain(line) == kept


def test_exit_code_of_an_instant_end_is_kept(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SLOW_TO_START, str(tmp_path / "log")]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as shim:  # its lifeline, which stays open
        try:
            assert shim.wait(PATIENCE_S) == 65
        finally:
            shim.kill()


def test_a_log_keeps_its_newest_part_of_whatever_is_printed(tmp_path: Path) -> None:
    log, shims = tmp_path / "agent.log", Shims()
    script = "for n in range(50_000): print('line', n)\nprint('x' * 500_000, end='')"
    child = shims.start(Program(Role.AGENT, (sys.executable, "-c", script), log, 1.0, most_log_bytes=200_000))
    until(lambda: child.poll() is not None)
    shims.close()
    first, *_, last = log.read_text().splitlines()
    assert log.stat().st_size < 200_000 + process_shim.MAX_LINE_BYTES
    assert first.startswith("[launcher: ")
    assert first.endswith(" older bytes are left out]")
    assert last == "x" * process_shim.MAX_LINE_BYTES
