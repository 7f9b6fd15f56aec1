"""TD3 updates per second compared with Stable-Baselines3's TD3 with CnnPolicy: same widths and batch, sampling
included.

Each runs in its own process, as its users run it, in turns with the other, on the same episodes; the figure is the
median of the turns' ratios. Ours also takes the vector of 53 numbers, which CnnPolicy does not, and keeps its heap as
the learner does (``carla_td3.memory.heap``; ``--peer-keeps-heap`` gives the peer the same). ``--width half`` halves the
convolutions of both. ``--ours`` also measures updates recorded as CUDA graphs, or with losses compiled by torch.
On a busy machine, the processor time of an update with ``--threads 1`` says more than the rates. ``--isa`` limits all
to the instructions of another processor; the row names the kernels in use. Run: ``python
benchmarks/updates.py --batch 256 --json``.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Annotated, Any, Literal

import gymnasium
import numpy as np
import stable_baselines3
import torch
import typer
from measuring import Cap, counted, hold_to, machine, spread
from numpy.typing import NDArray
from stable_baselines3.common.logger import configure
from stable_baselines3.common.torch_layers import NatureCNN
from torch import nn

from carla_td3.config import CHANNELS, NetworkConfig, TD3Config
from carla_td3.memory import heap
from carla_td3.td3.replay.frames import ACTION, SIDE, STACK, VECTOR
from carla_td3.td3.replay.replay import Replay
from carla_td3.td3.td3 import TD3

_TRANSITIONS = 5_000
_EPISODE = 500
Update = Callable[[], object]


class Way(str, Enum):
    """A way to compute our updates."""

    EAGER = "eager"
    COMPILED = "compiled"
    """Its losses by ``torch.compile``."""
    CAPTURED = "captured"
    """As CUDA graphs; on the CPU the same as eager."""


@dataclass(frozen=True)
class _Observation:
    image: NDArray[np.uint8]  # (4, 84, 84), a road edge that wanders over noise
    vector: NDArray[np.float32]


def main(
    batch: Annotated[int, typer.Option(min=1, help="Batch size, in transitions.")] = 256,
    precision: Annotated[Literal["float32", "bfloat16"], typer.Option(help="Precision of our encoder.")] = "float32",
    width: Annotated[
        Literal["whole", "half"], typer.Option(help="Channels of the convolutions, ours and the peer's.")
    ] = "whole",
    updates: Annotated[int, typer.Option(min=1, help="Updates per turn.")] = 10,
    repeats: Annotated[int, typer.Option(min=1, help="Turns of each variant.")] = 7,
    threads: Annotated[int, typer.Option(min=1, help="Threads of PyTorch, ours and the peer's.")] = os.cpu_count() or 1,
    isa: Annotated[Cap | None, typer.Option(help="Largest instruction set that oneDNN, ATen and MKL may use.")] = None,
    peer_keeps_heap: Annotated[bool, typer.Option("--peer-keeps-heap", help="Tune the peer's heap as well.")] = False,
    ours: Annotated[
        list[Way] | None,
        typer.Option(
            help="Variant of ours to measure; can be repeated. The first one gives the ratio. Default: eager."
        ),
    ] = None,
    device: Annotated[Literal["cpu", "cuda"], typer.Option(help="Device, ours and the peer's.")] = "cpu",
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Measure updates a second beside Stable-Baselines3."""
    ways = ours or [Way.EAGER]
    hold_to(isa)  # the two processes read it when they import torch
    config = TD3Config(batch_size=batch, precision=precision, network=NetworkConfig(channels=CHANNELS[width]))
    sides = {
        **{way.value: Side(partial(_ours, config, device, way), threads, keeps_heap=True) for way in ways},
        "stable_baselines3": Side(partial(_stable_baselines, config, device), threads, peer_keeps_heap),
    }
    with tempfile.TemporaryDirectory() as directory:
        rates, spent, held = _in_turns(sides, Path(directory), updates, repeats)
    took_hold = held["stable_baselines3"]
    assert set(held.values()) == {took_hold}
    assert isa is None or isa.startswith(took_hold), f"{isa} was asked for, {took_hold} took hold"
    ratios = {
        way.value: spread([own / theirs for own, theirs in zip(rates[way], rates["stable_baselines3"], strict=True)])
        for way in ways
    }
    report = {
        "what": "TD3 updates a second, sampling included, and the ratio to Stable-Baselines3 turn by turn",
        "batch": batch,
        "precision": precision,
        "width": width,
        "device": torch.cuda.get_device_name() if device == "cuda" else device,
        "isa": isa,
        "took_hold": took_hold,
        "threads": threads,
        "peer_keeps_heap": peer_keeps_heap,
        "updates": updates,
        "repeats": repeats,
        "updates_per_s": {name: spread(values) for name, values in rates.items()},
        "processor_ms_an_update": {name: spread(values) for name, values in spent.items()},
        "ratio": ratios[ways[0].value],
        "ratios": ratios,
        "machine": machine("torch", "stable-baselines3", "numpy"),
    }
    print(json.dumps(report, indent=2) if as_json else f"batch {batch} {precision} {width}: {ratios}")


