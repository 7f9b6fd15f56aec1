"""Which settings are worth learning with? Variants × seeds, each trained in its own folder, and their results.

Run: ``python benchmarks/learning.py --parallel 2`` for the driver with pictures, its twin without them, and four
ablations; ``python benchmarks/learning.py --config 50k --variants td3 --updates 12000 --demonstrations 0`` for the
empty task. First the expert records demonstrations, once for all runs. Then every run is ``carla-td3 train`` with its
own carla-lite, in ``RUNS/VARIANT/seed-N``, and evaluated on its configuration's ``training.towns.evaluation_map``, on
which no run is trained. After a stop or kill at any moment, the same command resumes: finished runs are skipped, a
started one is continued. A finished run keeps its checkpoints, its curve (``figures.json``) and its last evaluation
(``evaluation.json``), and with ``--keep-rows`` its replay, which takes more than a gigabyte. These figures choose
settings; ``driving.py`` judges the choice.

Three seeds of everything may take longer than a machine is available. With ``--keep FOLDER`` each finished run saves
its results there (configuration, policy, curve, figures), and runs whose results are there aren't trained again.
``--figures-only`` accepts such a folder as ``--runs``, and ``driving.py`` as a checkpoint.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from lite_server import lite_process, lite_server, mortal
from measuring import end_in_order, machine
from rich.console import Console
from rich.table import Table

from carla_run.files import write_whole
from carla_run.heartbeat import read_heartbeat
from carla_run.paths import RunPaths
from carla_td3 import config as configuration
from carla_td3.cli.evaluation import ONLINE, trained
from carla_td3.cli.options import parsed
from carla_td3.config import AgentConfig, ConfigError
from carla_td3.evaluation.comparison import bootstrap, interval, mean
from carla_td3.evaluation.figures import in_columns, shown
from carla_td3.run_directory import save_config
from carla_td3.td3.networks import Policy
from carla_td3.trainer import checkpoint
from carla_td3.trainer.learner import architecture

POLL_S, TOLD_EVERY_S = 1.0, 60.0
STOP_S = 120.0
"""Seconds that a training may take to end in order."""
TRIES = 3
"""Tries per run in one execution of this command."""
TRAINED = "td3"
"""The driver's name in evaluations."""
FIGURES_FILE = "figures.json"
ARRIVES = 0.9
"""Route completion that counts as arriving; the time of a run's first arrival is among its figures."""
FIGURES = (
    *("success_rate", "route_completion", "driving_score", "red_lights_run", "collisions_per_km"),
    *("lane_invasions_per_km", "mean_speed_mps", "jerk_mps3"),
)


@dataclass(frozen=True)
class Variant:
    """Length of the training, and settings that differ from the configuration."""

    updates: int
    seeds: tuple[int, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)


WHOLE: tuple[int, tuple[int, ...]] = 15_000, (0, 1, 2)
ABLATION: tuple[int, tuple[int, ...]] = 15_000, (0, 1)
WITHOUT_PICTURES = {"td3.network.encoder": "nature", "td3.auxiliary": 0.0, "td3.random_erasing": 0}
BY_REWARD = {
    "replay.demonstrations": None,
    "environment.reward": {"form": "sum", "lateral": 2.0, "heading": 1.0, "overspeed": 2.0, "comfort": 0.05},
    "td3.network.encoder": "nature",
    "td3.imitation": 0.0,
    "td3.auxiliary": 0.0,
    "td3.random_erasing": 0,
    "td3.encoder_learns_from": "all",
    "td3.critic_sees": "observation",
    "td3.smoothness": 0.2,
    "td3.policy_delay": 2,
    "td3.critic_learning_rate": 1e-3,
    "training.updates_per_step": 0.25,
    "training.final_updates": 0,
    "training.halts_every_s": 0,
}
"""No labels, no demonstrations, no privileged numbers: what the reward teaches, with the rates for it."""
EMPTY = {"environment.traffic.vehicles": 0, "environment.traffic.walkers": 0, "environment.traffic.walkers_step_out": 0}
LIGHT_TRAFFIC = {"environment.traffic.vehicles": [0, 5], "environment.traffic.walkers": [0, 10]}
REFERENCE = "td3"
VARIANTS = {
    REFERENCE: Variant(*WHOLE),
    "twin": Variant(*WHOLE, {"td3.network.sees": "vector", **WITHOUT_PICTURES}),
    # The worth of each teacher: without it, compared with the reference after as many updates.
    "no-demonstrations": Variant(*ABLATION, {"replay.demonstrations": None}),
    "no-imitation": Variant(*ABLATION, {"td3.imitation": 0.0, "td3.smoothness": 0.0}),
    "no-auxiliary": Variant(
        *ABLATION, {"td3.network.encoder": "nature", "td3.auxiliary": 0.0, "td3.encoder_learns_from": "all"}
    ),
    "symmetric": Variant(*ABLATION, {"td3.critic_sees": "observation"}),
    # Not by default: the worth of reinforcement beside imitation, and of either where it stands unaided.
    "imitation-only": Variant(*WHOLE, {"td3.q_weight": 0.0}),
    "imitation-if-better": Variant(*ABLATION, {"td3.imitation_counts": "if_better"}),
    "reward-only-empty": Variant(20_000, (0,), {**BY_REWARD, **EMPTY}),
    "reward-only-light": Variant(20_000, (0,), {**BY_REWARD, **LIGHT_TRAFFIC}),
    # Not by default: longer returns, the encoder's width, and settings that explain the limits.
    "n-step": Variant(*ABLATION, {"td3.n_step": 3}),
    "whole-width": Variant(*ABLATION, {"td3.network.channels": "whole"}),
    "control-told": Variant(*WHOLE, {"td3.network.sees": "privileged", **WITHOUT_PICTURES}),
    "long": Variant(63_000, (0,), {"training.final_updates": 48_000, "replay.capacity": 250_000}),
    # By the clock instead of by steps, with --tick-ms.
    "four-collectors": Variant(*WHOLE, {"training.collectors": 4}),
}
BY_DEFAULT = tuple(VARIANTS)[:6]


