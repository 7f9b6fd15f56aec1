"""The maps that a server offers: it finds the road network for the map name that a client sends.

Offered are the built-in towns, the maps of a folder, the map that the server was started with, and the OpenDRIVE map
that a client sent last. Towns from a seed are offered, too, but not listed: there are too many. Never opens a path
that a client sent.
"""

from __future__ import annotations

from pathlib import Path

from carla_lite.protocol.wire import RpcError
from carla_lite.roads import network
from carla_lite.roads.network import MapError, RoadNetwork
from carla_lite.towns import generator

OPENDRIVE_MAP = "OpenDriveMap"
# Ending of a map's name in CARLA if its layers can be unloaded. The roads are those of the map without the ending.
LAYERED_SUFFIX = "_Opt"


class Maps:
    """The maps that ``load_world`` can load, by name.

    Args:
        started_with: name or path of the start map.
        directory: folder of .xodr files.

    Raises:
        MapError: the start map is missing or can't be read, or the folder has no map.
    """

    def __init__(self, started_with: str, directory: Path | None = None) -> None:
        self._sources = {name: name for name in network.MAP_NAMES}
        self._from_client: RoadNetwork | None = None
        if directory is not None:
            self._sources.update(_files(directory))
        if _base(started_with) in self._sources:
            self.first = self._load(started_with)
        else:
            self.first = network.load(started_with)
            self._sources.setdefault(_base(self.first.name), started_with)

    @property
    def names(self) -> list[str]:
        """Names without folders. A map from a file is listed twice, also with ``_Opt``, as CARLA lists its towns."""
        layered = [name + LAYERED_SUFFIX for name in self._sources if name not in network.MAP_NAMES]
        return [*self._sources, *layered]

    def add_opendrive(self, xodr: str) -> None:
        """Offer a client's OpenDRIVE text as the map ``OpenDriveMap``.

        Raises:
            RpcError: the text is no valid OpenDRIVE.
        """
        try:
            self._from_client = RoadNetwork.parse(OPENDRIVE_MAP, xodr)
        except MapError as error:
            raise RpcError(str(error)) from None

    def load(self, name: str) -> RoadNetwork:
        """Return the road network of a map. Its name may begin with CARLA's folders (``/Game/Carla/Maps/Town01``).

        Raises:
            RpcError: this map isn't offered, or its file can't be read.
        """
        if _base(name) == OPENDRIVE_MAP and self._from_client is not None:
            return self._from_client
        if _base(name) not in self._sources and not generator.is_name(_base(name)):
            offered = ", ".join([*self.names, generator.HOW_NAMED])
            raise RpcError(f"this server has no map {name}, expected one of {offered}")
        try:
            return self._load(name)
        except MapError as error:
            raise RpcError(str(error)) from None

    def _load(self, name: str) -> RoadNetwork:
        """Return the network of an offered map, with the name that was requested; MapError if it can't be read."""
        found = network.load(self._sources.get(_base(name), _base(name)))
        asked = name.rsplit("/", 1)[-1]
        return found if found.name == asked else found.renamed(asked)


def _base(name: str) -> str:
    """Return a map's name without CARLA's folders and ``_Opt``."""
    return name.rsplit("/", 1)[-1].removesuffix(LAYERED_SUFFIX)


def _files(directory: Path) -> dict[str, str]:
    """Return the folder's OpenDRIVE files by name; of Town01 and Town01_Opt the first. MapError if there is none."""
    found: dict[str, str] = {}
    for path in sorted(directory.glob("*.xodr")):
        found.setdefault(_base(path.stem), str(path))
    if not found:
        raise MapError(
            f"folder {directory} has no OpenDRIVE file (.xodr), expected one file for each map, such as Town01.xodr"
        )
    return found