def _ours(config: TD3Config, device: str, way: Way, directory: Path) -> Update:
    replay = Replay.create(directory / way.value, capacity=_TRANSITIONS * 2)
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
    batch = replay.sample(config.batch_size, rng)
    frames = batch.frames.numpy()
    _assert_pixels_vary(frames.reshape(-1, frames[0, 0].size))
    td3 = TD3(config.model_copy(update={"cuda_graph": way is Way.CAPTURED}), torch.device(device), seed=0)
    if way is Way.COMPILED:
        for part in ("bellman_target", "critic_loss", "actor_loss"):
            setattr(td3, part, torch.compile(getattr(td3, part)))
    return lambda: td3.update(replay.sample(config.batch_size, rng, into=batch))


def _stable_baselines(config: TD3Config, device: str, _: Path) -> Update:
    """Its defaults (one NatureCNN each for actor and critics), its replay buffer, one copy of each observation."""
    channels = config.network.channels
    narrow = {"features_extractor_class": NarrowCNN, "features_extractor_kwargs": {"channels": channels}}
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
        policy_kwargs={"net_arch": list(config.network.hidden), **({} if channels == CHANNELS["whole"] else narrow)},
        device=device,
        seed=0,
    )
    model.set_logger(configure(None, []))
    convolutions = [each for each in model.actor.modules() if isinstance(each, nn.Conv2d)]
    assert tuple(each.out_channels for each in convolutions) == channels
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


class NarrowCNN(NatureCNN):
    """NatureCNN with other channels."""

    def __init__(self, space: gymnasium.spaces.Box, channels: Sequence[int], features_dim: int = 512) -> None:
        super().__init__(space, features_dim)
        layers: list[nn.Module] = []
        shapes = zip((STACK, *channels), channels, (8, 4, 3), (4, 2, 1), strict=False)  # the last channels lead nowhere
        for inputs, outputs, kernel, stride in shapes:
            layers += [nn.Conv2d(inputs, outputs, kernel, stride), nn.ReLU()]
        self.cnn = nn.Sequential(*layers, nn.Flatten())
        flat = self.cnn(torch.zeros(1, *space.shape)).shape[1]
        self.linear = nn.Sequential(nn.Linear(flat, features_dim), nn.ReLU())


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


@dataclass(frozen=True)
class Side:
    """One of the two libraries, and how its process is set up."""

    make: Callable[[Path], Update]
    threads: int
    keeps_heap: bool


def _in_turns(
    sides: dict[str, Side], directory: Path, count: int, repeats: int
) -> tuple[dict[str, list[float]], dict[str, list[float]], dict[str, str]]:
    spawn = multiprocessing.get_context("spawn")
    rates: dict[str, list[float]] = {name: [] for name in sides}
    spent: dict[str, list[float]] = {name: [] for name in sides}
    with contextlib.ExitStack() as stack:
        pipes, held = {}, {}
        for name, side in sides.items():
            pipes[name], theirs = spawn.Pipe()
            process = spawn.Process(target=_serve, args=(side, directory, theirs), daemon=True)
            process.start()
            theirs.close()
            stack.callback(process.join)
            stack.callback(pipes[name].close)  # ends it
            held[name] = pipes[name].recv()
        for _ in counted(range(repeats), "turn"):
            for name, pipe in pipes.items():
                pipe.send(count)
                rate, used_ms = pipe.recv()
                rates[name].append(rate)
                spent[name].append(used_ms)
    return rates, spent, held


def _serve(side: Side, directory: Path, pipe: Connection) -> None:
    """Report ATen's configuration; then make the updates of each request, and answer with rate and processor ms."""
    torch.set_num_threads(side.threads)
    if side.keeps_heap:
        heap.keep()
    update = side.make(directory)
    for _ in range(4):  # allocators and kernels warm up
        update()
    pipe.send(torch.backends.cpu.get_cpu_capability())
    with contextlib.suppress(EOFError):
        while True:
            count = pipe.recv()
            start, used_s = time.perf_counter(), time.process_time()
            for _ in range(count):
                update()
            if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
                torch.cuda.synchronize()
            pipe.send((count / (time.perf_counter() - start), 1000 * (time.process_time() - used_s) / count))


if __name__ == "__main__":
    typer.run(main)
