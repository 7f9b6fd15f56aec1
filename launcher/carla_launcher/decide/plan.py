"""Plans a run's start: the first configuration that fits, and the reason as a sentence.

Pure. ``fit`` computes the sums, ``choose`` searches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from carla_launcher.decide.choose import Shortage, Steps, choose, lasting_steps
from carla_launcher.decide.fit import Candidate, Fits, PoolSum, Situation, foreign_items, uses_pool
from carla_launcher.decide.room import wait_command, who_holds
from carla_launcher.observe.pools import Gpu, OwnerKind, PoolKind, Provenance, Reading
from carla_launcher.sizes import CPU, CUDA, DEVICE, SizesOf


@dataclass(frozen=True)
class Plan:
    """The plan: what fits on this machine now.

    Attributes:
        configurations: the one asked for, the steps that help a short pool, and every quality and device.
        start: the configuration that the run would start with; None if nothing fits.
        reason: why, with the numbers: a sentence without full stop.
    """

    configurations: tuple[Candidate, ...]
    start: Candidate | None
    reason: str

    @property
    def asked(self) -> Candidate:
        """The configuration that was asked for, without any step."""
        return self.configurations[0]


def make_plan(situation: Situation, sizes_of: SizesOf) -> Plan:
    """Return the plan."""
    fits = Fits(situation, sizes_of)
    (asked,) = fits.judge([()])
    alternatives = [] if asked.refusal else _single_steps(fits, asked, situation)
    start = None if asked.refusal else _first_that_fits(fits, asked, situation)
    shown = _distinct([asked, *alternatives, *([start] if start else []), *_qualities_and_devices(fits, situation)])
    return Plan(shown, start, _why_not(shown, situation) if start is None else _why(asked, start, alternatives))


def lost_gpu(reading: Reading, needed: bool) -> str:
    """Return that the GPU is lost, as a sentence; empty if it isn't, or if this run doesn't need it."""
    if reading.gpu is not Gpu.LOST or not needed:
        return ""
    said = f" ({reading.problem.rstrip('.')})" if reading.problem else ""
    return f"The driver has lost the GPU{said}: restart the machine, or use carla-lite (agent: --device cpu)."


def _single_steps(fits: Fits, asked: Candidate, situation: Situation) -> list[Candidate]:
    """Return one step of each rung that helps a short pool by itself: the first that is enough, else the last."""
    kinds, ladder = dict.fromkeys(each.kind for each in asked.sums if each.short_mib), lasting_steps(situation.ladder)

    def helps(with_step: Candidate) -> bool:  # a step may free memory of the other GPU
        if with_step.refusal:
            return False
        return any(with_step.sum_of(each.pool).short_mib < each.short_mib for each in asked.sums)

    found = []
    for kind in kinds:
        judged = fits.judge([(step,) for step in ladder.get(kind, ())])
        for _, rung in groupby(judged, key=lambda each: each.steps[0].rung):
            of_rung = [each for each in rung if helps(each)]
            found += [next((each for each in of_rung if each.fits), of_rung[-1])] if of_rung else []
    return found


def _qualities_and_devices(fits: Fits, situation: Situation) -> Iterator[Candidate]:
    devices = (CUDA, CPU) if situation.base[DEVICE] == CUDA else (CPU,)
    qualities = situation.simulator.peaks if situation.simulator else (None,)
    for quality in qualities:
        for device in devices:
            yield from (each for each in fits.judge([()], quality, device) if not each.refusal)


def _distinct(candidates: Sequence[Candidate]) -> tuple[Candidate, ...]:
    found: dict[str, Candidate] = {}
    for each in candidates:
        found.setdefault(f"{each.quality} {sorted(each.values.items())}", each)
    return tuple(found.values())


def _first_that_fits(fits: Fits, asked: Candidate, situation: Situation) -> Candidate | None:
    def shortages(choices: Sequence[Steps]) -> list[Shortage | None]:
        judged = fits.judge(choices)
        return [None if each.refusal else {one.pool: one.short_mib for one in each.sums} for each in judged]

    steps = choose(lasting_steps(situation.ladder), {each.pool: each.kind for each in asked.sums}, shortages)
    return None if steps is None else asked if not steps else fits.judge([steps])[0]


def _why(asked: Candidate, start: Candidate, alternatives: Sequence[Candidate]) -> str:
    if start is asked:
        return f"it fits as requested, with {_left(asked)}"
    taken = {step.rung for step in start.steps}
    passed = [each for each in alternatives if not each.fits and each.steps[0].rung not in taken]
    earlier = (each for each in passed if _comes_before(each, start, alternatives))
    before = "".join(f"; with {each.steps[0]} {_short(each)}" for each in earlier)
    return f"{asked} is {_short(asked)}{before}; the first that fits is {start}, with {_left(start)}"


def _why_not(shown: Sequence[Candidate], situation: Situation) -> str:
    asked, *others = shown
    if asked.refusal:
        return asked.refusal.rstrip(".")
    wanting = f"no step down the ladder makes it fit: {asked} is {_short(asked)}"
    nearest = min(others, key=lambda each: each.short_mib, default=asked)
    if nearest.fits:
        return f"{wanting}; {nearest} would fit, but no allowed rung leads there"
    nearer = f"; the nearest, {nearest}, is {_short(nearest)}" if nearest.short_mib < asked.short_mib else ""
    ways_out = f"{_held_by_others(nearest, situation)}{_ways_out(nearest, situation)}"
    return f"{wanting}{nearer}; {ways_out}{_based_on_estimates(nearest, situation)}{_based_on_runs(nearest)}"


def _held_by_others(nearest: Candidate, situation: Situation) -> str:
    """Return which foreign processes hold the missing memory, and the command that waits for it; empty if none do."""
    for each in nearest.sums:
        pool = situation.reading.pool(each.pool)
        if not each.short_mib or each.kind is PoolKind.DISK or pool is None:
            continue
        others_mib = sum(line.figure.mib or 0.0 for line in foreign_items(pool))
        if others_mib >= each.short_mib:
            held = who_holds(pool) or f"others, unnamed, hold {others_mib:.0f} MiB"
            return f"in {each.pool} {held}: `{wait_command(pool, each.needed_mib - others_mib)}` waits for that; "
    return ""


def _ways_out(nearest: Candidate, situation: Situation) -> str:
    """Return advice for the pools that are short."""
    kinds = list(dict.fromkeys(each.kind for each in nearest.sums if each.short_mib))
    memory = ["memory"] if any(kind is not PoolKind.DISK for kind in kinds) else []
    disk = [f"disk in {situation.folder}"] if PoolKind.DISK in kinds else []
    smaller = situation.smaller.get(kinds[0]) if len(kinds) == 1 else None
    return f"free some {' and some '.join([*memory, *disk])}, or choose a smaller {smaller or 'configuration'}"


def _based_on_estimates(nearest: Candidate, situation: Situation) -> str:
    """Return which estimates of the simulator's memory decided; empty if they were measured."""
    simulator, quality = situation.simulator, nearest.quality
    if simulator is None or quality is None:
        return ""
    short = {
        each.kind: each.short_mib
        for each in nearest.sums
        if each.short_mib and uses_pool(OwnerKind.SIMULATOR, each.pool, each.kind, situation.cards)
    }
    peaks = {kind: simulator.peak(quality, kind) for kind in short}
    resting = [
        f"{peak.mib:.0f} MiB in {kind.value} ({simulator.setting(quality, kind)})"
        for kind, peak in peaks.items()
        if peak.provenance is Provenance.ESTIMATED and (peak.mib or 0.0) >= short[kind]
    ]
    if not resting:
        return ""
    return (
        f". The memory of {simulator.at(quality)} is an estimate until a run has measured it: "
        f"{', '.join(resting)}; if it takes less on this machine, change that key of the launcher's configuration"
    )


def _based_on_runs(nearest: Candidate) -> str:
    """Return which measured figures decided, the runs that measured them, and how to ignore them."""
    resting = [
        f"{line.what} in {each.pool}, {line.figure.mib:.0f} MiB (run {line.figure.run})"
        for each in nearest.sums
        for line in each.lines
        if each.short_mib and line.figure.run
    ]
    if not resting:
        return ""
    return f". Earlier runs measured: {', '.join(resting)}; --ignore-measured plans without these figures"


def _comes_before(candidate: Candidate, start: Candidate, alternatives: Sequence[Candidate]) -> bool:
    rungs = [each.steps[0].rung for each in alternatives]
    last = start.steps[-1].rung
    return last not in rungs or rungs.index(candidate.steps[0].rung) < rungs.index(last)


def _short(candidate: Candidate) -> str:
    return " and ".join(f"{each.short_mib:.0f} MiB short in {each.pool}" for each in candidate.sums if each.short_mib)


def _left(candidate: Candidate) -> str:
    known: list[PoolSum] = [each for each in candidate.sums if each.left_mib is not None]
    return ", ".join(f"{each.left_mib:.0f} MiB left in {each.pool}" for each in known) or "no pool that could be read"
