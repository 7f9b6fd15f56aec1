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
from pathlib import Path
from typing import Any

import pytest

from carla_launcher.show import doctor
from carla_launcher.show.checks import engines, places, pytorch, settings, vulkan
from carla_launcher.show.checks.machine import Finding, Machine, Ran, Verdict, run
from tests.crowd import PATIENCE_S, until
from tests.unit.launcher.examined import REPOSITORY, answering, changed, driver_library


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path, tmp_path / "runs", Path("full"), pci=tmp_path / "pci")


def add_card(machine: Machine) -> None:
    card = machine.pci / "0000:01:00.0"
    card.mkdir(parents=True)
    (card / "vendor").write_text("0x10de\n")
    (card / "class").write_text("0x030000\n")


def test_a_driver_that_answers_is_named_with_its_version(machine: Machine, tmp_path: Path) -> None:
    found = engines.driver(changed(machine, LD_LIBRARY_PATH=driver_library(tmp_path, 0)))
    assert found == Finding(Verdict.OK, "2 GPU, driver 570.1")


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"CARLA_GPU": "1", "AGENT_GPU": "1"}, (Verdict.OK, "", "")),
        ({"AGENT_GPU": "1"}, (Verdict.OK, "; CARLA_GPU is 0 and AGENT_GPU is 1", "")),
        ({"CARLA_GPU": "GPU-a"}, (Verdict.OK, "; CARLA_GPU is GPU-a and AGENT_GPU is 0", "")),
        (
            {"AGENT_GPU": "2"},
            (Verdict.PROBLEM, "; CARLA_GPU is 0 and AGENT_GPU is 2", "set both to 0 or 1, or to a GPU's UUID"),
        ),
    ],
)
def test_the_cards_of_both_programs_are_shown_where_they_are_two_or_not_there(
    machine: Machine, tmp_path: Path, settings: dict[str, str], expected: tuple[Verdict, str, str]
) -> None:
    verdict, reported, do = expected
    found = engines.driver(changed(machine, LD_LIBRARY_PATH=driver_library(tmp_path, 0), **settings))
    assert found == Finding(verdict, f"2 GPU, driver 570.1{reported}", do)


def test_a_card_whose_driver_fails_is_a_problem_with_the_driver_s_code(machine: Machine, tmp_path: Path) -> None:
    add_card(machine)
    found = engines.driver(changed(machine, LD_LIBRARY_PATH=driver_library(tmp_path, 15)))
    assert found.verdict is Verdict.PROBLEM
    assert "nvmlInit says 15" in found.found


def test_no_card_and_no_driver_is_no_problem(machine: Machine, tmp_path: Path) -> None:
    found = engines.driver(changed(machine, LD_LIBRARY_PATH=driver_library(tmp_path, 9)))
    assert found.verdict is Verdict.UNKNOWN
    assert found.found == "no NVIDIA GPU"


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        held.listen()
        yield held.getsockname()[1]


def test_a_taken_port_is_a_problem_and_names_who_has_it(machine: Machine, taken_port: int) -> None:
    found = places.ports(Machine(machine.stack, machine.runs, machine.config, ports=(taken_port,)))
    assert found.verdict is Verdict.PROBLEM
    assert f"{taken_port} is taken by " in found.found
    assert f"(process {os.getpid()})" in found.found


def test_the_ports_are_those_that_compose_publishes(machine: Machine, tmp_path: Path, taken_port: int) -> None:
    first = min(taken_port, 65_533)
    (tmp_path / ".env").write_text(f"CARLA_PORTS={first}-{first + 2}\n")
    of_env = Machine(tmp_path, machine.runs, machine.config, environment={})
    assert f"{taken_port} is taken by " in places.ports(of_env).found
    wrong = Machine(tmp_path, machine.runs, machine.config, environment={"CARLA_PORTS": "2100"})
    assert (places.ports(wrong).verdict, places.ports(wrong).found) == (Verdict.PROBLEM, "CARLA_PORTS is 2100")


def test_a_free_port_is_free(machine: Machine, taken_port: int) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        free = probe.getsockname()[1]
    assert places.ports(Machine(machine.stack, machine.runs, machine.config, ports=(free,))).verdict is Verdict.OK


def test_the_disk_is_held_against_what_the_configuration_takes(machine: Machine, monkeypatch: Any) -> None:
    found = places.disk(machine)
    assert "a run of full takes 808" in found.found
    monkeypatch.setattr(os, "statvfs", lambda _: os.statvfs_result((4096, 4096, 1000, 1000, 1000, 1, 1, 1, 0, 255)))
    assert places.disk(machine).verdict is Verdict.PROBLEM


