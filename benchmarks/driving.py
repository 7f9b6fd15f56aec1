"""How well does it drive? Drivers × traffic × weather × NoCrash routes of one town, with intervals of the differences.

Run: ``python benchmarks/driving.py --checkpoint td3=runs/learning/td3 --checkpoint twin=runs/learning/twin``. The path
is a run, one of its checkpoints, or a folder of runs made by ``learning.py``, where each run is one training seed. A
driver with pictures also drives with grey and with shuffled pictures (``--blanked``). All drivers meet the same cars,
pedestrians and weather on a route. Each drive is one line of JSON in ``--out``; drives that are already there aren't
repeated, so a stopped or killed command resumes. Every group of drives has its own carla-lite and process. By default
it drives all traffic densities in the test town and three weathers; Town01 and Town02 need their .xodr files:
``--map-dir``.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import multiprocessing
import signal
import sys
import time
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.context import SpawnProcess
from multiprocessing.queues import SimpleQueue
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from lite_server import lite_server
from matplotlib.figure import Figure
from measuring import leave, machine
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from carla_run.event_log import JsonLines
from carla_run.exits import Exit
from carla_run.files import write_whole
from carla_run.paths import RunPaths
from carla_run.readers import read_lines
from carla_run.signals import StopRequests
from carla_td3 import config as configuration
from carla_td3.cli.evaluation import environment, trained
from carla_td3.collector.parent import die_with_parent
from carla_td3.config import AgentConfig, RouteConfig, SimulatorConfig
from carla_td3.env.driving import DrivingEnv
from carla_td3.env.route import Planner, Route
from carla_td3.env.session import BlockedStart, Session
from carla_td3.evaluation import comparison, nocrash
from carla_td3.evaluation.drivers import TD3_DRIVER, TD3_GREYED, TD3_SHUFFLED, Driver, evaluated
from carla_td3.evaluation.metrics import limit_s
from carla_td3.evaluation.routes import completed, drive_again_if_lost
from carla_td3.evaluation.video import VideoSummary, record, side_by_side
from carla_td3.pretrained import without_teachers

ROUTES = Path(__file__).parent / "nocrash"
TEST_TOWN = "Lite:seed=800,size=400"
WEATHERS = ("ClearNoon", "WetNoon", "SoftRainSunset")
CONTROL = "control"
"""Prefix of drivers that get the simulator's privileged knowledge."""
BY_RULES = ("expert", "pid", "stop")
FILMED = ("pid", "expert")
"""Drivers filmed beside a trained one."""
POLL_S = 1.0
TRIES = 3
"""Tries per group: a Traffic Manager can end the process that it lives in (docs/facts.md, section 5)."""
FILM_S = 60.0
TABLE_COLUMNS = 190
"""Width of the tables if the terminal has none."""
KEY = ("town", "driver", "seed", "traffic", "weather", "route")
"""Fields that identify a drive."""


@dataclass(frozen=True)
class Group:
    """Drives of one driver, as trained from one seed, in one traffic and weather."""

    town: str
    map: str
    driver: str
    kind: str
    """Name of the driver in the agent."""
    checkpoint: Path | None
    seed: int
    traffic: nocrash.Density
    weather: str
    slower_percent: float
    step_out: float
    routes: tuple[int, ...]
    lines: Path

    def key(self, route: int) -> dict[str, Any]:
        """Return the fields that identify one of its drives."""
        return dict(zip(KEY, (self.town, self.driver, self.seed, self.traffic.name, self.weather, route), strict=True))

    def traffic_seed(self, route: int) -> int:
        """Return the seed of cars, pedestrians and weather: the same for every driver."""
        return zlib.crc32(f"{self.town} {self.traffic.name} {self.weather} {route}".encode())


