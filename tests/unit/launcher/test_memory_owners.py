"""Whose a process is, how foreign processes are named, and what owners hold together."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carla_launcher.observe.pools import OwnerKind, Provenance
from carla_launcher.observe.ram import OwnerName, OwnerNames, RunProcesses, container_id, grouped, program_name
from carla_launcher.plugins.slurm import allotment
from carla_launcher.plugins.slurm.job_processes import JobProcesses
from tests.crowd import until
from tests.memory_hog import Hog

CONTAINER = "4f5d" * 16
AMOUNTS = st.none() | st.floats(0, 1e5)


def unnamed(_id: str) -> str | None:
    raise AssertionError("no container's name was needed")


@given(st.dictionaries(st.integers(1, 99), AMOUNTS), st.floats(0, 1e6))
def test_owners_hold_what_their_processes_hold_and_an_estimate_never_makes_more_than_all(
    held: dict[int, float | None], used: float
) -> None:
    owners = grouped(held, lambda pid: OwnerName(f"program {pid % 4}", OwnerKind.FOREIGN), used)
    assert sorted(pid for owner in owners for pid in owner.pids) == sorted(held)
    for owner in owners:
        parts = [held[pid] for pid in owner.pids]
        known = sum(part or 0.0 for part in parts)
        if None not in parts:
            assert owner.held.provenance is Provenance.MEASURED
            assert owner.held.mib == pytest.approx(known, abs=0.06)
        elif owner.held.provenance is Provenance.ESTIMATED:
            assert owner.held.mib is not None
            assert owner.held.mib >= known - 0.06
    unclear = [owner for owner in owners if any(held[pid] is None for pid in owner.pids)]
    known_to_all = sum(mib or 0.0 for mib in held.values())
    if len(unclear) == 1:
        assert sum(owner.held.mib or 0.0 for owner in owners) == pytest.approx(max(used, known_to_all), abs=2)
    elif unclear:
        assert {owner.held.provenance for owner in unclear} == {Provenance.UNKNOWN}


def test_the_biggest_owner_comes_first_and_one_of_unknown_size_last() -> None:
    owners = grouped({1: 5.0, 2: None, 3: 50.0}, lambda pid: OwnerName(str(pid), OwnerKind.FOREIGN))
    assert [owner.name for owner in owners] == ["3", "1", "2"]


def test_processes_of_this_run_bear_its_names_and_all_others_are_foreign() -> None:
    names, ours = OwnerNames(unnamed), RunProcesses(simulator=frozenset({11, 12}), agent=frozenset({21}))
    assert names.of(12, ours) == OwnerName("simulator", OwnerKind.SIMULATOR)
    assert names.of(21, ours) == OwnerName("agent", OwnerKind.AGENT)
    assert names.of(os.getpid(), ours) == OwnerName("launcher", OwnerKind.LAUNCHER)
    assert names.of(31, ours, lambda _pid: "Xorg").kind is OwnerKind.FOREIGN


def test_a_real_foreign_process_is_named_by_its_program() -> None:
    python = Path(sys.executable).name
    with Hog() as foreign_process:
        assert program_name(foreign_process.pid) == python
        assert OwnerNames(lambda _id: None).of(foreign_process.pid, RunProcesses()).name.startswith(python)
    assert program_name(foreign_process.pid) == ""


@pytest.mark.parametrize(
    "line",
    [
        f"0::/system.slice/docker-{CONTAINER}.scope",
        f"12:pids:/docker/{CONTAINER}\n4:memory:/docker/{CONTAINER}\n0::/system.slice/containerd.service",
        f"0::/kubepods.slice/kubepods-besteffort.slice/cri-containerd-{CONTAINER}.scope",
        f"0::/machine.slice/libpod-{CONTAINER}.scope/container",
    ],
)
def test_a_foreign_process_in_a_container_is_named_with_it_and_its_name_asked_for_once(
    tmp_path: Path, line: str
) -> None:
    (tmp_path / "77").mkdir()
    (tmp_path / "77" / "cgroup").write_text(line + "\n")
    (tmp_path / "77" / "cmdline").write_bytes(b"/usr/bin/python3\0train.py\0")
    asked: list[str] = []

    def container_name(container: str) -> str | None:
        asked.append(container)
        return "labs"

    names = OwnerNames(container_name, tmp_path)
    assert [names.of(77, RunProcesses()).name for _ in range(2)] == ["python3 (container labs)"] * 2
    assert asked == [CONTAINER]
    assert OwnerNames(lambda _id: None, tmp_path).of(77, RunProcesses()).name == "python3 (container 4f5d4f5d4f5d)"


def test_outside_of_any_container_there_is_no_id(tmp_path: Path) -> None:
    (tmp_path / "77").mkdir()
    (tmp_path / "77" / "cgroup").write_text("0::/user.slice/user-1000.slice/session-2.scope\n")
    assert container_id(77, tmp_path) is None
    assert container_id(78, tmp_path) is None


@pytest.mark.parametrize(
    ("job", "arguments", "kind"),
    [
        ("77", (), OwnerKind.AGENT),
        ("78", (), OwnerKind.FOREIGN),
        ("77", ("carla-launcher",), OwnerKind.FOREIGN),  # another run of the same job
    ],
)
def test_another_step_of_the_same_job_belongs_to_the_run(job: str, arguments: tuple[str, ...], kind: OwnerKind) -> None:
    in_job = allotment.in_job({"SLURM_JOB_ID": "77"})
    environment = {**os.environ, "SLURM_JOB_ID": job}
    with subprocess.Popen(
        [sys.executable, "-c", "input()", *arguments], stdin=subprocess.PIPE, env=environment
    ) as step:
        until(lambda: Path(f"/proc/{step.pid}/cmdline").read_bytes().startswith(os.fsencode(sys.executable)))
        assert RunProcesses(in_job=in_job).kind_of(step.pid) is kind
        step.communicate(b"\n")
    assert allotment.in_job({}) is None


def test_a_step_of_another_user_is_known_by_its_group(tmp_path: Path) -> None:
    (tmp_path / "77").mkdir()
    (tmp_path / "77" / "cgroup").write_text("5:memory:/slurm/uid_0/job_12/step_1/task_0\n")
    assert [JobProcesses(job, tmp_path)(77) for job in ("12", "1")] == [True, False]


def test_podmans_monitor_of_a_container_is_not_in_it(tmp_path: Path) -> None:
    for pid, name in ((77, "libpod"), (78, "libpod-conmon")):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "cgroup").write_text(f"0::/machine.slice/{name}-{CONTAINER}.scope\n")
    assert [container_id(pid, tmp_path) for pid in (77, 78)] == [CONTAINER, None]


def test_a_kernel_thread_is_named_by_its_task(tmp_path: Path) -> None:
    (tmp_path / "2").mkdir()
    (tmp_path / "2" / "cmdline").write_bytes(b"")
    (tmp_path / "2" / "comm").write_text("kthreadd\n")
    assert program_name(2, tmp_path) == "kthreadd"
    (tmp_path / "3").mkdir()
    (tmp_path / "3" / "cmdline").write_bytes(b"/usr/lib/chromium/chromium --type=gpu --user-data-dir=/tmp/x --y\0")
    assert program_name(3, tmp_path) == "chromium"
