"""The runtime of the Compose stack: ``docker compose`` starts containers, the engine's SDK observes them.

Chooses the stack's project, files and variables, and the order in which containers stop. Containers outlive their
launcher; the next launcher of the run finds them again.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import time
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

from carla_launcher.act.compose.container import ComposeChild, Creation
from carla_launcher.act.compose.engine import Engine, EngineError
from carla_launcher.act.compose.project import Project, setting
from carla_launcher.act.local.processes import Program, Shims
from carla_launcher.act.run_spec import RunSpec
from carla_launcher.act.runtime import Role, Start, StartError
from carla_launcher.config import LauncherConfig
from carla_launcher.observe import container_engine
from carla_launcher.observe.container_engine import ContainerEngine
from carla_run.files import bytes_in, folder_of
from carla_run.memory.processes import MIB
from carla_run.paths import names_preset

SERVICES = {Role.SIMULATOR: "carla", Role.AGENT: "agent"}
# `--wait` ends with the first health check that passes; later the launcher does its own checks.
WAITED_FOR = {Role.SIMULATOR: ("--wait",), Role.AGENT: ()}
UP = ("up", "--detach", "--no-deps", "--no-build", "--pull", "never", "--force-recreate")
CALLER = 1000
"""User that owns the run's files if root starts the launcher: the agent's container doesn't run as root."""
POLL_S = 0.1
CLI_GRACE_S = 1.0


