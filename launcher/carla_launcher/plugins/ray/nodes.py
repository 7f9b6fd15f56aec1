"""What ``--cluster`` passes to the agent and to ``simulator`` on the nodes; lines on the collectors and their nodes.

The lines are from the driver's last report. Pure, except that it reads files.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from carla_launcher.options import RefusedError, RunOptions, RuntimeKind, SimulatorKind
from carla_launcher.places import SHIPPED
from carla_launcher.resolve.footprint import program
from carla_launcher.show.formatting import kind_of, mib
from carla_launcher.simulators import NAMED
from carla_run import cluster_access
from carla_run.heartbeat import CollectorState, read_heartbeat
from carla_run.paths import RunPaths
from carla_run.readers import inner, number, read_objects

WAITING = (CollectorState.STARTING, CollectorState.CONNECTING)


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


def agent_settings(address: str, options: RunOptions) -> dict[str, str]:
    """Return the values of the agent's keys for the cluster at an address."""
    keys = program().keys
    return {keys.cluster: address, keys.cluster_simulator: json.dumps(simulator_words(options))}


def simulator_words(options: RunOptions) -> list[str]:
    """Return the options of ``simulator`` for the nodes."""
    named = NAMED.get(options.simulator)
    chosen = named.kind if named is not None and named.ours else SimulatorKind.AUTO
    names = ("quality", "map", "seed", *(["launcher_config"] if options.launcher_config != SHIPPED else []))
    arguments = (f"--simulator-arg={word}" for word in options.simulator_args)
    return ["--simulator", chosen.value, *options.words(*names), *arguments]


def nodes(run: RunPaths) -> list[str]:
    """Return a line for each collector, also for one that waits for a node; empty before the first one has a node."""
    rows = read_objects(run.nodes)
    beat = read_heartbeat(run.heartbeat) if rows else None
    placed = [row.get("collector") for row in rows]
    waiting = [
        f"collector {number}: no node has a simulator free"
        for number, each in enumerate(() if beat is None else beat.collectors)
        if each.state in WAITING and number not in placed
    ]
    return [*map(_line, rows), *waiting]


def lost_with_nodes(events: Sequence[Mapping[str, Any]]) -> str:
    """Return how many unfinished steps a run lost with nodes, from the agent's events; empty for none."""
    rows = [row for row in events if row.get("event") == "chunk_lost"]
    most = sum(number(row.get("at_most")) or 0 for row in rows)
    return f"at most {most:.0f}, {len(rows)} times" if rows else ""


def _line(row: Mapping[str, Any]) -> str:
    seen = inner(row, "seen")
    parts = [f"collector {row.get('collector')} on {row.get('node')}: {row.get('steps')} steps"]
    parts.append(f"simulator {seen.get('state', 'unknown')}")
    if restarts := number(seen.get("restarts")):
        parts.append(f"restarted {restarts:.0f} times ({seen.get('cause')})")
    for name, pool in inner(seen, "memory_mib").items():
        free, total = (number(pool.get(key)) if isinstance(pool, dict) else None for key in ("free", "total"))
        if free is not None and total is not None:
            parts.append(f"{kind_of(name)} {mib(free)} of {mib(total)} free")
    return ", ".join(parts)
