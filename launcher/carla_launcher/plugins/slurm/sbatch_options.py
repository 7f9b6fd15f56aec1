"""Options of sbatch that a run's job can't have, with advice. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

ARRAY = (
    "all tasks of an array would use the same run folder: submit each run with its own --run-name, "
    "for example in a shell loop"
)
_ONE_TASK = "the job has one task, the launcher, which starts everything else: use --cpus-per-node and --nodes"
_LOG = "`status` and `report` read the job's output in the run's folder"
_REFUSED = {
    **dict.fromkeys(("-a", "--array"), ARRAY),
    **dict.fromkeys(("-n", "--ntasks", "--ntasks-per-node", "--ntasks-per-gpu", "--ntasks-per-core"), _ONE_TASK),
    **dict.fromkeys(("--ntasks-per-socket", "--tasks-per-node"), _ONE_TASK),
    **dict.fromkeys(("hetjob", "packjob", ":"), "the job needs equal nodes: use --nodes"),
    **dict.fromkeys(("-N", "--nodes"), "the script must know the number of nodes: use --nodes of submit"),
    **dict.fromkeys(("-J", "--job-name"), "the job's name must be that of its run: use --run-name"),
    **dict.fromkeys(("-o", "--output", "-e", "--error", "--open-mode"), _LOG),
    "--no-requeue": "the job must be queued again after its time limit, to resume the run",
    "--signal": "the script needs Slurm's warning to write the checkpoint: use --warn SECONDS",
}
SET_OUTSIDE = {"SBATCH_ARRAY_INX": ARRAY}
"""Variables that sbatch reads as options."""


_TIME = re.compile(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?")


def refusal(options: Sequence[str], environment: Mapping[str, str]) -> str:
    """Return why a job can't have one of these options of sbatch, with advice; empty if it can have all.

    Args:
        options: options for sbatch, one per word: ``--account=me``, ``-a0-3``.
        environment: environment of sbatch.
    """
    for option in options:
        if (name := _name(option)) in _REFUSED:
            return f"--sbatch={option}: {_REFUSED[name]}."
    for variable, reason in SET_OUTSIDE.items():
        if environment.get(variable):
            return f"{variable} is {environment[variable]!r} in the environment: {reason}; unset {variable}."
    return ""


def time_refusal(time: str | None, warn_s: int) -> str:
    """Return why a job can't have a time limit, with advice; empty if it can, and for what only Slurm can read."""
    limit_s = _seconds(time or "")
    if not 0 < limit_s <= warn_s:
        return ""
    return (
        f"--time {time} is {limit_s} s, expected more than the {warn_s} s of --warn, since the run stops that long "
        "before the time limit: give a longer --time, or a shorter --warn."
    )


def _seconds(time: str) -> int:
    """Return a time limit in Slurm's notation in seconds: minutes, or hours after days; 0 for none or unknown."""
    if (found := _TIME.fullmatch(time)) is None:
        return 0
    days, *rest = found.groups()
    parts = [int(part) for part in rest if part is not None]
    if days is None and len(parts) < len(rest):
        parts.insert(0, 0)  # minutes, minutes:seconds
    hours, minutes, seconds = (*parts, 0, 0)[:3]
    return ((int(days or 0) * 24 + hours) * 60 + minutes) * 60 + seconds


def _name(option: str) -> str:
    """Return an option's name, without a value that follows a short name directly."""
    word = option.strip().partition("=")[0].partition(" ")[0]
    return word[:2] if word[:1] == "-" and word[:2] != "--" else word
