"""TD3 updates a second beside Stable-Baselines3's TD3 with CnnPolicy: same widths, same batch, sampling included.

Both run in this process, in turns, on the same episodes; the figure is the median of the turns' ratios. Ours also
takes the vector of 53 numbers, which CnnPolicy does not. Run: ``python benchmarks/updates.py --batch 256 --json``.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import stable_baselines3
import torch
from numpy.typing import NDArray
from stable_baselines3.common.logger import configure

from agent.config import TD3Config
from agent.td3.frames import ACTION, SIDE, STACK, VECTOR
from agent.td3.replay import Replay
from agent.td3.td3 import TD3

_TRANSITIONS = 5_000
_EPISODE = 500
Update = Callable[[], object]


@dataclass(frozen=True)
class _Observation:
    image: NDArray[np.uint8]  # (4, 84, 84), a road edge that wanders over noise
    vector: NDArray[np.float32]


def main() -> None:
    options = _options()
    torch.set_num_threads(options.threads)
    config = TD3Config(batch_size=options.batch, precision=options.precision)
    with tempfile.TemporaryDirectory() as directory:
        ours = _ours(config, Path(directory), compiled=options.compile)
        theirs = _stable_baselines(config)
        rates = _in_turns({"ours": ours, "stable_baselines3": theirs}, options.updates, options.repeats)
    print(_report(options, rates))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--precision", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--updates", type=int, default=10, help="updates a turn")
    parser.add_argument("--repeats", type=int, default=7, help="turns of each")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="torch threads of both")
    parser.add_argument("--compile", action="store_true", help="torch.compile for our encoder")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def _ours(config: TD3Config, directory: Path, compiled: bool) -> Update:
    replay = Replay.create(directory / "replay", capacity=_TRANSITIONS * 2)
    observation: _Observation | None = None
    for step, arrived in enumerate(_observations()):
        if observation is None:
            replay.start_episode(arrived.image[-1], arrived.vector)
        else:
            ends = step % _EPISODE == 0
            replay.append(_action(step), 1.0, False, ends, arrived.image[-1], arrived.vector)
            if ends:
                replay.start_episode(arrived.image[-1], arrived.vector)
        observation = arrived
    rng = np.random.default_rng(0)
    frames = replay.sample(config.batch_size, rng).frames.numpy()
    _assert_pixels_vary(frames.reshape(-1, frames[0, 0].size))
    td3 = TD3(config, torch.device("cpu"), seed=0)
    if compiled:
        td3.compile()
    return lambda: td3.update(replay.sample(config.batch_size, rng))


def _stable_baselines(config: TD3Config) -> Update:
    """Its defaults (NatureCNN for actor and critics each), its own replay buffer, one copy of each observation."""
    model = stable_baselines3.TD3(
        "CnnPolicy",
        _ImageEnv(),
        buffer_size=_TRANSITIONS,
        batch_size=config.batch_size,
        gamma=config.gamma,
        policy_delay=config.policy_delay,
        learning_rate=config.critic_learning_rate,
        optimize_memory_usage=True,
        replay_buffer_kwargs={"handle_timeout_termination": False},
        policy_kwargs={"net_arch": list(config.network.hidden)},
        device="cpu",
        seed=0,
    )
    model.set_logger(configure(None, []))
    buffer = model.replay_buffer
    assert buffer is not None
    observation: _Observation | None = None
    for step, arrived in enumerate(_observations()):
        if observation is not None:
            before, after = observation.image[None], arrived.image[None]
            buffer.add(before, after, _action(step)[None], np.ones(1), np.array([step % _EPISODE == 0]), [{}])
        observation = arrived
    _assert_pixels_vary(buffer.sample(config.batch_size).observations.numpy().reshape(config.batch_size, -1))
    return lambda: model.train(gradient_steps=1, batch_size=config.batch_size)


class _ImageEnv(gymnasium.Env[NDArray[np.uint8], NDArray[np.float32]]):
    """Only its spaces are asked for."""

    observation_space = gymnasium.spaces.Box(0, 255, (STACK, SIDE, SIDE), np.uint8)
    action_space = gymnasium.spaces.Box(-1, 1, (ACTION,), np.float32)


def _observations() -> Iterator[_Observation]:
    rng = np.random.default_rng(0)
    columns = np.arange(SIDE)
    frames: list[NDArray[np.uint8]] = []
    for step in range(_TRANSITIONS + 1):
        edge = SIDE / 2 + SIDE / 3 * np.sin(step / 20)
        road = np.where(columns < edge, 60, 180) + rng.integers(0, 60, (SIDE, SIDE))
        frames = [*frames, road.astype(np.uint8)][-STACK:]
        stack = [frames[0]] * (STACK - len(frames)) + frames
        yield _Observation(np.stack(stack), rng.normal(size=VECTOR).astype(np.float32))


def _action(step: int) -> NDArray[np.float32]:
    return np.array([np.sin(step), np.cos(step)], dtype=np.float32)


def _assert_pixels_vary(images: NDArray[Any]) -> None:
    assert images.std(axis=1).min() > 0, "an image is blank"
    assert len(np.unique(images, axis=0)) > len(images) // 4, "the images are all alike"


def _in_turns(updates: dict[str, Update], count: int, repeats: int) -> dict[str, list[float]]:
    rates: dict[str, list[float]] = {name: [] for name in updates}
    for update in updates.values():  # allocators, kernels and compilers warm up
        for _ in range(4):
            update()
    for _ in range(repeats):
        for name, update in updates.items():
            start = time.perf_counter()
            for _ in range(count):
                update()
            rates[name].append(count / (time.perf_counter() - start))
    return rates


def _report(options: argparse.Namespace, rates: dict[str, list[float]]) -> str:
    ratios = [ours / theirs for ours, theirs in zip(rates["ours"], rates["stable_baselines3"], strict=True)]
    report = {
        "benchmark": "updates",
        **{name: getattr(options, name) for name in ("batch", "precision", "compile", "threads", "updates", "repeats")},
        "updates_per_s": {name: _spread(values) for name, values in rates.items()},
        "ratio": _spread(ratios),
        "processor": _processor(),
        "load_average": [round(load, 2) for load in os.getloadavg()],
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "stable_baselines3": stable_baselines3.__version__,
            "numpy": np.__version__,
        },
    }
    if options.json:
        return json.dumps(report)
    ratio, rate = report["ratio"], report["updates_per_s"]
    return (
        f"batch {options.batch} {options.precision}: {ratio['median']}× Stable-Baselines3 "
        f"({ratio['min']}–{ratio['max']}); updates/s {rate['ours']['median']} beside "
        f"{rate['stable_baselines3']['median']}, {options.threads} threads, {report['processor']['name']}"
    )


def _spread(values: list[float]) -> dict[str, float]:
    return {
        "median": round(statistics.median(values), 2),
        "min": round(min(values), 2),
        "max": round(max(values), 2),
    }


def _processor() -> dict[str, Any]:
    lines = dict(line.split(":", 1) for line in Path("/proc/cpuinfo").read_text().splitlines() if ":" in line)
    facts = {key.strip(): value.strip() for key, value in lines.items()}
    matrix = ("avx2", "avx512f", "avx512_bf16", "amx_bf16")
    have = [flag for flag in matrix if flag in facts.get("flags", "").split()]
    return {"name": facts.get("model name", platform.machine()), "cores": os.cpu_count(), "instructions": have}


if __name__ == "__main__":
    main()
