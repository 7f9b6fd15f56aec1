"""What any algorithm has: networks and their targets on an executor, a count of updates, random numbers.

Owns what of it is saved, resumed, reset and given to the collector. An algorithm is a class in a file beside this one,
which says what its phases step (``learned``) and what one update is (``update``), and a line of
``config.ALGORITHMS``. Learner, dry run and checkpoint know no more than this. Never touches files, processes, the
environment or global random state.
"""

from __future__ import annotations

import contextlib
import copy
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence

import torch
from torch import Tensor

from carla_td3.config import ALGORITHMS, AgentConfig, Offload, TD3Config
from carla_td3.td3.executor import Attempt, Executor, Learned, Metrics, whole_batch
from carla_td3.td3.networks import Networks
from carla_td3.td3.replay.frames import DEFAULT, FrameStack
from carla_td3.td3.replay.layout import privileged_numbers
from carla_td3.td3.replay.replay import Batch


class Algorithm(ABC):
    """A learner's whole state and its one operation, ``update``."""

    def __init__(
        self,
        config: TD3Config,
        device: torch.device,
        seed: int,
        offload: Collection[Offload] = (),
        stack: FrameStack = DEFAULT,
        privileged: int = 0,
    ) -> None:
        """Begin with untrained networks.

        Args:
            config: widths, rates, precision.
            device: where losses and gradients are computed.
            seed: of the weights and of the noise.
            offload: what lives on the host instead, and is on the device only while it is needed there.
            stack: what an image is made of.
            privileged: numbers of a batch that only the simulator knows.
        """
        self.config = config
        self.stack = stack.seen_by(config.network)
        self.privileged = privileged
        self.updates = 0
        self.noise = torch.Generator().manual_seed(seed)
        self.online = self._untrained(seed)
        self.target = copy.deepcopy(self.online).requires_grad_(False)
        self.target.auxiliary = None
        self.executor = Executor(self.online, self.target, self.learned, device, offload, config.precision)

    @property
    @abstractmethod
    def learned(self) -> Sequence[Learned]:
        """What the phases of an update step; the first one's has the encoder."""

    @abstractmethod
    def update(self, batch: Batch, attempt: Attempt = whole_batch, rate: float = 1.0) -> Metrics:
        """Learn once from a batch, and count it.

        Args:
            batch: B transitions, on any device.
            attempt: runs a phase; by default once, unsplit.
            rate: what the learning rates are multiplied by.

        Returns:
            0-dimensional tensors on the device, nothing waited for.
        """

    def networks(self) -> Networks:
        """Return new networks, initialised by torch's random numbers."""
        seen, predicted = self.config.seen(self.privileged), self.config.predicted(self.privileged)
        return Networks(self.config.network, self.stack, seen, predicted)

    def _untrained(self, seed: int) -> Networks:
        with torch.random.fork_rng(devices=[]):  # the same weights on every device; the process's own numbers stay
            torch.manual_seed(seed)
            return self.networks()

    def begin_anew(self, seed: int) -> None:
        """Forget all that was learned, for other untrained networks; updates and the noise go on.

        What was learned from the first few drives stays, whatever comes later (the primacy bias; Nikishin et al. 2022);
        from nothing, as many updates on all rows come further.
        """
        self.executor.renew(self._untrained(seed))

    @contextlib.contextmanager
    def dry_run(self) -> Iterator[None]:
        """Let one update run all its phases, and change nothing that learning depends on."""
        updates, noise = self.updates, self.noise.get_state()
        self.updates = self.config.policy_delay - 1
        try:
            with self.executor.dry_run():
                yield
        finally:
            self.updates = updates
            self.noise.set_state(noise)

    def policy_state(self) -> dict[str, Tensor]:
        """Return views of encoder and actor under ``Policy``'s names; copy them before the next update."""
        learned = self.online.state_dict()
        return {name: value for name, value in learned.items() if name.startswith(("encoder.", "actor."))}

    def state(self, copies: bool = True) -> dict[str, Tensor]:
        """Return everything that the next update depends on, contiguous, by name, on the CPU.

        Args:
            copies: of everything. Without them what is on the CPU already is shown in place, to be used before the next
                update: half of a checkpoint's memory.
        """
        own = {"noise": self.noise.get_state(), "updates": torch.tensor(self.updates)}
        # Contiguous: files know no channels_last; loading copies into place and so restores it.
        return {
            name: value.detach().to("cpu", copy=copies).contiguous()
            for name, value in {**self.executor.tensors(), **own}.items()
        }

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Go on from ``state()`` of the same algorithm and widths, on any device.

        Raises:
            KeyError, RuntimeError: a tensor is missing or has another shape.
        """
        self.executor.load(state)
        self.noise.set_state(state["noise"])
        self.updates = int(state["updates"])


def configured(config: AgentConfig, device: torch.device) -> Algorithm:
    """Return the algorithm that a configuration names, with untrained networks."""
    named: type[Algorithm] = pkgutil.resolve_name(ALGORITHMS[config.algorithm])
    stack, privileged = FrameStack.of(config.environment.camera), privileged_numbers(config.environment)
    offload = config.memory.offload if device.type == "cuda" else ()
    return named(config.td3, device, config.seed, offload, stack, privileged)
