"""A place that can't be written is one sentence before the work begins: whose it is, who runs, what to do."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from carla_run.exits import Exit
from carla_run.paths import RunPaths
from carla_td3 import output_folders
from carla_td3.run_directory import prepare
from tests.conftest import REPOSITORY
from tests.crowd import PATIENCE_S

STRANGER = 1234
TRAIN = (f"{REPOSITORY}/scripts/train_td3.py", "--run-dir", "runs/new")
FILM = (f"{REPOSITORY}/scripts/test_visual_navigation.py", "--show", "nothing")
JUDGE = (f"{REPOSITORY}/scripts/evaluate_td3.py", "--drivers", "stop", "--csv", "runs/new/found.csv")
ASK = ("agent", "request", "stop", "--run-dir", "runs/there")


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that any user can reach, unlike pytest's, with another user's runs in it."""
    if os.getuid() != 0:
        pytest.skip("only root can start a program as somebody else")
    made = Path(tempfile.mkdtemp())
    made.chmod(0o755)
    (made / "runs" / "there").mkdir(parents=True)
    (made / "config").symlink_to(REPOSITORY / "config")
    yield made
    shutil.rmtree(made)


# Files that another user can't read, such as root's Python, are read before the user changes.
AS_STRANGER = f"""
import os, runpy, sys
import encodings.idna
import carla_run.requests, carla_td3.cli.visual, carla_td3.td3.replay.resize_replay, carla_td3.trainer.loop
import rich.traceback
from carla_td3.__main__ import app
from carla_td3.evaluation import video
video.missing()
os.setgroups([]); os.setgid({STRANGER}); os.setuid({STRANGER})
del sys.argv[0]
if sys.argv[0] == "agent":
    app()
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def as_stranger(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command as a user without rights; nothing listens where it would look for a simulator."""
    return subprocess.run(
        [sys.executable, "-c", AS_STRANGER, *words],
        cwd=folder,
        env={**os.environ, "CARLA_PORT": "1", "HOME": str(folder)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


@pytest.mark.parametrize("words", [TRAIN, FILM, JUDGE], ids=lambda words: Path(words[0]).stem)
def test_another_user_s_runs_are_one_sentence_and_nothing_is_driven(folder: Path, words: tuple[str, ...]) -> None:
    ended = as_stranger(folder, *words)
    assert ended.returncode == Exit.BAD_CONFIG, ended.stderr
    (line,) = ended.stderr.splitlines()
    assert line.startswith("runs/")
    assert "can't be written (Permission denied)" in line
    assert "belongs to root (0) and this runs as user 1234" in line
    assert "chown -R 1234:1234 runs" in line
    assert "RUN_UID" in line


def test_another_user_s_run_is_named_by_its_folder_and_never_the_working_folder(folder: Path) -> None:
    os.chown(folder / "runs", STRANGER, STRANGER)
    with prepare(RunPaths(folder / "runs" / "new"), resume=True):
        pass
    ended = as_stranger(folder, *TRAIN, "--resume")
    assert ended.returncode == Exit.BAD_CONFIG, ended.stderr
    assert "runs/new belongs to root (0) and this runs as user 1234: `sudo chown -R 1234:1234 runs/new`" in ended.stderr


ROOTLESS = "0 1000 1\n1 100000 65536\n"


@pytest.mark.parametrize(
    ("number", "table", "outside"),
    [
        (1000, "         0          0 4294967295\n", 1000),
        (0, ROOTLESS, 1000),
        (1000, ROOTLESS, 100_999),
        (1000, "0 231072 65536\n", 232_072),
        (7, "", 7),
    ],
)
def test_a_container_s_user_is_counted_as_the_machine_outside_does(number: int, table: str, outside: int) -> None:
    assert output_folders.on_host(number, table) == outside


def test_in_another_namespace_the_hint_names_the_users_of_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rootless Docker: the folder's owner outside is root in here, and user 1000 in here is a sub-uid outside."""
    (tmp_path / "runs").mkdir()
    owner = (tmp_path / "runs").stat()
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    monkeypatch.setattr(os, "getgid", lambda: 1000)
    monkeypatch.setattr(os, "access", lambda _path, mode: mode == os.F_OK)
    monkeypatch.setattr(output_folders, "_map", lambda _kind: ROOTLESS)
    said = output_folders.refusal(OSError(errno.EACCES, "Permission denied", str(tmp_path / "runs")))
    assert f"`sudo chown -R 100999:100999 {tmp_path}/runs`" in said
    assert f"(for containers RUN_UID={owner.st_uid} and RUN_GID={owner.st_gid} in .env)" in said


def test_another_user_s_training_takes_no_request_and_says_whose_it_is(folder: Path) -> None:
    with prepare(RunPaths(folder / "runs" / "there"), resume=True):
        ended = as_stranger(folder, *ASK)
    assert ended.returncode == Exit.BAD_CONFIG, ended.stderr
    assert "runs/there belongs to root (0) and this runs as user 1234" in ended.stderr
    assert len(ended.stderr.splitlines()) == 1


def test_a_folder_of_one_s_own_that_is_closed_says_how_to_open_it(folder: Path) -> None:
    os.chown(folder / "runs", STRANGER, STRANGER)
    (folder / "runs").chmod(0o500)
    ended = as_stranger(folder, *FILM)
    assert ended.returncode == Exit.BAD_CONFIG, ended.stderr
    assert "runs is user 1234's own, but closed to writing: chmod u+w runs" in ended.stderr


def test_a_file_in_a_folder_s_place_is_one_sentence(folder: Path) -> None:
    os.chown(folder / "runs", STRANGER, STRANGER)
    (folder / "runs" / "visual").touch()
    ended = as_stranger(folder, *FILM)
    assert ended.returncode == Exit.BAD_CONFIG, ended.stderr
    assert "runs/visual: can't be written (File exists)" in ended.stderr
    assert len(ended.stderr.splitlines()) == 1


def test_what_can_be_written_is_left_empty_and_no_obstacle(folder: Path) -> None:
    os.chown(folder / "runs", STRANGER, STRANGER)
    ended = as_stranger(folder, *FILM, "--set", "simulator.patience_s=0.1")
    assert ended.returncode == Exit.NO_SIMULATOR, ended.stderr
    assert list((folder / "runs" / "visual").iterdir()) == []
