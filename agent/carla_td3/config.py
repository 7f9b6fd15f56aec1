"""The agent's configuration: one pydantic model a section, YAML over the defaults.

Owns the schema, the defaults and the sentences a person reads when a file is wrong. Environment variables win over a
file, where they say where something runs: ``CARLA_HOST``, ``CARLA_PORT`` (else the first of ``CARLA_PORTS``, as
``2000-2002``), ``CARLA_OTHERS`` and ``AGENT_DEVICE``. So does ``AGENT_BATCH``: a script that restarts a run with a
smaller batch (``scripts/wait_and_run.sh``) knows the command, not its files. ``RL_BATCH_SIZE`` is another name for it,
used by other programs.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, ValidationInfo, field_validator, model_validator

from carla_run import keys
from carla_run.configuration import refusal
from carla_run.configuration.section import Section
from carla_td3 import layered_yaml
from carla_td3.layered_yaml import ConfigError as ConfigError
from carla_td3.pins import LegacyValue, Pin

ALGORITHMS = {"td3": "carla_td3.td3.td3:TD3"}
"""The algorithms, and the class that implements each, see ``carla_td3.td3.algorithm``."""

PRECISIONS = ("float32", "bfloat16", "float16")
"""The precisions that ``td3.precision`` can resolve to."""
Offload = Literal["optimizer", "targets"]
"""Parts that can stay on the host while the networks are on a GPU."""
ENVIRONMENT = {
    "CARLA_HOST": "simulator.host",
    "CARLA_PORTS": "simulator.port",
    "CARLA_PORT": "simulator.port",
    "CARLA_OTHERS": "simulator.others",
    "AGENT_DEVICE": "device",
    "RL_BATCH_SIZE": "td3.batch_size",
    "AGENT_BATCH": "td3.batch_size",
}
"""The configuration key that each variable sets. If two variables set the same key, the later one here wins."""
FOREIGN = {"RL_BATCH_SIZE": "AGENT_BATCH"}
"""Other programs' variables that are accepted here, and our variable that means the same."""


PORTS = 3
"""Number of neighbouring ports that a simulator takes."""
LAST_PORT = 65533
"""Largest port that can be the first of them."""


def host_and_port(text: str) -> tuple[str, int] | None:
    """Return both of HOST:PORT; None if it is something else."""
    host, _, port = text.rpartition(":")
    return (host, int(port)) if host and port.isdecimal() and 1 <= int(port) <= LAST_PORT else None


