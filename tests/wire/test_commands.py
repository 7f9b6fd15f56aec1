"""``run``: a program that knows nothing of this project, with the real client, among faults of all kinds."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from carla_launcher.act.local.runtime import MAX_LOG_BYTES
from carla_run.exits import Exit
from tests.conftest import REPOSITORY
from tests.crowd import PATIENCE_S
from tests.disks import small_disk
from tests.wire.launched import Launched, gone, own_limits

PROGRAM = str(REPOSITORY / "tests" / "wire" / "stepping_program.py")
STEPS = 60
FILE = """
resume: {words: [--resume]}
alive: {log: 'step (\\d+)', within_s: 30, first_within_s: 60, steps: 60}
done: {file: result.txt}
stop_grace_s: 5
simulator_hangs_after_s: 3
"""
SOON = {"watch.check_every_s": 1, "watch.interval_s": 0.5, "simulator.restarts.first_delay_s": 0.1}

Fault = Callable[[Launched], None]


@pytest.fixture
def launched(tmp_path: Path) -> Iterator[Launched]:
    """Return a run that isn't started yet; ended after the test."""
    (tmp_path / "train.yaml").write_text(FILE)
    run = Launched(tmp_path)
    yield run
    run.end()


def start(launched: Launched, *words: str, simulator: str = "carla-lite", file: str = "train.yaml") -> None:
    folder = launched.runs.parent
    options = ("--simulator", simulator, "--cwd", str(folder), *own_limits(folder, SOON))
    named = ("--program", str(folder / file)) if file else ()
    launched.run_command(*options, *named, "--", *(words or (sys.executable, PROGRAM, "--port", "{port}")))


def driven(launched: Launched) -> list[int]:
    return [int(line) for line in (launched.runs.parent / "driven.txt").read_text().split()]


def pid_of(launched: Launched, program: str) -> int:
    return int(launched.state[program]["pid"])


def until_step(launched: Launched, step: int) -> None:
    launched.until(lambda: launched.beat.get("step", 0) >= step and launched.beat.get("phase") == "updating")


def kill_simulator(launched: Launched) -> None:
    os.kill(pid_of(launched, "simulator"), signal.SIGKILL)


def hang_simulator(launched: Launched) -> None:
    os.kill(pid_of(launched, "simulator"), signal.SIGSTOP)


def kill_program(launched: Launched) -> None:
    os.kill(pid_of(launched, "agent"), signal.SIGKILL)


def kill_launcher(launched: Launched) -> None:
    launched.process.kill()
    launched.process.wait()
    launched.run_command()


@pytest.mark.parametrize(
    ("fault", "cause"),
    [
        (kill_simulator, "simulator_crash"),
        pytest.param(hang_simulator, "simulator_hang", marks=pytest.mark.long),
        pytest.param(kill_program, "agent_crash", marks=pytest.mark.long),
        pytest.param(kill_launcher, "", marks=pytest.mark.long),
    ],
)
def test_a_fault_costs_what_lay_past_the_last_checkpoint(launched: Launched, fault: Fault, cause: str) -> None:
    start(launched)
    until_step(launched, 22)
    processes = launched.programs
    fault(launched)
    output = launched.output()
    assert launched.process.returncode == 0, output
    steps = driven(launched)
    # From the last checkpoint; no step is driven twice if the fault came right after one.
    again = [step for before, step in itertools.pairwise(steps) if step <= before]
    assert all(step > 20 and step % 10 == 1 for step in again)
    assert len(again) <= 1
    assert sorted(set(steps)) == list(range(1, STEPS + 1))
    assert len(steps) < STEPS + 10
    found = {row["diagnosis"] for row in launched.events("finding")}
    assert found == ({cause} if cause else set())
    gone(processes)
    assert (launched.run / "report.html").exists()


DAEMON = "import os, time\nif os.fork() == 0:\n os.setsid()\n time.sleep(60)"
CHILDREN = "import subprocess\nsubprocess.Popen(['sleep', '60'])\nopen('result.txt', 'w').close()"
PATIENT_S = {"agent.restarts.budget": 1, "agent.restarts.first_delay_s": 0.1, "watch.interval_s": 0.2}


def options_alone(folder: Path, file: str, **limits: Any) -> tuple[str, ...]:
    """Return the options of a program that runs without a simulator, by this program file; ``__`` stands for a dot."""
    (folder / "train.yaml").write_text(file)
    own = own_limits(folder, {**PATIENT_S, **{key.replace("__", "."): value for key, value in limits.items()}})
    return ("--simulator", "none", "--cwd", str(folder), "--program", str(folder / "train.yaml"), *own)


