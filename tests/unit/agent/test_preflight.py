"""Where a run is let in, and where it isn't: decided before anything is allocated, and told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from carla_run.event_log import EventLog
from carla_run.exits import Exit
from carla_run.heartbeat import Cuda
from carla_run.paths import RunPaths
from carla_td3 import config, cuda
from carla_td3.config import AgentConfig, ConfigError
from carla_td3.cuda import CudaStatus
from carla_td3.exits import AgentError
from carla_td3.memory import free, preflight
from carla_td3.memory.allocator import Choice
from carla_td3.memory.estimate import MIB, Free

CHOICE = Choice("expandable_segments:True", "a test")
ROOMY = 2**40


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """A machine with a GPU: what device and host have free."""
    rooms = {"device": ROOMY, "host": ROOMY}

    def read(run: Path, cuda: bool, fraction: float | None) -> Free:
        return Free(rooms["device"] if cuda else None, rooms["host"], None)

    monkeypatch.setattr(free, "read", read)
    monkeypatch.setattr(preflight, "read_back", dict)
    monkeypatch.setattr(cuda, "cuda_status", lambda: CudaStatus(True, "2.13.0", "12.6"))
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **_: False)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA GeForce RTX 2060")
    return rooms


def admitted(directory: Path, **values: Any) -> tuple[str, list[dict[str, Any]]]:
    directory.mkdir(exist_ok=True)
    run = RunPaths(directory)
    return preflight.run_preflight(
        configured(**values), run, CHOICE, EventLog(run.agent_events).append
    ).device.type, events(run)


def configured(**values: Any) -> AgentConfig:
    return config.validate(values, "test")


def events(run: RunPaths) -> list[dict[str, Any]]:
    return [json.loads(line) for line in run.agent_events.read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize(("device", "room_mib", "looks"), [("auto", 2**20, 1), ("auto", 100, 1), ("cpu", 0, 0)])
def test_a_start_asks_once_whether_there_is_a_gpu(
    tmp_path: Path,
    machine: dict[str, int],
    monkeypatch: pytest.MonkeyPatch,
    device: str,
    room_mib: int,
    looks: int,
) -> None:
    machine["device"] = room_mib * MIB
    seen = [CudaStatus(True, "2.13.0", "12.6")]
    monkeypatch.setattr(cuda, "cuda_status", seen.pop)  # a second time there is nothing to see
    admitted(tmp_path, device=device)
    assert len(seen) == 1 - looks


@pytest.mark.parametrize("device", ["auto", "cuda"])
def test_a_gpu_with_room_is_taken(tmp_path: Path, machine: dict[str, int], device: str) -> None:
    chosen, reported = admitted(tmp_path, device=device)
    assert chosen == "cuda"
    assert [event["event"] for event in reported] == ["allocator", "footprint"]
    assert reported[1]["device"] == "cuda"


def test_auto_leaves_a_full_gpu_alone_and_says_why(tmp_path: Path, machine: dict[str, int]) -> None:
    machine["device"] = 100 * MIB
    chosen, reported = admitted(tmp_path, device="auto")
    assert chosen == "cpu"
    assert [event["event"] for event in reported] == ["allocator", "footprint", "device"]
    assert reported[1]["fits"] is True
    assert reported[2]["device"] == "cpu"
    assert "MiB of device memory" in reported[2]["cause"]
    assert "100 MiB are free" in reported[2]["cause"]
    assert "The agent runs on the CPU" in reported[1]["cause"]


@pytest.mark.parametrize(
    ("device", "room_mib", "gave_way"), [("auto", 100, "device"), ("auto", None, ""), ("cpu", None, "")]
)
def test_what_was_given_up_for_memory_is_told_apart_from_what_was_asked_for(
    tmp_path: Path, machine: dict[str, int], device: str, room_mib: int | None, gave_way: str
) -> None:
    machine["device"] = ROOMY if room_mib is None else room_mib * MIB
    run = RunPaths(tmp_path)
    found = preflight.run_preflight(configured(device=device), run, CHOICE, EventLog(run.agent_events).append)
    assert found.gave_way == gave_way
    assert (None if found.cuda is None else found.cuda.cuda) == (None if device == "cpu" else Cuda.USABLE)


@pytest.mark.parametrize("device", ["auto", "cuda"])
def test_a_torch_without_cuda_is_an_event_of_its_own_and_never_one_of_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: str
) -> None:
    monkeypatch.setattr(cuda, "cuda_status", lambda: CudaStatus(False, "2.13.0+cpu", None))
    run = RunPaths(tmp_path)
    if device == "cuda":
        with pytest.raises(
            ConfigError, match=r"torch sees no CUDA device: torch 2\.13\.0\+cpu is a build without CUDA"
        ):
            preflight.run_preflight(configured(device=device), run, CHOICE, EventLog(run.agent_events).append)
    else:
        found = preflight.run_preflight(configured(device=device), run, CHOICE, EventLog(run.agent_events).append)
        assert (found.device.type, found.gave_way) == ("cpu", "")
    reported = events(run)
    assert (reported[0]["event"], reported[0]["reason"], reported[0]["device"]) == ("no_cuda", "cpu_build", device)
    assert not {event["event"] for event in reported} & {"device", "cannot_fit", "out_of_memory", "micro_batch_lowered"}


def test_a_full_gpu_that_was_asked_for_is_refused(tmp_path: Path, machine: dict[str, int]) -> None:
    machine["device"] = 100 * MIB
    with pytest.raises(AgentError, match="--device cpu") as caught:
        admitted(tmp_path, device="cuda")
    assert caught.value.code is Exit.OUT_OF_MEMORY
    estimated, refused = events(RunPaths(tmp_path))[-2:]
    assert estimated["fits"] is False
    assert (refused["event"], refused["cause"]) == ("cannot_fit", str(caught.value))
    assert (refused["pool"], refused["free_mib"], refused["fitting_batch"]) == ("device", 100, None)


def test_a_refusal_names_a_micro_batch_that_is_let_in(tmp_path: Path, machine: dict[str, int]) -> None:
    machine["device"] = 700 * MIB
    with pytest.raises(AgentError):
        admitted(tmp_path, device="cuda", td3={"batch_size": 4096})
    refused = events(RunPaths(tmp_path))[-1]
    size = refused["fitting_micro_batch"]
    assert f"td3.micro_batch {size} would do" in refused["cause"]
    assert admitted(tmp_path, device="cuda", td3={"batch_size": 4096, "micro_batch": size})[0] == "cuda"
    with pytest.raises(AgentError):
        admitted(tmp_path, device="cuda", td3={"batch_size": 4096, "micro_batch": size + 1})


def test_where_neither_has_room_the_gpu_s_refusal_is_told(tmp_path: Path, machine: dict[str, int]) -> None:
    machine.update(device=100 * MIB, host=100 * MIB)
    with pytest.raises(AgentError, match="MiB of device memory"):
        admitted(tmp_path, device="auto")
    assert events(RunPaths(tmp_path))[-1]["pool"] == "device"


def test_a_gpu_without_bfloat16_is_refused_it_with_the_way_out(tmp_path: Path, machine: dict[str, int]) -> None:
    with pytest.raises(ConfigError) as refused:
        admitted(tmp_path, device="auto", td3={"precision": "bfloat16"})
    assert str(refused.value) == (
        "td3.precision is bfloat16, which NVIDIA GeForce RTX 2060 lacks: set td3.precision to float16."
    )
    assert admitted(tmp_path, device="auto", td3={"precision": "float16"})[0] == "cuda"
    assert admitted(tmp_path, device="cpu", td3={"precision": "bfloat16"})[0] == "cpu"


def test_offload_that_has_no_effect_is_told(tmp_path: Path, machine: dict[str, int]) -> None:
    reported = admitted(tmp_path, device="cpu", memory={"offload": ["optimizer"]})[1]
    assert reported[1]["idle_offload"] == ["optimizer"]
    assert "memory.offload has no effect on the CPU (optimizer)." in reported[1]["cause"]
    reported = admitted(tmp_path / "other", device="cuda", memory={"offload": ["optimizer"]})[1]
    assert reported[1]["idle_offload"] == []
