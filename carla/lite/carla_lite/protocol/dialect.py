"""What differs on the wire between the versions of the client that this server can speak to.

A client never says its version, and the calls with which it connects are the same in both; so one server speaks to
clients of one version, which its command line names. ``peer`` tells a client of this machine that is of another.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Dialect:
    """One version's.

    Attributes:
        version: what ``version`` answers; a client of another one warns of it on its own standard error.
        world: type of the world's messages (SensorRegistry.h; section 3.3 of the wire protocol's reference). A client
            that gets another type reads the message as that of a sensor.
        first_type: number of the first type of attributes, Bool (ActorAttributeType.h; section 2.3).
        mercator: whether places become degrees by Mercator's projection, northwards against y (GeoLocation.cpp).
        lacks: blueprints that this version hasn't. Their messages have types that mean others there.
        ends_beside_traffic: whether a map that is loaded beside an asynchronous Traffic Manager ends the client.
    """

    version: str
    world: int
    first_type: int = 1
    mercator: bool = False
    lacks: tuple[str, ...] = ()
    ends_beside_traffic: bool = False

    def refusal(self, other: str) -> str:
        """Return what a client of another version is told: how it can be served, or which clients can."""
        served = f"start carla-lite with --client {other}" if other in DIALECTS else f"use {' or '.join(DIALECTS)}"
        return f"this server speaks to clients of {self.version}, yours is {other}: {served}"


LATEST = Dialect("0.9.16", world=17, ends_beside_traffic=True)
_OLDER = Dialect("0.9.15", world=16, first_type=0, mercator=True, lacks=("sensor.camera.cosmos_visualization",))
DIALECTS = {one.version: one for one in (_OLDER, LATEST)}
