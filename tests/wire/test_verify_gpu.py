"""``make verify-gpu`` as far as it can be had without a card and without CARLA: a stub's card, carla-lite for CARLA,
and the parts that need no CARLA on the CPU."""

from __future__ import annotations

import contextlib
import ctypes.util
import json
import os
import shutil
import socket
import subprocess
import sys
import uuid
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from carla_launcher.places import SHIPPED
from tests.conftest import REPOSITORY
from tests.crowd import PATIENCE_S, until
from tests.gpu_stub.stub import Figures, build
from tests.wire.trainee import running

pytestmark = pytest.mark.long

WITHOUT_TORCH = {"torch-sees-the-card", "doctor"}
"""Checks that fail with the stub, which deceives only NVML and not programs that compute."""


def verify(
    folder: Path, environment: dict[str, str], *options: str, python: str = sys.executable
) -> subprocess.CompletedProcess[str]:
    command = [python, "scripts/verify_gpu.py", "--runs-dir", str(folder), *options]
    kept = {name: value for name, value in environment.items() if name not in ("CARLA_HOST", "CARLA_PORT")}
    return subprocess.run(command, cwd=REPOSITORY, env=kept, capture_output=True, text=True, check=False)


def unpacked(folder: Path) -> tuple[dict[str, str], dict[str, Any]]:
    """Return the texts of the one file that was left, and its summary's steps by name."""
    (packed,) = folder.iterdir()
    with zipfile.ZipFile(packed) as archive:
        reported = {name: archive.read(name).decode() for name in archive.namelist()}
    return reported, {step["name"]: step for step in json.loads(reported["summary.json"])["steps"]}


@pytest.fixture
def usual_port_taken() -> Iterator[None]:
    """Occupy port 2000, as CARLA would."""
    with socket.socket() as somebody:
        somebody.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with contextlib.suppress(OSError):  # it is occupied
            somebody.bind(("127.0.0.1", 2000))
            somebody.listen()
        yield


def test_without_a_card_it_says_what_is_missing_and_leaves_nothing(tmp_path: Path) -> None:
    ended = verify(tmp_path, {**os.environ, "PATH": str(tmp_path)}, "--gpu", "7")
    assert ended.returncode == 69
    (sentence,) = ended.stderr.splitlines()
    assert "an NVIDIA GPU of index 7" in sentence
    assert "CARLA 0.9.16" in sentence
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("usual_port_taken")
def test_a_verification_leaves_one_file_with_everything_and_no_names(tmp_path: Path) -> None:
    figures = Figures(tmp_path / "figures", build(tmp_path), uuid=f"GPU-{uuid.uuid4()}")
    limits = tmp_path / "launcher.yaml"
    shipped = SHIPPED.read_text(encoding="utf-8")
    command = f"{sys.executable} -m carla_lite --port {{port}}"
    limits.write_text(shipped.replace("command: null", f'command: "{command}"'), encoding="utf-8")
    (tmp_path / "runs").mkdir()
    ended = verify(tmp_path / "runs", figures.environment, "--launcher-config", str(limits), "--steps", "100")
    reported, steps = unpacked(tmp_path / "runs")
    codes = {name: step["code"] for name, step in steps.items()}
    failed = {name for name, code in codes.items() if code not in (0, None)}
    assert failed - {"vulkan"} == WITHOUT_TORCH, ended.stdout + ended.stderr
    assert ended.returncode == 1
    assert {"doctor", "plan-before", "plan-with-carla", "drives", "wire-tests", "run", "gpu-tests"} <= codes.keys()
    problems = {row["check"] for row in json.loads(reported["doctor.txt"]) if row["verdict"] == "problem"}
    assert problems & {"PyTorch", "container toolkit"}
    assert "simulator's ports" not in problems
    assert json.loads(reported["summary.json"])["card_with_carla"]["card"]["total_mib"] == figures.total_mib
    plan = json.loads(reported["plan-before.txt"])
    assert (plan["gpu"], plan["simulator"]) == ("ok", "CARLA")
    assert json.loads(reported["run/agent.json"])["step"] == 100
    assert str(REPOSITORY) not in "".join(reported.values())


