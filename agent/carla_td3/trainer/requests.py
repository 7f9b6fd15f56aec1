"""Requests to a running training: each new one is handed to it, and answered when it is done.

Owns the choice of what may change in a running process, and the answers' wording. Knows the training only as the few
things that can be asked of it, and no file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from carla_run.listener import Listener, Standing
from carla_run.requests import RequestKind, Result
from carla_td3 import config, layered_yaml
from carla_td3.config import AgentConfig, ConfigError, dump
from carla_td3.trainer.checkpoint import CheckpointError

APPLICABLE = (
    *("collector.at_work", "device", "td3.micro_batch", "training.checkpoint_every_steps"),
    "training.learner_threads",
)
"""Keys whose change in mid-run is exact: the tensors move, gradients add up to the batch's, and the rest is pace.
Anything else is part of what is learned or built once, and needs a new process."""


class Training(Protocol):
    """What can be asked of a training. ``cause`` is for its events."""

    @property
    def standing(self) -> Standing:
        """Where it stands now."""

    def checkpoint(self, cause: str) -> None:
        """Write a checkpoint; raises CheckpointError."""

    def drain(self, cause: str) -> None:
        """Write a checkpoint, give the simulator back, and rest; raises CheckpointError and goes on."""

    def resume(self, cause: str) -> None:
        """Drive again after a drain."""

    def apply(self, values: Mapping[str, Any], cause: str) -> None:
        """Go on with other values of the configuration; raises ConfigError and goes on as before."""

    def stop(self, cause: str) -> None:
        """End as after SIGTERM, soon."""


class Requests(Listener):
    """The requests of one training."""

    def obey(self, training: Training) -> None:
        """Do what is newly asked for, if anything; a stop is answered at the end of the run."""
        request = self.take(training.standing)
        if request is None:
            return
        try:
            _ACTIONS[request.kind](training, request.values, f"request {request.id}")
        except (ConfigError, CheckpointError) as error:
            self.answer(request, Result.REFUSED, str(error), training.standing)
        else:
            if request.kind is not RequestKind.STOP:
                self.answer(request, Result.OK, _DONE[request.kind], training.standing)


def patched(settings: AgentConfig, values: Mapping[str, Any]) -> AgentConfig:
    """Return the configuration with some values changed.

    Args:
        settings: of the running training.
        values: dotted keys to values.

    Raises:
        ConfigError: a key can't change in a running process, or a value is wrong.
    """
    for key in values:
        if key not in APPLICABLE:
            raise ConfigError(
                f"`{key}` can't change in a running agent, only {', '.join(APPLICABLE)} can: write it to "
                f"overrides.yaml and start the agent again with --resume."
            )
    plain = dump(settings)
    for key, value in values.items():
        layered_yaml.assign(plain, key, value)
    return config.validate(plain, source="the request")


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
    RequestKind.RESUME: "A collector is started.",
    RequestKind.APPLY: "The agent goes on with these values.",
}
