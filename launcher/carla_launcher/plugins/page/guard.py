"""Access control of the page.

The address with the token sets a cookie. Every other address requires that cookie. Requests that another web site makes
through the user's browser are refused: their Host (a name rebound to 127.0.0.1), Origin or Sec-Fetch-Site differs. The
port in Host isn't checked, because a tunnel (``ssh -L``) may use another port.
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
# After a link from another site (such as a terminal in the browser), a redirect would still be sent without the
# SameSite=Strict cookie. This page makes the browser load / with the cookie, and removes the token from the history.
TO_THE_RUN = (
    '<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0;url=/"><title>One moment</title>'
)
NO_TOKEN = "Open the address that the launcher printed. It ends with a token, which this browser hasn't sent yet.\n"


class Guard:
    """Middleware that refuses requests without access, and adds the security headers to all responses.

    Args:
        app: the application that gets the other requests.
        token: secret in the address that sets the cookie.
        port: part of the cookie's name. A browser takes the pages of two runs, on two ports, for one site.
    """

    def __init__(self, app: ASGIApp, token: str, port: int) -> None:
        self._app = app
        self._token, self._session = token, secrets.token_urlsafe(32)
        self._cookie = f"run-page-{port}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse a request, set the cookie, or pass the request to the application."""
        if scope["type"] != "http":
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        request = Request(scope)
        answer = _refusal(request) or self._without_cookie(request)
        await (answer or self._app)(scope, receive, guarded)

    def _without_cookie(self, request: Request) -> Response | None:
        """Return None if a request has the cookie; else the page that sets it (with the token), or a refusal."""
        token = request.query_params.get("token")
        if request.url.path == "/" and request.method == "GET" and token is not None and _same(token, self._token):
            response = HTMLResponse(TO_THE_RUN)
            response.set_cookie(self._cookie, self._session, httponly=True, samesite="strict")
            return response
        if _same(request.cookies.get(self._cookie, ""), self._session):
            return None
        return PlainTextResponse(NO_TOKEN, 401)


def _refusal(request: Request) -> Response | None:
    """Return the refusal of a request that another site made; None for any other request."""
    headers = request.headers
    host, origin, site = (headers.get(name) for name in ("host", "origin", "sec-fetch-site"))
    try:
        name = urlsplit(f"//{host}").hostname
    except ValueError:
        name = None
    if name not in HOSTS or len(headers.getlist("host")) != 1:
        return PlainTextResponse(f"This page answers at {' and '.join(HOSTS)} only.\n", 403)
    changes_run = request.method not in ("GET", "HEAD")
    foreign = origin != f"http://{host}" if origin is not None else changes_run
    if foreign or (changes_run and site not in (None, "same-origin")):
        return PlainTextResponse("Only this page itself may send this request.\n", 403)
    return None


def _same(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode(errors="replace"), other.encode())
