"""The visual test: shows a driver on held-out routes, and leaves a video, a contact sheet and a verdict.

Owns the order of steps, and writes its files even if the simulator hangs or dies. The caller exits by ``os._exit``.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import psutil
from rich.console import Console

from carla_run.exits import Exit
from carla_run.files import write_whole
from carla_run.memory.processes import held_mib
from carla_run.paths import RunPaths
from carla_run.signals import StopRequests
from carla_td3.cli.commands import console
from carla_td3.cli.evaluation import Outputs, TrainedDriver, environment
from carla_td3.cli.showing import Show, open_viewer
from carla_td3.collector.live import LiveView
from carla_td3.config import AgentConfig
from carla_td3.env.driving import DrivingEnv
from carla_td3.env.observation import Observation
from carla_td3.env.route import Route
from carla_td3.env.session import BlockedStart, SimulatorLost
from carla_td3.evaluation import overlay, video
from carla_td3.evaluation.contact_sheet import ContactSheet
from carla_td3.evaluation.drivers import TD3_DRIVER, Driver, driver, require_driver
from carla_td3.evaluation.health import Health
from carla_td3.evaluation.overlay import Heatmap, OverlayData, Picture, TownMap
from carla_td3.evaluation.routes import DriveStep, steps
from carla_td3.evaluation.runner import EvaluationRunner
from carla_td3.evaluation.window import Window
from carla_td3.exits import AgentError
from carla_td3.telemetry.progress import ProgressLine

SHEET_WIDTH = 440
LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True)
class VisualTest:
    """Options of the test."""

    driver: str
    steps: int
    video: Path
    """The video. The sheet (.png), the summary (.json) and the live page's files are written beside it."""
    explain: bool
    viewing: bool
    """Whether a second camera with the agent's lens and more pixels films the drive. It costs the simulator memory."""
    memory_limit_mib: float

    @property
    def sheet(self) -> Path:
        """Path of the contact sheet."""
        return self.video.with_suffix(".png")

    @property
    def summary(self) -> Path:
        """Path of the summary."""
        return self.video.with_suffix(".json")


def show(trained: TrainedDriver, test: VisualTest, where: Show, port: int, title: str) -> Exit:
    """Check the test, run it with its window or page, and return its exit code.

    Args:
        where: the pictures are seen.
        port: of the page.
        title: of the window.

    Raises:
        AgentError, NoWindowError: it can't run; and what :func:`run` raises.
    """
    prepare(test, trained)
    with open_viewer(where, port, test.video.parent, title, overlay.size_of(test.explain)) as window:
        return Exit.FINISHED if run(trained, test, window, console()) else Exit.CRASH


def prepare(test: VisualTest, trained: TrainedDriver) -> None:
    """Check, before the first drive, that the test can run, and remove the last one's files.

    Raises:
        AgentError: it can't run.
    """
    if test.explain and (trained.policy is None or test.driver != TD3_DRIVER):
        raise AgentError("--explain needs a network to explain: give --checkpoint, and the driver td3.", Exit.USAGE)
    if test.explain and trained.policy is not None and trained.policy.sees != "image":
        raise AgentError("--explain shows what a network uses of the picture, and this one sees none.", Exit.USAGE)
    require_driver(test.driver, trained.policy)
    Outputs(csv=test.sheet, json=test.summary, video=test.video).check()
    for path in (test.video, test.sheet, test.summary):
        path.unlink(missing_ok=True)


def run(trained: TrainedDriver, test: VisualTest, window: Window | None, out: Console) -> bool:
    """Drive, show and record. Print the problems and the paths of the files; return whether the drive was healthy.

    Raises:
        AgentError: a signal stopped it (exit 75).
        NoSimulator, BlockedStart, ConfigError, RouteError: one sentence each.
    """
    config, stop = trained.config, StopRequests(raise_second=True)
    recording = Recording(test, config)

    def give_up(why: str) -> NoReturn:
        """End the process from a thread: the running tick can't be interrupted."""
        try:
            recording.health.lost = recording.health.lost or why
            text = _summary_text(recording.finish(), test)
            os.write(2, f"{text}\n".encode())
        finally:  # a full disk or a closed terminal must not keep this process alive
            os._exit(Exit.CRASH)

    with environment(config, give_up) as env:
        stop.install()
        try:
            _drive(env, trained, test, recording, window, stop)
        except SimulatorLost as loss:
            recording.health.lost = str(loss)
    found = recording.finish()
    out.print(_summary_text(found, test), highlight=False, soft_wrap=True)
    if stop.signal is not None:
        raise AgentError(f"Stopped by {stop.cause} after {found['steps']} of {test.steps} steps.", Exit.STOPPED)
    return bool(found["healthy"])


