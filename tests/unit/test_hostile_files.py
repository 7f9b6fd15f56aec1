"""Files that anybody could have broken: each reader answers with one sentence or with a use of what is left."""

from __future__ import annotations

import contextlib
import json
import lzma
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from carla_launcher import config as launcher_config
from carla_launcher.act.command import Command
from carla_launcher.act.compose.project import dotenv
from carla_launcher.act.launcher_state import UnusableStateError, read_previous
from carla_launcher.places import SHIPPED
from carla_launcher.show import dashboard, history
from carla_run import formats, requests
from carla_run.configuration import program_file
from carla_run.exits import ExitError
from carla_run.heartbeat import read_heartbeat
from carla_run.paths import RunPaths
from carla_run.records import text
from carla_td3 import config as agent_config
from carla_td3.evaluation.kept import KeptDrives
from carla_td3.run_directory import read_overrides
from carla_td3.td3.replay import index
from carla_td3.trainer import checkpoint

KEPT = Path(__file__).parents[1] / "kept" / "run-0.2"
PROGRAM = Path(agent_config.__file__).with_name("program.yaml")
EXAMPLES = 10
JUNK: st.SearchStrategy[Any] = st.sampled_from(
    (
        None,
        True,
        -1,
        0,
        1,
        2**63,
        10**400,
        1e308,
        float("nan"),
        float("inf"),
        "",
        "x",
        "1e6",
        "\x00",
        [],
        {},
        [[]],
        {"a": {"b": []}},
        ["a"] * 3,
        "2026-01-31",
    )
)


class Kind(NamedTuple):
    """A file of a run or a configuration: where it is, and what reads it."""

    place: str
    read: Callable[[Path], object]


def _status(run: Path) -> object:
    found = dashboard.status(RunPaths(run), 1e9)
    return json.dumps(found), dashboard.view(found)


def _recalled(run: Path) -> None:
    try:
        read_previous(RunPaths(run))
    except UnusableStateError as error:
        raise ExitError(str(error)) from None


def _heartbeat(run: Path) -> None:
    read_heartbeat(run / "agent.json")
    _status(run)


def _every_user(run: Path) -> None:
    _status(run)
    _recalled(run)


def _requested(run: Path) -> None:
    paths = RunPaths(run)
    requests.Inbox(paths).poll()
    requests.answer_to(paths, 1)
    requests.drained_by_person(paths)
    requests.is_open(paths)


def _own_file(run: Path) -> None:
    """Read a YAML file of a command's own, and make the copy of it in which a rung has changed a value."""
    setting = {"batch": {"yaml": "own.yaml", "key": "optim.batch"}}
    file = program_file.validate({"settings": setting}, "train.yaml")
    command = Command(("train", "own.yaml"), file, run)
    try:
        command.value("batch")
        command.start(False, {"batch": 8}, {}, run / "replay")
    except OSError as error:  # which LocalRuntime puts into a sentence
        raise ExitError(str(error)) from None


KINDS = {
    "launcher configuration": Kind("launcher.yaml", lambda run: launcher_config.load(run / "launcher.yaml")),
    "agent configuration": Kind("config.yaml", lambda run: agent_config.load(run / "config.yaml", {})),
    "overrides": Kind("overrides.yaml", lambda run: read_overrides(RunPaths(run))),
    "program file": Kind("program.yaml", lambda run: program_file.load(run / "program.yaml")),
    "launcher.json": Kind("launcher.json", _every_user),
    "journal": Kind("launcher-events.jsonl", lambda run: history.examine(RunPaths(run))),
    "agent's events": Kind("agent-events.jsonl", lambda run: history.examine(RunPaths(run))),
    "version": Kind("version.json", lambda run: formats.require_readable(RunPaths(run))),
    "heartbeat": Kind("agent.json", _heartbeat),
    "request": Kind("request.json", _requested),
    "answer": Kind("request.ack.json", _requested),
    "kept drives": Kind("a.drives-1.jsonl", lambda run: [*KeptDrives(run / "a.json", {}).others()]),
    "a command's own file": Kind("own.yaml", _own_file),
    "variables": Kind(".env", dotenv),
    "ring": Kind("replay/replay.json", lambda run: index.read(run / "replay")),
    "ring's copy": Kind("copied/replay.copy.json", lambda run: index.read(run / "copied")),
    "manifest": Kind("checkpoints/step-000000030/manifest.json", lambda run: checkpoint.load(run, {"a": 1})),
}


