"""What learner and collector say to each other: orders one way, reports the other, one JSON object a line.

Owns the words and the line protocol over a socket pair. Numbers that change every step are not sent: they lie
in the mapped blocks of ``carla_td3.exchange.status``.
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
    """The first order: what to run, and where."""

    kind: Literal["configure"] = "configure"
    config: dict[str, Any]
    run_directory: str
    collector: int
    """Its number, from 0 on: which ring, blocks and log are its own."""
    rehearse: bool
    """Find out first what an evaluation will take."""
    until_episode: int | None
    """Begin no episode once so many have begun in this run; None for no end."""


class Evaluate(_Message):
    """Drive the held-out routes with the newest weights; ``final`` adds baselines, tables and the video."""

    kind: Literal["evaluate"] = "evaluate"
    step: int
    final: bool


class Stop(_Message):
    """End the episode, give the simulator back, exit."""

    kind: Literal["stop"] = "stop"


class Kill(_Message):
    """End it now; only a collector on another machine can be told so, one here gets a signal."""

    kind: Literal["kill"] = "kill"


class Ready(_Message):
    """The environment stands and the replay is open."""

    kind: Literal["ready"] = "ready"
    steps: int


class Rests(_Message):
    """The last episode before ``until_episode`` is over: it drives no more."""

    kind: Literal["rests"] = "rests"


class Rehearsed(_Message):
    """What an evaluation takes of RAM beyond what driving does, found before training; MiB, None where Linux is mute.

    The chase camera's pictures come with the video; everything else is there already.
    """

    kind: Literal["rehearsed"] = "rehearsed"
    before_mib: float | None
    """Of the collector, connected."""
    after_mib: float | None
    """Of the collector: what it keeps for evaluations included."""
    encoder_mib: float | None
    """Of the video's encoder, a process beside the collector while it films; None without a video."""
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
    """Where an evaluation stands: this driver begins that route, the first one being 1."""

    kind: Literal["driving"] = "driving"
    driver: str
    route: int
    routes: int
    """Of each driver."""


class Placed(_Message):
    """It drives on another machine; said before :class:`Ready`."""

    kind: Literal["placed"] = "placed"
    node: str
    incarnation: str
    simulator: str
    """Its address there."""


class ChunkLost(_Message):
    """It was lost with its machine, and steps of it that weren't on the learner's disk yet."""

    kind: Literal["chunk_lost"] = "chunk_lost"
    node: str
    at_most: int
    seen: int
    """Those of them that it had told of."""


class Failed(_Message):
    """The collector can't go on, and a new one couldn't either; ``code`` is the agent's exit code."""

    kind: Literal["failed"] = "failed"
    code: int
    sentence: str


class Ended(_Message):
    """How a collector ended: for a person, and the fields of ``CollectorRestarted``.

    The last word of one on another machine; of one here, what its process left.
    """

    kind: Literal["ended"] = "ended"
    cause: str
    end: CollectorEnd
    exit_code: int | None = None
    signal: int | None = None


Order = Configure | Evaluate | Stop | Kill
Report = Ready | Rests | Rehearsed | EpisodeEnded | Driving | Evaluated | Placed | ChunkLost | Failed | Ended
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
        """The newest message that has arrived, returned or not."""
        self.closed = False
        """Whether the other side is gone, and all that it said has arrived."""

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
            ChannelClosedError: the other side is gone, and all that it said has been returned.
        """
        if not self._messages:
            self.gather(timeout_s)
        if self._messages:
            return self._messages.popleft()
        if self.closed:
            raise ChannelClosedError
        return None

    def gather(self, timeout_s: float = 0.0) -> bool:
        """Take in what has arrived, waiting up to ``timeout_s`` for it; return whether that was anything."""
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
        """Return what ``select`` waits by; a message that was received with another one isn't seen by that."""
        return self._socket.fileno()

    def close(self) -> None:
        """Close this end."""
        self._socket.close()
