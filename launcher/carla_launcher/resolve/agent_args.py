"""The arguments that ``up`` passes to ``python -m carla_td3 train``, by the configuration key that each sets.

Finds two spellings of one setting. Checks no values: the agent does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from carla_launcher.resolve.footprint import program

Words = tuple[str, ...]

KEYS: Mapping[str, tuple[str, ...]] = program().options
"""The agent's named options and the keys that they set; they override ``--set``."""
OWN = {name: KEYS[f"--{name.replace('_', '-')}"][0] for name in ("map", "seed", "max_timesteps", "device")}
"""Options of ``up`` that the launcher also passes on, with their keys."""


def by_key(words: Sequence[str]) -> dict[str, Words]:
    """Return the words by the key that they set, else by the option's name; later words override earlier ones."""
    settings: dict[str, Words] = {}
    named: dict[str, Words] = {}
    for name, values in _options(words):
        if name == "--set" and values:
            settings[values[0].partition("=")[0].strip()] = (name, *values)
        elif name in KEYS and values:
            named |= _keys_of(name, values)
        else:
            named[name] = (name, *values)
    return {**settings, **named}


def settings(words: Sequence[str]) -> Words:
    """Return the ``KEY=VALUE`` of ``--set``, without keys that a named option sets."""
    return tuple(value for each in by_key(words).values() if each[0] == "--set" for value in each[1:2])


def joined(found: Mapping[str, Words]) -> Words:
    """Return the words as arguments for the agent."""
    return tuple(word for words in found.values() for word in words)


def value(words: Words) -> str:
    """Return an option's value as text."""
    return words[-1].partition("=")[2] if words[0] == "--set" else " ".join(words[1:]) or "given"


def _keys_of(name: str, values: Words) -> dict[str, Words]:
    keys = KEYS[name]
    if len(keys) == 1:
        return {keys[0]: (name, *values)}
    return {key: ("--set", f"{key}={values[0]}", *values[1:]) for key in keys}


def _options(words: Sequence[str]) -> Iterator[tuple[str, Words]]:
    """Yield each option's name with its values, ``--name=value`` as ``--name value``."""
    groups: list[list[str]] = []
    for word in words:
        if word.startswith("--") or not groups:
            groups.append(list(word.split("=", 1)) if word.startswith("--") else [word])
        else:
            groups[-1].append(word)
    yield from ((name, tuple(values)) for name, *values in groups)
