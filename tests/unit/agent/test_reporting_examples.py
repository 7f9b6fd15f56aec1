"""What of ``examples/`` runs without a simulator: callbacks, PyTorch's training, the program that reports nothing."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import pytest
import torch

from carla_run import heartbeat_writer, run
from carla_run.heartbeat import Phase, read_heartbeat
from carla_run.paths import RunPaths
from carla_run.readers import read_lines
from carla_run.requests import send
from tests.conftest import REPOSITORY

ASKED = {10: "checkpoint", 20: "stop"}
"""By step."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunPaths:
    monkeypatch.setenv(run.FOLDER, str(tmp_path))
    monkeypatch.setattr(run, "POLL_S", 0.0)
    monkeypatch.setattr(heartbeat_writer, "INTERVAL_S", 0.05)
    return RunPaths(tmp_path)


def ask(folder: RunPaths, step: int) -> None:
    if step in ASKED:
        send(folder, ASKED[step], {})


def assert_obeyed(folder: RunPaths, checkpoint: str) -> None:
    beat, events = read_heartbeat(folder.heartbeat), read_lines(folder.agent_events)
    assert beat is not None
    assert (beat.phase, beat.step, beat.exit_code) == (Phase.STOPPED, 20, 75)
    answers = [(row["kind"], row["result"]) for row in events if row["event"] == "request_answered"]
    assert answers == [("checkpoint", "ok"), ("stop", "ok")]
    assert [(row["cause"], row["steps"]) for row in events if row["event"] == "checkpoint"] == [
        *((checkpoint, 10), (checkpoint, 20))
    ]


def test_a_pytorch_training_resumes_where_it_was(folder: RunPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch_training

    saved = folder.path / "sine.pt"
    for steps, words in ((30, ()), (50, ("--resume",))):
        options = (
            *("--checkpoint", str(saved)),
            *("--every", "10"),
            *("--batch", "4"),
            *("--steps", str(steps)),
            *words,
        )
        monkeypatch.setattr(sys, "argv", ["torch_training.py", *options])
        assert torch_training.main() == 0
    assert torch.load(saved, weights_only=True)["optimizer"]["state"][0]["step"] == 50
    events = read_lines(folder.agent_events)
    assert [row["steps"] for row in events if row["event"] == "checkpoint"] == [10, 20, 30, 30, 40, 50, 50]


@pytest.mark.parametrize("algorithm", ["TD3", "PPO"])
def test_stable_baselines3(folder: RunPaths, algorithm: str) -> None:
    stable_baselines3 = pytest.importorskip("stable_baselines3")
    from sb3_report import LauncherCallback
    from stable_baselines3.common.callbacks import BaseCallback

    class Asking(BaseCallback):
        def _on_step(self) -> bool:
            ask(folder, self.num_timesteps)
            return True

    kind, saved = getattr(stable_baselines3, algorithm), folder.path / "model.zip"
    settings: dict[str, Any] = {"TD3": {"learning_starts": 5, "buffer_size": 100}, "PPO": {"n_steps": 8}}[algorithm]
    env = gymnasium.make("Pendulum-v1", max_episode_steps=6)
    with run.report(1000) as report:
        model = kind("MlpPolicy", env, batch_size=4, policy_kwargs={"net_arch": [4]}, device="cpu", **settings)
        model.learn(1000, callback=[Asking(), LauncherCallback(report, saved, every=1000)])
    assert_obeyed(folder, "model.zip")
    assert kind.load(saved).num_timesteps == 20
    assert read_lines(folder.metrics)[-1]["rollout/ep_rew_mean"] < 0


def test_lightning(folder: RunPaths) -> None:
    lightning = pytest.importorskip("lightning.pytorch")
    from lightning_report import LauncherCallback

    class Asking(lightning.Callback):  # type: ignore[misc,name-defined]
        def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
            ask(folder, trainer.global_step)

    class Model(lightning.LightningModule):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(2, 1)

        def training_step(self, batch: list[torch.Tensor], _index: int) -> Any:
            loss = self.layer(batch[0]).pow(2).mean()
            self.log("loss", loss)
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), 0.1)

    saved = folder.path / "model.ckpt"
    silent = {"logger": False, "enable_progress_bar": False, "enable_checkpointing": False, "log_every_n_steps": 1}
    with run.report(1000) as report:
        callbacks = [Asking(), LauncherCallback(report, saved)]
        trainer = lightning.Trainer(accelerator="cpu", max_steps=1000, callbacks=callbacks, **silent)
        trainer.fit(Model(), torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(100, 2))))
    assert_obeyed(folder, "model.ckpt")
    assert torch.load(saved, weights_only=False)["global_step"] == 20
    assert read_lines(folder.metrics)[-1]["step"] == 20


def test_a_cut_write_leaves_the_earlier_checkpoint(tmp_path: Path) -> None:
    """A file's limit of 0 bytes stands for a SIGKILL in the middle of the write."""
    world = "get_world=lambda: SimpleNamespace(get_settings=SimpleNamespace, apply_settings=print, tick=int)"
    client = f"SimpleNamespace(set_timeout=print, {world})"
    (tmp_path / "carla.py").write_text(f"from types import SimpleNamespace\nClient = lambda *_: {client}\n")
    saved = tmp_path / "checkpoint.json"
    saved.write_text('{"step": 40}')
    program = REPOSITORY / "examples" / "programs" / "any_training.py"
    ended = subprocess.run(
        [sys.executable, str(program), "--resume", "--batch-size", "1", "--steps", "50"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.stderr.endswith("OSError: [Errno 27] File too large\n"), ended
    assert "step 41 of 50" in ended.stdout
    assert saved.read_text() == '{"step": 40}'
