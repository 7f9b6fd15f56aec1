"""A callback by which any Stable-Baselines3 training reports to its launcher and does what it is asked.

``with run.report(steps) as report: model.learn(steps, callback=LauncherCallback(report, path, every=10_000))``. Started
without a launcher, it only saves the model.
"""

from __future__ import annotations

from pathlib import Path

from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.utils import safe_mean

from carla_run.run import Report


class LauncherCallback(BaseCallback):
    """Reports each step, saves the model now and then and when asked, and ends the training after a stop."""

    def __init__(self, report: Report, path: Path, every: int) -> None:
        super().__init__()
        self.report, self.path, self.every = report, path, every

    def _on_rollout_start(self) -> None:
        self.report.phase("collecting")

    def _on_rollout_end(self) -> None:
        self.report.phase("updating")

    def _on_step(self) -> bool:
        returns = [episode["r"] for episode in self.model.ep_info_buffer or ()]
        self.report.step(self.num_timesteps, **({"reward": safe_mean(returns)} if returns else {}))
        if self.n_calls % self.every == 0:
            self.save()
        for request in self.report.requests():
            if request.kind in ("checkpoint", "stop"):
                self.save()
                request.done()
        return not self.report.stop_asked

    def save(self) -> None:
        """Write the model so that a kill leaves the old file or the new one."""
        new = self.path.with_name(f"new-{self.path.name}")
        self.model.save(new)
        new.replace(self.path)
        self.report.saved(self.path.name)
