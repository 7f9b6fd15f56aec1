"""The window's HTTP server: the page, its pictures and places, and commands, for browsers with the token.

The standard library's server is enough for a page on this machine. Access: the address with the token sets a cookie,
which all other requests need. Host must be this machine's, and requests with an effect must come from this page.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import secrets
import socket
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from carla_lite.view.watch import Watch

HOSTS = ("127.0.0.1", "localhost")
FOLDER = Path(__file__).parent / "page"
FILES = {
    "/": ("window.html", "text/html; charset=utf-8"),
    "/window.css": ("window.css", "text/css"),
    "/window.js": ("window.js", "text/javascript"),
}
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
# After a link from another site, a redirect would still be sent without the cookie. This page makes the browser load /
# with the cookie.
TO_THE_VIEW = b'<!doctype html><meta http-equiv="refresh" content="0;url=/"><title>One moment</title>'
MOST_CONNECTIONS = 64
MOST_BODY_BYTES = 4096
PATIENCE_S = 10.0
"""Seconds for a request to arrive, and for a browser to accept an answer."""


class Window(ThreadingHTTPServer):
    """Serves one watch."""

    daemon_threads = True

    def __init__(self, listening: socket.socket, token: str, watch: Watch) -> None:
        super().__init__(listening.getsockname()[:2], _Handler, bind_and_activate=False)
        self.socket.close()
        listening.setblocking(True)
        self.socket = listening
        self.token, self.watch = token, watch
        self.session = secrets.token_urlsafe(32)
        self.cookie = f"carla-lite-{listening.getsockname()[1]}"
        self._connections = 0

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve a connection, unless there are too many."""
        if self._connections >= MOST_CONNECTIONS:
            self.shutdown_request(request)
            return
        self._connections += 1
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._connections -= 1

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print nothing about a browser that has gone."""


class _Handler(BaseHTTPRequestHandler):
    server: Window
    timeout = PATIENCE_S
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Answer a request for a page, picture or state."""
        parts = urlsplit(self.path)
        if not self._is_ours(asks=False):
            return
        token = parse_qs(parts.query).get("token", [""])[0]
        if parts.path == "/" and token and _same(token, self.server.token):
            cookie = f"{self.server.cookie}={self.server.session}; HttpOnly; SameSite=Strict; Path=/"
            self._answer(200, TO_THE_VIEW, "text/html", {"Set-Cookie": cookie})
        elif self._is_admitted():
            self._show(parts.path)

    def do_POST(self) -> None:
        """Execute a command."""
        if not (self._is_ours(asks=True) and self._is_admitted()):
            return
        if self.path != "/command":
            self._answer(404, b"There is no such thing.\n")
            return
        try:
            length = int(self.headers.get("Content-Length", ""))
            body = self.rfile.read(length) if 0 <= length <= MOST_BODY_BYTES else b""
            self.server.watch.command(json.loads(body))
        except (ValueError, TypeError, AttributeError, OverflowError, RecursionError):
            self._answer(400, b"That is no command.\n")
            return
        self._answer(204, b"")

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:  # noqa: ARG002
        """Answer what is no request, or one of another method."""
        self._answer(code, b"" if self.command == "HEAD" else b"That is no request for this page.\n")

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing: the terminal is the simulator's."""

    def _show(self, path: str) -> None:
        watch = self.server.watch
        if path in FILES:
            name, kind = FILES[path]
            self._answer(200, (FOLDER / name).read_bytes(), kind)
        elif path == "/state":
            watch.look()
            self._answer(200, json.dumps(watch.state()).encode(), "application/json")
        elif path == "/town":
            self._answer(200, watch.town(), "image/jpeg")
        elif path == "/camera":
            self._stream()
        elif path == "/favicon.ico":
            self._answer(204, b"")
        else:
            self._answer(404, b"There is no such thing.\n")

    def _stream(self) -> None:
        watch = self.server.watch
        self.close_connection = True
        with contextlib.suppress(OSError):
            self._head(200, {"Content-Type": "multipart/x-mixed-replace; boundary=picture", "Connection": "close"})
            self.wfile.write(b"--picture\r\n")
            shown = 0
            while True:
                watch.look()
                number, jpeg = watch.picture(shown, 1.0)
                if number > shown and jpeg:
                    head = f"Content-Type: image/jpeg\r\nContent-Length: {len(jpeg)}\r\n\r\n".encode()
                    self.wfile.write(head + jpeg + b"\r\n--picture\r\n")
                    shown = number

    def _is_ours(self, asks: bool) -> bool:
        """Return whether the request comes from this page; answer it if not."""
        host, origin, site = (self.headers.get(name) for name in ("Host", "Origin", "Sec-Fetch-Site"))
        try:
            name = urlsplit(f"//{host}").hostname
        except ValueError:
            name = None
        foreign = origin != f"http://{host}" if origin is not None else asks
        if name in HOSTS and not foreign and not (asks and site not in (None, "same-origin")):
            return True
        self._answer(403, b"Another site's page may not ask for this.\n")
        return False

    def _is_admitted(self) -> bool:
        # Other programs of this machine have cookies here, too. Python's own parser drops all for one that is unusual.
        pairs = (each.strip().partition("=") for each in self.headers.get("Cookie", "").split(";"))
        if any(name == self.server.cookie and _same(value, self.server.session) for name, _, value in pairs):
            return True
        self._answer(401, b"Open the address that carla-lite printed: it ends with a token.\n")
        return False

    def _head(self, status: int, headers: dict[str, str]) -> None:
        self.send_response_only(status)
        for name, value in {**HEADERS, **headers}.items():
            self.send_header(name, value)
        self.end_headers()

    def _answer(
        self, status: int, body: bytes, kind: str = "text/plain; charset=utf-8", more: dict[str, str] | None = None
    ) -> None:
        if status >= 400:
            self.close_connection = True  # the rest of the request isn't read
        length = {} if status == 204 else {"Content-Length": str(len(body))}
        closing = {"Connection": "close"} if self.close_connection else {}
        with contextlib.suppress(OSError):
            self._head(status, {"Content-Type": kind, **length, **closing, **(more or {})})
            self.wfile.write(body)


def _same(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode(errors="replace"), other.encode())
