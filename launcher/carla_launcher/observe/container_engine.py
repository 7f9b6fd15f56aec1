"""What kind of engine runs the containers, and what follows: from what it says of itself, without prose.

Pure but for the look at the programs beside it. The answers of the SDK, or of ``docker info`` and ``docker version``,
are given.
"""

from __future__ import annotations

import platform
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from carla_run.readers import inner

NVIDIA = "nvidia"
"""Name of the runtime that the NVIDIA Container Toolkit registers, and the beginning of its GPUs' names in CDI."""
HOOKS = ("nvidia-container-runtime-hook", "nvidia-cdi-hook")
"""The toolkit's programs that an engine looks for as it starts: with one of them it takes reservations of a GPU."""
DOCTOR = "`python scripts/launch.py doctor`"
WITHOUT_CARLA = "go on without CARLA: --simulator carla-lite"


class Product(str, Enum):
    """Who made the engine that answers to ``docker``."""

    DOCKER = "Docker"
    DESKTOP = "Docker Desktop"
    PODMAN = "Podman"


@dataclass(frozen=True)
class ContainerEngine:
    """An engine that answers.

    Attributes:
        rootless: its containers' root is the user that runs it; any other user in there is a sub-uid outside.
        remapped: every user of its containers is a sub-uid outside (``userns-remap``).
        kernel: release of the kernel that its containers run on.
        runtimes: names and programs of those that a container can ask for.
        limits_memory: a container's limit of memory holds; a rootless engine without control groups drops it.
        cdi_gpu: it has found an NVIDIA GPU by CDI, and says so (from 28.3 on).
    """

    product: Product
    version: str
    kernel: str
    rootless: bool = False
    remapped: bool = False
    runtimes: frozenset[str] = frozenset()
    limits_memory: bool = True
    cdi_gpu: bool = False

    def __str__(self) -> str:
        kind = "rootless " if self.rootless else ""
        return f"{kind}{self.product.value} {self.version}" + (", under WSL2" if self.wsl else "")

    @property
    def wsl(self) -> bool:
        """Return whether Windows runs it."""
        return "microsoft" in self.kernel.lower()

    @property
    def runtime(self) -> str:
        """Return the runtime for containers with a GPU; empty where the engine has none and its default must do."""
        return NVIDIA if NVIDIA in self.runtimes else ""

    @property
    def register(self) -> str:
        """Return the commands that make the toolkit known to the engine."""
        if not self.rootless:
            return "sudo nvidia-ctk runtime configure --runtime=docker && sudo systemctl restart docker"
        return (
            "nvidia-ctk runtime configure --runtime=docker --config=$HOME/.config/docker/daemon.json && systemctl "
            "--user restart docker && sudo nvidia-ctk config --set nvidia-container-cli.no-cgroups --in-place"
        )

    def elsewhere(self, kernel: str | None = None) -> bool:
        """Return whether its containers run on another kernel than this one: a virtual machine's, another machine's."""
        return self.product is Product.DESKTOP or self.kernel not in ("", kernel or platform.release())

    def gives_gpu(self, hook: bool, kernel: str | None = None) -> bool | None:
        """Return whether a container can have a GPU; None where that can't be told from here.

        Args:
            hook: one of HOOKS is on this machine.
            kernel: of this machine.
        """
        if any(NVIDIA in runtime for runtime in self.runtimes) or self.cdi_gpu:
            return True
        if self.product is Product.DESKTOP:
            return None if self.wsl else False
        if self.product is Product.PODMAN or self.elsewhere(kernel):
            return None
        return hook


def engine_of(info: Mapping[str, Any], server: Mapping[str, Any]) -> ContainerEngine | None:
    """Return the engine; None if the answers are of none.

    Args:
        info: of ``docker info``, as the API or ``--format '{{json .}}'`` gives it; Podman's own form is known, too.
        server: of ``docker version``, its ``Server``; may be empty.
    """
    if "buildahVersion" in (host := inner(info, "host")):
        return _podman(info, host)
    if not info.get("ServerVersion"):
        return None
    options = {str(each).partition(",")[0] for each in info.get("SecurityOptions") or ()}
    devices = [each for each in info.get("DiscoveredDevices") or () if isinstance(each, dict)]
    return ContainerEngine(
        _product(info, server),
        str(info["ServerVersion"]),
        str(info.get("KernelVersion", "")),
        rootless="name=rootless" in options,
        remapped="name=userns" in options,
        runtimes=_runtimes(inner(info, "Runtimes")),
        limits_memory=info.get("MemoryLimit") is not False,
        cdi_gpu=any(str(each.get("ID", "")).startswith(f"{NVIDIA}.com/gpu") for each in devices),
    )


def _product(info: Mapping[str, Any], server: Mapping[str, Any]) -> Product:
    components = [each.get("Name") for each in server.get("Components") or () if isinstance(each, dict)]
    if "Podman Engine" in components or "BuildahVersion" in info:
        return Product.PODMAN
    desktop = Product.DESKTOP.value
    named = str(inner(server, "Platform").get("Name", ""))
    return Product.DESKTOP if info.get("OperatingSystem") == desktop or named.startswith(desktop) else Product.DOCKER


def _runtimes(found: Mapping[str, Any]) -> frozenset[str]:
    paths = (str(each.get("path", "")) for each in found.values() if isinstance(each, dict))
    return frozenset([*found, *filter(None, paths)])


def _podman(info: Mapping[str, Any], host: Mapping[str, Any]) -> ContainerEngine:
    version = str(inner(info, "version").get("Version", "of an unknown version"))
    rootless = inner(host, "security").get("rootless") is True
    return ContainerEngine(Product.PODMAN, version, str(host.get("kernel", "")), rootless)


def has_hook(path: str | None = None) -> bool:
    """Return whether the toolkit's hook is on this machine; ``path`` as PATH is written."""
    return any(shutil.which(name, path=path) for name in HOOKS)


def no_gpu(engine: ContainerEngine, hook: bool, kernel: str | None = None) -> str:
    """Return why CARLA's container has no GPU, and what to do, as a sentence; empty where nothing says so."""
    if engine.wsl:
        return (
            "NVIDIA's driver has no Vulkan under WSL2, so CARLA finds no GPU in a container: run CARLA on Windows and "
            f"give --simulator-host, or {WITHOUT_CARLA}."
        )
    if engine.gives_gpu(hook, kernel) is not False:
        return ""
    if engine.product is Product.DESKTOP:
        return (
            "Docker Desktop runs containers in a virtual machine, which has no GPU here: use Docker Engine "
            f"(`docker context use default`), or {WITHOUT_CARLA}."
        )
    return (
        f"{engine} can't give a container the GPU: install the NVIDIA Container Toolkit, then `{engine.register}` "
        f"({DOCTOR} looks for it), or {WITHOUT_CARLA}."
    )


def not_counted(engine: ContainerEngine, kernel: str | None = None) -> str:
    """Return which figures of the containers can't be trusted, as a sentence; empty where all can."""
    if not engine.elsewhere(kernel):
        limits = "CARLA_MEMORY and AGENT_MEMORY are no limits"
        return "" if engine.limits_memory else f"{engine} has no control groups: {limits}, and aren't planned with."
    return f"{engine} runs its containers on another kernel: what they hold of RAM isn't counted, nor leaks seen."
