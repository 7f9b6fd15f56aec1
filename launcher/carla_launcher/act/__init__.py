"""Carries out what was decided: starts, asks, stops and restarts simulator and agent, and records it.

``supervisor`` owns the run's state and the order of things; ``compose`` and ``local`` are the two runtimes, ``journal``
writes the launcher's files. What it touches is injected, so hours of simulated time run in tests. It looks only through
``observe`` and decides only through ``decide``.
"""