def test_without_the_agent_s_word_the_free_disk_is_still_told(machine: Machine) -> None:
    found = places.disk(Machine(machine.stack, machine.runs, Path("missing.yaml")))
    assert found.verdict is Verdict.UNKNOWN
    assert "MiB free" in found.found


def test_a_tiny_shared_memory_is_a_problem(machine: Machine, monkeypatch: Any, tmp_path: Path) -> None:
    assert places.shared_memory(Machine(tmp_path, tmp_path, tmp_path, shm=tmp_path / "no")).verdict is Verdict.UNKNOWN
    monkeypatch.setattr(os, "statvfs", lambda _: os.statvfs_result((4096, 4096, 1000, 1000, 1000, 1, 1, 1, 0, 255)))
    assert places.shared_memory(Machine(tmp_path, tmp_path, tmp_path, shm=tmp_path)).verdict is Verdict.PROBLEM


def test_a_runs_folder_that_is_not_there_yet_is_judged_by_its_parent(machine: Machine, monkeypatch: Any) -> None:
    assert places.runs_folder(machine).found == f"{machine.runs} isn't there yet"
    machine.runs.mkdir()
    assert places.runs_folder(machine) == Finding(Verdict.OK, f"{machine.runs} can be written")
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert places.runs_folder(machine).verdict is Verdict.PROBLEM


def test_this_python_and_this_client_are_the_right_ones(machine: Machine) -> None:
    assert settings.python(machine).verdict is Verdict.OK
    assert settings.carla_client(machine) == Finding(Verdict.OK, settings.CARLA_CLIENT)


@pytest.mark.parametrize(
    "ended",
    [
        Ran(0, "0.9.15", ""),
        Ran(1, "", "ImportError: libjpeg.so.8: cannot open shared object file"),
        Ran(1, "", "ModuleNotFoundError: No module named 'carla.libcarla'"),
    ],
)
def test_a_client_that_is_old_broken_or_missing_beside_the_agent_is_a_problem(machine: Machine, ended: Ran) -> None:
    found = settings.carla_client(Machine(machine.stack, machine.runs, machine.config, run=lambda *_: ended))
    assert found.verdict is Verdict.PROBLEM
    assert "pip install carla==0.9.16" in found.do


OLD, NEW = "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"


@pytest.mark.parametrize(
    ("given", "verdict"),
    [
        ({}, Verdict.OK),
        ({OLD: "expandable_segments:True"}, Verdict.OK),
        ({OLD: "max_split_size_mb:128", NEW: "max_split_size_mb:128"}, Verdict.OK),
        ({OLD: "max_split_size_mb:128", NEW: "expandable_segments:True"}, Verdict.PROBLEM),
        ({NEW: "expandable_segments:True,max_split_size_mb:128"}, Verdict.OK),
        ({OLD: "max_split_size_mb:1"}, Verdict.PROBLEM),
    ],
)
def test_the_allocator_s_setting_is_what_the_agent_would_take(
    machine: Machine, given: dict[str, str], verdict: Verdict
) -> None:
    found = settings.allocator(changed(machine, **{OLD: "", NEW: "", **given}))
    assert found.verdict is verdict
    assert ("which excludes max_split_size_mb: PyTorch is told expandable_segments:True instead" in found.do) == (
        given == {NEW: "expandable_segments:True,max_split_size_mb:128"}
    )


def with_torch(machine: Machine, folder: Path, text: str) -> Machine:
    """Return the machine with a driver that shows a card, and a torch of a few lines in the real one's place."""
    (folder / "torch.py").write_text(text)
    return changed(machine, LD_LIBRARY_PATH=driver_library(folder, 0), PYTHONPATH=str(folder))


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
        ("12.8", "pass", Verdict.OK, "torch 2.13.0, for CUDA 12.8, sees NVIDIA GeForce RTX 2060"),
        (
            None,
            "raise AssertionError('not compiled')",
            Verdict.PROBLEM,
            "torch 2.13.0, built without CUDA, sees no GPU",
        ),
        (
            "13.0",
            "raise RuntimeError('The driver is\\ntoo old')",
            Verdict.PROBLEM,
            "sees no GPU: The driver is too old",
        ),
        ("13.0", "raise SystemExit('a library is missing')", Verdict.UNKNOWN, "can't be asked: a library is missing"),
    ],
)
def test_torch_says_whether_it_sees_the_card_and_why_not(
    machine: Machine, tmp_path: Path, built_for: str | None, init: str, verdict: Verdict, found: str
) -> None:
    reported = pytorch.here(with_torch(machine, tmp_path, TORCH.format(built_for=built_for, init=init)))
    assert reported.verdict is verdict
    assert reported.found.endswith(found)
    assert bool(reported.do) is (verdict is not Verdict.OK)


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="no torch here")
@pytest.mark.gpu
def test_on_a_gpu_the_real_torch_sees_the_card(machine: Machine) -> None:
    if not any(map(os.path.exists, ("/dev/nvidiactl", "/dev/dxg"))):  # NVML may be a stand-in, torch is what is asked
        pytest.skip("no CUDA device here")
    assert pytorch.here(machine).verdict is Verdict.OK


