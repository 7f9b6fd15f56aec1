"""The snapshot after a shortage of memory: enough to see the cause, few files, and never a second failure."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from carla_td3.memory import snapshot
from carla_td3.memory.snapshot import KEPT

CPU = torch.device("cpu")


def test_it_names_the_biggest_tensors_and_counts_a_storage_once(tmp_path: Path) -> None:
    big = torch.zeros(3, 1024, 1024)
    views = [big[index] for index in range(3)]
    name = snapshot.write(tmp_path / "memory", CPU, {"phase": "critic"})
    assert name == "out-of-memory-1.json"
    found = json.loads((tmp_path / "memory" / name).read_text())
    assert found["shortage"] == {"phase": "critic"}
    assert found["process_mib"]["RssAnon"] > 12
    ours = [entry for entry in found["tensors"]["biggest"] if entry["mib"] == 12.0]
    assert len(ours) == 1, found["tensors"]
    assert ours[0]["dtype"] == "float32"
    assert len(views) == 3


def test_only_the_first_few_are_kept(tmp_path: Path) -> None:
    names = [snapshot.write(tmp_path, CPU, {}) for _ in range(KEPT + 2)]
    assert names[KEPT - 1] == f"out-of-memory-{KEPT}.json"
    assert names[KEPT:] == [None, None]
    assert len(list(tmp_path.iterdir())) == KEPT


def test_a_folder_that_cannot_be_written_and_a_part_that_fails_cost_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    assert snapshot.write(tmp_path / "file" / "memory", CPU, {}) is None

    def exhausted() -> None:
        raise MemoryError

    monkeypatch.setattr(snapshot, "_tensors", exhausted)
    name = snapshot.write(tmp_path, CPU, {})
    assert name is not None
    found = json.loads((tmp_path / name).read_text())
    assert found["tensors"] == "MemoryError: "
    assert found["process_mib"]["VmRSS"] > 0


def test_on_cuda_the_viewer_s_pickle_and_the_allocator_s_figures_lie_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda.memory, "_dump_snapshot", lambda path: Path(path).write_bytes(b"pickle"))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (7 * 2**20, 5745 * 2**20))
    monkeypatch.setattr(torch.cuda, "memory_stats", lambda _: {"num_ooms": 1, "num_alloc_retries": 0})
    name = snapshot.write(tmp_path, torch.device("cuda"), {})
    assert name is not None
    found = json.loads((tmp_path / name).read_text())
    assert found["allocator"] == {"free_mib": 7.0, "total_mib": 5745.0, "num_ooms": 1}
    assert (tmp_path / found["for_the_viewer"]).read_bytes() == b"pickle"
