"""td3.precision: what each value comes to on which hardware, said once, settled once for a run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from carla_run.event_log import EventLog
from carla_run.paths import RunPaths
from carla_td3 import config, cuda
from carla_td3.config import AgentConfig
from carla_td3.cuda import CudaStatus
from carla_td3.exits import AgentError
from carla_td3.memory import estimate, free, preflight
from carla_td3.memory.allocator import Choice
from carla_td3.memory.estimate import MIB, Free
from carla_td3.run_directory import prepare, settled_precision
from carla_td3.td3 import executor
from carla_td3.td3.kernels import arithmetic
from carla_td3.td3.kernels.arithmetic import computed, cpu_gains_by_bfloat16, cpu_has_bfloat16
from carla_td3.td3.td3 import TD3
from carla_td3.trainer.announcement import announce
from carla_td3.trainer.learner import Learner
from carla_td3.trainer.pacing import Counters
from tests.unit.agent.batches import random_batch

CPU = torch.device("cpu")
WIDTHS = {"channels": [8, 8, 8], "features": 32, "hidden": [32]}
Has = Callable[..., None]


def configured(precision: str, device: str = "cpu") -> AgentConfig:
    return config.validate(
        {"device": device, "td3": {"precision": precision, "network": WIDTHS, "batch_size": 16}}, "test"
    )


def events(run: RunPaths, name: str) -> list[dict[str, Any]]:
    lines = run.agent_events.read_text(encoding="utf-8").splitlines() if run.agent_events.exists() else []
    return [event for event in map(json.loads, lines) if event["event"] == name]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Has:
    """Return a function that gives the machine bfloat16 on its CPU, faster or not, on its GPU, and room there."""

    def has(cpu: bool, gpu: bool = False, device_mib: int = 2**20, faster: bool = True) -> None:
        monkeypatch.setattr(arithmetic, "cpu_has_bfloat16", lambda: cpu)
        monkeypatch.setattr(arithmetic, "cpu_gains_by_bfloat16", lambda: cpu and faster)
        monkeypatch.setattr(free, "device_has_bfloat16", lambda: gpu)
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **_: gpu)
        monkeypatch.setattr(free, "read", lambda _, cuda, __: Free(device_mib * MIB if cuda else None, None, None))

    monkeypatch.setattr(cuda, "cuda_status", lambda: CudaStatus(True, "2.13.0", "12.6"))
    monkeypatch.setattr(preflight, "read_back", dict)
    return has


def started(path: Path, precision: str, device: str = "cpu") -> AgentConfig:
    """Return what a run in this directory goes by, as a start settles and saves it."""
    run = RunPaths(path)
    with prepare(run, resume=True):
        choice, log = Choice("expandable_segments:True", "a test"), EventLog(run.agent_events).append
        admitted = preflight.run_preflight(configured(precision, device), run, choice, log).config
        announce(EventLog(run.agent_events), run, admitted, Counters(steps=0, updates=0))
    return admitted


@pytest.mark.parametrize(
    ("precision", "cuda", "hardware", "comes_to"),
    [
        ("float32", False, True, "float32"),
        ("bfloat16", False, True, "bfloat16"),
        ("bfloat16", False, False, "float32"),
        ("bfloat16", True, False, "bfloat16"),
        ("float16", False, False, "float16"),
        ("auto", False, True, "bfloat16"),
        ("auto", False, False, "float32"),
        ("auto", True, True, "float32"),
    ],
)
def test_each_precision_comes_to_one_arithmetic(
    machine: Has, precision: str, cuda: bool, hardware: bool, comes_to: str
) -> None:
    machine(cpu=hardware)
    assert computed(precision, cuda) == comes_to


def test_auto_is_float32_where_bfloat16_is_there_but_slower(tmp_path: Path, machine: Has) -> None:
    machine(cpu=True, faster=False)
    assert computed("auto", cuda=False) == "float32"
    assert computed("bfloat16", cuda=False) == "bfloat16", "asked for by name it is done"
    assert started(tmp_path, "auto").td3.precision == "float32"


@pytest.mark.parametrize(
    ("found", "gains"),
    [
        ({"cpu_name": "Intel Xeon", "avx512_bf16": True, "amx_bf16": True}, True),
        ({"cpu_name": "Intel Xeon", "avx512_bf16": True, "amx_bf16": False}, False),
        ({"cpu_name": "AMD EPYC", "avx512_bf16": True, "amx_bf16": False}, True),
    ],
)
def test_bfloat16_is_faster_by_amx_or_by_another_maker_s_avx512(
    monkeypatch: pytest.MonkeyPatch, found: dict[str, Any], gains: bool
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: found)
    monkeypatch.setattr(arithmetic, "cpu_has_bfloat16", lambda: True)
    assert cpu_gains_by_bfloat16.__wrapped__() is gains
    monkeypatch.setattr(arithmetic, "cpu_has_bfloat16", lambda: False)
    assert not cpu_gains_by_bfloat16.__wrapped__(), "capped below it, or emulated"


def test_bfloat16_is_float32_where_the_hardware_here_lacks_it() -> None:
    half, full = (TD3(configured(precision).td3, CPU, seed=0) for precision in ("bfloat16", "float32"))
    for number in range(4):
        half.update(random_batch(16, number))
        full.update(random_batch(16, number))
    ours, theirs = half.state(), full.state()
    same = all(torch.equal(ours[name], theirs[name]) for name in theirs)
    assert same is not cpu_has_bfloat16()


def test_the_estimate_counts_what_is_computed(machine: Has) -> None:
    def host(precision: str) -> int:
        return estimate.estimate(configured(precision), cuda=False).total("host")

    machine(cpu=True)
    assert host("auto") == host("bfloat16") < host("float32")
    machine(cpu=False)
    assert host("auto") == host("bfloat16") == host("float32")


def test_a_learner_says_once_that_it_computes_otherwise(tmp_path: Path, machine: Has) -> None:
    machine(cpu=False)
    run = RunPaths(tmp_path)
    with prepare(run, resume=False):
        learner = Learner(configured("bfloat16"), run)
        for _ in range(2):
            learner.apply(configured("bfloat16"), ["device"])
        reported = events(run, "precision")
        assert [(event["asked"], event["computed"], event["device"]) for event in reported] == [
            ("bfloat16", "float32", "cpu")
        ]
        assert "td3.precision is bfloat16" in reported[0]["cause"]


def test_a_learner_that_computes_as_asked_says_nothing(tmp_path: Path, machine: Has) -> None:
    machine(cpu=True)
    run = RunPaths(tmp_path)
    with prepare(run, resume=False):
        Learner(configured("bfloat16"), run)
    assert not events(run, "precision")


def test_a_learner_that_leaves_its_gpu_keeps_the_precision(
    tmp_path: Path, machine: Has, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine(cpu=False)
    run = RunPaths(tmp_path)
    with prepare(run, resume=False):
        with monkeypatch.context() as on_gpu:
            on_gpu.setattr(executor, "computed", lambda precision, _: precision)
            learner = Learner(configured("bfloat16"), run)
        assert not events(run, "precision")
        learner.apply(configured("bfloat16"), ["device"])
        assert len(events(run, "precision")) == 1
        learner.save(Counters(steps=5, updates=0), score=None)
    assert settled_precision(run) == "bfloat16"


@pytest.mark.parametrize(("cpu", "gpu"), [(True, False), (False, True)])
def test_auto_is_bfloat16_where_the_device_has_it(tmp_path: Path, machine: Has, cpu: bool, gpu: bool) -> None:
    machine(cpu, gpu)
    for device, has in (("cpu", cpu), ("cuda", gpu)):
        found = started(tmp_path / device, "auto", device)
        assert found.td3.precision == ("bfloat16" if has else "float32")


def test_auto_goes_by_the_cpu_where_the_gpu_is_too_full(tmp_path: Path, machine: Has) -> None:
    machine(cpu=True, gpu=False, device_mib=100)
    assert started(tmp_path, "auto", "auto").td3.precision == "bfloat16"
    assert events(RunPaths(tmp_path), "footprint")[0]["precision"] == "bfloat16"


@pytest.mark.parametrize(("first", "later"), [(True, False), (False, True)])
def test_a_run_keeps_what_auto_came_to_elsewhere(tmp_path: Path, machine: Has, first: bool, later: bool) -> None:
    machine(cpu=first)
    settled = started(tmp_path, "auto").td3.precision
    machine(cpu=later)
    assert started(tmp_path, "auto").td3.precision == settled
    run = RunPaths(tmp_path)
    assert config.load(run.config).td3.precision == settled, "what a resume without --config begins with"
    with prepare(run, resume=True):
        Learner(configured(settled), run).save(Counters(steps=5, updates=0), score=None)
    run.config.unlink()
    assert started(tmp_path, "auto").td3.precision == settled, "by its checkpoint alone"


def test_what_is_asked_for_explicitly_wins_over_what_auto_came_to(tmp_path: Path, machine: Has) -> None:
    machine(cpu=True)
    assert started(tmp_path, "auto").td3.precision == "bfloat16"
    assert started(tmp_path, "float32").td3.precision == "float32"
    assert started(tmp_path, "auto").td3.precision == "float32", "and is what the run goes by from then on"


def test_a_run_that_was_refused_has_settled_nothing(tmp_path: Path, machine: Has) -> None:
    machine(cpu=True, gpu=True, device_mib=100)
    with pytest.raises(AgentError):
        started(tmp_path, "auto", "cuda")
    assert settled_precision(RunPaths(tmp_path)) is None


def test_a_ladder_is_sized_with_auto_on_either_device(machine: Has) -> None:
    machine(cpu=True)
    sets: list[dict[str, Any]] = [{"device": "cpu"}, {"device": "cpu", "td3.precision": "bfloat16"}]
    sets += [{"device": "cuda"}, {"device": "cuda", "td3.precision": "float32"}]
    found = estimate.variants(configured("auto"), sets)
    assert found["config"]["td3.precision"] == "auto"
    on_cpu, bfloat16, on_cuda, float32 = found["variants"]
    assert on_cpu["host_mib"] == bfloat16["host_mib"]
    assert on_cuda["device_mib"] == float32["device_mib"], "unasked, the GPU counts as one that takes most"
