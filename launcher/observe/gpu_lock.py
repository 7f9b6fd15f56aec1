"""One launcher a GPU: a lock that every user's launcher sees. Owns one small file a GPU, which stays when it is free.

Deleting it would let two launchers hold two files of one name. Cleaners of temporary files leave a locked one alone
(tmpfiles.d(5), "Age"), and the lock goes with the last process that holds ``descriptor``, however that ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pwd
import stat
from pathlib import Path

from contract.exits import Exit, ExitError

SHARED = Path("/tmp")  # not TMPDIR or XDG_RUNTIME_DIR: each user has his own
_SAYS_BYTES = 200


class GpuInUseError(ExitError):
    """Another launcher holds this GPU; the message is one sentence for a person."""

    code = Exit.BAD_CONFIG


class GpuLock:
    """The right to plan with a GPU's memory.

    Keepers of the run's programs may inherit ``descriptor``: the GPU of a launcher that was killed stays taken until
    they have gone, too.
    """

    def __init__(self, uuid: str, run: str, directory: Path = SHARED) -> None:
        """Take it.

        Args:
            uuid: the GPU's; its index may differ between programs.
            run: told to whoever comes next.

        Raises:
            GpuInUseError: somebody else has it, or the file in the shared directory can't be opened.
        """
        path = directory / f"carla-td3-{uuid}.lock"
        try:
            self.descriptor = _locked(path)
        except BlockingIOError as error:
            raise GpuInUseError(
                f"GPU {uuid} is held by another launcher ({error}): wait for its end, or use --device cpu with a "
                "simulator that needs no GPU."
            ) from None
        except OSError as error:
            raise GpuInUseError(
                f"{path}, the lock of GPU {uuid}, can't be opened ({error.strerror}): remove it if no launcher runs."
            ) from None
        os.ftruncate(self.descriptor, 0)
        os.pwrite(self.descriptor, f"process {os.getpid()} of {_user()}, run {run}\n".encode(), 0)

    def release(self) -> None:
        """Give it back."""
        os.close(self.descriptor)


def _locked(path: Path) -> int:
    """Return the descriptor of the locked file; raise BlockingIOError with what its holder wrote into it."""
    while True:
        descriptor = _opened(path)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            said = os.pread(descriptor, _SAYS_BYTES, 0).decode(errors="replace").strip()
            os.close(descriptor)
            raise BlockingIOError("".join(filter(str.isprintable, said)) or "unknown") from None
        if _is_there(path, descriptor):
            return descriptor
        os.close(descriptor)  # it was deleted before it was locked


def _opened(path: Path) -> int:
    """Open the file whoever owns it, or create it for all.

    Not with O_CREAT alone: in a sticky directory the kernel refuses that for another user's file
    (fs.protected_regular, proc(5)). Links and devices that somebody laid there are refused.
    """
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    with contextlib.suppress(FileExistsError):
        descriptor = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o666)
        os.fchmod(descriptor, 0o666)  # whatever the umask
        return descriptor
    descriptor = os.open(path, flags)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(0, "not a regular file")
    return descriptor


def _is_there(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.lstat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _user() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"user {os.getuid()}"
