"""The maps that a server offers: the generated towns, the one it was started with, the last one a client sent.

Owns the way from a name on the wire to a road network. Reads no path that came over the wire.
"""

from __future__ import annotations

from carla_lite.protocol.wire import RpcError
from carla_lite.roads import network
from carla_lite.roads.network import MapError, RoadNetwork

OPENDRIVE_MAP = "OpenDriveMap"


class Maps:
    """What ``load_world`` can load, by name."""

    def __init__(self, started_with: str) -> None:
        """Take the name or path that the server was started with.

        Raises:
            MapError: it is missing or broken.
        """
        self.first = network.load(started_with)
        self._sources = {name: name for name in network.MAP_NAMES}
        self._sources.setdefault(self.first.name, started_with)
        self._sent: RoadNetwork | None = None

    @property
    def names(self) -> list[str]:
        """The names, without prefix."""
        return list(self._sources)

    def add_opendrive(self, xodr: str) -> None:
        """Take an OpenDRIVE text as the map ``OpenDriveMap``.

        Raises:
            RpcError: it is broken.
        """
        try:
            self._sent = RoadNetwork.parse(OPENDRIVE_MAP, xodr)
        except MapError as error:
            raise RpcError(str(error)) from None

    def load(self, name: str) -> RoadNetwork:
        """Return the network of a map, named with or without CARLA's folders.

        Raises:
            RpcError: it is not offered.
        """
        name = name.rsplit("/", 1)[-1]
        if name == OPENDRIVE_MAP and self._sent is not None:
            return self._sent
        if name not in self._sources:
            raise RpcError(f"map {name} does not exist here, expected one of {', '.join(self._sources)}")
        try:
            return network.load(self._sources[name])
        except MapError as error:
            raise RpcError(str(error)) from None
