"""Dotted keys of nested mappings, and clauses on unknown keys and wrong values."""

from __future__ import annotations

import difflib
import json
from typing import Any, Dict, Iterator, List, Mapping, Sequence, Tuple

_ALIKE = 0.75
_SUGGESTED = 3
_SHORTEST_PART = 6
_SHOWN = 60


def leaves(values: Mapping[Any, Any], before: str = "") -> Iterator[Tuple[str, Any]]:
    """Yield the leaves of nested mappings by dotted key; an empty mapping is a leaf."""
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from leaves(value, f"{before}{key}.")
        else:
            yield f"{before}{key}", value


def at(values: Any, key: str) -> Any:
    """Return the value at a dotted key of nested mappings; None if there is none."""
    for part in key.split("."):
        values = values.get(part) if isinstance(values, Mapping) else None
    return values


def unknown(where: str, beside: Sequence[str], everywhere: Sequence[str], value: object = None) -> str:
    """Return a clause on an unknown key, with similar keys, else with the keys of its section.

    Args:
        where: the dotted key.
        beside: names of the keys in its section.
        everywhere: dotted keys of the whole model.
        value: the key's value.
    """
    meant = _meant(where, beside, everywhere, value)
    if meant:
        return f"unknown key `{where}` (did you mean {' or '.join(f'`{each}`' for each in meant)}?)"
    return f"unknown key `{where}`" + (f"; known here: {', '.join(beside)}" if beside else "")


def invalid_value(where: str, value: object, expected: str) -> str:
    """Return a clause on a value that doesn't fit; ``where`` is empty for the whole file."""
    return f"{f'`{where}`' if where else 'all of it'} is {shown(value)}; expected {expected}"


def shown(value: object) -> str:
    """Return a value as users write it."""
    if value is None:
        return "empty"
    nested = isinstance(value, (Mapping, list, tuple, bool))
    text = json.dumps(value, default=str, skipkeys=True) if nested else repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _meant(where: str, beside: Sequence[str], everywhere: Sequence[str], value: object) -> List[str]:
    """Return the keys that an unknown one may mean: a misspelt key of its section, else a key of another section."""
    section, _, name = where.rpartition(".")
    before = f"{section}." if section else ""
    if near := _alike(name, {each: f"{before}{each}" for each in beside}):
        return near
    by_leaf: Dict[str, List[str]] = {}
    for key in everywhere:
        by_leaf.setdefault(key.rpartition(".")[2], []).append(key)
    inside = [key.rpartition(".")[2] for key, _ in leaves(value)] if isinstance(value, Mapping) else []
    for leaf in (name, *inside):
        if found := by_leaf.get(leaf) or _alike(leaf, {leaf: keys[0] for leaf, keys in by_leaf.items()}):
            return found[:_SUGGESTED]
        parts = [each for each in by_leaf if len(each) >= _SHORTEST_PART and each in leaf]
        if parts:
            return by_leaf[max(parts, key=len)][:_SUGGESTED]
    return []


def _alike(name: str, known: Mapping[str, str]) -> List[str]:
    """Return the full names of keys whose name is similar."""
    lower = {each.lower(): full for each, full in known.items()}
    if name.lower() in lower:
        return [lower[name.lower()]]
    return [lower[each] for each in difflib.get_close_matches(name.lower(), lower, _SUGGESTED, _ALIKE)]
