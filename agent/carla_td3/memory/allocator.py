"""Settings of PyTorch's CUDA allocator: the string, its grammar, and the two variables that carry it.

Owns the choice, the strict check and the environment variables. Never imports torch, which reads them once at import.
PyTorch's own parser isn't enough: a build without CUDA accepts unknown keys, no build refuses settings that exclude
each other, and errors come at first use, worded for programmers.
"""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from pathlib import Path

from carla_td3.config import MemoryConfig
from carla_td3.layered_yaml import ConfigError

VARIABLES = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
"""The old and the new name, always set alike: some releases ignore a key under one of them (facts.md section 3)."""

Value = bool | int | float | str
Settings = Mapping[str, Value]

SHIPPED = "expandable_segments:True,garbage_collection_threshold:0.8"
"""Default of docker-compose.yml, where the user sets nothing; the configuration's values win over it."""

_EXPANDABLE_SINCE = (2, 1)  # release notes of PyTorch 2.1
_ASYNC_SINCE = (2, 0)
# Defaults where segments can't grow.
_FALLBACK: Settings = {"max_split_size_mb": 128, "garbage_collection_threshold": 0.8}


@dataclass(frozen=True)
class Platform:
    """Facts that decide whether segments can grow."""

    torch: tuple[int, int]
    wsl: bool

    @classmethod
    def here(cls) -> Platform:
        """Return this machine's facts, without importing torch."""
        major, minor = importlib.metadata.version("torch").split(".")[:2]
        release = Path("/proc/sys/kernel/osrelease")
        return cls((int(major), int(minor)), release.exists() and "microsoft" in release.read_text().lower())

    @property
    def expandable(self) -> bool:
        """Whether growable segments can be expected to work; WSL2's driver can't provide them."""
        return self.torch >= _EXPANDABLE_SINCE and not self.wsl

    @property
    def version(self) -> str:
        """PyTorch's version, for messages."""
        return ".".join(map(str, self.torch))

    @property
    def unsupported_by(self) -> str:
        """Name of the part that doesn't support growable segments, for messages."""
        return "WSL2 has none" if self.wsl else f"torch {self.version} has none"


@dataclass(frozen=True)
class Choice:
    """The chosen settings, and why."""

    text: str
    cause: str
    dropped: str | None = None
    """A sentence on settings of the environment that aren't available here; None if all are."""


def prepare(memory: MemoryConfig, environment: MutableMapping[str, str], platform: Platform) -> Choice:
    """Set both variables alike and return the choice; call this before anything imports torch.

    A setting in the environment is the user's. It is checked, kept, and copied to the other variable, except settings
    that this machine doesn't support or that its other settings exclude, as recipes combine them. The container's
    default counts like the configuration's.

    Raises:
        ConfigError: the user's setting, or the configuration's, can't be used.
    """
    choice = _from_environment(memory, environment, platform) or _from_configuration(memory, platform)
    environment.update(dict.fromkeys(VARIABLES, choice.text))
    return choice


def _from_environment(memory: MemoryConfig, environment: Mapping[str, str], platform: Platform) -> Choice | None:
    given = {name: environment[name] for name in VARIABLES if environment.get(name, "").strip()}
    if not given:
        return None
    parsed = [parse(text, source=name) for name, text in given.items()]
    if any(each != parsed[0] for each in parsed):
        both = " and ".join(f"{name} is {text!r}" for name, text in given.items())
        raise ConfigError(f"{both}: give both the same value, or unset one.")
    asked, source = parsed[0], f"the environment's {' and '.join(given)}"
    if asked == parse(SHIPPED, "SHIPPED") and any(
        getattr(memory, key) != getattr(MemoryConfig(), key) for key in _OURS
    ):
        return None
    settings, why = _together(asked, platform)
    dropped = f"{source} {why}: PyTorch is told {render(settings)} instead." if why else None
    return Choice(render(settings), source, dropped)


def _together(asked: Settings, platform: Platform) -> tuple[Settings, str]:
    """Return the settings without those that this machine lacks or others exclude; and why, if any are dropped."""
    native = asked.get("backend") != "cudaMallocAsync"
    if native and asked.get("expandable_segments") is True and not platform.expandable:
        kept = {key: value for key, value in asked.items() if key != "expandable_segments"}
        return {**_FALLBACK, **kept}, f"asks for expandable_segments, but {platform.unsupported_by}"
    idle, why = _excluded(asked)
    return {key: value for key, value in asked.items() if key not in idle}, why if idle else ""


def _from_configuration(memory: MemoryConfig, platform: Platform) -> Choice:
    settings, cause = build(memory, platform)
    idle, why = _excluded(settings)
    if idle:
        raise ConfigError(f"memory {why}: leave {', '.join(idle)} out, or choose backend: native.")
    return Choice(render(settings), cause)


