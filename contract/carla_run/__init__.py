"""The contract between agent and launcher: a run's files, how they are written, locked and read, and exit codes.

Agent and launcher import it, and never each other. It needs only the standard library and Python 3.8 or later, so that
any trainer can write a run's files, and ``scripts/wait_and_run.sh`` runs under ``python -S``. Only ``configuration``
and ``memory.nvml`` need more.
"""