class SimulatorConfig(Section):
    """Where the simulator is and how long to wait for it."""

    host: str = Field(
        "127.0.0.1", min_length=1, description="Host name or address of the simulator. Environment: CARLA_HOST."
    )
    port: int = Field(
        2000,
        ge=1,
        le=LAST_PORT,
        description="RPC port of the simulator. Environment: CARLA_PORT, else the first of CARLA_PORTS.",
    )
    others: tuple[str, ...] = Field(
        (),
        description="HOST:PORT of the second, third, … collector's simulator. Environment: CARLA_OTHERS, separated by "
        "commas. Default: the same host, three ports further each.",
    )
    map: str | None = Field(
        None,
        description="Map to load: a name, or the path of an .xodr file. null keeps the map that the simulator has.",
    )
    timeout_s: Annotated[float, Pin.SIZE] = Field(
        20.0,
        gt=0,
        description="Time-out of the carla client, in seconds. Keep it at 20 or more with traffic: a longer stall of "
        "the simulator aborts the collector.",
    )
    patience_s: float = Field(
        120.0, ge=0, description="Seconds to wait for a simulator before the agent ends with exit code 69."
    )
    fixed_delta_s: Annotated[float, Pin.ROWS] = Field(
        0.1, gt=0, le=0.1, description="Simulated seconds per step. CARLA's physics substeps allow 0.1 at most."
    )

    @field_validator("others", mode="before")
    @classmethod
    def _listed(cls, value: object) -> object:
        return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value

    @field_validator("others")
    @classmethod
    def _addresses(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if wrong := [text for text in value if host_and_port(text) is None]:
            raise ValueError(f"simulator.others has {wrong[0]!r}: expected HOST:PORT, as 127.0.0.1:2003")
        return value

    def address(self, collector: int) -> tuple[str, int]:
        """Return host and port of a collector's simulator."""
        other = host_and_port(self.others[collector - 1]) if collector and self.others else None
        return other or (self.host, self.port + PORTS * collector)


Channels = Literal["grey", "rgb"]


class ViewConfig(Section):
    """Keys that every view has."""

    yaw_deg: float = Field(
        0.0, ge=-90, le=90, description="Yaw of the view, in degrees. Positive values look to the right."
    )
    channels: Annotated[Channels, Pin.WEIGHTS | Pin.MEMORY] = Field(
        "grey", description="grey (one plane) or rgb (three planes)."
    )

    @property
    def own_planes(self) -> int:
        """Planes of one frame of this view."""
        return 3 if self.channels == "rgb" else 1


class NarrowConfig(ViewConfig):
    """A second view with the first one's place and size in pixels, to see far away or to the side."""

    fov_deg: float = Field(45.0, gt=10, lt=170, description="Horizontal field of view, in degrees.")
    pitch_deg: float = Field(
        -2.0, ge=-89, le=89, description="Pitch of the view, in degrees. Negative values look down."
    )


class StackConfig(Section):
    """Which of the past frames make one observation."""

    frames: int = Field(4, ge=1, le=8, description="Number of stacked frames; the newest is the last.")
    every: int = Field(
        1, ge=1, le=10, description="Steps between two stacked frames. A larger number covers a longer time."
    )


class CameraConfig(ViewConfig):
    """The front camera, relative to the vehicle's origin (metres, degrees)."""

    width: Annotated[Literal[84, 64], Pin.SIZE] = Field(
        84,
        description="Width of the picture, in pixels; equal to height. A change to 64 in mid-run adapts replay and "
        "network.",
    )
    height: Annotated[Literal[84, 64], Pin.SIZE] = Field(
        84, description="Height of the picture, in pixels; equal to width."
    )
    fov_deg: float = Field(100.0, gt=10, lt=170, description="Horizontal field of view, in degrees.")
    x_m: float = Field(1.2, description="Metres in front of the vehicle's origin.")
    z_m: float = Field(1.8, gt=0, description="Metres above the vehicle's origin.")
    pitch_deg: float = Field(
        -12.0, ge=-89, le=89, description="Pitch of the view, in degrees. Negative values look down."
    )
    narrow: Annotated[NarrowConfig | None, Pin.WEIGHTS | Pin.MEMORY] = Field(
        None, description="Second camera. {} takes its defaults; null means no second camera."
    )
    stack: Annotated[StackConfig, Pin.WEIGHTS | Pin.MEMORY] = Field(default_factory=StackConfig)

    @property
    def planes(self) -> int:
        """Planes of one frame, all views together."""
        return sum(view.own_planes for view in self.views)

    @property
    def views(self) -> tuple[CameraConfig | NarrowConfig, ...]:
        """The views, in the order of their planes."""
        return (self,) if self.narrow is None else (self, self.narrow)

    @model_validator(mode="after")
    def _square(self) -> CameraConfig:
        if self.width != self.height:
            raise ValueError(f"environment.camera.width {self.width} isn't height {self.height}: set both to 84 or 64")
        return self


class RouteConfig(Section):
    """Which routes are drawn and how they are described to the agent."""

    min_length_m: float = Field(120.0, gt=0, description="Length of the shortest route, in metres.")
    max_length_m: float = Field(350.0, gt=0, description="Length of the longest route, in metres.")
    min_turns: int = Field(
        0, ge=0, description="Least number of junction turns on a route. A turn changes the heading by more than 45°."
    )
    point_spacing_m: Annotated[float, Pin.ROWS] = Field(
        2.0, gt=0, description="Metres between two of the 24 route points in the observation."
    )
    held_out_fraction: float = Field(
        0.2, ge=0, lt=1, description="Share of routes that are kept for evaluation. Training never drives them."
    )
    before_signs: float = Field(
        0.0,
        ge=0,
        le=1,
        description="Share of training episodes that start before a stop or yield sign, if the map has one.",
    )

    @model_validator(mode="after")
    def _lengths_in_order(self) -> RouteConfig:
        if self.max_length_m < self.min_length_m:
            raise ValueError(
                f"max_length_m {self.max_length_m} is below min_length_m {self.min_length_m}: raise max_length_m"
            )
        return self


class RewardConfig(Section):
    """Weights of the reward's terms. All ≥ 0: each term has its sign (progress is a reward, the rest are costs)."""

    form: Literal["sum", "product"] = Field(
        "sum",
        description="sum adds all terms. product multiplies progress by a factor for each fault, and a red light that "
        "is run ends the episode.",
    )
    target_speed_mps: float = Field(8.0, gt=0, description="Speed in m/s above which progress earns no more reward.")
    progress: float = Field(
        1.0, ge=0, description="Weight of progress along the route: 1 per step at the target speed."
    )
    idle: float = Field(
        0.2,
        ge=0,
        description="Weight of standing still: full at 0 m/s, none from 1 m/s on or where waiting is right. Only in "
        "the form sum.",
    )
    overspeed: float = Field(
        2.0,
        ge=0,
        description="Weight of speed above the target speed, as a share of it. In the form product the target is "
        "what the road ahead allows.",
    )
    lateral: float = Field(
        2.0,
        ge=0,
        description="Weight of the distance to the route's centre line, as a share of half a lane, times speed.",
    )
    heading: float = Field(
        1.0, ge=0, description="Weight of the heading error to the route's tangent, per 90°, times speed."
    )
    comfort: float = Field(
        0.05, ge=0, description="Weight of the change of steering and throttle from one step to the next."
    )
    time_to_collision: float = Field(
        0.5,
        ge=0,
        description="Weight of a short time to collision: full at 0 s, none from 2 s on. Only in the form product.",
    )
    collision: float = Field(10.0, ge=0, description="Penalty for a collision. It ends the episode.")
    red_light: float = Field(
        10.0, ge=0, description="Penalty for running a red light. In the form product it also ends the episode."
    )
    off_road: float = Field(10.0, ge=0, description="Penalty for leaving the road. It ends the episode.")
    blocked: float = Field(
        10.0,
        ge=0,
        description="Penalty if an episode ends because the car stood still for too long. Only in the form product.",
    )
    finish: float = Field(10.0, ge=0, description="Reward for reaching the end of the route.")


_SKIES = ("Clear", "Cloudy", "Wet", "WetCloudy", "SoftRain", "MidRainy", "HardRain")
WEATHER_BY_DAY = (*(f"{sky}Noon" for sky in _SKIES), *(f"{sky}Sunset".replace("Rainy", "Rain") for sky in _SKIES))
"""CARLA's weather presets at noon and at sunset, in CARLA's spelling."""
WEATHERS = (*WEATHER_BY_DAY, *(f"{sky}Night" for sky in _SKIES), "DustStorm")
"""All presets. At night the road is dark: the agent's cars drive without lamps."""

Amount = int | tuple[int, int]
"""A number, or a range from which each episode draws one."""


def _is_whole(value: float) -> bool:
    return not isinstance(value, bool) and float(value).is_integer()


def most(amount: Amount) -> int:
    """Return the largest number that an amount allows."""
    return amount if isinstance(amount, int) else amount[1]


CROWD = 500
"""Walkers and vehicles in the client's crowd (``MAX_AGENTS`` of LibCarla's Navigation.cpp); each tick it prints a line
for each vehicle that has no place in it.
"""


class TrafficConfig(Section):
    """Cars of a Traffic Manager and pedestrians of a crowd, both run by the collector's process, and traffic lights."""

    vehicles: Annotated[Amount, Pin.SIZE] = Field(
        0,
        description="Number of cars, up to 200. [low, high] draws a number for each episode; 0 starts no Traffic "
        "Manager.",
    )
    slower_percent: float = Field(
        0.0,
        ge=0,
        lt=100,
        description="Percent below the speed limit at which the cars drive. At the limit they leave their lanes in "
        "bends.",
    )
    walkers: Annotated[Amount, Pin.SIZE] = Field(
        0,
        description="Number of pedestrians, up to 400; with the cars up to 499. [low, high] draws a number for each "
        "episode. The map needs a navigation mesh.",
    )
    walkers_crossing: float = Field(0.5, ge=0, le=1, description="Share of pedestrians that cross roads anywhere.")
    walkers_step_out: float = Field(
        0.0,
        ge=0,
        le=1,
        description="Share of pedestrians beside the route that are sent across just before the car arrives. Few cross "
        "by themselves. A pedestrian that avoids roads uses a crosswalk.",
    )
    within_m: float | None = Field(
        None,
        gt=0,
        description="Largest distance in metres between an episode's start and each car and pedestrian at that time; "
        "null means anywhere on the map. With a limit, a fifth of the number gives a short episode as much "
        "traffic.",
    )
    lights: bool = Field(
        False,
        description="Whether traffic lights change. If not, all of them are green. An evaluation episode starts at the "
        "beginning of their cycles, a training episode at any time.",
    )
    lights_restless: float = Field(
        0.0,
        ge=0,
        le=1,
        description="Share of training episodes in which the lights on the route switch at random each second, so that "
        "the colour of a light can't be learned from its place.",
    )

    @field_validator("vehicles", "walkers", mode="before")
    @classmethod
    def _counted(cls, value: object, info: ValidationInfo) -> Amount:
        limit = {"vehicles": 200, "walkers": 400}[str(info.field_name)]
        ends: Sequence[object] = value if isinstance(value, list | tuple) else [value, value]
        numbers = [int(end) for end in ends if isinstance(end, int | float) and _is_whole(end)]
        if len(ends) != 2 or len(numbers) != 2 or not 0 <= numbers[0] <= numbers[1] <= limit:
            raise ValueError(
                f"environment.traffic.{info.field_name} is {keys.shown(value)}: expected a number from 0 to "
                f"{limit}, or a range [low, high] of such"
            )
        return (numbers[0], numbers[1]) if ends is value else numbers[0]

    @model_validator(mode="after")
    def _fit_the_crowd(self) -> TrafficConfig:
        if most(self.walkers) and most(self.vehicles) + most(self.walkers) >= CROWD:
            raise ValueError(
                f"environment.traffic has up to {most(self.vehicles)} vehicles and {most(self.walkers)} walkers: "
                f"expected at most {CROWD - 1} together, because the crowd of CARLA's client holds {CROWD} with the "
                "driven car"
            )
        return self

    @property
    def in_process(self) -> bool:
        """Whether there are cars or pedestrians, which the process that ticks must drive."""
        return most(self.vehicles) > 0 or most(self.walkers) > 0

    @property
    def can_be_blocked(self) -> bool:
        """Whether there is anything to wait for: a light, a car or a pedestrian."""
        return self.lights or self.in_process


class TimeLimitConfig(Section):
    """How long an episode may take, in simulated seconds. It truncates, never terminates."""

    constant_s: float = Field(60.0, ge=0, description="Seconds for every route.")
    s_per_m: float = Field(0.0, ge=0, description="Further seconds for each metre of the route.")

    @model_validator(mode="after")
    def _some_time(self) -> TimeLimitConfig:
        if not self.constant_s and not self.s_per_m:
            raise ValueError("environment.time_limit.constant_s and s_per_m are both 0: raise one of them")
        return self


class ActionRateConfig(Section):
    """How steering and pedals follow an action. The observation's last two numbers say where they are.

    Rates are full actions per second; null means at once.
    """

    steer_range: float = Field(
        0.5,
        gt=0,
        le=1,
        description="Share of the largest wheel angle for a steering of 1. Half of CARLA's 70° is the angle of "
        "a passenger car.",
    )
    steer_per_s: float | None = Field(
        None, gt=0, description="Largest change of steering per second; null means no limit."
    )
    pedal_per_s: float | None = Field(
        None, gt=0, description="Largest change of throttle and brake per second; null means no limit."
    )
    lag_s: float = Field(
        0.2,
        ge=0,
        description="Time constant of steering and pedals, in seconds: each step they approach the action by the share "
        "1 - exp(-step / lag_s). 0 means no lag.",
    )


class EnvironmentConfig(Section):
    """The gymnasium environment."""

    time_limit: TimeLimitConfig = Field(default_factory=TimeLimitConfig)
    off_road_m: float = Field(
        2.5, gt=0, description="Distance to the route's centre line, in metres, that counts as off the road."
    )
    blocked_s: float | None = Field(
        None,
        gt=0,
        description="Simulated seconds without progress that end an episode. null means 15 s without a metre of "
        "progress, or 180 s below 0.1 m/s (as in the Leaderboard) where lights, cars or pedestrians can hold the car.",
    )
    weather: tuple[str, ...] = Field(
        (),
        description="CARLA's weather presets, from which each episode draws one. A single name such as ClearNoon is "
        "allowed; random means all presets by day; null or an empty list keeps the simulator's weather.",
    )
    action_rate: Annotated[ActionRateConfig, Pin.ROWS] = Field(default_factory=ActionRateConfig)
    privileged: Annotated[bool, Pin.ROWS | Pin.MEMORY] = Field(
        False,
        description="Adds an observation key with what the simulator knows of the road ahead, for critics and "
        "auxiliary losses. The actor does not receive it.",
    )
    camera: Annotated[CameraConfig, Pin.ROWS] = Field(default_factory=CameraConfig)
    route: RouteConfig = Field(default_factory=RouteConfig)
    reward: Annotated[RewardConfig, Pin.ROWS] = Field(default_factory=RewardConfig)
    traffic: TrafficConfig = Field(default_factory=TrafficConfig)

    @field_validator("weather", mode="before")
    @classmethod
    def _named(cls, value: object) -> tuple[str, ...]:
        names = value if isinstance(value, list | tuple) else [] if value is None else [value]
        if names == ["random"]:
            return WEATHER_BY_DAY
        wrong = [name for name in names if name not in WEATHERS]
        if wrong:
            known = ", ".join(WEATHERS)
            raise ValueError(f"environment.weather has {keys.shown(wrong[0])}: expected random or some of {known}")
        return tuple(names)


CHANNELS = {"whole": (32, 64, 64), "half": (16, 32, 32)}
"""Names for some widths of the encoder."""


Width = Annotated[int, Field(gt=0)]


class NetworkConfig(Section):
    """Widths of the networks. The defaults with channels ``whole`` are Stable-Baselines3's CnnPolicy (NatureCNN)."""

    channels: Annotated[tuple[Width, Width, Width], Pin.WEIGHTS] = Field(
        CHANNELS["half"],
        description="Output channels of the three convolutions. half is [16, 32, 32]; whole is [32, 64, 64] and takes "
        "1.6 to 1.8 times as long on a CPU.",
    )
    features: Annotated[int, Pin.WEIGHTS] = Field(512, gt=0, description="Number of image features.")
    encoder: Annotated[Literal["nature", "detector"], Pin.WEIGHTS | Pin.MEMORY, LegacyValue("nature")] = Field(
        "nature",
        description="Encoder of the pictures. nature: three convolutions. detector: also tells people and vehicles in "
        "each direction, taught by the privileged numbers; an update takes five to six times as long.",
    )
    picture_weight: Annotated[float, Pin.WEIGHTS, LegacyValue(1.0)] = Field(
        0.2,
        gt=0,
        description="Scale of all image features beside the vector. A smaller value makes the networks learn from the "
        "vector first and from the picture later.",
    )
    hidden: Annotated[tuple[Width, ...], Pin.WEIGHTS] = Field(
        (256, 256), min_length=1, description="Widths of the hidden layers of actor and critics."
    )
    sees: Annotated[Literal["image", "vector", "privileged"], Pin.WEIGHTS, LegacyValue("image")] = Field(
        "image",
        description="Input of actor and critics. image: picture and vector. vector: only the vector, without an "
        "encoder, to measure what the picture is worth. privileged: the vector and what only the simulator knows, as "
        "an upper bound.",
    )

    @field_validator("channels", mode="before")
    @classmethod
    def _named(cls, value: object) -> object:
        if isinstance(value, str) and value not in CHANNELS:
            raise ValueError(
                f"td3.network.channels {value!r} is unknown: expected three widths, or one of {', '.join(CHANNELS)}"
            )
        return CHANNELS[value] if isinstance(value, str) else value


class TD3Config(Section):
    """Fujimoto et al. 2018, with the paper's symbols in the descriptions."""

    gamma: float = Field(0.98, ge=0, lt=1, description="Discount factor γ. 0.98 at 10 Hz looks 5 s ahead.")
    tau: float = Field(0.005, gt=0, le=1, description="Polyak factor τ of the target networks.")
    policy_delay: int = Field(2, ge=1, description="Critic updates per actor update (d).")
    target_noise: float = Field(0.2, ge=0, description="Standard deviation σ̃ of the noise on target actions.")
    target_noise_clip: float = Field(0.5, ge=0, description="Clip c of the noise on target actions.")
    actor_learning_rate: float = Field(1e-3, gt=0, description="Learning rate of the actor (Adam).")
    critic_learning_rate: float = Field(1e-3, gt=0, description="Learning rate of critics and encoder (Adam).")
    batch_size: Annotated[int, Pin.SIZE] = Field(
        256, ge=1, description="Transitions per update. Environment: AGENT_BATCH."
    )
    micro_batch: Annotated[int | None, Pin.SIZE] = Field(
        None,
        ge=1,
        description="Transitions computed at once. Their gradients are summed, so the update stays the same. null "
        "means batch_size.",
    )
    precision: Annotated[Literal["auto", "float32", "bfloat16", "float16"], Pin.MEMORY] = Field(
        "float32",
        description="Precision of the encoder's arithmetic. auto takes bfloat16 where it is faster, else float32, and "
        "decides once per run. float16 uses a loss scale and is for GPUs without bfloat16.",
    )
    cuda_graph: Annotated[bool, Pin.SIZE] = Field(
        False,
        description="On a GPU, record the kernels of an update once and launch them together. It helps small batches, "
        "and takes more memory. Without effect on the CPU and with memory.offload.",
    )
    exploration_noise: float = Field(0.1, ge=0, description="Standard deviation σ of the Gaussian noise on actions.")
    n_step: Annotated[int, Pin.MEMORY] = Field(
        1, ge=1, le=16, description="Number of rewards that a target sums before it bootstraps (n-step returns)."
    )
    random_erasing: int = Field(
        0,
        ge=0,
        le=16,
        description="Largest number of random grey rectangles over a transition's frames (Zhong et al. 2020).",
    )
    encoder_learns_from: Literal["all", "auxiliary"] = Field(
        "all",
        description="Losses that train the encoder: all (critics and auxiliary), or auxiliary only, for critics that "
        "see the privileged numbers.",
    )
    auxiliary: Annotated[float, Pin.WEIGHTS | Pin.MEMORY, LegacyValue(0.0)] = Field(
        0.0,
        ge=0,
        description="Weight λ of the auxiliary loss: the encoder predicts the privileged numbers. 0 turns it off.",
    )
    imitation: float = Field(
        0.0, ge=0, description="Weight β of the imitation loss towards the expert's action. 0 turns it off."
    )
    imitation_counts: Literal["always", "if_better"] = Field(
        "always",
        description="Rows whose expert's action counts: always, or if_better, only where both critics value it above "
        "the actor's own action (the Q-filter of Nair et al. 2018).",
    )
    q_weight: float = Field(
        1.0,
        ge=0,
        description="Weight of Q in the actor's loss. 0 is imitation only, a control that needs td3.imitation above 0.",
    )
    smoothness: float = Field(
        0.2,
        ge=0,
        description="Weight κ of a loss towards the present steering and pedals, so that an untrained critic does not "
        "swing them from end to end. 0 turns it off.",
    )
    critic_sees: Annotated[
        Literal["observation", "privileged"], Pin.WEIGHTS | Pin.MEMORY, LegacyValue("observation")
    ] = Field(
        "observation", description="Input of the critics: the actor's observation, or also the privileged numbers."
    )
    network: Annotated[NetworkConfig, Pin.MEMORY] = Field(default_factory=NetworkConfig)

    def seen(self, privileged: int) -> int:
        """Return how many of the privileged numbers the critics read."""
        return privileged if self.critic_sees == "privileged" else 0

    def predicted(self, privileged: int) -> int:
        """Return how many of the privileged numbers the encoder predicts."""
        return privileged if self.auxiliary > 0 else 0


class ReplayConfig(Section):
    """The memory-mapped ring of transitions."""

    capacity: Annotated[int, Pin.SIZE] = Field(
        100_000,
        ge=1_000,
        description="Transitions of all collectors together, one frame each. The files are allocated in full at the "
        "start.",
    )
    demonstrations: Annotated[str | None, Pin.MEMORY] = Field(
        None,
        description="Folder of demonstrations that `carla-td3 record` made, to learn from as well. null means none.",
    )
    demonstration_share: float = Field(
        0.5,
        gt=0,
        lt=1,
        description="Share of demonstrations in each batch. While the run has few steps, all transitions are drawn "
        "with the same probability.",
    )


class MemoryConfig(Section):
    """How memory is allocated, and how much is left free."""

    backend: Literal["native", "cudaMallocAsync"] = Field("native", description="CUDA allocator of PyTorch.")
    expandable_segments: bool | Literal["auto"] = Field(
        "auto",
        description="Growable segments of the CUDA allocator. auto uses them where PyTorch and the platform support "
        "them; true always does, on WSL2 too.",
    )
    garbage_collection_threshold: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="Share of the allocator's limit above which cached blocks are freed. null leaves it to PyTorch.",
    )
    per_process_memory_fraction: float | None = Field(
        None,
        gt=0,
        le=1,
        description="Largest share of the GPU's memory that the allocator takes, without the CUDA context. null means "
        "no limit.",
    )
    offload: Annotated[tuple[Offload, ...], Pin.SIZE] = Field(
        (),
        description="Parts that stay in host memory instead of on the GPU: optimizer (Adam's state and its step), "
        "targets (the target networks). Without effect on the CPU.",
    )
    reserve_mib: float = Field(
        64.0,
        ge=0,
        description="MiB that must stay free on GPU, host and disk beyond the estimate. Otherwise the agent does not "
        "start (exit code 71).",
    )


