"""A run as a job of Slurm's: the batch script, what Slurm says of the job, how each of its steps ended.

Owns ``runs/<name>/slurm/``. Knows nothing of supervision: ``up`` tells it that a launcher begins, the script that one
has ended, and ``status`` and ``report`` read what stands there.
"""
