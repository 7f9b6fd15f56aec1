"""What the user asked for, as plain data: each option's type, default, bounds and help, for the command line, too.

What a machine makes of it is ``resolve``'s.
"""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field
from typer import Argument, BadParameter, Option

from carla_launcher.config import DEFAULT_CONFIG, SHIPPED, STACK
from carla_launcher.observe.pools import Cards
from carla_run.configuration.section import Section
from carla_run.exits import Exit, ExitError
from carla_run.paths import from_anywhere


class RefusedError(ExitError):
    """The options can't be had on this machine; the message is one sentence, and nothing was started or changed."""

    code = Exit.BAD_CONFIG


class RuntimeKind(str, Enum):
    """What starts simulator and agent."""

    AUTO = "auto"
    """The Compose stack where there is a GPU and Docker, else local processes."""
    PROCESS = "process"
    COMPOSE = "compose"


class SimulatorKind(str, Enum):
    """Which simulator a run uses."""

    AUTO = "auto"
    """CARLA where there is a GPU and something that starts it, else carla-lite."""
    CARLA = "carla"
    LITE = "carla-lite"
    ELSEWHERE = "elsewhere"
    """One that was started by others; what it holds here is already taken."""
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
"""A start from another folder finds it again."""
FROM_ANYWHERE_IF_ANY = AfterValidator(lambda path: path and path.absolute())
WITHOUT_EMPTY = AfterValidator(lambda words: words and tuple(filter(None, words)))
TAKEN_BACK = AfterValidator(lambda value: value or None)
"""An empty value clears what an earlier start was given."""


class Options(Section):
    """Options of a command: what stands below a field is its ``--help``."""

    model_config = ConfigDict(use_attribute_docstrings=True)


class RunOptions(Options):
    """What a run is asked for, an option of ``up`` each, saved in ``launcher.json`` as far as it was given.

    Which fields were given, and which stand at their defaults, ``model_fields_set`` says. A later start goes by those
    that are saved.
    """

    config: Annotated[
        Path | None,
        AfterValidator(lambda path: path and from_anywhere(path)),
        Option(help=f"The agent's YAML file, or a preset's name. Default: the run's own, else {DEFAULT_CONFIG}."),
    ] = None
    launcher_config: Annotated[Path, FROM_ANYWHERE] = SHIPPED
    """The launcher's own configuration. Default: the launcher.yaml that it ships with."""
    stack: Annotated[Path, FROM_ANYWHERE, Option(metavar="DIR")] = STACK
    """Folder of the Compose files. Default: the checkout, else the working folder."""
    runtime: RuntimeKind = RuntimeKind.AUTO
    """Default: auto, which is the Compose stack for CARLA in Docker, else local processes."""
    simulator: SimulatorKind = SimulatorKind.AUTO
    """Default: auto, which is CARLA where there is a GPU and something that starts it, else carla-lite."""
    quality: Literal["Low", "Epic"] | None = None
    """Of CARLA. Default: the launcher's configuration's."""
    device: Literal["auto", "cpu", "cuda"] | None = None
    """Of the agent. Default: its configuration's."""
    policy: Annotated[
        tuple[str, ...] | None,
        WITHOUT_EMPTY,
        TAKEN_BACK,
        Option(parser=lambda text: text.split(","), metavar="A,B,…"),
    ] = None
    """Rungs of the ladder to use, in this order; names as in --launcher-config."""
    map: Annotated[str | None, AfterValidator(_map_file_by_its_path), TAKEN_BACK] = None
    """Map name (Lite:seed=7 is one) or path of an .xodr file; wins over both configurations."""
    seed: int | None = Field(None, ge=0)
    """Of simulator and agent."""
    simulator_host: Annotated[str | None, TAKEN_BACK] = None
    """Use the simulator that runs there instead of starting one."""
    port: int | None = Field(None, ge=1, le=65533)
    """RPC port. Default: a free one; with --simulator-host 2000."""
    cluster: Annotated[str | None, TAKEN_BACK, Option(metavar="HOST:PORT|auto")] = None
    """Drive on the nodes of this Ray cluster, each with a simulator of its own."""
    collectors: int | None = Field(None, ge=1, le=64)
    """Processes that drive; wins over --config."""
    gpu: Annotated[Cards | None, Option(parser=_cards, metavar="N|SIMULATOR,AGENT")] = None
    """Index of the GPU for both, or of one each. Default: the run's own, CARLA_GPU's and AGENT_GPU's, or 0."""
    share_gpu: bool = False
    """Start although another process holds the card's lock; its memory counts as foreign."""
    max_timesteps: int | None = Field(None, ge=1)
    """Environment steps; wins over --config."""
    dashboard_port: int | None = Field(None, ge=0, le=65535)
    """Serve a live page of the run on 127.0.0.1, at this port; 0: a free one. Default: none."""
    on_event: Annotated[str, Option(metavar="CMD")] = ""
    """A shell command that gets each event as JSON on its standard input."""
    agent_args: Annotated[tuple[str, ...], WITHOUT_EMPTY, Argument(metavar="[-- AGENT_ARGS]")] = ()
    """Passed on to `python -m carla_td3 train`; '' takes all back."""
    simulator_args: Annotated[tuple[str, ...], WITHOUT_EMPTY, Option("--simulator-arg")] = ()
    """Passed on to the simulator; repeat for each word."""
    command: Annotated[tuple[str, ...], Argument(metavar="[-- COMMAND]")] = ()
    """The command to run in the agent's place, word by word; {host}, {port}, {tm_port} and {gpu} are filled in."""
    program: Annotated[Path | None, FROM_ANYWHERE_IF_ANY, Option(metavar="FILE")] = None
    """The command's program file: how it resumes, what shows that it lives, how it takes less memory."""
    cwd: Annotated[Path | None, FROM_ANYWHERE_IF_ANY, Option(metavar="DIR")] = None
    """Folder in which the command runs. Default: the working folder."""
    ignore_measured: Annotated[bool, Option("--ignore-measured")] = Field(False, exclude=True)
    """Plan by first figures, not by what earlier runs measured."""

    def given(self) -> dict[str, Any]:
        """Return the options that were given, the ones at their defaults left out."""
        return {name: getattr(self, name) for name in type(self).model_fields if name in self.model_fields_set}

    def words(self, *names: str) -> tuple[str, ...]:
        """Return options as a command line has them, those that are None left out."""
        given = [(f"--{name.replace('_', '-')}", getattr(self, name)) for name in names]
        return tuple(word for name, value in given if value is not None for word in (name, str(value)))


class JobOptions(Options):
    """What a job of Slurm's is given, an option of ``submit`` each."""

    nodes: int = Field(1, ge=1)
    """With several, Ray runs on them, and a simulator a card."""
    gpus_per_node: int = Field(0, ge=0)
    cpus_per_node: int | None = Field(None, ge=1)
    """Default: the cluster's, often one."""
    memory: Annotated[str | None, Option("--mem")] = None
    """Of each node, as 400G. Default: the cluster's."""
    time: str | None = None
    """As 24:00:00. Default: the partition's."""
    partition: str | None = None
    more: Annotated[tuple[str, ...], Option("--sbatch", metavar="OPTION")] = ()
    """A further option of sbatch's, as --account=me; repeat."""
    collectors: int | None = Field(None, ge=1)
    """Default: a card each, or a node; with one node what is configured."""
    warn_s: Annotated[int, Option("--warn")] = Field(300, ge=30)
    """Seconds before the time limit: for the checkpoint and the report."""
    apptainer: Annotated[Path | None, Option(metavar="IMAGE")] = None
    """Run Python in it, not the one here."""