class TownsConfig(Section):
    """Changes of town during training: another map after a number of episodes, each in a new collector process."""

    maps: tuple[str, ...] = Field(
        ("Lite:seed={seed},size=400",),
        min_length=1,
        description="Maps to use in turn: names, .xodr files or folders of .xodr files. {seed} grows by one from "
        "town to town; only carla-lite has towns from a seed.",
    )
    every_episodes: int = Field(20, ge=1, description="Episodes per town.")
    first_seed: int = Field(
        1000, ge=0, description="{seed} of the first town. Keep it away from the seeds of test towns."
    )
    evaluation_map: str | None = Field(
        None, description="Map of the evaluations. null means the town of the training at that time."
    )


class TrainingConfig(Section):
    """Length, rates and order of the training."""

    total_steps: Annotated[int, Pin.SIZE] = Field(
        1_000_000, gt=0, description="Environment steps of the run, warm-up included."
    )
    warmup_steps: int = Field(2_000, ge=0, description="Steps of random driving before the actor drives.")
    halts_every_s: float = Field(
        0.0,
        ge=0,
        description="Mean seconds between two halts without a cause, in training and demonstrations, so that the "
        "driver does not learn to keep standing because it stands. 0 means none.",
    )
    updates_per_step: float = Field(1.0, gt=0, le=20, description="Updates per environment step.")
    annealing: float = Field(
        0.4,
        ge=0,
        le=1,
        description="Share of the updates, at the end of the run, in which the learning rates fall linearly to 0. A "
        "run that is extended raises them again.",
    )
    final_updates: int = Field(
        0,
        ge=0,
        description="Updates after the last step, with reset networks, on all transitions. 0 keeps the trained "
        "networks. A run that is extended does this again at its new end.",
    )
    lockstep: bool = Field(
        False, description="Collector and learner take turns. Runs are then reproducible bit for bit, and slower."
    )
    collectors: Annotated[int, Pin.SIZE] = Field(
        1, ge=1, le=64, description="Number of collector processes. Each needs a simulator."
    )
    max_lead_steps: Annotated[int, Pin.SIZE] = Field(
        256, ge=1, description="Steps that collectors may be ahead of the learner, unless in lockstep."
    )
    publish_every_updates: int = Field(
        10, ge=1, description="Updates between two publications of the actor's weights to the collectors."
    )
    learner_threads: int = Field(
        0,
        ge=0,
        le=1024,
        description="Threads that torch uses in the learner. 0 means all cores but one, which simulator and collector "
        "need.",
    )
    towns: TownsConfig | None = Field(
        None, description="Change of towns during training. {} takes its defaults; null stays on simulator.map."
    )
    log_every_steps: int = Field(500, gt=0, description="Steps between two rows in TensorBoard.")
    checkpoint_every_steps: Annotated[int, Pin.SIZE] = Field(5_000, gt=0, description="Steps between two checkpoints.")
    keep_checkpoints: Annotated[int, Pin.SIZE] = Field(
        3, ge=1, description="Number of newest checkpoints that are kept, beside the best one."
    )


