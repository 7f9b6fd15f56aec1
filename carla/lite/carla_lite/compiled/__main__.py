"""The command ``python -m carla_lite.compiled``: compiles the present sources once.

Owns the build, from a copy of the sources to a folder that is complete or absent: parallel builds, a full disk and
SIGKILL leave nothing that would be loaded. Exit codes: 69 if something is missing here, 70 if compiling fails.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path
from typing import NoReturn

from carla_lite.compiled import FOLDER_VARIABLE, MODULES, PACKAGE, group_of, kept_in, name_of, writable_by_others

_MISSING, _FAILED = 69, 70
_UNFINISHED = ".unfinished-"
_ABANDONED_S = 86_400.0
_KEPT = 8


def main() -> None:
    """Compile unless it is done, and print the result in one line."""
    if len(sys.argv) > 1:
        _fail(2, f"{shlex.join(sys.argv[1:])}: no argument is taken; {FOLDER_VARIABLE} says where to")
    root = kept_in()
    if root is None:
        _fail(_MISSING, f"there is no folder to keep compiled code in: set {FOLDER_VARIABLE}")
    began = time.monotonic()
    try:
        root.mkdir(mode=0o755, parents=True, exist_ok=True)
        folder = root / name_of(PACKAGE)
        if folder.is_dir():
            print(f"carla-lite: {folder} is there already")
        else:
            _require()
            folder = _build(root)
            print(f"carla-lite: compiled in {time.monotonic() - began:.0f} s, into {folder}")
        unsafe = writable_by_others(folder)
    except OSError as error:
        _fail(_MISSING, f"can't keep compiled code in {root} ({error}): set {FOLDER_VARIABLE}")
    if unsafe is not None:
        _fail(_MISSING, f"it won't be used, because others can write to {unsafe}: chmod go-w, or set {FOLDER_VARIABLE}")


def _require() -> None:
    """Exit with a sentence if something needed for compiling is missing."""
    if importlib.util.find_spec("mypyc") is None or importlib.util.find_spec("setuptools") is None:
        _fail(_MISSING, "mypy and setuptools are missing, which compile it: pip install 'carla-lite[compiled]'")
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")[0]
    if shutil.which(compiler) is None:
        _fail(_MISSING, f"there is no C compiler ({compiler}): install one (Debian, Ubuntu: apt install gcc libc6-dev)")
    header = Path(sysconfig.get_path("include"), "Python.h")
    if not header.is_file():
        _fail(_MISSING, f"{header} is missing: install Python's headers (Debian, Ubuntu: apt install python3-dev)")


def _build(root: Path) -> Path:
    """Compile a copy of the sources and return the folder."""
    with tempfile.TemporaryDirectory(prefix=_UNFINISHED, dir=root) as made:
        work = Path(made)
        sources, done = work / "sources", work / "done"
        shutil.copytree(PACKAGE, sources / PACKAGE.name, ignore=shutil.ignore_patterns("__pycache__"))
        name = name_of(sources / PACKAGE.name)
        _compile(sources, done, group_of(name))
        for path in (done, *done.rglob("*")):
            path.chmod(0o755)
        folder = root / name
        try:
            done.rename(folder)
        except OSError:
            if not folder.is_dir():  # else another process was first, with the same code
                raise
    _clear_away(root, folder)
    return folder


def _compile(sources: Path, done: Path, group: str) -> None:
    program = Path(__file__).with_name("extension.py")
    files = [f"{PACKAGE.name}/{module.replace('.', '/')}.py" for module in MODULES]
    # Flags that a user has set for other programs could change the last bit of a sum.
    environment = {key: value for key, value in os.environ.items() if key not in ("CFLAGS", "CPPFLAGS", "LDFLAGS")}
    command = [sys.executable, str(program), str(done), group, *files]
    ran = subprocess.run(
        command, cwd=sources, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    if ran.returncode:
        print(ran.stdout[-4000:], file=sys.stderr)
        _fail(_FAILED, "compiling failed, for the reason above; the .py files run as they are")


def _clear_away(root: Path, newest: Path) -> None:
    """Remove folders for older sources, except the last few, and the remains of killed builds."""
    ages_s = dict[Path, float]()
    for one in root.iterdir():
        with contextlib.suppress(FileNotFoundError):  # a parallel build renames and removes folders meanwhile
            ages_s[one] = time.time() - one.stat().st_mtime
    old = sorted((one for one in ages_s if len(one.name) == len(newest.name)), key=ages_s.__getitem__)
    unfinished = [one for one in ages_s if one.name.startswith(_UNFINISHED) and ages_s[one] > _ABANDONED_S]
    for one in {*old[_KEPT:], *unfinished} - {newest}:
        shutil.rmtree(one, ignore_errors=True)


def _fail(code: int, sentence: str) -> NoReturn:
    print(f"carla-lite: {sentence}.", file=sys.stderr)
    raise SystemExit(code)


if __name__ == "__main__":
    main()
