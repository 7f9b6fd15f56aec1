"""The command line's options, and the configuration keys that they set.

Owns names, help texts and the order of precedence: file, then ``--set``, then the named options, then the launcher's
``overrides.yaml``. Knows no command.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from carla_run import formats, keys
from carla_run.configuration import yaml_file
from carla_run.paths import RUNS, RunPaths
from carla_td3 import config
from carla_td3.config import AgentConfig, ConfigError
from carla_td3.layered_yaml import presets
from carla_td3.run_directory import is_changed, read_overrides

DEFAULT_CONFIG = Path("full")

ConfigPath = Annotated[
    Path | None,
    typer.Option(
        "--config",
        envvar="AGENT_CONFIG",
        help=f"YAML file, or name of a preset: {', '.join(presets())}. Default: the run's config.yaml if there is one, "
        f"else that of AGENT_DEFAULT_CONFIG, else {DEFAULT_CONFIG}.",
    ),
]
RunName = Annotated[str, typer.Option(envvar="RUN_NAME", help=f"Name of the run; its folder is {RUNS}/NAME.")]
RunDir = Annotated[Path | None, typer.Option(help=f"Folder of the run, instead of {RUNS}/NAME.")]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Set any configuration key, such as td3.batch_size=64. Can be repeated."
    ),
]
Map = Annotated[
    str | None,
    typer.Option("--map", help="Map name, or path of an .xodr file. Default: the map that the simulator has loaded."),
]
Seed = Annotated[int | None, typer.Option(help="Seed of networks, exploration, routes and traffic. Default: 0.")]
MaxTimesteps = Annotated[
    int | None, typer.Option(help="Total environment steps, warm-up included. Default: training.total_steps.")
]
EvalFreq = Annotated[
    int | None, typer.Option(help="Steps between two evaluations; 0 means none. Default: evaluation.every_steps.")
]
CheckpointFreq = Annotated[
    int | None, typer.Option(help="Steps between two checkpoints. Default: training.checkpoint_every_steps.")
]
EvalEpisodes = Annotated[
    int | None,
    typer.Option(
        "--num-eval-episodes", help="Routes in each evaluation, also in the final one. Default: evaluation.episodes."
    ),
]
Device = Annotated[
    str | None,
    typer.Option(help="Device that the agent trains on: auto, cpu or cuda. Default: AGENT_DEVICE, else auto."),
]
PretrainedName = Annotated[
    str | None,
    typer.Option(
        "--pretrained",
        metavar="NAME|FILE",
        help="Trained driver: the name of one that is installed (traffic), or a .safetensors file that `export` wrote.",
    ),
]
Vehicles = Annotated[int | None, typer.Option(min=0, max=200, help="Number of other cars.")]
Walkers = Annotated[int | None, typer.Option(min=0, max=400, help="Number of pedestrians.")]
Lights = Annotated[bool | None, typer.Option("--lights/--green", help="Whether traffic lights change, or stay green.")]
Weather = Annotated[str | None, typer.Option(help="Weather preset of CARLA, such as HardRainSunset.")]
Explain = Annotated[
    bool, typer.Option("--explain", help="Show heat maps of the parts of the picture that the network uses.")
]
Resume = Annotated[bool, typer.Option("--resume", help="Resume what exists; start from the beginning if nothing does.")]
Debug = Annotated[bool, typer.Option("--debug", help="Print tracebacks instead of one-sentence errors.")]

KEYS = {
    "map": ("simulator.map",),
    "seed": ("seed",),
    "max_timesteps": ("training.total_steps",),
    "eval_freq": ("evaluation.every_steps",),
    "checkpoint_freq": ("training.checkpoint_every_steps",),
    "num_eval_episodes": ("evaluation.episodes", "evaluation.final_episodes"),
    "device": ("device",),
    **{name: (f"environment.traffic.{name}",) for name in ("vehicles", "walkers", "lights")},
    "weather": ("environment.weather",),
}
"""The configuration key that an option sets, by the option's parameter name."""


def run_directory(run_dir: Path | None, run_name: str) -> RunPaths:
    """Return the run directory that the options name."""
    return RunPaths(run_dir if run_dir is not None else RUNS / run_name)


def resolve(
    path: Path | None, run: RunPaths | None, settings: Sequence[str] | None, *, continues: bool = True, **named: Any
) -> AgentConfig:
    """Return the configuration of a command.

    Args:
        path: value of ``--config``.
        run: its config.yaml is the default, and its ``overrides.yaml`` is applied.
        settings: values of ``--set``.
        continues: the command goes on with the run, so that its ``overrides.yaml`` wins over the options; it doesn't
            over those of a command that only uses the run's driver.
        named: the other options, by their names in ``KEYS``; None if not given.

    Raises:
        ConfigError: a file, key or value is wrong.
        FormatError: a later version continued the run.
    """
    if run is not None:
        formats.require_readable(run)
    default = Path(os.environ.get("AGENT_DEFAULT_CONFIG") or DEFAULT_CONFIG)
    saved = run.config if run is not None and run.config.exists() else default
    if run is not None and path is None and is_changed(run):
        typer.echo(
            f"{saved} has other values than the last start wrote: a user changed them, or the disk did. They are used.",
            err=True,
        )
    given, of_the_run = _given(settings, named), {} if run is None else read_overrides(run)
    overrides = {**given, **of_the_run} if continues else {**of_the_run, **given}
    options, files = _origins(settings, named), {} if run is None else dict.fromkeys(of_the_run, str(run.overrides))
    origins = {**options, **files} if continues else {**files, **options}
    return _said(config.load(path or saved, overrides, origins), overrides)


def resolve_values(values: dict[str, Any], source: str, settings: Sequence[str] | None, **named: Any) -> AgentConfig:
    """Return the configuration of a command as ``resolve`` does, from values that aren't a file's.

    Raises:
        ConfigError: a key or value is wrong; ``source`` is named in it.
    """
    overrides = _given(settings, named)
    return _said(config.merged(copy.deepcopy(values), source, overrides, _origins(settings, named)), overrides)


def _given(settings: Sequence[str] | None, named: Mapping[str, Any]) -> dict[str, Any]:
    given = {key: value for name, value in named.items() if value is not None for key in KEYS[name]}
    return {**parsed(settings or ()), **given}


def _origins(settings: Sequence[str] | None, named: Mapping[str, Any]) -> dict[str, str]:
    """Return the option that sets each key; of a section, each key in it."""
    given = [name for name, value in named.items() if value is not None]
    by_name = {key: f"--{name.replace('_', '-')}" for name in given for key in KEYS[name]}
    return {**{key: "--set" for key, _ in keys.leaves(parsed(settings or ()))}, **by_name}


def _said(resolved: AgentConfig, overrides: Mapping[str, Any]) -> AgentConfig:
    for sentence in config.foreign_variables(overrides):
        typer.echo(sentence, err=True)
    return resolved


def parsed(settings: Sequence[str]) -> dict[str, Any]:
    """Return the values of ``--set``, by key.

    Raises:
        ConfigError: one is not KEY=VALUE, or its value isn't YAML.
    """
    values = {}
    for setting in settings:
        key, equals, text = setting.partition("=")
        if not equals:
            raise ConfigError(f"--set {setting}: expected KEY=VALUE, as td3.batch_size=64.")
        try:
            values[key.strip()] = yaml_file.parse(text)
        except yaml_file.YamlError:
            raise ConfigError(f"--set {setting}: {text!r} isn't a YAML value.") from None
    return values
