"""Requests to a running training as they are taken, answered and logged: one by one, each answered once.

Knows no training. ``requests`` has the files, and what those do who ask.
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
    """Where a training stands, for an answer."""

    steps: int
    updates: int
    checkpoint: Optional[str]
    """Name of the checkpoint that holds the present updates; None if they aren't saved."""


class Listener:
    """The requests of one run."""

    def __init__(self, run: RunPaths, events: EventLog) -> None:
        self._inbox = Inbox(run)
        self._events = events
        self._open: Optional[Request] = None

    def begin(self, standing: Standing) -> None:
        """Refuse what an earlier process left unanswered: a forgotten drain or stop must not hold up a new start."""
        self._refuse(self._inbox.poll(), "It was asked before this agent began to listen; ask again.", standing)

    def take(self, standing: Standing) -> Optional[Request]:
        """Return what is newly asked for, if anything; what is no request is refused."""
        found = self._inbox.poll()
        if isinstance(found, Unfit):
            self._refuse(found, "", standing)
        if not isinstance(found, Request):
            return None
        self._open = found
        self._events.append("requested", found.kind, id=found.id, values=found.values)
        return found

    def answer(self, request: Union[Request, Unfit], result: Result, sentence: str, standing: Standing) -> None:
        """Answer a request; leave a stop that is granted to :meth:`end`."""
        if isinstance(request, Request):
            self._open = None
        assert request.id is not None
        self._inbox.answer(Answer(request.id, request.kind, result, sentence, **asdict(standing)))
        self._events.append("request_answered", sentence, id=request.id, kind=request.kind, result=result)

    def end(self, standing: Standing, failure: Optional[str] = None) -> None:
        """Answer what is still open, for the run has ended: well, or with a failure."""
        for request in (self._open, self._inbox.poll()):
            if isinstance(request, Request) and request.kind is RequestKind.STOP and failure is None:
                self.answer(request, Result.OK, STOPPED, standing)
            else:
                self._refuse(request, failure or STOPPED, standing)

    def _refuse(self, request: Union[Request, Unfit, None], sentence: str, standing: Standing) -> None:
        """Refuse what was asked, if anything; what is no request has a sentence already, and maybe no id."""
        if isinstance(request, Unfit) and request.id is None:
            self._events.append("request_unreadable", request.sentence)
        elif request is not None:
            words = request.sentence if isinstance(request, Unfit) else sentence
            self.answer(request, Result.REFUSED, words, standing)