@pytest.fixture(scope="module")
def valid(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run's folder with a valid file of each kind."""
    run = tmp_path_factory.mktemp("hostile") / "run"
    shutil.copytree(KEPT, run)
    for packed in (run / "replay").glob("*.xz"):
        packed.with_suffix("").write_bytes(lzma.decompress(packed.read_bytes()))
    shutil.copytree(run / "replay", run / "copied")
    index.mend(run / "copied", index.read(run / "copied"))
    (run / "copied" / "replay.json").unlink()
    shutil.copy(SHIPPED, run / "launcher.yaml")
    shutil.copy(PROGRAM, run / "program.yaml")
    shutil.rmtree(run / "checkpoints")
    tensors = {"online.a": torch.zeros(4)}
    checkpoint.save(run, 30, tensors, {"updates": 3}, architecture={"a": 1}, config_digest="x", keep=1)
    (run / "overrides.yaml").write_text("td3: {micro_batch: 16}\n")
    requests.write_request(RunPaths(run), "apply", {"td3.micro_batch": 8})
    answer = requests.Answer(1, "apply", requests.Result.OK, "Done.", 10, 1, None)
    (run / "request.ack.json").write_text(text(answer))
    drive = {"route": "a>b", "success": True}
    (run / "a.drives-1.jsonl").write_text(
        f"{json.dumps({'settings': {'seed': 1}})}\n{json.dumps({'driver': 'pid', **drive})}\n"
    )
    (run / "own.yaml").write_text("optim: {batch: 256, lr: 0.1}\nname: a\n")
    (run / ".env").write_text("CARLA_GPU=0\n# a comment\nAGENT_MEMORY='8g'\n")
    return run


@st.composite
def broken_bytes(draw: st.DrawFn, valid: bytes) -> bytes:
    """Return the file with a few bytes changed, cut off, doubled or put in."""
    data = bytearray(valid)
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, max(0, len(data) - 1)))
        match draw(st.sampled_from(("flip", "cut", "drop", "insert", "double"))):
            case "flip" if data:
                data[at] ^= draw(st.integers(1, 255))
            case "cut":
                del data[at:]
            case "drop":
                del data[at : at + draw(st.integers(1, 60))]
            case "insert":
                data[at:at] = draw(
                    st.sampled_from(
                        (
                            b"\x00",
                            b"\xff\xfe",
                            b"[" * 3000,
                            b"{",
                            b"- ",
                            b"&a *a",
                            b"\n",
                            b"!!python/object:os.system x",
                        )
                    )
                )
            case _:
                data[at:at] = data[at : at + 200]
    return bytes(data)


@st.composite
def broken_values(draw: st.DrawFn, valid: Any) -> Any:
    """Return the values with one replaced, removed or renamed."""
    value = json.loads(json.dumps(valid))
    outer, key = {"all": value}, "all"
    while isinstance(outer[key], dict | list) and outer[key] and draw(st.integers(0, 4)):
        inner = outer[key]
        outer, key = inner, draw(st.sampled_from(sorted(inner) if isinstance(inner, dict) else range(len(inner))))
    match draw(st.sampled_from(("replace", "remove", "rename", "deepen"))):
        case "remove" if outer is not value or key != "all":
            del outer[key]
        case "rename" if isinstance(outer, dict):
            outer[draw(st.sampled_from(("", "x", "all", "_schema")))] = outer.pop(key)
        case "deepen":
            outer[key] = [outer[key]]
        case _:
            outer[key] = draw(JUNK)
    return (
        value
        if isinstance(value, dict) and "all" not in value
        else outer.get("all", value)
        if isinstance(outer, dict)
        else value
    )


