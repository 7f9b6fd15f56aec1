"""The algorithm: losses and update, how they are computed in the memory there is, networks, replay.

Knows no simulator, no process and no memory policy: who calls says what is done when an update runs short.
"""
