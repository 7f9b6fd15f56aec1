"""Training without a simulator: imports, bad input, memory verdicts, seeds, lifetimes."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
import typer

from carla_run import signals
from carla_run.exits import Exit
from carla_run.paths import RunPaths
from carla_run.sealed import unsealed
from carla_run.signals import SAME_REQUEST_S, StoppedAtOnce, StopRequests
from carla_td3 import config
from carla_td3.cli import commands, driving, evaluation, options, stability
from carla_td3.cli.stability import Sample, judge
from carla_td3.exchange.weights import WeightsError
from carla_td3.exits import AgentError, exit_code
from carla_td3.run_directory import prepare, save_config
from carla_td3.seeding import Purpose, derived_seed, generator
from carla_td3.td3.replay.replay import Replay, ReplayError
from carla_td3.trainer.checkpoint import CheckpointError
from carla_td3.trainer.learner import Learner, architecture
from carla_td3.trainer.pacing import Counters
from tests.crowd import PATIENCE_S, until
from tests.unit.agent.test_batches import driven
from tests.wire.trainee import running

REPOSITORY = Path(__file__).resolve().parents[3]
SMALL = {"channels": [4, 4, 4], "features": 16, "hidden": [16]}


def agent(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "carla_td3", *arguments]
    variables = {**os.environ, **environment}
    return subprocess.run(
        command, check=False, capture_output=True, text=True, cwd=REPOSITORY, env=variables, timeout=PATIENCE_S
    )


def test_the_process_that_trains_never_imports_the_client() -> None:
    program = (
        "import sys, carla_td3.__main__, carla_td3.trainer.loop\n"
        "found = [name for name in sys.modules if name.split('.')[0] == 'carla' or name.startswith('carla_td3.env')]\n"
        "print(found)"
    )
    seen = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert seen.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--config", "absent.yaml"), "absent.yaml: can't be read"),
        (("--set", "td3.bath_size=64"), "unknown key `td3.bath_size`"),
        (("--set", "td3.batch_size=many"), "`td3.batch_size` is 'many'"),
        (("--set", "td3.batch_size"), "expected KEY=VALUE"),
        (("--set", "seed=[1"), "isn't a YAML value"),
        (("--device", "tpu"), "`device` is 'tpu'"),
        (("--max-timesteps", "10"), "expected less than training.total_steps, which is 10"),
    ],
)
def test_bad_options_are_one_sentence_and_leave_nothing(
    tmp_path: Path, arguments: tuple[str, ...], sentence: str
) -> None:
    ended = agent("train", "--run-dir", str(tmp_path / "run"), *arguments)
    assert ended.returncode == Exit.BAD_CONFIG, ended.stderr
    assert sentence in ended.stderr
    assert len(ended.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "run").exists()


def test_without_a_simulator_training_ends_within_the_patience(tmp_path: Path) -> None:
    """With a precision that the processor only emulates, which is said once."""
    asked = ("--set", "td3.precision=bfloat16", "--set", "simulator.patience_s=1", "--device", "cpu")
    where = {"CARLA_HOST": "127.0.0.1", "CARLA_PORT": "1", "ONEDNN_MAX_CPU_ISA": "AVX2"}
    ended = agent("train", "--run-dir", str(tmp_path), *asked, **where)
    assert ended.returncode == Exit.NO_SIMULATOR, ended.stderr
    assert "No simulator answered at 127.0.0.1:1" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert ended.stdout.count("td3.precision is bfloat16, which this processor only emulates") == 1
    beat = json.loads((tmp_path / "agent.json").read_text())
    assert beat["exit_code"] == Exit.NO_SIMULATOR
    assert json.loads((tmp_path / "agent-events.jsonl").read_text().splitlines()[-1])["event"] == "failed"


ENDING = """
import sys
from carla_td3.__main__ import app
from carla_td3.trainer.learner import Learner

def dry_run(learner):
    raise {error}

