"""Trained drivers, each in one file: weights, the task that they drive in, and a card. Nothing is unpickled.

The file is safetensors: the tensors of ``Policy`` by name, and in the header ``format``, ``card`` and ``configuration``
(JSON), and ``seal``, the digest of these. The card has the digest of the weights.
Reading needs neither a run nor the code that trained it. Importing this registers the gymnasium environment.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.torch
import torch
from numpy.typing import NDArray
from torch import Tensor

from carla_run.exits import Exit, ExitError
from carla_run.files import write_whole
from carla_run.paths import names_preset
from carla_td3 import config as configuration
from carla_td3.config import AgentConfig, TimeLimitConfig
from carla_td3.env.observation import Observation
from carla_td3.pins import Pin, pinned
from carla_td3.td3.networks import Policy
from carla_td3.td3.replay.frames import VECTOR, FrameStack
from carla_td3.td3.replay.layout import privileged_numbers

DEFAULT = "traffic"
POLICIES = Path(__file__).with_name("policies")
SUFFIX = ".safetensors"
FORMAT = 2
"""Format number of the file. It also stands for the meaning of the numbers in an observation's vector."""
TIME_LIMIT = TimeLimitConfig(constant_s=60.0, s_per_m=0.36)
"""10 km/h, as NoCrash has it, and a minute for lights: training's is shorter, so that there are many drives."""
_DRIVES: Any = {"environment": True, "simulator": {"fixed_delta_s"}, "td3": {"network"}}
"""Sections and keys of the configuration that say what is seen, done and driven in."""


class PolicyError(ExitError):
    """A policy that can't be used; the message is one sentence for a person (exit code 65)."""

    code = Exit.BAD_CONFIG


@dataclass(frozen=True)
class Card:
    """Short model card of a policy.

    Attributes:
        name: name of the policy.
        version: version of this software that wrote the file.
        licence: SPDX identifier of the weights' licence.
        trained: sentence on where and how long the policy was trained.
        sha256: digest of the weights; filled in when the file is written.
    """

    name: str
    version: str
    licence: str
    trained: str
    sha256: str = ""


@dataclass(frozen=True)
class PolicyFile:
    """Content of a policy file, checked against its own header."""

    path: Path
    card: Card
    values: dict[str, Any]
    """Values of the configuration."""
    tensors: dict[str, Tensor]

    def policy(self, config: AgentConfig) -> Policy:
        """Return the policy for a configuration.

        Raises:
            PolicyError: it asks for another observation than the policy was trained with.
        """
        own, asked = _fixed(configuration.validate(self.values, str(self.path))), _fixed(config)
        for key, had in own.items():
            if asked[key] != had:
                raise PolicyError(
                    f"{self.card.name} was trained with {key} = {had}, the configuration says {asked[key]}: leave "
                    f"{key} out, or --config with the file that sets it."
                )
        policy = Policy(config.td3.network, FrameStack.of(config.environment.camera))
        try:
            policy.load_state_dict(self.tensors)
        except RuntimeError:
            raise PolicyError(f"{self.path}: its weights don't fit its configuration; get the file again.") from None
        return policy


@dataclass(frozen=True)
class Pretrained:
    """A driver that is ready: ``config.environment`` is the task for ``gymnasium.make``."""

    card: Card
    config: AgentConfig
    policy: Policy

    def act(self, observation: Observation) -> NDArray[np.float32]:
        """Return the action (2,) float32 for one observation of the environment: steering, throttle or brake.

        Raises:
            PolicyError: it is an observation of another task.
        """
        wanted = layout(self.config)
        given = {name: list(np.shape(observation.get(name, ()))) for name in wanted}
        if given != wanted:
            raise PolicyError(
                f"{self.card.name} drives by {_words(wanted)}, and the observation has {_words(given)}: make the "
                "environment with config=driver.config.environment."
            )
        return self.policy.act(observation["image"], observation["vector"], observation.get("privileged"))


def load(name: str | Path = DEFAULT) -> Pretrained:
    """Return the driver of this name, or of this file.

    Raises:
        PolicyError: there is none, or the file is damaged or of another format.
    """
    found = read(name)
    config = configuration.validate(found.values, str(found.path))
    return Pretrained(found.card, config, found.policy(config))


def names() -> dict[str, Path]:
    """Return the policies of this package, by name."""
    return {each.stem: each for each in sorted(POLICIES.glob(f"*{SUFFIX}"))}


