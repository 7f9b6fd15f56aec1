"""The agent's sizes, as far as they were asked for: looked up at once, asked for in a thread beside.

Owns that thread. A decision only ever looks up; for what isn't known yet, the ladder's own figures stand.
"""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from carla_launcher.resolve.footprint import FootprintError
from carla_launcher.sizes import Sizes, SizesOf, Values, key_of


class AgentSizes:
    """The sizes of sets of values, each with ``device``."""

    def __init__(self, sizes_of: SizesOf) -> None:
        """Remember whom to ask.

        Args:
            sizes_of: may start a process and raise ``FootprintError``; called from one thread at a time.
        """
        self._sizes_of = sizes_of
        self._known: dict[str, Sizes] = {}
        self._thread = ThreadPoolExecutor(1, "agent-sizes")
        self._newest: Future[None] | None = None

    def look_up(self, variants: Sequence[Values]) -> list[Sizes]:
        """Return what is known of each.

        Raises:
            FootprintError: one hasn't been answered yet, or can't be.
        """
        try:
            return [self._known[key_of(values)] for values in variants]
        except KeyError as missing:
            raise FootprintError(f"It isn't known yet what the agent takes with {missing}.") from None

    def ask(self, variants: Sequence[Values], wait: bool = False) -> None:
        """Ask for what isn't known, instead of what was asked for before and isn't being answered yet.

        One that fails is asked for again the next time.
        """
        if self._newest is not None:
            self._newest.cancel()
        if wanted := {key: each for each in variants if (key := key_of(each)) not in self._known}:
            with contextlib.suppress(RuntimeError):  # this machine has no room for a thread
                self._newest = self._thread.submit(self._answer, wanted)
                if wait:
                    self._newest.result()

    def close(self) -> None:
        """Return when no question is out: nothing that was started to answer one is left."""
        self._thread.shutdown()

    def _answer(self, wanted: Mapping[str, Values]) -> None:
        try:
            self._known |= dict(zip(wanted, self._sizes_of(list(wanted.values())), strict=True))
        except FootprintError:
            pass
        except Exception:  # a mistake of ours costs this answer, not all later ones
            traceback.print_exc()
