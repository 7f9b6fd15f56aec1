"""What agent and launcher agree on: the files of a run and how they are written, locked and read, requests, exit codes.

Below both, which never import each other. Standard library and pydantic only, so that either image holds it and the
launcher starts at once. What ``scripts/wait_and_run.sh`` needs (it runs under ``python -S``) imports no pydantic.
"""