def build(memory: MemoryConfig, platform: Platform) -> tuple[Settings, str]:
    """Return the settings for the configuration on this platform, and the reason in a few words.

    Raises:
        ConfigError: this PyTorch is too old for the configuration.
    """
    threshold = memory.garbage_collection_threshold
    collected: Settings = {} if threshold is None else {"garbage_collection_threshold": threshold}
    if memory.backend == "cudaMallocAsync":
        if platform.torch < _ASYNC_SINCE:
            raise ConfigError(
                f"memory.backend is cudaMallocAsync, but torch {platform.version} has none: set it to native."
            )
        grow: Settings = {"expandable_segments": True} if memory.expandable_segments is True else {}
        return {"backend": memory.backend, **grow, **collected}, "memory.backend"
    if memory.expandable_segments is True and platform.torch < _EXPANDABLE_SINCE:
        raise ConfigError(f"memory.expandable_segments is true, but torch {platform.version} has none: set it to auto.")
    if memory.expandable_segments is True or (memory.expandable_segments == "auto" and platform.expandable):
        return {"expandable_segments": True, **collected}, f"expandable segments with torch {platform.version}"
    reason = "switched off" if memory.expandable_segments is False else platform.unsupported_by
    return {**_FALLBACK, **collected}, f"no expandable segments: {reason}"


def render(settings: Settings) -> str:
    """Return the settings in PyTorch's format: ``key:value`` with commas between."""
    return ",".join(f"{key}:{value}" for key, value in settings.items())


def parse(text: str, source: str) -> dict[str, Value]:
    """Return the settings in a string, each checked; ``source`` is named in the error.

    Raises:
        ConfigError: one sentence on the first error.
    """
    settings: dict[str, Value] = {}
    for entry in _entries(text):
        key, colon, value = ("".join(part.split()) for part in entry.partition(":"))  # torch skips all white space
        if not colon or not value:
            raise ConfigError(f"{source}: {entry.strip()!r} is no setting, expected KEY:VALUE with commas between.")
        if key not in _KEYS:
            raise ConfigError(f"{source}: unknown key {key!r}; known are {', '.join(sorted(_KEYS))}.")
        if key in settings:
            raise ConfigError(f"{source}: {key} is given twice; keep one of them.")
        settings[key] = _read(key, value, source)
    return settings


def _entries(text: str) -> Iterator[str]:
    """Yield the parts between commas; commas within brackets belong to a list."""
    yield from re.split(r",(?![^\[]*\])", text)


def _read(key: str, value: str, source: str) -> Value:
    read, expected = _KEYS[key]
    found = read(value)
    if found is None:
        raise ConfigError(f"{source}: {key} is {value!r}, expected {expected}.")
    return found


def _excluded(settings: Settings) -> tuple[list[str], str]:
    """Return the settings that others exclude, which PyTorch would ignore or fail on, and why."""
    grows = settings.get("expandable_segments") is True
    if settings.get("backend") == "cudaMallocAsync":
        idle = [key for key in _NATIVE_ONLY if key in settings and (key != "expandable_segments" or grows)]
        return idle, f"has backend:cudaMallocAsync, which leaves the pool to the driver and ignores {', '.join(idle)}"
    # PyTorch doesn't apply the split limit to growable segments; releases before 2.5 can even fail.
    idle = ["max_split_size_mb"] if grows and "max_split_size_mb" in settings else []
    return idle, "has expandable_segments:True, which excludes max_split_size_mb"


def _one_of(*words: str) -> tuple[Callable[[str], Value | None], str]:
    return (lambda text: text if text in words else None), " or ".join(words)


def _whole(least: int) -> tuple[Callable[[str], Value | None], str]:
    return (
        lambda text: int(text) if re.fullmatch(r"[0-9]{1,9}", text) and int(text) >= least else None,
        f"a whole number of at least {least}",
    )


def _share(text: str) -> float | None:
    number = re.fullmatch(r"([0-9]+\.?|[0-9]*\.[0-9]+)(e-?[0-9]{1,2})?", text)
    return float(text) if number and 0 < float(text) < 1 else None


def _divisions(text: str) -> str | None:
    """Return ``4`` or ``[256:1,512:2,>:4]`` unchanged if valid; sizes in MiB and divisions are powers of two."""
    if re.fullmatch(r"[0-9]{1,9}", text):
        return text if _is_power_of_two(text) else None
    if not re.fullmatch(r"\[[0-9]{1,9}:[0-9]{1,9}(,([0-9]{1,9}|>):[0-9]{1,9})*\]", text):
        return None
    return text if all(map(_is_power_of_two, re.findall(r"[0-9]+", text))) else None


def _is_power_of_two(text: str) -> bool:
    return int(text).bit_count() == 1


_FLAG: tuple[Callable[[str], Value | None], str] = ({"True": True, "False": False}.get, "True or False, capitalised")
_NATIVE_ONLY = (
    "expandable_segments",
    "max_split_size_mb",
    "garbage_collection_threshold",
    "roundup_power2_divisions",
    "max_non_split_rounding_mb",
)
# Limits as in PyTorch's AllocatorConfig.cpp. per_process_memory_fraction is a configuration key, not a setting here.
_OURS = ("backend", "expandable_segments", "garbage_collection_threshold")  # of the section ``memory``
_KEYS: dict[str, tuple[Callable[[str], Value | None], str]] = {
    "backend": _one_of("native", "cudaMallocAsync"),
    "expandable_segments": _FLAG,
    "max_split_size_mb": _whole(20),
    "garbage_collection_threshold": (_share, "a number between 0 and 1"),
    "roundup_power2_divisions": (_divisions, "a power of 2, or a list of SIZE:DIVISIONS like [256:1,512:2,>:4]"),
    "max_non_split_rounding_mb": _whole(21),
    "pinned_use_background_threads": _FLAG,
    "pinned_use_cuda_host_register": _FLAG,
    "pinned_num_register_threads": _whole(1),
    "release_lock_on_cudamalloc": _FLAG,
}