@dataclass(frozen=True)
class Job:
    """One training."""

    variant: str
    seed: int
    updates: int
    run: RunPaths
    settings: Mapping[str, Any] = field(hash=False)
    """Settings applied over the configuration file."""
    kept: RunPaths | None = None
    """Folder for the results that outlive its run."""

    @property
    def figures(self) -> Path:
        """Written last: a run with this file is finished."""
        kept = None if self.kept is None else self.kept.path / FIGURES_FILE
        return kept if kept is not None and kept.exists() else self.run.path / FIGURES_FILE

    @property
    def is_finished(self) -> bool:
        """Whether nothing is left to train or to evaluate."""
        return self.figures.exists()

    def done(self) -> int:
        """Return the number of updates made, from this run's files."""
        beat = read_heartbeat(self.run.heartbeat)
        return self.updates if self.is_finished else 0 if beat is None else min(beat.updates, self.updates)


@dataclass(frozen=True)
class Training:
    """A running job."""

    job: Job
    process: subprocess.Popen[bytes]
    server: contextlib.ExitStack
    began_s: float
    first: int
    """Updates at its start."""

    def rate(self) -> float:
        """Return its updates per second since its start, evaluations included."""
        return (self.job.done() - self.first) / max(POLL_S, time.monotonic() - self.began_s)


