"""A cluster without a token is used on this machine's loopback, and nowhere else."""

from __future__ import annotations

from pathlib import Path

import pytest

from carla_run.cluster_access import refusal


@pytest.fixture
def token(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text("secret")
    path.chmod(0o600)
    return path


@pytest.mark.parametrize("address", ["127.0.0.1:6379", "localhost:6379", "[::1]:6379", "127.1.2.3:1"])
def test_a_cluster_on_the_loopback_needs_no_token(address: str) -> None:
    assert refusal(address, {}) == ""


@pytest.mark.parametrize("address", ["10.0.0.1:6379", "head.example:6379", "0.0.0.0:6379"])
@pytest.mark.parametrize("mode", ["", "disabled", "TOKEN?"])
def test_one_beyond_is_refused_without_a_token(address: str, mode: str) -> None:
    assert "RAY_AUTH_MODE=token" in refusal(address, {"RAY_AUTH_MODE": mode})


def test_one_with_a_token_that_only_its_owner_reads_is_used(token: Path) -> None:
    assert refusal("10.0.0.1:6379", {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token)}) == ""


def test_ray_s_own_place_for_the_token_counts(tmp_path: Path) -> None:
    path = tmp_path / ".ray" / "auth_token"
    path.parent.mkdir()
    path.write_text("secret")
    path.chmod(0o600)
    assert refusal("10.0.0.1:6379", {"RAY_AUTH_MODE": "token", "HOME": str(tmp_path)}) == ""


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o666])
def test_a_token_that_others_can_read_is_refused(token: Path, mode: int) -> None:
    token.chmod(mode)
    said = refusal("10.0.0.1:6379", {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token)})
    assert f"chmod 600 {token}" in said


def test_a_token_that_is_not_there_is_named(tmp_path: Path) -> None:
    said = refusal("10.0.0.1:6379", {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(tmp_path / "none")})
    assert f"can't be read from {tmp_path / 'none'} (No such file or directory)" in said


def test_a_token_in_the_environment_is_refused(token: Path) -> None:
    said = refusal("10.0.0.1:6379", {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "secret"})
    assert "RAY_AUTH_TOKEN_PATH" in said
    assert "secret" not in said
