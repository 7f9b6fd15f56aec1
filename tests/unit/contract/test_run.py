"""The library with which any training reports to its launcher, against the files that the launcher reads and writes."""

from __future__ import annotations

import ast
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from carla_run import heartbeat_writer, run
from carla_run.events import Failed, MemoryPool, decisive
from carla_run.heartbeat import Heartbeat, Phase, read_heartbeat
from carla_run.locks import Lock, is_held
from carla_run.paths import RunPaths
from carla_run.readers import read_lines
from carla_run.requests import Answer, answer_to, send, write_request
from carla_run.run import PendingRequest, Report, ReportError
from tests.conftest import REPOSITORY
from tests.crowd import PATIENCE_S, until
from tests.disks import fill, small_disk

OLD_PYTHON = next(
    iter([*Path.home().glob(".pyenv/versions/3.8*/bin/python3.8"), *filter(None, [shutil.which("python3.8")])]), None
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunPaths:
    """A run's folder, as a launcher names it."""
    monkeypatch.setenv(run.FOLDER, str(tmp_path))
    monkeypatch.setattr(run, "POLL_S", 0.0)
    monkeypatch.setattr(heartbeat_writer, "INTERVAL_S", 0.01)
    return RunPaths(tmp_path)


def beat(folder: RunPaths) -> Heartbeat:
    found = read_heartbeat(folder.heartbeat)
    assert found is not None
    return found


def events(folder: RunPaths) -> list[str]:
    return [row["event"] for row in read_lines(folder.agent_events)]


def asked(
    report: Report, folder: RunPaths, kind: str, does: Callable[[PendingRequest], object], **values: Any
) -> Answer | None:
    """Ask for something as the launcher does; return the answer that stands once the program has looked."""
    number = send(folder, kind, values)
    for request in report.requests():
        does(request)
    assert report.requests() == []
    return answer_to(folder, number)


def reported(error: BaseException) -> None:
    """Report a step, and end so."""
    with run.report() as report:
        report.step(9)
        raise error


def test_without_a_launcher_nothing_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(run.FOLDER, raising=False)
    monkeypatch.chdir(tmp_path)
    before = threading.enumerate(), signal.getsignal(signal.SIGTERM)
    with run.report(total_steps=10, sigterm=True) as report:
        report.step(3, reward=1.5)
        report.phase("evaluating")
        report.saved("a")
        assert report.requests() == []
        assert report.wait_for_resume()
        assert (threading.enumerate(), signal.getsignal(signal.SIGTERM)) == before
    assert list(tmp_path.iterdir()) == []
    assert report.exit_code == 0


def test_a_launcher_reads_where_the_training_is(folder: RunPaths) -> None:
    with run.report(total_steps=100) as report:
        assert beat(folder).phase is Phase.STARTING
        assert is_held(folder.learner_lock)
        report.batch, report.episode = 64, 2
        report.updates = 5
        report.step(7)
        until(lambda: beat(folder).step == 7)
        found = beat(folder)
        assert (found.pid, found.phase, found.total_steps, found.updates) == (os.getpid(), Phase.UPDATING, 100, 5)
        assert (found.device, found.batch, found.micro_batch, found.episode) == ("cpu", 64, 64, 2)
        report.phase("evaluating")
        until(lambda: beat(folder).phase is Phase.EVALUATING)
    assert (beat(folder).phase, beat(folder).exit_code) == (Phase.FINISHED, 0)
    assert not is_held(folder.learner_lock)
    assert events(folder) == ["finished"]


@pytest.mark.parametrize("number", [np.int64(5), np.float32(5), 5.0, torch.tensor(5)], ids=str)
def test_counts_and_names_are_what_programs_have(folder: RunPaths, number: Any) -> None:
    with run.report(total_steps=1e6) as report:  # type: ignore[arg-type]
        report.updates = report.batch = report.episode = number
        report.device = torch.device("cpu")  # type: ignore[assignment]
        report.step(number)
        report.saved(Path("a.pt"))  # type: ignore[arg-type]
        until(lambda: beat(folder).step == 5)
        found = beat(folder)
        assert (found.total_steps, found.updates, found.batch, found.episode) == (1_000_000, 5, 5, 5)
        report.step(None)  # type: ignore[arg-type]
    saved, finished = read_lines(folder.agent_events)
    assert (saved["cause"], saved["steps"], saved["updates"]) == ("a.pt", 5, 5)
    assert (finished["event"], finished["steps"]) == ("finished", 5)


def test_a_report_that_cannot_end_leaves_its_place(folder: RunPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object) -> None:
        raise TypeError("no such number")

    monkeypatch.setattr(Report, "_end", failing)
    with pytest.raises(TypeError, match="no such number"), run.report():
        pass
    monkeypatch.undo()
    with run.report():
        pass


def test_the_newest_figures_of_a_while_are_a_row(folder: RunPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat_writer, "INTERVAL_S", PATIENCE_S)
    with run.report() as report:
        report.step(1, reward=1.0, loss=4)
        report.step(2, reward=2.0)
        report.step(2, loss="no number", **{"eval/mean_reward": 9.0})
    assert read_lines(folder.metrics) == [{"step": 2, "rollout/ep_rew_mean": 2.0, "loss": 4.0, "eval/mean_reward": 9.0}]


@pytest.mark.parametrize("kind", ["checkpoint", "drain", "resume", "apply"])
@pytest.mark.parametrize(
    ("does", "result", "words"),
    [
        (lambda request: request.done(), "ok", "The program did it: "),
        (lambda request: request.refuse("It can't now."), "refused", "It can't now."),
        (lambda _: None, "refused", run.NOT_DONE),
    ],
)
def test_a_request_is_answered(
    folder: RunPaths, kind: str, does: Callable[[PendingRequest], object], result: str, words: str
) -> None:
    values = {"batch": 32} if kind == "apply" else {}
    seen: list[PendingRequest] = []

    def noted(request: PendingRequest) -> None:
        seen.append(request)
        does(request)

    with run.report() as report:
        report.step(3)
        answer = asked(report, folder, kind, noted, **values)
    assert answer is not None
    assert (answer.kind, answer.result, answer.steps) == (kind, result, 3)
    assert answer.sentence.startswith(words)
    assert [(request.kind, request.values) for request in seen] == [(kind, values)]
    assert events(folder) == ["requested", "request_answered", "finished"]


def test_an_answer_names_the_checkpoint_only_while_it_holds_all(folder: RunPaths) -> None:
    with run.report() as report:
        report.step(3)
        first = asked(report, folder, "checkpoint", lambda request: request.done(checkpoint="step-3"))
        report.step(4)
        later = asked(report, folder, "apply", PendingRequest.done, batch=1)
    assert first is not None
    assert later is not None
    assert (first.checkpoint, later.checkpoint) == ("step-3", None)


@pytest.mark.parametrize("failure", [None, OSError("the disk")])
def test_a_stop_is_answered_at_the_end(folder: RunPaths, failure: OSError | None) -> None:
    try:
        with run.report() as report:
            assert asked(report, folder, "stop", PendingRequest.done) is None
            assert report.stop_asked
            if failure is not None:
                raise failure
    except OSError:
        assert failure is not None
    answer = answer_to(folder, 1)
    assert answer is not None
    assert answer.ok is (failure is None)
    assert (beat(folder).phase is Phase.STOPPED, report.exit_code) == (failure is None, 75)


def test_a_stop_that_is_refused_stops_nothing(folder: RunPaths) -> None:
    with run.report() as report:
        answer = asked(report, folder, "stop", lambda request: request.refuse("Not yet."))
    assert answer is not None
    assert (answer.ok, answer.sentence, report.exit_code) == (False, "Not yet.", 0)
    assert beat(folder).phase is Phase.FINISHED


def test_what_was_asked_before_the_start_is_refused(folder: RunPaths) -> None:
    number = write_request(folder, "stop")
    with run.report() as report:
        assert report.requests() == []
    answer = answer_to(folder, number)
    assert answer is not None
    assert not answer.ok


def test_a_drained_program_rests_until_resume(folder: RunPaths) -> None:
    with run.report() as report:
        report.step(5)
        asked(report, folder, "drain", lambda request: request.done(checkpoint="a"))

        def person() -> None:
            until(lambda: beat(folder).phase is Phase.DRAINED)
            for kind in ("apply", "checkpoint", "resume"):
                number = send(folder, kind, {"batch": 1} if kind == "apply" else {})
                until(lambda number=number: answer_to(folder, number) is not None)  # type: ignore[misc]

        thread = threading.Thread(target=person)
        thread.start()
        assert report.wait_for_resume()
        thread.join()
        assert report._phase is Phase.UPDATING
    answered = [row for row in read_lines(folder.agent_events) if row["event"] == "request_answered"]
    assert [(row["kind"], row["result"]) for row in answered] == [
        *(("drain", "ok"), ("apply", "refused"), ("checkpoint", "ok"), ("resume", "ok"))
    ]


def test_a_drained_program_that_is_stopped_rests_no_more(folder: RunPaths) -> None:
    with run.report() as report:
        write_request(folder, "stop")
        assert not report.wait_for_resume()
    assert beat(folder).phase is Phase.STOPPED


@pytest.mark.parametrize(
    ("error", "code", "pool", "lost"),
    [
        (ValueError("a mistake"), 1, None, False),
        (MemoryError(), 1, MemoryPool.HOST, False),
        (RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"), 1, MemoryPool.DEVICE, False),
        (RuntimeError("CUDA error: unknown error"), 1, None, True),
        (OSError(28, "No space left on device"), 1, MemoryPool.DISK, False),
    ],
)
def test_an_error_is_told_and_goes_on(
    folder: RunPaths, error: Exception, code: int, pool: MemoryPool | None, lost: bool
) -> None:
    with pytest.raises(type(error)):
        reported(error)
    (found,) = map(decisive, read_lines(folder.agent_events))
    assert found == Failed(code, type(error).__name__, pool, lost, 9, str(error))
    assert (beat(folder).phase, beat(folder).exit_code) == (Phase.UPDATING, code)


@pytest.mark.parametrize(
    ("end", "code", "phase"),
    [
        (SystemExit(), 0, "finished"),
        (SystemExit(0), 0, "finished"),
        (SystemExit(3), 3, "updating"),
        (SystemExit(75), 75, "stopped"),
        (SystemExit("a sentence"), 1, "updating"),
        (KeyboardInterrupt(), 130, "updating"),
    ],
)
def test_an_exit_is_told(folder: RunPaths, end: BaseException, code: int, phase: str) -> None:
    with pytest.raises(type(end)):
        reported(end)
    assert (beat(folder).exit_code, beat(folder).phase) == (code, phase)


def test_sigterm_asks_for_a_stop_where_the_author_wants_it(folder: RunPaths) -> None:
    before = signal.getsignal(signal.SIGTERM)
    with run.report(sigterm=True) as report:
        os.kill(os.getpid(), signal.SIGTERM)
        kinds = [request.kind for _ in range(3) for request in report.requests()]
    assert kinds == ["stop"]
    assert signal.getsignal(signal.SIGTERM) == before
    assert beat(folder).phase is Phase.STOPPED


def test_a_full_disk_is_said_once_and_stops_nothing(
    tmp_path: Path, folder: RunPaths, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    said = ""

    def complained() -> bool:
        nonlocal said
        said += capfd.readouterr().err
        return "agent.json" in said and "metrics.jsonl" in said

    with small_disk(tmp_path, mib=1) as disk:
        monkeypatch.setenv(run.FOLDER, str(disk))
        with run.report() as report:
            report.step(1)
            full = RunPaths(disk)
            until(lambda: beat(full).step == 1)
            filler = fill(disk)
            report.step(2, reward=1.0)
            until(complained)
            report.step(3, reward=1.0)
            filler.unlink()
        assert beat(full).step == 3
    complained()
    assert (said.count("agent.json"), said.count("metrics.jsonl")) == (1, 1)


@pytest.mark.parametrize("place", ["absent", "file"])
def test_a_folder_that_cannot_be_written_is_said(
    tmp_path: Path, folder: RunPaths, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], place: str
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv(run.FOLDER, str(tmp_path / place))
    with run.report() as report:
        report.step(1, reward=2.0)
        assert report.requests() == []
    assert capfd.readouterr().err.count(f"{place}, which CARLA_RUN_DIR names, can't be written") == 1


def test_a_second_report_of_a_process_is_refused(folder: RunPaths) -> None:
    with run.report() as report:
        report.step(8)
        with pytest.raises(ReportError, match="reports already, now step 8"):
            run.report().__enter__()
    with run.report():
        assert beat(folder).phase is Phase.STARTING


def test_a_second_process_leaves_the_run_to_the_first(folder: RunPaths, capfd: pytest.CaptureFixture[str]) -> None:
    with Lock(folder.learner_lock, "77"), run.report() as report:
        report.step(1)
    assert "process 77 reports for this run; this one doesn't" in capfd.readouterr().err
    assert not folder.heartbeat.exists()


def test_a_phase_that_there_is_not_is_refused_without_a_launcher_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(run.FOLDER, raising=False)
    with run.report() as report, pytest.raises(ReportError, match="phase is 'thinking'; expected starting, "):
        report.phase("thinking")


def test_sigterm_is_for_the_main_thread(folder: RunPaths) -> None:
    refused: list[BaseException] = []

    def elsewhere() -> None:
        try:
            run.report(sigterm=True).__enter__()
        except ReportError as error:
            refused.append(error)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert "main thread" in str(refused[0])


FORKING = """
import os, sys, time
from carla_run import run
with run.report() as r:
    r.step(1)
    child = os.fork()
    if child == 0:
        r.step(1000, reward=1.0)
        r.saved("never")
        print(r.requests(), flush=True)
        with run.report() as other:  # of a child of its own: the run is its parent's
            other.step(2000)
        sys.stdin.read()
        sys.exit(3)
    while True:
        time.sleep(1)
"""


def test_a_forked_process_writes_nothing_and_holds_nothing(folder: RunPaths) -> None:
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY / "contract")}
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", FORKING],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        assert process.stdout.readline() == b"[]\n"
        assert b"process %d reports for this run" % process.pid in process.stderr.readline()
        until(lambda: beat(folder).step == 1)
    finally:
        process.kill()
        process.wait(PATIENCE_S)
    assert not is_held(folder.learner_lock), "its child lives"
    process.stdin.close()
    process.stdout.read()  # until the child has ended, too
    assert beat(folder).step == 1
    assert read_lines(folder.metrics) == read_lines(folder.agent_events) == []


# Python 3.8


def below(module: str, seen: set[str]) -> set[str]:
    """Return a module of the contract and all that it imports."""
    path = REPOSITORY / "contract" / Path(*module.split("."))
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    if module in seen or not path.exists():
        return seen
    seen.add(module)
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 8))):
        for name in [alias.name for alias in node.names] if isinstance(node, ast.Import) else []:
            below(name, seen)
        if isinstance(node, ast.ImportFrom):
            below(str(node.module), seen)
            for alias in node.names:
                below(f"{node.module}.{alias.name}", seen)
    return seen