def plain(name: str, data: bytes) -> Any:
    if name.endswith(".jsonl"):
        return [json.loads(line) for line in data.splitlines()]
    return yaml.safe_load(data) if name.endswith(".yaml") else json.loads(data)


def written(name: str, value: Any) -> bytes:
    if name.endswith(".jsonl"):
        return "".join(json.dumps(row) + "\n" for row in (value if isinstance(value, list) else [value])).encode()
    return yaml.safe_dump(value).encode() if name.endswith(".yaml") else json.dumps(value).encode()


def laughs(innermost: str) -> str:
    """Return a list of lists of …: a billion values in a few lines."""
    lines = [f"a: &a {innermost}"]
    lines += [
        f"{new}: &{new} [{', '.join([f'*{old}'] * 10)}]" for old, new in zip("abcdefghi", "bcdefghij", strict=True)
    ]
    return "\n".join(lines)


def repeated(sound: bytes) -> list[bytes]:
    """Return a file with a billion values at its first key."""
    first = next(iter(yaml.safe_load(sound)))
    return [f"{laughs(inside)}\n{first}: *j\n".encode() for inside in ("x", "{y: 1, z: 2}")]


ALWAYS = (
    b"",
    b"\x00" * 100,
    b"[" * 100_000,
    b"{" * 100_000,
    b'{"a":' * 50_000,
    b"\xff" * 10,
    b"- " * 5000,
    b"1" * 10_000,
    b"&a [*a]",
    b"{? {} : 1}",
    b"? [1]\n: 2",
    b'{"1": 1e999}',
)


@pytest.mark.parametrize("kind", KINDS)
def test_a_broken_file_ends_in_a_sentence(valid: Path, kind: str) -> None:
    broken_file(valid, kind, EXAMPLES)


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_any_broken_file_ends_in_a_sentence(valid: Path, kind: str) -> None:
    broken_file(valid, kind, 1000)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "manifest"])
def test_a_huge_file_is_not_read(valid: Path, kind: str) -> None:
    """A tebibyte, of which the disk holds nothing: it doesn't fit into any memory."""
    place, read = KINDS[kind]
    path, sound = valid / place, (valid / place).read_bytes()
    os.truncate(path, 1 << 40)
    try:
        with contextlib.suppress(ExitError):
            read(valid)
    finally:
        path.write_bytes(sound)


def test_a_long_text_that_is_none_is_not_told_as_a_whole(valid: Path) -> None:
    place, read = KINDS["manifest"]
    path, sound = valid / place, (valid / place).read_bytes()
    path.write_bytes(b"[" * 3000 + b"\xfb" + sound)
    try:
        with pytest.raises(ExitError) as refused:
            read(valid)
    finally:
        path.write_bytes(sound)
    assert len(str(refused.value)) < 500


def broken_file(valid: Path, kind: str, examples: int) -> None:
    place, read = KINDS[kind]
    path = valid / place
    sound = path.read_bytes()
    read(valid)

    def use(data: bytes) -> None:
        path.write_bytes(data)
        try:
            read(valid)
        except ExitError as error:
            said = str(error)
            assert "\n" not in said, said
            assert len(said) < 2000, said

    strategies = [broken_bytes(sound)]
    if not place.endswith(".env"):
        strategies.append(broken_values(plain(place, sound)).map(lambda value: written(place, value)))

    @given(st.one_of(strategies))
    @settings(
        max_examples=examples,
        derandomize=True,
    )
    def check(data: bytes) -> None:
        use(data)

    try:
        for data in (*ALWAYS, *(repeated(sound) if place.endswith(".yaml") else ())):
            use(data)
        check()
    finally:
        path.write_bytes(sound)
