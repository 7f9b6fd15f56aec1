"""The double-buffered weights file: versions, tearing, other networks."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import torch

from carla_td3.exchange.weights import WeightsError, WeightsFile, flatten, unflatten


def test_another_process_reads_the_newest_version(tmp_path: Path) -> None:
    path = tmp_path / "weights.bin"
    file = WeightsFile.create(path, 3)
    assert file.read() is None
    for version in range(1, 4):
        assert file.publish(np.full(3, version, np.float32), updates=10 * version) == version
    program = (
        "import sys, pathlib; from carla_td3.exchange.weights import WeightsFile;"
        "seen = WeightsFile(pathlib.Path(sys.argv[1])).read(); print(seen.version, seen.updates, *seen.flat)"
    )
    seen = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=True)
    assert seen.stdout.split() == ["3", "30", "3.0", "3.0", "3.0"]


def test_a_reader_never_sees_two_versions_mixed(tmp_path: Path) -> None:
    path = tmp_path / "weights.bin"
    count = 200_000
    writer, reader = WeightsFile.create(path, count), WeightsFile(path)
    done = threading.Event()

    def write() -> None:
        for version in range(1, 400):
            writer.publish(np.full(count, version, np.float32), updates=version)
        done.set()

    thread = threading.Thread(target=write)
    thread.start()
    last = 0
    while not done.is_set():
        weights = reader.read()
        if weights is not None:
            assert (weights.flat == weights.version).all()
            assert weights.updates == weights.version >= last
            last = weights.version
    thread.join()
    assert last > 0


def test_a_new_file_leaves_the_readers_of_the_old_one_alone(tmp_path: Path) -> None:
    old = WeightsFile.create(tmp_path / "weights.bin", 4)
    old.publish(np.ones(4, np.float32), updates=1)
    WeightsFile.create(tmp_path / "weights.bin", 8)
    weights = old.read()
    assert weights is not None
    assert weights.flat.tolist() == [1, 1, 1, 1]
    assert WeightsFile(tmp_path / "weights.bin").count == 8


def test_a_network_comes_back_as_it_went(tmp_path: Path) -> None:
    source = torch.nn.Sequential(torch.nn.Conv2d(4, 8, 3), torch.nn.Linear(3, 2))
    source.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    target = torch.nn.Sequential(torch.nn.Conv2d(4, 8, 3), torch.nn.Linear(3, 2))
    file = WeightsFile.create(tmp_path / "weights.bin", sum(p.numel() for p in source.parameters()))
    file.publish(flatten(source.state_dict()), updates=0)
    weights = file.read()
    assert weights is not None
    target.load_state_dict(unflatten(weights.flat, target.state_dict()))
    for name, tensor in source.state_dict().items():
        assert torch.equal(tensor, target.state_dict()[name])


def test_a_file_or_network_of_another_kind_is_refused(tmp_path: Path) -> None:
    (tmp_path / "weights.bin").write_bytes(b"\0" * 200)
    with pytest.raises(WeightsError, match="no weights file"):
        WeightsFile(tmp_path / "weights.bin")
    with pytest.raises(WeightsError, match="9 parameters, this network has 8"):
        unflatten(np.zeros(9, np.float32), torch.nn.Linear(3, 2).state_dict())