class Recording:
    """The files of a drive. ``finish`` runs once: in the drive, or in the thread that gives it up."""

    def __init__(self, test: VisualTest, config: AgentConfig) -> None:
        self.health = Health(test.steps, test.memory_limit_mib)
        self.facts: dict[str, Any] = {"driver": test.driver, "seed": config.seed, "ends": []}
        """Fields of the summary, besides the verdict."""
        self.metres = self.reward = 0.0
        self._test, self._fps = test, 1.0 / config.simulator.fixed_delta_s
        self._sheet = ContactSheet(SHEET_WIDTH)
        self._stack = contextlib.ExitStack()
        self._encoder: Any = None
        self._one = threading.Lock()
        self._summary: dict[str, Any] | None = None

    def add(self, picture: Picture, label: str, own: Picture, metres: float, held_mib: Mapping[str, float]) -> None:
        """Add a step: its picture, and the readings of ``Health.see``."""
        with self._one:
            if self._summary is not None:
                return
            if self._encoder is None:
                size = overlay.size_of(self._test.explain)
                self._encoder = self._stack.enter_context(video.encoding(self._test.video, self._fps, size))
            self._encoder.send(picture)
            self._sheet.add(picture, label)
            self.health.see(own, metres, held_mib)
            self.metres += metres

    def finish(self) -> dict[str, Any]:
        """End the video, write sheet and summary, and return the summary."""
        with self._one:
            if self._summary is None:
                self._stack.close()
                self._sheet.write(self._test.sheet)
                self._summary = {
                    **self.health.plain(),
                    **self.facts,
                    "seconds": round(self.health.steps / self._fps, 1),
                    "metres": round(self.metres, 1),
                    "reward": round(self.reward, 2),
                    "video": self._test.video.name if self._encoder else None,
                    "sheet": self._test.sheet.name if self._encoder else None,
                }
                write_whole(self._test.summary, json.dumps(self._summary, indent=1) + "\n")
            return self._summary


def _drive(
    env: DrivingEnv,
    trained: TrainedDriver,
    test: VisualTest,
    recording: Recording,
    window: Window | None,
    stop: StopRequests,
) -> None:
    """Drive, show and record every step, until a signal asks to stop.

    Raises:
        SimulatorLost: the simulator is gone, or sent no picture of a frame.
    """
    config = trained.config
    chosen = driver(test.driver, trained.policy, config, lambda: env.hazards)
    routes = EvaluationRunner(config, env, trained.policy, config.evaluation.episodes).routes()
    recording.facts["map"] = env.planner.name
    recording.facts["camera"] = "viewing" if test.viewing else "own"
    town, live = TownMap(env.planner.lanes), LiveView(RunPaths(test.video.parent))
    through, processes = config.environment.camera, _processes(config)
    driven_m, began_s = 0.0, time.monotonic()
    with ProgressLine(test.steps, Console(stderr=True), f"{test.driver} drives") as progress:
        for step, front in itertools.islice(_steps(env, chosen, routes, test.viewing), test.steps):
            info, held = step.info, {who: held_mib(pid) or 0.0 for who, pid in processes.items()}
            came_m = info["distance_m"] - driven_m
            driven_m = 0.0 if info["end"] else info["distance_m"]
            recording.reward += step.reward
            number = recording.health.steps + 1
            where = {"title": test.driver, "step": number, "steps": test.steps, "held_mib": held}
            seen = OverlayData.of(env, step.action, step.reward, info, **where)
            picture = overlay.composed(front, through, seen, town, _heatmaps(trained, test, step.observation))
            label = f"step {number}, {3.6 * seen.state.speed_mps:.0f} km/h, reward {step.reward:+.2f}"
            assert env.car is not None
            recording.add(picture, label, env.car.sensors.newest[:, :, :3], came_m, held)
            if info["end"]:
                recording.facts["ends"].append(info["end"])
            live.show(env, step.action, step.reward, info)
            if window is not None:
                window.show(picture)
            recording.facts["steps_per_s"] = round(number / (time.monotonic() - began_s), 1)
            progress.move(number, f"{recording.facts['steps_per_s']} steps/s")
            if stop.signal is not None:
                return


def _steps(
    env: DrivingEnv, driver: Driver, routes: Sequence[Route], viewing: bool
) -> Iterator[tuple[DriveStep, Picture]]:
    """Drive the routes in turn, over and over; yield each step with its front view.

    Args:
        viewing: whether the front view comes from a second camera, put on the car as its first drive begins.

    Raises:
        BlockedStart: something stands at the start of each route.
        SimulatorLost: the simulator was lost.
    """
    blocked, car, camera = 0, None, None
    for route in itertools.cycle(routes):
        try:
            begun = env.reset(options={"route": route})
            if viewing and env.car is not None and env.car is not car:
                car, camera = env.car, env.car.add_view(overlay.FRONT)
                begun = env.reset(options={"route": route})
        except BlockedStart:
            blocked += 1
            if blocked == len(routes):
                raise
            continue
        blocked = 0
        for step in steps(env, driver, begun):
            assert env.car is not None
            yield step, (env.car.sensors.newest if camera is None else camera.last)[:, :, :3]


def _heatmaps(trained: TrainedDriver, test: VisualTest, seen: Observation) -> dict[str, Heatmap] | None:
    if not test.explain or trained.policy is None:
        return None
    from carla_td3.evaluation import explain

    planes = 3 if trained.config.environment.camera.channels == "rgb" else 1
    return explain.heatmaps(trained.policy, seen["image"], seen["vector"], planes)


def _processes(config: AgentConfig) -> dict[str, int]:
    """Return the processes whose memory can be read: this one, and a simulator that listens on this machine."""
    found = {"agent": os.getpid()}
    if config.simulator.host in LOOPBACK:
        with contextlib.suppress(psutil.Error, OSError):
            for each in psutil.net_connections("tcp"):
                if each.status == psutil.CONN_LISTEN and each.laddr[1:2] == (config.simulator.port,) and each.pid:
                    found["simulator"] = each.pid
    return found


def _summary_text(found: dict[str, Any], test: VisualTest) -> str:
    """Return the text printed at the end: the paths of all files, and a line for each problem."""
    files = [test.video, test.sheet.name, test.summary.name] if found["video"] else [test.summary]
    head = f"{test.driver}: {found['seconds']:.1f} s, {found['metres']:.0f} m → {', '.join(map(str, files))}"
    return "\n".join([head, *(f"Unhealthy: {problem}" for problem in found["problems"])])
