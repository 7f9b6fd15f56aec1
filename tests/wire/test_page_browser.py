"""The live page in a real browser: its camera and its buttons, and what it says once its server is gone."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from carla_run.paths import RunPaths
from tests.browser import Browser, Tab, browsing, needs_chromium
from tests.unit.launcher.served import TOKEN, Page, folder

pytestmark = needs_chromium


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


def opened(browser: Browser, page: Page) -> Tab:
    tab = browser.tab()
    tab.see()
    tab.go(f"http://127.0.0.1:{page.port}/?token={TOKEN}")
    tab.until("!!document.querySelector('#figures dl')")
    return tab


def shown(name: str) -> str:
    return f"!document.getElementById('{name}').hidden && document.getElementById('{name}').innerText"


def test_a_lost_server_is_not_taken_for_an_ended_run(browser: Browser, run: RunPaths) -> None:
    with served(run) as page:
        tab = opened(browser, page)
    assert "the run itself may go on" in tab.until(shown("lost"))
    with served(run, page.port):
        assert "open the address that dashboard" in tab.until(shown("barred"))
        assert not tab.run(shown("lost"))
