"""Makes a plan from resolved options: combines device, simulator, watermarks, ladder and the agent's sizes.

Refuses what the machine lacks. ``plan`` prints the plan, ``up`` starts the run by it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from carla_launcher import sizes
from carla_launcher.act.run_spec import RunSpec
from carla_launcher.config import LauncherConfig
from carla_launcher.decide import plan
from carla_launcher.decide.fit import Situation
from carla_launcher.decide.ladder import Rungs, build_ladder, picked_rungs, with_program
from carla_launcher.decide.nodes import AgentParts
from carla_launcher.decide.plan import Plan
from carla_launcher.observe.pools import Gpu, PoolKind, Reading
from carla_launcher.options import RefusedError, RunOptions
from carla_launcher.resolve import watermarks
from carla_launcher.resolve.footprint import FootprintError
from carla_launcher.simulators import Simulator
from carla_launcher.sizes import CPU, CUDA, DEVICE, SizesOf, Values
from carla_run.configuration.program_file import ProgramFile
from carla_run.exits import Exit

SOMEWHERE = "127.0.0.1:6379"
"""Any cluster address, to ask for the sizes of an agent with a cluster."""
Measured = Callable[[Values, str, Mapping[PoolKind, float]], None]
"""Takes a program's values, a phase, and the peak with both, MiB."""
NO_RUNS = Path("/nonexistent")
"""A folder without runs, and so without measurements."""


@dataclass(frozen=True)
class PlanResult:
    """A plan, its input, the source of the agent's sizes, and notes on measured figures that were left out.

    Attributes:
        measured: records a peak of the program; None if its footprint command reports its sizes.
    """

    situation: Situation
    plan: Plan
    sizes_of: SizesOf
    rungs: Rungs
    program: ProgramFile
    notes: tuple[str, ...] = ()
    measured: Measured | None = None


class SizedProgram(Protocol):
    """A program whose sizes a plan is made of: the agent, or another command.

    Attributes:
        program: its file.
    """

    program: ProgramFile

    def config(self) -> Values:
        """Return the values that a ladder may start from, by dotted key."""

    def sizes_by(self, runs: Path, config: Values) -> SizesOf:
        """Return its sizes, by what earlier runs in this folder measured."""

    def frees_by(self, sizes_of: SizesOf) -> SizesOf:
        """Return sizes of which only the differences count."""

    def notes(self) -> tuple[str, ...]:
        """Return sentences on what isn't known of it."""

    @property
    def measured(self) -> Measured | None:
        """Recorder of the program's measured peak; None if the peak is known without measuring."""


def make_plan(
    spec: RunSpec, options: RunOptions, limits: LauncherConfig, reading: Reading, footprint: SizedProgram
) -> PlanResult:
    """Return the plan of a run before any step.

    Args:
        spec: the run; watermarks of the runs beside it are used, the simulator's only from runs on the same map.
        options: the agent's device, the rungs and their order, and whether watermarks count.
        limits: the launcher's configuration.
        reading: all pools.
        footprint: source of the agent's sizes.

    Raises:
        FootprintError: the agent's configuration is wrong.
        RefusedError: the machine lacks what was asked for (65), or has lost its GPU (71).
        ExitError: the policy names rungs that don't exist, or a rung sets a key that the agent doesn't have.
    """
    agent = footprint.program
    rungs = picked_rungs(with_program(limits.ladder, agent), options.policy)
    config, folder = footprint.config(), spec.run.path.parent
    device = _device(options.device or str(config[DEVICE]), reading)
    runs = NO_RUNS if options.ignore_measured else folder
    simulator, notes = _simulators(spec.simulator, runs, limits, reading, count_of(config, agent))
    if lost := plan.lost_gpu(reading, device == CUDA or spec.simulator.needs_card):
        raise RefusedError(lost, Exit.OUT_OF_MEMORY)
    base = {**config, DEVICE: device}
    sized = {key: value for key, value in base.items() if key not in agent.keys.of_time}
    sizes_of = footprint.sizes_by(runs, sized)
    ladder = build_ladder(rungs, agent.present(base), simulator, footprint.frees_by(sizes_of))
    smaller = {PoolKind(kind): key for kind, key in agent.smaller.items()}
    reserve_mib = limits.memory.reserve_mib
    situation = Situation(
        reading, simulator, base, ladder, reserve_mib, spec.cards, str(folder), smaller, spec.simulator.label
    )
    made = plan.make_plan(situation, sizes_of)
    return PlanResult(situation, made, sizes_of, rungs, agent, (*notes, *footprint.notes()), footprint.measured)


def cpu_base(found: PlanResult) -> Values:
    """Return the agent's planned values if it can't use the GPU."""
    return {**found.situation.base, DEVICE: CPU}


def on_cpu(found: PlanResult, sizes_of: SizesOf) -> PlanResult:
    """Return the plan with an input for an agent that can't use the GPU; the chosen configuration stays.

    The ladder stays if ``sizes_of`` doesn't know the agent's sizes on the CPU.
    """
    situation = replace(found.situation, base=cpu_base(found))
    with contextlib.suppress(FootprintError):
        ladder = build_ladder(found.rungs, found.program.present(situation.base), situation.simulator, sizes_of)
        situation = replace(situation, ladder=ladder)
    return replace(found, situation=situation)


def agent_parts(found: PlanResult, collectors: int) -> AgentParts:
    """Return the sizes of the parts of an agent whose collectors drive on a cluster.

    Raises:
        FootprintError: its sizes are unknown.
        RefusedError: the configuration is impossible.
    """
    device, keys = {DEVICE: found.situation.base[DEVICE]}, found.program.keys
    here = {**device, keys.simulators: 1}
    learner, one, two, unseen = found.sizes_of(
        [
            {**device, keys.simulators: collectors, keys.cluster: SOMEWHERE},
            here,
            {**here, keys.simulators: 2},
            {**here, **found.program.without_evaluation},
        ]
    )
    for each in (learner, one, two, unseen):
        if each.refusal:
            raise RefusedError(each.refusal)
    ram = [each.mib.get(PoolKind.RAM, 0.0) for each in (one, two, unseen)]
    return AgentParts(learner, max(0.0, ram[1] - ram[0]), max(0.0, ram[0] - ram[2]))


def _device(wanted: str, reading: Reading) -> str:
    no_gpu = reading.gpu in (Gpu.NONE, Gpu.UNREADABLE)
    if wanted == CUDA and no_gpu:
        why = "the driver fails" if reading.gpu is Gpu.UNREADABLE else "the driver shows no GPU"
        raise RefusedError(f"device is cuda, but {why}: use --device auto or --device cpu.")
    return CPU if wanted == CPU or no_gpu else CUDA


def count_of(config: Values, program: ProgramFile) -> int:
    """Return the number of simulators of an agent's configuration."""
    return int(config.get(program.keys.simulators) or 1)


def _simulators(
    one: Simulator, runs: Path, limits: LauncherConfig, reading: Reading, count: int
) -> tuple[sizes.Simulator | None, tuple[str, ...]]:
    if not one.ours:
        return None, ()
    if one.needs_card and reading.gpu is Gpu.NONE:
        raise RefusedError(
            "CARLA needs a GPU, and the driver shows none: use carla-lite, or repair the driver. (For a cluster, "
            "give the VRAM of its nodes: plan --nodes N --node-vram GIB.)"
        )
    first = one.first_figures(limits.sizes)
    peaks, notes = watermarks.plausible(watermarks.simulator_peaks(runs, one.map, first), first)
    quality = one.quality(limits.simulator) or one.figures_as
    return sizes.Simulator(quality, peaks, count, one.label, one.ram_key), notes
