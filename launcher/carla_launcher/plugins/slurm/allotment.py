"""How much host memory Slurm allots to a job on this node: a process's environment in, MiB out. Pure.

Where Slurm itself enforces that, no control group knows of it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

PER_UNIT = {"SLURM_MEM_PER_CPU": "SLURM_CPUS_ON_NODE", "SLURM_MEM_PER_GPU": "SLURM_GPUS_ON_NODE"}
"""Memory for each of what a step has of a node (``--mem-per-cpu``, ``--mem-per-gpu``), and how many that is."""
PER_NODE = "SLURM_MEM_PER_NODE"

_AMOUNT = re.compile(r"(\d+)([KMGT]?)", re.IGNORECASE)
_MIB = {"K": 2**-10, "": 1.0, "M": 1.0, "G": 2.0**10, "T": 2.0**20}


def allotted_mib(environment: Mapping[str, str]) -> float | None:
    """Return what a job may take on this node; None without Slurm, or where Slurm sets no limit (0 is all of it)."""
    per_node = _mib(environment.get(PER_NODE, ""))
    if per_node is not None:
        return per_node
    for memory, count in PER_UNIT.items():
        each, many = _mib(environment.get(memory, "")), environment.get(count, "")
        if each is not None and many.isdecimal() and int(many):
            return each * int(many)
    return None


def _mib(written: str) -> float | None:
    """Return an amount as Slurm writes it, MiB where it names no unit; None for none, and for 0."""
    found = _AMOUNT.fullmatch(written)
    return None if found is None or not int(found[1]) else int(found[1]) * _MIB[found[2].upper()]
