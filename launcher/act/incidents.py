"""Which incident is being dealt with: findings, decisions, actions and outcome of one trouble carry one id.

Owns the ids (``i1``, ``i2``, …; the counter and the incident at hand lie in ``launcher.json``). While one is at hand,
the journal writes its id into every event. What is found wrong is ``Monitor``'s, what is done about it ``Repairs``'s.
"""

from __future__ import annotations

from launcher.act.journal import Journal


class Incidents:
    """The incident at hand, and the one whose repair is over only when the agent is warm again."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._unverified = journal.state.incident

    @property
    def under_repair(self) -> str:
        """The incident that something is being done about; what fails meanwhile belongs to it. Empty if none is."""
        return self._journal.state.incident or self._unverified

    def open(self) -> str:
        """Return a new id; it is on the disk before anything carries it."""
        self._journal.state.incidents += 1
        self._journal.save()
        return f"i{self._journal.state.incidents}"

    def handle(self, incident: str) -> str:
        """Have all events carry this id from now on; empty for none. Return the one before."""
        before, self._journal.state.incident = self._journal.state.incident, incident
        return before

    def agent_starts(self) -> None:
        """Take note that the agent is started again for the incident at hand, if one is."""
        self._unverified = self._journal.state.incident

    def verified(self) -> str:
        """Return the incident after which the agent has come back; empty if there was none, and from now on."""
        incident, self._unverified = self._unverified, ""
        return incident