def read(name: str | Path) -> PolicyFile:
    """Return what a policy's file holds.

    Raises:
        PolicyError: see ``load``.
    """
    path, known = Path(name), names()
    if names_preset(path, Path()) and path.suffix != SUFFIX:
        if str(name) not in known:
            raise PolicyError(f"{name} is neither a policy nor a file: expected {', '.join(known)} or FILE{SUFFIX}.")
        path = known[str(name)]
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 (no mapping)
    except (OSError, safetensors.SafetensorError) as error:
        raise PolicyError(f"{path}: can't be read as a policy ({error}): expected a {SUFFIX} file.") from None
    if "card" not in header:
        raise PolicyError(f"{path}: holds tensors but no card: make a policy of a run with `carla-td3 export`.")
    if (told := header.get("format")) != str(FORMAT):
        raise PolicyError(f"{path}: has format {told}, this version reads {FORMAT}: use the version that wrote it.")
    if header.get("seal") != seal(header):
        raise PolicyError(f"{path}: is damaged, its card or configuration was changed: get the file again.")
    try:
        card, values = Card(**json.loads(header["card"])), json.loads(header["configuration"])
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise PolicyError(
            f"{path}: its card can't be read ({type(error).__name__}: {error}): get the file again."
        ) from None
    if any(tensor.dtype != torch.float32 or not bool(tensor.isfinite().all()) for tensor in tensors.values()):
        raise PolicyError(f"{path}: has weights that aren't finite float32 numbers: get the file again.")
    if digest(tensors) != card.sha256:
        raise PolicyError(f"{path}: is damaged, its weights are not those of its card: get the file again.")
    return PolicyFile(path, card, values, tensors)


def write(path: Path, policy: Policy, config: AgentConfig, card: Card) -> Card:
    """Write a policy's file, whole or not at all, and return its card with the digest of the weights.

    Args:
        config: that it was trained with; what only training needs is left out.

    Raises:
        OSError: it can't be written.
    """
    tensors = {name: tensor.contiguous() for name, tensor in policy.state_dict().items()}
    card = replace(card, sha256=digest(tensors))
    values = driving(config).model_dump(mode="json", include=_DRIVES)
    header = {"format": str(FORMAT), "card": json.dumps(asdict(card)), "configuration": json.dumps(values)}
    write_whole(path, safetensors.torch.save(tensors, {**header, "seal": seal(header)}))
    return card


def seal(header: Mapping[str, str]) -> str:
    """Return the SHA-256 of a file's header, but for the seal in it."""
    told = {name: text for name, text in header.items() if name != "seal"}
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


def digest(tensors: Mapping[str, Tensor]) -> str:
    """Return the SHA-256 of weights: of names and values, in the order of the names."""
    found = hashlib.sha256()
    for name in sorted(tensors):
        found.update(name.encode())
        found.update(tensors[name].contiguous().numpy().tobytes())
    return found.hexdigest()


def driving(config: AgentConfig) -> AgentConfig:
    """Return a configuration without what only training needs: teachers, short drives, traffic only near the car."""
    plain = without_teachers(config).model_dump()
    plain["environment"] |= {"time_limit": TIME_LIMIT.model_dump()}
    plain["environment"]["traffic"] |= {"within_m": None, "lights_restless": 0.0}
    return AgentConfig.model_validate(plain)


def without_teachers(config: AgentConfig) -> AgentConfig:
    """Return a configuration without its teachers: a trained driver doesn't need them, and they cost time at each step.

    A driver that sees privileged numbers keeps its configuration.
    """
    plain = config.model_dump()
    if config.td3.network.sees != "privileged":
        plain["environment"]["privileged"] = False
        plain["td3"] |= {
            "auxiliary": 0.0,
            "imitation": 0.0,
            "imitation_counts": "always",
            "q_weight": 1.0,
            "critic_sees": "observation",
            "encoder_learns_from": "all",
        }
    return AgentConfig.model_validate(plain)


def layout(config: AgentConfig) -> dict[str, list[int]]:
    """Return the shapes of what a configuration's policy sees, by their names in an observation."""
    camera = config.environment.camera
    frames = FrameStack.of(camera)
    picture = [frames.frames * frames.planes, camera.height, camera.width]
    told = {"privileged": [privileged_numbers(config.environment)]} if config.td3.network.sees == "privileged" else {}
    return {"image": picture, "vector": [VECTOR], **told}


def _fixed(config: AgentConfig) -> dict[str, Any]:
    """Return the keys of which a policy can only drive with the values that it was trained with."""
    camera = config.environment.camera
    size = {"environment.camera.width": camera.width, "environment.camera.height": camera.height}
    return {**pinned(without_teachers(config), Pin.WEIGHTS), **size}


def _words(shapes: Mapping[str, list[int]]) -> str:
    return " and ".join(f"{name} {'×'.join(map(str, shape)) or 'none'}" for name, shape in shapes.items())
