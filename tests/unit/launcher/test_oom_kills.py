"""The kernel's counter of OOM kills: a container's from its beginning, others from the first look."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from carla_launcher.observe import oom_kills
from carla_launcher.observe.oom_kills import OomKills


@pytest.fixture
def group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of every process's control group; the machine's counter lies beside it."""
    folder = tmp_path / "group"
    folder.mkdir()
    machine = tmp_path / "vmstat"
    machine.write_text("nr_free_pages 90\noom_kill 7\n")
    monkeypatch.setattr(oom_kills, "MACHINE", machine)
    monkeypatch.setattr(oom_kills, "Cgroups", lambda: SimpleNamespace(of=lambda _: SimpleNamespace(folder=folder)))
    return folder


@pytest.mark.parametrize("name", ["memory.events", "memory.oom_control"])
def test_a_kill_before_the_first_look_is_the_containers_own_and_nobody_elses(group: Path, name: str) -> None:
    counter = group / name
    counter.write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 2\n")
    container, other = OomKills(7, own_group=True), OomKills(7)
    assert (container.look(), other.look()) == (True, False)
    counter.write_text("oom_kill 3\n")
    assert other.look()


@pytest.mark.parametrize("counter", ["", "under_oom 0\n"])
def test_without_a_counter_of_its_own_the_machines_is_taken_from_now_on(group: Path, counter: str) -> None:
    (group / "memory.events").write_text(counter)
    kills = OomKills(7, own_group=True)
    assert not kills.look()
    oom_kills.MACHINE.write_text("oom_kill 8\n")
    assert kills.look()


def test_a_kill_is_remembered_after_the_group_has_gone(group: Path) -> None:
    counter = group / "memory.events"
    counter.write_text("oom_kill 1\n")
    kills = OomKills(7, own_group=True)
    assert kills.look()
    counter.unlink()
    assert kills.look()
    counter.write_text("oom_kill 0\n")
    group_of_nobody = OomKills(7, own_group=True)
    counter.unlink()
    assert not group_of_nobody.look()
