"""The launcher's side of ``request.json`` and ``overrides.yaml`` (DESIGN.md, "Requests").

Owns what it writes to these two files. The agent answers in ``request.ack.json``; waiting is the supervisor's.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from contract.files import write_whole
from contract.paths import RunPaths
from contract.readers import read_lines, read_object


@dataclass(frozen=True)
class Answer:
    """What the agent said to a request."""

    ok: bool
    sentence: str
    steps: int


class AgentRequests:
    """Requests to the agent of one run; ids go on from whatever was asked before, by whomever."""

    def __init__(self, run: RunPaths) -> None:
        self._run = run

    def send(self, kind: str, values: Mapping[str, Any] | None = None) -> int:
        """Ask, and return the request's id.

        Raises:
            OSError: the run directory can't be written.
        """
        ids = [read_object(path).get("id") for path in (self._run.request, self._run.answer)]
        number = 1 + max((each for each in ids if isinstance(each, int)), default=0)
        asked = {"id": number, "kind": kind, **({"values": dict(values)} if values else {})}
        write_whole(self._run.request, json.dumps(asked))
        return number

    def answer(self, number: int) -> Answer | None:
        """Return the answer to a request, None while there is none."""
        found = read_object(self._run.answer)
        if found.get("id") != number:
            return None
        return Answer(found.get("result") == "ok", str(found.get("sentence", "")), int(found.get("steps") or 0))

    def lay(self, values: Mapping[str, Any]) -> None:
        """Write ``overrides.yaml`` whole; without values it goes.

        Raises:
            OSError: the run directory can't be written.
        """
        if values:
            write_whole(self._run.overrides, yaml.safe_dump(dict(values), sort_keys=False))
        else:
            self._run.overrides.unlink(missing_ok=True)

    def started_with(self) -> dict[str, Any]:
        """Return the overrides with which the agent last started, as its own events tell."""
        starts = [row for row in read_lines(self._run.agent_events) if row.get("event") in ("started", "resumed")]
        found = starts[-1].get("overrides") if starts else None
        return found if isinstance(found, dict) else {}
