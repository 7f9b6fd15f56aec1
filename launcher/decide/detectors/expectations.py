"""What a run is expected to do and hold: the figures that its plan and the agent's configuration give. Plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

BandKey = tuple[str, str, str]
"""Owner (simulator, agent), name of pool, phase: the agent's warming, updating or evaluating; empty for any."""


@dataclass(frozen=True)
class Expectations:
    """What diagnosis measures against.

    Attributes:
        timeout_s: the agent's ``simulator.timeout_s``: the client gives a call up after it.
        collector_margin_s: the agent's ``collector.hang_margin_s``: so much later it replaces its collector itself.
        external: somebody else runs the simulator, which should be ready at once.
        lite: it is carla-lite, which starts sooner than CARLA.
        bands_mib: what an owner is expected to hold; one that is missing is known once it has been measured.
    """

    timeout_s: float
    collector_margin_s: float
    external: bool = False
    lite: bool = False
    bands_mib: Mapping[BandKey, float] = field(default_factory=dict)

    def band_mib(self, owner: str, pool: str, phase: str) -> float | None:
        """Return what is expected in a phase, or in any; None if the plan doesn't say."""
        return self.bands_mib.get((owner, pool, phase), self.bands_mib.get((owner, pool, "")))