class CollectorConfig(Section):
    """The child processes that drive, and how the learner watches them."""

    at_work: Annotated[int | None, Pin.SIZE] = Field(
        None,
        ge=1,
        description="Number of collectors that drive; the others rest. null means all of training.collectors.",
    )
    attempts: int = Field(
        5, ge=1, description="Collector processes in a row that may end without a finished step, before the run ends."
    )
    start_limit_s: float = Field(120.0, gt=0, description="Seconds that a collector process may take to start.")
    hang_margin_s: Annotated[float, Pin.SIZE] = Field(
        5.0, gt=0, description="Seconds beyond simulator.timeout_s after which a step counts as hung."
    )
    stop_grace_s: float = Field(
        2.0, ge=0, description="Seconds that a collector may take to stop in order before it is killed."
    )


class ClusterConfig(Section):
    """Collectors on other machines: the nodes of a Ray cluster, each with its own simulator."""

    address: Annotated[str | None, Pin.SIZE] = Field(
        None,
        description="HOST:PORT of the Ray cluster, or auto for the cluster of this machine. null means no cluster.",
    )
    simulator: tuple[str, ...] = Field((), description="Options of `carla-launcher simulator`, which each node starts.")

    @field_validator("address")
    @classmethod
    def _is_an_address(cls, value: str | None) -> str | None:
        if value and value != "auto" and host_and_port(value) is None:
            raise ValueError(f"cluster.address is {value!r}: expected HOST:PORT, as 10.0.0.1:6379, or auto")
        return value or None


