"""The live page in a real browser: its camera and its buttons, and what it says once its server is gone."""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path

import cv2
import numpy as np
import pytest

from carla_run.paths import RunPaths
from tests.browser import Browser, Tab, browsing, needs_chromium
from tests.unit.launcher.served import TOKEN, Page, folder

pytestmark = needs_chromium

CAPTION = "document.getElementById('age').innerText"
STATE = {
    **{"frame": 3030, "town": "Lite01", "car": [1.0, 2.0, 3.0], "speed_mps": 4.0, "route": [], "others": []},
    **{"steer": 0.1, "throttle": 0.5, "brake": 0.0, "reward": 0.2, "reward_terms": {}, "route_completion": 0.3},
    **{"end": None, "lights": []},
}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with browsing() as browser:
        yield browser


@pytest.fixture
def run(tmp_path: Path) -> RunPaths:
    return folder(tmp_path / "night")


@contextlib.contextmanager
def served(run: RunPaths, port: int = 0) -> Iterator[Page]:
    page = Page(run, port=port)
    try:
        yield page
    finally:
        page.close()


def drive(run: RunPaths, at_s: float) -> None:
    """Leave a frame of this time, all white."""
    run.live_state.write_text(json.dumps({"time": at_s, **STATE}))
    run.live_frame.write_bytes(cv2.imencode(".jpg", np.full((40, 40, 3), 255, np.uint8))[1].tobytes())


def opened(browser: Browser, page: Page) -> Tab:
    tab = browser.tab()
    tab.see()
    go(tab, page)
    return tab


def go(tab: Tab, page: Page) -> None:
    tab.go(f"http://127.0.0.1:{page.port}/?token={TOKEN}")
    tab.until("!!document.querySelector('#figures dl')")


def shown(name: str) -> str:
    return f"!document.getElementById('{name}').hidden && document.getElementById('{name}').innerText"


def test_a_lost_server_is_not_taken_for_an_ended_run(browser: Browser, run: RunPaths) -> None:
    with served(run) as page:
        tab = opened(browser, page)
    assert "the run itself may go on" in tab.until(shown("lost"))
    with served(run, page.port):
        assert "open the address that dashboard" in tab.until(shown("barred"))
        assert not tab.run(shown("lost"))


def test_the_last_picture_stays_and_looks_old(browser: Browser, run: RunPaths) -> None:
    drive(run, time.time())
    with served(run) as page:
        tab = opened(browser, page)
        tab.until("!document.getElementById('camera').hidden")
    tab.until(shown("lost"))
    tab.until("!document.getElementById('last').hidden && !!document.querySelector('.frame.stale')")
    assert tab.run("[...document.getElementById('last').getContext('2d').getImageData(9, 9, 1, 1).data]") == [255] * 4
    assert not tab.run(shown("camera"))
    assert not tab.run(shown("dark"))
    assert tab.run(CAPTION).endswith(" s ago")


def test_a_picture_without_a_successor_is_shown(browser: Browser, run: RunPaths) -> None:
    drive(run, time.time() - 60)
    with served(run) as page:
        opened(browser, page).until("!document.getElementById('camera').hidden")


def test_the_servers_clock_tells_a_pictures_age(browser: Browser, run: RunPaths) -> None:
    drive(run, time.time() + 60)  # fresh for as long as the test may take
    with served(run) as page:
        tab = browser.tab()
        tab.call("Page.addScriptToEvaluateOnNewDocument", source="const now = Date.now; Date.now = () => now() + 1e7")
        go(tab, page)
        tab.until(f"{CAPTION} === 'frame 3030'")
        assert not tab.run("!!document.querySelector('.stale')")


def test_an_old_pictures_age_has_the_figures_words(browser: Browser, run: RunPaths) -> None:
    drive(run, time.time() - 1094)
    with served(run) as page:
        assert re.fullmatch(r"18 min \d\d s ago", opened(browser, page).until(CAPTION))


def test_only_buttons_that_are_served_are_seen(browser: Browser, tmp_path: Path) -> None:
    run = RunPaths(tmp_path / "drive")
    run.live.mkdir(parents=True)
    seen = "[...document.querySelectorAll('[data-do]')].filter((each) => !each.hidden).map((each) => each.dataset.do)"
    with served(run) as page:
        tab = opened(browser, page)
        assert tab.run(seen) == []
        run.launcher_lock.touch()
        tab.until(f"String({seen}) === 'stop'")
        run.learner_lock.touch()
        tab.until(f"{seen}.length === 4")
