"""The Compose project of one run: its name, files, variables and commands.

Writes ``launcher.env`` in the run directory. Compose also reads ``.env``, which is never written.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from carla_launcher.act.compose.daemon_errors import explanation
from carla_launcher.act.runtime import StartError
from carla_launcher.places import STACK
from carla_run.files import write_whole
from carla_run.paths import RunPaths

COMPOSE_SINCE = (2, 24, 4)
"""The first release with the tags ``!override`` and ``!reset``, which docker-compose.lite.yml uses."""
LIMIT_S = 60.0
MOST_CHARACTERS = 1 << 20
"""Most characters of ``.env`` that are read."""


def name_of(run: RunPaths) -> str:
    """Return the project's name, which is unique for the run's directory."""
    path = run.path.resolve()
    readable = re.sub(r"[^a-z0-9]+", "-", path.name.lower()).strip("-")[:40]
    return f"carla-td3-{readable}-{hashlib.sha256(os.fsencode(path)).hexdigest()[:8]}"


class Project:
    """One run's containers and network. Touches no others.

    Args:
        files: Compose files in the stack's folder; later ones override earlier ones.
        stack: the folder of the Compose files.
    """

    def __init__(self, run: RunPaths, files: tuple[str, ...], stack: Path = STACK) -> None:
        self.name = name_of(run)
        self._files = files
        self._stack = stack.absolute()
        self._variables: dict[str, str] = {}
        self._environment = run.compose_variables

    def set(self, variables: Mapping[str, str]) -> None:
        """Set the variables of the next commands."""
        self._variables = dict(variables)

    def write(self, variables: Mapping[str, str]) -> None:
        """Set the variables of the next commands, and write them to a file for the user's commands."""
        self.set(variables)
        lines = [f"{name}={_quoted(value)}\n" for name, value in variables.items()]
        write_whole(self._environment, "# Written by the launcher at each start.\n" + "".join(lines))

    def command(self, *arguments: str) -> tuple[str, ...]:
        """Return a Compose command on this project."""
        env_files = [path for path in (self._stack / ".env", self._environment) if path.exists()]
        return (
            *("docker", "compose", "--progress", "quiet", "--project-name", self.name),
            *("--project-directory", str(self._stack)),
            *(part for path in env_files for part in ("--env-file", str(path))),
            *(part for file in self._files for part in ("--file", str(self._stack / file))),
            *arguments,
        )

    @property
    def environment(self) -> dict[str, str]:
        """Return the variables for a command's environment: a shell's variables would override those of a file."""
        return dict(self._variables)

    def build_command(self, *services: str) -> str:
        """Return the command that builds the images of services."""
        return " ".join(["docker compose", *(f"-f {file}" for file in self._files), "build", *services])

    def check_version(self) -> None:
        """Check that Compose is new enough and that the files exist.

        Raises:
            StartError: it isn't, or a file is missing.
        """
        if missing := [file for file in self._files if not (self._stack / file).is_file()]:
            raise StartError(
                f"{self._stack} has no {missing[0]}: the Compose stack needs a checkout of this project; "
                "name its folder with --stack, or use --runtime process."
            )
        said = _said("version", ("docker", "compose", "version", "--short"), {})
        version = tuple(int(part) for part in re.findall(r"\d+", said)[:3])
        if version < COMPOSE_SINCE:
            wanted = ".".join(map(str, COMPOSE_SINCE))
            raise StartError(f"Docker Compose is {said.strip()}, expected {wanted} or later: upgrade Docker's Compose.")

    def images(self) -> dict[str, str]:
        """Return the image of each service.

        Raises:
            StartError: a file or variable is wrong.
        """
        return {name: str(service["image"]) for name, service in self._services().items()}

    def memory_bytes(self) -> dict[str, int]:
        """Return the memory limit in bytes of each service that has one.

        Raises:
            StartError: as :meth:`images`.
        """
        limits = {name: int(service.get("mem_limit") or 0) for name, service in self._services().items()}
        return {name: limit for name, limit in limits.items() if limit > 0}

    def _services(self) -> dict[str, dict[str, Any]]:
        shown = _said("config", self.command("config", "--format", "json"), self._variables)
        services: dict[str, dict[str, Any]] = json.loads(shown)["services"]
        return services

    def remove(self) -> None:
        """Remove the project's containers and network. Can be repeated safely.

        Raises:
            StartError: the engine doesn't answer, or something can't be removed.
        """
        _said("down", self.command("down", "--timeout", "0"), self._variables)


def dotenv(stack: Path) -> dict[str, str]:
    """Return the variables in ``.env`` of the Compose files' folder; empty if there is none."""
    try:
        with (stack / ".env").open(encoding="utf-8", errors="replace") as file:
            lines = file.read(MOST_CHARACTERS).splitlines()
    except OSError:
        return {}
    pairs = (line.partition("=") for line in lines if "=" in line and not line.lstrip().startswith("#"))
    return {name.strip(): value.strip().strip("\"'") for name, _, value in pairs}


def setting(name: str, stack: Path, environment: Mapping[str, str] = os.environ) -> str:
    """Return a variable as Compose reads it: from the environment, else from ``.env``, else empty."""
    return environment.get(name) or dotenv(stack).get(name, "")


def _quoted(value: str) -> str:
    return '"' + re.sub(r'([\\"$])', r"\\\1", value) + '"'


def _said(what: str, command: tuple[str, ...], variables: Mapping[str, str]) -> str:
    """Return what a command, ``docker compose <what>``, printed.

    Raises:
        StartError: it can't be run, failed or took too long.
    """
    try:
        ended = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            timeout=LIMIT_S,
            env={**os.environ, **variables},
        )
    except FileNotFoundError:
        raise StartError("There is no `docker` command here: install Docker, or use --runtime process.") from None
    except subprocess.TimeoutExpired:
        raise StartError(
            f"`docker compose {what}` gave no answer for {LIMIT_S:.0f} s: check Docker's engine."
        ) from None
    if ended.returncode != 0:
        raise StartError(f"`docker compose {what}` failed: {explanation(ended.stderr)}.")
    return ended.stdout
