"""The real ``carla`` client's reading of an OpenDRIVE text, in a process that it may kill.

Run as a program it answers one JSON line for each it reads: a text, tried in a child of its own with bounded memory and
time. Nothing here judges carla-lite.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

STEP_M = 5.0
_SECONDS, _MEMORY_BYTES = 20, 4 << 30


@dataclass(frozen=True)
class Waypoint:
    """A waypoint: ids, station, place (m), yaw (degrees), width (m)."""

    road: int
    section: int
    lane: int
    s: float
    place: tuple[float, float, float]
    yaw: float
    width: float
    in_junction: bool


@dataclass(frozen=True)
class Answer:
    """Result for a text: why the client has no map, else its waypoints."""

    why: str = ""
    topology: list[tuple[Waypoint, Waypoint]] = field(default_factory=list)
    waypoints: list[Waypoint] = field(default_factory=list)

    @property
    def every(self) -> list[Waypoint]:
        return [*self.waypoints, *(one for pair in self.topology for one in pair)]


class Oracle:
    """A process that asks the client, as a context manager."""

    def __enter__(self) -> Oracle:
        self._process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def ask(self, xodr: str) -> Answer:
        """Return what the client makes of a text."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(xodr).encode() + b"\n")
        self._process.stdin.flush()
        found: dict[str, Any] = json.loads(self._process.stdout.readline())
        if "why" in found:
            return Answer(found["why"])
        return Answer(
            "",
            [(_waypoint(start), _waypoint(end)) for start, end in found["topology"]],
            [_waypoint(one) for one in found["waypoints"]],
        )


def _waypoint(raw: list[Any]) -> Waypoint:
    road, section, lane, s, x, y, z, yaw, width, in_junction = raw
    return Waypoint(road, section, lane, s, (x, y, z), yaw, width, in_junction)


def _plain(waypoint: Any) -> list[Any]:
    place, turn = waypoint.transform.location, waypoint.transform.rotation
    ids = [waypoint.road_id, waypoint.section_id, waypoint.lane_id, waypoint.s]
    return [*ids, place.x, place.y, place.z, turn.yaw, waypoint.lane_width, waypoint.is_junction]


def _try(xodr: str) -> dict[str, Any]:
    import carla

    try:
        found = carla.Map("map", xodr)
        waypoints = found.generate_waypoints(STEP_M)
        for waypoint in waypoints[:3]:
            found.get_waypoint(waypoint.transform.location)
        topology = [[_plain(start), _plain(end)] for start, end in found.get_topology()]
        return {"topology": topology, "waypoints": [_plain(one) for one in waypoints]}
    except Exception as error:
        return {"why": f"{type(error).__name__}: {error}"}


def _child(xodr: str, into: int) -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (_SECONDS, _SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with os.fdopen(into, "w", encoding="utf-8") as pipe:
        json.dump(_try(xodr), pipe)


def _answers() -> None:
    import carla  # noqa: F401 (once, for all children)

    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # where the client's own warnings go
    for line in sys.stdin.buffer:
        ours, theirs = os.pipe()
        child = os.fork()
        if not child:
            os.close(ours)
            _child(json.loads(line), theirs)
            os._exit(0)
        os.close(theirs)
        with os.fdopen(ours, encoding="utf-8") as pipe:
            said = pipe.read()
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status):
            said = json.dumps({"why": f"died: {signal.Signals(os.WTERMSIG(status)).name}"})
        if os.WIFEXITED(status) and os.WEXITSTATUS(status):
            said = json.dumps({"why": f"exit code {os.WEXITSTATUS(status)}"})
        print(said, file=answers, flush=True)


if __name__ == "__main__":
    _answers()
