"""Reads the peaks of simulator and agent that earlier runs measured, and replaces estimates by them.

Reads ``launcher.json``, ``agent.json`` and ``config.yaml`` of all runs in the folder, even if they are incomplete. A
measured configuration also corrects the estimates of similar ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from carla_launcher.act.saved_config import saved_config
from carla_launcher.observe.pools import PROCESS_POOLS, Figure, PoolKind, Provenance, measured
from carla_launcher.sizes import CPU, CUDA, DEVICE, Sizes, SizesOf, Values
from carla_run import keys
from carla_run.configuration.program_file import ProgramFile
from carla_run.heartbeat import Phase, read_heartbeat
from carla_run.paths import RunPaths, newest_first
from carla_run.readers import inner, number, read_object


@dataclass(frozen=True)
class Mark:
    """The agent's watermark in one run.

    Attributes:
        run: name of the run.
        values: values of its configuration, by dotted key; ``device`` is cuda or cpu.
        mib: its peak, in RAM without the video encoder and in VRAM without the context.
    """

    run: str
    values: Values
    mib: Mapping[PoolKind, float]


def simulator_peaks(
    runs: Path, town: str | None, first: Mapping[str, Mapping[PoolKind, Figure]]
) -> dict[str, dict[PoolKind, Figure]]:
    """Return the simulator's peaks by quality: from the newest run that measured it on this map, else the estimate.

    ``launcher.json`` holds ``simulator_peak_mib``: by pool (vram, ram), then by quality (Low, Epic, lite).
    """
    peaks = {quality: dict(by_kind) for quality, by_kind in first.items()}
    for run in reversed(newest_first(runs)):
        state = read_object(run.launcher_state)
        if town is not None and inner(state, "options").get("map") not in (None, town):
            continue
        for kind in PROCESS_POOLS:
            found = inner(inner(state, "simulator_peak_mib"), kind.value)
            for quality, by_kind in peaks.items():
                if (mib := number(found.get(quality))) is not None:
                    by_kind[kind] = replace(measured(mib), run=run.path.name)
    return peaks


def plausible(
    peaks: Mapping[str, Mapping[PoolKind, Figure]], first: Mapping[str, Mapping[PoolKind, Figure]]
) -> tuple[dict[str, dict[PoolKind, Figure]], tuple[str, ...]]:
    """Return the peaks without a measured Low above Epic, and a sentence for each that is left out.

    An estimate of Low above a measured Epic is lowered to it, since Low takes no more.
    """
    kept, notes = {quality: dict(by_kind) for quality, by_kind in peaks.items()}, []
    for kind in PROCESS_POOLS:
        low, epic = (kept.get(quality, {}).get(kind) for quality in ("Low", "Epic"))
        if low is None or epic is None or (low.mib or 0.0) <= (epic.mib or 0.0):
            continue
        if low.run:
            kept["Low"][kind] = first["Low"][kind]
            notes.append(
                f"run {low.run} measured {low.mib:.0f} MiB of {kind.value} for CARLA at Low, more than at Epic "
                f"({epic.mib:.0f} MiB): the plan uses {kept['Low'][kind].mib:.0f} MiB instead"
            )
            low = kept["Low"][kind]
        if epic.run and (low.mib or 0.0) > (epic.mib or 0.0):
            kept["Low"][kind] = replace(epic, provenance=Provenance.ESTIMATED)
    return kept, tuple(notes)


def _doubted(run: RunPaths) -> bool:
    """Return whether the run's launcher marked the agent's figures as doubtful."""
    return bool(read_object(run.launcher_state).get("agent_figures_doubted"))


def agent_marks(runs: Path, config: Values, pinned: Sequence[str], program: ProgramFile) -> list[Mark]:
    """Return the newest watermark on each device, of runs that share the pinned keys' values; empty if there is none.

    ``pinned`` are the agent's keys whose values two configurations must share for a watermark to be valid for both.
    ``program`` knows which values a heartbeat shows.
    """
    marks: dict[str, Mark] = {}
    for run in newest_first(runs, "agent.json"):
        mark = None if _doubted(run) else _mark(run, config, pinned, program)
        if mark is not None:
            marks.setdefault(mark.values[DEVICE], mark)
    return list(marks.values())


def agent_context(runs: Path) -> Figure | None:
    """Return the CUDA context, from the newest run whose launcher measured it; None if none did."""
    for run in newest_first(runs):
        mib = number(read_object(run.launcher_state).get("agent_context_mib"))
        if mib and mib > 0 and not _doubted(run):
            return replace(measured(mib), run=run.path.name)
    return None


def with_context(sizes_of: SizesOf, context: Figure | None) -> SizesOf:
    """Return a function like ``sizes_of`` that gives every CUDA context this size."""
    if context is None:
        return sizes_of

    def answer(variants: Sequence[Values]) -> list[Sizes]:
        return [each if not each.context_mib else _with_context(each, context) for each in sizes_of(variants)]

    return answer


def _with_context(sizes: Sizes, context: Figure) -> Sizes:
    more_mib = (context.mib or 0.0) - sizes.context_mib
    return replace(_shifted(sizes, {PoolKind.VRAM: more_mib}), context=context)


def _mark(run: RunPaths, config: Values, pinned: Sequence[str], program: ProgramFile) -> Mark | None:
    beat, saved = read_heartbeat(run.heartbeat), saved_config(run)
    if beat is None:
        return None
    values = {key: keys.at(saved, key) for key in config} | program.shown(beat)
    values[DEVICE] = CUDA if beat.device.startswith(CUDA) else CPU
    if Phase.UPDATING not in beat.peaks_mib or any(not _alike(values.get(key), config.get(key)) for key in pinned):
        return None  # it never reached its peak, or has other networks
    ram, vram = (_highest(beat.peaks_mib, kind) for kind in ("host", "device_reserved"))
    mib = {PoolKind.RAM: ram, PoolKind.VRAM: vram if values[DEVICE] == CUDA else 0.0}
    return Mark(run.path.name, values, {kind: peak for kind, peak in mib.items() if peak is not None})


def _alike(measured: Any, wanted: Any) -> bool:
    """Return whether a run's value is the wanted one, or a possible result of ``auto``."""
    return measured == wanted or (wanted == "auto" and measured in ("float32", "bfloat16"))


