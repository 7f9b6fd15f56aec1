"""The live page of a real run in a real browser: it moves, tells of a rung, keeps others out, and its button stops."""

from __future__ import annotations

import functools
import http.server
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import cv2
import numpy as np
import pytest

from tests.browser import Browser, browsing, needs_chromium
from tests.wire.launched import ENDLESS, Launch, Launched, own_limits
from tests.wire.staged import ask, press, pressing, settings

pytestmark = [pytest.mark.long, needs_chromium]

STEP = "[...document.querySelectorAll('#figures dt')].find((tile) => tile.innerText === 'step')?.nextSibling.innerText"


@pytest.fixture
def browser() -> Iterator[Browser]:
    with browsing() as browser:
        yield browser


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[str]:
    """The address of a page on another port of this machine, to which a browser gives the same cookies."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "index.html").write_text("<!doctype html><title>elsewhere</title>")
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(tmp_path / "elsewhere"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def address_of(run: Launched) -> str:
    """Return the page's address, as its user finds it: in the file that the launcher names."""
    assert run.process.stdout is not None
    for line in run.process.stdout:
        if found := re.search(r"live page: its address is in (.+)", line):
            threading.Thread(target=run.process.stdout.read, daemon=True).start()  # a full pipe would hold it up
            return Path(found[1]).read_text(encoding="utf-8").strip()
    raise AssertionError("it said nothing of a page")


def pixels(png: bytes) -> np.ndarray:
    found = cv2.imdecode(np.frombuffer(png, np.uint8), cv2.IMREAD_COLOR)
    assert found is not None
    return np.asarray(found)[100:500, :400]


def test_a_run_is_seen_and_stopped_in_a_browser(
    launch: Launch, tmp_path: Path, browser: Browser, elsewhere: str
) -> None:
    limits = own_limits(tmp_path, pressing(tmp_path, micro_batch=4))
    run = launch(ENDLESS, "--dashboard-port", "0", *limits, *settings(environment__traffic__vehicles=5))
    address = address_of(run)
    plain, _, token = address.partition("?")

    stranger = browser.tab()
    stranger.go(f"{plain}?{token}x")
    assert "ends with a token" in stranger.until("document.body.innerText")

    tab = browser.tab()
    tab.see()
    tab.go(address)
    tab.until("document.title === 'test'")
    assert token not in tab.run("location.href + document.documentElement.outerHTML")
    run.until_training()

    first = tab.until(STEP)
    tab.until(f"{STEP} !== {first!r}")
    tab.until("!document.getElementById('camera').hidden")
    before = pixels(tab.screenshot(tmp_path / "driving.png"))
    frame = tab.run("document.getElementById('age').innerText")
    tab.until(f"document.getElementById('age').innerText !== {frame!r}")
    assert (pixels(tab.screenshot()) != before).any()
    tab.until("document.getElementById('route').getAttribute('d')")
    tab.until("document.getElementById('lanes').getAttribute('d')")

    tab.until("document.querySelector('#rungs')?.innerText.includes('micro_batch')")
    press(run, tmp_path)
    tab.until("document.querySelector('#figures').innerText.includes('micro_batches (td3.micro_batch = 4)')")
    tab.until("!!document.querySelector('#memory path[stroke=\"var(--down)\"]')")

    other = browser.tab()
    other.go(elsewhere)
    other.until("document.title === 'elsewhere'")
    ask_to_stop = f"fetch('{plain}do/stop', {{method: 'POST', credentials: 'include', mode: 'no-cors'}})"
    # Whether it hears of a refusal is the browser's to choose; the answer may not be read from there.
    assert other.run(f"{ask_to_stop}.then(() => 'asked', () => 'refused')") in ("asked", "refused")
    other.go("about:blank")
    run.until_stepping()

    tab.call("Page.bringToFront")
    tab.run("document.querySelector('[data-do=stop]').click()")
    tab.until("document.getElementById('sure').open")
    tab.run("document.querySelector('#sure .grave').click()")
    assert run.process.wait(120) == 75
    assert "The run ended: the agent stopped on request" in tab.until(
        "document.querySelector('.ending')?.innerText || !document.getElementById('lost').hidden && 'lost'"
    )
    assert run.beat["exit_code"] == 75
    assert (run.run / "checkpoints" / "latest").exists()
    # Refusals and the end of the page's process are meant; what a script or the page's policy complains of is not.
    assert [text for text in browser.problems if not text.startswith("Failed to load resource")] == []


def test_a_persons_drain_lasts_until_a_person_ends_it(launch: Launch, tmp_path: Path, browser: Browser) -> None:
    run = launch(ENDLESS, "--dashboard-port", "0")
    address = address_of(run)
    tab = browser.tab()
    tab.go(address)
    run.until_training()
    tab.until("!document.querySelector('[data-do=drain]').disabled")
    tab.run("document.querySelector('[data-do=drain]').click()")
    tab.until("document.getElementById('said').innerText.includes('the agent waits for resume')")
    run.until(lambda: run.beat["phase"] == "drained")
    ticks = run.beat["ticks"]
    tab.run("new Promise((done) => setTimeout(done, 9000))")  # longer than what the launcher lets things settle for
    assert (run.beat["phase"], run.beat["ticks"]) == ("drained", ticks)
    assert not run.events("simulator_restart")
    tab.until("!document.querySelector('[data-do=resume]').disabled")
    tab.run("document.querySelector('[data-do=resume]').click()")
    run.until_stepping()
    ask(run, "checkpoint", {})
    run.stop()
