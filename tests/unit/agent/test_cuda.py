"""Why PyTorch sees no card, told apart: the build, a variable, the kernel, the driver."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from carla_run.heartbeat import Cuda
from carla_td3 import cuda
from carla_td3.cuda import CudaStatus
from carla_td3.layered_yaml import ConfigError

TOO_OLD = "The NVIDIA driver on your system is too old (found version 11040)"


@pytest.mark.parametrize(
    ("seen", "case", "says"),
    [
        (CudaStatus(True, "2.13.0", "12.6", device_files=True), Cuda.USABLE, "CUDA 12.6"),
        (CudaStatus(False, "2.13.0+cpu", None), Cuda.CPU_BUILD, "2.13.0+cpu is a build without CUDA"),
        (CudaStatus(False, "2.13.0+cpu", None, visible="", device_files=True), Cuda.CPU_BUILD, "build without"),
        (CudaStatus(False, "2.13.0", "12.6", visible="", device_files=True), Cuda.HIDDEN, "CUDA_VISIBLE_DEVICES is ''"),
        (
            CudaStatus(False, "2.13.0", "12.6", visible="-1", device_files=True),
            Cuda.HIDDEN,
            "CUDA_VISIBLE_DEVICES is '-1'",
        ),
        (CudaStatus(False, "2.13.0", "12.6", visible="0"), Cuda.NO_DEVICE, "its driver isn't loaded"),
        (CudaStatus(False, "2.13.0", "12.6", container=True), Cuda.NO_DEVICE, "NVIDIA Container Toolkit"),
        (
            CudaStatus(False, "2.13.0", "12.6", error=TOO_OLD, device_files=True),
            Cuda.REFUSED,
            "too old (found version 11040)",
        ),
        (CudaStatus(False, "2.13.0", "12.6", container=True, device_files=True), Cuda.REFUSED, "no reason given"),
    ],
)
def test_the_cases_are_told_apart_by_facts_and_each_says_what_it_is(seen: CudaStatus, case: Cuda, says: str) -> None:
    assert seen.cuda is case
    assert says in str(seen)


@pytest.mark.parametrize(
    ("made", "device_files", "container"),
    [([], False, False), (["dev/nvidia0"], True, False), (["dev/dxg"], True, False), ([".dockerenv"], False, True)],
)
def test_the_kernel_s_side_is_read_from_its_files(
    tmp_path: Path, made: list[str], device_files: bool, container: bool
) -> None:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "nvidia-modeset").touch()
    for name in made:
        (tmp_path / name).touch()
    seen = cuda.cuda_status(tmp_path)
    assert (seen.device_files, seen.container) == (device_files, container)


def test_a_driver_s_refusal_is_told_in_torch_s_own_words(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse() -> None:
        raise RuntimeError(f"{TOO_OLD}. Please update your GPU driver.\nmore")

    monkeypatch.setattr(torch.version, "cuda", "12.6")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "init", refuse)
    assert cuda.cuda_status(tmp_path).error == f"{TOO_OLD}. Please update your GPU driver"


@pytest.mark.skipif(torch.version.cuda is not None, reason="torch is a build with CUDA")
def test_this_very_build_is_known_for_what_it_is() -> None:
    assert cuda.cuda_status().cuda is Cuda.CPU_BUILD
    assert cuda.choose_device("auto").type == cuda.choose_device("cpu").type == "cpu"
    with pytest.raises(ConfigError, match=r"is a build without CUDA: .*; or use --device auto or --device cpu\.$"):
        cuda.choose_device("cuda")
