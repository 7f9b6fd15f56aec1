"""Messages between learner and collector: orders one way, reports the other, one JSON object per line.

Owns the messages and the line protocol over a socket pair. Numbers that change every step are not sent: they are in the
mapped blocks of ``carla_td3.exchange.status``.
"""

from __future__ import annotations

import select
import socket
from collections import deque
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from carla_run.events import CollectorEnd


class _Message(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Configure(_Message):
    """The first order: the configuration and the run directory."""

    kind: Literal["configure"] = "configure"
    config: dict[str, Any]
    run_directory: str
    collector: int
    """The collector's number, from 0: it selects its ring, blocks and log."""
    rehearse: bool
    """Whether to measure first the memory of an evaluation."""
    until_episode: int | None
    """Begin no new episode after this many in this run; None for no limit."""


class Evaluate(_Message):
    """Drive the held-out routes with the newest weights; ``final`` adds baselines, tables and the video."""

    kind: Literal["evaluate"] = "evaluate"
    step: int
    final: bool


class Stop(_Message):
    """End the episode, give the simulator back, exit."""

    kind: Literal["stop"] = "stop"


class Kill(_Message):
    """End at once. Only for a collector on another machine; a local one gets a signal."""

    kind: Literal["kill"] = "kill"


class Ready(_Message):
    """The environment is connected and the replay is open."""

    kind: Literal["ready"] = "ready"
    steps: int


class ReachedLastEpisode(_Message):
    """The last episode before ``until_episode`` is over: this collector drives no more."""

    kind: Literal["reached_last_episode"] = "reached_last_episode"


class Rehearsed(_Message):
    """RAM of an evaluation beyond that of driving, measured before training, in MiB; None if Linux doesn't say.

    The chase camera's pictures come later, with the video; everything else is already included.
    """

    kind: Literal["rehearsed"] = "rehearsed"
    before_mib: float | None
    """RAM of the connected collector before."""
    after_mib: float | None
    """RAM of the collector with everything that it keeps for evaluations."""
    encoder_mib: float | None
    """RAM of the video encoder, a process beside the collector while it films; None without a video."""
    routes: int


class EpisodeEnded(_Message):
    """One training episode."""

    kind: Literal["episode"] = "episode"
    length: int
    reward: float
    reward_terms: dict[str, float]
    route_completion: float
    success: bool
    end: str
    """Why it ended: one of ``carla_td3.env.episode.End``."""


class Evaluated(_Message):
    """The answer to :class:`Evaluate`: each driver's totals, the trained one's score, and a table to print."""

    kind: Literal["evaluated"] = "evaluated"
    step: int
    final: bool
    totals: dict[str, dict[str, float]]
    score: float
    table: str
    collector_mib: float | None
    """RAM of the collector at the end."""
    encoder_mib: float | None = None
    """RAM of the video's encoder at its end; None without a video."""
    video: str | None = None
    pictures: dict[str, str] = {}
    """PNG files in the run's ``videos/``, by their names in TensorBoard."""


class Driving(_Message):
    """Progress of an evaluation: this driver begins this route, counted from 1."""

    kind: Literal["driving"] = "driving"
    driver: str
    route: int
    routes: int
    """Routes per driver."""


class Placed(_Message):
    """The collector runs on another machine; sent before :class:`Ready`."""

    kind: Literal["placed"] = "placed"
    node: str
    incarnation: str
    simulator: str
    """Address of its simulator there."""


class ChunkLost(_Message):
    """The collector was lost with its machine, and steps that weren't yet on the learner's disk."""

    kind: Literal["chunk_lost"] = "chunk_lost"
    node: str
    at_most: int
    seen: int
    """Those of them that were reported."""


class Failed(_Message):
    """The collector can't continue, and a new one couldn't either; ``code`` is the agent's exit code."""

    kind: Literal["failed"] = "failed"
    code: int
    sentence: str


class Ended(_Message):
    """How a collector ended: a cause for people, and the fields of ``CollectorRestarted``.

    A remote collector sends it last; for a local one it is made from the process's exit.
    """

    kind: Literal["ended"] = "ended"
    cause: str
    end: CollectorEnd
    exit_code: int | None = None
    signal: int | None = None


Order = Configure | Evaluate | Stop | Kill
Report = (
    Ready | ReachedLastEpisode | Rehearsed | EpisodeEnded | Driving | Evaluated | Placed | ChunkLost | Failed | Ended
)
_MESSAGE: TypeAdapter[Order | Report] = TypeAdapter(Annotated[Order | Report, Field(discriminator="kind")])


class ChannelClosedError(Exception):
    """The other side is gone."""


class Channel:
    """One end of the socket pair."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._partial = b""
        self._messages: deque[Order | Report] = deque()
        self.last: Order | Report | None = None
        """The newest message received, returned or not."""
        self.closed = False
        """Whether the other side is gone, and all its messages have arrived."""

    def send(self, message: Order | Report) -> None:
        """Send one message.

        Raises:
            ChannelClosedError: the other side is gone.
        """
        try:
            self._socket.sendall(message.model_dump_json().encode() + b"\n")
        except OSError as error:
            raise ChannelClosedError from error

    def receive(self, timeout_s: float = 0.0) -> Order | Report | None:
        """Return the next message, or None when none comes within ``timeout_s``.

        Raises:
            ChannelClosedError: the other side is gone, and all its messages have been returned.
        """
        if not self._messages:
            self.gather(timeout_s)
        if self._messages:
            return self._messages.popleft()
        if self.closed:
            raise ChannelClosedError
        return None

    def gather(self, timeout_s: float = 0.0) -> bool:
        """Read what has arrived, waiting up to ``timeout_s``; return whether there was anything."""
        if self.closed or not select.select([self._socket], [], [], timeout_s)[0]:
            return False
        try:
            data = self._socket.recv(1 << 16)
        except ConnectionError:
            data = b""
        self.closed = not data
        *lines, self._partial = (self._partial + data).split(b"\n")
        self._messages.extend(_MESSAGE.validate_json(line) for line in lines)
        if self._messages:
            self.last = self._messages[-1]
        return not self.closed

    def fileno(self) -> int:
        """Return the file descriptor for ``select``, which doesn't see messages that are already read."""
        return self._socket.fileno()

    def close(self) -> None:
        """Close this end."""
        self._socket.close()
