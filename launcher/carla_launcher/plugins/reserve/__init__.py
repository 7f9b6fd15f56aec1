"""Waits for free memory, holds it, and hands it to a command as that grows: what ``scripts/wait_and_run.sh`` runs.

A figure goes from ``memory`` (looks at a GPU or RAM) through ``waiting`` or ``hand_over`` and ``amounts`` (how much to
keep: pure) to ``hold`` and its process, ``holder``. Needs nothing but Python itself, and ``nvidia-ml-py`` where there
is a GPU. Knows neither the launcher's runs nor its configuration: the command may be any program.
"""
