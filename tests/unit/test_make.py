"""``make test`` with stand-ins for the programs that it calls: which parts run, and what it says of them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.crowd import PATIENCE_S

REPOSITORY = Path(__file__).resolve().parents[2]
CI = REPOSITORY / ".ci" / "run"
LINT = "agent,lite,launcher,web,view,benchmark,test,lint,docs"
PARTS = {"lint": "ruff check", "unit": "tests/unit", "wire": "tests/wire tests/soak"}
ALL = {**PARTS, "stack": "tests/stack", "long": "-m long tests"}
STAND_IN = """#!/bin/sh
echo "${0##*/} $*" >> called
case "$*" in *"${FAILS:-nothing}"*) exit 1;; esac
"""


def make_test(
    folder: Path, fails: str, *options: str, target: str = "test"
) -> tuple[subprocess.CompletedProcess[str], str]:
    """Run it with programs that fail where their arguments hold ``fails``; return how it ended and what was called."""
    programs = stand_ins(folder)
    for purpose in ("test", "lint", "long"):
        (programs.parent / f"ready-for-{purpose}").touch()
    ended = make(folder, target, *options, FAILS=fails)
    return ended, (folder / "called").read_text(encoding="ascii")


def stand_ins(folder: Path) -> Path:
    programs = folder / ".venv" / "bin"
    programs.mkdir(parents=True)
    (folder / "carla" / "lite").mkdir(parents=True)
    for name in ("Makefile", "pyproject.toml", "carla/lite/pyproject.toml", "carla/lite/VERSION", "constraints.txt"):
        shutil.copyfile(REPOSITORY / name, folder / name)
    (programs / "python").write_text(STAND_IN, encoding="ascii")
    (programs / "python").chmod(0o755)
    return programs


def make(folder: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    # What the `make` around these tests was given (PARTS, in CI) reaches its children through the environment.
    inherited = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return subprocess.run(
        ["make", *words],
        check=False,
        capture_output=True,
        text=True,
        cwd=folder,
        env=inherited | environment,
        timeout=PATIENCE_S,
    )


@pytest.mark.skipif(shutil.which("make") is None, reason="no make here")
@pytest.mark.parametrize(("part", "fails"), [("lint", "check"), ("unit", "tests/unit"), ("long", "-m long tests")])
def test_every_part_runs_and_the_one_that_failed_is_named_last(tmp_path: Path, part: str, fails: str) -> None:
    ended, called = make_test(tmp_path, fails, target="test-all")
    assert all(arguments in called for arguments in ALL.values())
    assert ended.returncode != 0
    assert f"make test-all: failed: {part}\n" in ended.stderr


@pytest.mark.skipif(shutil.which("make") is None, reason="no make here")
def test_where_all_passed_it_ends_with_0_and_says_which_parts_that_were(tmp_path: Path) -> None:
    ended, called = make_test(tmp_path, "nothing fails")
    assert ended.returncode == 0
    assert ended.stdout.rstrip().endswith("make test: passed: lint unit wire")
    assert [part for part, arguments in ALL.items() if arguments in called] == list(PARTS)


@pytest.mark.skipif(shutil.which("make") is None, reason="no make here")
@pytest.mark.parametrize("target", ["docs", "lint"])
def test_the_site_is_built_with_its_warnings(tmp_path: Path, target: str) -> None:
    _, called = make_test(tmp_path, "nothing fails", target=target)
    assert re.findall(r"mkdocs.*", called) == ["mkdocs build"], "--quiet hides from mkdocs' strict what it is there for"


@pytest.mark.skipif(shutil.which("make") is None, reason="no make here")
def test_each_part_says_first_how_long_it_takes(tmp_path: Path) -> None:
    ended, _ = make_test(tmp_path, "nothing fails", target="test-all")
    said = [line for line in ended.stdout.splitlines() if re.match(r"make \w+: about ", line)]
    assert [line.split()[1] for line in said] == [f"{part}:" for part in ALL]
    assert all(re.search(r"about \d+ minutes on two cores", line) for line in said)
    first, _, after = ended.stdout.partition("OMP_NUM_THREADS")
    assert said[1] in first
    assert said[2] in after


@pytest.mark.skipif(shutil.which("make") is None, reason="no make here")
def test_one_installation_is_enough_for_the_linters_and_the_tests_after_them(tmp_path: Path) -> None:
    stand_ins(tmp_path)
    assert make(tmp_path, "test").returncode == 0
    called = (tmp_path / "called").read_text(encoding="ascii").splitlines()
    assert [line for line in called if "install" in line] == [
        f"python -m pip install -q -c constraints.txt -e carla/lite -e .[{LINT}]"
    ]


def test_ci_runs_each_part_but_the_long_tests() -> None:
    parts = re.findall(r"^ *(?:make test PARTS=|part )([a-z]+) \|\| failed=1$", CI.read_text(), re.M)
    assert sorted(parts) == sorted({*ALL} - {"long"})


@pytest.mark.parametrize(("word", "code"), [("--help", 0), ("unit", 2)])
def test_ci_that_is_asked_for_help_or_for_what_it_cant_starts_nothing(word: str, code: int) -> None:
    ended = subprocess.run([CI, word], check=False, capture_output=True, text=True, timeout=PATIENCE_S)
    assert ended.returncode == code
    assert "no arguments" in (ended.stderr if code else ended.stdout)


PART = re.search(r"^part\(\) .*?^\}$", CI.read_text(), re.M | re.S)
PYTEST_INI = "[pytest]\n"
MAKEFILE = f"test:\n\t{sys.executable} -m pytest -q -p no:randomly -n 2 --dist worksteal test_it.py $(PYTEST_FLAGS)\n"
BY_CHANCE = """
import pathlib
def test_passes(): open("passed", "a").write("x")
def test_by_chance():
    seen = pathlib.Path("seen")
    before = seen.exists()
    seen.touch()
    assert before
