"""The thread of carla-lite's window: it outlives what drawing raises and says so, and forgets what nobody watched."""

from __future__ import annotations

import socket
import threading
import time
from unittest.mock import Mock

import pytest

from carla_lite.view import watch, web
from carla_lite.view.watch import Watch


def test_a_mistake_costs_a_moment_and_is_said(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(watch, "RETRY_S", 0.0)
    looks = iter([LookupError("no such mesh"), None, SystemExit()])
    problems: list[str] = []
    window = Watch("127.0.0.1", 1, 0)
    window.look()

    def look() -> None:
        problems.append(window.problem)
        if (error := next(looks)) is not None:
            raise error

    monkeypatch.setattr(window, "_watch", look)
    with pytest.raises(SystemExit):
        window.run()
    assert problems == ["", "LookupError: no such mesh", ""]
    assert "no such mesh" in capfd.readouterr().err


def test_without_viewers_the_old_state_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """A viewer that comes later would take it for the present one."""
    monkeypatch.setattr(time, "sleep", Mock(side_effect=[None, SystemExit()]))
    window = Watch("127.0.0.1", 1, 0)
    window._state, window._picture, window.problem = {"frame": 7}, (3, b"jpeg"), "it was silent"
    with pytest.raises(SystemExit):
        window.run()
    assert window.state() == {"problem": "", "following": None}
    assert window.picture(0, 0.0) == (3, b"")


def test_odd_requests_print_nothing_and_are_guarded(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(web._Handler, "timeout", 0.2)
    window = web.Window(socket.create_server(("127.0.0.1", 0)), "token", Watch("127.0.0.1", 1, 0))
    threading.Thread(target=window.serve_forever, daemon=True).start()
    with window:
        for request in (b"HEAD / HTTP/1.1\r\n\r\n", b"PUT / HTTP/1.1\r\n\r\n", b""):
            with socket.create_connection(window.socket.getsockname()) as asking, asking.makefile("rb") as answer:
                asking.sendall(request)
                head, _, body = answer.read().partition(b"\r\n\r\n")
            assert bool(request) == head.startswith(b"HTTP/1.1 501") == (b"frame-ancestors 'none'" in head)
            assert bool(body) == request.startswith(b"PUT")
        window.shutdown()
    assert capfd.readouterr() == ("", "")
