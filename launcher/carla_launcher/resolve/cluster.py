"""What ``--cluster`` and ``--collectors`` come to: the agent's words for them, and for a node's simulator.

Pure, but for a look at the token's file.
"""

from __future__ import annotations

import json
import os

from carla_launcher.config import SHIPPED
from carla_launcher.options import RefusedError, RunOptions, RuntimeKind, SimulatorKind
from carla_launcher.resolve.footprint import program
from carla_run import cluster_access


def with_collectors(options: RunOptions) -> RunOptions:
    """Return the options with the count of collectors as the agent is told it."""
    if options.collectors is None:
        return options
    words = ("--set", f"{program().keys.simulators}={options.collectors}")
    return options.model_copy(update={"agent_args": (*words, *options.agent_args)})


def options_of(options: RunOptions) -> RunOptions:
    """Return the options of a run whose collectors drive on a cluster: here there is no simulator, only the agent.

    Raises:
        RefusedError: of the options that exclude each other, or the cluster may not be used.
    """
    address = options.cluster or ""
    if options.simulator_host is not None:
        raise RefusedError("--cluster starts a simulator on each node, --simulator-host names one: leave either out.")
    if options.runtime is RuntimeKind.COMPOSE:
        raise RefusedError(
            "--cluster has no --runtime compose: docker-compose.cluster.yml runs a cluster of containers, and for any "
            "other the agent is a local process."
        )
    if address != cluster_access.AUTO and (why := cluster_access.refusal(address, os.environ)):
        raise RefusedError(why)
    there = json.dumps(simulator_words(options))
    keys = program().keys
    words = ("--set", f"{keys.cluster}={address}", "--set", f"{keys.cluster_simulator}={there}")
    return options.model_copy(
        update={
            "agent_args": (*words, *options.agent_args),
            "runtime": RuntimeKind.PROCESS,
            "simulator": SimulatorKind.ELSEWHERE,
        }
    )


def simulator_words(options: RunOptions) -> list[str]:
    """Return the options of ``simulator`` that a node's is started with."""
    chosen = options.simulator if options.simulator is not SimulatorKind.ELSEWHERE else SimulatorKind.AUTO
    own = None if options.launcher_config == SHIPPED else str(options.launcher_config)
    given = {"--simulator": chosen.value, "--quality": options.quality, "--map": options.map, "--seed": options.seed}
    given |= {"--launcher-config": own}
    named = [word for name, value in given.items() if value is not None for word in (name, str(value))]
    return [*named, *(f"--simulator-arg={word}" for word in options.simulator_args)]
