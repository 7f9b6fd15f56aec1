"""The runtime of local processes: carla-lite or an installed CARLA, and the agent, each under a shim.

Builds their command lines. All programs end with the launcher, even if it is killed (``process_shim``).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from carla_launcher import simulators
from carla_launcher.act import container_words
from carla_launcher.act.command import Command, began_s, sections_of
from carla_launcher.act.local.processes import Program, Shims
from carla_launcher.act.run_spec import RunSpec
from carla_launcher.act.runtime import Child, Role, Start, StartError
from carla_launcher.config import LauncherConfig

PLACES = {"host": "CARLA_HOST", "port": "CARLA_PORT", "tm_port": "CARLA_TM_PORT"}
"""Variables of a command, by the placeholders of its words that stand for the same."""
MAX_LOG_BYTES = 64 * 2**20
"""Largest size of a command's log; the newest part is kept."""


class LocalRuntime:
    """Starts the programs of one run as processes of this machine; implements ``runtime.Runtime``."""

    def __init__(
        self,
        spec: RunSpec,
        limits: LauncherConfig,
        *,
        show: bool = True,
        beside: Callable[[int], Program] | None = None,
    ) -> None:
        """Start nothing yet.

        Args:
            show: copy the agent's output to this terminal.
            beside: returns what a simulator's number is driven by; None for the agent, or the command of ``spec``.
        """
        self._spec, self._limits, self._show, self._beside = spec, limits, show, beside
        self._shims = Shims(spec.inherited)

    def start(self, start: Start) -> Child:
        """Start a program; return after milliseconds.

        Raises:
            StartError: this machine has no room for another process.
        """
        try:
            program = self._program(start)
        except OSError as error:
            raise StartError(f"{error.filename}: can't be read or written ({error.strerror}).") from None
        try:
            return start_program(self._shims, program)
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
            command=spec.simulator.command(limits, start.quality, spec.address_of(start.number)),
            log=spec.simulator_log(start.number),
            grace_s=limits.stop_grace_s,
            environment={"PYTHONUNBUFFERED": "1"},
        )

    def _program(self, start: Start) -> Program:
        if start.role is Role.SIMULATOR:
            return self._simulator(start)
        if self._beside is not None:
            return self._beside(start.number)
        command = self._spec.command
        return self._agent(start) if command is None else self._command(command, start)

    def _command(self, command: Command, start: Start) -> Program:
        spec = self._spec
        places = {"gpu": str(spec.cards.agent)}
        if spec.simulator.exists:
            places |= {"host": spec.host, "port": str(spec.port), "tm_port": str(spec.tm_port)}
        if start.resume and (saved := command.checkpoints(began_s(spec.run.launcher_events))):
            places["checkpoint"] = str(saved[0])
        copies = (spec.run.path / "settings").absolute()  # the command may run in another folder
        words, variables = command.start(start.resume, _overrides(spec.run.overrides), places, copies)
        own = {PLACES[name]: value for name, value in places.items() if name in PLACES}
        return Program(
            role=Role.AGENT,
            command=words,
            log=spec.run.logs / "agent.log",
            grace_s=self._limits.agent.stop_grace_s,
            environment={
                **own,
                **self._card(),
                "CARLA_RUN_DIR": str(spec.run.path.absolute()),
                "PYTHONUNBUFFERED": "1",
                **variables,
            },
            show=self._show,
            folder=command.folder,
            most_log_bytes=MAX_LOG_BYTES,
        )

    def _card(self) -> dict[str, str]:
        _, uuid = self._spec.gpu_uuids
        return {"CUDA_VISIBLE_DEVICES": uuid} if uuid else {}

    def _agent(self, start: Start) -> Program:
        spec, grace_s = self._spec, self._limits.agent.stop_grace_s
        where = ("--config", str(spec.config), "--run-dir", str(spec.run.path))
        resume = ("--resume",) if start.resume else ()
        others = ",".join(f"{spec.address_of(number)}" for number in range(1, spec.simulators))
        where_else = {"CARLA_OTHERS": others} if spec.simulator.ours else {}
        return Program(
            role=Role.AGENT,
            command=(*simulators.INTERPRETER, "-m", "carla_td3", "train", *where, *resume, *spec.agent_options),
            log=spec.run.logs / "agent.log",
            grace_s=grace_s,
            environment={
                "CARLA_HOST": spec.host,
                "CARLA_PORT": str(spec.port),
                "PYTHONUNBUFFERED": "1",
                **where_else,
                **self._card(),
            },
            show=self._show,
        )


def start_program(shims: Shims, program: Program) -> Child:
    """Start a program under a shim; if its command runs a container, the container counts as its own.

    Raises:
        OSError: as ``Shims.start``.
    """
    if (words := container_words.container_of(program.command)) is None:
        return shims.start(program)
    # The engine's SDK takes memory and half a second: only a container pays for it.
    from carla_launcher.act.local import container_client

    return container_client.start(shims, program, words)


def _overrides(path: Path) -> dict[str, object]:
    """Return the values of the present rung.

    Raises:
        StartError: the file isn't what the launcher has written.
    """
    return sections_of(path) if path.exists() else {}
