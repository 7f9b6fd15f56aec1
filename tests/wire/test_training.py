"""Whole trainings against a real carla-lite: to the end, twice the same, and what a person gets to read."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import imageio_ffmpeg
import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # type: ignore[import-untyped]

from carla_run.exits import Exit
from carla_run.paths import RunPaths
from carla_td3.evaluation import overlay
from tests.conftest import Server, StartServer
from tests.crowd import PATIENCE_S
from tests.wire.conftest import NewRun
from tests.wire.trainee import Run, program


@pytest.fixture(scope="module")
def trained(module_server: Server, tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, str]:
    """A run that is finished, and what it said; tests only read it."""
    run = Run(tmp_path_factory.mktemp("trained") / "whole", module_server.port, forked=True)
    said = run.train(
        *("--eval-freq", "60", "--num-eval-episodes", "1", "--set", "evaluation.baselines=true"),
        *("--set", "evaluation.video=true", "--set", "environment.time_limit.constant_s=3"),
    )
    return run, said


def test_a_run_trains_evaluates_and_leaves_its_directory(trained: tuple[Run, str]) -> None:
    run, said = trained
    for name in ("td3", "td3-greyed", "stop", "random", "pid", "120 steps, 100 updates"):
        assert name in said
    for path in ("config.yaml", "evaluation.csv", "evaluation.json", "metrics.jsonl", "checkpoints/latest"):
        assert (run.path / path).stat().st_size > 0, path
    assert list((run.path / "tensorboard").iterdir())
    assert (run.path / "videos" / "td3.mp4").stat().st_size > 10_000
    board = EventAccumulator(str(run.path / "tensorboard"))
    board.Reload()
    for name, file in (("eval/contact_sheet", "evaluation.png"), ("eval/observation", "observation.png")):
        shown = board.Images(name)
        assert [image.step for image in shown] == [60, 120]
        assert shown[-1].encoded_image_string == (run.path / "videos" / file).read_bytes()
    beat = run.beat
    assert (beat["phase"], beat["step"], beat["updates"], beat["exit_code"]) == ("finished", 120, 100, 0)
    assert beat["ticks"] > 120
    assert [event["step"] for event in run.events("evaluated")] == [60, 120]
    rows = [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]
    names = {name for row in rows for name in row}
    assert names >= {
        *("rollout/ep_rew_mean", "rollout/ep_len_mean", "rollout/success_rate", "reward/progress"),
        *("train/actor_loss", "train/critic_loss", "train/q_buffer", "train/q_policy", "train/n_updates"),
        *("time/fps", "time/total_timesteps", "time/episodes", "time/time_elapsed"),
        *("eval/mean_reward", "eval/mean_ep_length", "eval/success_rate"),
    }
    assert "is finished" in run.train("--resume")


@contextlib.contextmanager
def looking_at(run: RunPaths) -> Iterator[None]:
    """Keep the live view's ``wanted`` fresh all the while."""
    over = threading.Event()

    def look() -> None:
        run.live.mkdir(exist_ok=True)
        while not over.wait(0.5):
            run.live_wanted.touch()

    looks = threading.Thread(target=look)
    looks.start()
    try:
        yield
    finally:
        over.set()
        looks.join()


def test_lockstep_runs_of_one_seed_are_equal_bit_for_bit_though_one_is_watched(
    start_server: StartServer, new_run: NewRun
) -> None:
    first, second = runs = [new_run(name, start_server(seed=3)) for name in ("first", "second")]
    with looking_at(RunPaths(second.path)):
        for run in runs:
            run.train(
                *("--seed", "3", "--max-timesteps", "60", "--set", "training.lockstep=true"),
                *("--set", "environment.traffic.vehicles=3", "--set", "environment.time_limit.constant_s=2.5"),
            )
    assert [(run.path / "live" / "state.json").exists() for run in runs] == [False, True]
    assert first.steps == second.steps == 60
    for name in ("frames.u8", "rows.bin"):
        assert (first.path / "replay" / name).read_bytes() == (second.path / "replay" / name).read_bytes(), name
    assert first.tensors.keys() == second.tensors.keys()
    assert all((first.tensors[name] == second.tensors[name]).all() for name in first.tensors)


