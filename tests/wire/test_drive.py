"""The trained driver that comes with the package, as others take it up: drive, evaluate, gymnasium, a notebook."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from carla_run.exits import Exit
from tests.conftest import REPOSITORY, StartServer
from tests.crowd import PATIENCE_S

NOTEBOOK = REPOSITORY / "examples" / "drive_and_train.ipynb"
RUN_CELLS = """
import json, sys
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
for cell in json.load(open(sys.argv[1]))["cells"][: int(sys.argv[2])]:
    if cell["cell_type"] == "code":
        shell.run_cell(cell["source"].replace("DRIVE_STEPS = 200", f"DRIVE_STEPS = {sys.argv[3]}")).raise_error()
        assert not shell.user_ns.get("_exit_code"), cell["source"]
"""
BEFORE_TRAINING = 8
ADDRESS = ("CARLA_HOST", "CARLA_PORT", "CARLA_PORTS", "DISPLAY", "WAYLAND_DISPLAY")


def agent(folder: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command of the agent in a folder, without a display and a simulator's address but those given."""
    environment = {name: value for name, value in os.environ.items() if name not in ADDRESS}
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    command = [sys.executable, *(("-m", "carla_td3") if words[0].isalpha() else ()), *words]
    return subprocess.run(
        command,
        cwd=folder,
        env={**environment, **variables},
        check=False,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )


def test_it_drives_in_a_simulator_of_the_commands_own(tmp_path: Path) -> None:
    done = agent(tmp_path, "drive", "--steps", "20", "--show", "nothing", "--map", "Lite01", "--vehicles", "2")
    assert done.returncode == 0, done.stderr
    summary = json.loads((tmp_path / "runs" / "drive" / "drive.json").read_text())
    assert (summary["driver"], summary["map"], summary["steps"]) == ("td3", "Lite01", 20)
    assert summary["metres"] > 1.0
    assert (tmp_path / "runs" / "drive" / "drive.mp4").stat().st_size > 10_000


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("drive", "--map", "Nowhere"), Exit.NO_SIMULATOR, "map Nowhere does not exist"),
        (("drive", "--simulator", "here"), Exit.USAGE, "expected HOST:PORT"),
        (("drive", "--pretrained", "ghost", "--simulator", "localhost:1"), Exit.BAD_CONFIG, "ghost is neither"),
        (("evaluate", "--pretrained", "traffic", "--checkpoint", "runs/x"), Exit.USAGE, "give one of them"),
        (("drive", "--weather", "Nope", "--simulator", "localhost:1"), Exit.BAD_CONFIG, "--weather: environment.wea"),
        (("export", "--checkpoint", "x", "--out", "x.pt", "--trained-on", "y"), Exit.USAGE, "ends with .safetensors"),
        (("export", "--checkpoint", "x", "--out", "x.safetensors", "--trained-on", " "), Exit.USAGE, "-on is empty"),
    ],
    ids=["map", "address", "policy", "two drivers", "weather", "name", "card"],
)
def test_what_cannot_be_driven_is_one_sentence(tmp_path: Path, words: tuple[str, ...], code: int, says: str) -> None:
    done = agent(tmp_path, *words)
    assert done.returncode == code, done.stderr
    assert says in done.stderr
    assert "traffic.safetensors" not in done.stderr
    assert "Traceback" not in done.stderr


def test_it_is_evaluated_by_its_name(start_server: StartServer, tmp_path: Path) -> None:
    port, short = str(start_server().port), "environment.route={min_length_m: 40, max_length_m: 80}"
    found = tmp_path / "found.json"
    words = ("--pretrained", "traffic", "--routes", "1", "--drivers", "td3", "--json", str(found), "--set", short)
    quiet = ("--set", "environment.traffic.vehicles=0", "--set", "environment.traffic.walkers=0")
    done = agent(tmp_path, "evaluate", *words, *quiet, CARLA_PORT=port)
    assert done.returncode == 0, done.stderr
    assert json.loads(found.read_text())


def test_a_cache_that_cannot_be_made_is_one_sentence(start_server: StartServer, tmp_path: Path) -> None:
    words = ("evaluate", "--config", "quick", "--routes", "1", "--drivers", "stop")
    done = agent(tmp_path, *words, CARLA_PORT=str(start_server().port), CARLA_CACHE_DIR="/proc/none")
    assert done.returncode == Exit.BAD_CONFIG, done.stderr
    assert "/proc/none/0.9.16: the carla client can't keep a map's files there" in done.stderr
    assert "set CARLA_CACHE_DIR" in done.stderr


def test_a_process_without_a_home_has_its_cache_among_temporary_files(tmp_path: Path) -> None:
    words = ("env", "-u", "HOME", "-u", "CARLA_CACHE_DIR", sys.executable, "-c", "import carla_td3, carla")
    assert subprocess.run(words, cwd=tmp_path, check=False, timeout=PATIENCE_S).returncode == 0


def test_the_notebook_drives(tmp_path: Path) -> None:
    pytest.importorskip("IPython", reason="IPython isn't installed: pip install '.[test]'")
    done = agent(tmp_path, "-c", RUN_CELLS, str(NOTEBOOK), str(BEFORE_TRAINING), "15")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "m/s, return" in done.stdout


@pytest.mark.long
def test_the_notebook_trains(tmp_path: Path) -> None:
    done = agent(tmp_path, "-c", RUN_CELLS, str(NOTEBOOK), "99", "200")
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "runs" / "notebook" / "report.html").exists()


@pytest.mark.long
def test_ten_lines_drive_a_whole_route(start_server: StartServer, tmp_path: Path) -> None:
    port = str(start_server().port)
    done = agent(tmp_path, str(REPOSITORY / "examples" / "drive_pretrained.py"), CARLA_PORT=port)
    assert done.returncode == 0, done.stderr
    assert "% of the route" in done.stdout
