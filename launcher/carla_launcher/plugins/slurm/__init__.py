"""A run as a Slurm job: the batch script, the job's state in Slurm, and how each step of the job ended.

Writes ``runs/<name>/slurm/``. ``up`` reports the start of a launcher, the batch script its end; ``status`` and
``report`` read the record.
"""
