"""Disks for tests: one that is really full, one that turns read-only, and a directory that not even root can write."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
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

    def mount(self) -> None:
        """Mount it; after an error it is checked first, as at a boot."""
        subprocess.run(["e2fsck", "-p", "-f", str(self._image)], check=False, capture_output=True)
        subprocess.run(["mount", "-o", "loop,errors=remount-ro", str(self._image), str(self.path)], check=True)

    def unmount(self) -> None:
        """Unmount it; nothing may use it."""
        subprocess.run(["umount", str(self.path)], check=True)

    def fail(self) -> None:
        """Let the kernel meet an error: from here on it writes nothing more, and maps change in memory only."""
        (device,) = (line.split()[0] for line in Path("/proc/mounts").read_text().splitlines() if self._is_in(line))
        Path("/sys/fs/ext4", Path(device).name, "trigger_fs_error").write_text("1")

    def _is_in(self, line: str) -> bool:
        return line.split()[1] == str(self.path)


@contextlib.contextmanager
def failing_disk(folder: Path, mib: int) -> Iterator[FailingDisk]:
    """Give a disk that can turn read-only while the block lasts, or skip the test."""
    disk = FailingDisk(folder / "failing", folder / "image")
    disk.path.mkdir()
    with disk._image.open("wb") as image:
        image.truncate(mib * 2**20)
    try:
        subprocess.run(["mkfs.ext4", "-q", str(disk._image)], check=True, capture_output=True)
        disk.mount()
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("a disk that fails needs root, e2fsprogs, ext4 and a loop device")
    try:
        yield disk
    finally:
        subprocess.run(["umount", "-l", str(disk.path)], check=True)
