"""Where a drive is seen: the page that was asked for is there, or the drive doesn't begin."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
import typer

from carla_run.exits import Exit
from carla_run.paths import RunPaths
from carla_td3.cli.showing import Show, open_viewer

OLD = "http://127.0.0.1:1/?token=of-a-page-that-was-killed"


def test_an_old_address_is_not_taken_for_the_page(tmp_path: Path) -> None:
    pytest.importorskip("uvicorn")
    run = RunPaths(tmp_path)
    run.page_address.write_text(OLD)
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = open_viewer(Show.PAGE, other.getsockname()[1], tmp_path, "", (1, 1))
        with pytest.raises(typer.Exit) as refused, taken:
            pass
    assert refused.value.exit_code == Exit.BAD_CONFIG
    with open_viewer(Show.PAGE, 0, tmp_path, "", (1, 1)):
        assert run.page_address.read_text() != OLD