class EvaluationConfig(Section):
    """Evaluation on held-out routes, with the deterministic policy."""

    every_steps: Annotated[int, Pin.SIZE] = Field(
        10_000, ge=0, description="Steps between two evaluations during training. 0 means none."
    )
    episodes: int = Field(5, ge=1, description="Routes per evaluation.")
    final_episodes: Annotated[int, Pin.SIZE] = Field(
        10, ge=0, description="Routes of the last evaluation. 0 means none."
    )
    baselines: bool = Field(
        True, description="Whether the last evaluation also drives td3 with grey pictures, stop, random and PID."
    )
    video: Annotated[bool, Pin.SIZE] = Field(
        True, description="Whether a video of the trained driver is made at the end."
    )
    min_turns: int = Field(0, ge=0, description="Least number of junction turns on an evaluation route.")


class AgentConfig(Section):
    """Everything the agent reads."""

    seed: int = Field(0, ge=0, description="Seed of networks, exploration, routes and traffic.")
    algorithm: Annotated[str, Pin.WEIGHTS, LegacyValue("td3")] = Field("td3", description="Learning algorithm.")
    device: Annotated[Literal["auto", "cpu", "cuda"], Pin.SIZE] = Field(
        "auto", description="Device of the learner. Environment: AGENT_DEVICE. Collectors act on the CPU."
    )
    simulator: SimulatorConfig = Field(default_factory=SimulatorConfig)
    environment: EnvironmentConfig = Field(default_factory=EnvironmentConfig)
    td3: TD3Config = Field(default_factory=TD3Config)
    replay: ReplayConfig = Field(default_factory=ReplayConfig)
    memory: MemoryConfig = Field(default_factory=MemoryConfig)
    training: TrainingConfig = Field(default_factory=TrainingConfig)
    collector: CollectorConfig = Field(default_factory=CollectorConfig)
    cluster: ClusterConfig = Field(default_factory=ClusterConfig)
    evaluation: EvaluationConfig = Field(default_factory=EvaluationConfig)

    @field_validator("algorithm")
    @classmethod
    def _is_known(cls, value: str) -> str:
        if value not in ALGORITHMS:
            raise ValueError(f"algorithm is {value!r}: expected {' or '.join(ALGORITHMS)}")
        return value

    @model_validator(mode="after")
    def _warm_up_ends(self) -> AgentConfig:
        if self.training.warmup_steps >= self.training.total_steps:
            raise ValueError(
                f"training.warmup_steps is {self.training.warmup_steps}, expected less than training.total_steps, "
                f"which is {self.training.total_steps}"
            )
        return self

    @model_validator(mode="after")
    def _collectors_have_what_they_need(self) -> AgentConfig:
        count, simulator = self.training.collectors, self.simulator
        if self.training.lockstep and self.cluster.address:
            raise ValueError("training.lockstep needs its collector on this machine, cluster.address is set: unset one")
        if count == 1:
            return self
        if self.training.lockstep:
            raise ValueError(
                f"training.lockstep needs one collector, training.collectors is {count}: set either of them otherwise"
            )
        if not self.cluster.address and simulator.others and len(simulator.others) < count - 1:
            raise ValueError(
                f"simulator.others has {len(simulator.others)} addresses for the {count - 1} further collectors of "
                f"training.collectors {count}: name as many"
            )
        if not self.cluster.address and not simulator.others and simulator.address(count - 1)[1] > LAST_PORT:
            raise ValueError(
                f"simulator.port {simulator.port} leaves no room for {count} simulators, three ports each: lower it"
            )
        if self.replay.capacity < 1_000 * count:
            raise ValueError(
                f"replay.capacity {self.replay.capacity} is less than 1000 rows for each of training.collectors "
                f"{count}: raise it"
            )
        return self

    @model_validator(mode="after")
    def _privileged_numbers_are_there(self) -> AgentConfig:
        if (self.td3.seen(1) or self.td3.predicted(1) or self.td3.imitation) and not self.environment.privileged:
            raise ValueError(
                "td3.auxiliary, td3.imitation and td3.critic_sees: privileged learn from what the simulator knows: set "
                "environment.privileged to true"
            )
        if self.td3.network.sees == "privileged" and not self.environment.privileged:
            raise ValueError(
                "td3.network.sees: privileged is a driver that is told what the simulator knows: set "
                "environment.privileged to true"
            )
        return self

    @model_validator(mode="after")
    def _actor_learns(self) -> AgentConfig:
        td3 = self.td3
        if not td3.imitation and not td3.q_weight:
            raise ValueError(
                "td3.q_weight is 0 and td3.imitation is 0, so the actor would learn from nothing: raise one of them"
            )
        if not td3.imitation and td3.imitation_counts != "always":
            raise ValueError(
                f"td3.imitation_counts is {td3.imitation_counts} and td3.imitation is 0, so no label counts: raise "
                "td3.imitation, or set imitation_counts to always"
            )
        return self

    @model_validator(mode="after")
    def _encoder_learns(self) -> AgentConfig:
        td3 = self.td3
        if td3.encoder_learns_from == "auxiliary" and td3.network.sees == "image" and not td3.auxiliary:
            raise ValueError(
                "td3.encoder_learns_from is auxiliary and td3.auxiliary is 0, so it would learn from nothing: raise "
                "td3.auxiliary, or set encoder_learns_from to all"
            )
        return self

    @model_validator(mode="after")
    def _pictures_are_there(self) -> AgentConfig:
        network = self.td3.network
        if network.sees != "image" and network.encoder == "detector":
            raise ValueError(
                f"td3.network.encoder is detector and td3.network.sees is {network.sees}, so there is no picture to "
                "detect in: set encoder to nature"
            )
        if network.sees != "image" and (self.td3.auxiliary > 0 or self.td3.random_erasing > 0):
            raise ValueError(
                f"td3.auxiliary and td3.random_erasing are for pictures, td3.network.sees is {network.sees}: "
                "set them to 0"
            )
        return self

    @model_validator(mode="after")
    def _detector_knows_the_way(self) -> AgentConfig:
        for key, value, expected in (
            ("environment.action_rate.steer_range", self.environment.action_rate.steer_range, 1.0),
            ("simulator.fixed_delta_s", self.simulator.fixed_delta_s, 0.1),
        ):
            if self.td3.network.encoder == "detector" and value != expected:
                raise ValueError(
                    f"{key} is {value} and td3.network.encoder is detector, which finds the way since a frame by steps "
                    f"of 0.1 s and the wheels' whole turn: set {key} to {expected}, or encoder to nature"
                )
        return self

    def require_teachers(self) -> None:
        """Check what a training needs and a trained driver doesn't.

        Raises:
            ConfigError: the encoder would learn from nothing.
        """
        if self.td3.network.encoder == "detector" and not self.td3.auxiliary:
            raise ConfigError(
                "td3.network.encoder is detector and td3.auxiliary is 0, so its maps would learn from nothing: raise "
                "td3.auxiliary and set environment.privileged to true, or set encoder to nature.",
                "td3.auxiliary",
            )

    @property
    def collectors_at_work(self) -> int:
        """How many collectors should drive; the others rest."""
        return min(self.training.collectors, self.collector.at_work or self.training.collectors)

    def digest(self) -> str:
        """Return 16 hex digits that identify the configuration, without simulator addresses, for checkpoints and
        reports.
        """
        return hashlib.sha256(json.dumps(dump(self, address=False)).encode()).hexdigest()[:16]


