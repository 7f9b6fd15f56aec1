"""Coverage of CARLA's API: every call, blueprint, attribute and field, and how far carla-lite supports it.

Owns the rows and how they are shown; each row is read from where the thing is declared. The only list is
``methods/client_calls.csv``, the calls of CARLA's client. ``carla-lite coverage`` prints the rows, and docs/coverage.md
is made from them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from enum import Enum
from os.path import commonprefix
from pathlib import Path

import click

import carla_lite.methods  # noqa: F401  (all methods are in the table only then)
from carla_lite.actors import physics_control
from carla_lite.actors.actor import KINDS, Actor
from carla_lite.blueprints.catalogue import CATALOGUE
from carla_lite.blueprints.sensors import REFUSED
from carla_lite.methods import table
from carla_lite.protocol import wire
from carla_lite.protocol.dialect import LATEST
from carla_lite.scenery import daylight
from carla_lite.support import WORKS, Status, Support, refused, without_effect

CLIENT_CALLS = frozenset((Path(table.__file__).with_name("client_calls.csv")).read_text(encoding="ascii").split()[1:])
"""The RPC methods that the client of CARLA 0.9.16 can call (LibCarla's client/detail/Client.cpp)."""


class Kind(str, Enum):
    """Kind of thing that a row describes."""

    CALL = "call"
    SENSOR = "sensor"
    BLUEPRINT = "blueprint"
    ATTRIBUTE = "attribute"
    FIELD = "field"


@dataclass(frozen=True)
class Row:
    """One thing of CARLA's API; an attribute is named BLUEPRINT: ATTRIBUTE, a field of a struct STRUCT.FIELD."""

    kind: Kind
    name: str
    status: Status
    how: str = ""


def rows() -> list[Row]:
    """Return every row."""
    return [*_calls(), *_blueprints(), *_attributes(), *_fields()]


def _calls() -> Iterator[Row]:
    has, absent = table.supported(), Support(Status.ABSENT, "the client can call it, and gets an error")
    for name in sorted(CLIENT_CALLS | has.keys()):
        yield Row(Kind.CALL, name, *has.get(name, absent))


def _blueprints() -> Iterator[Row]:
    for name in CATALOGUE:
        kind = Kind.SENSOR if name.startswith("sensor.") else Kind.BLUEPRINT
        yield Row(kind, name, *_spawned(name))


def _spawned(name: str) -> Support:
    return KINDS[name].support if name in KINDS else refused(REFUSED[name])


def _attributes() -> Iterator[Row]:
    """Yield the attributes of blueprints that can be spawned."""
    for blueprint in CATALOGUE.values():
        if blueprint.id in KINDS:
            for attribute in blueprint.attributes:
                yield Row(Kind.ATTRIBUTE, f"{blueprint.id}: {attribute.id}", *_given(attribute.unused))


def _fields() -> Iterator[Row]:
    weather = {name: "" if shown else "no picture shows it" for name, shown in daylight.SHOWN.items()}
    structs: dict[str, Mapping[str, str]] = {
        "VehiclePhysicsControl": physics_control.FIGURES,
        "WheelPhysicsControl": physics_control.WHEEL_FIGURES,
        "WeatherParameters": weather,
        "WorldSettings": wire.SETTINGS,
    }
    for struct, fields in structs.items():
        for name, unused in fields.items():
            yield Row(Kind.FIELD, f"{struct}.{name}", *_given(unused))


def _given(unused: str) -> Support:
    return without_effect(unused) if unused else WORKS


def counts(of: Iterable[Row]) -> dict[str, dict[str, int]]:
    """Return the number of rows of each kind with each status."""
    found = Counter((row.kind, row.status) for row in of)
    return {kind.value: {status.value: found[kind, status] for status in Status} for kind in Kind}


def grouped(of: Iterable[Row]) -> list[tuple[Status, str, list[str]]]:
    """Return what isn't fully supported: status, reason, and the names that share both, in the order of Status."""
    found: dict[tuple[Status, str], list[str]] = {}
    for row in of:
        if row.status is not Status.WORKS:
            found.setdefault((row.status, row.how), []).append(row.name)
    in_order = sorted(found.items(), key=lambda item: list(Status).index(item[0][0]))
    return [(status, how, _shortened(names)) for (status, how), names in in_order]


def _shortened(names: list[str]) -> list[str]:
    """Return the names, with families as patterns; attributes of the same blueprints are joined."""
    having: dict[str, list[str]] = {}
    for name in names:
        blueprint, _, attribute = name.partition(": ")
        having.setdefault(attribute, []).append(blueprint)
    attributes: dict[str, list[str]] = {}
    for attribute, blueprints in having.items():
        for pattern in _patterns(blueprints, attribute):
            attributes.setdefault(pattern, []).append(attribute)
    return [": ".join(filter(None, (pattern, ", ".join(found)))) for pattern, found in attributes.items()]


def _patterns(blueprints: list[str], attribute: str) -> list[str]:
    """Return ids; a family becomes a pattern if its whole kind has the attribute, or all that have it are listed."""
    kind = KINDS.get(blueprints[0], Actor)
    if attribute:
        known = [name for name in KINDS if any(each.id == attribute for each in CATALOGUE[name].attributes)]
    else:
        known = [name for name in KINDS if KINDS[name] is kind is not Actor]
    found, left = [], blueprints
    for parts in (1, 2):
        for prefix in dict.fromkeys(".".join(name.split(".")[:parts]) + "." for name in left):
            family = [name for name in known if name.startswith(prefix)]
            if len(family) > 1 and set(family) <= set(left):
                shared = commonprefix(family)  # noqa: RUF071 (ids, not paths)
                found.append(f"{shared.rpartition('.')[0]}.*")
                left = [name for name in left if name not in family]
    return [*found, *left]


def report(of: list[Row]) -> str:
    """Return the counts, and what isn't fully supported, for people."""
    lines = [f"carla-lite and the API of CARLA {LATEST.version}", ""]
    for kind, found in counts(of).items():
        lines.append(f"{kind + 's':<11}" + ", ".join(f"{count} {status}" for status, count in found.items() if count))
    for kind in Kind:
        for status, how, names in grouped(row for row in of if row.kind is kind):
            lines += ["", f"{kind.value}, {status.value}: {how}", *(f"    {name}" for name in names)]
    return "\n".join(lines)


@click.command()
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print every row as JSON: kind, name, status, and the reason if it isn't fully supported.",
)
def main(as_json: bool) -> None:
    """Print what carla-lite supports of CARLA's API, and what it approximates, ignores or refuses."""
    found = rows()
    if as_json:
        told = {"carla": LATEST.version, "counts": counts(found), "rows": [asdict(row) for row in found]}
        print(json.dumps(told, indent=1, ensure_ascii=False))
    else:
        print(report(found))
