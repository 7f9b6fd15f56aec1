"""What a run is expected to do and hold: the figures that its plan and the agent's configuration give. Plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from carla_run.configuration.program_life import End

BandKey = tuple[str, str, str]
"""Owner (simulator, agent), name of pool, phase: the agent's warming, updating or evaluating; empty for any."""


PHASES = {
    "warming": "warming",
    "collecting": "updating",
    "updating": "updating",
    "saving": "updating",
    "evaluating": "evaluating",
}
"""The agent's phases that last, by the heartbeat's word: collecting and updating change places at every step."""
DRIVING = ("updating", "evaluating")
"""Those of them in which it drives."""


@dataclass(frozen=True)
class Expectations:
    """What diagnosis measures against.

    Attributes:
        timeout_s: of the agent's configuration: the client gives a call up after it.
        collector_margin_s: likewise: so much later it replaces its collector itself.
        exits: what the agent's exit codes say; any other one is a crash.
    """

    timeout_s: float
    collector_margin_s: float
    exits: Mapping[int, End]
