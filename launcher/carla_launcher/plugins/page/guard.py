"""Access control of the page: the token gives a cookie, and requests that other sites cause are refused.

Every address except the one with the token needs the cookie. A request that another site causes shows by its Host (a
name that was rebound to 127.0.0.1), Origin or Sec-Fetch-Site. Only the name in Host is checked, not the port, since a
tunnel (``ssh -L``) may use another port.
"""

from __future__ import annotations

import hmac
import secrets
from urllib.parse import urlsplit

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HOSTS = ("127.0.0.1", "localhost")
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
# A browser follows a link of another site (such as a terminal in a browser) and its redirects without SameSite=Strict
# cookies. A page that reloads itself starts a new request from here, and removes the token from the history.
GOES_ON = '<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0;url=/"><title>One moment</title>'
NO_TOKEN = "Open the address that the launcher printed: it ends with a token, which this browser hasn't sent yet.\n"


class Guard:
    """Middleware that refuses requests, and adds the security headers to all responses.

    Args:
        app: the application behind it.
        token: token in the address that gives the cookie.
        port: part of the cookie's name, since the pages of two runs are one site to a browser.
    """

    def __init__(self, app: ASGIApp, token: str, port: int) -> None:
        self._app = app
        self._token, self._session = token, secrets.token_urlsafe(32)
        self._cookie = f"run-page-{port}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it on."""
        if scope["type"] != "http":
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        request = Request(scope)
        answer = _refusal(request) or self._admission(request)
        await (answer or self._app)(scope, receive, guarded)

    def _admission(self, request: Request) -> Response | None:
        """Return the response to a request with the token, or without token and cookie; None if it has the cookie."""
        shown = request.query_params.get("token")
        if request.url.path == "/" and request.method == "GET" and shown is not None and _same(shown, self._token):
            welcome = HTMLResponse(GOES_ON)
            welcome.set_cookie(self._cookie, self._session, httponly=True, samesite="strict")
            return welcome
        if _same(request.cookies.get(self._cookie, ""), self._session):
            return None
        return PlainTextResponse(NO_TOKEN, 401)


def _refusal(request: Request) -> Response | None:
    """Return the response to a request that another site caused; None for any other request."""
    headers = request.headers
    host, origin, site = (headers.get(name) for name in ("host", "origin", "sec-fetch-site"))
    try:
        name = urlsplit(f"//{host}").hostname
    except ValueError:
        name = None
    if name not in HOSTS or len(headers.getlist("host")) != 1:
        return PlainTextResponse(f"This page answers at {' and '.join(HOSTS)} only.\n", 403)
    asks = request.method not in ("GET", "HEAD")
    foreign = origin != f"http://{host}" if origin is not None else asks
    if foreign or (asks and site not in (None, "same-origin")):
        return PlainTextResponse("Pages of other sites may not request this.\n", 403)
    return None


def _same(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode(errors="replace"), other.encode())
