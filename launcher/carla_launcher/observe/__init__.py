"""Observes simulator, agent and memory once a second; each look gives one ``Observation``, plain data.

A memory figure passes through: driver, kernel or file system (``carla_run.memory``) → ``memory`` (one ``Reading``:
pools with their owners) → ``observer`` (one ``Observation``) → ``decide`` and ``show``. The simulator is observed by
``health`` (its answers) and ``simulator`` (process, connection and log), the agent by ``agent`` (heartbeat and
events). Starts, stops and decides nothing.
"""
