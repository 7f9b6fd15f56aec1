"""Where a drive is seen while it goes on: a window of the desktop, or the launcher's live page in a browser."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from enum import Enum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from carla_run.exits import Exit
from carla_run.paths import RunPaths
from carla_run.readers import read_text
from carla_run.signals import wait_or_kill
from carla_td3.collector.parent import die_with_parent

if TYPE_CHECKING:
    from carla_td3.evaluation.window import Window

PAGE_STARTS_S, PAGE_STOPS_S, POLL_S = 20.0, 5.0, 0.05


class Show(str, Enum):
    """Where the pictures are seen while it drives."""

    AUTO = "auto"
    WINDOW = "window"
    PAGE = "page"
    NOTHING = "nothing"


ShowOption = Annotated[
    Show,
    typer.Option(
        help="Where to watch: window, page (in a browser; its address is printed), nothing or auto. auto takes a "
        "window if there is a display, else the page."
    ),
]
PagePort = Annotated[
    int, typer.Option(min=0, max=65535, help="Port of the live page on 127.0.0.1; 0 takes a free one.")
]


@contextlib.contextmanager
def open_viewer(show: Show, port: int, folder: Path, title: str, size: tuple[int, int]) -> Iterator[Window | None]:
    """Have a window, or the live page, while the block lasts; what was only tried and can't be had is said.

    Args:
        port: of the page.
        folder: in which the live view's files lie.
        title: of the window.
        size: width and height of the pictures.

    Raises:
        NoWindowError, Exit: what was asked for can't be had.
    """
    from carla_td3.evaluation.window import NoWindowError, Window

    if show in (Show.AUTO, Show.WINDOW):
        try:
            window = Window(title, size)
        except NoWindowError as refused:
            if show is Show.WINDOW:
                raise
            print(refused, file=sys.stderr, flush=True)
        else:
            with contextlib.closing(window):
                yield window
            return
    with contextlib.nullcontext() if show is Show.NOTHING else _page(folder, port, needed=show is Show.PAGE):
        yield None


@contextlib.contextmanager
def _page(folder: Path, port: int, *, needed: bool) -> Iterator[None]:
    """Serve the live page of a folder by the launcher's own command while the block lasts."""
    run = RunPaths(folder)
    run.logs.mkdir(parents=True, exist_ok=True)
    before = read_text(run.page_address)  # a killed page leaves its address
    words = [sys.executable, "-m", "carla_launcher", "dashboard", run.path.name, "--runs-dir", str(run.path.parent)]
    page = subprocess.Popen(
        [*words, "--port", str(port)],
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr,
        start_new_session=True,  # Ctrl-C is for the drive
        preexec_fn=partial(die_with_parent, os.getpid()),  # noqa: PLW1509 (no thread runs yet)
    )
    try:
        until_s = time.monotonic() + PAGE_STARTS_S
        while read_text(run.page_address) in ("", before) and page.poll() is None and time.monotonic() < until_s:
            time.sleep(POLL_S)
        if page.poll() is not None and needed:
            raise typer.Exit(Exit.BAD_CONFIG)  # its own words are above
        yield
    finally:
        page.send_signal(signal.SIGINT)
        wait_or_kill(page, PAGE_STOPS_S)
