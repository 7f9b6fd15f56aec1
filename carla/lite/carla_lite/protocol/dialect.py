"""Differences on the wire between the client versions that this server can speak to.

A client never sends its version, and its first calls are the same in both versions; so one server speaks to clients of
one version, chosen on its command line. ``peer`` recognises a local client of another version.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Dialect:
    """The protocol of one client version.

    Attributes:
        version: the answer to ``version``; a client of another version warns on its standard error.
        world: type of the world's messages (SensorRegistry.h; section 3.3 of the wire protocol's reference). A client
            that gets another type takes the message for a sensor's.
        first_type: number of the first type of attributes, Bool (ActorAttributeType.h; section 2.3).
        mercator: whether geographic coordinates use Mercator's projection, with north against y (GeoLocation.cpp).
        lacks: blueprints that this version doesn't have. Their message types have other meanings there.
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
