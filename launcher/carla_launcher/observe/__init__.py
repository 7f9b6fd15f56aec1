"""What the launcher sees, once a second: one ``Observation`` of simulator, agent and memory, plain data.

A memory figure goes once from left to right: the driver, the kernel or the file system (``carla_run.memory``) →
``memory`` (one ``Reading``: pools with their owners) → ``observer`` (one ``Observation``) → ``decide`` and ``show``.
Beside it go the simulator (``health``: what it answers; ``simulator``: its process, connection and log) and the agent
(``agent``: its heartbeat and events). Starts, stops and decides nothing.
"""
