"""A whole training beside Stable-Baselines3's TD3: minutes until the driver reaches the same return, and stays there.

Run on an idle machine: ``python benchmarks/whole_training.py --seeds 0``, about 20 minutes on two cores. Trainings run
one at a time, each with its own carla-lite, in the town and with the environment of a configuration (the preset
``quick``). They save their policies every few hundred of their steps. Nothing is evaluated until a training is
over; then each saved policy drives the same held-out routes of another town, by the same evaluator. Minutes count from
the start of the training's process, without its evaluations; processor minutes include the simulator's.

The goal is a share of the PID driver's mean return on these routes, and a route completion. A policy reaches it for
good if the next ones do, too (``STAYS``). If a training ends without it, the ratio is only a bound.

=============== ========================================================================================================
side            what it is
=============== ========================================================================================================
``ours``        ``carla-td3 train`` with the configuration as shipped: collector, learner, all of its steps
``sb3``         TD3 with MultiInputPolicy in one process, as its users run it, until the time limit: the configuration's
                widths of encoder, actor and critics, batch, rates, γ, τ, noise, policy delay, warm-up, replay and
                updates a step. The rest are its defaults: an encoder each for actor and critics, two copies of each
                picture in the replay (that of dictionaries offers no other way), uniform actions in the warm-up
``ours-plain``  ours until the time limit, without those of its additions that can be turned off (``PLAIN``); the
                one encoder for actor and critics, and the normalisation in its networks, can't be
``sb3-warmed``  ``sb3`` with our warm-up, whose actions move the car
``sb3-slower``  ``sb3-warmed`` with a tenth of the learning rates (``SLOWER``): with those of ``quick`` its actor
                was seen to take one action everywhere, at the flat ends of its tanh, for 1 500 updates
=============== ========================================================================================================

Each of ours is compared with each of theirs, seed by seed. Finished trainings are skipped: the same command resumes,
and ``--return-share`` and ``--completion`` can be changed afterwards.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any

import gymnasium
import numpy as np
import psutil
import stable_baselines3
import torch
import typer
from learning import STOP_S, agent
from lite_server import lite_process, lite_server
from measuring import end_in_order, leave, machine
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.noise import NormalActionNoise
from stable_baselines3.common.torch_layers import CombinedExtractor
from stable_baselines3.td3 import MultiInputPolicy
from updates import NarrowCNN

from carla_run.files import write_whole
from carla_run.memory.processes import tree
from carla_run.paths import RunPaths
from carla_td3 import config as configuration
from carla_td3.cli.evaluation import environment, trained
from carla_td3.cli.options import parsed
from carla_td3.collector.parent import die_with_parent
from carla_td3.collector.warm_up import warmup_action
from carla_td3.config import AgentConfig, EnvironmentConfig
from carla_td3.env.driving import DrivingEnv
from carla_td3.env.expert import Action
from carla_td3.env.observation import DriverState, Observation
from carla_td3.env.route import held_out_routes
from carla_td3.env.route_line import Route
from carla_td3.evaluation.drivers import Driver, PolicyDriver, driver
from carla_td3.evaluation.routes import completed, evaluate
from carla_td3.run_directory import save_config
from carla_td3.seeding import Purpose, generator

TOWN, EVALUATION_TOWN = "Lite01", "Lite02"
ROUTES_SEED = 0
"""Routes are the same for all seeds of trainings."""
STAYS = 3
"""Evaluations in a row that must reach the goal; fewer if the training ends before."""
POLL_S = 0.25
PID = "pid"
CLOCKS = ("minutes", "processor_minutes")
PLAIN = {
    "td3.smoothness": 0.0,
    "td3.network.picture_weight": 1.0,
    "training.annealing": 0.0,
    "training.total_steps": 50_000,  # beyond the time limit: nothing is annealed, so the end is no part of it
}
OURS: dict[str, dict[str, Any]] = {"ours": {}, "ours-plain": PLAIN}
SLOWER = {"td3.actor_learning_rate": 1e-4, "td3.critic_learning_rate": 1e-4}
THEIRS: dict[str, dict[str, Any]] = {"sb3": {}, "sb3-warmed": {}, "sb3-slower": SLOWER}
WARMED = ("sb3-warmed", "sb3-slower")
SIDES = {**OURS, **THEIRS}
"""Settings of each side over the common ones."""
FIGURES = ("reward", "route_completion", "success", "mean_speed_mps", "jerk_mps3")
HERE = Path(__file__).resolve()


class Bound(str, Enum):
    """What a ratio says about the true one."""

    EXACT = "exact"
    AT_MOST = "at most"
    AT_LEAST = "at least"


@dataclass(frozen=True)
class Ratio:
    """Ours divided by theirs."""

    value: float
    bound: Bound = Bound.EXACT


@dataclass(frozen=True)
class Reached:
    """Minutes until a training reached the goal, or until its end if it never did."""

    minutes: float
    reached: bool = True


@dataclass(frozen=True)
class Goal:
    """Mean return and route completion that a driver must reach together."""

    reward: float
    route_completion: float

    def reached_by(self, point: Mapping[str, float]) -> bool:
        """Return whether the figures of an evaluation reach it."""
        return point["reward"] >= self.reward and point["route_completion"] >= self.route_completion


def time_to(goal: Goal, curve: Sequence[Mapping[str, float]], end: float, clock: str) -> Reached:
    """Return the time of the first of ``STAYS`` evaluations in a row that reach the goal.

    Args:
        curve: evaluations in order of time.
        end: minutes of the whole training.
        clock: one of ``CLOCKS``.
    """
    for at in range(len(curve)):
        if all(goal.reached_by(point) for point in curve[at : at + STAYS]):
            return Reached(curve[at][clock])
    return Reached(end, reached=False)


def ratio(ours: Reached, theirs: Reached) -> Ratio | None:
    """Return the ratio of two times, or what is known of it; None if neither reached the goal."""
    if not (ours.reached or theirs.reached):
        return None
    bound = Bound.AT_LEAST if theirs.reached else Bound.AT_MOST
    return Ratio(ours.minutes / theirs.minutes, Bound.EXACT if ours.reached and theirs.reached else bound)


def median(ratios: Sequence[Ratio | None]) -> Ratio | None:
    """Return the median over seeds, or a bound of it; None if bounds on both sides leave it open."""
    known = [each for each in ratios if each is not None]
    bounds = {each.bound for each in known} - {Bound.EXACT}
    if not known or len(known) < len(ratios) or len(bounds) > 1:
        return None
    return Ratio(statistics.median(each.value for each in known), *bounds)


def main(
    sides: Annotated[str, typer.Option(help=f"Sides, separated by commas, of {', '.join(SIDES)}.")] = "ours,sb3",
    seeds: Annotated[
        str, typer.Option(help="Seeds, separated by commas. All sides train with the first one first.")
    ] = "0,1,2",
    config: Annotated[Path, typer.Option(help="Agent configuration of all sides: a preset or a YAML file.")] = Path(
        "quick"
    ),
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="KEY=VALUE that overrides the configuration; can be repeated.")
    ] = None,
    minutes: Annotated[float, typer.Option(min=0.1, help="Longest training of a side, in minutes.")] = 10.0,
    every: Annotated[int, typer.Option(min=1, help="Steps between two saved policies.")] = 500,
    routes: Annotated[int, typer.Option(min=1, help="Routes per evaluation.")] = 10,
    return_share: Annotated[
        float, typer.Option(help="Return that counts as the goal, as a share of the PID driver's.")
    ] = 0.9,
    completion: Annotated[float, typer.Option(max=1, help="Route completion that counts as the goal.")] = 0.9,
    runs: Annotated[Path, typer.Option(help="Folder for the trainings.")] = Path("runs/whole-training"),
    out: Annotated[Path, typer.Option(help="JSON file for the results.")] = Path(
        "benchmarks/results/whole_training.json"
    ),
    peer: Annotated[Path | None, typer.Option(hidden=True)] = None,
) -> None:
    """Measure the minutes of whole trainings until the same return."""
    chosen = sides.split(",")
    if unknown := {*chosen} - {*SIDES}:
        raise SystemExit(f"--sides {', '.join(sorted(unknown))}: unknown; there are {', '.join(SIDES)}.")
    if peer is not None:
        train_peer(peer, every, warmed=sides in WARMED)
        return
    torch.set_num_threads(1)  # of the evaluations, as in a collector
    end_in_order()  # so that trainings end in order
    given = parsed(settings or ())
    asked = {"config": str(config), "settings": given, "minutes": minutes, "every": every, "routes": routes}
    found: dict[str, dict[str, Any]] = {side: {} for side in chosen}
    for seed in seeds.split(","):
        for side in chosen:
            folder = runs / side / f"seed-{seed}"
            own = {**given, **SIDES[side], "seed": int(seed)}
            found[side][seed] = measured(side, folder, config, own, asked)
            results = report(found, asked, return_share, completion)
            write_whole(out, json.dumps(results, indent=1) + "\n")
    print_summary(results)
    leave()


def measured(
    side: str, folder: Path, config: Path, settings: Mapping[str, Any], asked: Mapping[str, Any]
) -> dict[str, Any]:
    """Train and evaluate a side, unless that is done, and return what its folder keeps.

    Raises:
        SystemExit: the training failed, or the folder has one with other options.
    """
    training, curve = folder / "training.json", folder / "curve.json"
    if training.exists():
        before = json.loads(training.read_text("utf-8"))["asked"]
        if before != asked:
            raise SystemExit(f"{folder} was trained with {before}, not {dict(asked)}: move it, or name other --runs.")
    else:
        shutil.rmtree(folder, ignore_errors=True)  # a cut training's minutes can't be continued
        print(f"{side}, seed {settings['seed']}: trains", file=sys.stderr, flush=True)
        figures = train(side, folder, config, settings, asked["minutes"], asked["every"])
        measured_on = {"machine": machine("torch", "stable-baselines3", "gymnasium", "numpy", "carla")}
        write_whole(training, json.dumps({"asked": asked, **figures, **measured_on}, indent=1) + "\n")
    if not curve.exists():
        print(f"{side}, seed {settings['seed']}: is evaluated", file=sys.stderr, flush=True)
        figures = json.loads(training.read_text("utf-8"))
        resolved = configuration.load(config, settings)
        write_whole(curve, json.dumps(evaluated(side, figures, folder, resolved, asked["routes"]), indent=1) + "\n")
        for leftover in ("checkpoints", "replay"):
            shutil.rmtree(folder / leftover, ignore_errors=True)
    found: dict[str, Any] = json.loads(curve.read_text("utf-8"))
    return found


def train(
    side: str, folder: Path, config: Path, settings: Mapping[str, Any], minutes: float, every: int
) -> dict[str, Any]:
    """Train a side until its end or the time limit, and return the times of its saved policies.

    Raises:
        SystemExit: it ended by an error.
    """
    with lite_process(TOWN) as (port, server):
        process = begun(side, folder, config, settings, every, port)
        try:
            figures = watched(process, server, folder / "checkpoints", minutes)
        finally:
            if process.poll() is None:
                process.terminate()
            process.wait(STOP_S)
    if not figures["cut"] and process.returncode:
        raise SystemExit(f"{folder}: the training ended with {process.returncode}; its words are above.")
    return figures


def begun(
    side: str, folder: Path, config: Path, settings: Mapping[str, Any], every: int, port: int
) -> subprocess.Popen[bytes]:
    """Start a training; it ends with this process."""
    resolved = configuration.load(config, settings)
    if side in OURS:
        own = {
            **settings,
            "device": "cpu",
            "evaluation.every_steps": 0,
            "evaluation.final_episodes": 0,
            "training.checkpoint_every_steps": every,
            "training.keep_checkpoints": resolved.training.total_steps // every + 1,
        }
        return agent(port, ["train", "--config", str(config), "--run-dir", str(folder)], own)
    folder.mkdir(parents=True)
    save_config(RunPaths(folder), resolved)
    words = [sys.executable, str(HERE), "--peer", str(folder), "--sides", side, "--every", str(every)]
    address = {"CARLA_HOST": "127.0.0.1", "CARLA_PORT": str(port)}
    return subprocess.Popen(words, env={**os.environ, **address}, stdout=sys.stderr)


def watched(process: subprocess.Popen[bytes], server: int, saved: Path, minutes: float) -> dict[str, Any]:
    """Return the steps and times of the policies that a training saves, until it ends or the time limit.

    ``other_cores`` is what other programs used meanwhile: above a few hundredths, the minutes are theirs, too.
    """
    began_s, server_s, machine_s = time.monotonic(), _used_s(server), _machine_s()
    used_s, points = 0.0, dict[str, dict[str, Any]]()
    while True:
        ended = process.poll() is not None
        took_s = time.monotonic() - began_s
        used_s = max(used_s, sum(map(_used_s, tree(process.pid))) + _used_s(server) - server_s)
        times = {"minutes": round(took_s / 60, 4), "processor_minutes": round(used_s / 60, 4)}
        for name in sorted(path.name for path in saved.glob("step-*")):
            points.setdefault(name, {"policy": name, "steps": int(name[5:14]), **times})
        if ended or took_s > 60 * minutes:
            others = (_machine_s() - machine_s - used_s) / took_s
            return {**times, "cut": not ended, "other_cores": round(others, 2), "policies": list(points.values())}
        time.sleep(POLL_S)


def _used_s(pid: int) -> float:
    """Return the processor seconds of a process and of its children that have ended; 0 if it has ended itself."""
    try:
        return float(sum(psutil.Process(pid).cpu_times()[:4]))
    except psutil.NoSuchProcess:
        return 0.0


def _machine_s() -> float:
    """Return the processor seconds of all processes since the machine started."""
    times = psutil.cpu_times()
    return float(times.user + times.nice + times.system)


def evaluated(side: str, training: Mapping[str, Any], folder: Path, config: AgentConfig, count: int) -> dict[str, Any]:
    """Let PID and each saved policy drive the same held-out routes, and return the training with its curve."""
    curve = []
    with lite_server(EVALUATION_TOWN) as port:
        there = config.simulator.model_copy(update={"host": "127.0.0.1", "port": port})
        with environment(config.model_copy(update={"simulator": there, "seed": ROUTES_SEED})) as env:
            routes = held_out_routes(env.planner, config.environment.route, count, ROUTES_SEED)
            pid = figures_of(driver(PID, None, config, lambda: env.hazards), env, routes)
            for point in training["policies"]:
                chosen = saved_driver(side, folder / "checkpoints" / point["policy"])
                curve.append({**point, **figures_of(chosen, env, routes)})
                print(json.dumps(curve[-1]), file=sys.stderr, flush=True)
    return {**{key: training[key] for key in training if key not in ("asked", "policies")}, PID: pid, "curve": curve}


def figures_of(chosen: Driver, env: DrivingEnv, routes: Sequence[Route]) -> dict[str, float]:
    """Return the means over the routes; ``reward`` is the mean return."""
    totals = completed(evaluate(env, chosen, routes, "", ROUTES_SEED)).totals()
    assert totals["routes"] == len(routes)
    return {name: round(totals[name], 4) for name in FIGURES}


def saved_driver(side: str, path: Path) -> Driver:
    """Return the driver of a saved policy, without exploration noise."""
    if side in THEIRS:
        return PeerDriver(path)
    policy = trained(path).policy
    assert policy is not None
    return PolicyDriver(policy)


class PeerDriver:
    """A policy of Stable-Baselines3's."""

    def __init__(self, path: Path) -> None:
        self._policy = MultiInputPolicy.load(str(path), device="cpu")

    def act(self, observation: Observation, state: DriverState) -> Action:  # noqa: ARG002 (the protocol's)
        """Return the policy's action, without noise."""
        action: Action = self._policy.predict(observation, deterministic=True)[0]
        return action