def load(
    path: Path, overrides: Mapping[str, Any] | None = None, origins: Mapping[str, str] | None = None
) -> AgentConfig:
    """Read a YAML configuration, resolve its ``extends`` and apply ``overrides``.

    Args:
        path: the file; its key ``extends`` names another file, relative to it.
        overrides: dotted keys to values, ``{"td3.batch_size": 64}``; the command line and ``overrides.yaml``. They
            win over the environment, which wins over the file.
        origins: what sets each override, and of a section each key in it, to be named instead of the file if its value
            is wrong.

    Raises:
        ConfigError: the file is missing, isn't YAML, or a key or value is wrong.
    """
    return merged(layered_yaml.read(path), str(path), overrides, origins)


def merged(
    values: dict[str, Any],
    source: str,
    overrides: Mapping[str, Any] | None = None,
    origins: Mapping[str, str] | None = None,
) -> AgentConfig:
    """Return the configuration of a file's values, the environment's and ``overrides``, see ``load``.

    Raises:
        ConfigError: a key or value is wrong; the sentence names its origin, or ``source``.
    """
    given = _given()
    reported = {key: os.environ[name] for key, name in given.items()}
    if given.get("simulator.port") == "CARLA_PORTS":
        reported["simulator.port"] = reported["simulator.port"].partition("-")[0]
    for dotted, value in {**reported, **(overrides or {})}.items():
        layered_yaml.assign(values, dotted, value)
    return validate(values, " with ".join([source, ", ".join(given.values())] if given else [source]), origins)


