"""A container's output in a file: each line once, whatever breaks off, and whichever launcher listens."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from carla_launcher.act.compose import container_log
from carla_launcher.act.compose.container_log import ContainerLog
from carla_launcher.act.compose.engine import Container, EngineError
from tests.crowd import PATIENCE_S, until


def printed(*texts: str, second: int = 1) -> list[bytes]:
    """Return lines as the engine gives them, a second apart."""
    return [f"2026-01-31T23:59:{second + at:02}.123456789Z {text}\n".encode() for at, text in enumerate(texts)]


@dataclass
class Engine:
    """An engine whose container has ended, and has printed these lines.

    Attributes:
        breaks_after: bytes after which a stream breaks off, one number a stream; the streams after them are whole.
        goes_on: set when a stream may end.
        asked_s: since when each stream was asked for.
    """

    lines: list[bytes]
    breaks_after: list[int] = field(default_factory=list)
    goes_on: threading.Event = field(default_factory=threading.Event)
    asked_s: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.goes_on.set()

    @contextlib.contextmanager
    def output(self, _: str, since_s: int) -> Iterator[Iterator[bytes]]:
        self.asked_s.append(since_s)
        since = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(since_s)).encode()
        yield self._pieces(b"".join(each for each in self.lines if each[:19] >= since))

    def _pieces(self, reported: bytes) -> Iterator[bytes]:
        end = self.breaks_after.pop(0) if self.breaks_after else len(reported)
        yield from (reported[begin : min(begin + 7, end)] for begin in range(0, end, 7))
        if end < len(reported):
            raise EngineError("broken off")
        self.goes_on.wait(PATIENCE_S)

    def container(self, name: str) -> Container | None:
        return Container(name, 0, running=False, finished=True, started="", exit_code=0, oom_killed=False)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(container_log, "RETRY_S", 0.01)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "agent.log"


def follow(engine: Engine, path: Path, container: str = "c1") -> ContainerLog:
    return ContainerLog(engine, container, path)  # type: ignore[arg-type]


def followed(engine: Engine, path: Path, container: str = "c1") -> str:
    follow(engine, path, container).finish(PATIENCE_S)
    return path.read_text(encoding="utf-8")


def test_lines_come_whole_without_their_times_and_the_last_one_needs_no_end(path: Path) -> None:
    lines = printed("step 1", "", "old\rstep 2")
    assert (
        followed(Engine([*lines, printed("Killed", second=9)[0].rstrip(b"\n")]), path) == "step 1\n\nstep 2\nKilled\n"
    )


@pytest.mark.parametrize("breaks_after", [0, 20, 34, 40, 70])
def test_a_stream_that_breaks_off_is_taken_up_where_it_was(path: Path, breaks_after: int) -> None:
    engine = Engine(printed("one", "two", "three"), [breaks_after])
    assert followed(engine, path) == "one\ntwo\nthree\n"
    assert not engine.breaks_after
    assert len(engine.asked_s) > 1


@pytest.mark.parametrize("save_s", [0.0, 1e9])
def test_a_launcher_that_was_killed_is_followed_by_one_that_adds_only_what_is_new(
    path: Path, monkeypatch: pytest.MonkeyPatch, save_s: float
) -> None:
    """Whether or not it noted where it was after its last line."""
    monkeypatch.setattr(container_log, "SAVE_S", save_s)
    killed = Engine(printed("one", "two"))
    killed.goes_on.clear()
    listens = follow(killed, path)
    until(lambda: path.exists() and path.read_text() == "one\ntwo\n")
    assert followed(Engine(printed("one", "two", "three")), path) == "one\ntwo\nthree\n"
    killed.goes_on.set()
    listens.finish(PATIENCE_S)


def test_the_next_launcher_of_a_container_adds_nothing_twice_and_asks_only_for_what_is_new(path: Path) -> None:
    followed(Engine(printed("one", "two")), path)
    again = Engine(printed("one", "two"))
    assert followed(again, path) == "one\ntwo\n"
    assert time.gmtime(again.asked_s[0])[:6] == (2026, 1, 31, 23, 59, 2)


def test_another_container_s_lines_are_added_whenever_they_were_printed(path: Path) -> None:
    followed(Engine(printed("one", second=30)), path)
    assert followed(Engine(printed("two", second=1)), path, "c2") == "one\ntwo\n"


def test_whatever_a_stream_comes_up_with_the_next_lines_are_heard(
    path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    class Broken(Engine):
        def _pieces(self, reported: bytes) -> Iterator[bytes]:
            if len(self.asked_s) < 3:
                raise LookupError("of a library's making")
            return super()._pieces(reported)

    assert followed(Broken(printed("one", "two")), path) == "one\ntwo\n"
    assert capfd.readouterr().err.count("Traceback (most recent call last)") == 1


def test_a_file_that_cant_be_opened_yet_is_tried_again(path: Path) -> None:
    path.mkdir()
    engine = Engine(printed("one"))
    log = follow(engine, path)
    path.rmdir()
    log.finish(PATIENCE_S)
    assert path.read_text(encoding="utf-8") == "one\n"


@pytest.mark.parametrize("place", ['{"container": "c1"}', '{"container": "c1", "size": "x", "time": 3}'])
def test_a_place_that_others_wrote_is_none(path: Path, place: str) -> None:
    path.with_name(f"{path.name}.position").write_text(place)
    log = follow(Engine(printed("one")), path)
    log._closed.set()
    log.finish(PATIENCE_S)
