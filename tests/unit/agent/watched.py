"""A TD3 whose last gradients can be seen, and how far two of them are apart: for tests of updates that ran short."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from carla_td3.config import Offload, TD3Config
from carla_td3.memory.recovery import Recovery, Shortage
from carla_td3.td3.optimizers import OffloadedAdam
from carla_td3.td3.replay.replay import Batch
from carla_td3.td3.td3 import TD3
from tests.unit.agent.batches import CPU, NARROW, in_parts, random_batch

SIZE = 50  # halves to 25, then 12 and a last one of 2: unequal parts
SMALL = TD3Config(network=NARROW, batch_size=SIZE, policy_delay=1)


def before_each_step(optimizer: OffloadedAdam, do: Callable[[], None]) -> None:
    step = optimizer._adam

    def watched(overflow: Tensor | None, rate: float | Tensor) -> None:
        do()
        step(overflow, rate)

    optimizer._adam = watched  # type: ignore[method-assign]


class Watched:
    """A TD3 after some updates, with the gradients that its optimizers last stepped by."""

    def __init__(self, settings: TD3Config, offload: tuple[Offload, ...] = ()) -> None:
        self.td3 = TD3(settings, CPU, 0, offload)
        for seed in range(8):  # in float16 the scale has come down to its place by then
            self.td3.update(random_batch(SIZE, seed))
        self.gradients: dict[str, Tensor] = {}
        for optimizer in self.td3.executor._optimizers.values():
            before_each_step(optimizer, self._keep)

    def _keep(self) -> None:
        for name, parameter in self.td3.online.named_parameters():
            if parameter.grad is not None:
                self.gradients[name] = parameter.grad.clone()

    def scale(self) -> dict[str, float]:
        return {name: float(value) for name, value in self.td3.state().items() if name.startswith("scale")}

    def weights(self) -> dict[str, Tensor]:
        return {name: value for name, value in self.td3.state().items() if name.startswith(("online", "target"))}


def distance(ours: Mapping[str, Tensor], theirs: Mapping[str, Tensor]) -> float:
    """Return ‖ours - theirs‖₂ / ‖theirs‖₂ over all tensors."""
    assert ours.keys() == theirs.keys()
    differences, values = [ours[name] - theirs[name] for name in ours], list(theirs.values())
    squares = [sum(float(each.detach().double().square().sum()) for each in some) for some in (differences, values)]
    return math.sqrt(squares[0] / squares[1])


def recovery_of(td3: TD3) -> tuple[Recovery, list[Shortage]]:
    reported: list[Shortage] = []
    return Recovery(SIZE, None, td3.executor.release, reported.append), reported


def assert_parts_make_the_same_update(
    whole: TD3, split: TD3, batch: Callable[[int, int], Batch], micro_batch: int
) -> dict[str, Tensor]:
    """Return the gradients that both end with, by the parameter's name."""
    for seed in range(2):  # the second: actor and targets, too
        expected = whole.update(batch(seed, 21))
        found = split.update(batch(seed, 21), in_parts(micro_batch))
        for name, value in expected.items():
            torch.testing.assert_close(found[name], value, rtol=1e-5, atol=1e-6, msg=name)
    ours, theirs = (
        {n: p.grad for n, p in each.online.named_parameters() if p.grad is not None} for each in (split, whole)
    )
    assert distance(ours, theirs) <= 2e-6
    return ours
