"""Takes the requests to a running training one by one, answers each of them once, and logs both.

Knows nothing of the training itself. ``requests`` has the files, and the side that sends requests.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Optional, Union

from carla_run.event_log import EventLog
from carla_run.paths import RunPaths
from carla_run.requests import Answer, Inbox, InvalidRequest, Request, RequestKind, Result

STOPPED = "The run has ended."


@dataclass(frozen=True)
class Progress:
    """The progress of a training, which each answer reports."""

    steps: int
    updates: int
    checkpoint: Optional[str]
    """Name of the checkpoint that holds all updates so far; None if some aren't saved."""


class Listener:
    """The requests of one run."""

    def __init__(self, run: RunPaths, events: EventLog) -> None:
        self._inbox = Inbox(run)
        self._events = events
        self._open: Optional[Request] = None

    def begin(self, progress: Progress) -> None:
        """Refuse a request that an earlier process didn't answer: an old drain or stop must not delay a new start."""
        self._refuse(self._inbox.poll(), "This request is older than the agent's start. Send it again.", progress)

    def take(self, progress: Progress) -> Optional[Request]:
        """Return the new request, None if there is none. A file that is no valid request is refused."""
        found = self._inbox.poll()
        if isinstance(found, InvalidRequest):
            self._refuse(found, "", progress)
        if not isinstance(found, Request):
            return None
        self._open = found
        self._events.append("requested", found.kind, id=found.id, values=found.values)
        return found

    def answer(
        self, request: Union[Request, InvalidRequest], result: Result, sentence: str, progress: Progress
    ) -> None:
        """Answer a request. Don't use it for a stop that succeeds: :meth:`end` answers that one."""
        if isinstance(request, Request):
            self._open = None
        assert request.id is not None
        self._inbox.answer(Answer(request.id, request.kind, result, sentence, **asdict(progress)))
        self._events.append("request_answered", sentence, id=request.id, kind=request.kind, result=result)

    def end(self, progress: Progress, failure: Optional[str] = None) -> None:
        """Answer the requests that are still open, because the run has ended; ``failure`` says why if it failed."""
        for request in (self._open, self._inbox.poll()):
            if isinstance(request, Request) and request.kind is RequestKind.STOP and failure is None:
                self.answer(request, Result.OK, STOPPED, progress)
            else:
                self._refuse(request, failure or STOPPED, progress)

    def _refuse(self, request: Union[Request, InvalidRequest, None], sentence: str, progress: Progress) -> None:
        """Refuse the request, if there is one. An ``InvalidRequest`` has its own sentence, and may have no id."""
        if isinstance(request, InvalidRequest) and request.id is None:
            self._events.append("request_unreadable", request.sentence)
        elif request is not None:
            words = request.sentence if isinstance(request, InvalidRequest) else sentence
            self.answer(request, Result.REFUSED, words, progress)