def train_peer(folder: Path, every: int, warmed: bool) -> None:
    """Train Stable-Baselines3's TD3 in this process, without end, by the configuration in its folder."""
    die_with_parent(os.getppid())
    config = configuration.load(RunPaths(folder).config)
    env = gymnasium.make("CarlaTD3/Driving-v0", config=config.environment, simulator=config.simulator, seed=config.seed)
    model = peer_model(config, Monitor(AsCollected(env)), warmed)
    model.learn(10**9, callback=Saving(folder / "checkpoints", every))


def peer_model(config: AgentConfig, env: gymnasium.Env[Any, Any], warmed: bool) -> Any:
    """Return Stable-Baselines3's TD3 with the values and widths of a configuration."""
    td3, network, training = config.td3, config.td3.network, config.training
    assert td3.actor_learning_rate == td3.critic_learning_rate, "it has one learning rate"
    ratio = Fraction(str(training.updates_per_step))
    model = (WarmedTD3 if warmed else stable_baselines3.TD3)(
        "MultiInputPolicy",
        env,
        learning_rate=td3.critic_learning_rate,
        buffer_size=config.replay.capacity,
        learning_starts=training.warmup_steps,
        batch_size=td3.batch_size,
        tau=td3.tau,
        gamma=td3.gamma,
        train_freq=ratio.denominator,
        gradient_steps=ratio.numerator,
        action_noise=NormalActionNoise(np.zeros(2), np.full(2, td3.exploration_noise)),
        policy_delay=td3.policy_delay,
        target_policy_noise=td3.target_noise,
        target_noise_clip=td3.target_noise_clip,
        policy_kwargs={
            "net_arch": list(network.hidden),
            "features_extractor_class": Extractor,
            "features_extractor_kwargs": {"channels": network.channels, "features": network.features},
        },
        seed=config.seed,
        device="cpu",
    )
    if isinstance(model, WarmedTD3):
        model.task = config.environment
    return model


