"""The agent's configuration: one pydantic model a section, YAML over the defaults.

Owns the schema, the defaults and the sentences a person reads when a file is wrong. Environment variables win over a
file: ``CARLA_HOST``, ``CARLA_PORT`` (else the first of ``CARLA_PORTS``, as ``2000-2002``), ``CARLA_OTHERS`` and
``AGENT_DEVICE``, because they say where something runs and not what; and ``AGENT_BATCH``, because who starts a run once
more after it ran out of memory (``scripts/wait_and_run.sh``) knows the command alone and not its files; by the name of
other programs' recipes it is ``RL_BATCH_SIZE``.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, ValidationInfo, field_validator, model_validator

from carla_run import keys
from carla_run.configuration import refusal
from carla_run.configuration.section import Section
from carla_td3 import layered_yaml
from carla_td3.layered_yaml import ConfigError as ConfigError
from carla_td3.pins import Before, Pin

ALGORITHMS = {"td3": "carla_td3.td3.td3:TD3"}
"""What can learn, and where it is written: a class each, as ``carla_td3.td3.algorithm`` has it."""

PRECISIONS = ("float32", "bfloat16", "float16")
"""What ``td3.precision`` comes to."""
Offload = Literal["optimizer", "targets"]
"""What can live on the host while the networks are on a GPU."""
ENVIRONMENT = {
    "CARLA_HOST": "simulator.host",
    "CARLA_PORTS": "simulator.port",
    "CARLA_PORT": "simulator.port",
    "CARLA_OTHERS": "simulator.others",
    "AGENT_DEVICE": "device",
    "RL_BATCH_SIZE": "td3.batch_size",
    "AGENT_BATCH": "td3.batch_size",
}
"""The key that each variable sets; of two for the same, the later one wins."""
FOREIGN = {"RL_BATCH_SIZE": "AGENT_BATCH"}
"""Variables of other programs' recipes that are taken here as well, and said: the one of ours that means the same."""


PORTS = 3
"""Neighbouring ports that a simulator takes."""
LAST_PORT = 65533
"""The last of them that can be the first."""


