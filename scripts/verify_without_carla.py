"""Verifications that need a real GPU but no CARLA, part by part: for a GPU in the cloud, with any interpreter.

Installs nothing: a part that lacks a package is skipped with a sentence.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import verification
import vulkan_devices
from verification import REPOSITORY, Step, Verification, assigned, refuse
from vulkan_devices import LOADER, NO_LOADER

LIMIT_S = 480.0
"""Limit of a part."""
CONFIGURATION, NO_CARD = 65, 69
OLDEST_PYTHON, OLDEST_TORCH = (3, 10), (2, 11)
TORCH = ("torch", "numpy", "pydantic", "yaml", "typer", "rich", "safetensors", "psutil")
"""Modules that the agent's networks and memory need."""
STACK = (*TORCH, "carla.libcarla", "gymnasium", "networkx", "cv2", "tensorboard", "msgpack", "pynvml")
PIP_NAMES = {"yaml": "pyyaml", "cv2": "opencv-python-headless", "pynvml": "nvidia-ml-py", "carla.libcarla": "carla"}
FOLDERS = ("agent", "launcher", "contract", "carla/lite", "benchmarks")
"""Folders of the repository, which isn't installed, on Python's module path."""
SEES_THE_CARD = "import torch; torch.cuda.init(); print(torch.cuda.get_device_name(0))"
BATCH = {"cuda": 2048, "cpu": 32}
"""Batch of the runs that memory is taken from: large enough that a quarter of it needs much less than the whole."""


@dataclass(frozen=True)
class Part:
    """Requirements and work of a part; ``run`` returns when all is done."""

    needs: tuple[str, ...]
    run: Callable[[Limited], None]


class Limited:
    """A running part: its commands share its limit."""

    def __init__(self, held: Verification, name: str, device: str) -> None:
        self.held, self.name, self.device = held, name, device
        self._until = time.monotonic() + LIMIT_S - verification.END_GRACE_S

    def run(self, detail: str, *words: str, more: Mapping[str, str] | None = None) -> Step:
        """Run a Python command within the rest of the part's limit."""
        left = max(1.0, self._until - time.monotonic())
        name = f"{self.name}-{detail}" if detail else self.name
        before = self.held.environment
        self.held.environment = {**before, **(more or {})}
        try:
            return self.held.run(name, sys.executable, *words, limit_s=left)
        finally:
            self.held.environment = before


def main(runs: Path, wanted: list[str], gpu: int, device: str) -> int:
    """Run the parts, write the file into ``runs``, and return the exit code."""
    if problem := _interpreter():
        return refuse(problem, CONFIGURATION)
    environment = _environment(gpu)
    if device == "cuda" and (problem := _no_card(environment)):
        return refuse(problem, NO_CARD)
    held = verification.begin(runs)
    held.environment = environment
    try:
        _look(held)
        for name in wanted or PARTS:
            _try(held, name, device)
    finally:
        code = held.finish(runs)
    return code


def _try(held: Verification, name: str, device: str) -> None:
    part = PARTS[name]
    missing = [PIP_NAMES.get(module, module) for module in part.needs if not _is_there(module)]
    if missing:
        held.leave_out(
            name, f"{sys.executable} lacks {', '.join(missing)}: pip install {' '.join(missing)} for this part."
        )
    else:
        part.run(Limited(held, name, device))


def _interpreter() -> str:
    version = ".".join(map(str, sys.version_info[:2]))
    if sys.version_info[:2] < OLDEST_PYTHON:
        return f"this is Python {version}, 3.10 or later is needed: call it with another (make … PYTHON=python3.12)."
    return ""


