"""An earlier run's watermark applies only to a configuration with the same networks, rows and batches."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from carla_launcher.observe import pools
from carla_launcher.observe.pools import PoolKind, estimated
from carla_launcher.resolve import watermarks
from carla_launcher.resolve.footprint import program
from carla_run.heartbeat import MemoryFigures
from carla_run.paths import RunPaths
from carla_td3 import config
from carla_td3.memory import estimate
from tests.unit.beats import BEAT


def given(**settings: Any) -> config.AgentConfig:
    return config.validate({"device": "cpu", "environment": {"privileged": True}, **settings}, "test")


def measured(runs: Path, settings: config.AgentConfig) -> None:
    run = RunPaths(runs / "earlier")
    run.path.mkdir(parents=True)
    run.config.write_text(yaml.safe_dump(config.dump(settings)))
    memory = MemoryFigures(peak_by_phase_mib={"updating": {"host": 500.0}})
    run.heartbeat.write_text(replace(BEAT, device="cpu", memory=memory).json())


def marks(runs: Path, settings: config.AgentConfig) -> list[watermarks.Mark]:
    published = estimate.variants(settings, [])
    return watermarks.agent_marks(runs, published["config"], published["pinned"], program())


@pytest.mark.parametrize(
    "other",
    [
        {"td3": {"n_step": 3}},
        {"td3": {"auxiliary": 0.1}},
        {"td3": {"critic_sees": "privileged"}},
        {"td3": {"network": {"sees": "vector"}}},
        {"td3": {"network": {"channels": "whole"}}},
        {"replay": {"demonstrations": "runs/shown"}},
        {"environment": {"privileged": False}},
        {"environment": {"privileged": True, "camera": {"channels": "rgb"}}},
        {"environment": {"privileged": True, "camera": {"narrow": {}}}},
        {"environment": {"privileged": True, "camera": {"stack": {"frames": 2}}}},
    ],
    ids=str,
)
def test_a_run_that_learned_otherwise_is_passed_over(tmp_path: Path, other: dict[str, Any]) -> None:
    measured(tmp_path, given())
    assert len(marks(tmp_path, given())) == 1
    assert not marks(tmp_path, given(**other))


def test_a_run_whose_agent_leaked_says_nothing_of_it(tmp_path: Path) -> None:
    measured(tmp_path, given())
    state = tmp_path / "earlier" / "launcher.json"
    state.write_text(json.dumps({"agent_context_mib": 300.0}))
    assert [mark.run for mark in marks(tmp_path, given())] == ["earlier"]
    assert watermarks.agent_context(tmp_path) == pools.measured(300.0)
    state.write_text(json.dumps({"agent_context_mib": 300.0, "agent_figures_doubted": "the agent leaks"}))
    assert not marks(tmp_path, given())
    assert watermarks.agent_context(tmp_path) is None


FIRST = {"Low": {PoolKind.VRAM: estimated(4813)}, "Epic": {PoolKind.VRAM: estimated(5530)}}


@pytest.mark.parametrize(
    ("low", "epic", "planned", "said"),
    [
        (
            5713,
            None,
            (4813, 5530),
            "run night measured 5713 MiB of vram for CARLA at Low, more than at Epic (5530 MiB)",
        ),
        (
            5200,
            5100,
            (4813, 5100),
            "run night measured 5200 MiB of vram for CARLA at Low, more than at Epic (5100 MiB)",
        ),
        (None, 4300, (4300, 4300), ""),
        (4000, 4300, (4000, 4300), ""),
    ],
)
def test_a_low_above_epic_is_said_and_not_used(
    low: float | None, epic: float | None, planned: tuple[float, float], said: str
) -> None:
    found = {quality: dict(by_kind) for quality, by_kind in FIRST.items()}
    for quality, mib in (("Low", low), ("Epic", epic)):
        if mib is not None:
            found[quality][PoolKind.VRAM] = replace(pools.measured(mib), run="night")
    peaks, notes = watermarks.plausible(found, FIRST)
    assert tuple(peaks[quality][PoolKind.VRAM].mib for quality in ("Low", "Epic")) == planned
    assert len(notes) == bool(said)
    assert all(note.startswith(said) for note in notes)


def test_one_with_another_batch_ring_or_traffic_is_corrected_for(tmp_path: Path) -> None:
    measured(tmp_path, given())
    environment = {"privileged": True, "traffic": {"walkers": 40}}
    other = given(td3={"batch_size": 64}, replay={"capacity": 5000}, environment=environment)
    assert len(marks(tmp_path, other)) == 1