def start_alone(folder: Path, file: str, *words: str, **limits: Any) -> Launched:
    """Start a Python program, its text the first word, without a simulator."""
    launched = Launched(folder)
    launched.run_command(*options_alone(folder, file, **limits), "--", sys.executable, "-c", *words)
    return launched


@pytest.mark.parametrize(
    ("script", "file", "code", "said"),
    [
        (DAEMON, "", 65, "and left 1 running, ended since: it puts itself into the background"),
        ("pass", "done: {file: result.txt}", 70, "without result.txt, by which it shows that it is done"),
        *(
            pytest.param(*each, marks=pytest.mark.long)
            for each in (
                (CHILDREN, "done: {file: result.txt}", 0, "the agent finished"),
                ("print('bye')", "done: {log: '^Done'}", 70, "without a line that fits `^Done`, by which it shows"),
                ("input()", "", 70, "EOFError: EOF when reading a line, and its 1 restarts are used up"),
                (
                    "import tty; tty.setraw(0)",
                    "",
                    70,
                    "Inappropriate ioctl for device'), and its 1 restarts",
                ),
                ("raise SystemExit(7)", "exits: {0: finished, 7: bad_configuration}", 65, "refused its configuration"),
                (
                    "raise MemoryError",
                    "",
                    71,
                    "ran out of host memory (exit code 1), and no rung of the ladder is left",
                ),
            )
        ),
    ],
)
def test_an_odd_end_is_one_clear_sentence(tmp_path: Path, script: str, file: str, code: int, said: str) -> None:
    launched = start_alone(tmp_path, file, script)
    output = launched.output()
    assert (launched.process.returncode, said in output) == (code, True), output
    assert not [each for each in psutil.process_iter(["cwd"]) if each.info["cwd"] == str(tmp_path)]


EXITS = "import sys; sys.exit(int(sys.argv[1]))"
WRONG_WORD = "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--steps')\nparser.parse_args()"


@pytest.mark.parametrize(
    ("script", "code", "said"),
    [
        (WRONG_WORD, 2, "usage: -c [-h] [--steps STEPS]\n-c: error: unrecognized arguments: --stpes"),
        pytest.param("import no_such_module", 65, "ModuleNotFoundError: No module named", marks=pytest.mark.long),
    ],
)
def test_a_wrong_word_is_not_tried_until_the_budget_is_spent(tmp_path: Path, script: str, code: int, said: str) -> None:
    launched = start_alone(tmp_path, "", script, "--stpes", "3", agent__restarts__budget=9)
    output = launched.output()
    assert launched.process.returncode == code, output
    assert said in output
    assert "3 times in a row before any progress: no restart mends that" in launched.state["reason"]
    assert len(launched.events("agent_started")) == 3


def test_a_refused_change_is_not_kept(tmp_path: Path) -> None:
    launched = start_alone(tmp_path, "exits: {3: stopped, 7: bad_configuration}", EXITS, "3")
    assert launched.process.wait() == Exit.STOPPED
    launched.run_command("--resume", "--seed", "5", "--", sys.executable, "-c", EXITS, "7")
    assert "the run keeps its earlier options, since it made no step with the new ones (command: " in launched.output()
    assert launched.process.returncode == Exit.BAD_CONFIG
    launched.run_command("--resume")
    assert launched.process.wait() == Exit.STOPPED
    assert (launched.state["options"]["command"][-1], launched.state["options"].get("seed")) == ("3", None)


GREEDY = """
import sys, time
batch = int(sys.argv[2])
held = bytearray(batch * 2**20)
for step in range(20):
    print("step", step, flush=True)
    time.sleep(0.1)
    if batch > 64 and step == 12:
        raise MemoryError
"""
RUNGS = """
alive: {log: 'step (\\d+)', within_s: 30}
settings: {batch: {word: --batch}}
rungs: [{name: less, values: {batch: [128, 64]}, frees_mib: {ram: 40}}]
"""