class Extractor(CombinedExtractor):
    """Its extractor of dictionaries, with the configuration's widths for the picture."""

    def __init__(self, space: gymnasium.spaces.Dict, channels: Sequence[int], features: int) -> None:
        super().__init__(space, cnn_output_dim=features)
        picture = space["image"]
        assert isinstance(picture, gymnasium.spaces.Box)
        self.extractors["image"] = NarrowCNN(picture, channels, features)


class AsCollected(gymnasium.Wrapper[Observation, Action, Observation, Action]):
    """Begins drives as our collector does: without the search for crossed lanes, which no reward needs."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Observation, dict[str, Any]]:
        """Begin a drive."""
        return super().reset(seed=seed, options={**(options or {}), "lane_invasions": False})


class WarmedTD3(stable_baselines3.TD3):
    """TD3 with our warm-up's actions, for one environment of this task."""

    task: EnvironmentConfig
    _episode, _action = -1, np.zeros(2, np.float32)

    def _sample_action(self, learning_starts: int, *rest: Any, **more: Any) -> tuple[Any, Any]:
        if self.num_timesteps >= learning_starts:
            sampled: tuple[Any, Any] = super()._sample_action(learning_starts, *rest, **more)
            return sampled
        if self._episode != self._episode_num:
            self._episode, self._action = self._episode_num, np.zeros(2, np.float32)
        assert isinstance(self._last_obs, dict)
        rng = generator(self.seed or 0, Purpose.WARM_UP, self.num_timesteps)
        self._action = warmup_action(rng, self._action, self._last_obs["vector"][0], self.task)
        return self._action[None], self._action[None]


