"""Means of an update's metrics over all updates since they were last taken."""

from __future__ import annotations

import torch

from carla_td3.td3.kernels.means import Means


def test_each_metric_is_averaged_over_the_updates_that_had_it() -> None:
    means = Means()
    for critic in (1.0, 2.0, 6.0):
        means.add({"critic_loss": torch.tensor(critic)})
    means.add({"critic_loss": torch.tensor(7.0), "actor_loss": torch.tensor(-3.0)})  # the actor's are rarer
    means.move(torch.device("cpu"))
    assert means.take() == {"critic_loss": 4.0, "actor_loss": -3.0}
    assert means.take() == {}
    means.add({"critic_loss": torch.tensor(5.0)})
    assert means.take() == {"critic_loss": 5.0}


def test_a_metric_may_change_afterwards() -> None:
    means, loss = Means(), torch.tensor(1.0)
    means.add({"critic_loss": loss})
    means.add({"critic_loss": torch.tensor(3.0)})
    assert loss == 1.0
    loss.fill_(100.0)
    assert means.take() == {"critic_loss": 2.0}