def test_its_syntax_is_python_38_and_it_needs_no_package() -> None:
    found = below("carla_run.run", set())
    assert {"carla_run.listener", "carla_run.heartbeat_writer", "carla_run.files"} <= found
    assert "carla_run.configuration" not in found


@pytest.mark.skipif(OLD_PYTHON is None, reason="no Python 3.8 here")
def test_python_38_reports(folder: RunPaths) -> None:
    program = (
        "from carla_run import run\n"
        "with run.report(9, sigterm=True) as r:\n"
        "    r.step(4, reward=2.5)\n"
        "    while not r.stop_asked:\n"
        "        for request in r.requests():\n"
        "            request.done()\n"
    )
    command = [str(OLD_PYTHON), "-W", "error", "-c", program]
    with subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(REPOSITORY / "contract")}) as process:
        until(lambda: is_held(folder.learner_lock) and folder.heartbeat.exists())
        number = send(folder, "checkpoint", {})
        until(lambda: answer_to(folder, number) is not None)
        send(folder, "stop", {})
        assert process.wait(PATIENCE_S) == 0
    assert (beat(folder).phase, beat(folder).step) == (Phase.STOPPED, 4)
    assert json.loads(folder.metrics.read_text()) == {"step": 4, "rollout/ep_rew_mean": 2.5}
