"""What a server is told at its start, as plain values.

Owns the options and their defaults. Imports nothing that takes long: the command's help is made with these.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from carla_lite.protocol.dialect import LATEST, Dialect
from carla_lite.recording.folder import Folder


@dataclass(frozen=True)
class WorldOptions:
    """How a world is for as long as its server runs."""

    seed: int = 0
    """Of the houses and trees beside the roads."""
    tick_s: float = 0.0
    """Shortest time that a tick takes, for whoever waits for one."""
    strict: bool = False
    """Whether what CARLA refuses, or hasn't, is refused, or not there, where carla-lite is more generous."""
    recordings: Folder = field(default_factory=Folder)
    dialect: Dialect = LATEST


DEFAULTS = WorldOptions()


@dataclass(frozen=True)
class StartOptions:
    """The command line of ``carla-lite``; each value is explained there."""

    host: str
    port: int
    map: str
    map_dir: Path | None
    world: WorldOptions
    faults: Sequence[str]
    control_port: int | None
    view: bool
    view_port: int
    ready_file: Path | None
    end_with_input: bool
