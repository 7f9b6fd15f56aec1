"""The saved drives of an evaluation, so that an interrupted one can resume.

Owns their file: one line with the settings of the drives, then one line per drive. Drives nothing, prints nothing.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from carla_run.event_log import JsonLines
from carla_run.keys import leaves
from carla_run.readers import inner, read_lines
from carla_td3.env.route import Route
from carla_td3.evaluation.metrics import Evaluation, RouteResult

DRIVER, SETTINGS = "driver", "settings"
_RESULT = TypeAdapter(RouteResult)


class KeptDrives:
    """Saved drives by driver and route. Drives with other settings are in another file.

    Args:
        beside: output file of the evaluation; this file's name begins with its name.
        settings: everything that would change a drive, as plain data.
    """

    def __init__(self, beside: Path, settings: Mapping[str, Any]) -> None:
        self._settings = settings
        digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:8]
        self._pattern = f"{beside.stem}.drives-*.jsonl"
        self.path = beside.with_name(self._pattern.replace("*", digest))
        self._lines = JsonLines(self.path)
        self._driven = {(driver, result.route): result for driver, result in _drives(self.path)}

    def __len__(self) -> int:
        return len(self._driven)

    def of(self, driver: str) -> dict[str, RouteResult]:
        """Return a driver's drives by route. Another thread may add one meanwhile."""
        return {route: result for (name, route), result in tuple(self._driven.items()) if name == driver}

    def add(self, driver: str, result: RouteResult) -> None:
        """Save a drive. If the disk refuses it, a message is printed once and the drive counts only in this process."""
        self._driven[driver, result.route] = result  # first: the table that another thread writes has what the file has
        with contextlib.suppress(OSError):
            self.path.parent.mkdir(parents=True, exist_ok=True)
        if not self.path.exists():
            self._lines.append({SETTINGS: self._settings})
        self._lines.append({DRIVER: driver, **dataclasses.asdict(result)})

    def so_far(self, drivers: Sequence[str], routes: Sequence[Route], map: str, seed: int) -> list[Evaluation]:
        """Return an evaluation of each driver that has driven some of the routes."""
        found = [(driver, self.of(driver)) for driver in drivers]
        results = [(driver, tuple(own[route.name] for route in routes if route.name in own)) for driver, own in found]
        return [Evaluation(driver, map, seed, own) for driver, own in results if own]

    def others(self) -> Iterator[tuple[Path, int, list[str]]]:
        """Yield the files with other settings beside this one: path, number of drives, and the settings that differ."""
        ours = dict(leaves(self._settings))
        for path in sorted(set(self.path.parent.glob(self._pattern)) - {self.path}):
            theirs = dict(leaves(inner(next(iter(read_lines(path)), {}), SETTINGS)))
            yield path, len(list(_drives(path))), [key for key in ours if theirs.get(key) != ours[key]]

    def remove(self) -> None:
        """Remove the file once the evaluation is complete and written."""
        self.path.unlink(missing_ok=True)


def _drives(path: Path) -> Iterator[tuple[str, RouteResult]]:
    """Yield drivers and their drives; torn lines and lines of other versions are skipped."""
    for row in read_lines(path):
        with contextlib.suppress(ValidationError, KeyError):
            yield str(row.pop(DRIVER)), _RESULT.validate_python(row)
