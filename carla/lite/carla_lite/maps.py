"""The maps that a server offers.

These are the generated towns, the maps of a folder, the map that the server was started with, the last map that a
client sent, and towns from a seed, which no list can name. Owns the way from a map name on the wire to a road network.
Never opens a path that came over the wire.
"""

from __future__ import annotations

from pathlib import Path

from carla_lite.protocol.wire import RpcError
from carla_lite.roads import network
from carla_lite.roads.network import MapError, RoadNetwork
from carla_lite.towns import generator

OPENDRIVE_MAP = "OpenDriveMap"
# CARLA's maps whose layers can be unloaded: the same roads under another name.
LAYERED = "_Opt"


class Maps:
    """The maps that ``load_world`` can load, by name."""

    def __init__(self, started_with: str, directory: Path | None = None) -> None:
        """Take the name or path of the start map, and the folder of .xodr files.

        Raises:
            MapError: the start map is missing or broken, or the folder has no map.
        """
        self._sources = {name: name for name in network.MAP_NAMES}
        self._sent: RoadNetwork | None = None
        if directory is not None:
            self._sources.update(_files(directory))
        if _base(started_with) in self._sources:
            self.first = self._load(started_with)
        else:
            self.first = network.load(started_with)
            self._sources.setdefault(self.first.name, started_with)

    @property
    def names(self) -> list[str]:
        """The names, without prefix. Each file is also listed as a map with layers, as CARLA lists its towns."""
        layered = [name + LAYERED for name in self._sources if name not in network.MAP_NAMES]
        return [*self._sources, *layered]

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
        if _base(name) == OPENDRIVE_MAP and self._sent is not None:
            return self._sent
        if _base(name) not in self._sources and not generator.is_name(_base(name)):
            known = ", ".join([*self.names, generator.HOW_NAMED])
            raise RpcError(f"map {name} does not exist here, expected one of {known}")
        try:
            return self._load(name)
        except MapError as error:
            raise RpcError(str(error)) from None

    def _load(self, name: str) -> RoadNetwork:
        """Return the network of an offered map under the requested name; MapError if its file is broken."""
        found = network.load(self._sources.get(_base(name), _base(name)))
        asked = name.rsplit("/", 1)[-1]
        return found if found.name == asked else found.renamed(asked)


def _base(name: str) -> str:
    """Return the name in the list of sources: without CARLA's folders and ``_Opt``."""
    return name.rsplit("/", 1)[-1].removesuffix(LAYERED)


def _files(directory: Path) -> dict[str, str]:
    """Return the folder's OpenDRIVE files by name; MapError if there is none."""
    found = {path.stem: str(path) for path in sorted(directory.glob("*.xodr"))}
    if not found:
        raise MapError(f"folder {directory} has no OpenDRIVE file (.xodr), expected one a map, such as Town01.xodr")
    return found
