"""The doctor's checks against real sockets, files, programs and a driver's library; and what becomes of bad ones."""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from carla_launcher.cli import app
from carla_launcher.show import doctor
from carla_launcher.show.checks import cards, engines, host
from carla_launcher.show.checks.machine import CommandOutput, Finding, Machine, Verdict, run
from tests.accounts import needs_root
from tests.crowd import PATIENCE_S, until
from tests.unit.launcher.examined import REPOSITORY, answering, changed, driver_library, expect

OK, PROBLEM, UNKNOWN = Verdict.OK, Verdict.PROBLEM, Verdict.UNKNOWN
OLD, NEW = "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"
NO_ROOM = os.statvfs_result((4096, 4096, 1000, 1000, 1000, 1, 1, 1, 0, 255))


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path, tmp_path / "runs", Path("full"), pci=tmp_path / "pci")


@pytest.mark.parametrize(
    ("words", "command", "asked"),
    [
        (("sh", "-c", "true"), "ok", "not checked: sh isn't Python"),
        (("no-such-program",), "problem", "not checked: the command can't be started"),
    ],
)
def test_a_commands_checks_are_the_first_of_the_json(
    tmp_path: Path, words: tuple[str, ...], command: str, asked: str
) -> None:
    given = CliRunner().invoke(app, ["doctor", "--json", "--runs-dir", str(tmp_path), "--", *words])
    rows = json.loads(given.stdout)
    assert {tuple(row) for row in rows} == {("check", "verdict", "found", "do")}
    assert [row["check"] for row in rows[:3]] == ["command", "its carla client", "its PyTorch"]
    assert [row["verdict"] for row in rows[:2]] == [command, "unknown"]
    assert rows[1]["found"] == asked
    assert given.exit_code == int(any(row["verdict"] == "problem" for row in rows))


# The card and its driver


@pytest.mark.parametrize(
    ("variables", "verdict", "said", "do"),
    [
        ({}, OK, "", ""),
        ({"CARLA_GPU": "1", "AGENT_GPU": "1"}, OK, "", ""),
        ({"AGENT_GPU": "1"}, OK, "; CARLA_GPU is 0 and AGENT_GPU is 1", ""),
        ({"CARLA_GPU": "GPU-a"}, OK, "; CARLA_GPU is GPU-a and AGENT_GPU is 0", ""),
        (
            {"AGENT_GPU": "2"},
            PROBLEM,
            "; CARLA_GPU is 0 and AGENT_GPU is 2",
            "set both to 0 or 1, or to a GPU's UUID",
        ),
    ],
)
def test_a_driver_is_named_with_the_cards_of_both_programs(
    machine: Machine, tmp_path: Path, variables: dict[str, str], verdict: Verdict, said: str, do: str
) -> None:
    found = engines.driver(changed(machine, LD_LIBRARY_PATH=driver_library(tmp_path, 0), **variables))
    assert found == Finding(verdict, f"2 GPU, driver 570.1{said}", do)


@pytest.mark.parametrize(
    ("card", "code", "verdict", "said"),
    [
        (True, 15, PROBLEM, "nvmlInit says 15"),
        (False, 9, UNKNOWN, "no NVIDIA GPU"),
        (False, 999, PROBLEM, "nvmlInit says 999"),
    ],
)
def test_a_driver_that_fails_is_a_problem_where_there_is_a_card(
    machine: Machine, tmp_path: Path, card: bool, code: int, verdict: Verdict, said: str
) -> None:
    if card:
        folder = machine.pci / "0000:01:00.0"
        folder.mkdir(parents=True)
        (folder / "vendor").write_text("0x10de\n")
        (folder / "class").write_text("0x030000\n")
    expect(engines.driver(changed(machine, LD_LIBRARY_PATH=driver_library(tmp_path, code))), verdict, said)


TORCH = """
class version:
    cuda = {built_for!r}
class cuda:
    def init(): {init}
    def get_device_name(_): return "NVIDIA GeForce RTX 2060"
__version__ = "2.13.0"
"""


@pytest.mark.parametrize(
    ("built_for", "init", "verdict", "found"),
    [
        ("12.8", "pass", OK, "torch 2.13.0, for CUDA 12.8, sees NVIDIA GeForce RTX 2060"),
        (None, "raise AssertionError('not compiled')", PROBLEM, "torch 2.13.0, built without CUDA, sees no GPU"),
        (
            "13.0",
            "raise RuntimeError('The driver is\\ntoo old')",
            PROBLEM,
            "sees no GPU: The driver is too old",
        ),
        ("13.0", "raise SystemExit('a library is missing')", UNKNOWN, "can't be checked: a library is missing"),
    ],
)
def test_torch_says_whether_it_sees_the_card_and_why_not(
    machine: Machine, tmp_path: Path, built_for: str | None, init: str, verdict: Verdict, found: str
) -> None:
    (tmp_path / "torch.py").write_text(TORCH.format(built_for=built_for, init=init))
    library = driver_library(tmp_path, 0)
    reported = cards.torch_here(changed(machine, LD_LIBRARY_PATH=library, PYTHONPATH=str(tmp_path)))
    assert (reported.verdict, bool(reported.do)) == (verdict, verdict is not OK)
    assert reported.found.endswith(found)


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="no torch here")
@pytest.mark.gpu
def test_on_a_gpu_the_real_torch_sees_the_card(machine: Machine) -> None:
    if not any(map(os.path.exists, ("/dev/nvidiactl", "/dev/dxg"))):  # NVML may be a stand-in, torch is what is asked
        pytest.skip("no CUDA device here")
    assert cards.torch_here(machine).verdict is OK