class Saving(BaseCallback):
    """Saves the policy every few steps, completely or not at all."""

    def __init__(self, folder: Path, every: int) -> None:
        super().__init__()
        self._folder, self._every = folder, every
        folder.mkdir(parents=True)

    def _on_step(self) -> bool:
        if self.num_timesteps % self._every == 0:
            new = self._folder / "new"
            self.model.policy.save(str(new))
            new.replace(self._folder / f"step-{self.num_timesteps:09d}")
        return True


def report(
    found: Mapping[str, Mapping[str, Any]], asked: Mapping[str, Any], return_share: float, completion: float
) -> dict[str, Any]:
    """Return all results of the trainings so far, by side and seed."""
    trainings = [each for seeds in found.values() for each in seeds.values()]
    pid = trainings[0][PID]
    assert all(each[PID] == pid for each in trainings), "the evaluations differ: PID drove differently"
    goal = Goal(round(return_share * pid["reward"], 2), completion)
    reached = {
        side: {
            seed: {clock: time_to(goal, each["curve"], each[clock], clock) for clock in CLOCKS}
            for seed, each in seeds.items()
        }
        for side, seeds in found.items()
    }
    return {
        "what": "time of training until the goal is reached for good, and its ratio, ours / theirs",
        "command": "python " + " ".join(sys.argv),
        **asked,
        "towns": {"trained": TOWN, "evaluated": EVALUATION_TOWN},
        PID: pid,
        "goal": dataclasses.asdict(goal),
        "ratios": {
            f"{ours} / {theirs}": {clock: compared(reached[ours], reached[theirs], clock) for clock in CLOCKS}
            for ours in OURS
            for theirs in THEIRS
            if ours in found and theirs in found
        },
        "trainings": {
            side: {
                seed: {"reached": {clock: dataclasses.asdict(reached[side][seed][clock]) for clock in CLOCKS}, **each}
                for seed, each in seeds.items()
            }
            for side, seeds in found.items()
        },
    }


