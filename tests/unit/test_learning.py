"""The trainings that ``benchmarks/learning.py`` plans, what it says of the time left, and what it makes of figures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import learning
import pytest
import torch
import yaml

from carla_run.paths import RunPaths
from carla_td3 import config
from carla_td3.cli.evaluation import trained
from carla_td3.config import ConfigError
from carla_td3.td3.replay.frames import FrameStack
from carla_td3.td3.replay.layout import privileged_numbers
from carla_td3.td3.td3 import TD3
from carla_td3.trainer import checkpoint
from carla_td3.trainer.learner import architecture
from tests.conftest import REPOSITORY

TRAFFIC = Path("traffic")
WITHOUT_SHOWN = ("no-demonstrations", "reward-only-empty", "reward-only-light")


def test_every_shipped_variant_is_a_configuration_of_as_many_updates(tmp_path: Path) -> None:
    jobs = learning.planned(learning.VARIANTS, TRAFFIC, {}, tmp_path / "shown", tmp_path)
    for job in jobs:
        resolved = config.load(TRAFFIC, job.settings)
        steps = resolved.training.total_steps - resolved.training.warmup_steps
        assert steps * resolved.training.updates_per_step + resolved.training.final_updates == job.updates
        shown = resolved.replay.demonstrations
        assert shown == (None if job.variant in WITHOUT_SHOWN else str(tmp_path / "shown"))
        assert resolved.seed == job.seed
        # The preset's is a tenth of its imitation: by itself it would hold the pedals where they are.
        assert resolved.td3.imitation or resolved.td3.smoothness <= config.TD3Config().smoothness
    assert len({job.run.path for job in jobs}) == len(jobs)
    assert (
        config.load(TRAFFIC, next(job for job in jobs if job.variant == "twin").settings).td3.network.sees == "vector"
    )


def test_by_default_there_are_the_driver_its_twin_and_four_ablations_first_seeds_first(tmp_path: Path) -> None:
    chosen = {name: learning.VARIANTS[name] for name in learning.BY_DEFAULT}
    jobs = learning.planned(chosen, TRAFFIC, {}, tmp_path / "shown", tmp_path)
    assert [(job.variant, job.seed) for job in jobs[:6]] == [(name, 0) for name in learning.BY_DEFAULT]
    assert [job.variant for job in jobs[12:]] == ["td3", "twin"]
    assert {job.updates for job in jobs} == {15_000}


def test_an_ablation_ends_where_the_reference_is_evaluated(tmp_path: Path) -> None:
    (job, _) = learning.planned({"n-step": learning.VARIANTS["n-step"]}, TRAFFIC, {}, None, tmp_path)
    resolved = config.load(TRAFFIC, job.settings)
    assert resolved.training.total_steps % resolved.evaluation.every_steps == 0
    assert resolved.evaluation.episodes == resolved.evaluation.final_episodes


def test_a_variant_that_cannot_be_is_refused_before_anything_is_trained(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="final_updates takes 10000 of them; ask for more"):
        learning.planned({"td3": learning.VARIANTS["td3"]}, TRAFFIC, {}, None, tmp_path, updates=10_000)
    with pytest.raises(ConfigError, match="there is no picture"):
        learning.planned({"td3": learning.VARIANTS["td3"]}, TRAFFIC, {"td3.network.sees": "vector"}, None, tmp_path)


def test_the_towns_trained_in_are_none_that_is_judged_in() -> None:
    towns = config.load(TRAFFIC).training.towns
    assert towns is not None
    judged = {path.stem for path in (REPOSITORY / "benchmarks" / "nocrash").glob("Lite*.json")}
    assert judged
    assert all(int(stem.split("-")[1].split("_")[0]) < towns.first_seed for stem in judged)
    assert towns.evaluation_map == "Lite:seed=900,size=400"


def test_the_time_left_is_that_of_each_variants_own_rate_and_no_less_than_the_longest() -> None:
    assert learning.time_left_s([("td3", 100)], {}, 1) is None
    assert learning.time_left_s([("td3", 100), ("twin", 100)], {"td3": 10.0, "twin": 50.0}, 1) == pytest.approx(12.0)
    assert learning.time_left_s([("td3", 100), ("new", 0)], {"td3": 10.0}, 2) == pytest.approx(10.0)
    assert learning.time_left_s([("td3", 0)], {"td3": 10.0}, 2) == 0.0


def run(variant: str, seed: int, success: dict[int, float]) -> dict[str, Any]:
    rest = dict.fromkeys(learning.FIGURES, 0.5)
    curve = [{**rest, "steps": steps, "minutes": steps / 8, "success_rate": share} for steps, share in success.items()]
    routes = [route < list(success.values())[-1] * 12 for route in range(12)]
    return {"variant": variant, "seed": seed, "updates": 30, "curve": curve, "routes": routes}


def test_an_ablation_stands_beside_the_reference_after_as_many_steps() -> None:
    runs = [
        run("td3", 0, {16: 0.1, 32: 0.25, 102: 0.75}),
        run("td3", 1, {16: 0.1, 32: 0.75, 102: 0.75}),
        run("n-step", 0, {16: 0.2, 32: 0.5}),
    ]
    del runs[2]["curve"][-1]["mean_speed_mps"]  # as runs have it that were kept before this figure was
    found = learning.summary(runs)
    assert found["n-step"]["reference_then"] == pytest.approx(0.5)
    assert found["td3"]["success_rate"] == pytest.approx(0.75)
    low, high = found["td3"]["success_95"]
    assert low < 0.75 < high
    view = learning.table({"variants": found})
    shown = list(zip(*(column.cells for column in view.columns), strict=True))
    assert ("success", "75%", "50%") in shown
    assert ("td3 then", "75%", "50%") in shown
    assert next(row for row in shown if row[0] == "m/s")[2] == "–"
    json.dumps(found)


def test_a_run_is_finished_once_its_figures_are_there(tmp_path: Path) -> None:
    job = learning.Job("td3", 0, 30, RunPaths(tmp_path), {})
    totals = dict.fromkeys(learning.FIGURES, 0.5)
    arrived = {**totals, "route_completion": 0.95}
    rows: list[dict[str, Any]] = [
        {"time": 60, "event": "started", "steps": 0},
        {"time": 180, "event": "checkpoint"},
        {"time": 240, "event": "evaluated", "step": 16, "totals": {"td3": totals}},
        {"time": 9000, "event": "resumed", "steps": 16},
        {"time": 9060, "event": "evaluated", "step": 16, "totals": {"td3": totals}},
        {"time": 9180, "event": "checkpoint"},
        {"time": 9190, "event": "evaluated", "step": 32, "totals": {"td3": arrived, "pid": totals}},
    ]
    job.run.agent_events.write_text("".join(json.dumps(row) + "\n" for row in rows))
    job.run.evaluation_json.write_text(json.dumps([{"name": "td3", "routes": [{"success": True}, {"success": False}]}]))
    job.run.replay.mkdir()
    assert (job.is_finished, job.done()) == (False, 0)
    learning.keep(job)
    assert (job.is_finished, job.done()) == (True, 30)
    kept = json.loads(job.figures.read_text())
    assert [(point["steps"], point["minutes"]) for point in kept["curve"]] == [(16, 2), (32, 4)]
    assert learning.arrival(kept["curve"]) == 4
    assert learning.arrival(kept["curve"][:1]) is None
    assert kept["routes"] == [True, False]
    assert not job.run.replay.exists()


def test_what_is_kept_of_a_run_drives_as_it_did_and_is_not_trained_again(tmp_path: Path) -> None:
    variants = {"td3": learning.VARIANTS["td3"]}
    (job,) = learning.planned(variants, TRAFFIC, {}, None, tmp_path / "runs", (0,), 18_000, tmp_path / "kept")
    resolved = config.load(TRAFFIC, job.settings)
    stack = FrameStack.of(resolved.environment.camera)
    td3 = TD3(resolved.td3, torch.device("cpu"), 0, stack=stack, privileged=privileged_numbers(resolved.environment))
    job.run.path.mkdir(parents=True)
    job.run.config.write_text(yaml.safe_dump(config.dump(resolved)))
    folder = job.run.path
    checkpoint.save(folder, 12, td3.state(), {}, architecture=architecture(resolved), config_digest="", keep=1)
    job.run.agent_events.write_text(json.dumps({"time": 60, "event": "started", "steps": 0}) + "\n")
    learning.keep(job)
    (again,) = learning.planned(variants, TRAFFIC, {}, None, tmp_path / "elsewhere", (0,), 18_000, tmp_path / "kept")
    assert again.is_finished
    assert again.kept is not None
    ran, kept = (trained(each).policy for each in (folder, again.kept.path))
    assert ran is not None
    assert kept is not None
    assert all(torch.equal(tensor, kept.state_dict()[name]) for name, tensor in ran.state_dict().items())
    sizes = [next(each.rglob("tensors.safetensors")).stat().st_size for each in (folder, again.kept.path)]
    assert sizes[1] < sizes[0] / 4
