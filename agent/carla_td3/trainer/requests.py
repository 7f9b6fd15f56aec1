"""Requests to a running training: each new one is passed to it, and answered when done.

Owns the choice of what may change in a running process, and the answers' wording. Knows the training only as the few
things that can be asked of it, and no file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from carla_run.listener import Listener, Progress
from carla_run.requests import RequestKind, Result
from carla_td3 import config, layered_yaml
from carla_td3.config import AgentConfig, ConfigError, dump
from carla_td3.trainer.checkpoint import CheckpointError

APPLICABLE = (
    *("collector.at_work", "device", "td3.micro_batch", "training.checkpoint_every_steps"),
    "training.learner_threads",
)
"""Keys that can change in a running process without changing what is learned: they affect placement, splitting or pace.
All other keys are part of the experiment or read only once, and need a new process.
"""


class Training(Protocol):
    """Requests that a training can serve. ``cause`` is for its events."""

    @property
    def progress(self) -> Progress:
        """Its counters now."""

    def checkpoint(self, cause: str) -> None:
        """Write a checkpoint; raises CheckpointError."""

    def drain(self, cause: str) -> None:
        """Write a checkpoint, give the simulator back, and wait; raises CheckpointError and continues."""

    def resume(self, cause: str) -> None:
        """Drive again after a drain."""

    def apply(self, values: Mapping[str, Any], cause: str) -> None:
        """Continue with other values of the configuration; raises ConfigError and keeps the old ones."""

    def stop(self, cause: str) -> None:
        """End soon, as after SIGTERM."""


class Requests(Listener):
    """The requests of one training."""

    def serve_next(self, training: Training) -> None:
        """Do what is newly asked for, if anything; a stop is answered at the end of the run."""
        request = self.take(training.progress)
        if request is None:
            return
        try:
            _ACTIONS[request.kind](training, request.values, f"request {request.id}")
        except (ConfigError, CheckpointError) as error:
            self.answer(request, Result.REFUSED, str(error), training.progress)
        else:
            if request.kind is not RequestKind.STOP:
                self.answer(request, Result.OK, _DONE[request.kind], training.progress)


def patched(settings: AgentConfig, values: Mapping[str, Any]) -> AgentConfig:
    """Return the configuration with changed values.

    Args:
        settings: of the running training.
        values: dotted keys to values.

    Raises:
        ConfigError: a key can't change in a running process, or a value is wrong.
    """
    plain = dump(settings)
    for key, value in values.items():
        layered_yaml.assign(plain, key, value)
    found = config.validate(plain, source="the request")
    for key in values:
        if key not in APPLICABLE:
            raise ConfigError(
                f"`{key}` can't change in a running agent, only {', '.join(APPLICABLE)} can: write it to "
                f"overrides.yaml and start the agent again with --resume."
            )
    return found


_ACTIONS: dict[RequestKind, Callable[[Training, Mapping[str, Any], str], None]] = {
    RequestKind.CHECKPOINT: lambda training, _, cause: training.checkpoint(cause),
    RequestKind.DRAIN: lambda training, _, cause: training.drain(cause),
    RequestKind.RESUME: lambda training, _, cause: training.resume(cause),
    RequestKind.APPLY: lambda training, values, cause: training.apply(values, cause),
    RequestKind.STOP: lambda training, _, cause: training.stop(cause),
}
_DONE = {
    RequestKind.CHECKPOINT: "A checkpoint is written.",
    RequestKind.DRAIN: "A checkpoint is written and the simulator given back; the agent waits for resume.",
    RequestKind.RESUME: "The agent goes on collecting.",
    RequestKind.APPLY: "The agent goes on with these values.",
}
