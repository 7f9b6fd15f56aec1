"""Reads from the environment how much host memory Slurm allots to a job on this node, and which job that is. Pure.

If Slurm itself enforces the limit, no control group shows it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from carla_launcher.plugins.slurm.job_processes import JobProcesses

PER_UNIT = {"SLURM_MEM_PER_CPU": "SLURM_CPUS_ON_NODE", "SLURM_MEM_PER_GPU": "SLURM_GPUS_ON_NODE"}
"""Variables with the memory per CPU or GPU (``--mem-per-cpu``, ``--mem-per-gpu``), and with their numbers."""
PER_NODE = "SLURM_MEM_PER_NODE"

_AMOUNT = re.compile(r"(\d+)([KMGT]?)", re.IGNORECASE)
_MIB = {"K": 2**-10, "": 1.0, "M": 1.0, "G": 2.0**10, "T": 2.0**20}


def in_job(environment: Mapping[str, str]) -> JobProcesses | None:
    """Return what says of a process whether it is the job's; None without Slurm."""
    job = environment.get("SLURM_JOB_ID")
    return JobProcesses(job) if job else None


def allotted_mib(environment: Mapping[str, str]) -> float | None:
    """Return the job's memory limit on this node in MiB; None without Slurm or without a limit (0 in Slurm)."""
    per_node = _mib(environment.get(PER_NODE, ""))
    if per_node is not None:
        return per_node
    for memory, count in PER_UNIT.items():
        each, many = _mib(environment.get(memory, "")), environment.get(count, "")
        if each is not None and many.isdecimal() and int(many):
            return each * int(many)
    return None


def _mib(written: str) -> float | None:
    """Return an amount as Slurm writes it, in MiB, which is also its default unit; None for none, and for 0."""
    found = _AMOUNT.fullmatch(written)
    return None if found is None or not int(found[1]) else int(found[1]) * _MIB[found[2].upper()]
