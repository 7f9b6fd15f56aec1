"""A cache of the agent's sizes, which a thread fills.

Decisions only read the cache. For sizes that aren't known yet they use the configured figures of the ladder.
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
        """Start with an empty cache.

        Args:
            sizes_of: may start a process and raise ``FootprintError``; called from one thread at a time.
        """
        self._sizes_of = sizes_of
        self._known: dict[str, Sizes] = {}
        self._thread = ThreadPoolExecutor(1, "agent-sizes")
        self._newest: Future[None] | None = None

    def look_up(self, variants: Sequence[Values]) -> list[Sizes]:
        """Return the sizes of each set of values.

        Raises:
            FootprintError: one of them isn't known.
        """
        try:
            return [self._known[key_of(values)] for values in variants]
        except KeyError as missing:
            raise FootprintError(f"The agent's memory with {missing} isn't known yet.") from None

    def ask(self, variants: Sequence[Values], wait: bool = False) -> None:
        """Request sizes that aren't known; earlier requests that haven't begun are dropped.

        A failed request is repeated the next time.
        """
        if self._newest is not None:
            self._newest.cancel()
        if wanted := {key: each for each in variants if (key := key_of(each)) not in self._known}:
            with contextlib.suppress(RuntimeError):  # this machine has no room for a thread
                self._newest = self._thread.submit(self._answer, wanted)
                if wait:
                    self._newest.result()

    def close(self) -> None:
        """Wait until no request runs."""
        self._thread.shutdown()

    def _answer(self, wanted: Mapping[str, Values]) -> None:
        try:
            self._known |= dict(zip(wanted, self._sizes_of(list(wanted.values())), strict=True))
        except FootprintError:
            pass
        except Exception:  # a mistake of ours costs this answer, not all later ones
            traceback.print_exc()