Learner.dry_run = dry_run
app(["train", "--device", "cpu", "--run-dir", sys.argv[1]])
"""


@pytest.mark.parametrize(
    ("error", "code", "pool", "gpu_lost"),
    [
        ("RuntimeError('CUDA error: unknown error')", Exit.CRASH, None, True),
        ("RuntimeError('CUDA error: device-side assert triggered')", Exit.CRASH, None, False),
        ("RuntimeError('!handles_.at(i) INTERNAL ASSERT FAILED')", Exit.OUT_OF_MEMORY, "device", False),
        ("OSError(12, 'Cannot allocate memory')", Exit.OUT_OF_MEMORY, "host", False),
    ],
)
def test_an_end_with_an_error_is_written_down_with_what_ran_out_or_was_lost(
    tmp_path: Path, error: str, code: Exit, pool: str | None, gpu_lost: bool
) -> None:
    program = [sys.executable, "-c", ENDING.format(error=error), str(tmp_path / "run")]
    ended = subprocess.run(program, check=False, capture_output=True, text=True, cwd=REPOSITORY, timeout=120)
    assert ended.returncode == code, ended.stderr
    written = json.loads((tmp_path / "run" / "agent-events.jsonl").read_text().splitlines()[-1])
    assert (written["event"], written["exit_code"]) == ("failed", code)
    assert (written["pool"], written["gpu_lost"]) == (pool, gpu_lost)
    assert ("Traceback" in ended.stderr) is (code is Exit.CRASH)


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (("--set", "simulator.patience_s=0.5"), Exit.NO_SIMULATOR, "No simulator answered"),
        (("--checkpoint", "absent"), Exit.BAD_CONFIG, "absent: holds no checkpoint"),
    ],
)
def test_what_cannot_be_evaluated_is_one_sentence(arguments: tuple[str, ...], code: Exit, sentence: str) -> None:
    ended = agent("evaluate", *arguments, CARLA_PORT="1")
    assert ended.returncode == code, ended.stderr
    assert ended.stderr.startswith(sentence)


def test_stopped_while_it_waits_for_a_simulator(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "carla_td3", "train", "--run-dir", str(tmp_path)]
    process = subprocess.Popen(command, cwd=REPOSITORY, env={**os.environ, "CARLA_PORT": "1"})
    try:
        until(lambda: (tmp_path / "agent.json").exists() and "waiting_for" in (tmp_path / "agent.json").read_text())
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == Exit.STOPPED
    finally:
        process.kill()
    assert (tmp_path / "checkpoints" / "latest").exists()


def test_the_run_s_own_configuration_is_the_default_and_the_launcher_has_the_last_word(tmp_path: Path) -> None:
    run = RunPaths(tmp_path)
    save_config(run, config.validate({"td3": {"batch_size": 32}, "seed": 5}, source="test"))
    run.overrides.write_text("td3: {batch_size: 16}\n")
    resolved = options.resolve(None, run, ["td3.batch_size=8", "td3.tau=0.01"], seed=7, device=None)
    assert (resolved.td3.batch_size, resolved.td3.tau, resolved.seed) == (16, 0.01, 7)


def test_the_compose_files_default_holds_until_the_run_has_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, default = RunPaths(tmp_path), tmp_path / "default.yaml"
    default.write_text("seed: 3")
    monkeypatch.setenv("AGENT_DEFAULT_CONFIG", str(default))
    assert options.resolve(None, run, []).seed == options.resolve(None, None, []).seed == 3
    save_config(run, config.validate({"seed": 5}, source="test"))
    assert options.resolve(None, run, []).seed == 5
    assert options.resolve(default, run, []).seed == 3


def test_an_empty_variable_names_no_configuration(tmp_path: Path) -> None:
    """As the Compose files give it where the user sets none."""
    (tmp_path / "default.yaml").write_text("seed: -1")
    default = str(tmp_path / "default.yaml")
    ended = agent("train", "--run-dir", str(tmp_path), AGENT_CONFIG="", AGENT_DEFAULT_CONFIG=default)
    assert ended.returncode == Exit.BAD_CONFIG
    assert f"{default}: `seed` is -1" in ended.stderr


@pytest.mark.parametrize(
    ("settings", "named", "overrides", "blamed"),
    [
        (["td3.batch_size=0"], {}, "", "--set: `td3.batch_size` is 0"),
        ([], {"max_timesteps": 0}, "", "--max-timesteps: `training.total_steps` is 0"),
        (["seed=1"], {"seed": -1}, "", "--seed: `seed` is -1"),
        (["seed=-1"], {}, "seed: -2", "overrides.yaml: `seed` is -2"),
        (["seed=1"], {}, "", "config.yaml: `td3.batch_size` is -1"),
        (["td3={tau: 0.01, batch_size: 0}"], {}, "", "--set: `td3.batch_size` is 0"),
        (["td3={tau: 0.01}"], {}, "", "config.yaml: `td3.batch_size` is -1"),
        (["tdd.batch_size=64"], {}, "", "--set: unknown key `tdd`"),
        (["td3.network.channels=[8, many, 8]"], {}, "", "--set: `td3.network.channels.1` is 'many'"),
    ],
)
def test_a_wrong_value_is_blamed_on_what_set_it(
    tmp_path: Path, settings: list[str], named: dict[str, Any], overrides: str, blamed: str
) -> None:
    run = RunPaths(tmp_path)
    run.config.write_text("td3: {batch_size: -1}" if blamed.startswith("config") else "")
    run.overrides.write_text(overrides)
    with pytest.raises(config.ConfigError) as refused:
        options.resolve(None, run, settings, **named)
    assert blamed in str(refused.value)
    assert (str(tmp_path) in str(refused.value)) == (".yaml" in blamed)


@pytest.fixture
def run(tmp_path: Path) -> Iterator[RunPaths]:
    """A run's folder, which this process trains in."""
    run = RunPaths(tmp_path)
    with prepare(run, resume=False):
        yield run


