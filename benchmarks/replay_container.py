"""Updates per second from a replay far larger than memory: a million transitions on disk, in a container of 2 GiB.

Run: ``python benchmarks/replay_container.py --json``; needs a Docker engine (``.ci/engine`` makes one), 8 GiB of disk.
Two containers with the same limit, a learner of one thread in each: one samples from the large ring, one from a ring
that fits. They take turns, so that neither disturbs the other; the figure is the median of the turns' ratios. Each
learner fills its ring itself, so that its pages are charged to its own container. The repository and this interpreter
are mounted read-only: no image is built.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from measuring import machine, spread

from carla_td3.td3.replay.layout import bytes_for

REPOSITORY = Path(__file__).resolve().parent.parent
_PER_TURN = ("updates_per_s", "processor_share", "major_faults", "mib_read")


class Container:
    """A learner in a container."""

    def __init__(self, name: str, image: str, memory: str, directory: Path, arguments: list[str]) -> None:
        self._name = f"{name}-{uuid.uuid4().hex[:8]}"
        read_only = {str(path) for path in (REPOSITORY, Path(sys.prefix), Path(sys.base_prefix))} - {"/usr"}
        mounts = [f"{path}:{path}:ro" for path in sorted(read_only)] + [f"{directory}:/run-directory"]
        command = ["docker", "run", "--interactive", "--name", self._name, "--network", "none"]
        command += ["--memory", memory, "--memory-swap", memory, "--user", f"{os.getuid()}:{os.getgid()}"]
        for mount in mounts:
            command += ["--volume", mount]
        for variable in (f"PYTHONPATH={REPOSITORY}", "PYTHONDONTWRITEBYTECODE=1", "OMP_NUM_THREADS=1", "HOME=/tmp"):
            command += ["--env", variable]
        worker = str(REPOSITORY / "benchmarks" / "replay_worker.py")
        self._process = subprocess.Popen(
            [*command, image, sys.executable, worker, "/run-directory/run", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def answer(self) -> dict[str, Any]:
        """Return the worker's next line; its end ends the benchmark."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            killed = "was killed for memory" if self._state("OOMKilled") == "true" else "ended"
            raise SystemExit(f"The learner in {self._name} {killed} (exit code {self._state('ExitCode')}).")
        found: dict[str, Any] = json.loads(line)
        return found

    def turn(self, updates: int) -> dict[str, Any]:
        """Let it make this many updates, and return its measurements."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{updates}\n")
        self._process.stdin.flush()
        return self.answer()

    def close(self) -> None:
        """Remove the container."""
        subprocess.run(["docker", "rm", "--force", self._name], check=False, capture_output=True)
        self._process.wait()

    def _state(self, field: str) -> str:
        self._process.wait()
        command = ["docker", "inspect", "--format", f"{{{{.State.{field}}}}}", self._name]
        return subprocess.run(command, check=False, capture_output=True, text=True).stdout.strip()


def main(
    transitions: Annotated[int, typer.Option(min=1_000, help="Transitions in the large ring.")] = 1_000_000,
    fitting: Annotated[int, typer.Option(min=1_000, help="Transitions in the ring that fits in memory.")] = 100_000,
    memory: Annotated[str, typer.Option(help="Memory limit of each container, in Docker's notation.")] = "2g",
    batch: Annotated[int, typer.Option(min=1, help="Batch size, in transitions.")] = 256,
    precision: Annotated[Literal["float32", "bfloat16"], typer.Option(help="Precision of the encoder.")] = "float32",
    updates: Annotated[int, typer.Option(min=1, help="Updates per turn.")] = 20,
    warm_up: Annotated[int, typer.Option(min=0, help="Warm-up of each variant, in updates.")] = 40,
    repeats: Annotated[int, typer.Option(min=1, help="Turns of each variant.")] = 7,
    image: Annotated[
        str, typer.Option(help="Docker image whose C library this Python can use.")
    ] = "python:3.11-slim-bookworm",
    directory: Annotated[Path, typer.Option(help="Folder on a real disk for the temporary rings.")] = REPOSITORY
    / "runs",
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Measure updates per second from a ring larger than memory, compared with one that fits."""
    sizes = {"on_disk": transitions, "in_memory": fitting}
    with _containers(sizes, image, memory, directory, [str(batch), precision]) as containers:
        filled = {name: container.answer() for name, container in containers.items()}
        for container in containers.values():
            container.turn(warm_up)
        turns = [{name: each.turn(updates) for name, each in containers.items()} for _ in range(repeats)]
    ratios = [turn["on_disk"]["updates_per_s"] / turn["in_memory"]["updates_per_s"] for turn in turns]
    report = {
        "what": f"updates a second from a ring on disk over those from one in memory, each in a container of {memory}",
        "transitions": sizes,
        "ring_mib": {name: round(bytes_for(count) / 2**20, 1) for name, count in sizes.items()},
        "batch": batch,
        "precision": precision,
        "threads": 1,
        "updates": updates,
        "repeats": repeats,
        "ratio": spread(ratios),
        **{name: _figures(filled[name], [turn[name] for turn in turns]) for name in sizes},
        "machine": machine("torch", "numpy"),
    }
    print(json.dumps(report, indent=2) if as_json else "\n".join(f"{key}: {value}" for key, value in report.items()))


@contextlib.contextmanager
def _containers(
    sizes: dict[str, int], image: str, memory: str, directory: Path, arguments: list[str]
) -> Iterator[dict[str, Container]]:
    directory.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        containers = {}
        for name, transitions in sizes.items():
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=directory, prefix="replay-")))
            containers[name] = Container(name, image, memory, folder, [str(transitions), *arguments])
            stack.callback(containers[name].close)
        yield containers


def _figures(filled: dict[str, Any], turns: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the spread of each turn's figures, and the last values of the rest."""
    last = {name: value for name, value in turns[-1].items() if name not in _PER_TURN}
    return {**filled, **{name: spread([turn[name] for turn in turns]) for name in _PER_TURN}, **last}


if __name__ == "__main__":
    typer.run(main)
