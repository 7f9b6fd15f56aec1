"""Where in the ladder a run can start: the first configuration that fits, and why it is that one.

Pure: the judging is ``fit``'s, the order is the ladder's. A step that isn't enough by itself is passed over while
another one is, and none may overfill another pool; only where no single step is enough are several taken together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from launcher.decide.fit import Candidate, Fits, Situation, Sum
from launcher.decide.ladder import Step
from launcher.decide.sizes import LITE, SizesOf
from launcher.memory.pools import Gpu, PoolKind, Provenance, Reading


@dataclass(frozen=True)
class Plan:
    """What fits on this machine now.

    Attributes:
        configurations: what was asked for, first; the ways to give way where a pool is short; every quality and device.
        start: what the run would start with; None if nothing fits.
        reason: why that, or why nothing, with the numbers: a sentence without its full stop.
    """

    configurations: tuple[Candidate, ...]
    start: Candidate | None
    reason: str

    @property
    def asked(self) -> Candidate:
        """What was asked for: no step taken."""
        return self.configurations[0]


def choose(situation: Situation, sizes_of: SizesOf) -> Plan:
    """Return the plan for a situation."""
    fits = Fits(situation, sizes_of)
    (asked,) = fits.judge([()])
    ways = [] if asked.refusal else _single_steps(fits, asked, situation)
    start = None if asked.refusal else _first_that_fits(fits, asked, situation)
    shown = _distinct([asked, *ways, *([start] if start else []), *_qualities_and_devices(fits, situation)])
    return Plan(shown, start, _why_not(shown, situation) if start is None else _why(asked, start, ways))


def lost_gpu(reading: Reading, device: str, quality: str | None) -> str:
    """Return why nothing can be planned, a sentence; empty if the GPU is there, or nothing of this run needs it."""
    if reading.gpu is not Gpu.LOST or (device == "cpu" and quality in (None, LITE)):
        return ""
    said = f" ({reading.problem.rstrip('.')})" if reading.problem else ""
    return f"The driver has lost the GPU{said}: restart the machine, or use carla-lite and --device cpu."


def _single_steps(fits: Fits, asked: Candidate, situation: Situation) -> list[Candidate]:
    """Return each rung of the short pools' ladders taken alone: as far as it must go, or as far as it goes."""
    kinds = dict.fromkeys(each.kind for each in asked.sums if each.short_mib)
    found = []
    for kind in kinds:
        steps = [step for step in situation.ladder.get(kind, ()) if step.stays]
        judged = fits.judge([(step,) for step in steps])
        for _, rung in groupby(judged, key=lambda each: each.steps[0].rung):
            of_rung = [each for each in rung if not each.refusal]
            found += [next((each for each in of_rung if each.fits), of_rung[-1])] if of_rung else []
    return found


def _qualities_and_devices(fits: Fits, situation: Situation) -> Iterator[Candidate]:
    devices = ("cuda", "cpu") if situation.base["device"] == "cuda" else ("cpu",)
    qualities = situation.simulator.qualities if situation.simulator else (None,)
    for quality in qualities:
        for device in devices:
            yield from fits.judge([()], quality, device)


def _distinct(candidates: Sequence[Candidate]) -> tuple[Candidate, ...]:
    found: dict[str, Candidate] = {}
    for each in candidates:
        found.setdefault(f"{each.quality} {sorted(each.values.items())}", each)
    return tuple(found.values())


def _first_that_fits(fits: Fits, asked: Candidate, situation: Situation) -> Candidate | None:
    for overfilling in (False, True):  # another pool is filled only if its own ladder can then empty it
        found = _descend(fits, asked, situation, overfilling)
        if found is not None:
            return _lightened(fits, found, situation)
    return None


def _descend(fits: Fits, at: Candidate, situation: Situation, overfilling: bool) -> Candidate | None:
    for _ in range(1 + sum(map(len, situation.ladder.values()))):
        if at.fits:
            return at
        lower = _one_lower(fits, at, situation, overfilling)
        if lower is None:
            return None
        at = lower
    return None


def _one_lower(fits: Fits, at: Candidate, situation: Situation, overfilling: bool) -> Candidate | None:
    """Return the candidate with one step more: the first that is enough for the first short pool, else the first rung
    that helps at all, as far as it goes."""
    short = next(each for each in at.sums if each.short_mib)
    steps = [step for step in situation.ladder.get(short.kind, ()) if step.stays]
    helpful = [
        each
        for each in fits.judge([_with(at.steps, step) for step in steps])
        if not each.refusal
        and each.sum_of(short.pool).short_mib < short.short_mib
        and (overfilling or _spares(at, each))
    ]
    for each in helpful:
        if not each.sum_of(short.pool).short_mib:
            return each
    rungs = [list(rung) for _, rung in groupby(helpful, key=lambda each: each.steps[-1].rung)]
    return rungs[0][-1] if rungs else None


