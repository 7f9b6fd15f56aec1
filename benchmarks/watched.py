"""Cost of watching a run: processor seconds of agent and launcher, with and without a reader of the whole page.

Run: ``python benchmarks/watched.py --json benchmarks/results/watched.json``: pairs of the same training under the
launcher, in alternating order; in one of them a client reads the page's camera, state, map and parts ten times a
second. Then one run is watched for ``--minutes``, and each process's memory at the end is compared with that after the
first minute. Limits (docs/benchmarks.md): agent and launcher take at most 5 % more processor time, and no process
grows, the page's included. Exit 1 if a limit is exceeded.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import psutil
import typer
import yaml
from measuring import counted, end_in_order, machine, spread
from rich.console import Console
from rich.table import Table

from carla_run.heartbeat import Phase, read_heartbeat
from carla_run.memory.processes import held_mib
from carla_run.paths import RunPaths

REPOSITORY = Path(__file__).resolve().parents[1]
MOST_MORE_PERCENT, MOST_GROWN_MIB = 5.0, 5.0
POLL_S, READ_S = 0.2, 0.1
RUN_S, FIRST_MINUTE_S = 1800.0, 60.0
PROGRAMS = {
    "carla_td3.collector": "collector",
    "carla_td3": "learner",
    "carla_launcher.plugins.page": "page",
    "carla_lite": "simulator",
}
"""Program names, by the module in the command line."""
COUNTED = ("launcher", "learner", "collector")
_SETTINGS: dict[str, Any] = {
    "environment": {"route": {"min_length_m": 60, "max_length_m": 200}, "traffic": {"vehicles": 10}},
    "td3": {"batch_size": 32, "network": {"channels": "half"}},
    "replay": {"capacity": 20_000},
    "training": {"warmup_steps": 200, "updates_per_step": 0.5, "learner_threads": 1},
    "evaluation": {"every_steps": 0, "final_episodes": 0, "baselines": False, "video": False},
}


@dataclass
class Used:
    """Resources used by a run's programs: processor seconds, and memory over time."""

    by_process_s: dict[tuple[str, int], float] = field(default_factory=dict)
    """By program and process: a collector that is replaced has two."""
    held_mib: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    """Seconds since the training began, and MiB without mapped files, such as the replay."""
    reads: dict[str, int] = field(default_factory=dict)

    def cpu_s(self) -> dict[str, float]:
        """Return the processor seconds of each program."""
        found: dict[str, float] = {}
        for (name, _), used_s in self.by_process_s.items():
            found[name] = round(found.get(name, 0.0) + used_s, 2)
        return found

    def counted_s(self) -> float:
        """Return the processor seconds of agent and launcher."""
        return sum(self.cpu_s()[name] for name in COUNTED)


def main(
    pairs: Annotated[
        int, typer.Option(min=0, help="Pairs of runs, one with a reader of the page and one without.")
    ] = 5,
    steps: Annotated[int, typer.Option(min=1000, help="Steps per run.")] = 4000,
    minutes: Annotated[
        float, typer.Option(min=0.0, help="Duration of the run whose memory is measured, in minutes; 0 for none.")
    ] = 10.0,
    as_json: Annotated[Path | None, typer.Option("--json", help="JSON file for the result.")] = None,
) -> None:
    end_in_order()
    plain: list[Used] = []
    watched: list[Used] = []
    for pair in counted(range(pairs), "pair"):
        order = ((watched, True), (plain, False)) if pair % 2 else ((plain, False), (watched, True))
        for into, read in order:
            into.append(run(steps, None, read))
    more = [100 * (seen.counted_s() / unseen.counted_s() - 1) for seen, unseen in zip(watched, plain, strict=True)]
    grown = growth(run(10**9, 60 * minutes, True), 60 * minutes) if minutes else {}
    result = {
        "what": "processor seconds of agent and launcher with a reader of all of the page's streams and without",
        "machine": machine("torch", "carla", "starlette", "uvicorn"),
        "command": "python " + " ".join(sys.argv),
        "to_hold": {"more_percent": MOST_MORE_PERCENT, "grown_mib": MOST_GROWN_MIB},
        "steps": steps,
        "cpu_s": {name: medians(runs) for name, runs in (("without", plain), ("with", watched)) if runs},
        "runs": [
            {"without": unseen.cpu_s(), "with": seen.cpu_s(), "reads": seen.reads}
            for seen, unseen in zip(watched, plain, strict=True)
        ],
        "more_percent": spread(more) if more else None,
        "minutes": minutes,
        "memory_mib": grown,
    }
    problems = missed(more, grown)
    if as_json is not None:
        as_json.write_text(json.dumps({**result, "problems": problems}, indent=1) + "\n", encoding="utf-8")
    Console().print(table(result), *problems, sep="\n")
    raise typer.Exit(1 if problems else 0)