def main(
    checkpoint: Annotated[
        list[str] | None, typer.Option(help="NAME=PATH of a run, a checkpoint or a folder of runs; can be repeated.")
    ] = None,
    blanked: Annotated[bool, typer.Option(help="Also drive with grey and with shuffled pictures.")] = True,
    drivers: Annotated[str, typer.Option(help="Drivers without a checkpoint, separated by commas.")] = ",".join(
        BY_RULES
    ),
    town: Annotated[
        str,
        typer.Option(help="Town01, Town02 or Lite:seed=N,size=400. Seed 800 is for tests, 900 to 902 are for choices."),
    ] = TEST_TOWN,
    traffic: Annotated[str, typer.Option(help="Traffic densities, separated by commas.")] = ",".join(
        comparison.TRAFFIC
    ),
    weathers: Annotated[str, typer.Option(help="Weather presets of CARLA, separated by commas.")] = ",".join(WEATHERS),
    routes: Annotated[
        int, typer.Option(min=1, max=nocrash.ROUTES, help="Number of routes, from the first one on.")
    ] = nocrash.ROUTES,
    slower_percent: Annotated[
        float, typer.Option(help="Speed of the traffic below the limit, in percent of the limit.")
    ] = 45.0,
    step_out: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Share of pedestrians beside the route who step out before the car.")
    ] = 0.0,
    map_dir: Annotated[
        Path | None, typer.Option(envvar="LITE_MAP_DIR", help="Folder with CARLA's maps, such as Town01.xodr.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for drives.jsonl, driving.json and driving.png.")] = Path(
        "runs/driving"
    ),
    parallel: Annotated[int, typer.Option(min=1, help="Groups of drives at once. Each takes two processes.")] = 1,
    draw: Annotated[
        int | None, typer.Option(help="Draw the town's routes with this seed, write their file, and drive nothing.")
    ] = None,
    long: Annotated[bool, typer.Option(help="With --draw: draw routes of 1 to 2 km, for a town of 800 m.")] = False,
    video: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=nocrash.ROUTES - 1,
            help="Only film the first checkpoint, pid and expert on this route, in the densest traffic.",
        ),
    ] = None,
    figures_only: Annotated[
        bool, typer.Option(help="Only print the figures of the drives in --out: of this town, traffic and weathers.")
    ] = False,
    against: Annotated[
        str, typer.Option(help="Drivers that each other one is compared with, route by route, separated by commas.")
    ] = ",".join(comparison.BASELINES),
) -> None:
    if draw is not None:
        keep_routes(town, map_of(town, map_dir), draw, nocrash.LONG if long else nocrash.LENGTHS)
        return
    towns = [json.loads(path.read_text(encoding="utf-8"))["town"] for path in sorted(ROUTES.glob("*.json"))]
    if town not in towns:
        raise typer.BadParameter(f"--town {town} has no routes: expected {' or '.join(towns)}; --draw SEED draws some.")
    map = town if figures_only else map_of(town, map_dir)
    by_rules = _known("--drivers", drivers, BY_RULES)
    densities = _known("--traffic", traffic, comparison.TRAFFIC)
    skies = _known("--weathers", weathers, configuration.WEATHERS)
    asked: list[tuple[str, str, Path | None, int]] = list(checkpoints_in(checkpoint or [], blanked))
    asked += [(name, name, None, 0) for name in by_rules]
    if not (asked and densities and skies):
        raise typer.BadParameter("nothing is asked for: name a driver or a checkpoint, traffic and a weather.")
    lines = out / "drives.jsonl"
    done = driven_before(lines)
    names = {*comparison.BASELINES, *(name for name, *_ in asked), *(key[KEY.index("driver")] for key in done)}
    others = _known("--against", against, sorted(names))
    out.mkdir(parents=True, exist_ok=True)
    wanted = [density for density in nocrash.densities(town) if density.name in densities]
    groups = [
        Group(town, map, *who, density, weather, slower_percent, step_out, tuple(range(routes)), lines)
        for density in wanted
        for weather in skies
        for who in asked
    ]
    if video is not None:
        trained_one = [name for name, _, path, _ in asked if path is not None][:1]
        chosen = {g.driver: g for g in reversed(groups) if g.traffic == wanted[-1]}
        filmed = [chosen[name] for name in (*trained_one, *FILMED) if name in chosen]
        if not filmed:
            raise typer.BadParameter(f"--video films a checkpoint, {' and '.join(FILMED)}: name one of them.")
        film(filmed, video, out / "driving.mp4")
        return
    left = [g for g in (dataclasses.replace(g, routes=left_to_drive(g, done)) for g in groups) if g.routes]
    stop = StopRequests(raise_second=True)
    stop.install()
    failed = [] if figures_only else run(left, parallel, stop)
    # By key: a drive that was running when this program was killed may be there twice.
    drives = list({_key(drive): drive for drive in read_lines(lines)}.values())
    shown = [d for d in drives if d["town"] == town and d["traffic"] in densities and d["weather"] in skies]
    report = comparison.report(shown, others)
    report = {"machine": machine("torch", "carla", "numpy"), "command": "python " + " ".join(sys.argv), **report}
    if not figures_only:
        write_whole(out / "driving.json", json.dumps(report, indent=2) + "\n")
        picture(report, out / "driving.png")
    Console(width=None if sys.stdout.isatty() else TABLE_COLUMNS).print(comparison.table(report))
    for group in failed:  # below the table, where it is noticed
        who = f"{group.driver} (seed {group.seed})"
        print(f"Not finished: {who} in {group.traffic.name}, {group.weather}; run it again.", file=sys.stderr)
    if stop.signal is not None:
        print(f"Stopped by {stop.cause}: run the same command to resume after what {lines} keeps.", file=sys.stderr)
        raise typer.Exit(Exit.STOPPED)
    raise typer.Exit(1 if failed else 0)