def _with(steps: tuple[Step, ...], step: Step) -> tuple[Step, ...]:
    return (*(each for each in steps if each.rung != step.rung), step)


def _spares(before: Candidate, after: Candidate) -> bool:
    """Return whether no pool is shorter than it was."""
    return all(each.short_mib <= before.sum_of(each.pool).short_mib for each in after.sums)


def _lightened(fits: Fits, found: Candidate, situation: Situation) -> Candidate:
    """Return it without what turned out not to be needed, the dearest first: whole steps, or a part of the way."""
    for step in reversed(found.steps if len(found.steps) > 1 else ()):
        others = tuple(each for each in found.steps if each != step)
        rung = [each for ladder in situation.ladder.values() for each in ladder if each.rung == step.rung]
        lighter = [(*others, each) for each in rung[: rung.index(step)]]
        found = next((each for each in fits.judge([others, *lighter]) if each.fits), found)
    return found


def _why(asked: Candidate, start: Candidate, ways: Sequence[Candidate]) -> str:
    if start is asked:
        return f"it fits as it was asked for, with {_left(asked)}"
    passed = [each for each in ways if not each.fits and each.steps[0].rung not in {step.rung for step in start.steps}]
    before = "".join(f"; with {each.steps[0]} {_short(each)}" for each in passed if _comes_before(each, start, ways))
    return f"{asked} is {_short(asked)}{before}; the first that fits is {start}, with {_left(start)}"


def _why_not(shown: Sequence[Candidate], situation: Situation) -> str:
    asked, *others = shown
    if asked.refusal:
        return asked.refusal.rstrip(".")
    wanting = f"nothing that the ladder offers fits: {asked} is {_short(asked)}"
    nearest = min(others, key=lambda each: each.short_mib, default=asked)
    if nearest.fits:
        return f"{wanting}; {nearest} would fit, but no rung that is allowed leads there"
    nearer = f"; the nearest, {nearest}, is {_short(nearest)}" if nearest.short_mib < asked.short_mib else ""
    return f"{wanting}{nearer}; {_ways_out(nearest, situation)}{_resting_on(nearest, situation)}"


def _ways_out(nearest: Candidate, situation: Situation) -> str:
    """Return what a person can do, by the pools that are short."""
    kinds = list(dict.fromkeys(each.kind for each in nearest.sums if each.short_mib))
    memory = ["memory"] if any(kind is not PoolKind.DISK for kind in kinds) else []
    disk = [f"disk in {situation.folder}"] if PoolKind.DISK in kinds else []
    smaller = "a smaller replay.capacity" if kinds == [PoolKind.DISK] else "a smaller configuration"
    return f"free some {' and some '.join([*memory, *disk])}, or choose {smaller}"


def _resting_on(nearest: Candidate, situation: Situation) -> str:
    """Return which of the simulator's figures the verdict rests on, if nobody has measured them here yet."""
    simulator, quality = situation.simulator, nearest.quality
    if simulator is None or quality is None:
        return ""
    peaks = {each.kind: simulator.peak(quality, each.kind) for each in nearest.sums if each.short_mib}
    short = {each.kind: each.short_mib for each in nearest.sums}
    resting = [
        f"{peak.mib:.0f} MiB in {kind.value} ({_setting_of(quality, kind)})"
        for kind, peak in peaks.items()
        if peak.known is Provenance.ESTIMATED and (peak.mib or 0.0) >= short[kind]
    ]
    if not resting:
        return ""
    name = simulator.name if quality == LITE else f"{simulator.name} at {quality}"
    return (
        f". What {name} takes is an estimate, which the first run's measurement replaces: {', '.join(resting)}; if it "
        "takes less on this machine, change that in launcher/launcher.yaml"
    )


def _comes_before(way: Candidate, start: Candidate, ways: Sequence[Candidate]) -> bool:
    rungs = [each.steps[0].rung for each in ways]
    last = start.steps[-1].rung
    return last not in rungs or rungs.index(way.steps[0].rung) < rungs.index(last)


def _short(candidate: Candidate) -> str:
    return " and ".join(f"{each.short_mib:.0f} MiB short in {each.pool}" for each in candidate.sums if each.short_mib)


def _left(candidate: Candidate) -> str:
    known: list[Sum] = [each for each in candidate.sums if each.left_mib is not None]
    return ", ".join(f"{each.left_mib:.0f} MiB left in {each.pool}" for each in known) or "no pool that could be read"


def _setting_of(quality: str, kind: PoolKind) -> str:
    """Return the key of the launcher's configuration that holds a simulator's first figure."""
    if kind is PoolKind.VRAM:
        return f"sizes.vram_mib.{quality}"
    return "sizes.lite_ram_mib" if quality == LITE else "sizes.ram_mib"
