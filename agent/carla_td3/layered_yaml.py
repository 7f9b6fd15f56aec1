"""YAML files that extend one another: reading and laying one over the other.

Owns the key ``extends``, the presets that a name stands for, and the sentences about files; knows no schema.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from carla_run.configuration import yaml_file
from carla_run.exits import Exit, ExitError
from carla_run.paths import names_preset

PRESETS = Path(__file__).with_name("presets")


class ConfigError(ExitError):
    """A configuration that can't be used; the message is one sentence for a person (exit code 65)."""

    code = Exit.BAD_CONFIG

    def __init__(self, sentence: str, key: str = "") -> None:
        """Say what is wrong; ``key`` is the dotted key whose value it is, empty where it is no single one's."""
        super().__init__(sentence)
        self.key = key


def read(path: Path) -> dict[str, Any]:
    """Return the file's values laid over those of the file that it extends.

    Args:
        path: of a file, or the name of a preset, as ``extends`` may have, too.

    Raises:
        ConfigError: missing, not YAML, not a mapping, or a circle of ``extends``.
    """
    return _read(_file(path, Path()), ())


def _read(path: Path, seen: tuple[Path, ...]) -> dict[str, Any]:
    """Return as :func:`read`; ``seen`` are the files on the way here."""
    resolved = path.resolve()
    if resolved in seen:
        raise ConfigError(f"{path}: `extends` goes in a circle: {' → '.join(p.name for p in (*seen, resolved))}.")
    values = mapping(path)
    parent = values.pop("extends", None)
    if parent is None:
        return values
    return _merge(_read(_file(Path(str(parent)), path.parent), (*seen, resolved)), values)


def presets() -> dict[str, Path]:
    """Return the files of this package that ``--config`` and ``extends`` take by name."""
    return {each.stem: each for each in sorted(PRESETS.glob("*.yaml"))}


def _file(name: Path, folder: Path) -> Path:
    """Return the file that a name in a folder stands for: one that is there, else a preset."""
    if not names_preset(name, folder):
        return folder / name
    known = presets()
    if str(name) not in known:
        raise ConfigError(f"{name}: neither a file nor a preset; the presets are {', '.join(known)}.")
    return known[str(name)]


def mapping(path: Path) -> dict[str, Any]:
    """Return what a YAML file holds; nothing, where it is empty.

    Raises:
        ConfigError: missing, not YAML, or not a mapping.
    """
    try:
        values = yaml_file.read(path)
    except yaml_file.YamlError as error:
        raise ConfigError(f"{path}: {error}.") from None
    if values is not None and not isinstance(values, dict):
        raise ConfigError(f"{path}: holds a {type(values).__name__}, expected sections like `td3:` with keys below.")
    return values or {}


def _merge(base: dict[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in over.items():
        both = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = _merge(merged[key], value) if both else value
    return merged


def assign(values: dict[str, Any], dotted: str, value: Any) -> None:
    """Set ``values["a"]["b"]`` for the dotted key ``a.b``, in place.

    Raises:
        ConfigError: a part of the way is no section.
    """
    *sections, key = dotted.split(".")
    for section in sections:
        inner = values.setdefault(section, {})
        if not isinstance(inner, dict):
            raise ConfigError(f"{dotted}: {section} holds {inner!r}, expected a section.")
        values = inner
    values[key] = value