def map_of(town: str, map_dir: Path | None) -> str:
    """Return the town's map for carla-lite.

    Raises:
        typer.BadParameter: its file is missing.
    """
    if town.startswith("Lite"):
        return town
    path = Path(map_dir or "", f"{town}.xodr")
    if not path.is_file():
        why = f"{path} doesn't exist; give --map-dir the folder of {path.name}."
        raise typer.BadParameter(f"--town {town} is a map of CARLA's: {why}")
    return str(path)


def run(groups: Sequence[Group], parallel: int, stop: StopRequests) -> list[Group]:
    """Drive the groups, ``parallel`` at once, and repeat those of lost processes; return those never finished.

    A signal ends the running drives, whose groups aren't returned.
    """
    spawn = multiprocessing.get_context("spawn")  # a Traffic Manager's process can't be forked, and may abort
    waiting, failed = [(group, 1) for group in groups], list[Group]()
    running: list[tuple[Group, int, SpawnProcess]] = []
    total = sum(len(group.routes) for group in groups)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns) as progress:
        task = progress.add_task("drives", total=total)
        while (waiting or running) and stop.signal is None:
            while waiting and len(running) < parallel:
                group, attempt = waiting.pop(0)
                running.append((group, attempt, spawn.Process(target=work, args=(group,))))
                running[-1][-1].start()
                progress.update(task, description=f"{group.driver}, {group.traffic.name}, {group.weather}")
            time.sleep(POLL_S)
            ended = [each for each in running if each[-1].exitcode is not None]
            running = [each for each in running if each not in ended]
            done = driven_before(groups[0].lines)
            for group, attempt, process in ended:
                rest = left_to_drive(group, done) if process.exitcode else ()
                if rest and attempt < TRIES:
                    waiting.insert(0, (dataclasses.replace(group, routes=rest), attempt + 1))
                elif rest:
                    failed.append(group)
            progress.update(task, completed=total - sum(len(left_to_drive(group, done)) for group in groups))
    for _, _, process in running:
        process.kill()
    return failed


