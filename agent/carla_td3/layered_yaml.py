"""YAML files that extend one another: reading and merging them.

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
        """Say what is wrong; ``key`` is the dotted key of the wrong value, empty if there is no single one."""
        super().__init__(sentence)
        self.key = key


def read(path: Path) -> dict[str, Any]:
    """Return the file's values, merged over those of the file that it extends.

    Args:
        path: of a file, or the name of a preset; ``extends`` takes both, too.

    Raises:
        ConfigError: missing, not YAML, not a mapping, or a circle of ``extends``.
    """
    return _read(_file(path, Path()), ())


def _read(path: Path, seen: tuple[Path, ...]) -> dict[str, Any]:
    """Like :func:`read`; ``seen`` are the files that led to this one."""
    resolved = path.resolve()
    if resolved in seen:
        raise ConfigError(f"{path}: `extends` goes in a circle: {' → '.join(p.name for p in (*seen, resolved))}.")
    values = mapping(path)
    parent = values.pop("extends", None)
    if parent is None:
        return values
    return _merge(_read(_file(Path(str(parent)), path.parent), (*seen, resolved)), values)


def presets() -> dict[str, Path]:
    """Return the files of this package that ``--config`` and ``extends`` accept by name."""
    return {each.stem: each for each in sorted(PRESETS.glob("*.yaml"))}


def _file(name: Path, folder: Path) -> Path:
    """Return the file for a name in a folder: an existing file, else a preset."""
    if not names_preset(name, folder):
        return folder / name
    known = presets()
    if str(name) not in known:
        raise ConfigError(f"{name}: neither a file nor a preset; the presets are {', '.join(known)}.")
    return known[str(name)]


def mapping(path: Path) -> dict[str, Any]:
    """Return the values of a YAML file; an empty file has none.

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
    """Set ``values["a"]["b"]`` for the dotted key ``a.b``, in place; a section leaves the keys that it doesn't name.

    Raises:
        ConfigError: a part of the key is no section.
    """
    *sections, key = dotted.split(".")
    for section in sections:
        if values.get(section) is None:  # a saved configuration says null for a section without values
            values[section] = {}
        inner = values[section]
        if not isinstance(inner, dict):
            raise ConfigError(f"{dotted}: {section} holds {inner!r}, expected a section.")
        values = inner
    values.update(_merge(values, {key: value}))
