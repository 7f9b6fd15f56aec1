"""The visual test against a real simulator: healthy, unhealthy by each fault, in a window, refused in one sentence."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cv2
import imageio_ffmpeg
import numpy as np
import pytest

from carla_run.exits import Exit
from carla_td3.evaluation.overlay import size_of
from tests.conftest import REPOSITORY, Server
from tests.crowd import PATIENCE_S
from tests.faults import Faulty

TEST = f"{REPOSITORY}/scripts/test_visual_navigation.py"
QUICK = ("--set", "environment.route.min_length_m=60", "--set", "simulator.patience_s=5", "--show", "nothing")
XVFB = shutil.which("Xvfb")


def start(port: int, folder: Path, *options: str, environment: dict[str, str] | None = None) -> subprocess.Popen[str]:
    """Start the visual test; its files are ``folder/seen.*``. There is no display unless one is given."""
    kept = {name: value for name, value in os.environ.items() if name not in ("DISPLAY", "WAYLAND_DISPLAY")}
    return subprocess.Popen(
        [sys.executable, TEST, "--video", str(folder / "seen.mp4"), *options],
        cwd=REPOSITORY,
        env={**kept, "CARLA_HOST": "127.0.0.1", "CARLA_PORT": str(port), **(environment or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def visual(
    port: int, folder: Path, *options: str, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the visual test to its end."""
    return ended(start(port, folder, *options, environment=environment))


def ended(test: subprocess.Popen[str]) -> subprocess.CompletedProcess[str]:
    try:
        out, error = test.communicate(timeout=240)
    finally:
        test.kill()
    return subprocess.CompletedProcess(test.args, test.returncode, out, error)


def until_filmed(test: subprocess.Popen[str], folder: Path) -> None:
    """Wait for the first picture."""
    while not (folder / ".unfinished-seen.mp4").exists():
        assert test.poll() is None, ended(test).stderr
        time.sleep(0.02)


def summary(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "seen.json").read_text())
    return found


def frames(path: Path) -> list[np.ndarray]:
    reader = imageio_ffmpeg.read_frames(str(path))
    width, height = next(reader)["size"]
    return [np.frombuffer(picture, np.uint8).reshape(height, width, 3) for picture in reader]


def test_a_healthy_drive_leaves_video_sheet_and_summary(module_server: Server, tmp_path: Path) -> None:
    among = ("--vehicles", "5", "--walkers", "5", "--lights", "--weather", "WetNoon", "--driver", "expert")
    done = visual(module_server.port, tmp_path, *QUICK, *among, "--steps", "30")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("expert: 3.0 s, ")
    found = summary(tmp_path)
    assert found["healthy"]
    assert (found["steps"], found["driver"], found["map"]) == (30, "expert", "Lite01")
    assert found["peak_mib"]["agent"] > 50
    assert found["peak_mib"]["simulator"] > 20
    pictures = frames(tmp_path / "seen.mp4")
    assert len(pictures) == 30
    assert (pictures[0].shape[1], pictures[0].shape[0]) == size_of(False)
    assert (pictures[0] != pictures[-1]).any()
    sheet = cv2.imread(str(tmp_path / "seen.png"))
    assert sheet is not None
    assert sheet.std() > 20


def test_a_visual_test_that_is_stopped_leaves_what_was_driven(module_server: Server, tmp_path: Path) -> None:
    test = start(module_server.port, tmp_path, *QUICK, "--steps", "5000", "--camera", "own")
    until_filmed(test, tmp_path)
    test.send_signal(signal.SIGTERM)
    done = ended(test)
    driven = summary(tmp_path)["steps"]
    assert done.returncode == Exit.STOPPED, done.stderr
    assert f"Stopped by SIGTERM after {driven} of 5000 steps." in done.stderr
    assert len(frames(tmp_path / "seen.mp4")) == driven > 0


@pytest.mark.parametrize(
    ("fault", "options", "says"),
    [
        pytest.param("hang", (), "is silent: no reply to a tick", marks=pytest.mark.long),
        ("hang", ("--vehicles", "2"), "is silent: no reply to a tick"),
        pytest.param("drop", (), "no image of frame", marks=pytest.mark.long),
        ("drop:for_ticks=1", (), "no image of frame"),
        ("black:for_ticks=3", (), "showed nothing 3 times"),
        pytest.param("crash", (), "closed its connection", marks=pytest.mark.long),
        ("crash", ("--vehicles", "2"), "closed its connection"),
    ],
    ids=["hang", "hang with cars", "no pictures", "one frame dropped", "black pictures", "crash", "crash with cars"],
)
def test_what_goes_wrong_in_the_simulator_is_told(
    faulty: Faulty, tmp_path: Path, fault: str, options: tuple[str, ...], says: str
) -> None:
    more = ("--set", "simulator.timeout_s=4", "--steps", "60", "--camera", "own", *options)
    test = start(faulty.server.port, tmp_path, *QUICK, *more)
    until_filmed(test, tmp_path)
    with contextlib.suppress(OSError):  # who crashes doesn't answer
        faulty.tell(f"fault {fault}")
    found = ended(test)
    assert found.returncode == 1, found.stderr
    told = summary(tmp_path)
    assert not told["healthy"]
    assert any(says in problem for problem in told["problems"]), told
    assert says in found.stdout + found.stderr
    assert "Traceback" not in found.stderr
    assert len(frames(tmp_path / "seen.mp4")) == told["steps"]


