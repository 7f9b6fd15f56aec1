"""How do cost and time grow with the work? One table over collectors, transitions, towns, actors, cameras and nights.

Each point is measured in a child process of at most 60 s of processor time. A size that isn't measured, or takes
longer, is computed from the section's measured ones: with the slope of a straight line through their logarithms, which
is also the exponent of growth (1: as fast as the work). For collectors beyond this machine's cores it is the sum of
that many single ones; without ``--most`` their measured figures are those that ``collectors.py`` kept. Run:
``python benchmarks/growth.py``, or ``python benchmarks/growth.py --sections nights,towns``. It replaces these sections
in ``results/growth.json``, and writes ``docs/growth.md`` from it.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import psutil
import typer
from measuring import leave, machine, rss_mib
from synthetic_run import night

from carla_run.paths import RunPaths

HERE = Path(__file__).parent
RESULTS, PAGE = HERE / "results" / "growth.json", HERE.parent / "docs" / "growth.md"
POINT_S, WAIT_S = 60, 150.0
"""Limits of a point: processor time, and time on a busy machine."""
MEASURED, COMPUTED = "measured", "computed"

Figures = dict[str, float]


def collectors(count: int) -> Figures:
    """Return steps a second, RAM and the learner's idle time with simulators whose ticks take 30 ms."""
    from trainings import starting

    fixed = {"training.updates_per_step": 0.05, "training.learner_threads": 1, "td3.batch_size": 64}
    with starting(Path("full"), "Lite01", 2.0, {**fixed, "environment.time_limit.constant_s": 1000}) as start:
        training = start("growth", {}, collectors=count, tick_ms=30.0)
        found = training.turn(8.0)
        held_mib = sum(map(_pss_mib, training.pids()))
    return {
        "steps/s": found.steps_per_s,
        "RAM, MiB": held_mib,
        "learner idle, %": 100 * max(0.0, 1 - found.learner_cores),
        "cores of simulators and collectors": found.simulation_cores,
    }


