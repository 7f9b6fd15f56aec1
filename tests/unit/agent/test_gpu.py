"""GPU memory for a user's own script: by the driver, by PyTorch, and without a GPU the reason."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pynvml
import pytest
import torch

from carla_run.memory.processes import MIB
from carla_td3.memory import gpu
from carla_td3.memory.gpu import Allocated, GpuMemory, log_gpu_memory, memory_summary, read_gpu_memory
from tests.conftest import REPOSITORY
from tests.gpu_stub.stub import Figures, build

SMALL_CARD = (REPOSITORY / "docs/how-to/small-card.md").read_text(encoding="utf-8")


@pytest.fixture
def no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    monkeypatch.setattr(pynvml, "nvmlInit", fails)


def test_the_example_of_the_documentation_runs_beside_another_process_on_the_card(tmp_path: Path) -> None:
    figures = Figures(tmp_path / "figures", build(tmp_path))
    figures.hold(4_200_001, 4813, "G", "CarlaUE4")
    (example,) = re.findall(r"```python\n(from carla_td3\.memory\.gpu .*?)```", SMALL_CARD, re.DOTALL)
    ran = subprocess.run(
        [sys.executable, "-c", example],
        check=False,
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        env={**figures.environment, "CUDA_VISIBLE_DEVICES": ""},
    )
    assert ran.returncode == 0, ran.stderr
    first, again, ram = ran.stdout.splitlines()
    shown = re.findall(r"^# (before the model.*)$", example, re.MULTILINE)
    assert [first] == shown
    assert first == f"before the model: {again}"
    assert re.fullmatch(r"RAM: \d+ MiB free; this process holds \d+", ram)


def test_without_a_card_it_is_said_why(no_driver: None, capsys: pytest.CaptureFixture[str]) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a card")
    log_gpu_memory("after the model")
    log_gpu_memory()
    prefixed, plain = capsys.readouterr().out.splitlines()
    assert prefixed == f"after the model: {plain}"
    assert plain.startswith("no GPU memory to report: ")
    assert memory_summary().splitlines()[0] == plain
    assert "torch" not in read_gpu_memory().problem or torch.__version__ in read_gpu_memory().problem


def test_where_the_process_uses_the_card_pytorch_s_figures_are_told_and_its_table(
    no_driver: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (932 * MIB, 5745 * MIB))
    monkeypatch.setattr(torch.cuda, "memory_summary", lambda device: f"the table of {device}")
    amounts = {"memory_allocated": 50, "max_memory_allocated": 62, "memory_reserved": 64, "max_memory_reserved": 80}
    for name, mib in amounts.items():
        monkeypatch.setattr(torch.cuda, name, lambda _, mib=mib: mib * MIB)
    assert read_gpu_memory(1) == GpuMemory(1, 932, 5745, Allocated(50, 62, 64, 80))
    expected = "50 MiB in tensors (at most 62), 64 reserved (at most 80)"
    line, _, table = memory_summary(1).splitlines()
    assert line == f"GPU 1: 932 of 5745 MiB free; PyTorch in this process: {expected}"
    assert table == "the table of 1"


@pytest.mark.parametrize(
    ("visible", "device", "asked"),
    [(None, 1, "1"), ("3,2", 1, "2"), ("GPU-a,GPU-b", 1, "GPU-b"), ("0", 1, "1"), ("", 0, "0")],
)
def test_the_card_is_the_one_that_cuda_counts(
    monkeypatch: pytest.MonkeyPatch, visible: str | None, device: int, asked: str
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert gpu.visible_name(device) == asked
