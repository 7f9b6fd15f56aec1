"""The algorithm: losses and updates, how they are computed in the available memory, networks, replay.

Knows no simulator, no process and no memory policy: the caller decides what happens if an update runs out of memory.
"""