@pytest.mark.long
def test_memory_that_ran_out_is_a_rung_and_the_next_plan_knows(tmp_path: Path) -> None:
    launched = Launched(tmp_path)
    words = ("--", sys.executable, "-c", GREEDY, "--batch", "128")
    options = options_alone(tmp_path, RUNGS, restore__settle_s=0.5)
    launched.run_command(*options, *words)
    output = launched.output()
    assert launched.process.returncode == 0, output
    assert [row["rung"] for row in launched.events("rung_taken")] == ["less (batch = 64)"]
    batch, half = (row["mib"]["ram"] for row in launched.state["command_peaks_mib"])
    assert batch > half + 50  # and not the 40 that were believed
    planned = subprocess.run(
        [*launched.program, "plan", "--json", "--runs-dir", str(launched.runs), *options, *words],
        capture_output=True,
        text=True,
        check=True,
    )
    items = json.loads(planned.stdout)["asked"]["items_mib"]["ram"]
    assert {"what": "agent at its peak", "mib": batch, "known": "measured"} in items


STUBBORN = (
    "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('ready', flush=True)\ntime.sleep(99)"
)


def test_one_that_ignores_sigterm_is_killed_after_its_grace(tmp_path: Path) -> None:
    launched = start_alone(tmp_path, "{stop_grace_s: 1, alive: {log: ready, within_s: 60}}", STUBBORN)
    launched.until(lambda: launched.events("verified"))
    launched.process.send_signal(signal.SIGTERM)
    output = launched.output()
    assert launched.process.returncode == 75, output
    assert "the agent ends (up to 1 s" in output  # it has no checkpoint
    assert "the agent is killed: its grace period is over" in output
    assert "run --runs-dir" in output
    assert "--resume" in output


SAVES = "import signal, sys, time\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(143))\nprint('ready', flush=True)"
REPORTS = """
import time
from carla_run import run
with run.report(sigterm=True) as report:
    print("ready", flush=True)
    while not report.stop_asked:
        report.step(1)
        report.requests()
        time.sleep(0.05)
"""


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (f"{SAVES}\ntime.sleep(99)", "stopped on request (SIGTERM); the agent ended (signal 15)"),
        (REPORTS, "the agent stopped on request and wrote its checkpoint"),  # and exits with 0
    ],
)
def test_a_stop_in_the_programs_own_way_is_told_as_it_was(tmp_path: Path, script: str, reason: str) -> None:
    launched = start_alone(tmp_path, "{resume: {words: []}, alive: {log: ready, within_s: 60}}", script)
    launched.until(lambda: launched.events("verified"))
    launched.process.send_signal(signal.SIGTERM)
    output = launched.output()
    assert (launched.process.returncode, launched.state["reason"]) == (75, reason), output


def test_nothing_is_said_of_a_crashed_commands_checkpoint(tmp_path: Path) -> None:
    file = "{resume: {words: []}, alive: {log: ready, within_s: 60}}"
    crashes = "import time; print('ready', flush=True); time.sleep(2); raise SystemExit(1)"
    launched = start_alone(tmp_path, file, crashes, agent__restarts__first_delay_s=60)
    launched.until(lambda: launched.events("agent_ended"))
    launched.process.send_signal(signal.SIGTERM)
    output = launched.output()
    reason = "stopped on request (SIGTERM); the agent had ended before (exit code 1)"
    assert (launched.process.returncode, launched.state["reason"]) == (75, reason), output


LINGERS = f"{STUBBORN.replace('ready', 'Finished')}"
CRASHES = "import os\nopen('model.zip', 'w').close()\nos.abort()"


@pytest.mark.parametrize(
    ("script", "done", "said"),
    [
        (
            LINGERS,
            "{log: ^Finished, exits_within_s: 1}",
            "the agent finished; it had shown a line that fits `^Finished`, and didn't exit within 1 s",
        ),
        (CRASHES, "{file: model.zip}", "the agent finished; it had shown model.zip before it ended (signal 6"),
    ],
)
def test_one_that_showed_that_it_is_done_has_finished_however_it_ends(
    tmp_path: Path, script: str, done: str, said: str
) -> None:
    alive = "{log: Finished, within_s: 2, first_within_s: 60}"
    launched = start_alone(tmp_path, f"{{stop_grace_s: 1, done: {done}, alive: {alive}}}", script)
    output = launched.output()
    assert launched.process.returncode == 0, output
    assert launched.state["reason"].startswith(said)
    assert launched.events("finding") == []
    assert len(launched.events("agent_started")) == 1
    assert launched.beat["phase"] == "finished"


LOADS = "{resume: {words: [--load, '{checkpoint}'], checkpoint: c-*}, alive: {log: 'step (\\d+)', within_s: 60}}"
TORN = """
import pathlib, sys, time
saved = pathlib.Path(sys.argv[2]).read_text() if len(sys.argv) > 2 else ""
if saved == "torn": raise ValueError(saved)
print("step 1", flush=True)
time.sleep(2)
if saved: sys.exit(pathlib.Path("loaded").write_text(saved) != 5)
for name, text in (("c-1", "whole"), ("c-2", "torn")):
    pathlib.Path(name).write_text(text)
    time.sleep(0.05)
sys.exit(1)
"""


