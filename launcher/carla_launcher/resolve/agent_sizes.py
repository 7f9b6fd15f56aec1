"""What the agent takes, as far as it was asked: looked up at once, asked for in a thread of its own.

Owns that thread. A decision only ever looks up; for what isn't known yet, the ladder's own figures stand.
"""

from __future__ import annotations

import contextlib
import threading
import traceback
from collections.abc import Sequence

from carla_launcher.decide.sizes import Sizes, SizesOf, Values, key_of
from carla_launcher.resolve.footprint import FootprintError


class AgentSizes:
    """The sizes of sets of values, each with ``device``."""

    def __init__(self, sizes_of: SizesOf) -> None:
        """Remember whom to ask.

        Args:
            sizes_of: may start a process and raise ``FootprintError``; called from one thread at a time.
        """
        self._sizes_of = sizes_of
        self._known: dict[str, Sizes] = {}
        self._wanted: dict[str, Values] = {}
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

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
        """Ask for what isn't known; ``wait`` for the answer. One that fails is asked for again the next time."""
        with self._lock:
            self._wanted = {key: each for each in variants if (key := key_of(each)) not in self._known}
            if self._wanted and self._thread is None:
                thread = threading.Thread(target=self._answer, name="agent-sizes", daemon=True)
                with contextlib.suppress(RuntimeError):  # this machine has no room for a thread
                    thread.start()
                    self._thread = thread
        if wait:
            self.close()

    def close(self) -> None:
        """Return when no question is out: nothing that was started to answer one is left."""
        if (thread := self._thread) is not None:
            thread.join()

    def _answer(self) -> None:
        while True:
            with self._lock:
                wanted, self._wanted = self._wanted, {}
                if not wanted:
                    self._thread = None
                    return
            try:
                found = self._sizes_of(list(wanted.values()))
                self._known |= dict(zip(wanted, found, strict=True))
            except FootprintError:
                pass
            except Exception:  # a mistake of ours costs this answer, not all later ones
                traceback.print_exc()
