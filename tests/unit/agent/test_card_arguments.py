"""Calls of ``torch.cuda``: torch's own Python checks the arguments; the calls beneath are recorded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from carla_run.memory.processes import MIB
from carla_run.paths import RunPaths
from carla_td3 import config
from carla_td3.cuda import choose_device, limit_memory
from carla_td3.memory import preflight
from carla_td3.memory.watermarks import Watermarks
from carla_td3.run_directory import prepare
from carla_td3.td3.executor import Executor
from carla_td3.trainer.learner import Learner

SMALL = {"channels": [8, 8, 8], "features": 32, "hidden": [32]}


class Beneath:
    """The functions of ``torch._C`` that a build without CUDA lacks, and the calls of them that torch made."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[tuple[str, tuple[Any, ...]]] = []
        self.begun = False
        self._patch = monkeypatch
        for module in (torch.cuda, torch.cuda.memory):
            monkeypatch.setattr(module, "_lazy_init", self._begin)
            monkeypatch.setattr(module, "is_initialized", lambda: self.begun)
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        self.answers("_cuda_setMemoryFraction", None)

    def answers(self, name: str, answer: Any) -> None:
        def called(*arguments: Any) -> Any:
            self.calls.append((name, arguments))
            return answer

        self._patch.setattr(torch._C, name, called, raising=False)

    def _begin(self) -> None:
        self.begun = True


@pytest.fixture
def beneath(monkeypatch: pytest.MonkeyPatch) -> Beneath:
    return Beneath(monkeypatch)


def test_torch_itself_refuses_a_fraction_of_a_device_without_an_index(beneath: Beneath) -> None:
    with pytest.raises(ValueError, match="with a specified index"):
        limit_memory(torch.device("cuda"), 0.5)


@pytest.mark.parametrize("wanted", ["auto", "cuda"])
def test_the_device_that_is_chosen_can_be_limited(beneath: Beneath, wanted: str) -> None:
    device = choose_device(wanted)
    assert not beneath.begun, "choosing makes no context: the admission may yet decide for the CPU"
    limit_memory(device, 0.5)
    assert beneath.calls == [("_cuda_setMemoryFraction", (0.5, 0))]
    assert beneath.begun


def test_a_limit_is_set_before_a_learner_goes_to_a_gpu_at_a_request_too(
    beneath: Beneath, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    values: dict[str, Any] = {"device": "cpu", "td3": {"network": SMALL}, "memory": {"per_process_memory_fraction": 1}}
    settings, run = config.validate(values, "test"), RunPaths(tmp_path)
    monkeypatch.setattr(Executor, "move", lambda *arguments: beneath.calls.append(("move", arguments[1:])))
    with prepare(run, resume=False):
        learner = Learner(settings, run)
        assert not beneath.calls
        learner.apply(config.validate({**values, "device": "cuda"}, "test"), ["device"])
    assert [name for name, _ in beneath.calls] == ["_cuda_setMemoryFraction", "move"]
    assert beneath.calls[0][1] == (1.0, 0)


def test_the_allocator_is_asked_for_its_settings_in_a_context(beneath: Beneath) -> None:
    beneath.answers("_cuda_memorySnapshot", {"allocator_settings": {"expandable_segments": True, "divisions": {}}})
    assert preflight.read_back() == {"expandable_segments": True, "divisions": "{}"}
    assert beneath.begun


def test_a_learner_that_came_to_a_gpu_tells_what_it_holds_there_and_goes_on_telling_when_it_left(
    beneath: Beneath, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures = {"all": {"current": 100 * MIB, "peak": 300 * MIB}}
    beneath.answers("_cuda_memoryStats", {"allocated_bytes": figures, "reserved_bytes": figures})
    beneath.answers("_cuda_resetPeakMemoryStats", None)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (device.index, 1000 * MIB))
    torch.cuda.init()
    memory = Watermarks(torch.device("cpu"))
    memory.read("starting")
    assert "device_allocated" not in memory.now
    for device in (choose_device("cuda"), torch.device("cpu")):
        memory.follow(device)
        memory.enter(f"updating on {device.type}")
        memory.read(f"updating on {device.type}")
        assert (memory.now["device_allocated"], memory.now["device_used"]) == (100, 1000)
    assert {arguments for name, arguments in beneath.calls if "fraction" not in name} == {(0,)}
