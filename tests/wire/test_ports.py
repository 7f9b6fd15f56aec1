"""One variable moves everything: simulator, health check and agent take the first of CARLA_PORTS."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from carla_td3 import config
from tests.conftest import REPOSITORY, ports
from tests.crowd import PATIENCE_S

LITE = [sys.executable, "-m", "carla_lite"]


def environment(**variables: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in ("CARLA_PORT", "CARLA_PORTS")}
    return {**kept, **variables}


def test_simulator_health_check_and_agent_meet_at_the_first_of_the_ports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = ports(3)
    reported = environment(CARLA_PORTS=f"{port}-{port + 2}")
    server = subprocess.Popen(LITE, stdout=subprocess.PIPE, text=True, env=reported)
    try:
        assert server.stdout is not None
        assert f" on 127.0.0.1:{port} (streams {port + 1})" in server.stdout.readline()
        health = subprocess.run(["bash", str(REPOSITORY / "carla" / "healthcheck.sh")], check=False, env=reported)
        assert health.returncode == 0
    finally:
        server.kill()
        server.communicate()
    monkeypatch.delenv("CARLA_PORT", raising=False)
    monkeypatch.setenv("CARLA_PORTS", reported["CARLA_PORTS"])
    (tmp_path / "me.yaml").touch()
    assert config.load(tmp_path / "me.yaml").simulator.port == port


@pytest.mark.parametrize(
    ("ports", "said"),
    [
        *((each, "is no port, expected 1 to 65534") for each in ("x-2102", "0-2", "65535-65537")),
        *((each, "is no range of three ports, expected 2100-2102") for each in ("2100-2105", "2100-", "2100-x")),
    ],
)
def test_ports_that_are_none_are_a_usage_error_of_carla_lite(ports: str, said: str) -> None:
    given = environment(CARLA_PORTS=ports)
    ended = subprocess.run(LITE, check=False, capture_output=True, text=True, env=given, timeout=PATIENCE_S)
    assert ended.returncode == 2
    assert said in " ".join(ended.stderr.split())
