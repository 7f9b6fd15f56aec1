"""The launcher's requests to the agent (``request.json``) and ``overrides.yaml``. Doesn't wait for answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from carla_run import requests
from carla_run.files import write_whole
from carla_run.paths import RunPaths
from carla_run.readers import read_lines
from carla_run.requests import Answer, Requester


class AgentRequests:
    """Requests to the agent of one run. Ids continue those of earlier requests."""

    def __init__(self, run: RunPaths) -> None:
        self._run = run

    @property
    def tells_how_it_ended(self) -> bool:
        """Whether an agent that was stopped says so by another exit code than one that has finished."""
        return True

    def send(self, kind: str, values: Mapping[str, Any] | None = None) -> int:
        """Send a request, and return its id.

        Raises:
            OSError: the run directory can't be written.
        """
        return requests.write_request(self._run, kind, values, Requester.LAUNCHER)

    def answer(self, number: int) -> Answer | None:
        """Return the answer to a request; None while there is none."""
        return requests.answer_to(self._run, number)

    def drained_by_person(self) -> bool:
        """Return whether the last request was a user's drain: the agent then waits for the user's resume."""
        return requests.drained_by_person(self._run)

    def write_overrides(self, values: Mapping[str, Any]) -> None:
        """Write ``overrides.yaml``; without values remove it.

        Raises:
            OSError: the run directory can't be written.
        """
        if values:
            write_whole(self._run.overrides, yaml.safe_dump(dict(values), sort_keys=False))
        else:
            self._run.overrides.unlink(missing_ok=True)

    def started_with(self) -> dict[str, Any]:
        """Return the overrides with which the agent last started, from its events."""
        starts = [row for row in read_lines(self._run.agent_events) if row.get("event") in ("started", "resumed")]
        found = starts[-1].get("overrides") if starts else None
        return found if isinstance(found, dict) else {}
