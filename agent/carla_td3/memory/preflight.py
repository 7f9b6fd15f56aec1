"""The check before a training: estimate, free memory and earlier measurements, whether it fits, and on which device.

Owns the report that the command ``footprint``, the check and the events share, how ``device: auto`` and
``td3.precision: auto`` are resolved, and the order of the check. Allocates nothing; imports torch only where the answer
depends on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from rich.table import Table

from carla_run.events import CannotFit, MemoryPool, NoCuda, log_by
from carla_run.exits import Exit
from carla_run.heartbeat import read_heartbeat
from carla_run.paths import RunPaths
from carla_td3.config import AgentConfig, ConfigError
from carla_td3.cuda import CudaStatus, cuda_status_for, on_cuda, torch_device
from carla_td3.exits import AgentError
from carla_td3.memory import allocator, free, previous_crash
from carla_td3.memory.allocator import Choice, Settings
from carla_td3.memory.estimate import MIB, PHASES, POOLS, Free, Pool
from carla_td3.memory.fit import Fit
from carla_td3.run_directory import settled_precision
from carla_td3.td3.kernels.arithmetic import computed

if TYPE_CHECKING:
    import torch

NOT_APPLICABLE = "not applicable on the CPU"
Log = Callable[..., None]
"""Writes an event: its name, its cause, and numbers by name (``EventLog.append``)."""

# Kinds of figures, their titles, and the measured kind that belongs beside each.
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
class MemoryReport:
    """Memory that a configuration needs here, and whether it fits."""

    fit: Fit
    """For the configuration as given. ``td3.precision: auto`` is resolved, unless the GPU wasn't looked at."""
    refusal: str | None
    not_on_cuda: str | None
    """Why the GPU isn't used, if device is auto and there is one; else None."""
    measured_mib: Mapping[str, Mapping[str, float]]
    """Watermarks of the run's last learner, by phase and kind (``watermarks.Figures``); empty before it ran."""

    @property
    def computes_in(self) -> str:
        """Precision that ``td3.precision`` means on this processor: float32, bfloat16 or float16."""
        return computed(self.fit.config.td3.precision, self.fit.cuda)

    @property
    def idle_offload(self) -> tuple[str, ...]:
        """Values of memory.offload without effect, because nothing is on a GPU."""
        return () if self.fit.cuda else self.fit.config.memory.offload

    def plain(self) -> dict[str, Any]:
        """Return everything as plain data, in MiB."""
        return {
            "device": "cuda" if self.fit.cuda else "cpu",
            "precision": self.fit.config.td3.precision,
            "computes_in": self.computes_in,
            "batch": self.fit.estimate.batch,
            "items": [
                {"name": item.name, "phase": item.phase, **{f"{p}_mib": _mib(getattr(item, p)) for p in POOLS}}
                for item in self.fit.estimate.items
            ],
            "total_mib": {pool: _mib(self.fit.estimate.total(pool)) for pool in POOLS},
            "free_mib": {pool: _mib(getattr(self.fit.free, pool)) for pool in POOLS},
            "reserve_mib": self.fit.config.memory.reserve_mib,
            "fits": self.refusal is None,
            "refusal": self.refusal,
            "not_on_cuda": self.not_on_cuda,
            "idle_offload": list(self.idle_offload),
            "largest_batch": self.fit.largest_batch,
            "host_by_phase_mib": {phase: self._estimated(phase, "host") for phase in PHASES},
            "device_by_phase_mib": {phase: self._estimated(phase, "device") for phase in PHASES},
            "measured_by_phase_mib": {phase: dict(figures) for phase, figures in self.measured_mib.items()},
        }

    def table(self) -> Table:
        """Return items, totals and free memory as a table."""
        where = "cuda" if self.fit.cuda else "cpu"
        table = Table(title=f"Memory of batch {self.fit.estimate.batch} on {where}", title_justify="left")
        table.add_column("item")
        table.add_column("when")
        for pool in POOLS:
            table.add_column(f"{pool} MiB", justify="right")
        for item in self.fit.estimate.items:
            if any(getattr(item, pool) for pool in POOLS):
                table.add_row(item.name, item.phase, *(_shown(getattr(item, pool) or None) for pool in POOLS))
        table.add_section()
        table.add_row("total", "", *(_shown(self.fit.estimate.total(pool)) for pool in POOLS))
        table.add_row("free without this run", "", *(_shown(getattr(self.fit.free, pool)) for pool in POOLS))
        return table

    def watermarks(self) -> Table:
        """Return each phase's measured watermarks beside its estimate; the device's only if there was one."""
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
        """Return the verdict in one sentence, and up to two more on what was decided."""
        kept = f"with memory.reserve_mib {self.fit.config.memory.reserve_mib:g} left over"
        verdict = self.refusal or f"A batch of {self.fit.estimate.batch} fits, {kept}."
        if self.not_on_cuda is not None:
            verdict += f" The agent runs on the CPU, because the GPU is too full: {self.not_on_cuda}"
        if self.idle_offload:
            verdict += f" memory.offload has no effect on the CPU ({', '.join(self.idle_offload)})."
        return verdict

    def _estimated(self, phase: str, pool: Pool) -> float | None:
        phases = PHASES.get(phase)
        return None if phases is None else _mib(self.fit.estimate.total(pool, phases))


