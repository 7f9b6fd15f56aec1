"""YAML files that extend one another: reading and laying one over the other.

Owns the key ``extends`` and the sentences about files; knows no schema.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from contract.exits import Exit, ExitError


class ConfigError(ExitError):
    """A configuration that can't be used; the message is one sentence for a person (exit code 65)."""

    code = Exit.BAD_CONFIG


def read(path: Path, seen: tuple[Path, ...] = ()) -> dict[str, Any]:
    """Return the file's values laid over those of the file that it extends; ``seen`` are the files on the way here.

    Raises:
        ConfigError: missing, not YAML, not a mapping, or a circle of ``extends``.
    """
    resolved = path.resolve()
    if resolved in seen:
        raise ConfigError(f"{path}: `extends` goes in a circle: {' → '.join(p.name for p in (*seen, resolved))}.")
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except OSError as error:
        raise ConfigError(f"{path}: can't be read ({error.strerror}); give the path of a YAML file.") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: isn't YAML: {' '.join(str(error).split())}.") from None
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: holds a {type(values).__name__}, expected sections like `td3:` with keys below.")
    parent = values.pop("extends", None)
    if parent is None:
        return values
    return _merge(read(path.parent / str(parent), (*seen, resolved)), values)


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