def transitions(count: int) -> Figures:
    """Return the replay's speeds, its disk, and how long a resume looks for damaged rows."""
    from replay import fill

    from carla_td3.td3.replay.damage import mend_rings
    from carla_td3.td3.replay.frames import DEFAULT
    from carla_td3.td3.replay.replay import Replay

    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory) / "replay"
        replay = Replay.create(folder, count + -(-count // 500))
        append_us = fill(replay, count)
        import numpy as np

        rng = np.random.default_rng(0)
        batch = replay.sample(256, rng)
        batches = _per_s(lambda: replay.sample(256, rng, into=batch), 50)
        replay.close()
        disk_mib = sum(file.stat().st_blocks for file in folder.iterdir()) * 512 / 2**20
        check_s = _seconds(lambda: mend_rings([folder], DEFAULT, lambda *_, **__: None))
    return {
        "µs to store a step": append_us,
        "batches of 256 a second": batches,
        "disk, MiB": disk_mib,
        "s to check all rows at a resume": check_s,
    }


def towns(size_m: int) -> Figures:
    """Return the time to generate and read a town and to build its walkers' mesh; only here a town may exceed 1 km."""
    from carla_lite.navigation import mesh
    from carla_lite.roads.network import RoadNetwork
    from carla_lite.towns import generator, seeded

    seeded.MOST_SIZE_M = max(seeded.MOST_SIZE_M, size_m)
    name = f"Lite:seed=7,size={size_m}"
    start_s = time.process_time()
    text = generator.generate(name)
    generated_s = time.process_time()
    network = RoadNetwork.parse(name, text)
    read_s = time.process_time()
    mesh.build(network)
    meshed_s = time.process_time()
    import carla

    client_s = _seconds(lambda: carla.Map(name, text).get_topology())
    return {
        "streets and turns": float(text.count("<road ")),
        "s to generate": generated_s - start_s,
        "s to read, server": read_s - generated_s,
        "s for the walkers' mesh": meshed_s - read_s,
        "s to read, client": client_s,
        "RAM, MiB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def actors(count: int) -> Figures:
    """Return carla-lite's cost of a tick with a quarter of the actors cars, the others people."""
    return _ticks(vehicles=count // 4, walkers=count - count // 4, size=(84, 84), map="Lite02")


def cameras(width: int) -> Figures:
    """Return carla-lite's cost of a tick with 20 cars and a picture in 16:9 (84: square)."""
    return _ticks(vehicles=20, walkers=0, size=(width, width if width == 84 else width * 9 // 16), map="Lite01")


def nights(steps: int) -> Figures:
    """Return what a night leaves on disk, and what report, status and page take for it."""
    from carla_launcher.show import report
    from carla_launcher.show.status import status

    with tempfile.TemporaryDirectory() as directory:
        run = RunPaths(Path(directory) / "night")
        night(run, steps)
        disk_mib = sum(file.stat().st_size for file in run.path.iterdir() if file.is_file()) / 2**20
        before_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        status_s = _seconds(lambda: status(run, time.time()))
        first_s, again_s, sent_kb = _page(run)
        page_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        report_s = _seconds(lambda: report.write(run))
        return {
            "journal and metrics, MiB": disk_mib,
            "s to write the report": report_s,
            "report, kB": run.report.stat().st_size / 1e3,
            "s for status": status_s,
            "s of the page's first charts": first_s,
            "s of its later ones": again_s,
            "page sends, kB": sent_kb,
            "RAM of the page for it, MiB": page_mib - before_mib,
            "RAM with the report, MiB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        }


POINTS: dict[str, tuple[Callable[[int], Figures], Sequence[int], int]] = {
    "collectors": (collectors, (1, 2, 4, 8, 16, 32, 64), 4),
    "transitions": (transitions, (10_000, 100_000, 300_000, 1_000_000, 10_000_000), 300_000),
    "towns": (towns, (200, 400, 1000, 2000, 4000), 4000),
    "actors": (actors, (10, 100, 300, 600, 1000, 2000), 600),
    "cameras": (cameras, (84, 256, 640, 1280, 1920), 1920),
    "nights": (nights, (10_000, 100_000, 1_000_000, 10_000_000), 10_000_000),
}
"""Of each section: the measurement, its sizes, and the largest one that is measured."""
UNITS = {
    **{"collectors": "collectors", "transitions": "transitions", "towns": "m of a town's side"},
    **{"actors": "cars and people", "cameras": "pixels of width", "nights": "steps"},
}
AT_LEAST = {"transitions": 10_000, "nights": 100_000, "towns": 400, "actors": 100, "cameras": 256, "collectors": 1}
"""Smaller sizes don't count for the exponent, since fixed costs hide it."""


POWERS = {"towns": 2, "cameras": 2}
"""The work is the area: its size is squared."""


def main(
    sections: Annotated[
        str, typer.Option(help="Sections to measure, separated by commas; small sizes come first.")
    ] = ",".join(POINTS),
    most: Annotated[int | None, typer.Option(help="Largest size that is measured; larger ones are computed.")] = None,
    point: Annotated[str, typer.Option(hidden=True)] = "",
    page: Annotated[bool, typer.Option(help="Only write the page from the results that were measured before.")] = False,
) -> None:
    """Measure how cost grows with the work, and write table and page."""
    if point:
        section, size = point.split(":")
        resource.setrlimit(resource.RLIMIT_CPU, (POINT_S, POINT_S))
        print(json.dumps(POINTS[section][0](int(size))))
        leave()
    found = _results()
    for section in [] if page else sections.split(","):
        figures = {**measured(section, most), "machine": machine("carla", "numpy", "torch")}
        found = {**_results(), section: figures}
        RESULTS.write_text(json.dumps(found), encoding="utf-8")
    for section in found if page else ():
        rows = {each["size"]: each["figures"] for each in found[section]["points"] if each["how"] == MEASURED}
        found[section] |= concluded(section, rows)
    RESULTS.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    PAGE.write_text(page_of(found), encoding="utf-8")


def _results() -> dict[str, Any]:
    return json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}


def measured(section: str, most: int | None) -> dict[str, Any]:
    """Return a section's figures by size, each with ``how``, and the exponents of growth."""
    _, sizes, limit = POINTS[section]
    rows: dict[int, Figures] = kept_collectors() if section == "collectors" and not most else {}
    for size in [] if rows else sizes:
        if size > (most or limit):
            break
        print(f"{section} {size}", file=sys.stderr, flush=True)
        if (figures := _child(section, size)) is None:
            break
        rows[size] = figures
    return concluded(section, rows)


def concluded(section: str, rows: Mapping[int, Figures]) -> dict[str, Any]:
    """Return a section of the results from its measured figures."""
    sizes = sorted({*POINTS[section][1], *rows})
    exponents = {name: slope(_points(section, rows, name)) for name in next(iter(rows.values()), {})}
    points: list[dict[str, Any]] = [
        {"size": size, "how": MEASURED, "figures": figures} for size, figures in rows.items()
    ]
    for size in [each for each in sizes if each not in rows]:
        points.append({"size": size, "how": COMPUTED, "figures": computed(section, rows, size)})
    return {"points": points, "exponents": exponents}


def kept_collectors() -> dict[int, Figures]:
    """Return the figures that ``collectors.py`` measured on an idle machine; it tells nothing of RAM."""
    kept = json.loads((HERE / "results" / "collectors.json").read_text(encoding="utf-8"))["local"]
    return {
        int(count): {
            "steps/s": found["steps_per_s"]["median"],
            "learner idle, %": 100 * found["learner_idle"]["median"],
            "cores of simulators and collectors": found["simulation_cores"]["median"],
        }
        for count, found in kept.items()
    }


def computed(section: str, rows: Mapping[int, Figures], size: int) -> Figures:
    """Return a size's figures from those of the measured ones."""
    if not rows:
        return {}
    if section == "collectors":
        return fleet(rows[min(rows)], rows[max(rows)], max(rows), size)
    work = float(size) ** POWERS.get(section, 1)
    return {name: extrapolated(_points(section, rows, name), work) for name in rows[max(rows)]}


def fleet(single: Figures, several: Figures, count: int, size: int) -> Figures:
    """Return the figures of so many collectors with enough cores: each costs what one does, until the learner is busy.

    A step costs the learner the same work with every number of collectors.
    """
    share = (100 - several["learner idle, %"]) / several["steps/s"]
    steps = min(size * single["steps/s"], 100 / share if share > 0 else math.inf)
    ram = {}
    if "RAM, MiB" in single:
        each_mib = (several["RAM, MiB"] - single["RAM, MiB"]) / max(1, count - 1)
        ram = {"RAM, MiB": single["RAM, MiB"] + (size - 1) * each_mib}
    return {
        "steps/s": steps,
        **ram,
        "learner idle, %": 100 - share * steps,
        "cores of simulators and collectors": size * single["cores of simulators and collectors"],
    }


def slope(points: Sequence[tuple[float, float]]) -> float | None:
    """Return the exponent of growth: the slope of a straight line through the points' logarithms; None if unknown."""
    logs = [(math.log(x), math.log(y)) for x, y in points if x > 0 and y > 0]
    if len(logs) < 2:
        return None
    return round(statistics.linear_regression(*zip(*logs, strict=True)).slope, 2)


def extrapolated(points: Sequence[tuple[float, float]], size: float) -> float:
    """Return the value at a larger size, by the exponent of the points and from the last of them."""
    last_size, last = points[-1]
    return last * math.pow(size / last_size, slope(points) or 0.0)


def _points(section: str, rows: Mapping[int, Figures], name: str) -> list[tuple[float, float]]:
    counted = [size for size in rows if size >= AT_LEAST[section]]
    counted = counted if len(counted) > 1 else list(rows)
    return [(float(size) ** POWERS.get(section, 1), rows[size][name]) for size in counted]


def _child(section: str, size: int) -> Figures | None:
    """Return a point's figures; None if it takes too long or fails, which stderr says."""
    words = [sys.executable, __file__, "--point", f"{section}:{size}"]
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
    ) as child:
        try:
            said, _ = child.communicate(timeout=WAIT_S)
        except subprocess.TimeoutExpired:
            child.terminate()
            print(f"{section} {size}: longer than {WAIT_S:g} s", file=sys.stderr)
            return None
    if child.returncode or not said.strip():
        print(f"{section} {size}: exit {child.returncode}", file=sys.stderr)
        return None
    figures: Figures = json.loads(said.strip().splitlines()[-1])
    return figures


# Parts of the measurements


def _page(run: RunPaths) -> tuple[float, float, float]:
    """Return the seconds of the page's first and second charts, and the kB of the first."""
    from carla_launcher import config
    from carla_launcher.places import SHIPPED
    from carla_launcher.plugins.page.buttons import Buttons
    from carla_launcher.plugins.page.parts import CHARTS_S, Parts

    parts, now_s = Parts(run, Buttons(run, config.load(SHIPPED))), time.time()
    sent: list[Any] = []
    first_s = _seconds(lambda: sent.append(parts.changed((), now_s)))
    again_s = _seconds(lambda: sent.append(parts.changed((), now_s + CHARTS_S + 1)))
    return first_s, again_s, len(json.dumps(sent[0])) / 1e3


def _ticks(vehicles: int, walkers: int, size: tuple[int, int], map: str) -> Figures:
    import ticks

    with contextlib.ExitStack() as servers:
        case = ticks.Case(vehicles, walkers, size, "ClearNoon", map, traffic_manager=False)
        drive = ticks.Drive(servers, case, True, None)
        for _ in range(2):
            drive.repeat(40)
        return {
            "ms of processor a tick, server": min(drive.served_us) / 1e3,
            "ms of processor a tick, client": min(drive.asked_us) / 1e3,
            "RAM of the server, MiB": rss_mib(drive.pid),
        }


def _seconds(work: Callable[[], object]) -> float:
    """Return the processor seconds of this process; other programs' load doesn't count."""
    start_s = time.process_time()
    work()
    return time.process_time() - start_s


def _per_s(work: Callable[[], object], times: int) -> float:
    return times / _seconds(lambda: [work() for _ in range(times)])


def _pss_mib(pid: int) -> float:
    """Return a process's memory, of shared pages its part."""
    try:
        return float(psutil.Process(pid).memory_full_info().pss) / 2**20
    except psutil.NoSuchProcess:
        return 0.0


# The page


def page_of(found: Mapping[str, Any]) -> str:
    """Return the page: a table for each section, whose computed figures are marked."""
    words = [
        "# Cost as work grows",
        "Written by `python benchmarks/growth.py` from `benchmarks/results/growth.json`. Figures in *italics* are "
        "computed from the measured ones. The exponent is the slope of a line through the logarithms of figure and "
        "work: 1 grows as its work does, 2 as its square. A town's work is its area, a camera's its pixels. Seconds "
        "are processor seconds, on the machine that the JSON names.",
    ]
    for section, rows in found.items():
        words += [f"## {section.capitalize()}", table(section, rows), NOTES.get(section, "")]
    return "\n\n".join(filter(None, words)) + "\n"


def table(section: str, rows: Mapping[str, Any]) -> str:
    """Return a section's table in Markdown, a line for each figure."""
    points = rows["points"]
    names = list(points[0]["figures"])
    head = [UNITS[section], *(f"{point['size']:,}".replace(",", " ") for point in points), "exponent"]
    lines = [head, ["---"] * len(head)]
    for name in names:
        exponent = rows["exponents"].get(name)
        shown = [_shown(point["figures"].get(name), point["how"]) for point in points]
        lines.append([name, *shown, "–" if exponent is None else f"{exponent:.2f}"])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _shown(value: float | None, how: str) -> str:
    if value is None:
        return "–"
    text = f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return text if how == MEASURED else f"*{text}*"


NOTES = {
    "collectors": "There is an update each 20 steps. Steps grow with the collectors until the "
    "learner has no idle time left; the cores that they need grow with them. From results/collectors.json, "
    "which has no RAM.",
    "transitions": "A resume reads and checks every row, so its time grows with the replay and not faster.",
    "towns": "A generated town may be named up to 1 km; larger ones are made for this table "
    "only. One of 4 km isn't read: it has 110 000 lanes, and carla-lite reads 100 000.",
    "actors": "A quarter are cars, the others people, on Lite02. No size above 600 was measured there.",
    "cameras": "20 cars, one camera, each picture awaited.",
    "nights": "A week is 10⁷ steps at 16.5 a second, with a fault each quarter of an hour. Later charts of the page "
    "read only new lines, and draw at most some thousand rows, "
    "so seldom that drawing takes a tenth of a core.",
}
"""What the page says below a section's table."""


if __name__ == "__main__":
    typer.run(main)