def test_with_docker_both_images_are_built_without_the_usual_limit_and_asked_about(tmp_path: Path) -> None:
    """A docker that writes down what it is asked, and builds nothing: what follows fails, and is gone on with."""
    figures = Figures(tmp_path / "figures", build(tmp_path), uuid=f"GPU-{uuid.uuid4()}")
    programs = tmp_path / "bin"
    programs.mkdir()
    docker = programs / "docker"
    docker.write_text(f'#!/bin/sh\necho "$CARLA_PORTS $@" >> {tmp_path}/asked\necho "step 1 of 9"\nexit 1\n')
    docker.chmod(0o755)
    pytest_instead = programs / "sitecustomize.py"  # the wire and gpu tests have their place above
    pytest_instead.write_text("import sys\nif 'pytest' in sys.orig_argv:\n    sys.exit(0)\n")
    (tmp_path / "runs").mkdir()
    paths = {"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(programs)}
    limits = tmp_path / "launcher.yaml"
    shipped = SHIPPED.read_text(encoding="utf-8")
    limits.write_text(shipped.replace(" start_limit_s: 300", " start_limit_s: 1"), encoding="utf-8")
    ended = verify(tmp_path / "runs", {**figures.environment, **paths}, "--launcher-config", str(limits))
    _, steps = unpacked(tmp_path / "runs")
    assert list(steps).index("images") < list(steps).index("vulkan-in-the-image") < list(steps).index("doctor")
    asked = [line.split(" ") for line in (tmp_path / "asked").read_text(encoding="utf-8").splitlines()]
    (built,) = [line for line in asked if "build" in line]
    assert built[-3:] == ["build", "carla", "agent"]
    first, last = map(int, built[0].split("-"))
    assert last - first == 2
    assert [line[0] for line in asked if "up" in line] == [built[0]]
    assert "step 1 of 9" in ended.stdout, "whoever waits for hours sees how far it is"


def test_without_a_card_the_parts_say_so_too(tmp_path: Path) -> None:
    ended = verify(tmp_path, {**os.environ, "CUDA_VISIBLE_DEVICES": ""}, "--no-carla")
    assert ended.returncode == 69
    (sentence,) = ended.stderr.splitlines()
    assert sentence.startswith("verify-gpu: this needs an NVIDIA GPU that torch sees (")
    assert not list(tmp_path.iterdir())


def test_an_interpreter_without_packages_is_told_what_it_lacks_and_nothing_is_installed(tmp_path: Path) -> None:
    bare = shutil.which("python3", path=str(Path(sys.base_prefix) / "bin"))
    assert bare is not None
    without = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    ended = verify(tmp_path, without, "--no-carla", python=bare)
    assert (ended.returncode, list(tmp_path.iterdir())) == (69, [])
    assert "has no torch, 2.11 or later is needed" in ended.stderr
    ended = verify(
        tmp_path, without, "--part", "updates", "--part", "out-of-memory-first", "--device", "cpu", python=bare
    )
    assert ended.returncode == 0, ended.stderr
    _, steps = unpacked(tmp_path)
    assert steps["updates"]["code"] is None
    assert "torch" in steps["updates"]["said"]
    assert "stable_baselines3" in steps["updates"]["said"]
    assert "for this part" in steps["out-of-memory-first"]["said"]


def test_without_vulkan_s_loader_its_part_is_left_out_with_a_sentence(tmp_path: Path) -> None:
    """With one, it says what it finds, which without a card is nothing."""
    ended = verify(tmp_path, dict(os.environ), "--part", "vulkan", "--device", "cpu")
    reported, steps = unpacked(tmp_path)
    assert ended.returncode == 0, ended.stderr
    if ctypes.util.find_library("vulkan") is None:
        assert steps["vulkan"]["code"] is None
        assert "no libvulkan.so.1" in steps["vulkan"]["said"]
    else:
        assert json.loads(reported["vulkan.txt"])["devices"] == []


def test_make_installs_nothing_for_a_card_without_carla() -> None:
    command = ["make", "--dry-run", "--always-make", "verify-gpu", "CARLA=no", "PYTHON=some-python"]
    reported = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout
    assert reported.split() == ["some-python", "scripts/verify_gpu.py", "--no-carla"]


def test_a_part_beyond_its_limit_is_ended_with_all_that_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(REPOSITORY / "scripts"))
    import verification

    held = verification.Verification(tmp_path)
    pids = tmp_path / "pids"
    program = f"sleep 600 & echo $! $$ > {pids}; wait"
    assert held.run("slow", "sh", "-c", program, limit_s=1).code == verification.TIMED_OUT
    assert held.steps[0].failed
    started = [int(pid) for pid in pids.read_text(encoding="ascii").split()]
    until(lambda: not any(map(running, started)))  # those that it didn't start itself end a moment after the signal