def test_the_real_torch_of_this_environment_is_asked_too(machine: Machine, tmp_path: Path) -> None:
    hidden = {"LD_LIBRARY_PATH": driver_library(tmp_path, 0), "CUDA_VISIBLE_DEVICES": ""}
    reported = pytorch.here(changed(machine, **hidden))
    assert reported.verdict is Verdict.PROBLEM
    assert "sees no GPU" in reported.found


def test_torch_is_not_asked_where_the_driver_shows_no_card(machine: Machine, tmp_path: Path) -> None:
    without = changed(machine, LD_LIBRARY_PATH=driver_library(tmp_path, 9))
    for check in (pytorch.here, pytorch.in_the_image, vulkan.in_the_image):
        assert check(without).found == "not asked: no NVIDIA GPU"


def test_the_ports_that_are_asked_about_are_those_of_the_command(taken_port: int) -> None:
    command = [sys.executable, "scripts/launch.py", "doctor", "--json", "--port", str(taken_port)]
    reported = json.loads(subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False).stdout)
    (ports,) = [row for row in reported if row["check"] == "simulator's ports"]
    assert ports["verdict"] == "problem"
    assert f"{taken_port} is taken by" in ports["found"]


def test_a_setting_in_dotenv_counts_where_the_environment_has_none(machine: Machine) -> None:
    (machine.stack / ".env").write_text(f"# of this machine\n{OLD}='max_split_size_mb:1'\nRUN_UID=77\n")
    assert settings.allocator(changed(machine, **{OLD: "", NEW: ""})).verdict is Verdict.PROBLEM
    assert machine.setting("RUN_UID") == "77"
    assert changed(machine, RUN_UID="78").setting("RUN_UID") == "78"


@pytest.mark.parametrize(
    ("own", "wanted", "verdict"),
    [
        (1000, "", Verdict.OK),
        (501, "", Verdict.PROBLEM),
        (501, "501", Verdict.OK),
        (501, "0", Verdict.PROBLEM),
        (501, "me", Verdict.PROBLEM),
        (0, "", Verdict.OK),
    ],
)
def test_the_containers_user_must_be_the_caller(
    machine: Machine, monkeypatch: Any, own: int, wanted: str, verdict: Verdict
) -> None:
    monkeypatch.setattr(os, "getuid", lambda: own)
    assert settings.dotenv(changed(answering(machine), RUN_UID=wanted)).verdict is verdict


@pytest.mark.parametrize(("wanted", "verdict"), [("0", Verdict.OK), ("", Verdict.PROBLEM), ("501", Verdict.PROBLEM)])
def test_a_rootless_engine_s_root_is_the_caller(machine: Machine, wanted: str, verdict: Verdict) -> None:
    rootless = answering(machine, SecurityOptions=["name=seccomp,profile=builtin", "name=rootless"])
    found = settings.dotenv(changed(rootless, RUN_UID=wanted))
    assert found.verdict is verdict
    assert (verdict is Verdict.OK) is (found.do == "")


def test_a_check_that_fails_or_hangs_is_unknown_and_the_others_are_told(machine: Machine) -> None:
    let_go = threading.Event()

    def hangs(_: Machine) -> Finding:
        let_go.wait(PATIENCE_S)
        return Finding(Verdict.OK, "")

    def fails(_: Machine) -> Finding:
        raise ValueError("odd")

    checks, found = {"hangs": hangs, "fails": fails, "python": settings.python}, dict[str, Finding]()

    def others_answer() -> bool:  # on a busy machine not at the first try
        found.update(doctor.examine(machine, checks, limit_s=0.5))
        return "no answer" not in found["fails"].found + found["python"].found

    until(others_answer)
    let_go.set()
    assert found["hangs"].verdict is Verdict.UNKNOWN
    assert "no answer within 0.5 s" in found["hangs"].found
    assert found["fails"] == Finding(Verdict.UNKNOWN, "the check failed: ValueError: odd")
    assert found["python"].verdict is Verdict.OK


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


def test_a_problem_is_exit_1_and_stands_in_the_table_with_what_to_do(machine: Machine, capsys: Any) -> None:
    assert doctor.run(changed(machine, RUN_UID="0")) == 1
    said = capsys.readouterr().out
    assert "problem" in said
    assert "RUN_UID is 0" in said
