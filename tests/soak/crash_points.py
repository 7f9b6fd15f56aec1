"""Every crash point of an operation: a child is struck at its n-th change of a file, for each n; its files are used.

``python -m tests.soak.crash_points`` runs itself with ``crash_shim.c`` preloaded. That counts the calls that change
files below a folder. Before the n-th, or in the middle of it where that is a write, it ends the process; or the disk is
full from there on; or that call fails with EIO. Stores into mapped rings are points as well. A point that isn't reached
is a failure, and so is one beyond the last that is.
"""

from __future__ import annotations

import ctypes
import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from carla_launcher.act.journal import Journal
from carla_launcher.act.launcher_state import LauncherState
from carla_lite.recording.layout import Packet, RecordingError
from carla_lite.recording.reading import NotARecordingError, Recording
from carla_lite.recording.records import Time
from carla_lite.recording.writing import Writer
from carla_run import requests
from carla_run.events import LauncherEvent
from carla_run.exits import ExitError
from carla_run.paths import RunPaths
from carla_run.readers import read_lines, read_object
from carla_run.requests import Answer, Inbox, Request, Result
from carla_td3.cluster.chunks import ChunkReceiver, begin_at, cut
from carla_td3.config import AgentConfig
from carla_td3.evaluation.kept import KeptDrives
from carla_td3.evaluation.metrics import Evaluation, RouteResult, write_json
from carla_td3.run_directory import save_config
from carla_td3.td3.replay import index
from carla_td3.td3.replay.damage import leave_out_damage, mend_rings
from carla_td3.td3.replay.frames import FrameStack
from carla_td3.td3.replay.replay import Replay
from carla_td3.td3.replay.resize_replay import resize
from carla_td3.td3.replay.ring import Ring
from tests.soak.witness import FRAME_BYTES, Witness

SHIM = Path(__file__).with_name("crash_shim.c")
MOST = 10_000
"""Points of an operation: more is one that never ends."""


class Fault(IntEnum):
    """What happens at a point, as the shim numbers it."""

    KILLED_BEFORE, KILLED_IN_IT, DISK_FULL, BROKEN = range(4)


@dataclass(frozen=True)
class Operation:
    """What is struck.

    Attributes:
        prepare: makes what stood before in an empty folder.
        act: is struck; in a process of its own.
        check: goes on after it, and raises AssertionError where something is lost, doubled or can't be used.
    """

    name: str
    prepare: Callable[[Path], None]
    act: Callable[[Path], None]
    check: Callable[[Path], None]


