"""Clients of other versions: 0.9.15's, where ``CARLA_0_9_15`` names the folder it was installed into.

``pip install --no-deps --target FOLDER carla-0-9-15`` makes such a folder for Python 3.10 to 3.12.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from carla_lite.protocol.dialect import LATEST
from carla_lite.protocol.peer import version_in
from tests.conftest import Server, StartServer, port_pair
from tests.crowd import PATIENCE_S
from tests.faults import run

PROCESS = Path(__file__).with_name("drive_process.py")


def drive(server: Server, version: str) -> subprocess.CompletedProcess[str]:
    """Return how a drive by the client of a version ended; skip the test where that isn't here."""
    environment = dict(os.environ)
    if version == "0.9.15":
        if "CARLA_0_9_15" not in environment:
            pytest.skip("CARLA_0_9_15 does not name a folder with the client of 0.9.15")
        environment["PYTHONPATH"] = environment["CARLA_0_9_15"]
    arguments = [sys.executable, str(PROCESS), str(server.port), str(port_pair())]
    return subprocess.run(arguments, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


@pytest.mark.parametrize("version", ["0.9.16", "0.9.15"])
def test_a_client_of_each_version_drives_and_sees(start_server: StartServer, version: str) -> None:
    ended = drive(start_server(extra=("--client", version)), version)
    assert ended.returncode == 0, ended.stderr
    assert "mismatch" not in ended.stdout + ended.stderr
    found = json.loads(ended.stdout.splitlines()[-1])
    assert found["version"] == version
    assert found["frames"] == [True, True, True]
    assert found["pixels"] > 30
    assert found["driven_m"] > 2.0
    assert found["autopilot_m"] > 2.0
    assert found["gnss"] < 1e-9
    assert (found["wheels"], found["lights"] > 4, found["limit"] > 0) == (4, True, True)


@pytest.mark.parametrize(("spoken", "version"), [("0.9.15", "0.9.16"), ("0.9.16", "0.9.15")])
def test_a_client_of_another_version_is_refused_in_a_sentence(
    start_server: StartServer, spoken: str, version: str
) -> None:
    server = start_server(extra=("--client", spoken))
    ended = drive(server, version)
    assert ended.returncode == 1, "an exception, not a signal"
    said = f"this server speaks to clients of {spoken}, yours is {version}: start carla-lite with --client {version}"
    assert f"RuntimeError: {said}" in ended.stderr
    assert f"carla-lite: {said}" in server.output


@pytest.mark.parametrize(
    ("names", "version"),
    [
        (["/x/carla-0.9.11-py3.7-linux-x86_64.egg/carla/libcarla.so"], "0.9.11"),
        (["/x/carla/libcarla.so", "carla-0.9.16.dist-info"], "0.9.16"),
        (["/x/carla/libcarla.so", "carla_0_9_15-0.0.1.dist-info"], "0.9.15"),
        (["/x/carla/libcarla.so", "carla_client_unofficial-0.9.11.dist-info"], "0.9.11"),
        (["/x/carla/libcarla.so", "carla-0.9.15.dist-info", "carla-0.9.16.dist-info"], None),
        (["/x/carla/libcarla.so", "carla_td3-0.1.0.dist-info", "carla_lite-0.1.0.dist-info"], None),
    ],
)
def test_a_clients_version_is_read_from_names(names: list[str], version: str | None) -> None:
    assert version_in(names) == version


def test_a_client_that_none_can_serve_is_told_which_can() -> None:
    told = "this server speaks to clients of 0.9.16, yours is 0.9.12: use 0.9.15 or 0.9.16"
    assert LATEST.refusal("0.9.12") == told


def test_a_version_that_is_not_spoken_is_refused_in_a_sentence() -> None:
    ended = run("--client", "0.9.10")
    assert ended.returncode == 2
    assert "expected 0.9.15 or 0.9.16" in " ".join(ended.stderr.replace("│", " ").split())


def test_nothing_that_only_unix_has_is_imported_at_the_start() -> None:
    code = (
        "import sys\n"
        "for name in ('resource', 'fcntl', 'termios', 'pwd', 'grp', 'pty', 'tty', 'syslog'): sys.modules[name] = None\n"
        "import carla_lite.command, carla_lite.serving\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=PATIENCE_S)
