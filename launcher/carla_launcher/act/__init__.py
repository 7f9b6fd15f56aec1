"""Carries decisions out: starts, stops and restarts simulator and agent, sends them requests, and records it all.

``supervisor`` has the run's main loop; ``compose`` and ``local`` are the two runtimes; ``journal`` writes the
launcher's files. Effects are injected, so tests run hours of simulated time. Observations come from ``observe``,
decisions from ``decide``.
"""
