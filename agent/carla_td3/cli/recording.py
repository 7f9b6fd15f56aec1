"""``python -m carla_td3 record``: record a driver's steps on training routes, in the format of a run's replay.

Owns the order of steps. It records as training does, without warm-up and exploration. The caller exits by ``os._exit``.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Generator

from rich.console import Console

from carla_run.event_log import EventLog
from carla_run.exits import Exit
from carla_run.paths import RunPaths
from carla_run.signals import StopRequests
from carla_td3.cli.evaluation import TrainedDriver, environment
from carla_td3.collector.rollout import Rollout
from carla_td3.config import AgentConfig
from carla_td3.evaluation.drivers import driver
from carla_td3.exchange.messages import EpisodeEnded
from carla_td3.exits import AgentError
from carla_td3.run_directory import save_config
from carla_td3.td3.networks import Policy
from carla_td3.td3.replay import index
from carla_td3.td3.replay.damage import mend_rings
from carla_td3.td3.replay.frames import FrameStack
from carla_td3.td3.replay.layout import privileged_numbers
from carla_td3.td3.replay.replay import MIN_CAPACITY, Replay
from carla_td3.td3.replay.resize_replay import resize_replay
from carla_td3.telemetry.progress import ProgressLine
from carla_td3.trainer.batches import require_recorded_alike
from carla_td3.trainer.towns import Assignment, Towns

RESIZED = ("environment.camera.width", "environment.camera.height")
"""Keys by which the rows that are there are changed."""


def record(own: TrainedDriver, name: str, steps: int, run: RunPaths, out: Console) -> None:
    """Drive until the folder holds ``steps`` steps, changing towns as training would; print how the drives ended.

    Args:
        own: the task, and the policy of the driver td3.
        name: the driver.

    Raises:
        AgentError: a signal stopped it (exit 75), or there is no such driver.
        ReplayError: the disk is too small, or the folder holds other rows.
        NoSimulator, ConfigError, RouteError: one sentence each.
    """
    config = own.config
    plain = config.td3.model_copy(update={"exploration_noise": 0.0})
    at_once = config.training.model_copy(update={"warmup_steps": 0})
    as_it_drives = config.model_copy(update={"td3": plain, "training": at_once})
    if index.exists(run.replay) and run.config.exists():
        require_recorded_alike(run, config, f"{run.path}", "record into another folder", but=RESIZED)
    replay = _with_ring_capacity(steps, config, run)
    save_config(run, config)
    towns, ends, stop = Towns.of(config), Counter[str](), StopRequests(raise_second=True)
    stop.install()
    with ProgressLine(steps, Console(stderr=True), f"{name} drives") as progress:
        while replay.steps < steps and stop.signal is None:
            there = towns.driving(replay.episodes)
            with contextlib.closing(_driven(as_it_drives, there, name, own.policy, replay)) as drives:
                for ended in drives:
                    progress.move(replay.steps)
                    if ended is not None:
                        ends[ended.end] += 1
                    if replay.steps >= steps or stop.signal is not None:
                        break
    told = ", ".join(f"{count} {end}" for end, count in ends.most_common()) or "none ended"
    words = f"{run.path}: {replay.steps} steps by {name}; drives: {told}."
    out.print(f"{words} To learn from them: replay.demonstrations={run.path}", highlight=False, soft_wrap=True)
    if stop.signal is not None:
        done = f"{replay.steps} of {steps} steps"
        raise AgentError(
            f"Stopped by {stop.cause} after {done}: run the same command with --resume to continue.", Exit.STOPPED
        )


def _with_ring_capacity(steps: int, config: AgentConfig, run: RunPaths) -> Replay:
    """Open or create the ring. One that was made for fewer steps is enlarged."""
    stack, privileged = FrameStack.of(config.environment.camera), privileged_numbers(config.environment)
    rows = MIN_CAPACITY + stack.reach + steps + steps // 4  # an episode takes one row more than it has steps
    if index.exists(run.replay):
        rows = max(rows, index.read(run.replay).capacity)
        log = EventLog(run.agent_events).append
        mend_rings([run.replay], stack, log)
        resize_replay(run.replay, rows, stack, config.memory.reserve_mib, log, privileged)
    return Replay.create(run.replay, rows, stack, privileged)


def _driven(
    config: AgentConfig, assignment: Assignment, name: str, policy: Policy | None, replay: Replay
) -> Generator[EpisodeEnded | None, None, None]:
    """Drive in one town until its episodes are over; yield, for each step, the episode that it ended or None."""
    there = config.simulator.model_copy(update={"map": assignment.map})
    with environment(config.model_copy(update={"simulator": there})) as env:
        rollout = Rollout(config, env, replay, driver(name, policy, config, lambda: env.hazards))
        while rollout.in_episode or assignment.until_episode is None or replay.episodes < assignment.until_episode:
            yield rollout.step()
