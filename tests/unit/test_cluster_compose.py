"""The cluster of containers, read against the other Compose files."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from tests.conftest import REPOSITORY

SAME = ("init", "restart", "cap_drop", "security_opt", "logging")


def compose(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((REPOSITORY / name).read_text(encoding="utf-8"))
    return found


@pytest.fixture(params=["head", "worker"])
def node(request: pytest.FixtureRequest) -> dict[str, Any]:
    found: dict[str, Any] = compose("docker-compose.cluster.yml")["services"][request.param]
    return found


def test_its_containers_are_closed_as_the_others_are(node: dict[str, Any]) -> None:
    agent = compose("docker-compose.yml")["services"]["agent"]
    assert {key: node[key] for key in SAME} == {key: agent[key] for key in SAME}
    assert node["read_only"] is agent["read_only"] is True
    assert node["user"] == agent["user"]
    assert node["mem_limit"] == node["memswap_limit"]
    assert {"pids_limit", "stop_grace_period"} <= set(node)


def test_nothing_of_it_is_published_and_no_node_is_had_without_the_token(node: dict[str, Any]) -> None:
    assert not {"ports", "network_mode", "privileged", "expose"} & set(node)
    assert node["environment"]["RAY_AUTH_MODE"] == "token"
    assert node["environment"]["RAY_AUTH_TOKEN_PATH"] == "/run/secrets/token"
    assert node["secrets"] == ["token"]


def test_dashboard_and_usage_statistics_are_off(node: dict[str, Any]) -> None:
    assert node["environment"]["RAY_USAGE_STATS_ENABLED"] == "0"
    assert "--disable-usage-stats" in node["command"][-1]
    starts_the_cluster = "--head" in node["command"][-1]
    assert starts_the_cluster is ("--include-dashboard=false" in node["command"][-1])


def test_the_object_store_fits_into_shared_memory_and_ray_has_a_place_to_write(node: dict[str, Any]) -> None:
    store = int(node["command"][-1].partition("--object-store-memory=")[2].split()[0])
    assert 75 * 2**20 <= store < int(node["shm_size"].removesuffix("m")) * 2**20
    assert node["tmpfs"][0].startswith("/tmp:")


def test_agent_launcher_and_carla_lite_are_in_one_image(node: dict[str, Any]) -> None:
    build = node["build"]
    assert set(build["args"]["EXTRAS"].split()) == {"agent", "lite", "launcher", "ray"}
    lines = (REPOSITORY / build["dockerfile"]).read_text(encoding="utf-8").splitlines()
    stage = lines[lines.index(f"FROM agent AS {build['target']}") :]
    assert any("/wheels/carla_lite-*.whl" in line for line in stage)
    assert lines[-1] == "FROM agent", "without a target the image is the agent's"
    ignored = (REPOSITORY / ".dockerignore").read_text(encoding="utf-8").splitlines()
    sent = tuple(line[1:].partition("*")[0] for line in ignored if line.startswith("!"))
    sources = [line.split()[1] for line in lines if line.startswith("COPY ") and "--from" not in line]
    assert all(f"{source}/".startswith(sent) for source in sources)