@pytest.mark.long
def test_a_checkpoint_with_which_it_crashes_twice_at_once_is_set_aside(tmp_path: Path) -> None:
    launched = start_alone(tmp_path, LOADS, TORN, agent__restarts__budget=3)
    output = launched.output()
    assert launched.process.returncode == 0, output
    assert (tmp_path / "loaded").read_text() == "whole"
    assert (tmp_path / "c-2.unfit").read_text() == "torn"
    assert len(launched.events("agent_started")) == 4
    (aside,) = launched.events("checkpoint_set_aside")
    assert [Path(aside[key]).name for key in ("checkpoint", "kept_as", "resumes_from")] == ["c-2", "c-2.unfit", "c-1"]
    assert aside["incident"] == launched.events("finding")[-1]["incident"]
    assert "set aside" in launched.command("status").stdout
    assert json.loads(launched.command("status", "--json").stdout)["set_aside"] == [str(tmp_path / "c-2.unfit")]
    assert "c-2 set aside: the agent couldn't start from it" in (launched.run / "report.md").read_text()


EARLY = """
import pathlib, sys, time
begun, saved = pathlib.Path("begun"), pathlib.Path("c-1")
for step in range(1001, 1005):
    print("step", step, flush=True)
    time.sleep(0.5)
if sys.argv[1:] == ["--load", str(saved.absolute())]: sys.exit()
(saved if begun.exists() else begun).touch()
sys.exit(1)
"""


def test_before_its_first_checkpoint_it_begins_from_the_start(tmp_path: Path) -> None:
    launched = start_alone(tmp_path, LOADS, EARLY, agent__restarts__budget=2)
    output = launched.output()
    assert launched.process.returncode == 0, output
    begins, resumes = (output.find(f"restarted and {how}") for how in ("begins from the start", "resumes from its"))
    assert 0 < begins < resumes, output
    all_steps, few = (row["steps_lost"] for row in launched.events("stood_still"))
    assert all_steps > 1000 > few


LOUD = "import os\nfor _ in range(16384): os.write(1, (b'x' * 63 + b'\\n') * 1024)\nos.write(1, b'step 1\\n')"


@pytest.mark.long
def test_a_gigabyte_of_output_is_a_short_log_and_no_memory(tmp_path: Path) -> None:
    launched = start_alone(tmp_path, "done: {log: step 1}", LOUD)
    launcher, log = psutil.Process(launched.process.pid), launched.run / "logs" / "agent.log"
    launched.until(lambda: log.exists() and log.stat().st_size > 2**20)  # though its terminal is stopped: a full pipe
    copy = subprocess.Popen(["cat"], stdin=launched.process.stdout, stdout=subprocess.DEVNULL)
    (shim,) = launcher.children()
    held, sizes = [], []
    while shim.is_running() and shim.status() != psutil.STATUS_ZOMBIE:
        with contextlib.suppress(psutil.NoSuchProcess):
            held.append([each.memory_info().rss / 2**20 for each in (launcher, shim)])
            sizes.append(log.stat().st_size)
        time.sleep(0.1)
    assert launched.process.wait(PATIENCE_S) == 0
    copy.wait(PATIENCE_S)
    first, most = held[0], [max(each) for each in zip(*held, strict=True)]
    assert [after - before < 16 for before, after in zip(first, most, strict=True)] == [True, True], (first, most)
    assert max(sizes) <= MAX_LOG_BYTES + 2**17
    assert log.read_text().endswith("x\nstep 1\n")


FILLER = """
print("step 1", flush=True)
with open("filler", "wb", buffering=0) as file:
    while True:
        file.write(bytes(2**16))
"""


@pytest.mark.long
def test_a_program_that_fills_the_disk_is_named_and_ended(tmp_path: Path) -> None:
    """The run's own files are on the same disk, as they are in a home directory."""
    with small_disk(tmp_path, mib=64) as disk:
        alive = "alive: {log: 'step (\\d+)', within_s: 60}"
        launched = start_alone(disk, alive, FILLER, memory__reserve_mib__disk=8)
        output = launched.output()
        assert launched.process.returncode == 71, output
        assert "the agent ran out of disk space (exit code 1), and no rung of the ladder is left" in output
        assert not [each for each in psutil.process_iter(["cwd"]) if each.info["cwd"] == str(disk)]