def test_the_real_torch_of_this_environment_is_asked_too(machine: Machine, tmp_path: Path) -> None:
    hidden = {"LD_LIBRARY_PATH": driver_library(tmp_path, 0), "CUDA_VISIBLE_DEVICES": ""}
    expect(cards.torch_here(changed(machine, **hidden)), PROBLEM, "sees no GPU")


def test_nothing_is_asked_for_a_card_that_is_not_there(machine: Machine, tmp_path: Path) -> None:
    without = changed(machine, LD_LIBRARY_PATH=driver_library(tmp_path, 9))
    for check in (cards.torch_here, cards.torch_in_the_image, cards.vulkan_in_the_image):
        assert check(without).found == "not checked: no NVIDIA GPU"


# Ports, disk, folders


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        held.listen()
        yield held.getsockname()[1]


def test_a_taken_port_is_named_with_what_has_it(machine: Machine, taken_port: int) -> None:
    found = host.ports(replace(machine, ports=(taken_port,)))
    expect(found, PROBLEM, f"{taken_port} is taken by ")
    assert f"(process {os.getpid()})" in found.found
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        free = probe.getsockname()[1]
    assert host.ports(replace(machine, ports=(free,))).verdict is OK


def test_the_ports_are_those_that_compose_publishes(machine: Machine, taken_port: int) -> None:
    first = min(taken_port, 65_533)
    (machine.stack / ".env").write_text(f"CARLA_PORTS={first}-{first + 2}\n")
    expect(host.ports(replace(machine, environment={})), PROBLEM, f"{taken_port} is taken by ")
    expect(host.ports(replace(machine, environment={"CARLA_PORTS": "2100"})), PROBLEM, "CARLA_PORTS is 2100")


def test_the_ports_that_are_asked_about_are_those_of_the_command(taken_port: int) -> None:
    command = [sys.executable, "scripts/launch.py", "doctor", "--json", "--port", str(taken_port)]
    reported = json.loads(subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False).stdout)
    (ports,) = [row for row in reported if row["check"] == "simulator's ports"]
    assert ports["verdict"] == "problem"
    assert f"{taken_port} is taken by" in ports["found"]


