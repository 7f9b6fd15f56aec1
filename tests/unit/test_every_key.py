"""Each key of both configurations takes a value that makes sense, or refuses it in one sentence that names it."""

from __future__ import annotations

import copy
import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from pydantic import BaseModel

from carla_launcher import config as launcher
from carla_launcher.places import SHIPPED as SHIPPED_FILE
from carla_launcher.rungs.rung import Rung
from carla_run.configuration import program_file
from carla_run.configuration.section import keys_of, model_in
from carla_run.exits import Exit
from carla_run.records import LARGEST
from carla_td3 import config as agent

PATH = tuple[str | int, ...]
NUMBERS = {"nan": math.nan, "infinity": math.inf, "minus one": -1, "zero": 0, "too large": LARGEST + 1, "1e30": 1e30}
OTHERS: dict[str, Any] = {
    "true": True,
    "null": None,
    "text": "x",
    "a list": [],
    "nothing": {},
    "an unknown key": {"foo": 1},
}
VALUES = {**NUMBERS, **OTHERS}

BELOW_ZERO = {
    f"environment.camera.{key}" for key in ("x_m", "yaw_deg", "pitch_deg", "narrow.yaw_deg", "narrow.pitch_deg")
}
EMPTY_LISTS = {"simulator.others", "environment.weather", "memory.offload", "cluster.simulator"} | {
    *("ladder.ram.4.after", "rungs", "rungs.0.pools", "rungs.0.by_itself")
}
NULL_IS_NONE = {"environment.weather"}
PHASES = "memory_by_phase"
# Of several keys exactly one is given: tests/unit/contract has them.
ONE_OF = {
    *("routes", "routes.items", "resume", "resume.words", "resume.command", "checkpoint.signal", "checkpoint.touch"),
    *("alive.log", "alive.file", "alive.folder"),
    *(f"routes.items.{key}" for key in ("names", "routes_xml", "lines_of", "command")),
    *(f"routes.{key}" for key in ("done", "failed", "again")),
    *(
        f"routes.{key}.{sign}"
        for key in ("done", "failed", "again")
        for sign in ("exit_codes", "result", "result_has", "output_has", "sure")
    ),
}


@dataclass(frozen=True)
class Key:
    """One key of a configuration, or one value of a list or a dictionary that a key holds."""

    path: PATH
    types: frozenset[Any]
    section: bool = False

    def __str__(self) -> str:
        return ".".join(map(str, self.path))


def types(annotation: Any) -> Iterator[Any]:
    inner = get_args(annotation)
    for each in inner:
        yield from types(each)
    if not inner:
        yield annotation


def keys(model: type[BaseModel], before: PATH = ()) -> Iterator[Key]:
    for name, annotation in keys_of(model).items():
        path = (*before, *name.split("."))
        yield Key(path, frozenset(types(annotation)), model_in(annotation) is not None)


def agent_keys() -> list[Key]:
    within = [
        Key(("td3", "network", "hidden", 1), frozenset({int})),
        Key(("td3", "network", "channels", 2), frozenset({int})),
        Key(("environment", "traffic", "walkers", 1), frozenset({int})),
        Key(("environment", "weather", 0), frozenset()),
        Key(("simulator", "others", 0), frozenset()),
        Key(("memory", "offload", 0), frozenset()),
    ]
    return [*keys(agent.AgentConfig), *within]


def launcher_keys() -> list[Key]:
    figures = {"memory.reserve_mib": "vram", "memory.oom_step_mib": "ram", "sizes.vram_mib": "Low"}
    within = [Key((*name.split("."), key), frozenset({float})) for name, key in figures.items()]
    rungs = [key for key in keys(Rung, ("ladder", "ram", 4)) if key.path[-1] != "values"]
    return [
        *keys(launcher.LauncherConfig),
        *within,
        *rungs,
        Key(("ladder", "ram", 4, "frees_mib", "ram"), frozenset({float})),
    ]


def program_keys() -> list[Key]:
    mappings = (
        "stands_for",
        "heartbeat",
        "options",
        "smaller",
        "without_evaluation",
        "settings",
        "exits",
        "environment",
    )
    own = [key for key in keys(program_file.ProgramFile) if key.path[-1] not in mappings and str(key) not in ONE_OF]
    rungs = [key for key in keys(program_file.ProgramRung, ("rungs", 0)) if key.path[-1] != "values"]
    within = [
        Key(("rungs", 0, "frees_mib", "ram"), frozenset({float})),
        Key(("memory", "ram"), frozenset({float})),
        Key(("memory_by_phase", "evaluating", "vram"), frozenset({float})),
        Key(("settings", "key", "key"), frozenset({str, type(None)})),
    ]
    return [*own, *rungs, *within]


