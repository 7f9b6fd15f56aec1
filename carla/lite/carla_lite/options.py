"""The options of a server, as plain values.

Owns the options and their defaults. Imports nothing that takes long, because `--help` imports this module.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from carla_lite.protocol.dialect import LATEST, Dialect
from carla_lite.recording.folder import Folder


@dataclass(frozen=True)
class WorldOptions:
    """Options of a world, which stay the same while its server runs."""

    seed: int = 0
    """Seed of the houses and trees beside the roads."""
    tick_s: float = 0.0
    """Shortest duration of a tick, for a client that waits for the tick."""
    strict: bool = False
    """Whether what CARLA refuses is refused, and what CARLA doesn't have is left out."""
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