def main(
    variants: Annotated[str, typer.Option(help=f"Variants, separated by commas, of {', '.join(VARIANTS)}.")] = ",".join(
        BY_DEFAULT
    ),
    seeds: Annotated[
        str | None, typer.Option(help="Seeds, separated by commas. Default: those of each variant.")
    ] = None,
    updates: Annotated[
        int | None, typer.Option(min=1, help="Number of updates. Default: that of each variant.")
    ] = None,
    config: Annotated[Path, typer.Option(help="Agent configuration: a preset or a YAML file.")] = Path("traffic"),
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="KEY=VALUE that overrides the configuration; can be repeated.")
    ] = None,
    demonstrations: Annotated[int, typer.Option(min=0, help="Number of steps that the expert demonstrates.")] = 200_000,
    shown_by: Annotated[str, typer.Option(help="Driver that demonstrates: expert-shoved or expert.")] = "expert-shoved",
    runs: Annotated[Path, typer.Option(help="Folder of the runs.")] = Path("runs/learning"),
    parallel: Annotated[int, typer.Option(min=1, help="Trainings at once. Each takes three processes.")] = 1,
    tick_ms: Annotated[
        float, typer.Option(min=0, help="Shortest duration of a tick in a training, in milliseconds.")
    ] = 0.0,
    kept: Annotated[
        Path | None, typer.Option("--keep", help="Folder for the configuration, policy and figures of finished runs.")
    ] = None,
    keep_rows: Annotated[
        bool,
        typer.Option(
            "--keep-rows", help="Keep the replay of finished runs; encoder.py can train other learners on it."
        ),
    ] = False,
    figures_only: Annotated[bool, typer.Option(help="Only print the figures of the runs in --runs.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    end_in_order()  # so that trainings end in order
    if unknown := set(variants.split(",")) - set(VARIANTS):
        raise SystemExit(f"--variants {', '.join(sorted(unknown))}: unknown; there are {', '.join(VARIANTS)}.")
    given = parsed(settings or ())
    shown = runs / "demonstrations" if demonstrations else None
    chosen = {name: VARIANTS[name] for name in variants.split(",")}
    wanted = None if seeds is None else tuple(int(text) for text in seeds.split(","))
    jobs = planned(chosen, config, given, shown, runs, wanted, updates, kept)
    failed: list[Job] = []
    if not figures_only and not all(job.is_finished for job in jobs):
        if shown is not None:
            record(config, given, shown, demonstrations, shown_by)
        failed = train(jobs, config, parallel, tick_ms, keep_rows)
    report = {
        "machine": machine("torch", "carla", "numpy"),
        "command": "python " + " ".join(sys.argv),
        "variants": summary([json.loads(job.figures.read_text("utf-8")) for job in jobs if job.is_finished]),
    }
    runs.mkdir(parents=True, exist_ok=True)
    write_whole(runs / "learning.json", json.dumps(report, indent=2) + "\n")
    print(json.dumps(report, indent=2)) if as_json else Console().print(table(report))
    raise typer.Exit(1 if failed else 0)


def planned(
    variants: Mapping[str, Variant],
    config: Path,
    given: Mapping[str, Any],
    shown: Path | None,
    runs: Path,
    seeds: Sequence[int] | None = None,
    updates: int | None = None,
    kept: Path | None = None,
) -> list[Job]:
    """Return the trainings: first one seed of every variant, then the next seed.

    Args:
        given: settings of all runs.
        shown: the demonstrations' folder; None without.
        seeds, updates: instead of each variant's own.
        kept: folder for the results of finished runs; None for none.

    Raises:
        ConfigError: a configuration is invalid.
    """
    jobs = []
    for name, variant in variants.items():
        for place, seed in enumerate(seeds or variant.seeds):
            demonstrated = {} if shown is None else {"replay.demonstrations": str(shown)}
            own = {"seed": seed, **demonstrated, **given, **variant.settings}
            wanted = updates or variant.updates
            own["training.total_steps"] = steps_for(wanted, configuration.load(config, own))
            folder = Path(name, f"seed-{seed}")
            good = None if kept is None else RunPaths(kept / folder)
            jobs.append((place, Job(name, seed, wanted, RunPaths(runs / folder), own, good)))
    return [job for _, job in sorted(jobs, key=lambda each: each[0])]


def steps_for(updates: int, config: AgentConfig) -> int:
    """Return the environment steps of a training that ends with this many updates.

    Raises:
        ConfigError: these aren't more than the final updates.
    """
    training = config.training
    if updates <= training.final_updates:
        raise ConfigError(
            f"updates {updates}: training.final_updates takes {training.final_updates} of them; ask for more, or "
            "lower it with --set training.final_updates=N."
        )
    return training.warmup_steps + math.ceil((updates - training.final_updates) / training.updates_per_step - 1e-9)


def record(config: Path, given: Mapping[str, Any], shown: Path, steps: int, driver: str) -> None:
    """Let the expert drive in the training towns, or resume its recording."""
    driven = {key: value for key, value in given.items() if not key.startswith("td3.")}  # which would learn from these
    for _ in range(TRIES):
        with lite_server("Lite01") as port:
            what = ["--driver", driver, "--out", str(shown), "--steps", str(steps), "--resume"]
            recorder = agent(port, ["record", "--config", str(config), *what], driven)
            try:
                code = recorder.wait()
            finally:  # before its simulator ends
                end(recorder)
        if code == 0:
            return
    raise SystemExit(f"{shown}: the demonstrations couldn't be driven, exit code {code}: the agent's words are above.")


def agent(port: int, command: Sequence[str], settings: Mapping[str, Any]) -> subprocess.Popen[bytes]:
    """Start one of the agent's commands against the server on ``port``; what it prints goes to stderr."""
    environment = {**os.environ, "CARLA_HOST": "127.0.0.1", "CARLA_PORT": str(port)}
    assigned = [word for key, value in settings.items() for word in ("--set", f"{key}={json.dumps(value)}")]
    words = [*mortal("carla_td3"), *command, *assigned]
    return subprocess.Popen(words, env=environment, stdout=sys.stderr, start_new_session=True)


def train(jobs: Sequence[Job], config: Path, parallel: int, tick_ms: float, keep_rows: bool = False) -> list[Job]:
    """Train unfinished jobs, ``parallel`` at once; return those that failed."""
    waiting = [job for job in jobs if not job.is_finished]
    failed: list[Job] = []
    tries, rates = dict.fromkeys(jobs, 0), dict[str, float]()
    running: list[Training] = []
    told_s = -TOLD_EVERY_S
    try:
        while waiting or running:
            while waiting and len(running) < parallel:
                running.append(begun(waiting.pop(0), config, tick_ms))
                tries[running[-1].job] += 1
            time.sleep(POLL_S)
            rates |= {each.job.variant: each.rate() for each in running if each.rate() > 0}
            for each in [each for each in running if each.process.poll() is not None]:
                running.remove(each)
                each.server.close()
                if each.process.returncode == 0:
                    keep(each.job, keep_rows)
                else:
                    (failed if tries[each.job] == TRIES else waiting).append(each.job)
                    print(f"{each.job.run.path}: ended with {each.process.returncode}.", file=sys.stderr)
            if time.monotonic() - told_s >= TOLD_EVERY_S:
                told_s = time.monotonic()
                print(progress(jobs, rates, parallel), file=sys.stderr, flush=True)
    finally:
        stop(running)
    return failed


def begun(job: Job, config: Path, tick_ms: float) -> Training:
    """Start or resume a training; each of its collectors has a server."""
    with contextlib.ExitStack() as stack:
        count = job.settings.get("training.collectors", 1)
        port, *ports = (stack.enter_context(lite_process("Lite01", tick_ms=tick_ms))[0] for _ in range(count))
        command = ["train", "--config", str(config), "--run-dir", str(job.run.path), "--resume"]
        others = {"simulator.others": [f"127.0.0.1:{each}" for each in ports]} if ports else {}
        process = agent(port, command, {**job.settings, **others})
        return Training(job, process, stack.pop_all(), time.monotonic(), job.done())


def stop(running: Sequence[Training]) -> None:
    """End the running trainings in order: each writes a checkpoint."""
    end(*(each.process for each in running))
    for each in running:
        each.server.close()


def end(*processes: subprocess.Popen[bytes]) -> None:
    """Ask processes that run to stop, all at once, and wait until they have."""
    for each in processes:
        each.terminate()  # nothing, if it has ended
    for each in processes:
        with contextlib.suppress(subprocess.TimeoutExpired):
            each.wait(STOP_S)


def keep(job: Job, rows: bool = False) -> None:
    """Write a finished run's figures, and remove its replay unless ``rows`` keeps it."""
    events = [json.loads(line) for line in job.run.agent_events.read_text("utf-8").splitlines()]
    last = json.loads(job.run.evaluation_json.read_text("utf-8")) if job.run.evaluation_json.exists() else []
    routes = [route["success"] for driver in last if driver["name"] == TRAINED for route in driver["routes"]]
    figures = {"variant": job.variant, "seed": job.seed, "updates": job.updates, "settings": dict(job.settings)}
    text = json.dumps({**figures, "curve": curve(events), "routes": routes}, indent=1) + "\n"
    if job.kept is not None:
        found = trained(job.run.path)
        assert found.policy is not None
        outlive(found.config, found.policy, job.kept)
        shutil.copy(job.run.config, job.kept.config)  # it names the command that trained the policy
        write_whole(job.kept.path / FIGURES_FILE, text)
    write_whole(job.run.path / FIGURES_FILE, text)
    if not rows:
        shutil.rmtree(job.run.replay, ignore_errors=True)


def outlive(config: AgentConfig, policy: Policy, kept: RunPaths) -> None:
    """Write the files that the driver needs to drive: configuration and policy, without critics and moments."""
    kept.path.mkdir(parents=True, exist_ok=True)
    save_config(kept, config)
    driving = Policy(config.td3.network, policy.stack).state_dict()
    tensors = {ONLINE + name: policy.state_dict()[name].contiguous() for name in driving}
    whole, step = architecture(config), config.training.total_steps
    checkpoint.save(kept.path, step, tensors, {}, architecture=whole, config_digest=config.digest(), keep=1)


def curve(events: Sequence[Mapping[str, Any]]) -> list[dict[str, float]]:
    """Return a run's evaluations of its trained driver, by step; one repeated after a kill is listed once.

    ``minutes`` are training's: evaluations, before each of which there is a checkpoint, and the time between a kill and
    the next start are left out.
    """
    found, ran_s, last_s = {}, 0.0, events[0]["time"]
    for row in events:
        ran_s += 0.0 if row["event"] in ("resumed", "evaluated") else row["time"] - last_s
        last_s = row["time"]
        if row["event"] == "evaluated":
            found[row["step"]] = {"minutes": ran_s / 60, **{name: row["totals"][TRAINED][name] for name in FIGURES}}
    return [{"steps": step, **found[step]} for step in sorted(found)]


def arrival(points: Sequence[Mapping[str, float]]) -> float | None:
    """Return the minutes until a run first completed this share of its routes; None if it never did."""
    return next((point["minutes"] for point in points if point["route_completion"] >= ARRIVES), None)


def progress(jobs: Sequence[Job], rates: Mapping[str, float], parallel: int) -> str:
    """Return the progress of all runs, for people."""
    made = [job.done() for job in jobs]
    left_s = time_left_s(
        [(job.variant, job.updates - done) for job, done in zip(jobs, made, strict=True)], rates, parallel
    )
    when = "time unknown yet" if left_s is None else f"about {left_s / 3600:.1f} h left"
    finished = f"{sum(job.is_finished for job in jobs)} of {len(jobs)} trainings"
    return f"{finished}, {sum(made)} of {sum(job.updates for job in jobs)} updates; {when}"


def time_left_s(left: Sequence[tuple[str, int]], rates: Mapping[str, float], parallel: int) -> float | None:
    """Return the seconds for the remaining updates; None before any rate is known.

    Args:
        left: variant and updates.
        rates: updates per second of one training, by variant; a missing one counts as the others' mean.
    """
    if not rates:
        return None
    usual = sum(rates.values()) / len(rates)
    seconds = [updates / rates.get(variant, usual) for variant, updates in left]
    return max([sum(seconds) / parallel, *seconds])


def summary(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return each variant's figures over its seeds, beside the reference's after as many steps."""
    found = {}
    for name in dict.fromkeys(run["variant"] for run in runs):
        own = [run for run in runs if run["variant"] == name and run["curve"]]
        last = [run["curve"][-1] for run in own]
        if own:
            found[name] = {
                "seeds": [run["seed"] for run in own],
                "updates": own[0]["updates"],
                **{figure: _mean([point[figure] for point in last if figure in point]) for figure in FIGURES},
                "success_by_seed": [point["success_rate"] for point in last],
                "success_95": _interval(own),
                "minutes_to_completion": [arrival(run["curve"]) for run in own],
                "reference_then": _reference_after(runs, last[0]["steps"]),
                "curves": {
                    run["seed"]: [[point["steps"], point["success_rate"]] for point in run["curve"]] for run in own
                },
            }
    return found


def _mean(values: Sequence[float]) -> float | None:
    """Return the mean, or None for no values: old runs lack newer figures."""
    return float(np.mean(values)) if values else None


def _interval(runs: Sequence[Mapping[str, Any]]) -> tuple[float, float] | None:
    """Return the 95 % interval of success over seeds, then routes; None if the numbers of routes differ."""
    if len({len(run["routes"]) for run in runs}) != 1 or not runs[0]["routes"]:
        return None
    return bootstrap(np.array([[[float(success)] for success in run["routes"]] for run in runs]), mean)


def _reference_after(runs: Sequence[Mapping[str, Any]], steps: int) -> float | None:
    """Return the reference's mean success at its evaluation after this many steps; None without one."""
    points = [point for run in runs if run["variant"] == REFERENCE for point in run["curve"]]
    found = [point["success_rate"] for point in points if point["steps"] == steps]
    return float(np.mean(found)) if found else None


def table(report: Mapping[str, Any]) -> Table:
    """Return the variants side by side."""
    title = "On a town that no run was trained in"
    return in_columns(title, {"": {name: _shown(figures) for name, figures in report["variants"].items()}})


def _shown(figures: Mapping[str, Any]) -> dict[str, str]:
    then = figures["reference_then"]
    return {
        "updates": str(figures["updates"]),
        **shown({"success": figures["success_rate"]}, ("success",)),
        "95 %": interval(figures["success_95"]) if figures["success_95"] else "",
        "by seed": " ".join(f"{each:.0%}" for each in figures["success_by_seed"]),
        f"{REFERENCE} then": "" if then is None else f"{then:.0%}",
        **shown(figures, FIGURES[1:]),
        f"min to {ARRIVES:.0%} compl.": " ".join(
            "–" if minutes is None else f"{minutes:.1f}" for minutes in figures["minutes_to_completion"]
        ),
    }


if __name__ == "__main__":
    typer.run(main)
