"""The estimate beside what is free and what was measured: one object for the command, the check and the events.

Owns the table, the plain data, the reading of a run's watermarks, and what ``device: auto`` and ``td3.precision: auto``
come to. Whether something fits is ``footprint``'s to say.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.table import Table

from agent.config import AgentConfig, ConfigError
from agent.cuda import choose_device
from agent.memory import footprint, free
from agent.memory.footprint import MIB, POOLS, Estimate, Free, Phase, Pool
from agent.run_directory import settled_precision
from agent.td3.arithmetic import computed, cpu_has_bfloat16
from contract.paths import RunPaths

# The phases of agent.json that have an estimate. The rehearsal makes a whole update; what it leaves stays.
PHASES: dict[str, tuple[Phase, ...]] = {
    "warming": ("always", "updating"),
    "collecting": ("always", "updating"),
    "updating": ("always", "updating"),
    "evaluating": ("always", "updating"),
    "saving": ("always", "updating", "saving"),
}
# Kinds of figures to their titles, each with the measured kind that it stands beside.
_COLUMNS = {
    "host_estimate": ("host estimate", "host"),
    "host": ("host", "host"),
    "learner": ("learner", "learner"),
    "collector": ("collector", "collector"),
    "device_estimate": ("device estimate, context included", "device_reserved"),
    "device_allocated": ("tensors", "device_allocated"),
    "device_reserved": ("allocator", "device_reserved"),
    "device_used": ("device, all processes", "device_used"),
}


@dataclass(frozen=True)
class Survey:
    """What a configuration needs here, and whether it fits."""

    estimate: Estimate
    free: Free
    cuda: bool
    config: AgentConfig
    """As it was given; ``td3.precision: auto`` is what it comes to there, unless the GPU wasn't looked at."""
    reserve_mib: float
    largest_batch: int
    refusal: str | None
    not_on_cuda: str | None
    """Why the GPU is left alone, where device is auto and there is one; else None."""
    idle_offload: tuple[str, ...]
    """Of memory.offload, what has no effect, for nothing is on a GPU."""
    measured_mib: Mapping[str, Mapping[str, float]]
    """Watermarks by phase and kind (``watermarks.Figures``) of the run's last learner; empty before it ran."""

    def plain(self) -> dict[str, Any]:
        """Return everything as plain data, MiB."""
        return {
            "device": "cuda" if self.cuda else "cpu",
            "precision": self.config.td3.precision,
            "computes_in": computed(self.config.td3.precision, self.cuda),
            "batch": self.estimate.batch,
            "items": [
                {"name": item.name, "phase": item.phase, **{f"{p}_mib": _mib(getattr(item, p)) for p in POOLS}}
                for item in self.estimate.items
            ],
            "total_mib": {pool: _mib(self.estimate.total(pool)) for pool in POOLS},
            "free_mib": {pool: _mib(getattr(self.free, pool)) for pool in POOLS},
            "reserve_mib": self.reserve_mib,
            "fits": self.refusal is None,
            "refusal": self.refusal,
            "not_on_cuda": self.not_on_cuda,
            "idle_offload": list(self.idle_offload),
            "largest_batch": self.largest_batch,
            "host_by_phase_mib": {phase: self._estimated(phase, "host") for phase in PHASES},
            "device_by_phase_mib": {phase: self._estimated(phase, "device") for phase in PHASES},
            "measured_by_phase_mib": {phase: dict(figures) for phase, figures in self.measured_mib.items()},
        }

    def table(self) -> Table:
        """Return the items, totals and what is free, for a person."""
        where = "cuda" if self.cuda else "cpu"
        table = Table(title=f"Memory of batch {self.estimate.batch} on {where}", title_justify="left")
        table.add_column("item")
        table.add_column("when")
        for pool in POOLS:
            table.add_column(f"{pool} MiB", justify="right")
        for item in self.estimate.items:
            if any(getattr(item, pool) for pool in POOLS):
                table.add_row(item.name, item.phase, *(_shown(getattr(item, pool) or None) for pool in POOLS))
        table.add_section()
        table.add_row("total", "", *(_shown(self.estimate.total(pool)) for pool in POOLS))
        table.add_row("free, were this run not there", "", *(_shown(getattr(self.free, pool)) for pool in POOLS))
        return table

    def watermarks(self) -> Table:
        """Return each phase's measured watermarks beside its estimate; the device's only where there was one."""
        table = Table(title="Memory by phase, learner and collector, MiB", title_justify="left")
        table.add_column("phase")
        measured = {kind for figures in self.measured_mib.values() for kind in figures}
        shown = {kind: title for kind, (title, needs) in _COLUMNS.items() if needs in measured}
        for title in shown.values():
            table.add_column(title, justify="right")
        for phase, figures in self.measured_mib.items():
            known = {f"{pool}_estimate": self._estimated(phase, pool) for pool in POOLS} | dict(figures)
            table.add_row(phase, *("" if (mib := known.get(kind)) is None else f"{mib:.1f}" for kind in shown))
        return table

    def verdict(self) -> str:
        """Return one sentence, or another two on what was decided."""
        kept = f"with memory.reserve_mib {self.reserve_mib:g} left over"
        verdict = self.refusal or f"A batch of {self.estimate.batch} fits, {kept}."
        if self.not_on_cuda is not None:
            verdict += f" It goes to the CPU, for the GPU is too full: {self.not_on_cuda}"
        if self.idle_offload:
            verdict += f" memory.offload has no effect on the CPU ({', '.join(self.idle_offload)})."
        return verdict

    def _estimated(self, phase: str, pool: Pool) -> float | None:
        phases = PHASES.get(phase)
        return None if phases is None else _mib(self.estimate.total(pool, phases))