def _given() -> dict[str, str]:
    """Return the variable that sets each key, for the variables that are set. Compose passes unset ones as empty."""
    return {key: name for name, key in ENVIRONMENT.items() if os.environ.get(name)}


def foreign_variables(overrides: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each of another program's variables that takes effect."""
    taken = {key: name for key, name in _given().items() if name in FOREIGN and key not in overrides}
    return [
        f"{name} is {os.environ[name]}: {key} is that. {FOREIGN[name]}, or --set {key}=N, says the same."
        for key, name in taken.items()
    ]


def validate(values: Mapping[str, Any], source: str, origins: Mapping[str, str] | None = None) -> AgentConfig:
    """Return the checked configuration; the origin of the wrong key, or ``source``, is named in the error.

    Raises:
        ConfigError: with one sentence on the first thing that is wrong.
    """
    try:
        return AgentConfig.model_validate(values)
    except ValidationError as error:
        clause, key = refusal.clause(error, AgentConfig), refusal.key(error, AgentConfig)
        raise ConfigError(f"{_origin(key, values, origins or {}, source)}: {clause}.", key) from None


def _origin(key: str, values: Mapping[str, Any], origins: Mapping[str, str], source: str) -> str:
    """Return what set a key, which may be a section, or an element of a list; ``source`` if several did."""
    found = set()
    for leaf, _ in keys.leaves({key: keys.at(values, key)}):
        upwards = accumulate(leaf.split("."), "{}.{}".format)
        found.add(next((origins[each] for each in upwards if each in origins), source))
    return found.pop() if len(found) == 1 else source


def dump(config: AgentConfig, address: bool = True) -> dict[str, Any]:
    """Return the resolved configuration as plain data for YAML, with or without the simulators' addresses."""
    excluded: Any = {} if address else {"simulator": {"host", "port", "others"}, "cluster": True}
    plain: dict[str, Any] = json.loads(config.model_dump_json(exclude=excluded))
    return plain
