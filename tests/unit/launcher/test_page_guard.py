"""The live page against strangers: without the token, from another site, by odd paths, in crowds, and asleep."""

from __future__ import annotations

import contextlib
import re
import socket
import time
from collections.abc import Iterator

import pytest

from carla_launcher.plugins.page import server
from carla_run.locks import Lock
from tests.crowd import PATIENCE_S, until
from tests.unit.launcher.served import TOKEN, Page, folder

PLACES = ("/", "/parts", "/state", "/map", "/camera", "/page.js", "/page.css", "/do/stop")


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    run = folder(tmp_path_factory.mktemp("runs") / "night")
    served = Page(run)
    lock = Lock(run.learner_lock)  # an agent that would take a request
    yield served
    lock.release()
    served.close()


@pytest.fixture(autouse=True)
def _nobody_was_asked(page: Page) -> Iterator[None]:
    yield
    assert not page.run.request.exists()


def test_the_token_gives_a_cookie_that_no_script_gets(page: Page) -> None:
    welcome = page.ask(f"/?token={TOKEN}")
    given = welcome.headers["set-cookie"]
    assert welcome.status == 200
    assert "httponly" in given.lower()
    assert "samesite=strict" in given.lower()
    assert str(page.port) in given.split("=")[0]  # two runs' pages are one site
    assert TOKEN not in welcome.body + given
    assert page.ask("/", cookie=page.cookie).status == 200


@pytest.mark.parametrize("path", PLACES)
def test_without_token_or_cookie_there_is_nothing(page: Page, path: str) -> None:
    method = "POST" if path.startswith("/do/") else "GET"
    own = {**page.own, "cookie": "other=1"}
    for headers in (own, {**own, "cookie": page.cookie[:-1]}, {**own, "referer": f"http://127.0.0.1/?token={TOKEN}"}):
        refused = page.ask(path, method, **headers)
        assert refused.status == 401
        assert "night" not in refused.body
        assert "set-cookie" not in refused.headers


@pytest.mark.parametrize("path", ["/?token=", "/?token=a", f"/?token={TOKEN}x", f"/parts?token={TOKEN}", "/?token=%ff"])
def test_a_wrong_token_or_one_in_the_wrong_place_gives_no_cookie(page: Page, path: str) -> None:
    refused = page.ask(path)
    assert refused.status == 401
    assert "set-cookie" not in refused.headers


@pytest.mark.parametrize("path", PLACES)
def test_another_host_name_is_refused(page: Page, path: str) -> None:
    for host in (f"evil.example:{page.port}", "127.0.0.1.evil.example", "[::1", "", "127.0.0.1@evil.example"):
        assert page.ask(path, host=host, cookie=page.cookie).status in (400, 403), host
    assert page.ask(f"/?token={TOKEN}", host="evil.example").status == 403


def test_a_tunnel_may_have_another_port_at_its_other_end(page: Page) -> None:
    assert page.ask("/", host="localhost:9000", cookie=page.cookie).status == 200


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:1", "https://127.0.0.1:{port}"])
@pytest.mark.parametrize("path", ["/do/stop", "/do/checkpoint", "/parts"])
def test_another_sites_page_can_not_ask_on_its_visitors_behalf(page: Page, path: str, origin: str) -> None:
    method = "POST" if path.startswith("/do/") else "GET"
    assert page.ask(path, method, **{**page.own, "origin": origin.format(port=page.port)}).status == 403


def test_what_asks_for_something_must_say_where_it_comes_from(page: Page) -> None:
    assert page.ask("/do/stop", "POST", cookie=page.cookie).status == 403
    assert page.ask("/do/stop", "POST", **{**page.own, "sec_fetch_site": "cross-site"}).status == 403
    assert page.ask("/do/stop", **page.own).status == 405  # a picture's address, say


def test_the_page_runs_its_own_script_only(page: Page) -> None:
    shown = page.ask("/", cookie=page.cookie)
    policy = shown.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert shown.headers["referrer-policy"] == "no-referrer"
    assert not re.search(r"\son\w+\s*=", shown.body)  # no handler in the markup
    assert "style=" not in shown.body
    assert "//" not in shown.body  # nothing of another host


@pytest.mark.parametrize(
    "path",
    [
        *("/../agent.json", "/%2e%2e/agent.json", "/..%2fagent.json", "//etc/passwd", "/camera/../../agent.json"),
        *("/agent.json", "/live/state.json", "/page.css/../../page.py", "/etc/passwd", "/do/..%2f..%2fetc%2fpasswd"),
    ],
)
def test_no_path_leads_to_a_file(page: Page, path: str) -> None:
    answered = page.ask(path, **page.own)
    assert answered.status in (400, 404, 405)
    assert "updating" not in answered.body
    assert "root:" not in answered.body


def test_a_crowd_that_says_nothing_keeps_nobody_out_for_longer(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "REQUEST_S", 1.0)
    cookie = page.cookie
    crowd = [socket.create_connection(("127.0.0.1", page.port)) for _ in range(server.MAX_CONNECTIONS + 20)]
    for each in crowd[::2]:
        each.sendall(b"GET / HTTP/1.1\r\nHost: 127.0")
    until(lambda: page.ask("/parts", cookie=cookie).status == 200)
    for each in crowd:
        each.settimeout(PATIENCE_S)
        assert each.recv(100)[9:12] in (b"", b"503")
        each.close()


def test_a_reader_that_falls_asleep_is_left(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "SLOW_S", 0.5)
    cookie = page.cookie
    page.run.live_frame.write_bytes(bytes(8_000_000))
    asleep = socket.create_connection(("127.0.0.1", page.port))
    asleep.sendall(f"GET /camera HTTP/1.1\r\nHost: 127.0.0.1\r\nCookie: {cookie}\r\n\r\n".encode())
    time.sleep(2.0)  # asleep for longer than it may be
    assert page.ask("/state", cookie=cookie).status == 204
    asleep.settimeout(PATIENCE_S)
    taken = 0
    with contextlib.suppress(ConnectionResetError):
        while part := asleep.recv(1 << 20):
            taken += len(part)
    assert taken < 8_000_000
    asleep.close()
