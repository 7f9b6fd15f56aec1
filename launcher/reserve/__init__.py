"""Waits for free memory, holds it, and hands it to a command as that grows: what ``scripts/wait_and_run.sh`` runs.

Owns the holder process and the command. Needs nothing but Python itself, and ``nvidia-ml-py`` where there is a GPU.
Knows neither the launcher's runs nor its configuration: the command may be any program.
"""
