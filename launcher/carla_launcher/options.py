"""The options of the commands, as plain data: type, default, bounds and help of each, declared once.

``resolve`` works out what they mean on a machine.
"""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field
from typer import Argument, BadParameter, Option

from carla_launcher.observe.pools import Cards
from carla_launcher.places import DEFAULT_CONFIG, SHIPPED, STACK
from carla_run.configuration.section import Section
from carla_run.exits import Exit, ExitError
from carla_run.paths import from_anywhere


class RefusedError(ExitError):
    """This machine can't do what the options ask for. The message is one sentence; nothing was started or changed."""

    code = Exit.BAD_CONFIG


class RuntimeKind(str, Enum):
    """How simulator and agent are started."""

    AUTO = "auto"
    """Compose if there is a GPU and Docker, else local processes."""
    PROCESS = "process"
    COMPOSE = "compose"


class SimulatorKind(str, Enum):
    """Which simulator a run uses."""

    AUTO = "auto"
    """CARLA if there is a GPU and a way to start CARLA, else carla-lite."""
    CARLA = "carla"
    LITE = "carla-lite"
    ELSEWHERE = "elsewhere"
    """A simulator that the launcher doesn't start; its memory on this machine counts as foreign."""
    NONE = "none"
    """None at all, for a command that needs none."""


def _cards(text: str) -> Cards:
    indices = text.split(",")
    if len(indices) > 2 or not all(each.isdecimal() for each in indices):
        raise BadParameter(
            f"{text!r}: expected the index of one GPU, as 0, or the simulator's and the agent's, as 0,1."
        )
    return Cards(int(indices[0]), int(indices[-1]))


def _map_file_by_its_path(name: str | None) -> str | None:
    return str(Path(name).absolute()) if name and name.endswith(".xodr") else name


FROM_ANYWHERE = AfterValidator(Path.absolute)
"""Makes a path absolute, so that a later start from another folder finds it."""
FROM_ANYWHERE_IF_ANY = AfterValidator(lambda path: path and path.absolute())
WITHOUT_EMPTY = AfterValidator(lambda words: words and tuple(filter(None, words)))
TAKEN_BACK = AfterValidator(lambda value: value or None)
"""Turns an empty value into None, which clears what an earlier start was given."""


class Options(Section):
    """Options of a command; the string below a field is its ``--help``."""

    model_config = ConfigDict(use_attribute_docstrings=True)