def work(group: Group) -> None:
    """Drive a group in this process, one line a drive, and leave it."""
    end_with_parent()
    torch.set_num_threads(1)  # more gain nothing at batch 1
    lines = JsonLines(group.lines)
    with environment_of(group) as (env, own, kept):
        for number in group.routes:
            try:
                result = completed(drive_again_if_lost(env, own, kept[number], group.traffic_seed(number)))
                figures = dataclasses.asdict(result)
            except BlockedStart as blocked:
                figures = {"end": None, "why": str(blocked)}
            figures["name"] = figures.pop("route", None)
            lines.append({**group.key(number), **figures})
    leave()


def film(groups: Sequence[Group], route: int, path: Path) -> None:
    """Film drivers on one route, each in a separate process, and join the films side by side."""
    spawn = multiprocessing.get_context("spawn")
    told = spawn.SimpleQueue()
    for group in groups:
        process = spawn.Process(target=film_one, args=(group, route, path.with_name(f"{group.driver}.mp4"), told))
        process.start()
        process.join()
        if process.exitcode:
            raise SystemExit(f"The film of {group.driver} failed: its own words are above.")
    side_by_side([told.get() for _ in groups], path)


def film_one(group: Group, route: int, path: Path, told: SimpleQueue[VideoSummary]) -> None:
    """Film a group's driver on one of its routes, report it, and exit."""
    end_with_parent()
    with environment_of(group) as (env, own, kept):
        options = {
            "seed": group.traffic_seed(route),
            "continue_after_infractions": True,
            "limit_s": limit_s(kept[route].length_m),
        }
        length = {"min_seconds": FILM_S, "max_seconds": FILM_S}
        told.put(completed(record(env, own, [kept[route]], path, title=group.driver, options=options, **length)))
    leave()


@contextlib.contextmanager
def environment_of(group: Group) -> Iterator[tuple[DrivingEnv, Driver, list[Route]]]:
    """Run a carla-lite while the block runs; yield an environment in it, the group's driver and the town's routes."""
    found = trained(group.checkpoint)
    with lite_server(group.map) as port:
        config = configured(found.config, group, port)
        with environment(config) as env:
            own = evaluated(group.kind, found.policy, config, lambda: env.hazards)
            yield env, own, nocrash.read(ROUTES / f"{_file(group.town)}.json", env.planner)


def configured(config: AgentConfig, group: Group, port: int) -> AgentConfig:
    """Return a driver's configuration with the group's traffic and weather instead of those of its training."""
    plain = without_teachers(config).model_dump()
    plain["environment"]["weather"] = [group.weather]
    plain["environment"]["traffic"] |= {
        "vehicles": group.traffic.vehicles,
        "walkers": group.traffic.walkers,
        "lights": True,
        "slower_percent": group.slower_percent,
        "walkers_step_out": group.step_out,
        "within_m": None,
    }
    plain["simulator"] |= {"host": "127.0.0.1", "port": port, "map": None, "patience_s": 60.0}
    return AgentConfig.model_validate(plain)


def keep_routes(town: str, map: str, seed: int, lengths: RouteConfig) -> None:
    """Draw a town's routes and write their file."""
    with lite_server(map) as port:
        session = Session(SimulatorConfig(host="127.0.0.1", port=port))
        session.connect()
        nocrash.write(ROUTES / f"{_file(town)}.json", nocrash.draw(Planner(session.map), seed, lengths), town, seed)
        session.close()