TINY = config.validate({"td3": {"network": SMALL}}, source="test")


def test_a_checkpoint_of_another_architecture_is_refused(tmp_path: Path) -> None:
    run = RunPaths(tmp_path)
    with prepare(run, resume=False):
        Learner(TINY, run).save(Counters(steps=5, updates=0), score=None)
    save_config(run, TINY)
    ended = agent("train", "--run-dir", str(tmp_path), "--resume", "--set", "td3.network.features=32")
    assert ended.returncode == Exit.BAD_CONFIG
    assert "td3.network.features = 16, the configuration says 32" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_learner_goes_on_from_its_checkpoint(run: RunPaths) -> None:
    Learner(TINY, run).save(Counters(steps=5, updates=0, evaluated_at=3, finally_evaluated=0), score=None)
    assert Learner(TINY, run).counters() == Counters(
        steps=0, updates=0, evaluated_at=3, saved_updates=0, saved_steps=5, finally_evaluated=0
    )  # steps are counted on disk, and there is no replay
    assert architecture(TINY)["td3.network.features"] == 16


def test_a_checkpoint_by_its_own_name_is_of_its_run(run: RunPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    trained_for = config.validate(
        {"td3": {"network": SMALL}, "environment": {"camera": {"fov_deg": 60}}}, source="test"
    )
    Learner(trained_for, run).save(Counters(steps=5, updates=0), score=None)
    save_config(run, trained_for)
    monkeypatch.chdir(run.checkpoints)
    assert evaluation.trained(Path("step-000000005")).config == evaluation.trained(run.path).config
    alone = run.path / "else" / "where" / "step-000000005"
    shutil.copytree(run.checkpoints / "step-000000005", alone)
    missing = r"config.yaml is missing, which says what .* was trained for: put it back"
    with pytest.raises(config.ConfigError, match=f"{missing}, or give --config"):
        evaluation.trained(alone)
    with pytest.raises(config.ConfigError, match=rf"{missing}\.$"):  # it has no --config
        driving.export(checkpoint=alone, out=Path("x.safetensors"), trained_on="y", debug=True)
    assert evaluation.trained(alone, run.config).config == trained_for
    run.overrides.write_text("seed: 7")
    assert evaluation.trained(run.path).config.seed == 7
    assert evaluation.trained(run.path, settings=["seed=8"]).config.seed == 8


def test_a_folder_without_a_checkpoint_is_none_of_a_run(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="holds no checkpoint: name a run that has one"):
        evaluation.trained(tmp_path)


def test_stability_never_trains_in_an_earlier_run(run: RunPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    Learner(TINY, run).save(Counters(steps=5, updates=0), score=None)
    with pytest.raises(AgentError, match="already holds a run: choose another --run-dir"):
        stability.measure(400, run.path, 8.0, None, [])
    measure = Mock(return_value=stability.Verdict((), 0, 8.0))
    monkeypatch.setattr(stability, "measure", measure)
    with pytest.raises(typer.Exit):
        commands.stability(device="cpu", debug=True)
    _, folder, *_, settings = measure.call_args.args
    assert folder.name.startswith("stability-")
    assert settings == ["device=cpu"]


def test_stability_names_the_command_whose_messages_it_shows(tmp_path: Path) -> None:
    """They may name an option that stability doesn't have."""
    with pytest.raises(AgentError, match=rf"^`carla-td3 train --run-dir {tmp_path}` ended with 65; ") as refused:
        stability.measure(400, tmp_path, 8.0, None, ["td3.batch_size=0"])
    assert refused.value.code == Exit.BAD_CONFIG


@pytest.mark.parametrize(
    ("outputs", "sentence"),
    [
        (evaluation.Outputs(json=Path()), "is a folder, expected the name of a file"),
        (evaluation.Outputs(csv=Path()), "is a folder, expected the name of a file"),
        (evaluation.Outputs(video=Path("film")), "--video film: expected a name that ends with .mp4"),
        (evaluation.Outputs(video=Path("film.webm")), "expected a name that ends with .mp4"),
        (evaluation.Outputs(json=Path("a"), csv=Path("a")), "a is named for two outputs: give each its own file"),
    ],
    ids=str,
)
def test_an_output_that_cant_be_is_refused_before_the_first_drive(outputs: evaluation.Outputs, sentence: str) -> None:
    with pytest.raises(AgentError, match=sentence):
        outputs.check()


def test_a_diverged_policy_is_published_to_no_collector(run: RunPaths) -> None:
    learner = Learner(TINY, run)
    learner.publish()
    before = (run.exchange / "weights.bin").read_bytes()
    with torch.no_grad():
        next(iter(learner._algorithm.policy_state().values())).fill_(float("nan"))
    with pytest.raises(CheckpointError, match="Training has diverged: after update 0"):
        learner.publish()
    assert (run.exchange / "weights.bin").read_bytes() == before


@pytest.mark.parametrize("kept", [True, False], ids=["says where they began", "of before that was kept"])
def test_final_updates_are_over_once_the_run_is_made_longer(run: RunPaths, kept: bool) -> None:
    def settings(steps: int) -> config.AgentConfig:
        training = {"total_steps": steps, "warmup_steps": 20, "final_updates": 3}
        td3 = {"network": SMALL, "batch_size": 8}
        return config.validate({"td3": td3, "replay": {"capacity": 1000}, "training": training}, source="test")

    driven(Replay.create(run.replay, 1000), 22)
    first = Learner(settings(22), run)
    for _ in range(2 + 3):
        first.update()
    ended = replace(first.counters(), evaluated_at=22, final_from=2, finally_evaluated=5)
    first.save(ended, score=None)
    if not kept:
        drop(run.checkpoints / "step-000000022", "final_from")
    again, longer = Learner(settings(22), run), Learner(settings(30), run)
    assert again.counters() == replace(ended, saved_updates=5, saved_steps=22)
    assert (longer.counters().final_from, longer.pacing.updates_due(23)) == (-1, 5 + 1)


def drop(checkpoint: Path, value: str) -> None:
    """Leave a value out, as earlier versions did."""
    values, manifest = (json.loads((checkpoint / f"{name}.json").read_text()) for name in ("values", "manifest"))
    del values[value]
    (checkpoint / "values.json").write_text(json.dumps(values))
    manifest["sha256"]["values.json"] = hashlib.sha256((checkpoint / "values.json").read_bytes()).hexdigest()
    (checkpoint / "manifest.json").write_text(json.dumps(unsealed(manifest)))


def test_a_damaged_checkpoint_is_told_and_the_one_before_is_used(run: RunPaths) -> None:
    for steps in (5, 9):
        Learner(TINY, run).save(Counters(steps=steps, updates=0, evaluated_at=steps), score=None)
    (run.checkpoints / "step-000000009" / "tensors.safetensors").write_bytes(b"torn")
    assert Learner(TINY, run).counters().evaluated_at == 5
    event = json.loads(run.agent_events.read_text().splitlines()[-1])
    assert (event["event"], event["used"]) == ("checkpoint_skipped", "step-000000005")
    assert "step-000000009/tensors.safetensors: is damaged" in event["cause"]


def test_draws_depend_on_seed_purpose_and_counter_alone() -> None:
    first = generator(1, Purpose.SAMPLING, 7).random(4)
    assert np.array_equal(first, generator(1, Purpose.SAMPLING, 7).random(4))
    for other in ((2, Purpose.SAMPLING, 7), (1, Purpose.WARM_UP, 7), (1, Purpose.SAMPLING, 8)):
        assert not np.array_equal(first, generator(*other).random(4))
    assert 0 <= derived_seed(0, Purpose.EPISODE, 10**9) < 2**32


def test_the_second_signal_ends_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(signals, "time", SimpleNamespace(monotonic=lambda: now[0]))
    stop = StopRequests(raise_second=True)
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        stop.install()
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)  # to the group, too: the same request
        assert (stop.signal, stop.count) == (signal.SIGTERM, 1)
        now[0] += SAME_REQUEST_S + 0.1
        with pytest.raises(StoppedAtOnce):
            signal.raise_signal(signal.SIGINT)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (AgentError("x", Exit.CRASH), Exit.CRASH),
        (config.ConfigError("x"), Exit.BAD_CONFIG),
        (CheckpointError("x"), Exit.BAD_CONFIG),
        (ReplayError("x"), Exit.BAD_CONFIG),
        (WeightsError("x"), Exit.BAD_CONFIG),
        (MemoryError(), Exit.OUT_OF_MEMORY),
        (OSError(errno.ENOSPC, "No space left on device"), Exit.BAD_CONFIG),
        (OSError(errno.EIO, "Input/output error"), Exit.BAD_CONFIG),
        (OSError(errno.ECONNRESET, "Connection reset by peer"), None),
        (KeyError("x"), None),
    ],
)
def test_every_error_for_people_has_its_exit_code(error: Exception, code: Exit | None) -> None:
    assert exit_code(error) is code