def _no_card(environment: Mapping[str, str]) -> str:
    """Return why this interpreter's torch can't use a GPU; empty if it can."""
    if not _is_there("torch"):
        return f"{sys.executable} has no torch, 2.11 or later is needed: call an interpreter that has it (PYTHON=…)."
    asked = subprocess.run(
        [sys.executable, "-c", f"import torch; print(torch.__version__); {SEES_THE_CARD}"],
        check=False,
        capture_output=True,
        text=True,
        env={**environment},
    )
    found = re.match(r"(\d+)\.(\d+)", asked.stdout)
    if found and (int(found[1]), int(found[2])) < OLDEST_TORCH:
        return f"this is torch {asked.stdout.split()[0]}, 2.11 or later is needed."
    if asked.returncode == 0:
        return ""
    said = [line.strip() for line in asked.stderr.splitlines() if line.strip()]
    return f"this needs an NVIDIA GPU that torch sees ({said[-1].rstrip('.') if said else 'torch printed nothing'})."


def _environment(gpu: int) -> dict[str, str]:
    paths = [str(REPOSITORY / folder) for folder in FOLDERS]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*paths, *filter(None, [os.environ.get("PYTHONPATH")])])}
    if gpu:
        environment |= {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": str(gpu)}
    return environment


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # its package
        return False


def _look(held: Verification) -> None:
    """Record the GPU and the checkout; either command may be missing."""
    for name, words in {"revision": ("git", "rev-parse", "HEAD"), "nvidia-smi": ("nvidia-smi", "-q")}.items():
        if held.run(name, *words).code == verification.NO_PROGRAM:
            held.steps[-1] = Step(name, list(words), said="no such program here")


def _tests(part: Limited) -> None:
    files = sorted(
        str(path.relative_to(REPOSITORY))
        for path in (REPOSITORY / "tests/unit").rglob("test_*.py")
        if "mark.gpu" in path.read_text(encoding="utf-8")
    )
    part.run("", "-m", "pytest", "-p", "no:cacheprovider", "-m", "gpu", "-rs", *files)


def _updates(part: Limited) -> None:
    """Eager and captured updates, and compiled ones; without a GPU only enough to show that it runs."""
    quick = part.device == "cpu"
    for batch in (8,) if quick else (64, 256):
        for precision in ("float32",) if quick else ("float32", "bfloat16"):
            turns = ("--updates", "1", "--repeats", "1") if quick else ("--updates", "50", "--repeats", "5")
            which = ("--batch", str(batch), "--precision", precision, "--device", part.device)
            ours = ("--ours", "eager", "--ours", "captured")
            part.run(f"{batch}-{precision}", "benchmarks/updates.py", *which, *ours, *turns, "--json")
    if not quick:  # by itself: it takes a C++ compiler, and may fail
        words = ("--batch", "64", "--device", part.device, "--ours", "eager", "--ours", "compiled", "--json")
        part.run("64-compiled", "benchmarks/updates.py", *words, "--updates", "50", "--repeats", "5")


def _ways(part: Limited) -> None:
    """The offloads and micro-batches; the third batch and float16 are left to ``footprint``, to save time."""
    quick = part.device == "cpu"
    batches = ("16",) if quick else ("256", "64")
    precisions = ("float32",) if quick else ("float32", "bfloat16")
    seconds = "0.1" if quick else "0.5"
    which = [word for batch in batches for word in ("--batch", batch)]
    which += [word for precision in precisions for word in ("--precision", precision)]
    part.run("", "benchmarks/ways.py", "--device", part.device, *which, "--seconds", seconds, "--json")


def _footprint(part: Limited) -> None:
    quick = ("--batch", "8", "--precision", "float32", "--seconds", "0.1") if part.device == "cpu" else ()
    part.run("", "benchmarks/card_footprint.py", "--device", part.device, *quick, "--json")


def _vulkan(part: Limited) -> None:
    """CARLA's rendering driver, by the driver file of CARLA's image; torch's checks don't cover it."""
    if part.run("", vulkan_devices.__file__, *(["--any"] if part.device == "cpu" else [])).code == NO_LOADER:
        part.held.steps[-1] = Step(part.name, [], said=f"this machine has no {LOADER}: libvulkan1 for this part.")


def _first_update(part: Limited) -> None:
    _short_run(part, at_update=1, steps=300)


def _mid_run(part: Limited) -> None:
    _short_run(part, at_update=20, steps=500)


def _short_run(part: Limited, at_update: int, steps: int) -> None:
    """Train under the launcher, take the agent's memory at an update, and read the result from the run."""
    batch, run = BATCH[part.device], part.held.folder / part.name
    settings = {
        "td3.batch_size": batch,
        "environment.time_limit.constant_s": 6,
        "environment.route": {"min_length_m": 60, "max_length_m": 150},
        "replay.capacity": 5_000,
        "training.warmup_steps": 50,
        "training.updates_per_step": 1.0,
        "evaluation.every_steps": 0,
        "evaluation.final_episodes": 0,
        "evaluation.baselines": False,
        "evaluation.video": False,
    }
    up = ("up", "--runtime", "process", "--simulator", "carla-lite", "--device", part.device)
    where = ("--runs-dir", str(run.parent), "--run-name", run.name, "--max-timesteps", str(steps))
    paths = os.pathsep.join([str(REPOSITORY / "scripts/shortage"), part.held.environment["PYTHONPATH"]])
    more = {"PYTHONPATH": paths, "SHORTAGE_AT_UPDATE": str(at_update)}
    ended = part.run("up", "scripts/launch.py", *up, *where, "--", *assigned(settings), more=more)
    wrong = list(_wrong(run, ended, part.device, batch, steps, rehearsed=at_update == 1))
    print(f"--- {part.name}: {' '.join(wrong) or 'as expected.'}", flush=True)
    part.held.steps.append(Step(f"{part.name}-outcome", [], int(bool(wrong)), said=" ".join(wrong)))


def _wrong(run: Path, ended: Step, device: str, batch: int, steps: int, rehearsed: bool) -> Iterator[str]:
    """Yield a sentence for each wrong result of a run that memory was taken from."""
    shortages = [row for row in _rows(run / "agent-events.jsonl") if row["event"] == "out_of_memory"]
    adopted = [row for row in _rows(run / "launcher-events.jsonl") if row["event"] == "rung_adopted"]
    beat, state = _read(run / "agent.json"), _read(run / "launcher.json")
    if ended.code != 0:
        yield f"The launcher ended with {ended.code}."
    if not shortages:
        yield "Memory never ran out."
    if any(row["phase"].startswith("rehearsed") is not rehearsed for row in shortages):
        yield f"Memory ran out in {', '.join(row['phase'] for row in shortages)}."
    if (beat.get("step"), beat.get("device")) != (steps, device):
        yield f"The agent ended at step {beat.get('step')} of {steps} on {beat.get('device')}."
    micro_batch = beat.get("micro_batch", batch)
    if not batch // 8 <= micro_batch < batch:
        yield f"The last micro-batch had {micro_batch} of {batch} rows."
    if [step.get("values") for step in state.get("taken", ())] != [{"td3.micro_batch": micro_batch}]:
        yield f"The launcher's rung is {state.get('taken')}, expected micro-batches of {micro_batch}."
    if not adopted:
        yield "The launcher never adopted the micro-batches."
    if state.get("agent_restarts") != 0:
        yield f"The launcher restarted the agent {state.get('agent_restarts')} times."


def _rows(path: Path) -> list[dict[str, Any]]:
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [json.loads(line) for line in lines]


def _read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return found


PARTS: Mapping[str, Part] = {
    "tests": Part((*TORCH, "pytest", "hypothesis"), _tests),
    "updates": Part((*TORCH, "gymnasium", "stable_baselines3"), _updates),
    "ways": Part(TORCH, _ways),
    "footprint": Part(TORCH, _footprint),
    "vulkan": Part((), _vulkan),
    "out-of-memory-first": Part(STACK, _first_update),
    "out-of-memory-later": Part(STACK, _mid_run),
}
"""In the order of execution."""
