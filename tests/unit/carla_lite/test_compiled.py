"""Which code carla-lite runs: what compiled code is trusted, and what is said where there is none or can be none."""

from __future__ import annotations

import ast
import importlib
import os
import shutil
import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

from carla_lite import compiled
from carla_lite.compiled import __main__ as command
from tests.crowd import PATIENCE_S

STATE = "from carla_lite import compiled; compiled.use(); import carla_lite.world; print(compiled.running)"


def state(folder: Path | str, program: str = STATE, **environment: str) -> str:
    """Return what a process says that it runs, with its compiled code expected in this folder."""
    words = [sys.executable, "-c", program]
    given = {**os.environ, compiled.FOLDER_VARIABLE: str(folder), **environment}
    ended = subprocess.run(words, env=given, text=True, capture_output=True, timeout=PATIENCE_S, check=True)
    return ended.stdout.strip()


def built(root: Path) -> Path:
    """Lay a folder for the present sources, with a library that isn't one."""
    folder = root / compiled.name_of(compiled.PACKAGE)
    folder.mkdir(parents=True, mode=0o755)
    library = folder / f"{compiled.group_of(folder.name)}__mypyc{EXTENSION_SUFFIXES[0]}"
    library.write_bytes(b"cut short")
    library.chmod(0o755)
    return folder


def test_without_a_folder_the_py_files_run(tmp_path: Path) -> None:
    assert (
        state("")
        == f"the .py files, not compiled (no folder for them: {compiled.FOLDER_VARIABLE} is empty or there is no home)"
    )
    assert "make them: python -m carla_lite.compiled" in state(tmp_path)


def test_a_library_that_does_not_load_is_named(tmp_path: Path) -> None:
    folder = built(tmp_path)
    assert str(folder) in state(tmp_path)
    assert state(tmp_path).startswith("the .py files, not compiled (")


@pytest.mark.parametrize("part", ["folder", "library", "above"])
def test_what_others_can_write_to_is_never_loaded(tmp_path: Path, part: str) -> None:
    folder = built(tmp_path / "kept")
    shared = {"folder": folder, "library": next(folder.iterdir()), "above": tmp_path / "kept"}[part]
    shared.chmod(0o777)
    assert state(tmp_path / "kept") == f"the .py files, not compiled (others can write to {shared})"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_what_belongs_to_another_user_is_never_loaded(tmp_path: Path) -> None:
    folder = built(tmp_path)
    os.chown(folder, 12345, 12345)
    assert state(tmp_path) == f"the .py files, not compiled (others can write to {folder})"


def test_a_folder_in_one_like_tmp_is_trusted(tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    (tmp_path / "tmp").chmod(0o1777)
    folder = built(tmp_path / "tmp" / "own")
    assert compiled.writable_by_others(folder) is None


def test_imported_modules_are_not_mixed_with_compiled_ones(tmp_path: Path) -> None:
    built(tmp_path)
    assert "imported before" in state(tmp_path, f"import carla_lite.scenery.projection; {STATE}")


def test_an_edit_of_any_source_asks_for_other_compiled_code(tmp_path: Path) -> None:
    package = tmp_path / "carla_lite"
    shutil.copytree(compiled.PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))
    assert compiled.name_of(package) == compiled.name_of(compiled.PACKAGE)
    for file in ("world.py", "scenery/scene.py"):  # one that is compiled, and one that compiled code calls
        before = compiled.name_of(package)
        path = package / file
        path.write_text(path.read_text(encoding="utf-8") + "\n", encoding="utf-8")
        assert compiled.name_of(package) != before


@pytest.mark.parametrize("module", compiled.MODULES)
def test_compiled_modules_have_no_cached_property(module: str) -> None:
    source = compiled.PACKAGE.joinpath(*module.split(".")).with_suffix(".py").read_text(encoding="utf-8")
    names = {node.id for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name)}
    assert "cached_property" not in names, "mypyc takes it for a property, and computes it each time"
    assert importlib.util.find_spec(f"carla_lite.{module}") is not None


def build(folder: Path | str, **environment: str) -> tuple[int, str]:
    """Run the command that compiles where it can't; return its exit code and the line that it says."""
    given = {**os.environ, compiled.FOLDER_VARIABLE: str(folder), **environment}
    words = [sys.executable, "-m", "carla_lite.compiled"]
    ended = subprocess.run(words, env=given, text=True, capture_output=True, timeout=PATIENCE_S, check=False)
    assert "Traceback" not in ended.stderr
    return ended.returncode, ended.stderr.strip()


def test_without_a_compiler_it_says_what_to_install(tmp_path: Path) -> None:
    code, said = build(tmp_path, CC="no-such-compiler")
    assert code == 69
    assert said.startswith("carla-lite: there is no C compiler (no-such-compiler): install one")
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_used_is_explained(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert build("") == (69, "carla-lite: there is no folder to keep compiled code in: set LITE_COMPILED_DIR.")
    code, said = build(tmp_path / "file" / "below")
    assert (code, said.count("\n")) == (69, 0)
    assert said.startswith(f"carla-lite: can't keep compiled code in {tmp_path / 'file' / 'below'} (")
    folder = built(tmp_path / "kept")
    folder.chmod(0o777)
    code, said = build(tmp_path / "kept")
    assert code == 69
    assert f"others can write to {folder}" in said


def fake_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    def compile_nothing(_sources: Path, done: Path, group: str) -> None:
        done.mkdir()
        (done / group).touch(mode=0o666)

    monkeypatch.setattr(command, "_compile", compile_nothing)


def test_two_builds_at_once_leave_one_whole_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_compiler(monkeypatch)
    first, second = command._build(tmp_path), command._build(tmp_path)  # as if both had begun before either was done
    assert first == second == tmp_path / compiled.name_of(compiled.PACKAGE)
    assert [one.name for one in tmp_path.iterdir()] == [first.name]
    assert compiled.writable_by_others(first) is None


def test_leftovers_of_a_killed_build_go_after_a_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_compiler(monkeypatch)
    now, before = tmp_path / ".unfinished-now", tmp_path / ".unfinished-before"
    now.mkdir()
    before.mkdir()
    os.utime(before, (0.0, 0.0))
    assert "none in" in state(tmp_path)
    folder = command._build(tmp_path)
    assert set(tmp_path.iterdir()) == {now, folder}


def test_a_build_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise SystemExit(70)

    monkeypatch.setattr(command, "_compile", fail)
    with pytest.raises(SystemExit):
        command._build(tmp_path)
    assert not list(tmp_path.iterdir())
