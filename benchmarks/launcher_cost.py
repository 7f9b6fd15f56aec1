"""Cost of the launcher while it monitors: processor time by thread, and memory, without its children.

Run: ``python benchmarks/launcher_cost.py --minutes 10 --json benchmarks/results/launcher_cost.json``. It starts a real
training under the launcher and measures only the launcher's process, through /proc; ``--command`` starts a training
that knows nothing of the launcher instead, by ``run``, and ``--pid`` measures a launcher that is already running. The
shims, which copy output, are measured beside it. Limits (docs/benchmarks.md): 1 % of a core, 60 MiB. Exit 1 if one is
exceeded.

``--starts 10`` measures instead the processor time of commands that people wait for, such as ``carla-launcher --help``;
``--beside CHECKOUT`` measures another checkout's commands in turns with these.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import psutil
import typer
import yaml
from measuring import counted, end_in_order, machine, spread
from rich.console import Console
from rich.table import Table

from carla_run.readers import read_object

REPOSITORY = Path(__file__).resolve().parents[1]
MOST_OF_A_CORE_PERCENT, MOST_MIB = 1.0, 60.0
POLL_S = 1.0
START_S = 180.0
SETTLE_S = 5.0
COMMANDS = (
    ("carla_launcher", "--help"),
    ("carla_launcher", "status", "--once", "--runs-dir", "{runs}", "night"),
    ("carla_td3", "--help"),
)
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_SETTINGS: dict[str, Any] = {
    "environment": {"route": {"min_length_m": 60, "max_length_m": 200}},
    "td3": {"batch_size": 32},
    "replay": {"capacity": 20_000},
    "training": {"total_steps": 100_000_000, "updates_per_step": 0.5, "learner_threads": 1},
    "evaluation": {"every_steps": 0, "final_episodes": 0, "baselines": False, "video": False},
}
_PROGRAMS = REPOSITORY / "examples" / "programs"
_COMMAND = (sys.executable, f"{_PROGRAMS}/any_training.py", "--port", "{port}", "--steps", "100000000")


def main(
    minutes: Annotated[float, typer.Option(min=0.1, help="Duration of the measurement, in minutes.")] = 10.0,
    command: Annotated[bool, typer.Option("--command", help="Measure it with a command instead of the agent.")] = False,
    pid: Annotated[int | None, typer.Option(help="Process id of a running launcher. Default: one is started.")] = None,
    starts: Annotated[int, typer.Option(min=0, help="Instead, measure this many starts of each subcommand.")] = 0,
    beside: Annotated[
        Path | None, typer.Option(help="Path of another checkout to compare with; it has a .venv.")
    ] = None,
    as_json: Annotated[Path | None, typer.Option("--json", help="JSON file for the result.")] = None,
) -> None:
    if starts:
        _compare_starts(starts, [REPOSITORY, *([beside] if beside else [])])
        return
    end_in_order()
    with _started(command) if pid is None else contextlib.nullcontext(pid) as launcher:
        measured = _measure(launcher, 60 * minutes)
    problems = _missed(measured)
    result = {
        "what": "the launcher's own process while a training runs under it, children not counted",
        "machine": machine("psutil"),
        "command": "python " + " ".join(sys.argv),
        "to_hold": {"of_a_core_percent": MOST_OF_A_CORE_PERCENT, "rss_mib": MOST_MIB},
        **measured,
        "problems": problems,
    }
    if as_json is not None:
        as_json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    Console().print(_table(result))
    raise typer.Exit(1 if problems else 0)


def _compare_starts(count: int, checkouts: list[Path]) -> None:
    """Print the processor time of each command, in seconds, of the checkouts in turns."""
    table = Table("command", *map(str, checkouts), title="Processor seconds of a start, median (range)")
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(REPOSITORY / "tests" / "kept" / "run-0.2", Path(folder) / "night")
        for words in COMMANDS:
            command = [word.format(runs=folder) for word in words]
            used: dict[Path, list[float]] = {checkout: [] for checkout in checkouts}
            for turn in counted(range(count * len(checkouts)), " ".join(words)):
                checkout = checkouts[turn % len(checkouts)]
                used[checkout].append(_start_s(checkout, command))
            cells = (f"{median(each):.2f} ({min(each):.2f}-{max(each):.2f})" for each in used.values())
            table.add_row(" ".join(words), *cells)
    Console().print(table)


def _start_s(checkout: Path, command: list[str]) -> float:
    process = subprocess.Popen([checkout / ".venv/bin/python", "-m", *command], cwd=checkout, stdout=subprocess.DEVNULL)
    _, _, used = os.wait4(process.pid, 0)
    return used.ru_utime + used.ru_stime


@contextlib.contextmanager
def _started(command: bool) -> Iterator[int]:
    """Start a training under the launcher, and yield the launcher's process id once the training is running."""
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "agent.yaml"
        config.write_text(yaml.safe_dump(_SETTINGS), encoding="utf-8")
        names = ("--simulator", "carla-lite", "--runs-dir", folder, "--run-name", "cost")
        up = ("up", "--runtime", "process", *names, "--config", str(config))
        run = ("run", *names, "--cwd", folder, "--program", f"{_PROGRAMS}/any-training.yaml", "--", *_COMMAND)
        process = subprocess.Popen(
            [sys.executable, "scripts/launch.py", *(run if command else up)],
            cwd=REPOSITORY,
            stdout=subprocess.DEVNULL,
        )
        try:
            _wait_until_it_runs(process, Path(folder) / "cost" / "launcher.json")
            yield process.pid
        finally:
            process.terminate()
            process.wait()


