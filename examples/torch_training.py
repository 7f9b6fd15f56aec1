"""A PyTorch training without a simulator that reports to a launcher: a network learns the sine from random points.

``carla-launcher run --simulator none --program examples/training.yaml -- python examples/torch_training.py``. With
``--resume`` it goes on from its checkpoint, if it has one.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch
from torch import nn

from carla_run import run


class Training:
    """A network, its optimizer, and how far they are."""

    def __init__(self, checkpoint: Path, device: str) -> None:
        self.checkpoint, self.device, self.step = checkpoint, device, 0
        self.network = nn.Sequential(nn.Linear(1, 64), nn.Tanh(), nn.Linear(64, 1)).to(device)
        self.optimizer = torch.optim.Adam(self.network.parameters(), 1e-3)

    def update(self, batch: int) -> float:
        """Make one update; return the loss."""
        x = 6.0 * torch.rand(batch, 1, device=self.device) - 3.0
        loss = nn.functional.mse_loss(self.network(x), x.sin())
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        self.step += 1
        return float(loss.detach())

    def save(self, report: run.Report) -> None:
        """Write the checkpoint so that a kill leaves the old file or the new one."""
        self.checkpoint.parent.mkdir(parents=True, exist_ok=True)
        new = self.checkpoint.with_suffix(".new")
        state = {"network": self.network.state_dict(), "optimizer": self.optimizer.state_dict(), "step": self.step}
        torch.save(state, new)
        new.replace(self.checkpoint)
        report.saved(self.checkpoint.name)

    def resume(self) -> None:
        """Go on from the checkpoint, if there is one."""
        if self.checkpoint.exists():
            saved = torch.load(self.checkpoint, weights_only=True)
            self.network.load_state_dict(saved["network"])
            self.optimizer.load_state_dict(saved["optimizer"])
            self.step = saved["step"]


def main() -> int:
    """Train; return the exit code."""
    asked = arguments()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    training = Training(asked.checkpoint, device)
    if asked.resume:
        training.resume()
    with run.report(asked.steps, sigterm=True) as report:
        report.batch = asked.batch
        while training.step < asked.steps and not report.stop_asked:
            loss = training.update(asked.batch)
            report.step(training.step, **{"train/loss": loss})
            if training.step % asked.every == 0:
                training.save(report)
            for request in report.requests():
                if request.kind == "checkpoint":
                    training.save(report)
                    request.done()
                elif request.kind == "apply" and set(request.values) == {"batch"}:
                    asked.batch = report.batch = int(request.values["batch"])
                    request.done()
        training.save(report)
    print(f"{training.step} steps; the checkpoint is {training.checkpoint}.")
    return report.exit_code


def arguments() -> argparse.Namespace:
    """Return the command line's."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--steps", type=int, default=100_000, help="Updates to make in all.")
    parser.add_argument("--every", type=int, default=1_000, help="Updates between two checkpoints.")
    parser.add_argument("--batch", type=int, default=256, help="Points of an update.")
    parser.add_argument("--checkpoint", type=Path, default=Path("runs/sine.pt"), help="File of the checkpoint.")
    parser.add_argument("--resume", action="store_true", help="Go on from the checkpoint, if there is one.")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
