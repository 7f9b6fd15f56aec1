"""The web application: the page, its parts, the camera's pictures, state and map, the buttons.

Each address has its own file or function, so that no name in a request becomes a path.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from carla_launcher.plugins.page.parts import Parts
from carla_launcher.plugins.page.viewers import Viewers
from carla_run.exits import ExitError
from carla_run.files import read_whole
from carla_run.paths import RunPaths

TEMPLATES = Path(__file__).parent / "templates"
REPORT_STYLE = Path(__file__).parents[2] / "show" / "templates" / "style.css"
FILES = {
    "/report.css": (REPORT_STYLE, "text/css"),
    "/page.css": (TEMPLATES / "page.css", "text/css"),
    "/page.js": (TEMPLATES / "page.js", "text/javascript"),
}
PICTURE_S = 0.1
"""Interval between two pictures, as the collector writes them."""
MAX_STREAMS = 16
BOUNDARY = b"picture"


def application(run: RunPaths, parts: Parts, viewers: Viewers) -> Starlette:
    """Return the application of a run, for requests that the guard let through."""

    async def page(_: Request) -> Response:
        return Response(parts.page(), media_type="text/html")

    async def file(request: Request) -> Response:
        path, kind = FILES[request.url.path]
        return Response(path.read_bytes(), media_type=kind)

    async def changed(request: Request) -> Response:
        viewers.looked()
        have = frozenset(request.query_params.get("have", "").split(","))
        return JSONResponse(await run_in_threadpool(parts.changed, have, time.time()))

    async def state(_: Request) -> Response:
        viewers.looked()
        return _json(run.live_state)

    async def town(_: Request) -> Response:
        return _json(run.live_map)

    async def camera(_: Request) -> Response:
        if viewers.streams >= MAX_STREAMS:
            return PlainTextResponse("Too many pages show the camera already.\n", 503)
        kind = f"multipart/x-mixed-replace; boundary={BOUNDARY.decode()}"
        return StreamingResponse(_pictures(run.live_frame, viewers), media_type=kind)

    async def press(request: Request) -> Response:
        try:
            said = await run_in_threadpool(parts.buttons.press, request.path_params["what"])
        except ExitError as error:
            return JSONResponse({"refused": str(error)}, 409)
        except OSError as error:
            return JSONResponse({"refused": f"The run's folder can't be written ({error.strerror})."}, 409)
        return JSONResponse({"said": said})

    return Starlette(
        routes=[
            Route("/", page),
            *(Route(path, file) for path in FILES),
            Route("/parts", changed),
            Route("/state", state),
            Route("/map", town),
            Route("/camera", camera),
            Route("/do/{what}", press, methods=["POST"]),
        ]
    )


def _json(path: Path) -> Response:
    """Return a JSON file; an empty response if it is missing."""
    try:
        return Response(read_whole(path), media_type="application/json")
    except OSError:
        return Response(status_code=204)


async def _pictures(path: Path, viewers: Viewers) -> AsyncIterator[bytes]:
    """Yield each new picture as a part, and the last one twice, until the client disconnects.

    Chromium shows a part once the next one begins.
    """
    viewers.streams += 1
    try:
        yield b"--" + BOUNDARY + b"\r\n"
        shown, again = 0, False
        while True:
            viewers.looked()
            with contextlib.suppress(OSError):
                written = path.stat().st_mtime_ns
                if written != shown or again:
                    again = written != shown
                    picture, shown = read_whole(path), written
                    head = b"Content-Type: image/jpeg\r\nContent-Length: %d\r\n\r\n" % len(picture)
                    yield head + picture + b"\r\n--" + BOUNDARY + b"\r\n"
            await asyncio.sleep(PICTURE_S)
    finally:
        viewers.streams -= 1
