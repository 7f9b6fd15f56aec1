"""A simulator in a container and a command beside it on this machine: each role has its runtime."""

from __future__ import annotations

from carla_launcher.act.runtime import Child, Role, Runtime, Start


class SplitRuntime:
    """Starts the simulator by one runtime and the agent's program by another; a ``runtime.Runtime``."""

    def __init__(self, simulator: Runtime, agent: Runtime) -> None:
        self._by_role = {Role.SIMULATOR: simulator, Role.AGENT: agent}

    def start(self, start: Start) -> Child:
        """Start a program by its role's runtime.

        Raises:
            StartError: it can't be started at all.
        """
        return self._by_role[start.role].start(start)

    def left(self, role: Role) -> Child | None:
        """Return what still runs of a role, started by a launcher that is gone."""
        return self._by_role[role].left(role)

    def clear(self) -> None:
        """Remove what is left of the run: the program first, which may still speak to the simulator.

        Raises:
            StartError: something can't be removed.
        """
        for role in (Role.AGENT, Role.SIMULATOR):
            self._by_role[role].clear()

    def close(self) -> None:
        """Let go of what both hold."""
        for runtime in self._by_role.values():
            runtime.close()