class RunOptions(Options):
    """The options of ``up``. Those that were given are saved in ``launcher.json``, for later starts of the run.

    ``model_fields_set`` says which fields were given; all others have their defaults.
    """

    config: Annotated[
        Path | None,
        AfterValidator(lambda path: path and from_anywhere(path)),
        Option(help=f"The agent's YAML file, or a preset's name. Default: the run's own file, else {DEFAULT_CONFIG}."),
    ] = None
    launcher_config: Annotated[Path, FROM_ANYWHERE] = SHIPPED
    """The launcher's configuration. Default: the launcher.yaml that is installed with it."""
    stack: Annotated[Path, FROM_ANYWHERE, Option(metavar="DIR")] = STACK
    """Folder of the Compose files. Default: the project's source folder if it is there, else the current folder."""
    runtime: RuntimeKind = RuntimeKind.AUTO
    """compose (Docker containers), process, or auto: compose if CARLA runs in Docker, else process."""
    simulator: SimulatorKind = SimulatorKind.AUTO
    """carla, carla-lite, elsewhere, none, or auto: CARLA if there is a GPU and CARLA can start, else carla-lite."""
    quality: Literal["Low", "Epic"] | None = None
    """CARLA's rendering quality. Default: simulator.quality of the launcher's configuration."""
    device: Literal["auto", "cpu", "cuda"] | None = None
    """Device that the agent trains on. Default: device of the agent's configuration."""
    policy: Annotated[
        tuple[str, ...] | None,
        WITHOUT_EMPTY,
        TAKEN_BACK,
        Option(parser=lambda text: text.split(","), metavar="A,B,…"),
    ] = None
    """Rungs (changes that free memory), in order. A pool (vram, ram, disk) without any of them keeps its default."""
    map: Annotated[str | None, AfterValidator(_map_file_by_its_path), TAKEN_BACK] = None
    """Map name, such as Town01 or Lite:seed=7, or path of an .xodr file. Default: as configured."""
    seed: int | None = Field(None, ge=0)
    """Seed of simulator and agent. Default: those of their configurations."""
    simulator_host: Annotated[str | None, TAKEN_BACK] = None
    """Host of a simulator that already runs. The launcher then starts no simulator."""
    port: int | None = Field(None, ge=1, le=65533)
    """The simulator's RPC port. Default: 2000 if --simulator-host is given, else a free port."""
    cluster: Annotated[str | None, TAKEN_BACK, Option(metavar="HOST:PORT|auto")] = None
    """Address of a Ray cluster. Each collector then runs on a node, and a simulator is started on that node for it."""
    collectors: int | None = Field(None, ge=1, le=64)
    """Number of processes that drive, each in its own simulator. Overrides the agent's configuration."""
    gpu: Annotated[Cards | None, Option(parser=_cards, metavar="N|SIMULATOR,AGENT")] = None
    """GPU index: one for both, or two. Default: the run's earlier GPUs, else CARLA_GPU and AGENT_GPU, else 0."""
    share_gpu: bool = False
    """Start even if another launcher uses the GPU. The other run's memory then counts as foreign."""
    max_timesteps: int | None = Field(None, ge=1)
    """Total environment steps, warm-up included. Overrides the agent's configuration."""
    dashboard_port: int | None = Field(None, ge=0, le=65535)
    """Port for a live page of the run on 127.0.0.1. 0 takes a free port. Default: no page."""
    on_event: Annotated[str, Option(metavar="CMD")] = ""
    """Shell command to run at each important event. It reads the event as JSON from its standard input."""
    agent_args: Annotated[tuple[str, ...], WITHOUT_EMPTY, Argument(metavar="[-- AGENT_ARGS]")] = ()
    """Arguments for `carla-td3 train`. Pass '' to clear the arguments that an earlier start of the run saved."""
    simulator_args: Annotated[tuple[str, ...], WITHOUT_EMPTY, Option("--simulator-arg")] = ()
    """One argument for the simulator. Can be repeated."""
    command: Annotated[tuple[str, ...], Argument(metavar="[-- COMMAND]")] = ()
    """Command to run instead of the agent, without a shell. {host}, {port}, {tm_port} and {gpu} are filled in."""
    program: Annotated[Path | None, FROM_ANYWHERE_IF_ANY, Option(metavar="FILE")] = None
    """The command's program file: how it resumes, what shows its progress, how it can use less memory."""
    cwd: Annotated[Path | None, FROM_ANYWHERE_IF_ANY, Option(metavar="DIR")] = None
    """Folder in which the command runs. Default: the working folder."""
    ignore_measured: Annotated[bool, Option("--ignore-measured")] = Field(False, exclude=True)
    """Plan with the figures of the launcher's configuration, not with what earlier runs measured."""

    def given(self) -> dict[str, Any]:
        """Return the options that were given, without those at their defaults."""
        return {name: getattr(self, name) for name in type(self).model_fields if name in self.model_fields_set}

    def words(self, *names: str) -> tuple[str, ...]:
        """Return options as words of a command line, without those that are None."""
        given = [(f"--{name.replace('_', '-')}", getattr(self, name)) for name in names]
        return tuple(word for name, value in given if value is not None for word in (name, str(value)))


class JobOptions(Options):
    """The options of ``submit``: what a Slurm job asks for."""

    nodes: int = Field(1, ge=1)
    """Number of nodes. With more than one, Ray runs on all of them, with one simulator per GPU."""
    gpus_per_node: int = Field(0, ge=0)
    """GPUs to request on each node. Default: none."""
    cpus_per_node: int | None = Field(None, ge=1)
    """CPU cores to request on each node. Default: the cluster's, often 1."""
    memory: Annotated[str | None, Option("--mem")] = None
    """Memory to request on each node, such as 400G. Default: the cluster's."""
    time: str | None = None
    """Time limit of the job, such as 24:00:00. Default: the partition's."""
    partition: str | None = None
    """Partition to submit to. Default: the cluster's."""
    more: Annotated[tuple[str, ...], Option("--sbatch", metavar="OPTION")] = ()
    """Another option for sbatch, such as --account=me. Can be repeated."""
    collectors: int | None = Field(None, ge=1)
    """Number of processes that drive. Default: as configured; with several nodes one per GPU, or one per node."""
    warn_s: Annotated[int, Option("--warn")] = Field(300, ge=30)
    """Seconds before the time limit at which the run stops, to write its checkpoint and report."""
    apptainer: Annotated[Path | None, Option(metavar="IMAGE")] = None
    """Apptainer image whose Python runs the job. Default: the Python that runs this command."""
