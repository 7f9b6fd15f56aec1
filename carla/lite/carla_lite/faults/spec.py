"""Converts ``KIND:KEY=VALUE,…`` to faults, and faults to a help text. Pure: begins nothing."""

from __future__ import annotations

import dataclasses
from typing import Any

from carla_lite.faults.fault import Fault, FaultError
from carla_lite.faults.kinds import KINDS

# CarlaUE4.sh returns 139 for a program that died by SIGSEGV, whatever its messages.
PRESETS: dict[str, tuple[str, ...]] = {
    name: (f"log:lines={name}", "exit:code=139")
    for name in ("vulkan-oom", "vulkan-allocation", "device-lost", "segfault", "port-taken")
}


def read(text: str) -> list[Fault]:
    """Return the faults in a text: one, or those of a preset, which all get the given keys.

    Raises:
        FaultError: unknown kind or key, or an impossible value.
    """
    kind, _, keys = text.strip().partition(":")
    parts = PRESETS.get(kind)
    if parts is None:
        return [_read(text, kind, keys)]
    return [fault for part in parts for fault in read(f"{part},{keys}" if keys else part)]


def help_text() -> str:
    """Return the kinds with their keys, one paragraph each."""
    first_lines = {name: (kind.__doc__ or "").partition("\n")[0] for name, kind in KINDS.items()}
    kinds = [f"{name}: {first_lines[name]} {_keys(kind)}" for name, kind in KINDS.items()]
    presets = f"{', '.join(PRESETS)}: Prints CARLA's messages and exits with 139, as CARLA does."
    return "\n\n".join([*kinds, presets])


def _read(text: str, name: str, keys: str) -> Fault:
    if name not in KINDS:
        raise FaultError(f"fault '{name}' doesn't exist, expected one of {', '.join([*KINDS, *PRESETS])}")
    kind = KINDS[name]
    given = dict(_value(kind, pair) for pair in keys.split(",") if keys)
    missing = [field.name for field in _fields(kind) if _is_required(field) and field.name not in given]
    if missing:
        raise FaultError(f"fault '{text}' lacks {missing[0]}, expected {name}:{missing[0]}=VALUE")
    fault = kind(**given)
    if fault.after_s is not None and fault.after_ticks is not None:
        raise FaultError(f"fault '{text}' has both after_s and after_ticks, expected one of them")
    if fault.triggered and fault.only_at_start:
        raise FaultError(f"fault '{text}' can only be at the start, expected neither after_s nor after_ticks")
    return fault


def _value(kind: type[Fault], pair: str) -> tuple[str, Any]:
    name, equals, value = pair.partition("=")
    field = next((field for field in _fields(kind) if field.name == name), None)
    if field is None or not equals:
        names = ", ".join(field.name for field in _fields(kind))
        raise FaultError(f"fault {kind.kind}: '{pair}' is no KEY=VALUE with one of the keys {names}")
    try:
        return name, field.metadata["read"](value)
    except ValueError:
        raise FaultError(f"fault {kind.kind}: {name} is '{value}', expected {field.metadata['expected']}") from None


def _fields(kind: type[Fault]) -> list[dataclasses.Field[Any]]:
    return [field for field in dataclasses.fields(kind) if field.metadata]


def _keys(kind: type[Fault]) -> str:
    shared = {field.name for field in _fields(Fault)}
    own = sorted((field for field in _fields(kind) if field.name not in shared), key=_is_required, reverse=True)
    return "; ".join(f"{field.name}: {field.metadata['expected']}" for field in own)


def _is_required(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING
