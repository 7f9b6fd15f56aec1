"""A Ray cluster of several nodes on this machine, in place of several machines, for tests and benchmarks."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from carla_run.paths import RunPaths
from carla_run.readers import read_objects

if TYPE_CHECKING:
    from ray.cluster_utils import Cluster

NODE = {"num_cpus": 1, "object_store_memory": 80 * 2**20, "include_dashboard": False}


@contextlib.contextmanager
def ray_cluster(folder: Path) -> Iterator[Cluster]:
    """Run a cluster while the block runs; its first node, the learner's, has no simulator.

    Args:
        folder: for the token. Programs started in the block find it through this process's environment.
    """
    from ray._private.authentication_test_utils import reset_auth_token_state
    from ray.cluster_utils import Cluster

    token = folder / "token"
    token.write_text(secrets.token_hex(16), encoding="ascii")
    token.chmod(0o600)
    # The last one: processes that are paused for a minute aren't dead.
    mine = {"AUTH_MODE": "token", "AUTH_TOKEN_PATH": str(token), "USAGE_STATS_ENABLED": "0", "worker_niceness": "0"}
    mine |= {"grpc_keepalive_timeout_ms": "3600000", "grpc_client_keepalive_timeout_ms": "3600000"}
    before = dict(os.environ)
    os.environ |= {f"RAY_{name}": value for name, value in mine.items()}
    reset_auth_token_state()  # forgets what this process has read of its environment before
    try:
        cluster = Cluster(initialize_head=True, head_node_args=NODE)
        try:
            yield cluster
        finally:
            cluster.shutdown()
    finally:
        os.environ.clear()
        os.environ.update(before)


def add_node(cluster: Cluster, simulators: int = 1) -> Any:
    """Add a node that may run ``simulators`` simulators."""
    return cluster.add_node(**NODE, resources={"carla": simulators})


def actors_of(run: RunPaths) -> dict[int, psutil.Process]:
    """Return this machine's workers with a run's collectors, by number, as far as they are alive."""
    found = {}
    for seen in read_objects(run.nodes):
        with contextlib.suppress(psutil.Error):
            # A raylet's worker, its command, the command's shim, the simulator.
            chain = psutil.Process(seen["seen"].get("pid") or 0).parents()
            above = [parent.name() for parent in chain]
            found[int(seen["collector"])] = chain[above.index("raylet") - 1]
    return found