@pytest.mark.parametrize(
    ("growth_mib", "noise_mib", "flat"), [(0, 0, True), (0, 2, True), (10, 0, True), (20, 0, False), (200, 2, False)]
)
def test_memory_is_flat_within_the_tolerance(growth_mib: float, noise_mib: float, flat: bool) -> None:
    samples = [Sample(500 + 10 * i, 300.0, 200 + growth_mib * i / 50 + noise_mib * (i % 2)) for i in range(51)]
    assert judge(samples, tolerance_mib=16).flat is flat


def test_too_few_samples_are_no_verdict() -> None:
    with pytest.raises(AgentError, match="too few"):
        judge([Sample(1, 1.0, 1.0)] * 10, tolerance_mib=16)


def test_a_child_dies_with_its_parent(tmp_path: Path) -> None:
    child = (
        "import os, sys, time, pathlib; from carla_td3.collector.parent import die_with_parent;"
        "die_with_parent(int(sys.argv[1])); pathlib.Path(sys.argv[2]).write_text(str(os.getpid())); time.sleep(60)"
    )
    parent = (
        "import os, subprocess, sys, time;"
        "subprocess.Popen([sys.executable, '-c', sys.argv[1], str(os.getpid()), sys.argv[2]]); time.sleep(60)"
    )
    reported = tmp_path / "pid"
    process = subprocess.Popen([sys.executable, "-c", parent, child, str(reported)])
    until(lambda: reported.exists() and reported.read_text())
    pid = int(reported.read_text())
    process.kill()
    process.wait()
    until(lambda: not running(pid))
