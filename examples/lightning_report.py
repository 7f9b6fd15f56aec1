"""A callback by which a Lightning training reports to its launcher and does what it is asked.

``with run.report() as report: Trainer(callbacks=[LauncherCallback(report, path)]).fit(model, ckpt_path=…)``. Started
without a launcher, it does nothing. For a training in one process: with several, each must save at the same step.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, Trainer

from carla_run.run import Report


class LauncherCallback(Callback):  # type: ignore[misc]
    """Reports each batch, saves a checkpoint when asked, and ends the training after a stop."""

    def __init__(self, report: Report, path: Path) -> None:
        self.report, self.path = report, path

    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        """Report, and do what is asked."""
        logged = trainer.logged_metrics if trainer.global_step % trainer.log_every_n_steps == 0 else {}
        self.report.step(trainer.global_step, **logged)
        for request in self.report.requests():
            if request.kind in ("checkpoint", "stop"):
                trainer.save_checkpoint(self.path)
                request.done(checkpoint=self.path.name)
        trainer.should_stop = trainer.should_stop or self.report.stop_asked

    def on_validation_start(self, *_: Any) -> None:
        """Say so."""
        self.report.phase("evaluating")

    def on_validation_end(self, *_: Any) -> None:
        """Say what follows."""
        self.report.phase("updating")
