"""Checkpoints are complete or absent, verified, and an error never harms an earlier one."""

from __future__ import annotations

import json
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from carla_run import formats
from carla_run.sealed import sealed, unsealed
from carla_td3.trainer import checkpoint
from carla_td3.trainer.checkpoint import CheckpointError
from tests.crowd import PATIENCE_S
from tests.disks import read_only

REPOSITORY = Path(__file__).resolve().parents[3]
WIDTHS = {"channels": (32, 64, 64), "features": 512, "hidden": (256, 256)}
TENSORS = {"weight": torch.arange(12, dtype=torch.float32).reshape(3, 4), "noise": torch.arange(8, dtype=torch.uint8)}


def save(run_dir: Path, step: int, keep: int = 3, score: float | None = None, **values: Any) -> Path:
    return checkpoint.save(
        run_dir,
        step,
        TENSORS,
        {"updates": step, **values},
        architecture=WIDTHS,
        config_digest="abc",
        keep=keep,
        score=score,
    )


def names(run_dir: Path) -> list[str]:
    return sorted(path.name for path in (run_dir / "checkpoints").iterdir())


def test_what_was_saved_is_loaded_and_holds_no_pickle(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    path = save(tmp_path, 120_000, rng=rng.bit_generator.state)
    assert path == tmp_path / "checkpoints" / "step-000120000"
    loaded = checkpoint.load(tmp_path, WIDTHS)
    assert loaded.step == 120_000
    assert loaded.values["updates"] == 120_000
    assert loaded.manifest["config_digest"] == "abc"
    assert loaded.manifest["versions"]["torch"] == torch.__version__
    assert loaded.skipped == ()
    for name, value in TENSORS.items():
        assert torch.equal(loaded.tensors[name], value)
    again = np.random.default_rng(0)
    again.bit_generator.state = loaded.values["rng"]
    assert again.random() == rng.random()
    assert {file.suffix for file in path.iterdir()} == {".safetensors", ".json"}


def test_latest_names_the_newest_and_old_ones_go(tmp_path: Path) -> None:
    for step in range(1, 6):
        save(tmp_path, step, keep=3)
    assert names(tmp_path) == ["latest", "step-000000003", "step-000000004", "step-000000005"]
    assert (tmp_path / "checkpoints" / "latest").read_text() == "step-000000005\n"


def test_a_users_copies_are_neither_counted_nor_removed(tmp_path: Path) -> None:
    first = save(tmp_path, 100)
    for name in ("step-000000100.bak", "step-best", "step-xyz"):
        shutil.copytree(first, first.with_name(name))
    (first.parent / "step-notes.txt").write_text("mine")
    (first.parent / "latest").unlink()
    for step in (200, 300):
        save(tmp_path, step, keep=2)
    own = {"step-000000100.bak", "step-best", "step-xyz", "step-notes.txt"}
    assert set(names(tmp_path)) == {"latest", "step-000000200", "step-000000300", *own}
    assert checkpoint.load(tmp_path, WIDTHS).step == 300


def test_the_best_is_kept(tmp_path: Path) -> None:
    save(tmp_path, 1, keep=2, score=0.2)
    save(tmp_path, 2, keep=2, score=0.9)
    for step in range(3, 7):
        save(tmp_path, step, keep=2, score=0.5 if step == 3 else None)
    assert names(tmp_path) == ["latest", "step-000000002", "step-000000005", "step-000000006"]


def test_the_same_step_again_replaces(tmp_path: Path) -> None:
    save(tmp_path, 7, note="first")
    save(tmp_path, 7, note="second")
    assert checkpoint.load(tmp_path, WIDTHS).values["note"] == "second"
    assert names(tmp_path) == ["latest", "step-000000007"]


@pytest.mark.parametrize("name", ["tensors.safetensors", "values.json", "manifest.json"])
@pytest.mark.parametrize("damage", ["cut", "flip", "gone"])
def test_a_damaged_checkpoint_is_named_and_the_one_before_loads(tmp_path: Path, name: str, damage: str) -> None:
    save(tmp_path, 1)
    file = save(tmp_path, 2) / name
    content = bytearray(file.read_bytes())
    if damage == "gone":
        file.unlink()
    elif damage == "cut":
        file.write_bytes(content[: len(content) // 2])
    else:
        content[3] ^= 0x7F
        file.write_bytes(content)
    loaded = checkpoint.load(tmp_path, WIDTHS)
    assert loaded.step == 1
    assert len(loaded.skipped) == 1
    assert "step-000000002" in loaded.skipped[0]


@pytest.mark.parametrize("name", ["tensors.safetensors", "values.json", "manifest.json", "latest"])
def test_any_flipped_bit_leaves_that_checkpoint_out(tmp_path: Path, name: str) -> None:
    save(tmp_path, 1)
    folder = save(tmp_path, 2)
    file = folder.parent / name if name == "latest" else folder / name
    whole, manifest = file.read_bytes(), json.loads((folder / "manifest.json").read_text())
    for place in range(0, 8 * len(whole), 1 + len(whole) // 20):
        content = bytearray(whole)
        content[place // 8] ^= 1 << place % 8
        file.write_bytes(content)
        loaded = checkpoint.load(tmp_path, WIDTHS)
        if name != "latest" and (loaded.step, len(loaded.skipped)) != (1, 1):
            # White space, or the checksum's own name.
            assert {key: loaded.manifest[key] for key in manifest if key != "checksum"} == unsealed(manifest), place


def test_a_newer_format_is_refused_and_no_older_checkpoint_taken(tmp_path: Path) -> None:
    save(tmp_path, 1)
    manifest = save(tmp_path, 2) / "manifest.json"
    said = unsealed(json.loads(manifest.read_text()))
    later = {**said, "format": 2, "versions": {formats.DISTRIBUTION: "9.0"}}
    manifest.write_text(json.dumps(sealed(later)))
    with pytest.raises(formats.FormatError, match=r"step-000000002: holds .* format 2, written by version 9"):
        checkpoint.load(tmp_path, WIDTHS)


def test_nothing_whole_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="holds no checkpoint"):
        checkpoint.load(tmp_path, WIDTHS)
    assert not checkpoint.exists(tmp_path)
    (save(tmp_path, 1) / "values.json").write_bytes(b"{}")
    assert checkpoint.exists(tmp_path)
    with pytest.raises(CheckpointError, match=r"values.json: is damaged .* No older one is whole"):
        checkpoint.load(tmp_path, WIDTHS)


def test_another_architecture_names_the_width_that_differs(tmp_path: Path) -> None:
    save(tmp_path, 1)
    with pytest.raises(CheckpointError, match=r"trained with hidden = \[256, 256\], the configuration says \[64\]"):
        checkpoint.load(tmp_path, {**WIDTHS, "hidden": (64,)})


def test_one_older_than_a_key_names_the_value_that_is_meant(tmp_path: Path) -> None:
    save(tmp_path, 6)
    key = "td3.network.picture_weight"
    with pytest.raises(CheckpointError, match=rf"with {key} = 1\.0, the configuration says 0\.2: set {key} to 1\.0,"):
        checkpoint.load(tmp_path, WIDTHS | {key: 0.2})
    assert checkpoint.load(tmp_path, WIDTHS | {key: 1.0}).step == 6


def test_latest_decides_which_is_loaded_if_it_is_there(tmp_path: Path) -> None:
    """After a resume from step 5 in a run that holds step 9, ``latest`` decides, not the highest number."""
    save(tmp_path, 9)
    save(tmp_path, 5)
    assert checkpoint.load(tmp_path, WIDTHS).step == 5
    (tmp_path / "checkpoints" / "latest").write_text("step-000000099\n")
    assert checkpoint.load(tmp_path, WIDTHS).step == 9


def test_full_disk_is_one_sentence_and_leaves_the_earlier_checkpoint(tmp_path: Path) -> None:
    save(tmp_path, 1)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))  # writes fail in the middle, as on a full disk
    try:
        with pytest.raises(CheckpointError, match=r"can't be written .* earlier .* are untouched: free \d+ MiB"):
            save(tmp_path, 2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert names(tmp_path) == ["latest", "step-000000001"]
    assert checkpoint.load(tmp_path, WIDTHS).step == 1
    save(tmp_path, 3)
    assert checkpoint.load(tmp_path, WIDTHS).step == 3


def test_read_only_directory_is_one_sentence(tmp_path: Path) -> None:
    save(tmp_path, 1)
    with read_only(tmp_path / "checkpoints"):
        with pytest.raises(CheckpointError, match=r"can't be written \((Read-only file system|Permission denied)\)"):
            save(tmp_path, 2)
        assert checkpoint.load(tmp_path, WIDTHS).step == 1


def test_a_file_in_the_directorys_place_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").write_text("")
    with pytest.raises(CheckpointError, match="can't be written"):
        save(tmp_path, 1)


# Saves twice at one step, and dies by SIGKILL just before the n-th rename of the second time.
KILLED = """
import os, pathlib, signal, sys
import torch
from carla_td3.trainer import checkpoint
run, deadly = pathlib.Path(sys.argv[1]), int(sys.argv[2])
def save(updates):
    checkpoint.save(run, 5, {"w": torch.full((3,), float(updates))}, {"updates": updates},
                    architecture={}, config_digest="", keep=1)
save(1)
count = 0
def counted(name):
    real = getattr(pathlib.Path, name)
    def rename(self, target):
        global count
        count += 1
        if count == deadly:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(self, target)
    setattr(pathlib.Path, name, rename)
counted("rename"), counted("replace")
save(2)
"""


@pytest.mark.parametrize(("rename", "updates"), [(1, 1), (2, 1), (3, 2), (4, 2)])
def test_a_kill_at_any_rename_leaves_a_whole_checkpoint(tmp_path: Path, rename: int, updates: int) -> None:
    """The only checkpoint is being replaced by one of the same step: aside, into place, named in ``latest``, done."""
    command = [sys.executable, "-c", KILLED, str(tmp_path), str(rename)]
    ended = subprocess.run(command, check=False, cwd=REPOSITORY, timeout=PATIENCE_S)
    assert ended.returncode == (0 if rename == 4 else -signal.SIGKILL)
    assert checkpoint.exists(tmp_path)
    assert checkpoint.load(tmp_path, {}).values["updates"] == updates
    checkpoint.save(tmp_path, 6, {"w": torch.zeros(3)}, {"updates": 3}, architecture={}, config_digest="", keep=2)
    assert checkpoint.load(tmp_path, {}).values["updates"] == 3
    assert names(tmp_path) == ["latest", "step-000000005", "step-000000006"]


COPIED = """
import os, pathlib, sys, threading
import torch
from carla_td3.trainer import checkpoint
from carla_run.memory.processes import held_mib
tensors = {f"w{index}": torch.ones(2**20) for index in range(40)}
seen = [held_mib(os.getpid())]
def watch():
    while True:
        seen.append(held_mib(os.getpid()))
threading.Thread(target=watch, daemon=True).start()
checkpoint.save(pathlib.Path(sys.argv[1]), 5, tensors, {}, architecture={}, config_digest="", keep=1)
print(max(seen) - seen[0], len(seen))
"""


def test_saving_makes_no_copy_of_the_tensors(tmp_path: Path) -> None:
    command = [sys.executable, "-c", COPIED, str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, check=True, cwd=REPOSITORY, timeout=PATIENCE_S)
    grown_mib, looks = map(float, ended.stdout.split())
    assert looks > 20
    assert grown_mib < 20, "160 MiB of tensors were written"
