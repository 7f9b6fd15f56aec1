"""Disks for tests: one that is really full, one that turns read-only, and a directory that not even root can write."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest


@contextlib.contextmanager
def small_disk(folder: Path, mib: int) -> Iterator[Path]:
    """Mount a file system of so many MiB in a folder while the block lasts, or skip the test."""
    disk = folder / "disk"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={mib}m", "tmpfs", str(disk)]
    if os.geteuid() != 0 or subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("mounting a small file system needs root, and a kernel that lets it")
    try:
        yield disk
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


def fill(disk: Path) -> Path:
    """Leave no byte free on a disk; return the file that takes them."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(bytes(4096)):
            pass
    return filler


@contextlib.contextmanager
def read_only(directory: Path) -> Iterator[None]:
    """Make a directory read-only while the block lasts; root, whom permissions don't stop, by a read-only mount."""
    if os.geteuid() != 0:
        directory.chmod(0o500)
        yield
        directory.chmod(0o700)
        return
    for command in (["mount", "--bind"], ["mount", "-o", "remount,bind,ro"]):
        if subprocess.run([*command, str(directory), str(directory)], check=False, capture_output=True).returncode:
            pytest.skip("a read-only mount needs a kernel that lets root make one")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(directory)], check=True)


@dataclass
class FailingDisk:
    """An ext4 file system in a file, mounted so that an error makes it read-only, as distributions mount theirs."""

    path: Path
    _image: Path
    _errors: str = "remount-ro"

    def mount(self) -> None:
        """Mount it; after an error it is checked first, as at a boot."""
        subprocess.run(["e2fsck", "-p", "-f", str(self._image)], check=False, capture_output=True)
        subprocess.run(["mount", "-o", f"loop,errors={self._errors}", str(self._image), str(self.path)], check=True)

    def unmount(self) -> None:
        """Unmount it; nothing may use it."""
        subprocess.run(["umount", str(self.path)], check=True)

    def fail(self) -> None:
        """Let the kernel meet an error: from here on it writes nothing more, and maps change in memory only."""
        Path("/sys/fs/ext4", Path(self._device()).name, "trigger_fs_error").write_text("1")

    def break_off(self, file: Path, *, known: Iterable[Path] = (), after: int = 0) -> None:
        """Let every block from this file's first on fail with EIO, for reading and for writing.

        Args:
            file: on this disk, which nothing uses.
            known: files that the kernel has in memory, and need not read.
            after: bytes of the file before the first block that fails.
        """
        self.unmount()
        self.mount()
        for path in known:
            path.read_bytes()
        listed = subprocess.run(["filefrag", "-v", str(file)], check=True, capture_output=True, text=True).stdout
        (first,) = re.findall(r"^ +0: +0\.\. *\d+: +(\d+)\.\.", listed, re.MULTILINE)
        self.cut(int(first) * os.statvfs(self.path).f_frsize + after // 4096 * 4096)

    def cut(self, size: int) -> None:
        """Take the device's end away, under the mounted file system."""
        device = self._device()
        os.truncate(self._image, size)
        subprocess.run(["losetup", "-c", device], check=True)

    def _device(self) -> str:
        (device,) = (line.split()[0] for line in Path("/proc/mounts").read_text().splitlines() if self._is_in(line))
        return device

    def _is_in(self, line: str) -> bool:
        return line.split()[1] == str(self.path)


@contextlib.contextmanager
def failing_disk(folder: Path, mib: int, *, goes_on: bool = False) -> Iterator[FailingDisk]:
    """Give a disk that can fail while the block lasts, or skip the test.

    Args:
        folder: of the disk and its image.
        mib: its size.
        goes_on: it has no journal, and isn't made read-only by an error: only its broken blocks fail.
    """
    disk = FailingDisk(folder / "failing", folder / "image", "continue" if goes_on else "remount-ro")
    without = ("-O", "^has_journal") if goes_on else ()
    disk.path.mkdir()
    with disk._image.open("wb") as image:
        image.truncate(mib * 2**20)
    try:
        subprocess.run(["mkfs.ext4", "-q", *without, str(disk._image)], check=True, capture_output=True)
        disk.mount()
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("a disk that fails needs root, e2fsprogs, ext4 and a loop device")
    try:
        yield disk
    finally:
        subprocess.run(["umount", "-l", str(disk.path)], check=True)