class SimulatorConfig(Section):
    """Where the simulator is and how long to wait for it."""

    host: str = Field("127.0.0.1", description="Host name; CARLA_HOST.")
    port: int = Field(2000, ge=1, le=LAST_PORT, description="RPC port; CARLA_PORT, else the first of CARLA_PORTS.")
    others: tuple[str, ...] = Field(
        (),
        description="HOST:PORT of the second collector's simulator, the third's…; CARLA_OTHERS, commas between. "
        "Default: on this host, each three ports further.",
    )
    map: str | None = Field(None, description="Map name, or path of an .xodr file; null keeps the simulator's map.")
    timeout_s: Annotated[float, Pin.SIZE] = Field(
        20.0, gt=0, description="Client time-out. Not below 20 with traffic: a stall past it aborts the collector."
    )
    patience_s: float = Field(120.0, ge=0, description="How long to wait for a simulator before giving up (exit 69).")
    fixed_delta_s: float = Field(
        0.1, gt=0, le=0.1, description="Simulated seconds a step; CARLA's physics substeps allow at most 0.1."
    )

    @field_validator("others", mode="before")
    @classmethod
    def _listed(cls, value: object) -> object:
        return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value

    @field_validator("others")
    @classmethod
    def _addresses(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for text in value:
            host, _, port = text.rpartition(":")
            if not host or not port.isdecimal() or not 1 <= int(port) <= LAST_PORT:
                raise ValueError(f"simulator.others has {text!r}: expected HOST:PORT, as 127.0.0.1:2003")
        return value

    def address(self, collector: int) -> tuple[str, int]:
        """Return host and port of a collector's simulator."""
        if collector and self.others:
            host, _, port = self.others[collector - 1].rpartition(":")
            return host, int(port)
        return self.host, self.port + PORTS * collector


Channels = Literal["grey", "rgb"]


class ViewConfig(Section):
    """What every view has, wherever it looks."""

    yaw_deg: float = Field(0.0, ge=-90, le=90, description="Positive looks to the right.")
    channels: Annotated[Channels, Pin.WEIGHTS | Pin.MEMORY] = Field("grey", description="One plane, or three.")

    @property
    def own_planes(self) -> int:
        """Of one frame, of this view."""
        return 3 if self.channels == "rgb" else 1


class NarrowConfig(ViewConfig):
    """A second view with the first one's place and pixels, for what is far away or aside."""

    fov_deg: float = Field(45.0, gt=10, lt=170, description="Horizontal field of view.")
    pitch_deg: float = Field(-2.0, ge=-89, le=89, description="Negative looks down.")


class StackConfig(Section):
    """Which of the frames that were seen make one observation."""

    frames: int = Field(4, ge=1, le=8, description="How many, the newest last.")
    every: int = Field(1, ge=1, le=10, description="Steps between two of them; more remember longer.")


class CameraConfig(ViewConfig):
    """The front camera, relative to the vehicle's origin (metres, degrees)."""

    width: Annotated[Literal[84, 64], Pin.SIZE] = Field(
        84, description="Pixels, as height; asked of the simulator. 64 in mid-run: replay and network are adapted."
    )
    height: Annotated[Literal[84, 64], Pin.SIZE] = Field(84, description="Pixels, as width.")
    fov_deg: float = Field(100.0, gt=10, lt=170, description="Horizontal field of view.")
    x_m: float = Field(1.2, description="Forward of the vehicle's origin.")
    z_m: float = Field(1.8, gt=0, description="Above the vehicle's origin.")
    pitch_deg: float = Field(-12.0, ge=-89, le=89, description="Negative looks down.")
    narrow: Annotated[NarrowConfig | None, Pin.WEIGHTS | Pin.MEMORY] = Field(
        None, description="A second camera; {} for its defaults. Null: none."
    )
    stack: Annotated[StackConfig, Pin.WEIGHTS | Pin.MEMORY] = StackConfig()

    @property
    def planes(self) -> int:
        """Of one frame, of all views."""
        return sum(view.own_planes for view in self.views)

    @property
    def views(self) -> tuple[CameraConfig | NarrowConfig, ...]:
        """In the order of their planes."""
        return (self,) if self.narrow is None else (self, self.narrow)

    @model_validator(mode="after")
    def _square(self) -> CameraConfig:
        if self.width != self.height:
            raise ValueError(f"environment.camera.width {self.width} isn't height {self.height}: set both to 84 or 64")
        return self


class RouteConfig(Section):
    """Which routes are drawn and how they are described to the agent."""

    min_length_m: float = Field(120.0, gt=0, description="Shortest route.")
    max_length_m: float = Field(350.0, gt=0, description="Longest route.")
    min_turns: int = Field(0, ge=0, description="Junction turns (heading change > 45°) a route must have.")
    point_spacing_m: Annotated[float, Pin.ROWS] = Field(
        2.0, gt=0, description="Distance between the 24 route points of the observation."
    )
    held_out_fraction: float = Field(0.2, ge=0, lt=1, description="Share of routes that training never drives.")
    before_signs: float = Field(
        0.0,
        ge=0,
        le=1,
        description="Share of training's drives that begin before a stop or yield sign, if any is there.",
    )

    @model_validator(mode="after")
    def _lengths_in_order(self) -> RouteConfig:
        if self.max_length_m < self.min_length_m:
            raise ValueError(
                f"max_length_m {self.max_length_m} is below min_length_m {self.min_length_m}: raise max_length_m"
            )
        return self


class RewardConfig(Section):
    """Weights of the reward's terms. All ≥ 0: the sign is the term's own (progress pays, the rest costs)."""

    form: Literal["sum", "product"] = Field(
        "sum", description="sum: of all terms; product: progress × what faults leave of it, and red lights end a drive."
    )
    target_speed_mps: float = Field(8.0, gt=0, description="Progress above this speed is not paid.")
    progress: float = Field(1.0, ge=0, description="Arc length along the route, 1 a step at the target speed.")
    idle: float = Field(
        0.2, ge=0, description="Standing still: whole at 0 m/s, nothing from 1 m/s on or where waiting is right. Sum."
    )
    overspeed: float = Field(
        2.0, ge=0, description="Speed above the target, or (product) above what the road ahead allows; relative."
    )
    lateral: float = Field(2.0, ge=0, description="Distance from the route's line, relative to half a lane, × speed.")
    heading: float = Field(1.0, ge=0, description="Heading error against the route's tangent, per 90°, × speed.")
    comfort: float = Field(0.05, ge=0, description="Change of steering and throttle from step to step.")
    time_to_collision: float = Field(0.5, ge=0, description="Whole at 0 s, nothing from 2 s on. Product.")
    collision: float = Field(10.0, ge=0, description="Once, at a collision.")
    red_light: float = Field(10.0, ge=0, description="Once, at a red light that is run. Product.")
    off_road: float = Field(10.0, ge=0, description="Once, on leaving the road.")
    blocked: float = Field(10.0, ge=0, description="Once, where a drive ends for standing still too long. Product.")
    finish: float = Field(10.0, ge=0, description="Once, at the route's end.")


_SKIES = ("Clear", "Cloudy", "Wet", "WetCloudy", "SoftRain", "MidRainy", "HardRain")
WEATHER_BY_DAY = (*(f"{sky}Noon" for sky in _SKIES), *(f"{sky}Sunset".replace("Rainy", "Rain") for sky in _SKIES))
"""CARLA's presets of noon and sunset, with its own spelling."""
WEATHERS = (*WEATHER_BY_DAY, *(f"{sky}Night" for sky in _SKIES), "DustStorm")
"""All of its presets. By night nothing lights the road: no car of ours has its lamps on."""

Amount = int | tuple[int, int]
"""How many: a number, or the ends of a range from which each drive draws one."""


def _is_whole(value: float) -> bool:
    return not isinstance(value, bool) and float(value).is_integer()


def most(amount: Amount) -> int:
    """Return the largest number that an amount can come to."""
    return amount if isinstance(amount, int) else amount[1]


class TrafficConfig(Section):
    """Cars of a Traffic Manager and people of a crowd, both in the collector's own process, and the traffic lights."""

    vehicles: Annotated[Amount, Pin.SIZE] = Field(
        0, description="Cars, up to 200, or [low, high], drawn for each drive; 0 starts no Traffic Manager."
    )
    slower_percent: float = Field(
        0.0,
        ge=0,
        lt=100,
        description="How far below the limit they drive; at it they leave their lanes in bends.",
    )
    walkers: Annotated[Amount, Pin.SIZE] = Field(
        0, description="People on foot, up to 400, or [low, high]; needs a map with a navigation mesh."
    )
    walkers_crossing: float = Field(0.5, ge=0, le=1, description="Share of them that cross roads anywhere.")
    walkers_step_out: float = Field(
        0.0,
        ge=0,
        le=1,
        description="Share of those beside the route ahead who are sent to its other side just before the car; by "
        "themselves few cross it. Who avoids roads goes by a crosswalk.",
    )
    within_m: float | None = Field(
        None,
        gt=0,
        description="How far from a drive's start all of them are at most as it begins; null: anywhere on the map. A "
        "short drive meets as many with a fifth of them.",
    )
    lights: bool = Field(
        False,
        description="Whether the map's traffic lights change; if not, all are green. An evaluation's drive begins with "
        "their cycles, one of training comes at any time.",
    )
    lights_restless: float = Field(
        0.0,
        ge=0,
        le=1,
        description="Share of training's drives whose own lights are drawn anew each second, red or green: who "
        "knows the place doesn't know the light.",
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

    @property
    def in_process(self) -> bool:
        """Whether there are cars or people, whom the process that ticks leads."""
        return most(self.vehicles) > 0 or most(self.walkers) > 0

    @property
    def anyone(self) -> bool:
        """Whether a light, a car or a person can make waiting right."""
        return self.lights or self.in_process


class TimeLimitConfig(Section):
    """How long a drive may take, simulated seconds: truncates, never terminates."""

    constant_s: float = Field(60.0, ge=0, description="Of any route.")
    s_per_m: float = Field(0.0, ge=0, description="More for each metre of the route.")

    @model_validator(mode="after")
    def _some_time(self) -> TimeLimitConfig:
        if not self.constant_s and not self.s_per_m:
            raise ValueError("environment.time_limit.constant_s and s_per_m are both 0: raise one of them")
        return self


class ActionRateConfig(Section):
    """How wheel and pedals follow an action, which the observation's last two numbers tell.

    Rates are whole units of the action a second, null = at once.
    """

    steer_range: float = Field(
        0.5,
        gt=0,
        le=1,
        description="Share of the front wheels' whole turn that a steering of 1 asks for. Half of CARLA's 70° is what "
        "a passenger car has.",
    )
    steer_per_s: float | None = Field(None, gt=0, description="Of steering.")
    pedal_per_s: float | None = Field(None, gt=0, description="Of throttle and brake.")
    lag_s: float = Field(
        0.2,
        ge=0,
        description="Time constant of both: each step they come nearer to what is asked by 1 - exp(-step / lag_s), so "
        "that a policy's trembling isn't the car's; 0 = none.",
    )


class EnvironmentConfig(Section):
    """The gymnasium environment."""

    time_limit: TimeLimitConfig = TimeLimitConfig()
    off_road_m: float = Field(2.5, gt=0, description="Distance from the route's line that counts as off the road.")
    blocked_s: float | None = Field(
        None,
        gt=0,
        description="Simulated seconds after which a car that doesn't get on ends the drive; null: 15 without a metre "
        "of progress, or 180 below 0.1 m/s (Leaderboard) where lights, cars or people can hold it.",
    )
    weather: tuple[str, ...] = Field(
        (),
        description="Presets of CARLA's, from which each drive draws one; one name alone, as ClearNoon; random: any by "
        "day; null or none: the simulator's is left.",
    )
    action_rate: Annotated[ActionRateConfig, Pin.ROWS] = ActionRateConfig()
    privileged: Annotated[bool, Pin.ROWS | Pin.MEMORY] = Field(
        False, description="Observation key with what the simulator knows of the road ahead; no driver receives it."
    )
    camera: Annotated[CameraConfig, Pin.ROWS] = CameraConfig()
    route: RouteConfig = RouteConfig()
    reward: Annotated[RewardConfig, Pin.ROWS] = RewardConfig()
    traffic: TrafficConfig = TrafficConfig()

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
"""The encoder's widths that have a name."""


Width = Annotated[int, Field(gt=0)]


class NetworkConfig(Section):
    """Widths. Those of Stable-Baselines3's CnnPolicy (NatureCNN) are the defaults with whole channels."""

    channels: Annotated[tuple[Width, Width, Width], Pin.WEIGHTS] = Field(
        CHANNELS["half"],
        description="Output channels of the three convolutions; half = [16, 32, 32], whole = [32, 64, 64], which takes "
        "1.6 to 1.8 times as long on a CPU.",
    )
    features: Annotated[int, Pin.WEIGHTS] = Field(512, gt=0, description="Width of the image features.")
    picture_weight: Annotated[float, Pin.WEIGHTS, Before(1.0)] = Field(
        0.2,
        gt=0,
        description="Size of all image features together beside the vector. The smaller, the sooner the few numbers "
        "that steer are learned from, and the later the picture.",
    )
    hidden: Annotated[tuple[Width, ...], Pin.WEIGHTS] = Field(
        (256, 256), min_length=1, description="Hidden layers of actor and critics."
    )
    sees: Annotated[Literal["image", "vector", "privileged"], Pin.WEIGHTS, Before("image")] = Field(
        "image",
        description="What actor and critics know of a state. image: picture and vector; vector: that alone, without an "
        "encoder (what is the picture worth?); privileged: the vector and what only the simulator knows (a control, "
        "which no car could be: would a better eye help?).",
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

    gamma: float = Field(0.98, ge=0, lt=1, description="Discount γ; 0.98 at 10 Hz looks 5 s ahead.")
    tau: float = Field(0.005, gt=0, le=1, description="Polyak factor τ.")
    policy_delay: int = Field(2, ge=1, description="Critic updates an actor update (d).")
    target_noise: float = Field(0.2, ge=0, description="Standard deviation σ̃ of target smoothing.")
    target_noise_clip: float = Field(0.5, ge=0, description="Clip c of target smoothing.")
    actor_learning_rate: float = Field(1e-3, gt=0, description="Adam.")
    critic_learning_rate: float = Field(1e-3, gt=0, description="Adam, encoder included.")
    batch_size: Annotated[int, Pin.SIZE] = Field(256, ge=1, description="Effective batch; AGENT_BATCH.")
    micro_batch: Annotated[int | None, Pin.SIZE] = Field(
        None, ge=1, description="Rows computed at once, their gradients added up; null = batch_size. Costs no learning."
    )
    precision: Annotated[Literal["auto", "float32", "bfloat16", "float16"], Pin.MEMORY] = Field(
        "float32",
        description="Of the encoder's arithmetic; auto: bfloat16 where that is faster, else float32, once for the "
        "run. float16, with a loss scale: for GPUs that lack bfloat16 alone.",
    )
    exploration_noise: float = Field(0.1, ge=0, description="Standard deviation σ of Gaussian action noise.")
    n_step: Annotated[int, Pin.MEMORY] = Field(
        1, ge=1, le=16, description="Rewards that a target sums before it asks the critics."
    )
    random_erasing: int = Field(
        0, ge=0, le=16, description="Grey rectangles over a row's frames, at most, at random (Zhong et al. 2020)."
    )
    encoder_learns_from: Literal["all", "auxiliary"] = Field(
        "all",
        description="Whose loss moves the encoder: the critics' and the auxiliary one, or that alone (critics that see "
        "the privileged numbers need nothing of it).",
    )
    auxiliary: Annotated[float, Pin.WEIGHTS | Pin.MEMORY, Before(0.0)] = Field(
        0.0,
        ge=0,
        description="Weight λ of a loss by which the encoder learns to tell the privileged numbers; 0 = none.",
    )
    imitation: float = Field(
        0.0, ge=0, description="Weight β of a loss that draws the actor to what the expert would do; 0 = none."
    )
    smoothness: float = Field(
        0.2,
        ge=0,
        description="Weight κ of a loss that draws the actor to where wheel and pedal are, so that a young critic "
        "doesn't send them from one end to the other; 0 = none.",
    )
    critic_sees: Annotated[Literal["observation", "privileged"], Pin.WEIGHTS | Pin.MEMORY, Before("observation")] = (
        Field("observation", description="What critics read: what the actor does, or the privileged numbers beside it.")
    )
    network: Annotated[NetworkConfig, Pin.MEMORY] = NetworkConfig()

    def seen(self, privileged: int) -> int:
        """Return how many of the privileged numbers the critics read."""
        return privileged if self.critic_sees == "privileged" else 0

    def predicted(self, privileged: int) -> int:
        """Return how many of the privileged numbers the encoder's features are to tell."""
        return privileged if self.auxiliary > 0 else 0


class ReplayConfig(Section):
    """The memory-mapped ring of transitions."""

    capacity: Annotated[int, Pin.SIZE] = Field(
        100_000, ge=1_000, description="Rows (one frame each), of all collectors; allocated whole at creation."
    )
    demonstrations: Annotated[str | None, Pin.MEMORY] = Field(
        None, description="Folder of `python -m carla_td3 record` whose steps are learned from as well; null = none."
    )
    demonstration_share: float = Field(
        0.5,
        gt=0,
        lt=1,
        description="Of each batch, where there are demonstrations; more while the run's own steps are few: then "
        "both are drawn alike.",
    )


class MemoryConfig(Section):
    """How memory is asked for, and how much of it is left alone."""

    backend: Literal["native", "cudaMallocAsync"] = Field("native", description="PyTorch's CUDA allocator.")
    expandable_segments: bool | Literal["auto"] = Field(
        "auto", description="auto = where PyTorch and the platform have them; true insists, WSL2 included."
    )
    garbage_collection_threshold: float | None = Field(
        None, gt=0, lt=1, description="Share of the limit above which cached blocks go back; null = PyTorch's choice."
    )
    per_process_memory_fraction: float | None = Field(
        None, gt=0, le=1, description="Of the device's memory, for the allocator (not the context); null = no cap."
    )
    offload: Annotated[tuple[Offload, ...], Pin.SIZE] = Field(
        (), description="Kept on the host instead of the GPU: Adam's state with its step, the targets. None on the CPU."
    )
    reserve_mib: float = Field(
        64.0, ge=0, description="Left free on device, host and disk beyond the estimate, MiB; else no start (exit 71)."
    )


class TownsConfig(Section):
    """Another town every so many training episodes, each in a collector of its own."""

    maps: tuple[str, ...] = Field(
        ("Lite:seed={seed},size=400",),
        min_length=1,
        description="One after the other, and again: map names, .xodr files, folders of .xodr files; {seed} grows by "
        "one from town to town. CARLA, which keeps memory of every map it loads, has no towns from a seed.",
    )
    every_episodes: int = Field(20, ge=1, description="Episodes a town.")
    first_seed: int = Field(1000, ge=0, description="The first town's {seed}; keep those of test towns out of reach.")
    evaluation_map: str | None = Field(None, description="Of a run's evaluations; null: the town that training is in.")


class TrainingConfig(Section):
    """How long, how often, in which order."""

    total_steps: int = Field(1_000_000, gt=0, description="Environment steps, warm-up included.")
    warmup_steps: int = Field(2_000, ge=0, description="Steps of biased random driving before the actor drives.")
    halts_every_s: float = Field(
        0.0,
        ge=0,
        description="Mean time between two halts for no reason, in training and in demonstrations, so that to stand "
        "isn't learned to be a reason to stand; 0: none.",
    )
    updates_per_step: float = Field(1.0, gt=0, le=20, description="Ratio of updates to environment steps.")
    annealing: float = Field(
        0.4,
        ge=0,
        le=1,
        description="Share of all updates, the last ones, in which the learning rates fall linearly to 0; a run that "
        "is made longer takes them up again.",
    )
    final_updates: int = Field(
        0,
        ge=0,
        description="After the last step the learner begins anew, with so many updates on all rows that are there; 0: "
        "what it has learned by then is kept. A run that is made longer does so again at its new end.",
    )
    lockstep: bool = Field(False, description="Collector and learner take turns: bit for bit reproducible, and slower.")
    collectors: Annotated[int, Pin.SIZE] = Field(
        1, ge=1, le=64, description="Processes that drive, each in a simulator of its own."
    )
    max_lead_steps: Annotated[int, Pin.SIZE] = Field(
        256, ge=1, description="How far collecting may run ahead of updating (free-running)."
    )
    publish_every_updates: int = Field(10, ge=1, description="Updates between two sets of weights for the collector.")
    learner_threads: int = Field(
        0,
        ge=0,
        description="torch threads of the learner; 0 = the cores less the one that simulator and collector need.",
    )
    towns: TownsConfig | None = Field(None, description="{} for its defaults; null: simulator.map all the time.")
    log_every_steps: int = Field(500, gt=0, description="Between two rows in TensorBoard.")
    checkpoint_every_steps: int = Field(5_000, gt=0, description="Between two checkpoints.")
    keep_checkpoints: Annotated[int, Pin.SIZE] = Field(
        3, ge=1, description="The newest this many are kept, and the best."
    )


class CollectorConfig(Section):
    """The child processes that drive, and how the learner watches them."""

    at_work: Annotated[int | None, Pin.SIZE] = Field(
        None, ge=1, description="The first so many of training.collectors drive, the others rest; null = all."
    )
    attempts: int = Field(5, ge=1, description="Collectors in a row that may end without a finished step.")
    start_limit_s: float = Field(120.0, gt=0, description="From its start to its first word.")
    hang_margin_s: Annotated[float, Pin.SIZE] = Field(
        5.0, gt=0, description="Beyond simulator.timeout_s, until a step counts as hung."
    )
    stop_grace_s: float = Field(2.0, ge=0, description="To give the simulator back after a stop, then it is killed.")


class ClusterConfig(Section):
    """Where collectors drive that aren't on this machine: a Ray cluster's nodes, each beside a simulator of its own."""

    address: Annotated[str | None, Pin.SIZE] = Field(
        None, description="HOST:PORT of the cluster, or auto: this machine's; null = no cluster."
    )
    simulator: tuple[str, ...] = Field((), description="Options of `launch.py simulator`, which each node starts.")

    @field_validator("address")
    @classmethod
    def _is_an_address(cls, value: str | None) -> str | None:
        host, _, port = (value or "auto").rpartition(":")
        if value and value != "auto" and (not host or not port.isdecimal() or not 1 <= int(port) <= LAST_PORT):
            raise ValueError(f"cluster.address is {value!r}: expected HOST:PORT, as 10.0.0.1:6379, or auto")
        return value or None


class EvaluationConfig(Section):
    """Evaluation on held-out routes, with the deterministic policy."""

    every_steps: int = Field(10_000, ge=0, description="Between two evaluations while training; 0 = none.")
    episodes: int = Field(5, ge=1, description="Routes an evaluation.")
    final_episodes: Annotated[int, Pin.SIZE] = Field(10, ge=0, description="Routes of the last evaluation; 0 = none.")
    baselines: bool = Field(True, description="Greyed td3, stop, random and PID in the last evaluation's table.")
    video: Annotated[bool, Pin.SIZE] = Field(True, description="A video of the trained driver at the end.")
    min_turns: int = Field(0, ge=0, description="Junction turns that an evaluation route must have.")


class AgentConfig(Section):
    """Everything the agent reads."""

    seed: int = Field(0, ge=0, description="Of networks, exploration, routes and traffic.")
    algorithm: Annotated[str, Pin.WEIGHTS, Before("td3")] = Field("td3", description="What learns.")
    device: Annotated[Literal["auto", "cpu", "cuda"], Pin.SIZE] = Field(
        "auto", description="Of the learner; AGENT_DEVICE. The collector acts on the CPU."
    )
    simulator: SimulatorConfig = SimulatorConfig()
    environment: EnvironmentConfig = EnvironmentConfig()
    td3: TD3Config = TD3Config()
    replay: ReplayConfig = ReplayConfig()
    memory: MemoryConfig = MemoryConfig()
    training: TrainingConfig = TrainingConfig()
    collector: CollectorConfig = CollectorConfig()
    cluster: ClusterConfig = ClusterConfig()
    evaluation: EvaluationConfig = EvaluationConfig()

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
                f"training.warmup_steps {self.training.warmup_steps} leaves nothing to learn of training.total_steps "
                f"{self.training.total_steps}: lower warmup_steps"
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
        if self.td3.network.sees != "image" and (self.td3.auxiliary > 0 or self.td3.random_erasing > 0):
            raise ValueError(
                f"td3.auxiliary and td3.random_erasing are for pictures, td3.network.sees is {self.td3.network.sees}: "
                "set them to 0"
            )
        return self

    def digest(self) -> str:
        """Return 16 hex digits of the configuration less where the simulators are, for checkpoints and reports."""
        return hashlib.sha256(json.dumps(dump(self, address=False)).encode()).hexdigest()[:16]


def load(path: Path, overrides: Mapping[str, Any] | None = None) -> AgentConfig:
    """Read a YAML configuration, follow its ``extends`` and lay ``overrides`` over it.

    Args:
        path: the file; its key ``extends`` names another one, relative to it.
        overrides: dotted keys to values, ``{"td3.batch_size": 64}``; the command line and ``overrides.yaml``. They
            win over the environment, which wins over the file.

    Raises:
        ConfigError: the file is missing, isn't YAML, or a key or value is wrong.
    """
    return laid_over(layered_yaml.read(path), str(path), overrides)


def laid_over(values: dict[str, Any], source: str, overrides: Mapping[str, Any] | None = None) -> AgentConfig:
    """Return the configuration of a file's values, the environment's and ``overrides``, see ``load``.

    Raises:
        ConfigError: a key or value is wrong; ``source`` is named in it.
    """
    given = _given()
    reported = {key: os.environ[name] for key, name in given.items()}
    if given.get("simulator.port") == "CARLA_PORTS":
        reported["simulator.port"] = reported["simulator.port"].partition("-")[0]
    for dotted, value in {**reported, **(overrides or {})}.items():
        layered_yaml.assign(values, dotted, value)
    return validate(values, source=" with ".join([source, *given.values()]))


def _given() -> dict[str, str]:
    """Return the variable that sets each key, of those that are set; Compose passes on what isn't set as empty."""
    return {key: name for name, key in ENVIRONMENT.items() if os.environ.get(name)}


def foreign(overrides: Mapping[str, Any]) -> list[str]:
    """Return a sentence on each variable of another program's that the environment sets and nothing wins over."""
    taken = {key: name for key, name in _given().items() if name in FOREIGN and key not in overrides}
    return [
        f"{name} is {os.environ[name]}: {key} is that. {FOREIGN[name]}, or --set {key}=N, says the same."
        for key, name in taken.items()
    ]


def validate(values: Mapping[str, Any], source: str) -> AgentConfig:
    """Return the checked configuration; ``source`` is named in the error.

    Raises:
        ConfigError: with one sentence on the first thing that is wrong.
    """
    try:
        return AgentConfig.model_validate(values)
    except ValidationError as error:
        clause, key = refusal.clause(error, AgentConfig), refusal.key(error, AgentConfig)
        raise ConfigError(f"{source}: {clause}.", key) from None


def dump(config: AgentConfig, address: bool = True) -> dict[str, Any]:
    """Return the resolved configuration as plain data for YAML, with or without the simulators' addresses."""
    excluded: Any = {} if address else {"simulator": {"host", "port", "others"}, "cluster": True}
    plain: dict[str, Any] = json.loads(config.model_dump_json(exclude=excluded))
    return plain
