"""The runtime of local processes: carla-lite or an installed CARLA, and the agent, each under a shim.

Builds their command lines. All programs end with the launcher, even if it is killed (``process_shim``).
"""

from __future__ import annotations

import sys

from carla_launcher.act.local.processes import Program, ShimmedProcess, Shims
from carla_launcher.act.run_spec import RunSpec
from carla_launcher.act.runtime import Child, Role, Start, StartError
from carla_launcher.config import LauncherConfig


class LocalRuntime:
    """Starts the programs of one run as processes of this machine; implements ``runtime.Runtime``."""

    def __init__(
        self,
        spec: RunSpec,
        limits: LauncherConfig,
        *,
        show: bool = True,
        interpreter: tuple[str, ...] = (sys.executable,),
    ) -> None:
        """Start nothing yet.

        Args:
            show: copy the agent's output to this terminal.
            interpreter: command that runs ``-m carla_td3`` and ``-m carla_lite``.
        """
        self._spec, self._limits = spec, limits
        self._show, self._interpreter = show, interpreter
        self._shims = Shims(spec.inherited)

    def start(self, start: Start) -> ShimmedProcess:
        """Start a program; return after milliseconds.

        Raises:
            StartError: this machine has no room for another process.
        """
        program = self._agent(start) if start.role is Role.AGENT else self._simulator(start)
        try:
            return self._shims.start(program)
        except OSError as error:
            raise StartError(
                f"The {start.role.value} can't be started ({error.strerror}); its log is {program.log}."
            ) from None

    def left(self, role: Role) -> Child | None:  # noqa: ARG002 - the interface names it
        """Return None: local programs end with their launcher, and ``leftovers`` waits for that."""
        return None

    def clear(self) -> None:
        """Do nothing: a local program leaves nothing behind."""

    def close(self) -> None:
        """Close the lifelines: shims stop the programs that still run."""
        self._shims.close()

    def _simulator(self, start: Start) -> Program:
        spec, limits = self._spec, self._limits.simulator
        return Program(
            role=Role.SIMULATOR,
            command=spec.simulator.command(limits, start.quality, spec.address_of(start.number), self._interpreter),
            log=spec.run.logs / (f"simulator-{start.number}.log" if start.number else "simulator.log"),
            grace_s=limits.stop_grace_s,
            environment={"PYTHONUNBUFFERED": "1"},
        )

    def _agent(self, start: Start) -> Program:
        spec, grace_s = self._spec, self._limits.agent.stop_grace_s
        where = ("--config", str(spec.config), "--run-dir", str(spec.run.path))
        resume = ("--resume",) if start.resume else ()
        _, uuid = spec.gpu_uuids
        card = {"CUDA_VISIBLE_DEVICES": uuid} if uuid else {}
        others = ",".join(f"{spec.address_of(number)}" for number in range(1, spec.simulators))
        where_else = {"CARLA_OTHERS": others} if spec.simulator.ours else {}
        return Program(
            role=Role.AGENT,
            command=(*self._interpreter, "-m", "carla_td3", "train", *where, *resume, *spec.agent_options),
            log=spec.run.logs / "agent.log",
            grace_s=grace_s,
            environment={
                "CARLA_HOST": spec.host,
                "CARLA_PORT": str(spec.port),
                "PYTHONUNBUFFERED": "1",
                **where_else,
                **card,
            },
            show=self._show,
        )
