"""carla-lite: a CPU server that speaks CARLA 0.9.16's wire protocol to the unmodified ``carla`` client.

Owns the protocol, the roads, the physics and the camera. Imports neither ``agent`` nor ``launcher``, nor ``carla``.
"""
