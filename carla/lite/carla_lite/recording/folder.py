"""The folder of a server's recordings: the only files that a client can reach by a recording's name.

Owns the conversion of a name on the wire to a path, and the size limit of all recordings together. CARLA accepts any
path of its machine (GetRecorderFilename in CarlaRecorderHelpers.cpp); here a name that leads out of the folder is
refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path, PureWindowsPath

from carla_lite.protocol.wire import RpcError

DEFAULT_FOLDER, DEFAULT_MIB = Path("recordings"), 2048


@dataclass(frozen=True)
class Folder:
    """The folder of recordings, and its size limit in bytes. The first recording creates it."""

    path: Path = DEFAULT_FOLDER
    most_bytes: int = DEFAULT_MIB << 20

    def path_of(self, name: str) -> Path:
        """Return the file of a recording, which need not exist.

        Raises:
            RpcError: the name leads out of the folder, or is empty.
        """
        parts = PureWindowsPath(name).parts
        if not parts or ".." in parts or name[0] in "/\\" or not {":", "\0"}.isdisjoint(name):
            raise RpcError(
                f"{name!r} is no name of a recording: expected one such as recording01.log, without an absolute path "
                f"and without '..'; recordings are kept in the server's folder (--recordings)"
            )
        try:
            path = self.path.joinpath(*parts).resolve()
            if self.path.resolve() not in path.parents:
                raise RpcError(f"{name!r} leads out of the folder of recordings by a link")
            if path.exists() and not path.is_file():
                raise RpcError(f"{name!r} is no file")
        except (OSError, RuntimeError) as error:  # a name too long, a circle of links
            raise RpcError(f"{name!r} is no name of a recording: {error}") from None
        return path

    def begin(self, name: str) -> tuple[Path, int]:
        """Return the file of a new recording, and how many bytes it may have.

        Raises:
            RpcError: it would replace a file that is no recording, or the folder is full or can't be created.
        """
        from carla_lite.recording import reading

        path = self.path_of(name)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.exists() and path.stat().st_size and not reading.is_recording(path):
                raise RpcError(f"{name!r} would replace a file that is no recording: choose another name")
            others = sum(
                each.stat().st_size for each in self.path.rglob("*") if each.is_file() and each.resolve() != path
            )
        except OSError as error:
            raise RpcError(f"can't record to {path}: {error.strerror}") from None
        if others >= self.most_bytes:
            raise RpcError(
                f"the folder {self.path} has {others >> 20} MiB of recordings, and may have {self.most_bytes >> 20}: "
                "delete some, or raise --recordings-mib"
            )
        return path, self.most_bytes - others
