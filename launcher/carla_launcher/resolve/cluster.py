"""Turns ``--cluster`` and ``--collectors`` into arguments of the agent, and of ``simulator`` on the nodes.

Pure, except that it reads the token's file.
"""

from __future__ import annotations

import json
import os

from carla_launcher.options import RefusedError, RunOptions, RuntimeKind, SimulatorKind
from carla_launcher.places import SHIPPED
from carla_launcher.resolve.footprint import program
from carla_launcher.simulators import NAMED
from carla_run import cluster_access


def refuse(address: str, options: RunOptions) -> None:
    """Refuse options that can't be combined with a cluster, and a cluster that isn't secured.

    Raises:
        RefusedError: the message is one sentence.
    """
    if options.simulator_host is not None:
        raise RefusedError("--cluster starts a simulator on each node, --simulator-host names one: give one of them.")
    if options.runtime is RuntimeKind.COMPOSE:
        raise RefusedError(
            "--cluster can't be combined with --runtime compose: the agent is a local process. "
            "docker-compose.cluster.yml runs a cluster of containers."
        )
    if address != cluster_access.AUTO and (why := cluster_access.refusal(address, os.environ)):
        raise RefusedError(why)


def agent_words(options: RunOptions) -> tuple[str, ...]:
    """Return the agent's arguments for cluster and collectors."""
    there = json.dumps(simulator_words(options))
    keys = program().keys
    settings = {
        keys.cluster: options.cluster,
        keys.cluster_simulator: None if options.cluster is None else there,
        keys.simulators: options.collectors,
    }
    return tuple(word for key, value in settings.items() if value is not None for word in ("--set", f"{key}={value}"))


def simulator_words(options: RunOptions) -> list[str]:
    """Return the options of ``simulator`` for the nodes."""
    named = NAMED.get(options.simulator)
    chosen = named.kind if named is not None and named.ours else SimulatorKind.AUTO
    names = ("quality", "map", "seed", *(["launcher_config"] if options.launcher_config != SHIPPED else []))
    arguments = (f"--simulator-arg={word}" for word in options.simulator_args)
    return ["--simulator", chosen.value, *options.words(*names), *arguments]
