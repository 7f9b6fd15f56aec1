"""Readings of memory that agent and launcher share: processes, control groups, disks, GPUs, and what errors say of it.

Each module needs the standard library only, but for ``nvml``, which needs ``nvidia-ml-py`` and which no module outside
this package imports.
"""