SHIPPED = json.loads(json.dumps(yaml.safe_load(SHIPPED_FILE.read_text(encoding="utf-8"))))  # no anchors
BEFORE = Path(__file__).parent / "launcher" / "ladder_before.yaml"
BASES: dict[str, Any] = {
    "agent": {
        "td3": {"network": {"hidden": [8, 8], "channels": [8, 8, 8]}},
        "environment": {"traffic": {"walkers": [0, 1]}, "weather": ["ClearNoon"]},
        "simulator": {"others": ["a:1"]},
        "memory": {"offload": ["targets"]},
    },
    "launcher": SHIPPED | yaml.safe_load(BEFORE.read_text(encoding="utf-8")),
    "program": {
        "rungs": [{"name": "less", "values": {"key": "half"}}],
        "resume": {"words": ["--resume"]},
        "settings": {"key": {"word": "--key"}},
        "done": {"file": "done"},
        "alive": {"log": "step", "within_s": 60, "first_within_s": 60},
        "checkpoint": {"signal": "SIGUSR1", "shows": "saved"},
        "routes": {"items": {"names": ["a"]}, "command": ["drive", "{item}"]},
    },
}
KEYS = {"agent": agent_keys(), "launcher": launcher_keys(), "program": program_keys()}
VALIDATE: dict[str, Callable[[Any, str], object]] = {
    "agent": agent.validate,
    "launcher": launcher.validate,
    "program": program_file.validate,
}


def put(values: Any, path: Sequence[str | int], value: object) -> None:
    *sections, last = path
    for part in sections:
        if isinstance(values, dict):
            values[part] = values.get(part) or {}
        values = values[part]
    values[last] = value


def given(which: str, key: Key, value: object) -> str | None:
    """Return the refusal of a value, None where it is taken; nothing else may be raised."""
    values = copy.deepcopy(BASES[which])
    put(values, key.path, value)
    try:
        VALIDATE[which](values, "file.yaml")
    except (agent.ConfigError, launcher.LauncherConfigError, program_file.ProgramFileError) as refused:
        return str(refused)
    return None


def takes(key: Key, name: str) -> bool:
    """Return whether a value of this kind may make sense for a key."""
    number = bool({int, float} & key.types) and not key.section
    if name in ("nan", "infinity", "too large", "an unknown key", "1e30"):
        return False
    if name == "minus one":
        return str(key) in BELOW_ZERO or "frees_mib" in str(key)
    return {
        "zero": number or bool in key.types,
        "true": bool in key.types,
        "null": type(None) in key.types or str(key) in NULL_IS_NONE,
        "text": bool({str, Path} & key.types),
        "a list": str(key) in EMPTY_LISTS,
        "nothing": key.section or str(key).endswith(("frees_mib", "most_mib", "memory")) or key.path[0] == PHASES,
    }[name]


def test_what_is_refused_ends_a_program_with_65() -> None:
    assert {agent.ConfigError.code, launcher.LauncherConfigError.code} == {Exit.BAD_CONFIG}


@pytest.mark.parametrize("which", KEYS)
@pytest.mark.parametrize("name", VALUES)
def test_a_value_that_makes_no_sense_is_refused_in_a_sentence(which: str, name: str) -> None:
    for key in KEYS[which]:
        refusal = given(which, key, VALUES[name])
        if refusal is None:
            assert takes(key, name) or (name == "1e30" and float in key.types), f"{key} takes {name}"
            continue
        assert re.fullmatch(r"file\.yaml: [^\n]+[^.\n]\.", refusal), refusal
        assert str(key.path[-1]) in refusal or str(key.path[-2]) in refusal, (str(key), refusal)
        assert not re.search("pydantic|<class|[Ii]nput|dictionary|tuple|None|instance of", refusal), refusal


@pytest.mark.parametrize("which", KEYS)
def test_an_optional_value_and_an_optional_section_can_be_left_out(which: str) -> None:
    for key in KEYS[which]:
        if type(None) in key.types:
            assert given(which, key, None) is None, str(key)


@pytest.mark.parametrize("which", KEYS)
def test_a_key_beside_each_key_is_unknown_and_its_neighbour_is_suggested(which: str) -> None:
    for key in KEYS[which]:
        if isinstance(key.path[-1], int):
            continue
        refusal = given(which, Key((*key.path[:-1], f"{key.path[-1]}x"), frozenset()), 1)
        assert refusal is not None, str(key)
        assert f"unknown key `{key}x` (did you mean `{key}`" in refusal
