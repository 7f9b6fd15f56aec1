"""The live page: parts from the run's files, pictures, buttons; its process from start to end."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from carla_launcher import config, down, hooks
from carla_launcher.act.agent_requests import AgentRequests
from carla_launcher.places import SHIPPED
from carla_launcher.plugins.page import live_page
from carla_launcher.plugins.page.buttons import Buttons
from carla_launcher.plugins.page.parts import AFTER_EVENT_S, Parts
from carla_run.exits import ExitError
from carla_run.locks import Lock
from carla_run.paths import RunPaths
from carla_run.requests import Answer, Inbox, Request, Requester, Result, drained_by_person
from tests.conftest import REPOSITORY
from tests.crowd import PATIENCE_S, until
from tests.unit.launcher.served import BEAT, PICTURE, POOLS, START, Page, folder, row

NOW = START + 100


@pytest.fixture
def run(tmp_path: Path) -> RunPaths:
    return folder(tmp_path / "night")


@pytest.fixture
def page(run: RunPaths) -> Iterator[Page]:
    served = Page(run)
    yield served
    served.close()


def parts_of(run: RunPaths) -> Parts:
    return Parts(run, Buttons(run, config.load()))


# What is shown


def test_all_parts_are_drawn_from_the_files(run: RunPaths) -> None:
    run.launcher_state.write_text(
        json.dumps({"state": "running", "rungs_free_mib": {"ram": {"no_video (x = 1)": {"ram": 45.0, "disk": -2.0}}}})
    )
    shown = {name: part["html"] for name, part in parts_of(run).changed((), NOW)["parts"].items()}
    assert "2\u202f151" in shown["figures"]
    assert "blender &lt;b&gt; 64 MiB" in shown["figures"]
    assert shown["memory"].count("<svg") > 3
    assert "var(--simulator)" in shown["memory"]
    assert "no_video (x = 1)" in shown["rungs"]
    assert "RAM +45, Disk -2" in shown["rungs"]
    assert "Environment steps per second" in shown["curves"]
    assert "style=" not in "".join(shown.values())  # the page's policy forbids it


def test_only_what_changed_is_sent_again(run: RunPaths) -> None:
    parts = parts_of(run)
    first = parts.changed((), NOW)["parts"]
    keys = {part["key"] for part in first.values()}
    assert parts.changed(keys, NOW + 0.1)["parts"] == {}
    with run.launcher_events.open("a") as events:
        events.write(row("finding", diagnosis="pressure", pool="ram", incident="i1", sentence="short"))
        events.write(row("rung_taken", rung="no_video", incident="i1", cause="memory short"))
    later = parts.changed(keys, NOW + AFTER_EVENT_S + 0.1)["parts"]
    assert {"memory", "incidents"} <= later.keys()
    assert "curves" not in later


def test_a_command_without_known_steps_has_no_step_tiles(run: RunPaths) -> None:
    run.heartbeat.write_text(json.dumps({**BEAT, "step": 0, "total_steps": 0}))
    rows = [{"time": START + n, "step": 0, "pools": POOLS} for n in range(0, 100, 10)]
    run.launcher_memory.write_text("".join(json.dumps(each) + "\n" for each in rows))
    lock = Lock(run.launcher_lock)
    figures = parts_of(run).changed((), NOW)["parts"]["figures"]["html"]
    lock.release()
    assert "<dt>agent</dt>" in figures
    assert "<dt>step" not in figures


@pytest.mark.parametrize(
    "torn", [b"", b"{", b"[]", b"\xff\xfe{}\n", b'{"time": "x", "pools": 3, "rungs_free_mib": 1}\n']
)
def test_missing_and_torn_files_are_shown_as_far_as_they_go(run: RunPaths, torn: bytes) -> None:
    files = (run.heartbeat, run.launcher_state, run.launcher_events, run.launcher_memory, run.metrics, run.request)
    for path in files:
        path.write_bytes(torn)
    assert "figures" in parts_of(run).changed((), NOW)["parts"]
    for path in files:
        path.unlink(missing_ok=True)
    assert "figures" in parts_of(run).changed((), NOW)["parts"]


def test_a_viewer_gets_each_new_picture(page: Page) -> None:
    assert not page.run.live_wanted.exists()
    page.ask("/", cookie=page.cookie)
    assert not page.run.live_wanted.exists()  # the page itself shows nothing yet
    with socket.create_connection(("127.0.0.1", page.port), timeout=PATIENCE_S) as looks:
        looks.sendall(f"GET /camera HTTP/1.1\r\nHost: 127.0.0.1\r\nCookie: {page.cookie}\r\n\r\n".encode())
        got = b""
        while PICTURE not in got:
            got += looks.recv(4096)
        assert b"multipart/x-mixed-replace" in got
        page.run.live_frame.write_bytes(b"\xff\xd8 another one")
        while b"another one" not in got:
            got += looks.recv(4096)
    assert page.run.live_wanted.exists()


def test_a_drive_has_no_launcher_to_tell_of(tmp_path: Path) -> None:
    drive = RunPaths(tmp_path)
    drive.live.mkdir()
    found = parts_of(drive).changed((), NOW)
    assert found["buttons"] == {}
    assert "No launcher" not in found["parts"]["figures"]["html"]
    assert "<dt>state" not in found["parts"]["figures"]["html"]


@pytest.mark.parametrize("launcher", ["{}", json.dumps({"state": "stopped", "exit_code": 75, "reason": "it stopped"})])
def test_an_agent_without_a_launcher_has_not_ended(run: RunPaths, launcher: str) -> None:
    run.launcher_state.write_text(launcher)
    lock = Lock(run.learner_lock)
    found = parts_of(run).changed((), NOW)
    assert found["buttons"]["stop"]
    figures = found["parts"]["figures"]["html"]
    assert "<dt>agent" in figures
    assert 'class="ending"' not in figures
    assert "<dt>state" not in figures
    lock.release()
    assert 'class="ending"' in parts_of(run).changed((), NOW)["parts"]["figures"]["html"]


# What is pressed


@pytest.mark.parametrize(
    ("options", "asks", "sees"),
    [
        ({}, "The agent writes its checkpoint, then agent, simulator and launcher end.", True),
        ({"simulator_host": "there"}, "The agent writes its checkpoint, then agent and launcher end.", True),
        ({"command": ["python"]}, "The program is asked to end, then simulator and launcher end.", True),
        ({"command": ["python"], "simulator": "none"}, "The program is asked to end, then the launcher ends.", False),
    ],
    ids=["agent", "simulator elsewhere", "command", "no simulator"],
)
def test_what_is_to_be_stopped_is_told(run: RunPaths, options: dict[str, object], asks: str, sees: bool) -> None:
    assert "The agent writes its checkpoint and ends." in parts_of(run).page()
    run.launcher_lock.touch()
    run.launcher_state.write_text(json.dumps({"options": options}))
    page = parts_of(run).page()
    assert asks in page
    assert ('<section class="views">' in page) is sees


def test_a_command_that_hears_no_requests_has_one_button(run: RunPaths) -> None:
    lock = Lock(run.launcher_lock)
    assert Buttons(run, config.load()).open("updating") == {"stop": True}
    lock.release()


def test_a_button_asks_as_the_command_does_and_tells_the_answer(run: RunPaths) -> None:
    buttons, lock, inbox = Buttons(run, config.load()), Lock(run.learner_lock), Inbox(run)
    assert buttons.open("updating") == {"checkpoint": True, "drain": True, "resume": False, "stop": True}
    assert buttons.press("checkpoint") == "checkpoint was requested …"
    asked = inbox.poll()
    assert isinstance(asked, Request)
    assert (asked.kind, asked.by) == ("checkpoint", Requester.PERSON)
    assert not buttons.open("updating")["drain"]  # one at a time
    with pytest.raises(ExitError, match="isn't answered yet"):
        buttons.press("drain")
    done = "A checkpoint is written."
    answer = Answer(id=asked.id, kind=asked.kind, result=Result.OK, sentence=done, steps=1, updates=1, checkpoint=None)
    inbox.answer(answer)
    assert buttons.said() == f"checkpoint: {done}"
    assert buttons.open("drained") == {"checkpoint": False, "drain": False, "resume": True, "stop": True}
    lock.release()


def test_a_persons_drain_is_told_from_the_launchers(run: RunPaths) -> None:
    lock = Lock(run.learner_lock)
    launcher = AgentRequests(run)
    assert not launcher.drained_by_person()
    launcher.send("drain")
    assert not drained_by_person(run)
    Inbox(run).answer(Answer(id=1, kind="drain", result=Result.OK, sentence="", steps=0, updates=0, checkpoint=None))
    Buttons(run, config.load()).press("drain")
    assert launcher.drained_by_person()
    lock.release()


def test_without_anybody_to_ask_a_button_is_shut_and_says_why(page: Page) -> None:
    page.run.learner_lock.touch()
    parts = json.loads(page.ask("/parts", **page.own).body)
    assert set(parts["buttons"].values()) == {False}
    for what in ("checkpoint", "drain", "resume", "stop"):
        refused = page.ask(f"/do/{what}", "POST", **page.own)
        assert refused.status == 409
        assert "no agent runs there" in json.loads(refused.body)["refused"]
    assert page.ask("/do/format-disk", "POST", **page.own).status == 409


# Beginning and end


def test_a_page_that_cant_be_served_is_one_sentence(run: RunPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []

    def refused(port: int) -> str:
        with live_page.serve_while_running(run, port, said.append) as process:
            assert process is None
        return said.pop()

    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        sentence = refused(port)
        with pytest.raises(live_page.NoPageError, match=f"Port {port} is taken by"):
            live_page.serve(run, port, config.load(), said.append)
    holder = Path("/proc/self/comm").read_text(encoding="utf-8").strip()
    assert sentence.startswith(f"Port {port} is taken by {holder}")
    assert "The run continues without a page" in sentence
    run.page_address.mkdir()
    assert "page.url: can't be written (Is a directory)" in refused(0)
    monkeypatch.setattr(live_page, "NEEDED", ("starlette", "no_such_package"))
    assert "needs no_such_package: `pip install" in refused(0)
    with hooks.serve_page(run, None, said.append, SHIPPED, to_terminal=False) as process:
        assert process is None
    assert said == []


def opened(said: str) -> urllib.request.OpenerDirector:
    """Return what has shown the token once; the address is in the file that the sentence names."""
    found = re.search(r"its address is in (\S+)", said)
    assert found
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
    opener.open(Path(found[1]).read_text().strip(), timeout=PATIENCE_S).read()
    return opener


def test_the_page_lives_beside_the_run_for_its_user_only(run: RunPaths, tmp_path: Path) -> None:
    """A job's log, or a file that output goes to, may be open to other users of the machine."""
    said: list[str] = []
    limits, before = tmp_path / "own.yaml", os.umask(0)
    limits.write_text(SHIPPED.read_text())
    try:
        with live_page.serve_while_running(run, 0, said.append, limits) as process:
            address = run.page_address.read_text().strip()
            url, _, token = address.partition("?token=")
            opener = opened(said[0])
            assert json.load(opener.open(f"{url}parts", timeout=PATIENCE_S))["parts"]
            with pytest.raises(urllib.error.HTTPError, match="401"):
                urllib.request.urlopen(url, timeout=PATIENCE_S)
            assert psutil.Process(process).cmdline()[-1] == str(limits)
            assert run.page_address.stat().st_mode & 0o777 == 0o600
    finally:
        os.umask(before)
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/", url)
    assert token not in said[0]
    with pytest.raises(urllib.error.URLError, match="refused"):
        opener.open(url, timeout=PATIENCE_S)
    assert (run.logs / "page.log").read_text() == ""
    assert not run.page_address.exists()