def report(config: AgentConfig, run: RunPaths, seen: CudaStatus | None) -> MemoryReport:
    """Compare what a configuration needs with what is free for a run in this directory.

    ``device: auto`` means the GPU, or the CPU if only the CPU can hold it.

    Args:
        config: as given.
        run: its replay and checkpoints count as free, and its watermarks are shown.
        seen: PyTorch's view of CUDA here (``carla_td3.cuda.cuda_status``); None if device is cpu.

    Raises:
        ConfigError: CUDA is asked for and isn't there.
    """
    found = _report(config, run, cuda=on_cuda(config.device, seen))
    if found.fit.cuda and found.refusal is not None and config.device == "auto":
        without = _report(config, run, cuda=False)
        if without.refusal is None:
            return replace(without, not_on_cuda=found.refusal)
    return found


def report_of_any(config: AgentConfig, run: RunPaths) -> MemoryReport:
    """Like :func:`report`, but if CUDA is missing, return the figures anyway, with that as the refusal."""
    try:
        return report(config, run, cuda_status_for(config.device))
    except ConfigError as error:
        return replace(report_without_gpu(config, run), refusal=str(error))


def report_without_gpu(config: AgentConfig, run: RunPaths) -> MemoryReport:
    """Like :func:`report`, without a look at the GPU, which would create a context there.

    The GPU's free memory stays unknown, and ``device: auto`` counts as cuda.
    """
    return _compared(config, run, config.device != "cpu", free.read(run.path, cuda=False, fraction=None))


def _report(config: AgentConfig, run: RunPaths, cuda: bool) -> MemoryReport:
    config = _with_precision(config, run, cuda)
    return _compared(config, run, cuda, free.read(run.path, cuda, config.memory.per_process_memory_fraction))


def _compared(config: AgentConfig, run: RunPaths, cuda: bool, room: Free) -> MemoryReport:
    beat, fit = read_heartbeat(run.heartbeat), Fit(config, cuda, room)
    return MemoryReport(fit, fit.refusal, not_on_cuda=None, measured_mib={} if beat is None else beat.peaks_mib)


def _with_precision(config: AgentConfig, run: RunPaths, cuda: bool) -> AgentConfig:
    """Return the configuration with ``td3.precision: auto`` resolved as this run did before, else for this machine.

    Raises:
        ConfigError: CUDA doesn't work.
    """
    if config.td3.precision != "auto":
        return config
    precision = settled_precision(run)
    if precision is None:
        precision = "bfloat16" if cuda and free.device_has_bfloat16() else computed("auto", cuda)
    return config.model_copy(update={"td3": config.td3.model_copy(update={"precision": precision})})


def _mib(size: int | None) -> float | None:
    return None if size is None else round(size / MIB, 1)


def _shown(size: int | None) -> str:
    return "–" if size is None else f"{size / MIB:.1f}"


@dataclass(frozen=True)
class PreflightResult:
    """Where a run computes, and its configuration: as given, except ``td3.micro_batch`` and an auto precision."""

    device: torch.device
    config: AgentConfig
    computes_in: str
    """Resolved ``td3.precision``: float32, bfloat16 or float16."""
    gave_way: str = ""
    """Event that made one of them smaller than asked for; empty if none did."""
    cuda: CudaStatus | None = None
    """PyTorch's view of CUDA here; None if device is cpu."""