def picture(report: dict[str, Any], path: Path) -> None:
    """Draw success by traffic and driver, with intervals."""
    traffics, by_traffic = list(report["traffic"]), list(report["traffic"].values())
    names = sorted({name for drivers in by_traffic for name in drivers}, key=lambda name: _order(name, by_traffic))
    figure = Figure(figsize=(1.8 + 2.6 * max(1, len(traffics)), 4.2), layout="constrained")
    axes = figure.subplots()
    width = 0.8 / max(1, len(names))
    there = [[name for name in names if name in drivers] for drivers in by_traffic]
    for name in names:
        at = [x for x, present in enumerate(there) if name in present]
        figures = [report["traffic"][traffics[x]][name] for x in at]
        heights = np.array([each["success"] for each in figures])
        ends = np.array([each["success_95"] for each in figures]).T
        where = np.array([x + (there[x].index(name) - (len(there[x]) - 1) / 2.0) * width for x in at])
        error = np.maximum(np.abs(ends - heights), 0.0)
        bars = axes.bar(
            where, heights, 0.9 * width, label=name, yerr=error, error_kw={"linewidth": 1.0, "capsize": 2.0}
        )
        axes.bar_label(bars, [f"{height:.0%}" for height in heights], padding=2.0, fontsize=8.0)
    axes.set_xticks(range(len(traffics)), traffics)
    axes.set(ylim=(0.0, 1.1), ylabel="success, 95 % intervals", title=f"NoCrash: {report['drives']} drives")
    axes.set_yticks(np.linspace(0.0, 1.0, 6))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.08), ncols=4)
    figure.savefig(path, dpi=150)


def _order(name: str, by_traffic: list[dict[str, Any]]) -> float:
    return -sum(float(drivers[name]["success"]) for drivers in by_traffic if name in drivers)


def _known(option: str, given: str, known: Sequence[str]) -> list[str]:
    """Return the names in an option, separated by commas.

    Raises:
        typer.BadParameter: a name is unknown.
    """
    words = [word for word in given.split(",") if word]
    for word in words:
        if word not in known:
            raise typer.BadParameter(f"{option} {word} is unknown: expected some of {', '.join(known)}.")
    return words


def checkpoints_in(given: Sequence[str], blanked: bool) -> Iterator[tuple[str, str, Path, int]]:
    """Yield name, kind, path and training seed of each driver; those with pictures also greyed and shuffled."""
    found = [(name, path) for name, _, text in (each.partition("=") for each in given) for path in _trained(Path(text))]
    seen: set[tuple[str, int]] = set()
    for name, path in found:
        run = RunPaths(path.parent.parent if path.name.startswith("step-") else path)
        config = configuration.load(run.config)
        sees = config.td3.network.sees
        if (name, config.seed) in seen:
            raise SystemExit(f"--checkpoint {name}={path}: another {name} has seed {config.seed} as well; rename one.")
        if sees == "privileged" and not name.startswith(CONTROL):
            raise SystemExit(
                f"--checkpoint {name}={path}: is told what only the simulator knows; begin its name with {CONTROL}."
            )
        seen.add((name, config.seed))
        yield name, TD3_DRIVER, path, config.seed
        if blanked and sees == "image":
            yield f"{name}-greyed", TD3_GREYED, path, config.seed
            yield f"{name}-shuffled", TD3_SHUFFLED, path, config.seed


def _trained(path: Path) -> list[Path]:
    """Return a checkpoint, a run, or the runs in a folder."""
    if path.name.startswith("step-") or (path / "checkpoints").is_dir():
        return [path]
    runs = sorted(run for run in path.glob("*") if (run / "checkpoints" / "latest").exists())
    if not runs:
        raise SystemExit(f"--checkpoint …={path}: holds no checkpoint and no run that has one.")
    return runs


def driven_before(path: Path) -> set[tuple[Any, ...]]:
    return {_key(drive) for drive in read_lines(path)}


def _key(drive: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(drive[name] for name in KEY)


def end_with_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal's signal goes to all processes; the parent decides
    parent = multiprocessing.parent_process()
    assert parent is not None
    assert parent.pid is not None
    die_with_parent(parent.pid)


def left_to_drive(group: Group, done: set[tuple[Any, ...]]) -> tuple[int, ...]:
    return tuple(number for number in group.routes if tuple(group.key(number).values()) not in done)


def _file(town: str) -> str:
    return town.replace(":", "_").replace(",", "_").replace("=", "-")


if __name__ == "__main__":
    typer.run(main)