def test_the_disk_is_held_against_what_the_configuration_takes(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "a run with full takes 808 MiB" in host.disk(machine).found
    expect(host.disk(replace(machine, config=Path("missing.yaml"))), UNKNOWN, "MiB free")
    expect(host.shared_memory(replace(machine, shm=machine.stack / "no")), UNKNOWN)
    monkeypatch.setattr(os, "statvfs", lambda _: NO_ROOM)
    expect(host.disk(machine), PROBLEM)
    expect(host.shared_memory(replace(machine, shm=machine.stack)), PROBLEM)


def test_a_missing_runs_folder_is_judged_by_its_parent(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    assert host.runs_folder(machine).found == f"{machine.runs} doesn't exist yet"
    machine.runs.mkdir()
    assert host.runs_folder(machine) == Finding(OK, f"{machine.runs} can be written")
    monkeypatch.setattr(os, "access", lambda *_: False)
    expect(host.runs_folder(machine), PROBLEM)


# What is installed and set


def test_this_python_and_this_client_are_the_right_ones(machine: Machine) -> None:
    expect(host.python(machine), OK)
    assert host.carla_client(machine) == Finding(OK, host.CARLA_CLIENT)


@pytest.mark.parametrize(
    "ended",
    [
        CommandOutput(0, "0.9.15", ""),
        CommandOutput(1, "", "ImportError: libjpeg.so.8: cannot open shared object file"),
        CommandOutput(1, "", "ModuleNotFoundError: No module named 'carla.libcarla'"),
    ],
)
def test_a_client_that_is_old_broken_or_missing_is_a_problem(machine: Machine, ended: CommandOutput) -> None:
    expect(host.carla_client(replace(machine, run=lambda *_: ended)), PROBLEM, do="pip install carla==0.9.16")


BOTH = "which excludes max_split_size_mb: PyTorch is told expandable_segments:True instead"


@pytest.mark.parametrize(
    ("given", "verdict", "do"),
    [
        ({}, OK, ""),
        ({OLD: "expandable_segments:True"}, OK, ""),
        ({OLD: "max_split_size_mb:128", NEW: "max_split_size_mb:128"}, OK, ""),
        ({OLD: "max_split_size_mb:128", NEW: "expandable_segments:True"}, PROBLEM, "the same value"),
        ({NEW: "expandable_segments:True,max_split_size_mb:128"}, OK, BOTH),
        ({OLD: "max_split_size_mb:1"}, PROBLEM, ""),
    ],
)
def test_the_allocators_setting_is_what_the_agent_would_take(
    machine: Machine, given: dict[str, str], verdict: Verdict, do: str
) -> None:
    found = host.allocator(changed(machine, **{OLD: "", NEW: "", **given}))
    expect(found, verdict, do=do)
    assert (BOTH in found.do) == (do == BOTH)


def test_dotenv_counts_where_the_environment_has_none(machine: Machine) -> None:
    (machine.stack / ".env").write_text(f"# of this machine\n{OLD}='max_split_size_mb:1'\nRUN_UID=77\n")
    expect(host.allocator(changed(machine, **{OLD: "", NEW: ""})), PROBLEM)
    assert machine.setting("RUN_UID") == "77"
    assert changed(machine, RUN_UID="78").setting("RUN_UID") == "78"


ROOTLESS = ["name=seccomp,profile=builtin", "name=rootless"]


@pytest.mark.parametrize(
    ("options", "own", "wanted", "verdict"),
    [
        ([], 1000, "", OK),
        ([], 501, "", PROBLEM),
        ([], 501, "501", OK),
        ([], 501, "0", PROBLEM),
        ([], 501, "me", PROBLEM),
        ([], 0, "", OK),
        (ROOTLESS, 501, "0", OK),
        (ROOTLESS, 501, "", PROBLEM),
        (ROOTLESS, 501, "501", PROBLEM),
    ],
)
def test_the_containers_user_must_be_the_caller(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, options: list[str], own: int, wanted: str, verdict: Verdict
) -> None:
    monkeypatch.setattr(os, "getuid", lambda: own)
    found = host.dotenv(changed(answering(machine, SecurityOptions=options), RUN_UID=wanted))
    expect(found, verdict)
    assert not options or bool(found.do) is (verdict is PROBLEM)


@needs_root
@pytest.mark.parametrize(
    ("owner", "group", "mode", "verdict"),
    [(0, 0, 0o755, PROBLEM), (1000, 0, 0o755, OK), (1000, 0, 0o577, PROBLEM), (0, 1000, 0o775, OK), (0, 0, 0o757, OK)],
)
def test_roots_folder_of_runs_must_be_open_to_the_containers_user(
    machine: Machine, owner: int, group: int, mode: int, verdict: Verdict
) -> None:
    bare = changed(machine, RUN_UID="", RUN_GID="", RUNS_DIR="", PATH="")
    machine.runs.mkdir()
    machine.runs.chmod(mode)
    os.chown(machine.runs, owner, group)
    do = f"for plain Compose: chown 1000:1000 {machine.runs}" if verdict is PROBLEM else "as root: chown 1000 runs"
    expect(host.dotenv(answering(bare)), verdict, do=do)
    expect(host.dotenv(bare), OK)


# All together


def test_a_check_that_fails_or_hangs_is_unknown(machine: Machine) -> None:
    let_go = threading.Event()

    def hangs(_: Machine) -> Finding:
        let_go.wait(PATIENCE_S)
        return Finding(OK, "")

    def fails(_: Machine) -> Finding:
        raise ValueError("odd")

    checks, found = {"hangs": hangs, "fails": fails, "python": host.python}, dict[str, Finding]()

    def others_answer() -> bool:  # on a busy machine not at the first try
        found.update(doctor.examine(machine, checks, limit_s=0.5))
        return "no answer" not in found["fails"].found + found["python"].found

    until(others_answer)
    let_go.set()
    expect(found["hangs"], UNKNOWN, "no answer within 0.5 s")
    assert found["fails"] == Finding(UNKNOWN, "the check failed: ValueError: odd")
    expect(found["python"], OK)


def test_a_program_that_takes_too_long_is_ended() -> None:
    ended = run((sys.executable, "-c", "import time; time.sleep(3600)"), os.environ, limit_s=0.5)
    assert ended.code == 1
    assert "timed out" in ended.said


def test_the_real_machine_is_examined_and_nothing_is_changed(machine: Machine, capsys: Any) -> None:
    before = sorted(machine.stack.rglob("*"))
    code = doctor.run(machine, as_json=True)
    rows = json.loads(capsys.readouterr().out)
    assert [row["check"] for row in rows] == list(doctor.CHECKS)
    assert code == int(any(row["verdict"] == "problem" for row in rows))
    assert not [row for row in rows if row["found"].startswith("the check failed")]
    assert sorted(machine.stack.rglob("*")) == before


def test_a_problem_is_exit_1_and_stands_in_the_table(machine: Machine, capsys: Any) -> None:
    assert doctor.run(changed(machine, RUN_UID="0")) == 1
    said = capsys.readouterr().out
    assert "problem" in said
    assert "RUN_UID is 0" in said