def survey(config: AgentConfig, run: RunPaths) -> Survey:
    """Compare what a configuration needs with what is free for a run in this directory.

    With ``device: auto`` on the GPU; or, where that can't hold it and the CPU can, on the CPU.

    Raises:
        ConfigError: CUDA is asked for and isn't there.
    """
    found = _survey(config, run, _on_cuda(config))
    if found.cuda and found.refusal is not None and config.device == "auto":
        without = _survey(config, run, cuda=False)
        if without.refusal is None:
            return replace(without, not_on_cuda=found.refusal)
    return found


def foresee(config: AgentConfig, run: RunPaths) -> Survey:
    """Return the same; where CUDA is asked for and isn't there, its figures all the same, and that as the refusal."""
    try:
        return survey(config, run)
    except ConfigError as error:
        return replace(untouched(config, run), refusal=str(error))


def untouched(config: AgentConfig, run: RunPaths) -> Survey:
    """Return the same without a look at the GPU: even a look takes a context there.

    What it has free stays unknown, and ``device: auto`` counts as cuda.
    """
    return _compared(config, run, config.device != "cpu", free.read(run.path, cuda=False, fraction=None))


def _survey(config: AgentConfig, run: RunPaths, cuda: bool) -> Survey:
    config = _settled(config, run, cuda)
    return _compared(config, run, cuda, free.read(run.path, cuda, config.memory.per_process_memory_fraction))


def _compared(config: AgentConfig, run: RunPaths, cuda: bool, room: Free) -> Survey:
    return Survey(
        estimate=footprint.estimate(config, cuda),
        free=room,
        cuda=cuda,
        config=config,
        reserve_mib=config.memory.reserve_mib,
        largest_batch=footprint.largest_batch(config, cuda, room),
        refusal=footprint.refusal(config, cuda, room),
        not_on_cuda=None,
        idle_offload=() if cuda else config.memory.offload,
        measured_mib=_watermarks(run.heartbeat),
    )


def _on_cuda(config: AgentConfig) -> bool:
    if config.device == "cpu":
        return False  # and torch's import is saved
    return choose_device(config.device).type == "cuda"


def _settled(config: AgentConfig, run: RunPaths, cuda: bool) -> AgentConfig:
    """Return the configuration with ``td3.precision: auto`` as it was settled for this run, or else for this machine.

    Raises:
        ConfigError: CUDA doesn't work.
    """
    if config.td3.precision != "auto":
        return config
    has = free.device_has_bfloat16 if cuda else cpu_has_bfloat16
    precision = settled_precision(run) or ("bfloat16" if has() else "float32")
    return config.model_copy(update={"td3": config.td3.model_copy(update={"precision": precision})})


def _watermarks(heartbeat: Path) -> dict[str, dict[str, float]]:
    try:
        found = json.loads(heartbeat.read_text(encoding="utf-8"))["memory"]["peak_by_phase_mib"]
        return {
            str(phase): {str(kind): float(mib) for kind, mib in figures.items()} for phase, figures in found.items()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def _mib(size: int | None) -> float | None:
    return None if size is None else round(size / MIB, 1)


def _shown(size: int | None) -> str:
    return "–" if size is None else f"{size / MIB:.1f}"
