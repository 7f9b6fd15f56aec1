"""From what is asked for to a plan: device, simulator, watermarks, ladder and sizes, brought together in order.

Owns that order and the sentences about a machine that lacks what was asked for. Looks at nothing itself: the reading
and the agent's footprint are given. ``plan`` shows what comes out, ``up`` starts by it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path

from contract.exits import Exit, ExitError
from launcher.config import LauncherConfig
from launcher.decide import plan
from launcher.decide.fit import Situation
from launcher.decide.ladder import Rungs, build_ladder, picked_rungs
from launcher.decide.plan import Plan
from launcher.decide.sizes import LITE, Simulator, SizesOf, Values
from launcher.observe.pools import Gpu, Reading
from launcher.resolve import watermarks
from launcher.resolve.footprint import Footprint

OF_TIME = ("simulator.", "collector.")
"""Keys that the watch needs and no memory depends on."""


class Simulates(str, Enum):
    """Which simulator a run uses."""

    AUTO = "auto"
    """CARLA where there is a GPU and something that starts it, else carla-lite."""
    CARLA = "carla"
    LITE = "carla-lite"
    ELSEWHERE = "elsewhere"
    """Somebody else's; what it holds here is already taken."""


@dataclass(frozen=True)
class PlanRequest:
    """What shall be planned; None leaves it to the configurations.

    Attributes:
        runs: where earlier runs lie, whose watermarks count.
        simulator: as chosen, no longer AUTO.
        town: only their watermarks on this map count for the simulator.
        policy: rungs by name, in the order in which they shall be tried.
        gpu: index of the GPU that simulator and agent share.
    """

    runs: Path
    simulator: Simulates
    quality: str | None = None
    device: str | None = None
    policy: Sequence[str] | None = None
    town: str | None = None
    gpu: int = 0


class ImpossibleError(ExitError):
    """There is nothing to plan; the message is one sentence for a person."""


@dataclass(frozen=True)
class PlanResult:
    """A plan, what it was made of, and what else of the agent can be asked."""

    situation: Situation
    plan: Plan
    sizes_of: SizesOf
    rungs: Rungs


def make_plan(asked: PlanRequest, limits: LauncherConfig, reading: Reading, footprint: Footprint) -> PlanResult:
    """Return what fits, from nothing taken.

    Raises:
        FootprintError: the agent's configuration is wrong.
        ImpossibleError: the machine has not what was asked for (65), or has lost it (71).
        PolicyError: the policy names rungs that don't exist.
    """
    rungs = picked_rungs(limits.ladder, asked.policy)
    config = footprint.config()
    device = _device(asked.device or str(config["device"]), reading)
    simulator = _simulator(asked, limits, reading)
    if lost := plan.lost_gpu(reading, device, simulator.quality if simulator else None):
        raise ImpossibleError(lost, Exit.OUT_OF_MEMORY)
    base = {**config, "device": device}
    sized = {key: value for key, value in base.items() if not key.startswith(OF_TIME)}
    with_context = watermarks.with_context(footprint.sizes, watermarks.agent_context_mib(asked.runs))
    sizes_of = watermarks.corrected(with_context, watermarks.agent_marks(asked.runs, sized), sized)
    ladder = build_ladder(rungs, base, simulator, sizes_of)
    pool = f"vram:{asked.gpu}"
    situation = Situation(reading, simulator, base, ladder, limits.memory.reserve_mib, pool, pool, str(asked.runs))
    return PlanResult(situation, plan.make_plan(situation, sizes_of), sizes_of, rungs)


def cpu_base(found: PlanResult) -> Values:
    """Return the agent's values as they are planned with where it can't use the card."""
    return {**found.situation.base, "device": "cpu"}


def on_cpu(found: PlanResult, sizes_of: SizesOf) -> PlanResult:
    """Return what the plan was made of as it is for an agent that can't use the card; what was chosen stands.

    Raises:
        FootprintError: of ``sizes_of``, for nobody knows what the agent takes there; the ladder stays as it is.
    """
    base = cpu_base(found)
    ladder = build_ladder(found.rungs, base, found.situation.simulator, sizes_of)
    return replace(found, situation=replace(found.situation, base=base, ladder=ladder))


def _device(wanted: str, reading: Reading) -> str:
    no_gpu = reading.gpu in (Gpu.NONE, Gpu.UNREADABLE)
    if wanted == "cuda" and no_gpu:
        raise ImpossibleError(
            "device is cuda, but the driver shows no GPU: use --device auto or --device cpu.", Exit.BAD_CONFIG
        )
    return "cpu" if wanted == "cpu" or no_gpu else "cuda"


def _simulator(asked: PlanRequest, limits: LauncherConfig, reading: Reading) -> Simulator | None:
    if asked.simulator is Simulates.ELSEWHERE:
        return None
    lite = asked.simulator is Simulates.LITE
    if not lite and reading.gpu is Gpu.NONE:
        raise ImpossibleError(
            "CARLA needs a GPU, and the driver shows none: use carla-lite, or mend the driver.", Exit.BAD_CONFIG
        )
    peaks = watermarks.simulator_peaks(asked.runs, asked.town, watermarks.first_figures(limits.sizes))
    return Simulator(LITE if lite else asked.quality or limits.simulator.quality, peaks)