def run(steps: int, seconds: float | None, read: bool) -> Used:
    """Train under the launcher, to the end or for ``seconds``, and return the resources used."""
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "agent.yaml"
        settings = {**_SETTINGS, "training": {**_SETTINGS["training"], "total_steps": steps}}
        config.write_text(yaml.safe_dump(settings), encoding="utf-8")
        up = [sys.executable, "scripts/launch.py", "up", "--runtime", "process", "--simulator", "carla-lite"]
        process = subprocess.Popen(
            [*up, "--config", str(config), "--runs-dir", folder, "--run-name", "watched", "--dashboard-port", "0"],
            cwd=REPOSITORY,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            return looked_at(process, RunPaths(Path(folder) / "watched"), seconds, read)
        finally:
            process.terminate()
            process.wait()


def looked_at(process: subprocess.Popen[str], paths: RunPaths, seconds: float | None, read: bool) -> Used:
    """Watch a run until it ends, or for ``seconds`` of its training."""
    assert process.stdout is not None
    if not any("live page: its address is in" in line for line in process.stdout):
        raise SystemExit("The launcher served no page: its words are above.")
    threading.Thread(target=process.stdout.read, daemon=True).start()  # a full pipe would hold it up
    address = paths.page_address.read_text(encoding="utf-8").strip()
    used, deadline_s, began_s = Used(), time.monotonic() + RUN_S, 0.0
    with reading(address, used.reads) if read else contextlib.nullcontext():
        while process.poll() is None and time.monotonic() < deadline_s:
            if not began_s and (beat := read_heartbeat(paths.heartbeat)) and beat.phase is Phase.UPDATING:
                began_s = time.monotonic()
            at_s = time.monotonic() - began_s if began_s else 0.0
            take(process.pid, used, at_s)
            if seconds is not None and at_s >= seconds:
                return used
            time.sleep(POLL_S)
    if process.returncode != 0:
        raise SystemExit(f"The run ended with {process.returncode}: its words are above.")
    return used


def take(launcher: int, used: Used, at_s: float) -> None:
    """Record the resources of each program of a run; ended programs keep their last figures."""
    with contextlib.suppress(psutil.NoSuchProcess):
        top = psutil.Process(launcher)
        for each in (top, *top.children(recursive=True)):
            with contextlib.suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
                if (name := "launcher" if each.pid == launcher else program(each.cmdline())) is not None:
                    times = each.cpu_times()
                    used.by_process_s[name, each.pid] = times.user + times.system
                    if at_s:
                        used.held_mib.setdefault(name, []).append((at_s, held_mib(each.pid) or 0.0))


def program(words: list[str]) -> str | None:
    """Return which program a command line is; None for those that only start others."""
    return next((name for module, name in PROGRAMS.items() if module in words), None)


@contextlib.contextmanager
def reading(address: str, reads: dict[str, int]) -> Iterator[None]:
    """Read everything on the page while the block runs; ``reads`` counts the answers."""
    stop, threads = threading.Event(), []
    parts = urlsplit(address)
    assert parts.hostname is not None
    first = http.client.HTTPConnection(parts.hostname, parts.port or 80, timeout=30)
    first.request("GET", f"/?{parts.query}")
    cookie = {"Cookie": str(first.getresponse().getheader("Set-Cookie")).partition(";")[0]}
    first.close()

    def again_and_again(path: str) -> None:
        connection = http.client.HTTPConnection(str(parts.hostname), parts.port or 80, timeout=30)
        while not stop.wait(READ_S):
            with contextlib.suppress(OSError, http.client.HTTPException):
                connection.request("GET", path, headers=cookie)
                answer = connection.getresponse()
                answer.read()
                reads[path] = reads.get(path, 0) + (answer.status < 300)

    def camera() -> None:
        while not stop.wait(READ_S):
            with contextlib.suppress(OSError, http.client.HTTPException):
                connection = http.client.HTTPConnection(str(parts.hostname), parts.port or 80, timeout=5)
                connection.request("GET", "/camera", headers=cookie)
                stream = connection.getresponse()
                while not stop.is_set() and (some := stream.read1(65536)):
                    reads["/camera"] = reads.get("/camera", 0) + some.count(b"Content-Type: image/jpeg")

    readers: list[Callable[[], None]] = [camera]
    readers += [partial(again_and_again, path) for path in ("/state", "/map", "/parts")]
    for read in readers:
        threads.append(threading.Thread(target=read, daemon=True))
        threads[-1].start()
    try:
        yield
    finally:
        stop.set()
        for each in threads:
            each.join(10)


def medians(runs: list[Used]) -> dict[str, float]:
    """Return the median processor seconds of each program."""
    figures = [used.cpu_s() for used in runs]
    names = {name: None for each in figures for name in each}
    return {name: round(statistics.median(each.get(name, 0.0) for each in figures), 2) for name in names}


def growth(used: Used, seconds: float) -> dict[str, dict[str, float]]:
    """Return each program's memory around the first minute and around the end: medians of a tenth of the time."""
    found = {}
    for name, held in used.held_mib.items():
        window_s = min(FIRST_MINUTE_S, seconds / 10)
        early = [mib for at_s, mib in held if FIRST_MINUTE_S - window_s <= at_s <= FIRST_MINUTE_S + window_s]
        late = [mib for at_s, mib in held if at_s >= seconds - 2 * window_s]
        if early and late:
            first, last = statistics.median(early), statistics.median(late)
            found[name] = {"after_a_minute": round(first, 1), "at_the_end": round(last, 1)}
    return found


def missed(more: list[float], grown: dict[str, dict[str, float]]) -> list[str]:
    """Return the exceeded limits, one sentence each."""
    found = []
    if more and statistics.median(more) > MOST_MORE_PERCENT:
        found.append(f"{statistics.median(more):.1f} % more processor time, expected at most {MOST_MORE_PERCENT:g}.")
    for name, held in grown.items():
        if name == "simulator":  # caches views of its town, up to 64 MiB, with or without a viewer
            continue
        if (by := held["at_the_end"] - held["after_a_minute"]) > MOST_GROWN_MIB:
            found.append(f"The {name} grew by {by:.1f} MiB, expected at most {MOST_GROWN_MIB:g}.")
    return found


def table(result: dict[str, Any]) -> Table:
    """Return processor time and memory by program."""
    more = (
        "" if result["more_percent"] is None else f", {result['more_percent']['median']:+.1f} % for agent and launcher"
    )
    view = Table(title=f"A run that is looked at{more}")
    view.add_column("program")
    for name in ("cpu s without", "cpu s with", "MiB after a minute", "MiB at the end"):
        view.add_column(name, justify="right")
    cpu, memory = result["cpu_s"], result["memory_mib"]
    for name in ("launcher", *PROGRAMS.values()):
        figures = [cpu.get("without", {}).get(name), cpu.get("with", {}).get(name)]
        held = memory.get(name, {})
        cells = [*figures, held.get("after_a_minute"), held.get("at_the_end")]
        view.add_row(name, *("" if cell is None else f"{cell:g}" for cell in cells))
    return view


if __name__ == "__main__":
    typer.run(main)
