"""Memory readings for agent and launcher: processes, control groups, disks and GPUs; and the meaning of error messages.

All modules need only the standard library, except ``nvml``, which needs ``nvidia-ml-py`` and is imported only within
this package.
"""
