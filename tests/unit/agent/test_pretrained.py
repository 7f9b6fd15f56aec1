"""A trained driver in one file: it comes back as it was written, and what doesn't fit is one sentence."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors
import safetensors.torch
import torch

from carla_td3 import pretrained
from carla_td3.cli import evaluation
from carla_td3.config import AgentConfig
from carla_td3.exits import AgentError
from carla_td3.pretrained import Card, PolicyError
from carla_td3.td3.networks import Policy
from carla_td3.td3.replay.frames import VECTOR, FrameStack
from carla_td3.td3.replay.layout import privileged_numbers
from tests.conftest import REPOSITORY

SMALL = {"channels": [4, 4, 4], "features": 16, "hidden": [16]}
CARD = Card("small", "0.2.0", "MIT", "nothing")


@pytest.fixture
def written(tmp_path: Path) -> Path:
    config = AgentConfig.model_validate(
        {"td3": {"network": SMALL, "auxiliary": 1.0, "imitation": 1.0}, "environment": {"privileged": True}}
    )
    torch.manual_seed(0)
    policy = Policy(config.td3.network, FrameStack.of(config.environment.camera))
    pretrained.write(tmp_path / "small.safetensors", policy, config, CARD)
    return tmp_path / "small.safetensors"


def observation(side: int = 84) -> Any:
    rng = np.random.default_rng(0)
    image = rng.integers(0, 256, (4, side, side), np.uint8)
    return {"image": image, "vector": rng.standard_normal(VECTOR).astype(np.float32)}


def test_a_file_gives_back_the_driver_without_its_teachers(written: Path) -> None:
    driver, again = pretrained.load(written), pretrained.load(written)
    assert driver.card.sha256 == pretrained.digest(driver.policy.state_dict())
    assert (driver.config.td3.auxiliary, driver.config.environment.privileged) == (0.0, False)
    action = driver.act(observation())
    assert action.shape == (2,)
    assert action.tolist() == again.act(observation()).tolist()


@pytest.mark.parametrize("sees", ["vector", "privileged"])
def test_a_driver_without_pictures_drives_by_what_it_sees(tmp_path: Path, sees: str) -> None:
    config = AgentConfig.model_validate(
        {"td3": {"network": {**SMALL, "sees": sees}}, "environment": {"privileged": sees == "privileged"}}
    )
    policy = Policy(config.td3.network, FrameStack.of(config.environment.camera))
    pretrained.write(tmp_path / "small.safetensors", policy, config, CARD)
    driver, seen = pretrained.load(tmp_path / "small.safetensors"), observation()
    told = np.zeros(privileged_numbers(config.environment), np.float32)
    assert driver.act({**seen, "privileged": told}).shape == (2,)
    if sees == "privileged":
        with pytest.raises(PolicyError, match=r"the observation has .* privileged 0"):
            driver.act(seen)


def test_a_detector_s_file_gives_back_what_it_drove_with(tmp_path: Path) -> None:
    network = {**SMALL, "encoder": "detector"}
    config = AgentConfig.model_validate(
        {
            "td3": {"network": network, "auxiliary": 1.0},
            "environment": {"privileged": True, "action_rate": {"steer_range": 1.0}},
        }
    )
    policy = Policy(config.td3.network, FrameStack.of(config.environment.camera))
    path = tmp_path / "small.safetensors"
    pretrained.write(path, policy, config, CARD)
    driver, seen = pretrained.load(path), observation()
    assert driver.act(seen).tolist() == policy.act(seen["image"], seen["vector"]).tolist()
    assert (driver.config.td3.network.encoder, driver.config.environment.privileged) == ("detector", False)


def test_the_shipped_driver_is_the_kept_one() -> None:
    driver = pretrained.load()
    kept = evaluation.trained(REPOSITORY / "benchmarks" / "results" / "learning" / "td3" / "seed-1")
    assert kept.policy is not None
    assert driver.card.sha256 == pretrained.digest(kept.policy.state_dict())
    assert driver.config.environment.camera == kept.config.environment.camera


def test_an_observation_of_another_task_is_refused(written: Path) -> None:
    with pytest.raises(PolicyError, match=r"image 4×84×84 and vector 53, and the observation has image 4×64×64"):
        pretrained.load(written).act(observation(64))


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("environment.camera.stack.frames=2", "trained with environment.camera.stack = "),
        ("environment.camera.channels=rgb", "trained with environment.camera.channels = grey"),
        ("environment.camera.width=64", "trained with environment.camera.width = 84"),
        ("td3.network.features=8", "trained with td3.network.features = 16"),
    ],
)
def test_a_configuration_that_does_not_fit_is_refused(written: Path, setting: str, says: str) -> None:
    settings = [setting, *(["environment.camera.height=64"] if "width" in setting else [])]
    with pytest.raises(PolicyError) as refused:
        evaluation.trained(None, None, settings, pretrained=str(written))
    assert says in str(refused.value)


def test_the_preset_that_the_driver_was_trained_with_fits() -> None:
    found = evaluation.trained(None, Path("traffic"), pretrained="traffic")
    assert found.config.td3.auxiliary > 0.0, "only training reads it"
    assert found.policy is not None


def test_settings_that_do_fit_are_taken(written: Path) -> None:
    found = evaluation.trained(None, None, ["environment.weather=WetNoon"], pretrained=str(written), vehicles=3)
    assert found.config.environment.weather == ("WetNoon",)
    assert found.config.environment.traffic.vehicles == 3
    with pytest.raises(AgentError, match="both name a driver"):
        evaluation.trained(written, pretrained=str(written))


def _header_of(path: Path) -> dict[str, str]:
    with safetensors.safe_open(path, framework="pt") as file:
        return dict(file.metadata())


def _header(path: Path, sealed: bool = True, **changed: str) -> None:
    header, tensors = {**_header_of(path), **changed}, pretrained.read(path).tensors
    header = {name: text for name, text in header.items() if text}
    safetensors.torch.save_file(tensors, path, {**header, "seal": pretrained.seal(header)} if sealed else header)


def _weights(path: Path, change: Callable[[torch.Tensor], torch.Tensor]) -> None:
    found = pretrained.read(path)
    tensors = {name: change(tensor) for name, tensor in found.tensors.items()}
    safetensors.torch.save_file(tensors, path, _header_of(path))


def _flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (Path.unlink, "can't be read as a policy"),
        (lambda path: path.write_bytes(b"torn"), "can't be read as a policy"),
        (_flip, "is damaged"),
        (lambda path: _weights(path, lambda tensor: tensor * math.nan), "aren't finite float32 numbers"),
        (lambda path: _weights(path, lambda tensor: tensor.bfloat16()), "aren't finite float32 numbers"),
        (lambda path: _header(path, format="1"), "has format 1, this version reads 2"),
        (lambda path: _header(path, sealed=False, configuration="{}"), "is damaged, its card or configuration"),
        (lambda path: _header(path, sealed=False, seal=""), "is damaged, its card or configuration"),
        (lambda path: _header(path, card=""), "holds tensors but no card"),
        (lambda path: _header(path, card=json.dumps({"who": 1})), "its card can't be read"),
        (lambda path: _header(path, configuration="{"), "its card can't be read"),
        (lambda path: _header(path, configuration="[" * 100_000), "its card can't be read"),
    ],
    ids=[
        *("missing", "torn", "bit", "nan", "bfloat16", "format", "changed", "unsealed", "cardless"),
        *("card", "configuration", "deep"),
    ],
)
def test_a_file_that_cannot_be_used_is_one_sentence(written: Path, spoil: Callable[[Path], object], says: str) -> None:
    spoil(written)
    with pytest.raises(PolicyError, match=says):
        pretrained.load(written)


def test_an_unknown_name_lists_the_known() -> None:
    with pytest.raises(PolicyError, match=r"ghost is neither a policy nor a file: expected traffic or"):
        pretrained.load("ghost")