def run_preflight(config: AgentConfig, run: RunPaths, chosen: Choice, log: Log) -> PreflightResult:
    """Decide whether and where a run fits, before anything is allocated and after ``allocator.prepare``.

    Logs the events ``allocator`` and ``footprint``; ``no_cuda``, ``device`` or ``micro_batch_lowered`` if they apply.

    Raises:
        AgentError: the configuration can't fit (exit 71); the event ``cannot_fit`` has the numbers, and what would fit.
        ConfigError: CUDA isn't there, or the GPU doesn't compute in ``td3.precision``.
    """
    seen = cuda_status_for(config.device)
    if seen is not None and not seen.available:
        log_by(log, NoCuda(cause=str(seen), reason=seen.cuda, device=config.device, pool=seen.pool))
    found, gave_way = report(config, run, seen), ""
    lowered = _after_crash(found, run, log)
    if lowered is not found.fit.config:
        found, gave_way = report(lowered, run, seen), "micro_batch_lowered"
    if found.fit.cuda:
        require_arithmetic(found.fit.config.td3.precision)
    took_hold = read_back() if found.fit.cuda else NOT_APPLICABLE
    settings = allocator.parse(chosen.text, source="the allocator's setting")
    differing = [] if isinstance(took_hold, str) else ignored(settings, took_hold)
    log("allocator", chosen.dropped or chosen.cause, setting=chosen.text, took_hold=took_hold, ignored=differing)
    log("footprint", found.verdict(), **found.plain())
    if found.refusal is not None:
        shortage = _shortage(found, found.refusal)
        log_by(log, shortage)
        raise AgentError(found.refusal, Exit.OUT_OF_MEMORY, shortage.pool)
    if found.not_on_cuda is not None:
        gave_way = "device"
        log(gave_way, found.not_on_cuda, device="cpu")
    return PreflightResult(torch_device(found.fit.cuda), found.fit.config, found.computes_in, gave_way, seen)


def _shortage(found: MemoryReport, refusal: str) -> CannotFit:
    """Return the numbers of a refusal, for a program that looks for a configuration that fits."""
    fit, pool = found.fit, found.fit.short
    assert pool is not None
    disk = pool == "disk"
    return CannotFit(
        cause=refusal,
        pool=MemoryPool(pool),
        folder=fit.free.folder if disk else None,
        needed_mib=round(fit.estimate.total(pool) / MIB, 1),
        free_mib=round(getattr(fit.free, pool) / MIB, 1),
        reserve_mib=fit.config.memory.reserve_mib,
        fitting_micro_batch=fit.largest_micro_batch or None,
        fitting_batch=fit.largest_batch or None,
        fitting_replay=(fit.largest_replay or None) if disk else None,
    )


def _after_crash(found: MemoryReport, run: RunPaths, log: Log) -> AgentConfig:
    """Return the configuration, with a smaller micro-batch if memory may have ended the last learner."""
    config = found.fit.config
    last = None if found.fit.cuda else previous_crash.read(run.heartbeat)
    if last is None:
        return config
    lowered = previous_crash.with_less(config, found.fit.free, last)
    if lowered is not config:
        log(
            "micro_batch_lowered",
            f"the last learner ended without a message in phase {last.phase}, perhaps for lack of memory",
            micro_batch=lowered.td3.micro_batch,
            last_micro_batch=last.micro_batch,
            needed_mib=previous_crash.needed_mib(config, last),
            free_mib=round((found.fit.free.host or 0) / MIB, 1),
        )
    return lowered


def require_arithmetic(precision: str) -> None:
    """Refuse a GPU that would only emulate bfloat16, as Turing does, at a fraction of its speed.

    Raises:
        ConfigError: this GPU has no bfloat16.
    """
    import torch

    if precision == "bfloat16" and not torch.cuda.is_bf16_supported(including_emulation=False):
        name = torch.cuda.get_device_name()
        raise ConfigError(f"td3.precision is bfloat16, which {name} lacks: set td3.precision to float16.")


def read_back() -> dict[str, Any]:
    """Return the settings that PyTorch's CUDA allocator reports."""
    import torch

    torch.cuda.init()  # type: ignore[no-untyped-call]  # ``_snapshot`` by itself creates no context
    settings = torch.cuda.memory._snapshot()["allocator_settings"]
    return {
        name: value if isinstance(value, bool | int | float | str) else str(value) for name, value in settings.items()
    }


def ignored(settings: Settings, took_hold: Settings) -> list[str]:
    """Return the keys that PyTorch reports with another value than it was given."""
    return [key for key, value in settings.items() if key in took_hold and took_hold[key] != value]
