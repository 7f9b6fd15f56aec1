"""Common code of the verifications on other machines: steps, their limits, and the one file with the result.

Owns how a command is run and ended, the content of the file, and that it has no path or name of its user. Imports
nothing that must be installed: a missing package is a result of the verification.
"""

from __future__ import annotations

import contextlib
import getpass
import importlib.metadata
import json
import os
import platform
import shutil
import signal
import socket
import subprocess
import sys
import time
import zipfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[1]
RUN_FILES = ("*.json", "*.jsonl", "*.yaml", "report.html", "report.md", "collector*.log", "logs/*.log", "memory/*.json")
PACKAGES = ("torch", "stable-baselines3", "carla", "nvidia-ml-py", "docker", "numpy", "gymnasium")
LONGEST_LOG_BYTES = 4 << 20
LIMIT_S = 1_800.0
"""Limit of a step, unless it has its own."""
END_GRACE_S = 20.0
"""Time between SIGTERM and SIGKILL, in which a launcher writes a checkpoint and ends its programs."""
TIMED_OUT, NO_PROGRAM = 124, 127


@dataclass
class Step:
    """A command and its result; ``code`` is None if it was left out; ``said`` says why, or what is wrong."""

    name: str
    words: list[str]
    code: int | None = None
    took_s: float = 0.0
    said: str = ""

    @property
    def failed(self) -> bool:
        """Return whether it went wrong; a step that was left out didn't."""
        return self.code not in (0, None)


@dataclass
class Verification:
    """Content of the file."""

    folder: Path
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    steps: list[Step] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)

    def run(self, name: str, *words: str, limit_s: float = LIMIT_S, shown: bool = False) -> Step:
        """Run a step, whatever its result; its output goes to a file, the end of it to the terminal.

        Args:
            name: name of the step and of its file.
            words: the command.
            limit_s: after which it is ended, with all that it started.
            shown: show all of its output on the terminal as it comes, for long steps with a progress display.
        """
        step = Step(name, list(words))
        self.steps.append(step)
        print(f"\n--- {name}: {' '.join(words)}", flush=True)
        began = time.monotonic()
        path = self.folder / f"{name}.txt"
        with path.open("wb") as log:
            step.code = _run(words, None if shown else log.fileno(), limit_s, self.environment)
        step.took_s = round(time.monotonic() - began, 1)
        sys.stdout.write(path.read_text(encoding="utf-8", errors="replace")[-3000:])
        print(f"--- {name}: exit code {step.code} after {step.took_s} s", flush=True)
        return step

    def leave_out(self, name: str, why: str) -> None:
        """Record a step that can't be run here, and why."""
        self.steps.append(Step(name, [], said=why))
        print(f"\n--- {name}: skipped: {why}", flush=True)

    def finish(self, runs: Path) -> int:
        """Print the result and the path of the file; return the exit code, 1 if a step went wrong."""
        packed = self._pack(runs)
        failed = [step.name for step in self.steps if step.failed]
        left_out = [step.name for step in self.steps if step.code is None]
        print(f"\n{len(self.steps)} steps. Failed: {', '.join(failed) or 'none'}.")
        if left_out:
            print(f"Skipped: {', '.join(left_out)}.")
        print(f"Please send {packed} to the maintainers, whether steps failed or not.")
        return int(bool(failed))

    def _pack(self, runs: Path) -> Path:
        self.facts["steps"] = [asdict(step) for step in self.steps]
        (self.folder / "summary.json").write_text(json.dumps(self.facts, indent=1, default=str), encoding="utf-8")
        packed = runs / f"{self.folder.name}.zip"
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
            for path in _worth_sending(self.folder):
                text = path.read_bytes()[-LONGEST_LOG_BYTES:].decode(errors="replace")
                archive.writestr(str(path.relative_to(self.folder)), nameless(text))
        shutil.rmtree(self.folder, ignore_errors=True)
        return packed


def begin(runs: Path) -> Verification:
    """Return an empty verification with the versions of system and packages, in a new folder."""
    folder = runs.resolve() / time.strftime("verify-gpu-%Y%m%d-%H%M%S")  # absolute: steps run in the repository
    folder.mkdir(parents=True)
    return Verification(folder, facts=_machine())


def refuse(sentence: str, code: int) -> int:
    """Say why nothing is verified, and return the exit code."""
    print(f"verify-gpu: {sentence}", file=sys.stderr)
    return int(code)


def assigned(settings: Mapping[str, Any]) -> list[str]:
    """Return the words that set keys of the agent's configuration."""
    return [word for key, value in settings.items() for word in ("--set", f"{key}={json.dumps(value)}")]


def nameless(text: str) -> str:
    """Return a text without the user's folders, user name and machine name."""
    own = {sys.prefix: ".venv"} if sys.prefix != sys.base_prefix else {}  # /usr belongs to all users
    hide = {str(REPOSITORY): ".", **own, str(Path.home()): "~", socket.gethostname(): "MACHINE"}
    for hidden, shown in {**hide, f"/{getpass.getuser()}/": "/USER/"}.items():
        text = text.replace(hidden, shown)
    return text


def _machine() -> dict[str, Any]:
    packages = {}
    for name in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            packages[name] = importlib.metadata.version(name)
    system = f"{platform.platform()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    return {"system": system, "packages": packages}


def _worth_sending(folder: Path) -> list[Path]:
    inside = [path for path in folder.iterdir() if path.is_dir()]
    found = {path for run in inside for pattern in RUN_FILES for path in run.glob(pattern)}
    return sorted(found | {path for path in folder.iterdir() if path.is_file()})


def _run(words: tuple[str, ...], log: int | None, limit_s: float, environment: Mapping[str, str]) -> int:
    try:
        process = subprocess.Popen(
            words, cwd=REPOSITORY, stdout=log, stderr=log, env={**environment}, start_new_session=True
        )
    except FileNotFoundError:
        return NO_PROGRAM
    try:
        return process.wait(limit_s)
    except subprocess.TimeoutExpired:
        return TIMED_OUT
    finally:
        end(process)


def end(process: subprocess.Popen[bytes]) -> None:
    """End a process that still runs, and its group: CarlaUE4.sh, for one, passes no signal on to its children."""
    if process.poll() is not None:
        return
    with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(END_GRACE_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
