"""To which phase the memory counts that a program was seen to hold. Pure.

A heartbeat is up to a second old, so it may still name the phase before: memory counts to a phase once a later
heartbeat names the same one.
"""

from __future__ import annotations

from collections.abc import Mapping

from carla_launcher.decide.detectors.expectations import PHASES
from carla_launcher.observe.pools import PoolKind
from carla_run.configuration.program_file import UPDATING
from carla_run.heartbeat import Heartbeat

Held = Mapping[PoolKind, float]
"""MiB by kind of pool."""


def lasting_phase(beat: Heartbeat | None) -> str:
    """Return the lasting phase that a heartbeat names; updating without one."""
    return UPDATING if beat is None else PHASES.get(beat.phase, UPDATING)


class PhasePeak:
    """The memory that was seen since the last heartbeat but one."""

    def __init__(self) -> None:
        self._phase, self._time_s = "", 0.0
        self._held: Held = {}

    def look(self, beat: Heartbeat | None, held: Held) -> Held:
        """Take what is held now; return the most that surely counts to the heartbeat's phase, empty for nothing new."""
        phase, time_s = lasting_phase(beat), 0.0 if beat is None else beat.time
        same, before = phase == self._phase, self._held
        self._phase = phase
        if same and time_s == self._time_s:
            self._held = {kind: max(mib, before.get(kind, 0.0)) for kind, mib in held.items()}
            return {}
        self._time_s, self._held = time_s, held
        return before if same else {}