class ComposeRuntime:
    """Starts the services of one run's project; implements ``runtime.Runtime``."""

    def __init__(
        self,
        spec: RunSpec,
        limits: LauncherConfig,
        *,
        variables: Mapping[str, str] | None = None,
        over: tuple[Path, ...] = (),
    ) -> None:
        """Start nothing yet.

        Args:
            spec: the run; with carla-lite the agent's container has no GPU either.
            variables: further variables of ``.env.example``, such as memory limits; they override others.
            over: further Compose files that override the stack's, such as docker-compose.visual.yml.
        """
        self._spec, self._limits, self._more = spec, limits, variables or {}
        self._quality: str = limits.simulator.quality
        self._project = Project(spec.run, (*spec.simulator.compose_files, *map(str, over)), spec.stack)
        self._engine = Engine()
        self._shims = Shims(spec.inherited)
        self._children: dict[Role, ComposeChild] = {}
        self._checked = False

    @property
    def project(self) -> str:
        """Return the name of the run's project, which is a label of its containers and network."""
        return self._project.name

    @cached_property
    def engine(self) -> ContainerEngine | None:
        """Return the engine's product and features; None if it doesn't answer."""
        try:
            return self._engine.kind()
        except EngineError:
            return None

    @property
    def _roles(self) -> tuple[Role, ...]:
        """Return what runs in containers: another command than the agent doesn't."""
        return tuple(Role) if self._spec.command is None else (Role.SIMULATOR,)

    @property
    def obstacle(self) -> str:
        """Return why the engine can't give CARLA a GPU, as a sentence; empty if it can, or if GPU_RUNTIME is set."""
        if not self._spec.simulator.gpu_stack or self.engine is None or self._asks_for_a_runtime:
            return ""
        return container_engine.no_gpu(self.engine, container_engine.has_hook())

    @property
    def not_counted(self) -> str:
        """Return which memory figures of containers are missing, as a sentence; empty if all are known."""
        return "" if self.engine is None else container_engine.not_counted(self.engine)

    @property
    def _asks_for_a_runtime(self) -> bool:
        return bool(setting("GPU_RUNTIME", self._spec.stack))

    def container_name(self, container: str) -> str | None:
        """Return the name of a container of this machine, by its id; None if unknown."""
        try:
            return self._engine.name_of(container)
        except EngineError:
            return None

    def config_inside(self) -> str:
        """Return the path of the agent's configuration in its container, which mounts two folders; or a preset's name.

        Raises:
            StartError: the configuration is in neither folder.
        """
        if names_preset(self._spec.config):
            return str(self._spec.config)
        config = self._spec.config.resolve()
        folders = {
            "config": self._spec.stack.resolve() / "config",
            "runs": self._spec.run.path.resolve().parent,
        }
        for inside, folder in folders.items():
            if config.is_relative_to(folder):
                return str(inside / config.relative_to(folder))
        raise StartError(
            f"{self._spec.config}: the agent's container sees {folders['config']} and {folders['runs']} only; "
            "put the configuration into one of them."
        )

    def agent_command(self) -> tuple[str, ...]:
        """Return the command that runs ``carla_td3`` in a new container, for ``footprint``.

        It needs ``environment``. Writes nothing.

        Raises:
            StartError: no container can see the configuration.
        """
        self._project.set(self._variables())
        return self._project.command("run", "--rm", "--no-deps", "-T", "agent", "python", "-m", "carla_td3")

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment variables that ``agent_command`` needs."""
        return self._project.environment

    def memory_limits_mib(self) -> dict[Role, float]:
        """Return the memory limit of each container that has one. Starts and writes nothing.

        Raises:
            StartError: Compose is too old, or a file or variable is wrong.
        """
        self._project.check_version()
        self._project.set(self._variables())
        found = self._project.memory_bytes()
        return {role: found[SERVICES[role]] / MIB for role in self._roles if SERVICES[role] in found}

    def check(self) -> None:
        """Check that the stack can be started, as far as that can be checked.

        Raises:
            StartError: no engine answers, Compose is too old, no container can see the configuration, or an image isn't
                built.
        """
        self._project.check_version()
        self._project.write(self._variables())
        self.expect_images(*self._roles)
        self._checked = True

    def expect_images(self, *roles: Role) -> None:
        """Check that the images of these programs are built. Builds none, since that can take an hour.

        Raises:
            StartError: one isn't built, or that is unknown; all missing ones are named.
        """
        self._project.set(self._variables())
        images = self._project.images()
        missing = [SERVICES[role] for role in self._roles if not self._has(images[SERVICES[role]])]
        if any(SERVICES[role] in missing for role in roles):
            named = " and ".join(images[service] for service in missing)
            raise StartError(f"Not built here yet: {named}; build with `{self._project.build_command(*missing)}`.")

    def start(self, start: Start) -> ComposeChild:
        """Create a service's container again with the present settings; return before it runs.

        The agent always resumes the run in its directory, whatever ``start`` says (docker-compose.yml).

        Raises:
            StartError: as ``check``.
        """
        self._quality = start.quality or self._quality
        if self._checked:
            self._project.write(self._variables())
        else:
            self.check()
        try:
            self._chown_run()
        except OSError as error:
            raise StartError(f"{self._spec.run.path}: can't be given to the agent ({error.strerror}).") from None
        service, log = SERVICES[start.role], self._log_of(start.role)
        creation = self._create(start.role, service)
        self._children[start.role] = ComposeChild(self._engine, self.project, service, log, creation)
        return self._children[start.role]

    def left(self, role: Role) -> ComposeChild | None:
        """Return the running container of this run, even if an earlier launcher started it; None if there is none.

        Raises:
            StartError: the engine doesn't answer.
        """
        service, own = SERVICES[role], self._children.get(role)
        if own is not None and own.poll() is None:  # only one reader per container
            return own
        try:
            running = self._engine.ids(self.project, service, running=True)
        except EngineError as error:
            raise StartError(str(error)) from None
        if not running:
            return None
        self._spec.run.logs.mkdir(parents=True, exist_ok=True)
        self._children[role] = ComposeChild(self._engine, self.project, service, self._log_of(role), None, running[0])
        self._children[role].look()
        return self._children[role]

    def clear(self) -> None:
        """Stop the agent and then the simulator, and remove this run's containers and network. Can be repeated safely.

        Raises:
            StartError: the engine doesn't answer, or something can't be removed.
        """
        graces_s = {Role.AGENT: self._limits.agent.stop_grace_s, Role.SIMULATOR: self._limits.simulator.stop_grace_s}
        for role, grace_s in graces_s.items():
            if (child := self.left(role)) is not None:
                _stop(child, grace_s)
        self._project.remove()

    def close(self) -> None:
        """Stop reading the containers' output; they keep running."""
        for child in self._children.values():
            child.detach()
        self._shims.close()

    def _create(self, role: Role, service: str) -> Creation:
        log = self._spec.run.logs / "compose.log"
        begin = bytes_in(log)
        try:
            earlier = frozenset(self._engine.ids(self.project, service))
            # A command that was killed while it replaced a container leaves one whose name blocks the next.
            for each in earlier:
                self._engine.remove(each)
            # The agent's lifeline ends with the launcher, so the command doesn't outlive it.
            command = self._project.command(*UP, *WAITED_FOR[role], service)
            program = Program(Role.AGENT, command, log, CLI_GRACE_S, self._project.environment)
            return Creation(self._shims.start(program), earlier, log, begin)
        except EngineError as error:
            raise StartError(str(error)) from None
        except OSError as error:
            raise StartError(f"`docker compose` can't be started: {error.strerror}.") from None

    def _has(self, image: str) -> bool:
        try:
            return self._engine.has_image(image)
        except EngineError as error:
            raise StartError(str(error)) from None

    def _log_of(self, role: Role) -> Path:
        return self._spec.run.logs / f"{role.value}.log"

    def _variables(self) -> dict[str, str]:
        spec, (uid, gid) = self._spec, self._owner()
        variables = {
            "RUN_NAME": spec.run.path.resolve().name,
            "RUNS_DIR": str(spec.run.path.resolve().parent),
            "RUN_UID": str(uid),
            "RUN_GID": str(gid),
            "RESTART": "no",
            "AGENT_CONFIG": self.config_inside(),
            "AGENT_ARGS": shlex.join(spec.agent_options),
            "CARLA_QUALITY": self._quality,
            "CARLA_PORTS": f"{spec.port}-{spec.port + 2}",
        }
        if spec.simulator.gpu_stack:
            cards = zip(("CARLA_GPU", "AGENT_GPU"), spec.gpu_uuids, strict=True)
            variables |= {name: uuid for name, uuid in cards if uuid}
            if self.engine is not None and self.engine.runtime and not self._asks_for_a_runtime:
                variables["GPU_RUNTIME"] = self.engine.runtime
        if spec.simulator.arguments:
            variables["CARLA_FLAGS"] = shlex.join(spec.simulator.arguments)
        town = spec.simulator.town(self._limits.simulator)
        return {**variables, **({} if town is None else self._town(*town)), **self._more}

    def _town(self, name: str, seed: int) -> dict[str, str]:
        if "/" in name:
            raise StartError(
                f"The map {name} is a file of this machine, which no container can see: name a map of carla-lite, or "
                "one in the folder simulator.map_dir of the launcher's configuration."
            )
        folder = self._limits.simulator.map_dir
        return {"LITE_MAP": name, "LITE_SEED": str(seed)} | ({} if folder is None else {"LITE_MAP_DIR": str(folder)})

    def _owner(self) -> tuple[int, int]:
        """Return user and group of the run's files inside containers: the caller's; if that is root, the folder's."""
        if self.engine is not None and self.engine.rootless:
            return 0, 0  # the user that runs the engine
        if os.getuid() != 0:
            return os.getuid(), os.getgid()
        run = self._spec.run.path.resolve()
        folder = next(each for each in (run, *run.parents) if each.exists()).stat()
        return (folder.st_uid, folder.st_gid) if folder.st_uid != 0 else (CALLER, CALLER)

    def _chown_run(self) -> None:
        """Give a run directory that root made to the agent's user."""
        if os.getuid() == 0 and self._spec.command is None:
            uid, gid = self._owner()
            # By descriptors: a running container may replace a folder by a link at any moment.
            with folder_of(self._spec.run.path / "any") as run:
                for _, folders, files, folder in os.fwalk(".", dir_fd=run, follow_symlinks=False):
                    for name in (".", *folders, *files):
                        with contextlib.suppress(FileNotFoundError):
                            os.chown(name, uid, gid, dir_fd=folder, follow_symlinks=False)


def _stop(child: ComposeChild, grace_s: float) -> None:
    child.terminate()
    deadline_s = time.monotonic() + grace_s
    while child.poll() is None and time.monotonic() < deadline_s:
        time.sleep(POLL_S)
    if child.poll() is None:
        child.kill()
