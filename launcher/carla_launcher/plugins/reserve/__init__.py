"""Waits for free memory and starts a command in it: what ``scripts/wait_and_run.sh`` runs.

Needs nothing but Python itself, and ``nvidia-ml-py`` where there is a GPU. Knows neither the launcher's runs nor its
configuration: the command may be any program.
"""