class Shim:
    """The preloaded library, as far as it is there."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(os.environ["LD_PRELOAD"].split(":")[0])

    def arm(self, folder: Path, number: int, fault: Fault) -> None:
        """Count from now on, and strike at that number."""
        self._library.crash_arm(str(folder).encode(), ctypes.c_long(number), int(fault))

    def point(self) -> None:
        """Count a point that is no call."""
        self._library.crash_point()

    def count(self) -> int:
        """Return how many points there were, and count no more."""
        return int(self._library.crash_count())


class _Struck(np.ndarray):
    """A mapped array: before each store is a crash point, and of a long one another in its middle."""

    def __setitem__(self, key: Any, value: Any) -> None:
        shim.point()
        if getattr(value, "size", 1) > 1:
            half = np.array(value)
            half[len(half) // 2 :] = 0
            super().__setitem__(key, half)
            shim.point()
        super().__setitem__(key, value)


def struck_ring(ring: Ring) -> Ring:
    """Return the ring with crash points at its stores."""
    arrays = {name: getattr(ring, name).view(_Struck) for name in ("frames", "rows", "published")}
    return replace(ring, **arrays)


# Checkpoints


def _tensors(step: int) -> dict[str, Any]:
    import torch

    return {name: torch.full((1000,), float(step)) for name in ("online.a", "adam.b")}


def _save(folder: Path, step: int, score: float | None = None) -> None:
    from carla_td3.trainer import checkpoint

    tensors = _tensors(step if score is None else step + 1000)
    checkpoint.save(folder, step, tensors, {"updates": step}, architecture={}, config_digest="x", keep=1, score=score)


def _loads(folder: Path, allowed: Sequence[float]) -> None:
    from carla_td3.trainer import checkpoint

    found = checkpoint.load(folder, {})
    values = {float(value) for tensor in found.tensors.values() for value in tensor.unique()}
    assert len(values) == 1, f"mixed tensors {values}"
    assert values <= set(allowed), f"{values} of {allowed}"
    _save(folder, 9)
    assert checkpoint.load(folder, {}).step == 9
    left = [path.name for path in (folder / "checkpoints").iterdir() if path.name.startswith((".new-", ".old-"))]
    assert not left, left


# Rings

ROWS = 21
"""Rows of a filled ring: three drives of six steps."""


def _filled(folder: Path) -> Replay:
    replay = Replay.create(folder / "replay", 100)
    for _ in range(3):
        _drive(replay, 6)
    return replay


def _drive(replay: Replay, steps: int) -> None:
    rng = np.random.default_rng(replay.steps)

    def seen() -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
        return rng.integers(0, 255, (84, 84), np.uint8), rng.standard_normal(53).astype(np.float32)

    replay.start_episode(*seen())
    for step in range(steps):
        replay.append(np.zeros(2, np.float32), 1.0, step == steps - 1, False, *seen())


def _ring_before(folder: Path) -> None:
    _filled(folder).close()
    seen = Witness(folder / "replay")
    seen.look()
    np.savez(folder / "before.npz", frames=seen.frames, rows=seen.rows)


def _publish(folder: Path) -> None:
    replay = Replay.create(folder / "replay", 100)
    replay._ring = struck_ring(replay._ring)
    _drive(replay, 6)
    _drive(replay, 6)


def _ring_goes_on(folder: Path) -> None:
    before, witness = np.load(folder / "before.npz"), Witness(folder / "replay")
    witness.frames, witness.rows = before["frames"], before["rows"].astype(witness.rows.dtype)
    assert not (problems := witness.problems()), problems
    ring = Ring.open(folder / "replay", writable=True)
    told = leave_out_damage(ring, 4)
    assert told is None or not told.damaged, told
    ring.close()
    steps = witness.steps
    assert 18 <= steps <= 30
    replay = Replay.create(folder / "replay", 100)
    _drive(replay, 3)
    assert replay.steps == steps + 3
    replay.close()
    assert not (problems := witness.problems()), problems


def _create(folder: Path) -> None:
    _filled(folder).close()


def _created(folder: Path) -> None:
    replay = Replay.create(folder / "replay", 100)
    steps = replay.steps
    assert steps in (0, 18)
    _either_will_do(folder / "replay")
    _drive(replay, 3)
    assert replay.steps == steps + 3
    replay.close()


INDEX = (index.META, index.COPY)


def _either_will_do(ring: Path) -> None:
    """Without either of the two files that describe it, a ring is the same."""
    whole = index.read(ring)
    for name in INDEX:
        content = (ring / name).read_bytes()
        (ring / name).write_bytes(content[: len(content) // 2])
        assert index.read(ring) == whole
        (ring / name).write_bytes(content)


def _rotten(folder: Path) -> None:
    _ring_before(folder)
    (folder / "replay" / index.META).write_bytes(b"{")


def _mend_index(folder: Path) -> None:
    mend_rings([folder / "replay"], FrameStack(), lambda *_, **__: None)


def _index_mended(folder: Path) -> None:
    _mend_index(folder)
    _either_will_do(folder / "replay")
    _ring_goes_on(folder)


def _resize(folder: Path) -> None:
    resize(folder / "replay", 150, FrameStack(side=64))


def _resized(folder: Path) -> None:
    _resize(folder)
    replay = Replay.open(folder / "replay", writable=True, stack=FrameStack(side=64))
    before, after = np.load(folder / "before.npz")["rows"], replay._ring.rows[:ROWS].copy()
    assert replay.capacity == 150
    before["checksum"] = after["checksum"] = 0  # it covers the frame, which has another size
    assert after.tobytes() == before.tobytes()
    files = {path.name for path in (folder / "replay").iterdir()}
    assert files == {*replay.layout.files, "lock", *INDEX}, files
    _either_will_do(folder / "replay")
    assert leave_out_damage(replay._ring, 4) is None
    replay.close()


DAMAGED = 8


def _ring_damaged(folder: Path) -> None:
    _ring_before(folder)
    for number in (DAMAGED, ROWS - 1):
        with (folder / "replay" / "frames.u8").open("r+b") as file:
            file.seek(number * FRAME_BYTES + 99)
            file.write(b"?")


def _mend(folder: Path) -> None:
    leave_out_damage(struck_ring(Ring.open(folder / "replay", writable=True)), 4)


def _mended(folder: Path) -> None:
    ring, before = Ring.open(folder / "replay", writable=True), np.load(folder / "before.npz")["rows"]
    leave_out_damage(ring, 4)
    assert leave_out_damage(ring, 4) is None
    assert int(ring.published[0]) == ROWS - 1
    out = [number for number in range(ROWS - 1) if ring.rows[number].tobytes() != before[number].tobytes()]
    assert out == list(range(DAMAGED, DAMAGED + 5))
    assert not ring.rows["episode_step"][out].any()
    ring.close()


def _node_before(folder: Path) -> None:
    _ring_before(folder)
    node = Replay.create(folder / "node", 100)
    here = Ring.open(folder / "replay", writable=False)
    begin_at(node._ring, ChunkReceiver(here).head)
    node.close()
    node = Replay.open(folder / "node", writable=True)
    _drive(node, 6)
    _drive(node, 6)
    node.close()


def _take(folder: Path) -> None:
    received = ChunkReceiver(struck_ring(Ring.open(folder / "replay", writable=True)))
    chunk = cut(Ring.open(folder / "node", writable=False), received.head.rows)
    assert chunk is not None
    received.take(chunk)


def _taken(folder: Path) -> None:
    received, node = (
        ChunkReceiver(Ring.open(folder / "replay", writable=True)),
        Ring.open(folder / "node", writable=False),
    )
    if (rest := cut(node, received.head.rows)) is not None:
        received.take(rest)
    received.close()
    assert received.head.steps == 30
    _ring_goes_on(folder)


# A run's files


def _journal(folder: Path) -> Journal:
    return Journal(RunPaths(folder), LauncherState("run", {}, "127.0.0.1", 2000), lambda: 1.0)


def _journal_before(folder: Path) -> None:
    journal = _journal(folder)
    for number in range(3):
        journal.event(LauncherEvent.FINDING, number=number)


def _events(folder: Path) -> None:
    journal = _journal(folder)
    for number in (3, 4):
        journal.event(LauncherEvent.FINDING, number=number)


def _events_go_on(folder: Path) -> None:
    run = RunPaths(folder)
    assert read_object(run.launcher_state)["run"] == "run"
    _journal(folder).event(LauncherEvent.FINDING, number=9)
    numbers = [row["number"] for row in read_lines(run.launcher_events)]
    assert numbers[:3] == [0, 1, 2], numbers
    # A line that the disk refused is lost, and only that one.
    assert numbers[3:] in ([9], [3, 9], [4, 9], [3, 4, 9]), numbers


def _asked(folder: Path) -> None:
    requests.write_request(RunPaths(folder), "drain")


def _answered(folder: Path) -> None:
    inbox = Inbox(RunPaths(folder))
    asked = inbox.poll()
    assert isinstance(asked, Request)
    inbox.answer(Answer(asked.id, str(asked.kind), Result.OK, "done", 5, 6, "step-000000005"))


def _answer_goes_on(folder: Path) -> None:
    run = RunPaths(folder)
    if requests.answer_to(run, 1) is None:
        _answered(folder)
    assert requests.answer_to(run, 1) is not None
    assert Inbox(run).poll() is None
    requests.write_request(run, "stop")
    again = Inbox(run).poll()
    assert isinstance(again, Request)
    assert (again.id, again.kind) == (2, "stop")


def _result(number: int) -> RouteResult:
    plain: dict[str, Any] = {name: 0 for name in RouteResult.__dataclass_fields__}  # noqa: C420 (its type)
    return RouteResult(**{**plain, "route": f"r{number}", "end": "finished", "success": True})


def _kept(folder: Path) -> KeptDrives:
    return KeptDrives(folder / "evaluation.json", {"seed": 0})


def _kept_before(folder: Path) -> None:
    _kept(folder).add("td3", _result(0))


def _evaluate(folder: Path) -> None:
    kept = _kept(folder)
    for number in range(3):
        if f"r{number}" not in kept.of("td3"):
            kept.add("td3", _result(number))
    write_json([Evaluation("td3", "Lite01", 0, tuple(kept.of("td3").values()))], folder / "evaluation.json")
    kept.remove()


def _evaluated(folder: Path) -> None:
    if not (folder / "evaluation.json").exists() or len(_kept(folder)):
        assert "r0" in _kept(folder).of("td3"), "a drive is lost"
        _evaluate(folder)
    (found,) = json.loads((folder / "evaluation.json").read_text())
    assert [route["route"] for route in found["routes"]] == ["r0", "r1", "r2"]
    assert not list(folder.glob("*.jsonl"))


def _configure(folder: Path, seed: int = 2) -> None:
    save_config(RunPaths(folder), AgentConfig(seed=seed))


def _configured(folder: Path) -> None:
    from carla_td3 import config

    assert config.load(RunPaths(folder).config).seed in (1, 2)


def _record(folder: Path) -> None:
    writer = Writer(folder / "drive.log", "Lite01", 1 << 20)
    for number in range(5):
        writer.add(0.1, {Packet.VISUAL_TIME: [Time(0.1 * number)]})
    writer.close()


def _recorded(folder: Path) -> None:
    path = folder / "drive.log"
    if path.exists() and path.stat().st_size:
        try:
            with Recording(path) as recording:
                frames = list(recording.frames([Packet.VISUAL_TIME]))
                times = [frame.records(Packet.VISUAL_TIME)[0].value for frame in frames]
        except NotARecordingError:  # its header was not finished
            times = []
        assert times == [0.1 * number for number in range(len(times))]
    _record(folder)


OPERATIONS = (
    Operation(
        "checkpoint",
        lambda folder: _save(folder, 1),
        lambda folder: _save(folder, 2),
        lambda folder: _loads(folder, (1, 2)),
    ),
    Operation(
        "checkpoint replaced by an evaluation's",
        lambda folder: _save(folder, 1),
        lambda folder: _save(folder, 1, 0.5),
        lambda folder: _loads(folder, (1, 1001)),
    ),
    Operation("ring created", lambda _: None, _create, _created),
    Operation("steps published", _ring_before, _publish, _ring_goes_on),
    Operation("replay resized", _ring_before, _resize, _resized),
    Operation("index of the replay mended", _rotten, _mend_index, _index_mended),
    Operation("damaged rows left out", _ring_damaged, _mend, _mended),
    Operation("chunk of a remote collector", _node_before, _take, _taken),
    Operation("journal and launcher.json", _journal_before, _events, _events_go_on),
    Operation("drain answered", _asked, _answered, _answer_goes_on),
    Operation("evaluation ended", _kept_before, _evaluate, _evaluated),
    Operation(
        "configuration saved",
        lambda folder: save_config(RunPaths(folder), AgentConfig(seed=1)),
        _configure,
        _configured,
    ),
    Operation("recording of carla-lite", lambda _: None, _record, _recorded),
)


def _in_place(folder: Path, text: str) -> None:
    (folder / "state.json").write_text(text)


def _reads(folder: Path) -> None:
    assert json.loads((folder / "state.json").read_text()) in ([1], [2])


def _line(folder: Path, number: int) -> None:
    with (folder / "lines").open("ab", buffering=0) as file:
        file.write(json.dumps({"number": number}).encode() + b"\n")


def _lines_go_on(folder: Path) -> None:
    _line(folder, 9)
    assert [row["number"] for row in read_lines(folder / "lines")] in ([1, 9], [1, 2, 9])


PLANTED = (
    Operation(
        "planted: in place", lambda folder: _in_place(folder, "[1]"), lambda folder: _in_place(folder, "[2]"), _reads
    ),
    Operation("planted: torn line", lambda folder: _line(folder, 1), lambda folder: _line(folder, 2), _lines_go_on),
)
"""Operations that lose something: they must be found."""
BY_NAME = {operation.name: operation for operation in (*OPERATIONS, *PLANTED)}


def strike(operation: Operation, folder: Path, number: int, fault: Fault) -> bool:
    """Run an operation in a child that is struck at its point ``number``; return whether it got there.

    Raises:
        AssertionError: the operation failed otherwise than by a sentence about its files.
    """
    child = os.fork()
    if child == 0:
        code = 1
        try:
            shim.arm(folder, number, fault)
            try:
                operation.act(folder)
            finally:
                count = shim.count()
                (folder.parent / "count").write_text(str(count))
            code = 0
        except (OSError, ExitError, RecordingError):
            code = 0
        except BaseException as error:  # a child of a fork must not go on as its parent
            os.write(2, f"{operation.name}, point {number}, {fault.name}: {error!r}\n".encode())
        os._exit(code)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL, status
        return True
    assert os.WEXITSTATUS(status) == 0, "it failed with a traceback"
    return fault >= Fault.DISK_FULL and number < int((folder.parent / "count").read_text())


def points_of(operation: Operation, folder: Path) -> int:
    """Return how many points an operation has when nothing strikes it; what it leaves must be in order."""
    _fresh(folder)
    operation.prepare(folder)
    assert not strike(operation, folder, -1, Fault.KILLED_BEFORE)
    operation.check(folder)
    return int((folder.parent / "count").read_text())


def sweep(operation: Operation, folder: Path, chosen: Callable[[int], Sequence[int]]) -> Iterator[str]:
    """Strike an operation at the chosen of its points by each fault; yield what went wrong."""
    count = points_of(operation, folder)
    if count == 0:
        yield f"{operation.name}: no crash point at all"
    for number, fault in itertools.product([*chosen(count), count], Fault):
        _fresh(folder)
        operation.prepare(folder)
        where = f"{operation.name}: point {number} of {count}, {fault.name.lower()}"
        try:
            if strike(operation, folder, number, fault) != (number < count):
                yield f"{where}: {'not ' if number < count else ''}reached"
            operation.check(folder)
        except Exception as error:
            yield f"{where}: {type(error).__name__}: {error}"


def _fresh(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()


def preloaded(words: Sequence[str], **more: Any) -> subprocess.CompletedProcess[str]:
    """Run this module with the shim preloaded, and return how it ended."""
    with tempfile.TemporaryDirectory() as name:
        library = Path(name) / "shim.so"
        compiler = shutil.which("cc")
        if compiler is None:
            raise FileNotFoundError("no C compiler `cc`: install one, such as gcc")
        subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, SHIM, "-ldl"], check=True)
        environment = {**os.environ, "LD_PRELOAD": str(library), "OMP_NUM_THREADS": "1", "TMPDIR": name}
        command = [sys.executable, "-m", "tests.soak.crash_points", *words]
        return subprocess.run(command, env=environment, check=False, text=True, **more)


def main(
    points: Annotated[int, typer.Option(help="Crash points per operation, drawn by --seed; 0 for all.")] = 0,
    seed: Annotated[int, typer.Option(help="Seed that draws the points.")] = 0,
    only: Annotated[str | None, typer.Option(help="Name of the only operation to interrupt.")] = None,
) -> None:
    """Strike each operation at its crash points; print how many there were; exit 1 if anything went wrong."""
    rng, failed = random.Random(seed), 0
    for operation in OPERATIONS if only is None else (BY_NAME[only],):
        with tempfile.TemporaryDirectory() as name:

            def chosen(count: int) -> Sequence[int]:
                return sorted(rng.sample(range(count), points)) if 0 < points < count else range(count)

            count = points_of(operation, Path(name) / "run")
            wrong = list(sweep(operation, Path(name) / "run", chosen))
        failed += len(wrong)
        print(f"{operation.name}: {len(chosen(count))} of {count} crash points, {len(wrong)} failures", flush=True)
        for sentence in wrong[:20]:
            print(f"  {sentence}", flush=True)
    raise typer.Exit(1 if failed else 0)


if __name__ == "__main__":
    if "LD_PRELOAD" not in os.environ:
        sys.exit(preloaded(sys.argv[1:]).returncode)
    shim = Shim()
    typer.run(main)
