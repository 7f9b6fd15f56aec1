"""The container engine: Docker, Docker Desktop or Podman, and whether it can give a container a GPU.

Works on the answers of the SDK, or of ``docker info`` and ``docker version``. Only :func:`has_hook` looks at the
machine.
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
"""Programs of the toolkit. An engine that finds one of them at its start accepts reservations of a GPU."""
DOCTOR = "`python scripts/launch.py doctor`"
WITHOUT_CARLA = "do without CARLA: --simulator carla-lite"


class Product(str, Enum):
    """Product behind the ``docker`` command."""

    DOCKER = "Docker"
    DESKTOP = "Docker Desktop"
    PODMAN = "Podman"


@dataclass(frozen=True)
class ContainerEngine:
    """A container engine that answers.

    Attributes:
        rootless: root in its containers is the user that runs the engine; other users there are sub-uids outside.
        remapped: every user in its containers is a sub-uid outside (``userns-remap``).
        kernel: release of the kernel that its containers run on.
        runtimes: names and programs of the runtimes that a container can ask for.
        limits_memory: it enforces memory limits; a rootless engine without control groups ignores them.
        cdi_gpu: it reports an NVIDIA GPU that it found by CDI (from version 28.3 on).
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
        """Return whether it runs under WSL2."""
        return "microsoft" in self.kernel.lower()

    @property
    def runtime(self) -> str:
        """Return the runtime for containers with a GPU; empty if the engine has only its default."""
        return NVIDIA if NVIDIA in self.runtimes else ""

    @property
    def register(self) -> str:
        """Return the commands that register the toolkit with the engine."""
        if not self.rootless:
            return "sudo nvidia-ctk runtime configure --runtime=docker && sudo systemctl restart docker"
        return (
            "nvidia-ctk runtime configure --runtime=docker --config=$HOME/.config/docker/daemon.json && systemctl "
            "--user restart docker && sudo nvidia-ctk config --set nvidia-container-cli.no-cgroups --in-place"
        )

    def elsewhere(self, kernel: str | None = None) -> bool:
        """Return whether its containers run on another kernel: of a virtual machine or of another machine."""
        return self.product is Product.DESKTOP or self.kernel not in ("", kernel or platform.release())

    def gives_gpu(self, hook: bool, kernel: str | None = None) -> bool | None:
        """Return whether a container can have a GPU; None if that can't be found out from here.

        Args:
            hook: this machine has one of HOOKS.
            kernel: this machine's kernel release.
        """
        if any(NVIDIA in runtime for runtime in self.runtimes) or self.cdi_gpu:
            return True
        if self.product is Product.DESKTOP:
            return None if self.wsl else False
        if self.product is Product.PODMAN or self.elsewhere(kernel):
            return None
        return hook


def engine_of(info: Mapping[str, Any], server: Mapping[str, Any]) -> ContainerEngine | None:
    """Return the engine that gave the answers; None if no engine did.

    Args:
        info: answer of ``docker info``, from the API or ``--format '{{json .}}'``; also in Podman's form.
        server: the ``Server`` part of ``docker version``; may be empty.
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
    """Return whether this machine has the toolkit's hook; ``path`` replaces PATH."""
    return any(shutil.which(name, path=path) for name in HOOKS)


def no_gpu(engine: ContainerEngine, hook: bool, kernel: str | None = None) -> str:
    """Return why CARLA's container can't have the GPU, with advice, as a sentence; empty if it can, or if unknown."""
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
        f"{engine} can't give a container the GPU: install the NVIDIA Container Toolkit, then run `{engine.register}` "
        f"(check with {DOCTOR}), or {WITHOUT_CARLA}."
    )


def not_counted(engine: ContainerEngine, kernel: str | None = None) -> str:
    """Return which memory figures of containers are missing, as a sentence; empty if all are known."""
    if not engine.elsewhere(kernel):
        limits = "it ignores CARLA_MEMORY and AGENT_MEMORY, and so does the plan"
        return "" if engine.limits_memory else f"{engine} has no control groups: {limits}."
    return f"{engine} runs its containers on another kernel: their RAM isn't measured, and leaks there aren't found."
