"""Disks for tests: one that is really full, and a directory that no user, not even root, can write to."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
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