def compared(
    ours: Mapping[str, Mapping[str, Reached]], theirs: Mapping[str, Mapping[str, Reached]], clock: str
) -> dict[str, Any]:
    """Return the ratio of two sides' times, by seed, and the median of the seeds that both have."""
    ratios = {seed: ratio(ours[seed][clock], theirs[seed][clock]) for seed in ours if seed in theirs}
    return {"median": shown(median([*ratios.values()])), "seeds": {seed: shown(each) for seed, each in ratios.items()}}


def shown(found: Ratio | None) -> str:
    """Return a ratio for people."""
    if found is None:
        return "unknown"
    return f"{found.value:.2f}" if found.bound is Bound.EXACT else f"{found.bound.value} {found.value:.2f}"


def print_summary(found: Mapping[str, Any]) -> None:
    """Print the times and the ratios of a report."""
    for side, seeds in found["trainings"].items():
        for seed, each in seeds.items():
            time = each["reached"]["minutes"]
            words = "reached after" if time["reached"] else "not reached in"
            print(f"{side}, seed {seed}: {words} {time['minutes']:.1f} minutes")
    for pair, clocks in found["ratios"].items():
        print(f"{pair}:", ", ".join(f"{clock} {each['median']}" for clock, each in clocks.items()))


if __name__ == "__main__":
    typer.run(main)
