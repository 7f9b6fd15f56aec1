"""A GPU for programs under test: stand-ins for the driver's C libraries, and the figures that they tell.

Owns the building of them and the figures' file (nvml.c describes it). Programs get it by their environment; a test's
own process never loads the stub, for it would keep it for all tests that follow.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import pytest

GPU_IS_LOST = 15
SOURCES = {"nvml.c": "libnvidia-ml.so.1", "cuda.c": "libcuda.so.1"}


VULKAN = "libGLX_nvidia.so.0"


def build(folder: Path) -> Path:
    """Return a new folder of the libraries, for LD_LIBRARY_PATH; skip the test where there is no C compiler."""
    libraries = folder / "gpu_stub"
    libraries.mkdir()
    for source, library in SOURCES.items():
        _compile(source, libraries / library)
    return libraries


def build_vulkan(folder: Path, needs: str = "") -> Path:
    """Return the stand-in for NVIDIA's Vulkan driver, needing one library or none; skip without a C compiler."""
    needed = []
    if needs:
        _compile("vulkan.c", folder / needs, "-nostdlib")
        needed = ["-Wl,--no-as-needed", str(folder / needs)]
    _compile("vulkan.c", folder / VULKAN, "-nostdlib", *needed)
    return folder / VULKAN


def _compile(source: str, library: Path, *more: str) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler (cc, gcc) for the stand-in of the GPU's driver")
    path = Path(__file__).with_name(source)
    command = [compiler, "-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", str(path), *more]
    built = subprocess.run(
        [*command, f"-Wl,-soname,{library.name}", "-o", str(library)], check=False, capture_output=True, text=True
    )
    assert built.returncode == 0, built.stderr


@dataclass
class Figures:
    """Figures that the stub reports for one GPU; each change applies as a whole, from the next call on.

    Attributes:
        after: number of calls that ``fails`` and ``fails_to_begin`` leave alone, counted from when it changed.
        second: of another GPU in the same machine, with an index of its own; None for a machine of one.
    """

    path: Path
    libraries: Path
    total_mib: float = 5745
    reserved_mib: float = 0
    unlisted_mib: float = 0
    uuid: str = "GPU-stub"
    driver: str = "550.54"
    index: int = 0
    fails: int = 0
    fails_to_begin: int = 0
    after: int = 0
    unlistable: bool = False
    lines: dict[tuple[int, str], str] = field(default_factory=dict)
    second: Figures | None = None

    def __post_init__(self) -> None:
        self.path.with_name(f"{self.path.name}.d").mkdir()
        self.write()

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment of a program that shall see this GPU, and the second if there is one."""
        libraries = ":".join(filter(None, (str(self.libraries), os.environ.get("LD_LIBRARY_PATH"))))
        second = {} if self.second is None else {"GPU_STUB_SECOND": str(self.second.path)}
        return {**os.environ, "LD_LIBRARY_PATH": libraries, "GPU_STUB_FIGURES": str(self.path), **second}

    def hold(self, pid: int, mib: float | None, kind: str = "C", name: str = "") -> None:
        """Let a process hold so much, in the list of those that compute (C) or draw (G); None is told as unknown."""
        self.lines[pid, kind] = f"process {pid} {kind} {'none' if mib is None else mib} {name}".rstrip()
        self.write()

    def release(self, pid: int) -> None:
        """Let a process hold nothing."""
        self.lines = {key: line for key, line in self.lines.items() if key[0] != pid}
        self.write()

    def lose(self, lost: bool = True) -> None:
        """Let the GPU fall off the bus, or come back."""
        self.fails = GPU_IS_LOST if lost else 0
        self.write()

    def write(self) -> None:
        """Write all of it, after an attribute was set."""
        temporary = self.path.with_name(f"{self.path.name}.new")
        amounts = {"total": self.total_mib, "reserved": self.reserved_mib, "unlisted": self.unlisted_mib}
        reported = [
            *(f"{name} {mib}" for name, mib in amounts.items() if mib),
            f"uuid {self.uuid}",
            f"driver {self.driver}",
            f"index {self.index}",
            f"init {self.fails_to_begin}",
            f"after {self.after}",
        ]
        flags = [*[f"fails {self.fails}"] * bool(self.fails), *["unlistable"] * self.unlistable]
        temporary.write_text("\n".join([*reported, *self.lines.values(), *flags]) + "\n")
        temporary.replace(self.path)
