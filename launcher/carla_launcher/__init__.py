"""Plans, starts, watches and repairs a run, from the host.

Owns processes and the launcher's files in the run directory. Imports neither ``torch`` nor ``carla``, nor the
packages ``agent`` and ``carla_lite``: it starts those as processes and reads their files.
"""