def test_the_first_page_keeps_its_address_while_it_serves(run: RunPaths) -> None:
    with live_page.serve_while_running(run, 0, lambda _: None):
        first = run.page_address.read_text()
        with live_page.serve_while_running(run, 0, lambda _: None):
            assert run.page_address.read_text() != first
        assert run.page_address.read_text() == first
    assert not run.page_address.exists()


def test_a_terminal_is_told_the_token(run: RunPaths) -> None:
    said: list[str] = []
    with live_page.serve_while_running(run, 0, said.append, to_terminal=True):
        assert said == [f"live page: {run.page_address.read_text().strip()}"]
        assert "/?token=" in said[0]
        run.page_address.write_text("http://127.0.0.1:1/?token=later")
    assert run.page_address.exists()
    run.page_address.unlink()
    run.page_address.mkdir()  # it can't be written, and needn't be
    with live_page.serve_while_running(run, 0, said.append, to_terminal=True) as process:
        assert process is not None


def test_the_page_ends_with_a_launcher_that_is_killed(run: RunPaths) -> None:
    program = (
        "import pathlib, sys, time\n"
        "from carla_run.paths import RunPaths\n"
        "from carla_launcher.plugins.page import live_page\n"
        "say = lambda sentence: print(sentence, flush=True)\n"
        "with live_page.serve_while_running(RunPaths(pathlib.Path(sys.argv[1])), 0, say) as page:\n"
        "    print(page, flush=True)\n"
        "    time.sleep(600)\n"
    )
    launcher = subprocess.Popen(
        [sys.executable, "-c", program, str(run.path)], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True
    )
    assert launcher.stdout is not None
    said, pid = launcher.stdout.readline(), int(launcher.stdout.readline())
    opened(said)
    launcher.send_signal(signal.SIGKILL)
    launcher.wait()
    launcher.stdout.close()
    until(lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)


def test_after_a_stop_that_failed_the_button_is_open_again(
    run: RunPaths, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> str:
        raise LookupError("a mistake of ours")

    monkeypatch.setattr(down, "run", fail)
    buttons, lock = Buttons(run, config.load()), Lock(run.launcher_lock)
    buttons.press("stop")
    until(lambda: "LookupError" in buttons.said())
    assert buttons.open("updating")["stop"]
    lock.release()


def test_the_button_stops_by_the_runs_own_configuration(
    run: RunPaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "own.yaml"
    own.write_text(SHIPPED.read_text().replace("stop_grace_s: 60", "stop_grace_s: 600"))
    asked: list[config.LauncherConfig] = []

    def stop(_: RunPaths, limits: config.LauncherConfig) -> str:
        asked.append(limits)
        return "It is down."

    monkeypatch.setattr(down, "run", stop)
    lock, page = Lock(run.launcher_lock), Page(run, config.load(own))
    try:
        assert page.ask("/do/stop", "POST", **page.own).status == 200
        until(lambda: asked)
    finally:
        page.close()
        lock.release()
    assert asked == [config.load(own)]
