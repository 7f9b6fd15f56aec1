"""The learner's side of the data: batches in, weights out, checkpoints kept.

Owns the algorithm's state, the reading ends of the rings and the writing end of the weights. Never imports ``carla`` or
the environment (a test checks that): its process must survive the faults of the client library.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Collection
from dataclasses import asdict, replace
from typing import Any

import torch

from carla_run.event_log import EventLog
from carla_run.paths import RunPaths
from carla_td3.config import AgentConfig, ConfigError
from carla_td3.cuda import choose_device, limit_memory
from carla_td3.exchange.weights import WeightsFile, flatten
from carla_td3.exits import is_out_of_memory
from carla_td3.memory import free, heap, snapshot
from carla_td3.memory.recovery import Recovery, Shortage
from carla_td3.pins import Pin, legacy_values, pinned
from carla_td3.seeding import Purpose, derived_seed
from carla_td3.td3.algorithm import configured
from carla_td3.td3.dry_run import dry_run
from carla_td3.td3.kernels import arithmetic
from carla_td3.td3.kernels.means import Means
from carla_td3.td3.placement import HOST
from carla_td3.td3.replay.replay import Replay, ReplayError
from carla_td3.td3.replay.resampling import adapted
from carla_td3.td3.replay.sampling import Rings
from carla_td3.trainer import checkpoint
from carla_td3.trainer.batches import Batches
from carla_td3.trainer.pacing import Counters, Pacing, resumed

_SMOOTHING = 0.05
"""Weight of the newest update in the mean duration, which covers about the last 20."""

_ADAPTED = "the checkpoint had another frame size: its features are adapted, and the experiment is another one now"


class Learner:
    """Networks of one run, continued from its last checkpoint if there is one.

    Args:
        config: of the run.
        run: the run directory.
        device: as ``memory.preflight`` decided; None for the configured one.
        gave_way: event by which ``memory.preflight`` already changed device or micro-batch; empty for none.

    Raises:
        ConfigError: the device isn't there, or demonstrations were recorded in another environment.
        ReplayError: demonstrations can't be used.
        CheckpointError: the run's checkpoint is damaged or of another architecture.
    """

    def __init__(
        self, config: AgentConfig, run: RunPaths, device: torch.device | None = None, gave_way: str = ""
    ) -> None:
        self._config = config
        self._run = run
        self.gave_way = gave_way
        """The last memory event that changed ``device`` or ``micro_batch`` from what was asked for; empty for none."""
        _use_threads(config)
        heap.keep()
        chosen = choose_device(config.device) if device is None else device
        on_cuda = chosen.type == "cuda"
        self._limit(chosen)
        self._algorithm = configured(config, chosen)
        self._events = EventLog(run.agent_events)
        self._recovery = Recovery(
            config.td3.batch_size,
            config.td3.micro_batch,
            self._algorithm.executor.release,
            self._log_shortage,
            device_is_full=self.device_is_full,
            last_resort=self._move_to_cpu if on_cuda and config.device == "auto" else None,
        )
        self._counters = Counters(steps=0, updates=0)
        self._last_pacing: Pacing | None = None
        self.checkpoint: str | None = None
        """Name of the last checkpoint, ``step-…``; None before the first."""
        self._logged_precision = self._logged_graphs = False
        self._log_precision()
        if checkpoint.exists(run.path):
            self._restore()
        policy = flatten(self._algorithm.policy_state())
        self._weights = WeightsFile.create(run.exchange / "weights.bin", policy.size)
        self._batches = Batches(config, self._events.append)
        self._rings: dict[int, Replay] = {}
        self._replay: Rings | None = None
        for collector in run.rings():
            # A ring that can't be opened yet was half created; its collector completes it, or reports what is wrong.
            with contextlib.suppress(ReplayError):
                self.open_ring(collector)
        pacing = Pacing.of(config, self._last_pacing, self.steps)
        self._counters, self.pacing = resumed(self.counters(), pacing, config.training.total_steps)
        """Schedule of updates over steps; saved with each checkpoint."""
        self.changes_ratio = self._last_pacing is not None and self._last_pacing.ratio != pacing.ratio
        """Whether this start has another ratio of updates to steps than the last checkpoint."""
        self._losses = Means()
        self.update_ms: float | None = None
        """Milliseconds per update, sampling included; None before the first."""

    @property
    def steps(self) -> int:
        """Environment steps: the finished transitions on disk."""
        return 0 if self._replay is None else self._replay.steps

    @property
    def collector_steps(self) -> list[int]:
        """Environment steps by collector."""
        rings = map(self._rings.get, range(self._config.training.collectors))
        return [0 if ring is None else ring.steps for ring in rings]

    @property
    def steps_of_others(self) -> int:
        """Environment steps of collectors that were removed from the run."""
        return sum(ring.steps for number, ring in self._rings.items() if number >= self._config.training.collectors)

    def episodes_of(self, collector: int) -> int:
        """Return how many training episodes a collector has begun, by the transitions on disk."""
        return self._rings[collector].episodes if collector in self._rings else 0

    @property
    def updates(self) -> int:
        """Updates made, in all processes of this run."""
        return self._algorithm.updates

    @property
    def device(self) -> torch.device:
        """Device that computes updates; it changes if the GPU is given up."""
        return self._algorithm.executor.device

    @property
    def micro_batch(self) -> int:
        """Rows computed at once: td3.batch_size, or fewer if memory ran out."""
        return self._recovery.micro_batch

    def device_is_full(self) -> bool:
        """Return whether the device now has less free than ``memory.reserve_mib``."""
        return free.device_is_full(self._config.memory.reserve_mib)

    def counters(self) -> Counters:
        """Return the run's counters: updates of its checkpoint, steps of its replay."""
        return replace(self._counters, steps=self.steps, updates=self.updates)

    def open_ring(self, collector: int) -> None:
        """Map the ring that a collector has created.

        Raises:
            ReplayError: it can't be used.
        """
        if collector in self._rings:
            return
        self._rings[collector] = Replay.open(self._run.ring(collector), stack=self._algorithm.stack)
        count, rings = self._config.training.collectors, self._rings.items()
        written = [ring for number, ring in rings if number < count]
        gone = [ring for number, ring in rings if number >= count]
        self._replay = Rings(written, gone, self._config.replay.capacity)

    def dry_run(self) -> None:
        """Allocate the memory of updates, and find the micro-batch that fits, before learning begins.

        Raises:
            AgentError: not even a micro-batch of 1 fits (exit 71).
        """
        found = dry_run(self._algorithm, self._config.td3.batch_size, self._recovery.attempt)
        self._events.append(
            "rehearsed", batch=self._config.td3.batch_size, micro_batch=self.micro_batch, **asdict(found)
        )

    def reset(self) -> None:
        """Reset the networks for the final updates; before the first update there is nothing to reset."""
        if self.updates:
            self._algorithm.reset(derived_seed(self._config.seed, Purpose.RESET, self.updates))
            self._events.append("reset", updates=self.updates)

    def update(self, rate: float = 1.0) -> None:
        """Sample one batch and make one update; if memory runs out, finish the same update in smaller parts.

        Args:
            rate: factor of the learning rates.

        Raises:
            AgentError: not even a micro-batch of 1 fits (exit 71).
        """
        assert self._replay is not None, "an update is due only once there are steps"
        begun_s = time.perf_counter()
        batch = self._batches.draw(self._replay, self.updates)
        self._batches.fetch(self._replay, self.updates + 1)  # while this update computes
        self._losses.add(self._algorithm.update(batch, self._recovery.attempt, rate))
        self._log_graphs()
        took_ms = 1000 * (time.perf_counter() - begun_s)
        before = took_ms if self.update_ms is None else self.update_ms
        self.update_ms = round(before + _SMOOTHING * (took_ms - before), 3)

    def publish(self) -> None:
        """Publish the present policy to the collectors.

        Raises:
            CheckpointError: it has diverged.
        """
        weights = flatten(self._algorithm.policy_state())
        if not math.isfinite(weights.sum()):
            raise checkpoint.CheckpointError(
                f"Training has diverged: after update {self.updates} the policy holds NaN or infinity. Earlier "
                "checkpoints are untouched: resume from them, with a lower learning rate."
            )
        self._weights.publish(weights, self.updates)

    def losses(self) -> dict[str, float]:
        """Return the means since the last call, by name; waits for the device."""
        return self._losses.take()

    def apply(self, config: AgentConfig, changed: Collection[str]) -> None:
        """Change the configuration; these keys changed (``carla_td3.trainer.requests.APPLICABLE``).

        Raises:
            ConfigError: the device isn't there, or is too full; the old configuration stays.
        """
        if "device" in changed:
            self._move_if_it_fits(choose_device(config.device), config)
        self._config = config
        if "td3.micro_batch" in changed:
            self._recovery.take(config.td3.micro_batch)
        if {"device", "td3.micro_batch"} & set(changed):
            self.gave_way = ""
        if "training.learner_threads" in changed:
            _use_threads(config)

    def save(self, counters: Counters, score: float | None) -> None:
        """Write a checkpoint of the present state.

        Raises:
            CheckpointError: it can't be written; the earlier ones are unchanged.
        """
        values = {
            "steps": counters.steps,
            "updates": self.updates,
            "evaluated_at": counters.evaluated_at,
            "final_from": counters.final_from,
            "finally_evaluated": counters.finally_evaluated == self.updates,
            "pacing": self.pacing.plain(),
            "td3.precision": self._config.td3.precision,
        }
        written = checkpoint.save(
            self._run.path,
            counters.steps,
            self._algorithm.state(copies=False),
            values,
            architecture=architecture(self._config),
            config_digest=self._config.digest(),
            keep=self._config.training.keep_checkpoints,
            score=score,
        )
        self.checkpoint = written.name

    def _log_precision(self) -> None:
        """Log once that this device computes in another precision than the configured one."""
        asked, computed = self._config.td3.precision, self._algorithm.executor.precision
        sentence = arithmetic.only_emulated(asked, computed)
        if sentence and not self._logged_precision:
            self._logged_precision = True
            self._events.append("precision", sentence, asked=asked, computed=computed, device=str(self.device))

    def _log_graphs(self) -> None:
        """Log once that updates run without the CUDA graphs that were asked for."""
        if self._algorithm.without_graphs and not self._logged_graphs:
            self._logged_graphs = True
            self._events.append("graphs_refused", self._algorithm.without_graphs, device=str(self.device))

    def _log_shortage(self, shortage: Shortage) -> None:
        account = asdict(shortage)
        written = snapshot.write(self._run.memory, self.device, account)
        following = HOST if shortage.action == "moved" else self.device
        updates = self._counters.updates if self._algorithm.executor.is_dry else self.updates
        account |= {"device": self.device.type, "next_device": following.type, "updates": updates}
        self._events.append("out_of_memory", snapshot=written, **account)
        if shortage.action in ("halved", "moved"):
            self.gave_way = "out_of_memory"

    def _move_to_cpu(self) -> None:
        self._move(HOST, self._config)

    def _move_if_it_fits(self, device: torch.device, config: AgentConfig) -> None:
        try:
            self._move(device, config)
        except RuntimeError as error:
            if not is_out_of_memory(error, self.device_is_full):
                raise
            raise ConfigError(f"device {device} is too full ({error}); training continues on the CPU.") from None

    def _move(self, device: torch.device, config: AgentConfig) -> None:
        """Move all tensors to another device; a CUDA context stays until this process ends."""
        self._limit(device)
        self._algorithm.executor.move(device, config.memory.offload if device.type == "cuda" else ())
        self._losses.move(device)
        self._log_precision()

    def _limit(self, device: torch.device) -> None:
        """Limit the allocator to ``memory.per_process_memory_fraction`` before it allocates anything."""
        if self._config.memory.per_process_memory_fraction is not None:
            limit_memory(device, self._config.memory.per_process_memory_fraction)

    def _restore(self) -> None:
        found = checkpoint.load(self._run.path, architecture(self._config), self._continued)
        for sentence in found.skipped:
            self._events.append("checkpoint_skipped", sentence, used=found.path.name)
        tensors, before = adapted(found.tensors, self._algorithm.stack.side)
        if before is not None:
            self._events.append("features_adapted", _ADAPTED, cells_before=before**2, side=self._algorithm.stack.side)
        self._algorithm.load_state(tensors)
        self.checkpoint = found.path.name
        self._last_pacing, self._counters = self._continued(found)

    def _continued(self, found: checkpoint.Checkpoint) -> tuple[Pacing | None, Counters]:
        """Return pacing and counters of a checkpoint, after checking that the networks can continue from it."""
        tensors, _ = adapted(found.tensors, self._algorithm.stack.side)
        self._algorithm.require_fit(tensors)
        updates, values = int(tensors["updates"]), found.values
        last_pacing = Pacing.from_plain(values.get("pacing"))
        owed = Pacing.of(self._config, last_pacing, found.step).updates_due(found.step)
        return last_pacing, Counters(
            steps=found.step,
            updates=updates,
            evaluated_at=int(values["evaluated_at"]),
            saved_updates=updates,
            saved_steps=found.step,
            # A checkpoint without it shows it by the updates that no step called for.
            final_from=int(values.get("final_from", owed if updates > owed else -1)),
            finally_evaluated=updates if values["finally_evaluated"] else -1,
        )


def _use_threads(config: AgentConfig) -> None:
    # Two threads on one core stall each other at every barrier. On 2 cores, beside a busy simulator, 2 threads made 13
    # updates and 308 steps per second, 1 thread 26 and 497; beside a simulator that mostly waits, 34 and 27 updates
    # (benchmarks/threads.py).
    torch.set_num_threads(config.training.learner_threads or max(1, len(os.sched_getaffinity(0)) - 1))


def architecture(config: AgentConfig) -> dict[str, Any]:
    """Return the configuration values that a checkpoint's loader must share, except those that its absence implies."""
    meant = legacy_values(AgentConfig)
    return {key: value for key, value in pinned(config, Pin.WEIGHTS).items() if key not in meant or value != meant[key]}
