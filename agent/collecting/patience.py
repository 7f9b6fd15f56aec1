"""How many collectors in a row may end without having done anything, before the run gives up.

Owns the count and the sentence. Knows no process.
"""

from __future__ import annotations

from pathlib import Path

from agent.exits import AgentError
from contract.exits import Exit


class Patience:
    """A chance event ends one collector; what ends each of them is no chance.

    Args:
        attempts: fruitless collectors in a row that end the run.
        log: where they say why, for the sentence.
    """

    def __init__(self, attempts: int, log: Path) -> None:
        self._attempts = attempts
        self._log = log
        self._fruitless = 0
        self._steps = 0

    def begin(self, steps: int) -> None:
        """Note the steps that a new collector starts with."""
        self._steps = steps

    def rewarded(self) -> None:
        """Note that the present collector did something else than steps: an evaluation."""
        self._fruitless = 0

    def ended(self, cause: str, steps: int) -> None:
        """Count a collector that ended.

        Raises:
            AgentError: it was the last one of too many that did nothing (exit 1).
        """
        self._fruitless = 0 if steps > self._steps else self._fruitless + 1
        if self._fruitless >= self._attempts:
            raise AgentError(
                f"The collector ended {self._fruitless} times in a row without a finished step (last: {cause}): "
                f"{self._log} has what it said.",
                Exit.CRASH,
            )
