"""Expected figures of a run, from its plan and the agent's configuration. Plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from carla_run.configuration.program_life import End

BandKey = tuple[str, str, str]
"""Owner (simulator, agent), name of pool, and the agent's phase: warming, updating, evaluating or empty for any."""


PHASES = {
    "warming": "warming",
    "collecting": "updating",
    "updating": "updating",
    "saving": "updating",
    "evaluating": "evaluating",
}
"""Lasting phases by the heartbeat's phase; collecting and updating alternate at every step."""
DRIVING = ("updating", "evaluating")
"""Lasting phases in which the agent drives."""


@dataclass(frozen=True)
class Expectations:
    """The agent's time-outs.

    Attributes:
        timeout_s: time after which the client gives up a call; infinite if no ticks are expected.
        collector_margin_s: time after that at which the agent replaces a hung collector itself.
        exits: what the agent's exit codes say; any other one is a crash.
        in_container: each start of the agent makes a container.
    """

    timeout_s: float
    collector_margin_s: float
    exits: Mapping[int, End]
    in_container: bool = False
