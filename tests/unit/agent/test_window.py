"""A window that can't be had is one sentence; one that can is a window (see also ``tests/wire/test_visual.py``)."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest

from carla_run.exits import Exit
from carla_td3.evaluation.window import NoWindowError, Window

SIZE = (64, 32)


def refusal(environment: dict[str, str]) -> str:
    with pytest.raises(NoWindowError) as refused:
        Window("test", SIZE, environment)
    assert refused.value.code is Exit.BAD_CONFIG
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_without_a_display_it_says_so() -> None:
    assert "there is no display here" in refusal({})


def test_without_pygame_it_says_what_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.import_module

    def absent(name: str, *more: Any) -> Any:
        if name == "pygame":
            raise ImportError(name)
        return real(name, *more)

    monkeypatch.setattr(importlib, "import_module", absent)
    assert "pip install '.[view]'" in refusal({"DISPLAY": ":0"})


def test_a_display_that_refuses_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pygame", reason="pygame-ce isn't installed: pip install '.[view]'")
    monkeypatch.setenv("DISPLAY", ":987")
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    monkeypatch.setenv("SDL_VIDEODRIVER", "x11")  # as it sets itself if it is unset
    assert "the display ':987' refuses" in refusal({"DISPLAY": ":987"})


def test_a_picture_goes_to_the_screen_and_escape_closes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    pygame = pytest.importorskip("pygame", reason="pygame-ce isn't installed: pip install '.[view]'")
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    window = Window("test", SIZE, {"DISPLAY": "any"})
    picture = np.zeros((32, 64, 3), np.uint8)
    picture[:, :, 2] = 200  # red, the last of three
    window.show(picture)
    assert pygame.display.get_surface().get_at((5, 5))[:3] == (200, 0, 0)
    pygame.event.post(pygame.event.Event(pygame.KEYDOWN, key=pygame.K_ESCAPE))
    window.show(picture)
    assert not window.is_open
    window.show(picture)
    window.close()
