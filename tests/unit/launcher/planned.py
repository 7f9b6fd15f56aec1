"""A machine and an agent for the plan's tests: readings by hand, and an agent whose sizes follow a simple rule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from carla_launcher import config
from carla_launcher.decide.fit import Situation
from carla_launcher.decide.ladder import build_ladder, picked_rungs, with_program
from carla_launcher.observe.pools import Gpu, Owner, OwnerKind, Pool, PoolKind, Reading, estimated, measured
from carla_launcher.resolve.footprint import program
from carla_launcher.simulators import Carla, CarlaLite
from carla_launcher.sizes import Simulator, Sizes, SizesOf, Values

LIMITS, AGENT = config.load(), program()
RUNGS = with_program(LIMITS.ladder, AGENT)
LITE = CarlaLite.figures_as
CONTEXT_MIB = 400.0
BASE: dict[str, Any] = {
    "device": "cuda",
    "td3.batch_size": 256,
    "td3.micro_batch": None,
    "td3.cuda_graph": False,
    "memory.offload": [],
    "environment.camera.width": 84,
    "environment.camera.height": 84,
    "environment.traffic.vehicles": 20,
    "environment.traffic.walkers": 0,
    "replay.capacity": 100_000,
    "training.keep_checkpoints": 3,
    "evaluation.video": True,
    "training.collectors": 1,
    "collector.at_work": None,
}


@dataclass(frozen=True)
class Rule:
    """An agent: MiB of its networks, of their optimizer, a row in an update, its processes, and CUDA graphs."""

    networks: float = 40.0
    optimizer: float = 20.0
    row: float = 0.25
    processes: float = 450.0
    graphs: float = 0.0

    def __call__(self, variants: Sequence[Values]) -> list[Sizes]:
        return [self.one(values) for values in variants]

    def one(self, values: Values) -> Sizes:
        full = {**BASE, "td3.cuda_graph": self.graphs > 0, **values}
        if full["environment.camera.width"] != 84:
            return Sizes(values, refusal="`environment.camera.width` is 64; it must be 84.")
        cuda, offloaded = full["device"] == "cuda", bool(full["memory.offload"])
        rows = min(full["td3.batch_size"], full["td3.micro_batch"] or full["td3.batch_size"])
        update = self.networks + self.row * rows + (0 if offloaded and cuda else self.optimizer)
        update += self.graphs if full["td3.cuda_graph"] and cuda and not offloaded else 0
        ram = self.processes + 45 * full["evaluation.video"] + (300 if cuda else update)
        mib = {
            PoolKind.VRAM: CONTEXT_MIB + update if cuda else 0.0,
            PoolKind.RAM: ram + (2 * self.optimizer if offloaded and cuda else 0),
            PoolKind.DISK: full["replay.capacity"] * 0.007 + 35 * full["training.keep_checkpoints"],
        }
        by_phase = {PoolKind.VRAM: {"updating": mib[PoolKind.VRAM]}, PoolKind.RAM: {"updating": ram}}
        return Sizes(values, mib, context=estimated(CONTEXT_MIB * cuda), by_phase=by_phase)


def reading(
    *, vram: float | None = 5745, xorg: float = 85, ram: float = 16_000, used: float = 3_000, disk: float = 40_000
) -> Reading:
    """Return a machine's pools before anything of the run has started; without VRAM there is no GPU."""
    pools = [
        Pool("ram", PoolKind.RAM, measured(ram), measured(ram - used)),
        Pool("disk", PoolKind.DISK, measured(100_000), measured(disk)),
    ]
    if vram is None:
        return Reading(tuple(pools), Gpu.NONE)
    return Reading((card(vram, Owner("Xorg", OwnerKind.FOREIGN, (99,), measured(xorg))), *pools), Gpu.OK)


def card(total: float, *owners: Owner, unnamed: float = 0.0) -> Pool:
    """Return a GPU's pool."""
    held = sum(owner.held.mib or 0.0 for owner in owners) + unnamed
    return Pool("vram:0", PoolKind.VRAM, measured(total), measured(total - held), owners)


def simulator(quality: str = "Epic", **vram: float) -> Simulator:
    """Return CARLA with the shipped figures, or others of VRAM by quality; ``LITE`` for carla-lite."""
    kind = CarlaLite() if quality == LITE else Carla()
    peaks = kind.first_figures(LIMITS.sizes)
    for name, mib in vram.items():
        peaks[name][PoolKind.VRAM] = estimated(mib)
    return Simulator(quality, peaks, label=kind.label, ram_key=kind.ram_key)


def situation(
    seen: Reading, agent: SizesOf, runs: Simulator | None = None, policy: Sequence[str] | None = None, **base: Any
) -> Situation:
    """Return what a plan is made of, with the shipped ladder."""
    values = {**BASE, **base} if seen.gpu is Gpu.OK else {**BASE, **base, "device": "cpu"}
    simulates = runs or simulator("Epic" if seen.gpu is Gpu.OK else LITE)
    ladder = build_ladder(picked_rungs(RUNGS, policy), AGENT.present(values), simulates, agent)
    return Situation(seen, simulates, values, ladder, LIMITS.memory.reserve_mib)