def test_too_much_memory_is_unhealthy(module_server: Server, tmp_path: Path) -> None:
    done = visual(module_server.port, tmp_path, *QUICK, "--steps", "2", "--memory-limit-mib", "30")
    assert done.returncode == 1
    assert "more than the limit of 30 MiB" in done.stdout


@pytest.fixture
def display(tmp_path: Path) -> Iterator[str]:
    """A screen without a monitor."""
    if XVFB is None:
        pytest.skip("there is no Xvfb here: apt-get install xvfb")
    pytest.importorskip("pygame", reason="pygame-ce isn't installed: pip install '.[view]'")
    read, write = os.pipe()
    framebuffer = ("-fbdir", str(tmp_path))
    server = subprocess.Popen(
        [XVFB, "-displayfd", str(write), "-screen", "0", "1280x800x24", "-nolisten", "tcp", *framebuffer],
        pass_fds=(write,),
        stderr=subprocess.DEVNULL,
    )
    os.close(write)
    with os.fdopen(read) as told:
        yield f":{told.readline().strip()}"
    server.terminate()
    server.wait(PATIENCE_S)


def screen(folder: Path) -> np.ndarray:
    """Return what is on the screen, (height, width, 3), blue first: Xvfb keeps it in a file, in the format of xwd."""
    dump = (folder / "Xvfb_screen0").read_bytes()
    head = np.frombuffer(dump[:100], ">u4")
    size, width, height, line, colours = int(head[0]), int(head[4]), int(head[5]), int(head[12]), int(head[19])
    start = size + 12 * colours
    pixels = np.frombuffer(dump[start : start + height * line], np.uint8).reshape(height, line)
    return pixels[:, : 4 * width].reshape(height, width, 4)[:, :, :3]


def test_where_there_is_a_display_a_window_shows_the_drive(module_server: Server, tmp_path: Path, display: str) -> None:
    test = start(module_server.port, tmp_path, "--steps", "100", *QUICK[:2], environment={"DISPLAY": display})
    shown: list[np.ndarray] = []
    while test.poll() is None:
        now = screen(tmp_path)
        if now.std() > 20 and (not shown or (now != shown[-1]).any()):
            shown.append(now)
        time.sleep(0.1)
    assert test.returncode == 0
    assert len(shown) > 2
    cv2.imwrite(str(tmp_path / "screen.png"), shown[len(shown) // 2])
    assert summary(tmp_path)["healthy"]


def test_without_a_display_the_live_page_has_an_address(module_server: Server, tmp_path: Path) -> None:
    pytest.importorskip("uvicorn")
    done = visual(module_server.port, tmp_path, "--steps", "5")
    assert done.returncode == 0, done.stderr
    no_window, page, *_ = done.stderr.splitlines()
    assert no_window.startswith("No window: there is no display here")
    assert re.fullmatch(r"launcher: live page: its address is in .*/page\.url", page)


def test_a_port_in_use_is_one_sentence_and_costs_the_page_alone(module_server: Server, tmp_path: Path) -> None:
    pytest.importorskip("uvicorn")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        done = visual(module_server.port, tmp_path, "--steps", "2", "--port", port)
        assert done.returncode == 0, done.stderr
        assert f"Port {port} is taken by" in done.stderr
        done = visual(module_server.port, tmp_path, "--steps", "2", "--port", port, "--show", "page")
    assert done.returncode == 65
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("options", "environment", "code", "says"),
    [
        (("--checkpoint", "runs/none"), {}, 65, "runs/none"),
        (("--driver", "ghost"), {}, 2, "'ghost' is unknown"),
        (("--explain",), {}, 2, "give --checkpoint"),
        (("--weather", "Sunny"), {}, 65, "'Sunny'"),
        (("--show", "window"), {"DISPLAY": ":987"}, 65, "No window: "),
        ((), {"IMAGEIO_FFMPEG_EXE": "/bin/false"}, 65, "/bin/false doesn't have libx264"),
    ],
    ids=["checkpoint", "driver", "nothing to explain", "weather", "display", "codec"],
)
def test_what_cannot_be_is_one_sentence(
    module_server: Server,
    tmp_path: Path,
    options: tuple[str, ...],
    environment: dict[str, str],
    code: int,
    says: str,
) -> None:
    # The last --show wins.
    done = visual(module_server.port, tmp_path, *QUICK, *options, "--steps", "2", environment=environment)
    assert done.returncode == code, done.stderr
    (line,) = done.stderr.splitlines()
    assert says in line
