"""Which of sbatch's own options a run's job can't have, and what to give instead. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

ARRAY = (
    "the tasks of an array would all drive the one run in its folder: submit each run with its own --run-name, "
    "for example in a loop of the shell"
)
_ONE_TASK = "one launcher begins the run and starts all else itself: give it cores by --cpus-per-node, nodes by --nodes"
_LOG = "`status` and `report` read the job's output in the run's folder"
_REFUSED = {
    **dict.fromkeys(("-a", "--array"), ARRAY),
    **dict.fromkeys(("-n", "--ntasks", "--ntasks-per-node", "--ntasks-per-gpu", "--ntasks-per-core"), _ONE_TASK),
    **dict.fromkeys(("--ntasks-per-socket", "--tasks-per-node"), _ONE_TASK),
    **dict.fromkeys(("hetjob", "packjob", ":"), "the script starts its steps in one job of equal nodes: give --nodes"),
    **dict.fromkeys(("-N", "--nodes"), "the script starts Ray by the number of nodes: give submit's own --nodes"),
    **dict.fromkeys(("-J", "--job-name"), "a job is named after its run, of which one runs at a time: give --run-name"),
    **dict.fromkeys(("-o", "--output", "-e", "--error", "--open-mode"), _LOG),
    "--no-requeue": "the run goes on after a time limit by being queued again",
    "--signal": "the checkpoint is written upon Slurm's warning: give --warn SECONDS",
}
SET_OUTSIDE = {"SBATCH_ARRAY_INX": ARRAY}
"""Variables that sbatch reads as options."""


def refusal(options: Sequence[str], environment: Mapping[str, str]) -> str:
    """Return why a job can't have one of these options of sbatch's, and what to do; empty if it can have all.

    Args:
        options: as sbatch takes them, one a word: ``--account=me``, ``-a0-3``.
        environment: in which sbatch will run.
    """
    for option in options:
        if (name := _name(option)) in _REFUSED:
            return f"--sbatch={option}: {_REFUSED[name]}."
    for variable, reason in SET_OUTSIDE.items():
        if environment.get(variable):
            return f"{variable} is {environment[variable]!r} in the environment: {reason}; unset {variable}."
    return ""


def _name(option: str) -> str:
    """Return an option's name, of a short one without the value that is written right behind it."""
    word = option.strip().partition("=")[0].partition(" ")[0]
    return word[:2] if word[:1] == "-" and word[:2] != "--" else word
