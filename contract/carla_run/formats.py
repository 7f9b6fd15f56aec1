"""Formats of a run's files: which of them this version reads, and the refusal of those that it can't read.

A format is a whole number. It grows by one with a change that earlier versions can't read. All formats and their only
comparison are here. ``version.json`` holds the format of a run's directory; checkpoints and replays hold theirs.
"""

from __future__ import annotations

import importlib.metadata
import json
from dataclasses import dataclass
from pathlib import Path

from carla_run.exits import Exit, ExitError
from carla_run.files import write_whole
from carla_run.paths import RunPaths
from carla_run.readers import read_object

DISTRIBUTION = "carla-td3-lowmem"


class FormatError(ExitError):
    """A file of another format; the message is one sentence for a person, and nothing was written."""

    code = Exit.BAD_CONFIG


@dataclass(frozen=True)
class Format:
    """Formats of one kind of file that this version reads.

    Attributes:
        name: name of the kind, for messages.
        oldest: lowest format number that this version reads.
        newest: highest format number that this version reads and writes.
    """

    name: str
    oldest: int
    newest: int

    def require(self, path: Path, found: object, writer: object = None) -> None:
        """Refuse a format that this version doesn't read.

        Args:
            path: of what is read.
            found: the format that it names.
            writer: the version that wrote it, if that is known.

        Raises:
            FormatError: it is older or newer, or no whole number.
        """
        if type(found) is int and self.oldest <= found <= self.newest:
            return
        by = f", written by version {writer}" if writer else ""
        span = str(self.oldest) if self.oldest == self.newest else f"{self.oldest} to {self.newest}"
        own = f"version {writer}" if writer else "the version that wrote it"
        raise FormatError(
            f"{path}: holds a {self.name} of format {found}{by}; this is version {version()}, which reads format "
            f"{span}: use {own}, or choose another run directory."
        )


RUN = Format("run", 1, 1)
CHECKPOINT = Format("checkpoint", 1, 1)
REPLAY = Format("replay", 1, 2)
"""Format 2 has privileged columns; a replay without them is of format 1."""


def version() -> str:
    """Return this program's version, ``carla/lite/VERSION`` as it was installed."""
    try:
        return importlib.metadata.version(DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def require_readable(run: RunPaths) -> None:
    """Refuse a run that a later version continued in a format that this one can't read. Writes nothing.

    A run without ``version.json`` is of format 1. So is one that this version wrote, whatever a damaged disk says.

    Raises:
        FormatError: in one sentence.
    """
    said = read_object(run.version)
    if said.get("version") == version():
        return
    RUN.require(run.path, said.get("format", 1), said.get("version"))


def stamp(run: RunPaths) -> None:
    """Say in ``version.json`` that this version writes the run; a file that says so already stays as it is.

    Raises:
        OSError: it can't be written.
    """
    says = {"format": RUN.newest, "version": version()}
    if read_object(run.version) != says:
        write_whole(run.version, json.dumps(says) + "\n")
