"""Takes the requests to a running training one by one, answers each of them once, and logs both.

Knows nothing of the training itself. ``requests`` has the files, and the side that sends requests.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Optional, Union

from carla_run.event_log import EventLog
from carla_run.paths import RunPaths
from carla_run.requests import Answer, Inbox, Request, RequestKind, Result, Unfit

STOPPED = "The run has ended."


@dataclass(frozen=True)
class Standing:
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

    def begin(self, standing: Standing) -> None:
        """Refuse a request that an earlier process didn't answer: an old drain or stop must not delay a new start."""
        self._refuse(self._inbox.poll(), "It was asked before this agent began to listen; ask again.", standing)

    def take(self, standing: Standing) -> Optional[Request]:
        """Return the new request, None if there is none. A file that is no valid request is refused."""
        found = self._inbox.poll()
        if isinstance(found, Unfit):
            self._refuse(found, "", standing)
        if not isinstance(found, Request):
            return None
        self._open = found
        self._events.append("requested", found.kind, id=found.id, values=found.values)
        return found

    def answer(self, request: Union[Request, Unfit], result: Result, sentence: str, standing: Standing) -> None:
        """Answer a request. Don't use it for a stop that succeeds: :meth:`end` answers that one."""
        if isinstance(request, Request):
            self._open = None
        assert request.id is not None
        self._inbox.answer(Answer(request.id, request.kind, result, sentence, **asdict(standing)))
        self._events.append("request_answered", sentence, id=request.id, kind=request.kind, result=result)

    def end(self, standing: Standing, failure: Optional[str] = None) -> None:
        """Answer the requests that are still open, because the run has ended; ``failure`` says why if it failed."""
        for request in (self._open, self._inbox.poll()):
            if isinstance(request, Request) and request.kind is RequestKind.STOP and failure is None:
                self.answer(request, Result.OK, STOPPED, standing)
            else:
                self._refuse(request, failure or STOPPED, standing)

    def _refuse(self, request: Union[Request, Unfit, None], sentence: str, standing: Standing) -> None:
        """Refuse the request, if there is one. An ``Unfit`` has its own sentence, and may have no id."""
        if isinstance(request, Unfit) and request.id is None:
            self._events.append("request_unreadable", request.sentence)
        elif request is not None:
            words = request.sentence if isinstance(request, Unfit) else sentence
            self.answer(request, Result.REFUSED, words, standing)
