"""Environment variables that belong to no option, no key of the configuration, and no Compose file."""

from __future__ import annotations

from carla_run.enums import StrEnum


class Variable(StrEnum):
    """The variables. The reference takes all others from options, keys and ``.env.example``."""

    AGENT_DEFAULT_CONFIG = "AGENT_DEFAULT_CONFIG"
    """The agent's configuration where ``AGENT_CONFIG`` and ``--config`` name none, and the run has no ``config.yaml``.
    The Compose files set it to ``config/td3_config_lowmem.yaml``.
    """
    CARLA_CACHE_DIR = "CARLA_CACHE_DIR"
    """Folder in which the ``carla`` client keeps the files of maps. Default: ``carlaCache`` in ``$HOME``. The agent
    sets a temporary folder where neither variable is set.
    """
    CARLA_RUN_DIR = "CARLA_RUN_DIR"
    """The launcher sets it for a command that it runs: the run's folder, into which the command can report."""
    CARLA_SLURM_RUN = "CARLA_SLURM_RUN"
    """The batch script of ``submit`` sets it: the folder of the run that the job drives. Only a launcher of that run
    records its Slurm step.
    """
    CARLA_TM_PORT = "CARLA_TM_PORT"
    """The launcher sets it for a command that it runs: a free port for a Traffic Manager."""
    LAUNCHER_EVENT = "LAUNCHER_EVENT"
    """The launcher sets it for the command of ``--on-event``: the event's name. Standard input has the whole event."""
    LAUNCHER_CAUSE = "LAUNCHER_CAUSE"
    """The launcher sets it for the command of ``--on-event``: the event's cause, a sentence."""
    LAUNCHER_INCIDENT = "LAUNCHER_INCIDENT"
    """The launcher sets it for the command of ``--on-event``: the id of the event's incident, or nothing."""
    LITE_COMPILED_DIR = "LITE_COMPILED_DIR"
    """Folder of carla-lite's compiled modules. Default: a folder in the user's cache."""
    PYTORCH_ALLOC_CONF = "PYTORCH_ALLOC_CONF"
    """Settings of PyTorch's allocator by its new name. The agent gives both names the same value."""
