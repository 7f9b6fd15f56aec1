"""A desktop window that shows pictures as they are made, by pygame-ce (the extra ``view``).

Owns the window. If there is no display, or it refuses, the error is one sentence.
"""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from carla_run.exits import Exit
from carla_td3.exits import AgentError


class NoWindowError(AgentError):
    """No window can be opened; the message is one sentence for a person."""

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence, Exit.BAD_CONFIG)


class Window:
    """Opens at once. Once its user has closed it, :meth:`show` does nothing.

    Args:
        title: of the window.
        size: width and height of the pictures.

    Raises:
        NoWindowError: there is no display, no pygame-ce, or the display refuses.
    """

    def __init__(self, title: str, size: tuple[int, int], environment: Mapping[str, str] = os.environ) -> None:
        display = environment.get("DISPLAY") or environment.get("WAYLAND_DISPLAY")
        if not display:
            raise NoWindowError("No window: there is no display here (DISPLAY isn't set).")
        os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
        # Named, because SDL would otherwise fall back to a driver that shows nothing, without an error.
        os.environ.setdefault("SDL_VIDEODRIVER", "wayland,x11" if environment.get("WAYLAND_DISPLAY") else "x11")
        try:
            self._pygame: Any = importlib.import_module("pygame")
        except ImportError:
            raise NoWindowError("No window: it needs pygame-ce, which `pip install '.[view]'` brings.") from None
        try:
            self._pygame.display.init()
            self._screen: Any = self._pygame.display.set_mode(size)
            self._pygame.display.set_caption(title)
        except self._pygame.error as error:
            raise NoWindowError(f"No window: the display {display!r} refuses ({error}).") from None

    @property
    def is_open(self) -> bool:
        """Whether the window is open."""
        return self._screen is not None

    def show(self, picture: NDArray[np.uint8]) -> None:
        """Show a picture, (height, width, 3), blue first; Escape or the close button closes the window."""
        if not self.is_open:
            return
        pygame = self._pygame
        closed = any(
            event.type == pygame.QUIT or (event.type == pygame.KEYDOWN and event.key == pygame.K_ESCAPE)
            for event in pygame.event.get()
        )
        if closed:
            self.close()
            return
        height, width = picture.shape[:2]
        try:
            self._screen.blit(pygame.image.frombuffer(picture.tobytes(), (width, height), "BGR"), (0, 0))
            pygame.display.flip()
        except pygame.error:  # the display is gone, and the viewer with it
            self.close()

    def close(self) -> None:
        """Close it."""
        self._screen = None
        with contextlib.suppress(self._pygame.error):
            self._pygame.display.quit()
