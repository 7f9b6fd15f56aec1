"""The TD3 driver: environment, algorithm, collector and learner.

Owns everything between the CARLA client and the checkpoint. Never imports ``launcher`` or ``carla_lite``:
it knows a simulator only as an address that the ``carla`` client can reach.
"""