def corrected(sizes_of: SizesOf, marks: Sequence[Mark], config: Values, program: ProgramFile) -> SizesOf:
    """Return a function like ``sizes_of`` that uses measurements.

    A measured configuration gets its measured size. Others on the same device keep their estimated distance to it, so
    that the effect of a step stays the same.
    """
    estimates = sizes_of([mark.values for mark in marks])
    by_device = {
        mark.values[DEVICE]: (mark, _corrections(mark, sizes))
        for mark, sizes in zip(marks, estimates, strict=True)
        if not sizes.refusal
    }

    def correct(sizes: Sizes) -> Sizes:
        values = {**config, **sizes.values}
        mark, corrections = by_device.get(values[DEVICE], (None, {}))
        if mark is None or sizes.refusal:
            return sizes
        wanted, measured_with = program.present(values), program.present(mark.values)
        same = all(wanted[key] == measured_with[key] for key in config)
        provenance = dict.fromkeys(corrections, Provenance.MEASURED) if same else {}
        return replace(_shifted(sizes, corrections), run=mark.run, provenance=provenance)

    def answer(variants: Sequence[Values]) -> list[Sizes]:
        return [correct(sizes) for sizes in sizes_of(variants)]

    return answer if by_device else sizes_of


def _corrections(mark: Mark, sizes: Sizes) -> dict[PoolKind, float]:
    """Return measured less estimated; parts without a measurement are added as estimated."""
    phases = sizes.by_phase.get(PoolKind.RAM, {}).values()
    filming = sizes.mib[PoolKind.RAM] - max(phases, default=sizes.mib[PoolKind.RAM])
    beside = {PoolKind.RAM: filming, PoolKind.VRAM: sizes.context_mib}
    return {kind: mib + beside[kind] - sizes.mib[kind] for kind, mib in mark.mib.items()}


def _shifted(sizes: Sizes, more_mib: Mapping[PoolKind, float]) -> Sizes:
    """Return the sizes with more MiB in each pool and phase, at least 0."""

    def shifted(kind: PoolKind, mib: float) -> float:
        return round(max(0.0, mib + more_mib.get(kind, 0.0)), 1)

    by_phase = {
        kind: {phase: shifted(kind, mib) for phase, mib in phases.items()} for kind, phases in sizes.by_phase.items()
    }
    return replace(sizes, mib={kind: shifted(kind, mib) for kind, mib in sizes.mib.items()}, by_phase=by_phase)


def _highest(peaks_mib: Mapping[str, Mapping[str, float]], kind: str) -> float | None:
    return max((figures[kind] for figures in peaks_mib.values() if kind in figures), default=None)
