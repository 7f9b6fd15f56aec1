"""Who may look and press: the token, and no other site's page on its user's behalf.

Everything but the one address that carries the token needs the cookie that it gave. A browser that was lured elsewhere
is told from its own user by Host (a name that was bent to 127.0.0.1), Origin and Sec-Fetch-Site (another site's page).
The name in Host is checked, not its port: a tunnel (``ssh -L``) has another one at this end.
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
# A link in another site's page (a terminal in a browser) is followed without SameSite=Strict cookies, redirects
# included; a page that goes on by itself isn't: that step begins here. It also takes the token out of the history.
GOES_ON = '<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0;url=/"><title>One moment</title>'
STRANGER = "Open the address that the launcher printed: it ends with a token, which this browser hasn't shown yet.\n"


class Guard:
    """Lets through what may pass; all that leaves carries the same headers.

    Args:
        app: what is behind.
        token: of the one address that gives the cookie.
        port: names the cookie: those of two runs' pages, which are one site, must not replace each other.
    """

    def __init__(self, app: ASGIApp, token: str, port: int) -> None:
        self._app = app
        self._token, self._session = token, secrets.token_urlsafe(32)
        self._cookie = f"run-page-{port}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or hand it on."""
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
        """Return the answer to who shows the token, or neither token nor cookie; None for who may pass."""
        shown = request.query_params.get("token")
        if request.url.path == "/" and request.method == "GET" and shown is not None and _same(shown, self._token):
            welcome = HTMLResponse(GOES_ON)
            welcome.set_cookie(self._cookie, self._session, httponly=True, samesite="strict")
            return welcome
        if _same(request.cookies.get(self._cookie, ""), self._session):
            return None
        return PlainTextResponse(STRANGER, 401)


def _refusal(request: Request) -> Response | None:
    """Return the answer to what another site has a hand in; None for what none has."""
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
        return PlainTextResponse("Another site's page may not ask for this.\n", 403)
    return None


def _same(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode(errors="replace"), other.encode())
