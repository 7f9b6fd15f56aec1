"""The configuration's section ``memory``. Owns its keys; what they mean for PyTorch is ``allocator``'s business."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from contract.section import Section

Offload = Literal["optimizer", "targets"]
"""What can live on the host while the networks are on a GPU."""


class MemoryConfig(Section):
    """How memory is asked for, and how much of it is left alone."""

    backend: Literal["native", "cudaMallocAsync"] = Field("native", description="PyTorch's CUDA allocator.")
    expandable_segments: bool | Literal["auto"] = Field(
        "auto", description="auto = where PyTorch and the platform have them; true insists, WSL2 included."
    )
    garbage_collection_threshold: float | None = Field(
        None, gt=0, lt=1, description="Share of the limit above which cached blocks go back; null = PyTorch's choice."
    )
    per_process_memory_fraction: float | None = Field(
        None, gt=0, le=1, description="Of the device's memory, for the allocator (not the context); null = no cap."
    )
    offload: tuple[Offload, ...] = Field(
        (), description="Kept on the host instead of the GPU: Adam's state with its step, the targets. None on the CPU."
    )
    reserve_mib: float = Field(
        64.0, ge=0, description="Left free on device, host and disk beyond the estimate, MiB; else no start (exit 71)."
    )
