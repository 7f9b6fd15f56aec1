"""The launcher: plans, starts, observes and repairs a run, from the host.

Imports neither ``torch`` nor ``carla``, ``carla_td3`` nor ``carla_lite``: it starts agent and simulator as processes or
containers, and reads their files.
"""
