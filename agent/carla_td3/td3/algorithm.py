"""Common to all algorithms: networks and their targets on an executor, a count of updates, random numbers.

Owns how they are saved, resumed, reset and given to the collector. An algorithm is a class in a file beside this one.
It says which parameters each phase steps (``learned``) and what one update is (``update``), and has a line in
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
from carla_td3.td3.replay.frames import DEFAULT, FrameStack, told
from carla_td3.td3.replay.layout import privileged_numbers
from carla_td3.td3.replay.replay import Batch


class Algorithm(ABC):
    """The whole state of learning, and its one operation, ``update``."""

    def __init__(
        self,
        config: TD3Config,
        device: torch.device,
        seed: int,
        offload: Collection[Offload] = (),
        stack: FrameStack = DEFAULT,
        privileged: int = 0,
    ) -> None:
        """Start with untrained networks.

        Args:
            config: widths, rates, precision.
            device: where losses and gradients are computed.
            seed: of the weights and of the noise.
            offload: parts that stay on the host, and are on the device only while needed there.
            stack: the frames of an image.
            privileged: how many privileged numbers a batch has.
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
        """Parameters that each phase of an update steps; the first entry has the encoder."""

    @property
    def without_graphs(self) -> str:
        """Why updates run without the CUDA graphs that were asked for; empty if they don't."""
        return ""

    @abstractmethod
    def update(self, batch: Batch, attempt: Attempt = whole_batch, rate: float = 1.0) -> Metrics:
        """Make one update from a batch, and count it.

        Args:
            batch: B transitions, on any device.
            attempt: runs a phase; default: once, unsplit.
            rate: factor of the learning rates.

        Returns:
            0-dimensional tensors on the device; doesn't wait for the device.
        """

    def networks(self) -> Networks:
        """Return new networks, initialised by torch's random numbers."""
        numbers = told(self.privileged)
        seen, predicted = self.config.seen(numbers), self.config.predicted(numbers)
        return Networks(self.config.network, self.stack, seen, predicted)

    def _untrained(self, seed: int) -> Networks:
        with torch.random.fork_rng(devices=[]):  # the same weights on every device
            torch.manual_seed(seed)
            return self.networks()

    def reset(self, seed: int) -> None:
        """Replace all networks by new, untrained ones; the count of updates and the noise continue.

        Learning from the first few drives persists, whatever comes later (the primacy bias; Nikishin et al. 2022). The
        same number of updates from new networks, on all rows, gets further.
        """
        self.executor.renew(self._untrained(seed))

    @contextlib.contextmanager
    def dry_run(self) -> Iterator[None]:
        """Let one update run all its phases without changing any state of learning."""
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
        """Return all tensors that the next update depends on, contiguous, by name, on the CPU.

        Args:
            copies: whether to copy everything. Without it, tensors on the CPU are returned as they are, for use before
                the next update; that saves half of a checkpoint's memory.
        """
        own = {"noise": self.noise.get_state(), "updates": torch.tensor(self.updates)}
        # Contiguous: files can't express channels_last; loading copies into place and so restores it.
        return {
            name: value.detach().to("cpu", copy=copies).contiguous()
            for name, value in {**self.executor.tensors(), **own}.items()
        }

    def require_fit(self, state: Mapping[str, Tensor]) -> None:
        """Check that :meth:`load_state` can continue from this state; changes nothing.

        Raises:
            ValueError, RuntimeError: a tensor is missing, or has another shape or type.
        """
        own = {**self.executor.tensors(), "noise": self.noise.get_state(), "updates": torch.tensor(0)}
        for name, wanted in own.items():
            found = state.get(name)
            if found is None:
                if not name.startswith("scale."):
                    raise ValueError(f"{name} is missing")
            elif (found.dtype, found.shape) != (wanted.dtype, wanted.shape):
                raise ValueError(
                    f"{name} is {found.dtype} {tuple(found.shape)}, expected {wanted.dtype} {tuple(wanted.shape)}"
                )
        torch.Generator().set_state(state["noise"])
        if int(state["updates"]) < 0:
            raise ValueError(f"updates is {int(state['updates'])}, expected at least 0")

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Continue from ``state()`` of the same algorithm and widths, on any device.

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
