"""Requests to a running training: each new one is passed to it, and answered when done.

Owns which keys may change in a running process, and the answers' wording. Knows the training only by the methods of
``Training``, and uses files only through ``carla_run.requests``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from carla_run.paths import RunPaths
from carla_run.requests import Answer, Inbox, Request, RequestKind, Result, Unfit
from carla_td3 import config, layered_yaml
from carla_td3.config import AgentConfig, ConfigError, dump
from carla_td3.telemetry.events import EventLog
from carla_td3.trainer.checkpoint import CheckpointError

APPLICABLE = (
    *("collector.at_work", "device", "td3.micro_batch", "training.checkpoint_every_steps"),
    "training.learner_threads",
)
"""Keys that can change in a running process without changing what is learned: they affect placement, splitting or pace.
All other keys are part of the experiment or read only once, and need a new process.
"""


@dataclass(frozen=True)
class Standing:
    """Counters of a training, for an answer."""

    steps: int
    updates: int
    checkpoint: str | None
    """Name of the checkpoint that holds the present updates; None if they aren't saved."""


class Training(Protocol):
    """Requests that a training can serve. ``cause`` is for its events."""

    @property
    def standing(self) -> Standing:
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


class Requests:
    """The requests of one run."""

    def __init__(self, run: RunPaths, events: EventLog) -> None:
        self._inbox = Inbox(run)
        self._events = events
        self._open: Request | None = None

    def begin(self, standing: Standing) -> None:
        """Refuse a request that an earlier process left unanswered: an old drain or stop must not delay a new start."""
        self._refuse(self._inbox.poll(), "The request is older than this agent: send it again.", standing)

    def obey(self, training: Training) -> None:
        """Do a new request, if there is one; a stop is answered at the end of the run."""
        found = self._inbox.poll()
        if isinstance(found, Unfit):
            self._refuse(found, "", training.standing)
        if not isinstance(found, Request):
            return
        self._open = found
        self._events.append("requested", found.kind, id=found.id, values=found.values)
        try:
            _ACTIONS[found.kind](training, found.values, f"request {found.id}")
        except (ConfigError, CheckpointError) as error:
            self._refuse(found, str(error), training.standing)
        else:
            if found.kind is not RequestKind.STOP:
                self._answer(found, Result.OK, _DONE[found.kind], training.standing)

    def end(self, standing: Standing, failure: str | None = None) -> None:
        """Answer open requests because the run has ended, with success or with a failure."""
        for request in (self._open, self._inbox.poll()):
            if isinstance(request, Request) and request.kind is RequestKind.STOP and failure is None:
                self._answer(request, Result.OK, _DONE[RequestKind.STOP], standing)
            else:
                self._refuse(request, failure or "The run has ended.", standing)

    def _refuse(self, request: Request | Unfit | None, sentence: str, standing: Standing) -> None:
        """Refuse a request, if there is one. A malformed file comes with its sentence, and may have no id."""
        if isinstance(request, Unfit) and request.id is None:
            self._events.append("request_unreadable", request.sentence)
        elif request is not None:
            words = request.sentence if isinstance(request, Unfit) else sentence
            self._answer(request, Result.REFUSED, words, standing)

    def _answer(self, request: Request | Unfit, result: Result, sentence: str, standing: Standing) -> None:
        if isinstance(request, Request):
            self._open = None
        assert request.id is not None
        self._inbox.answer(Answer(request.id, request.kind, result, sentence, **asdict(standing)))
        self._events.append("request_answered", sentence, id=request.id, kind=request.kind, result=result)


def patched(settings: AgentConfig, values: Mapping[str, Any]) -> AgentConfig:
    """Return the configuration with changed values.

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
    RequestKind.APPLY: "The agent continues with these values.",
    RequestKind.STOP: "The run has ended.",
}