def test_another_seed_is_another_run(module_server: Server, forked_run: NewRun) -> None:
    runs = [forked_run(name, module_server) for name in ("first", "second")]
    for seed, run in enumerate(runs):
        run.train("--seed", str(seed), "--max-timesteps", "30", "--set", "training.lockstep=true")
    first, second = ((run.path / "replay" / "rows.bin").read_bytes() for run in runs)
    assert first != second


def test_a_missing_map_is_one_sentence_naming_those_there_are(module_server: Server, forked_run: NewRun) -> None:
    run = forked_run("run", module_server)
    process = run.start("--map", "Nowhere07")
    out, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == Exit.BAD_CONFIG, out
    assert "'Nowhere07'" in out
    assert "Lite01" in out
    assert "Traceback" not in out


def test_evaluate_prints_and_writes_the_figures(trained: tuple[Run, str], tmp_path: Path) -> None:
    run, _ = trained
    ended = program(
        run.port,
        *("scripts/evaluate_td3.py", "--checkpoint", str(run.path), "--routes", "2", "--drivers", "td3,pid"),
        *("--csv", str(tmp_path / "e.csv"), "--json", str(tmp_path / "e.json"), "--video", str(tmp_path / "e.mp4")),
    )
    assert ended.returncode == 0, ended.stderr
    assert "driving score" in ended.stdout
    assert len((tmp_path / "e.csv").read_text().splitlines()) == 1 + 2 * 2
    assert [found["name"] for found in json.loads((tmp_path / "e.json").read_text())] == ["td3", "pid"]
    assert (tmp_path / "e.mp4").stat().st_size > 10_000


def test_the_visual_test_films_a_hundred_steps(module_server: Server, tmp_path: Path) -> None:
    words = ("scripts/test_visual_navigation.py", "--video", str(tmp_path / "v.mp4"), "--show", "nothing")
    ended = program(module_server.port, *words)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith("pid: 10.0 s")
    assert (tmp_path / "v.mp4").stat().st_size > 10_000


def test_the_visual_test_explains_what_a_checkpoint_goes_by(trained: tuple[Run, str], tmp_path: Path) -> None:
    run, _ = trained
    words = ("--checkpoint", str(run.path), "--explain", "--steps", "10", "--show", "nothing")
    ended = program(run.port, "scripts/test_visual_navigation.py", "--video", str(tmp_path / "v.mp4"), *words)
    assert ended.returncode == 0, ended.stderr
    reader = imageio_ffmpeg.read_frames(str(tmp_path / "v.mp4"))
    assert next(reader)["size"] == overlay.size_of(explained=True)
    width, height = overlay.size_of(explained=True)
    first = np.frombuffer(next(reader), np.uint8).reshape(height, width, 3)
    heats = first[:, overlay.FRONT : overlay.FRONT + overlay.HEAT].astype(int)
    assert (heats.max(axis=2) - heats.min(axis=2)).max() > 100  # something is lit in colour


@pytest.mark.parametrize(
    ("environment", "tolerance_mib", "word", "code"),
    [({}, 100, "flat", 0), ({"PYTHONPATH": str(Path(__file__).parent / "leak")}, 8, "NOT flat", 1)],
    ids=["as it is", "with a leak"],
)
def test_stability_tells_a_run_that_leaks_from_one_that_does_not(
    module_server: Server, new_run: NewRun, environment: dict[str, str], tolerance_mib: int, word: str, code: int
) -> None:
    run = new_run("run", module_server)
    ended = program(
        run.port,
        *("-m", "carla_td3", "stability", "--steps", "400", "--tolerance-mib", str(tolerance_mib)),
        *("--run-dir", str(run.path / "run"), "--config", str(run.config)),
        **environment,
    )
    assert f"Memory is {word} (" in ended.stdout, ended.stderr
    assert ended.returncode == code
