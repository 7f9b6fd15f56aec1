"""What agent and launcher agree on: the files of a run and how they are written, locked and read, requests, exit codes.

Below both, which never import each other. Needs the standard library only, and Python 3.8 or later, so that any trainer
can write a run's files and ``scripts/wait_and_run.sh`` can run under ``python -S``. ``configuration`` is the exception.
"""