def test_a_verification_that_is_stopped_ends_its_step_and_leaves_what_there_is(tmp_path: Path) -> None:
    bin_, pids = tmp_path / "bin", tmp_path / "pids"
    bin_.mkdir()
    (bin_ / "nvidia-smi").write_text(f"#!/bin/sh\necho $$ > {pids}\nexec sleep 600\n")
    (bin_ / "nvidia-smi").chmod(0o755)
    command = [
        sys.executable,
        "scripts/verify_gpu.py",
        "--part",
        "ways",
        "--device",
        "cpu",
        "--runs-dir",
        str(tmp_path),
    ]
    environment = {**os.environ, "PATH": f"{bin_}{os.pathsep}{os.environ['PATH']}"}
    with subprocess.Popen(command, cwd=REPOSITORY, env=environment, stdout=subprocess.DEVNULL) as process:
        until(lambda: pids.exists() and pids.read_text(encoding="ascii").endswith("\n"))
        process.terminate()
        assert process.wait(PATIENCE_S) == 128 + 15
    assert not psutil.pid_exists(int(pids.read_text(encoding="ascii")))
    assert len(list(tmp_path.glob("verify-gpu-*.zip"))) == 1


def judge_tests(reported: dict[str, str]) -> None:
    assert "skipped" in reported["tests.txt"]


def figures(told: str) -> dict[str, Any]:
    """Return the JSON that a benchmark ends with, after its words on how far it is."""
    return dict(json.loads(told[told.index("{") :]))


def judge_updates(reported: dict[str, str]) -> None:
    assert figures(reported["updates-8-float32.txt"])["ratio"]["median"] > 0


def judge_ways(reported: dict[str, str]) -> None:
    assert {row["device"] for row in figures(reported["ways.txt"])["rows"]} == {"cpu"}


def judge_footprint(reported: dict[str, str]) -> None:
    (row,) = figures(reported["footprint.txt"])["rows"]
    assert row["peak_host_mib"] <= row["estimated_host_mib"]


def judge_shortage(reported: dict[str, str], name: str, phase: str) -> None:
    assert json.loads(reported[f"{name}/agent.json"])["micro_batch"] == 8
    rows = [json.loads(line) for line in reported[f"{name}/agent-events.jsonl"].splitlines()]
    assert {row["phase"] for row in rows if row["event"] == "out_of_memory"} == {phase}


@pytest.mark.parametrize(
    ("part", "judge"),
    [
        ("tests", judge_tests),
        ("updates", judge_updates),
        ("ways", judge_ways),
        ("footprint", judge_footprint),
        ("out-of-memory-first", partial(judge_shortage, name="out-of-memory-first", phase="rehearsed critic")),
        ("out-of-memory-later", partial(judge_shortage, name="out-of-memory-later", phase="critic")),
    ],
)
def test_a_part_runs_on_the_cpu_but_for_the_card_itself(
    tmp_path: Path, part: str, judge: Callable[[dict[str, str]], None]
) -> None:
    ended = verify(tmp_path, dict(os.environ), "--part", part, "--device", "cpu")
    reported, steps = unpacked(tmp_path)
    assert not [name for name, step in steps.items() if step["code"] not in (0, None)], ended.stdout + ended.stderr
    assert ended.returncode == 0
    assert any(name.startswith(part) and step["code"] == 0 for name, step in steps.items())
    judge(reported)
    assert str(REPOSITORY) not in "".join(reported.values())