def _wait_until_it_runs(process: subprocess.Popen[bytes], state: Path) -> None:
    deadline = time.monotonic() + START_S
    while read_object(state).get("state") != "running":
        if process.poll() is not None or time.monotonic() > deadline:
            raise SystemExit(f"No training within {START_S:g} s, launcher: {process.poll()}; its words are above.")
        time.sleep(0.2)
    time.sleep(SETTLE_S)  # the agent's start isn't typical


def _measure(pid: int, seconds: float) -> dict[str, Any]:
    """Measure a process for ``seconds``.

    Raises:
        SystemExit: it doesn't exist, or ended early.
    """
    shims = _shims(pid)
    before, began_s = _threads(pid), time.monotonic()
    shims_before_s = sum(sum(_threads(each).values()) for each in shims)
    held: list[dict[str, float]] = []
    while time.monotonic() - began_s < seconds:
        time.sleep(POLL_S)
        held.append(_held(pid))
        after = _threads(pid)
    took_s = time.monotonic() - began_s
    shims_used_s = sum(sum(_threads(each).values()) for each in shims) - shims_before_s
    used_s = {name: used - before.get(name, 0.0) for name, used in after.items()}
    return {
        "wall_s": round(took_s, 1),
        "cpu_s": round(sum(used_s.values()), 2),
        "of_a_core_percent": round(100 * sum(used_s.values()) / took_s, 3),
        "threads_cpu_s": {name: round(used, 2) for name, used in sorted(used_s.items(), key=lambda item: -item[1])},
        "rss_mib": spread([each["VmRSS"] for each in held]),
        "anonymous_mib": spread([each["RssAnon"] for each in held]),
        "shims": {
            "count": len(shims),
            "of_a_core_percent": round(100 * shims_used_s / took_s, 3),
            "anonymous_mib": round(sum(_held(each)["RssAnon"] for each in shims), 2),
        },
    }


def _shims(pid: int) -> list[int]:
    """Return the launcher's children that each look after one program, and copy its output."""
    children = psutil.Process(pid).children()
    return [each.pid for each in children if any("process_shim" in word for word in each.cmdline())]


def _threads(pid: int) -> dict[str, float]:
    """Return processor seconds by thread; the first one is the main thread."""
    found = {}
    try:
        for place, task in enumerate(sorted(Path(f"/proc/{pid}/task").iterdir(), key=lambda entry: int(entry.name))):
            with contextlib.suppress(FileNotFoundError):  # it has just ended
                name, _, after = (task / "stat").read_text(encoding="utf-8").rpartition(")")
                user, system = after.split()[11:13]
                label = "main" if place == 0 else f"{name.partition('(')[2]} {task.name}"
                found[label] = (int(user) + int(system)) / _TICKS_PER_S
    except FileNotFoundError:
        raise SystemExit(f"There is no process {pid}, or it ended while it was looked at.") from None
    return found


def _held(pid: int) -> dict[str, float]:
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    except OSError:
        raise SystemExit(f"There is no process {pid}, or it ended while it was looked at.") from None
    pairs = (line.partition(":")[::2] for line in lines)
    return {name: int(value.split()[0]) / 1024 for name, value in pairs if name in ("VmRSS", "RssAnon")}


def _missed(measured: dict[str, Any]) -> list[str]:
    used, held = measured["of_a_core_percent"], measured["rss_mib"]["max"]
    found = (
        [f"{used} % of a core, expected less than {MOST_OF_A_CORE_PERCENT}"] if used >= MOST_OF_A_CORE_PERCENT else []
    )
    return found + ([f"{held} MiB, expected less than {MOST_MIB}"] if held >= MOST_MIB else [])


def _table(result: dict[str, Any]) -> Table:
    table = Table(title=f"The launcher's own cost over {result['wall_s'] / 60:.1f} min")
    table.add_column("figure")
    table.add_column("measured", justify="right")
    table.add_column("to hold", justify="right")
    table.add_row("of a core", f"{result['of_a_core_percent']} %", f"< {MOST_OF_A_CORE_PERCENT} %")
    table.add_row("RSS, most", f"{result['rss_mib']['max']} MiB", f"< {MOST_MIB} MiB")
    table.add_row("  without mapped files", f"{result['anonymous_mib']['max']} MiB", "")
    shims = result["shims"]
    table.add_row(f"  {shims['count']} shims", f"{shims['of_a_core_percent']} %, {shims['anonymous_mib']} MiB", "")
    for name, used_s in result["threads_cpu_s"].items():
        table.add_row(f"  thread {name}", f"{used_s} s", "")
    return table


if __name__ == "__main__":
    typer.run(main)