"""


@pytest.mark.skipif(shutil.which("make") is None, reason="no make here")
@pytest.mark.parametrize(("more", "code"), [("", 0), ("def test_always(): assert False", 1)])
def test_ci_runs_what_failed_once_more_and_says_so(tmp_path: Path, more: str, code: int) -> None:
    assert PART is not None
    (tmp_path / "Makefile").write_text(MAKEFILE)
    (tmp_path / "pytest.ini").write_text(PYTEST_INI)
    (tmp_path / "test_it.py").write_text(BY_CHANCE + more)
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("MAKE", "PYTEST"))}
    words = ["bash", "-c", f"{PART[0]}\npart unit"]
    ended = subprocess.run(
        words, check=False, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert ended.returncode == code, ended.stdout
    assert ("UNSTEADY" in ended.stdout) is (code == 0)
    assert (tmp_path / "passed").read_text() == "x", "only what failed runs again"


@pytest.mark.skipif(shutil.which("make") is None, reason="no make here")
@pytest.mark.parametrize(
    ("purpose", "extras"),
    [
        ("run", "agent,lite,launcher,web"),
        ("unit", "agent,lite,launcher,web,view,benchmark,test"),
        ("soak", "agent,lite,launcher,web,view,benchmark,test"),
        ("lint", LINT),
        ("long", "agent,lite,launcher,web,view,benchmark,test,ray"),
        ("verify-gpu", "agent,lite,launcher,web,view,benchmark,test"),
    ],
)
def test_each_purpose_installs_what_it_needs_and_no_more(tmp_path: Path, purpose: str, extras: str) -> None:
    stand_ins(tmp_path)
    ended = make(tmp_path, purpose)
    assert ended.returncode == 0, ended.stderr
    installs = [line for line in (tmp_path / "called").read_text(encoding="ascii").splitlines() if "install" in line]
    assert installs == [f"python -m pip install -q -c constraints.txt -e carla/lite -e .[{extras}]"]
