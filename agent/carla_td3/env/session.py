"""The connection to a simulator: connect with patience, switch the map, tick, notice a death, leave it tidy.

Owns the ``carla.Client``, synchronous mode and every time-out of the environment; the only place that knows them.
Never touches the spectator, and destroys only actors whose role name says that they are this project's.
"""

from __future__ import annotations

import contextlib
import gc
import os
import queue
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import carla

from carla_run.exits import Exit, ExitError
from carla_td3.config import ConfigError, SimulatorConfig
from carla_td3.env.claim import Claim, SimulatorOccupied
from carla_td3.env.lifeline import Lifeline

ROLE_PREFIX = "td3-"
RIDERS = ("sensor.", "controller.")
"""Kinds of actors that are attached to another one, whose role name tells whose they are."""
# Without a Traffic Manager a time-out of a live server is harmless (protocol section 5.2), so a tick waits in slices
# this long: a dead server is noticed after one slice, not after the whole time-out. Only ticks do this: other calls
# can't be repeated, and a first spawn from a cold disk takes longer than a slice.
SLICE_S = 1.0
# Back-to-back ticks can deadlock a synchronous Traffic Manager; 100 µs between them do not (facts, section 5).
TRAFFIC_PAUSE_S = 150e-6
RETRY_FIRST_S, RETRY_MAX_S = 0.1, 2.0
# A process that was just killed may hold its simulator a moment longer, on a busy machine for seconds.
OCCUPIED_S = 10.0


class NoSimulator(ExitError):  # noqa: N818 (a state of the world, not a mistake)
    """No simulator answered within the patience; the message is one sentence for a person (exit code 69)."""

    code = Exit.NO_SIMULATOR


class SimulatorLost(Exception):  # noqa: N818 (the same)
    """The simulator died or stopped answering while in use; a new connection may succeed."""


class BlockedStart(ExitError):  # noqa: N818 (the same)
    """The simulator works, but something stands where the car is to start; try another place or another time."""

    code = Exit.NO_SIMULATOR

    def __init__(self, where: carla.Location) -> None:
        super().__init__(f"No car can start at ({where.x:.1f}, {where.y:.1f}): something stands in its way there.")


def _require_cache(version: str) -> None:
    """Refuse a place where the client can't keep a map's files: it fails at each try, as if no simulator answered.

    Raises:
        ConfigError: it can't.
    """
    kept = os.environ.get("CARLA_CACHE_DIR") or Path(os.environ.get("HOME", ""), "carlaCache")
    folder = Path(kept, version)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"{folder}: the carla client can't keep a map's files there ({error.strerror}): set "
            "CARLA_CACHE_DIR to a folder that can be written."
        ) from None


class Session:
    """One simulator in synchronous mode. ``connect`` may be called again after a loss.

    Args:
        config: address, map and time-outs.
        traffic: whether a Traffic Manager will run in this process. Ticks are then spaced and wait without slices,
            because any time-out would abort the process (protocol section 5.5).
        on_lost: called from a watcher thread as soon as the simulator's connection ends. A process with a Traffic
            Manager must exit (``os._exit``) in this call: its tick can't be interrupted.
        on_wait: called with a sentence when the session begins to wait for a simulator.
        ports: ports of simulators on this host. The session takes the first one that no other environment uses.
            Default: the configuration's port.
    """

    def __init__(
        self,
        config: SimulatorConfig,
        *,
        traffic: bool = False,
        on_lost: Callable[[], None] | None = None,
        on_wait: Callable[[str], None] | None = None,
        ports: Sequence[int] = (),
    ) -> None:
        self.config = config
        self.ticks = 0
        """Ticks made since construction, over all connections."""
        self.tick_started_s = 0.0
        """``time.monotonic()`` at which the running tick began; 0 when none is running."""
        self.waiting_for = ""
        """Why no ticks happen now; empty while all is well."""
        self.on_tick: Callable[[], None] | None = None
        """Called after each tick."""
        self.on_connect: Callable[[], None] | None = None
        """Called before connecting, which may take long."""
        self.client: Any = None
        """The ``carla.Client``; None without a connection."""
        self.world: Any = None
        """The ``carla.World``; None without a connection."""
        self._traffic = traffic
        self._slice_s = config.timeout_s if traffic else min(SLICE_S, config.timeout_s)
        self._on_lost, self._on_wait = on_lost, on_wait
        self._ports = ports
        self._claim: Claim | None = None
        self._lifeline: Lifeline | None = None
        self._frame = 0
        self._tick_ended_s = 0.0

    @property
    def address(self) -> str:
        """``host:port`` for messages."""
        return f"{self.config.host}:{self.config.port}"

    @property
    def connected(self) -> bool:
        """Whether there is a world and its simulator's connection still stands."""
        return self.world is not None and self._lifeline is not None and not self._lifeline.lost

    @property
    def map(self) -> Any:
        """The world's ``carla.Map`` (the client caches it)."""
        with self.answered():
            return self.world.get_map()

    def connect(self) -> None:
        """Connect, load the wanted map, remove a dead predecessor's actors, and set synchronous mode.

        Raises:
            NoSimulator: nothing usable answered within ``patience_s``.
            SimulatorOccupied: another environment has the simulator.
            ConfigError: the simulator answers but doesn't have the wanted map, or the client can't make its cache.
        """
        if self.on_connect is not None:
            self.on_connect()
        self._claim = self._claim or self._claimed()
        deadline = time.monotonic() + self.config.patience_s
        pause_s = RETRY_FIRST_S
        told = self._on_wait
        self.waiting_for = f"simulator at {self.address}"
        while True:
            self.abandon()
            try:
                self._open()
                break
            except (OSError, RuntimeError, SimulatorLost) as error:
                if self.client is not None:
                    _require_cache(self.client.get_client_version().split("-")[0])
                self.abandon()
                left_s = deadline - time.monotonic()
                if left_s <= 0.0:
                    raise NoSimulator(self._nothing_there(error)) from None
                if told is not None:
                    told(f"Waiting up to {self.config.patience_s:g} s for a simulator at {self.address} ({error}).")
                    told = None
            except (ConfigError, NoSimulator):
                self.abandon()
                raise
            time.sleep(min(pause_s, left_s))
            pause_s = min(2 * pause_s, RETRY_MAX_S)
        self.waiting_for = ""

    def tick(self) -> int:
        """Advance the simulation by one step and return the new frame's number.

        Raises:
            SimulatorLost: the simulator is dead or silent for longer than ``timeout_s``.
        """
        if self._lifeline is None or self._lifeline.lost:
            raise SimulatorLost(f"The simulator at {self.address} closed its connection.")
        if self._traffic:
            time.sleep(max(0.0, self._tick_ended_s + TRAFFIC_PAUSE_S - time.monotonic()))
        self.tick_started_s = time.monotonic()
        try:
            self.client.set_timeout(self._slice_s)
            self._frame = self.world.tick(self.config.timeout_s)
        except RuntimeError:
            self._frame = self._late_frame()
        finally:
            self.client.set_timeout(self.config.timeout_s)
            self._tick_ended_s = time.monotonic()
            self.tick_started_s = 0.0
        self.ticks += 1
        if self.on_tick is not None:
            self.on_tick()
        return self._frame

    def shown_tick(self) -> int | None:
        """Return the number of the running tick if the client already has its frame; otherwise None.

        For another thread: such a tick waits only for the Traffic Manager.
        """
        world, tick = self.world, self.ticks
        running = world is not None and self.tick_started_s != 0.0
        return tick if running and int(world.get_snapshot().frame) > self._frame else None

    def receive(self, arrivals: queue.SimpleQueue[Any], frame: int) -> Any:
        """Return the sensor message of ``frame`` from ``arrivals``; older ones are dropped.

        Raises:
            SimulatorLost: it didn't come within ``timeout_s``, or a later one came first (the frame was lost).
        """
        deadline = time.monotonic() + self.config.timeout_s
        while True:
            try:
                message = arrivals.get(timeout=0.25)
            except queue.Empty:
                self._expect(deadline, f"no image of frame {frame}")
                continue
            if message.frame == frame:
                return message
            if message.frame > frame:
                raise SimulatorLost(f"The simulator at {self.address} skipped the image of frame {frame}.")

    def seen(self, actors: Iterable[Any]) -> dict[int, Any]:
        """Return the snapshots of those actors that the newest frame has, by id."""
        snapshot = self.world.get_snapshot()
        return {actor.id: shown for actor in actors if (shown := snapshot.find(actor.id))}

    def spawn_car(self, blueprint: Any, pose: carla.Transform) -> Any:
        """Spawn a vehicle and return it.

        Raises:
            BlockedStart: the simulator has no room for it there.
            SimulatorLost: it doesn't answer.
        """
        # As a batch: its reply tells a refusal from a time-out, spawn_actor raises RuntimeError for both.
        with self.answered():
            (reply,) = self.client.apply_batch_sync([carla.command.SpawnActor(blueprint, pose)], False)
            if reply.has_error():
                raise BlockedStart(pose.location)
            car = self.world.get_actor(reply.actor_id)
        if car is None:
            raise SimulatorLost("The new car is gone from the simulator: another client destroyed it.")
        return car

    def destroy(self, actors: list[Any]) -> None:
        """Destroy actors, or those with these ids, in the given order (sensors before the actor that carries them).

        Actors that are already gone are ignored.
        """
        if actors and self.connected:
            with self.answered():
                self.client.apply_batch_sync([carla.command.DestroyActor(actor) for actor in actors], False)

    @contextlib.contextmanager
    def answered(self) -> Iterator[None]:
        """Turn the client's ``RuntimeError`` (no answer, or a refusal) into ``SimulatorLost``."""
        try:
            yield
        except RuntimeError as error:
            raise SimulatorLost(f"The simulator at {self.address} did not answer: {error}.") from None

    def abandon(self) -> None:
        """Drop the connection without a call to the simulator (it is dead, or about to be reconnected)."""
        if self._lifeline is not None:
            self._lifeline.close()
        self._lifeline = self.client = self.world = None

    def close(self) -> None:
        """Leave the simulator in asynchronous mode, so that it doesn't wait for ticks that never come."""
        if self.connected:
            # if it died meanwhile, there is nothing to restore
            with contextlib.suppress(RuntimeError, SimulatorLost):
                self._set_synchronous(False)
                self._remove_leftovers()  # what an interrupted reset has spawned is known to nothing else
        self.abandon()
        if self._claim is not None:
            self._claim.release()
            self._claim = None

    def _claimed(self) -> Claim:
        """Claim the configured simulator for this session, or the first free one of ``ports``."""
        deadline = time.monotonic() + min(OCCUPIED_S, self.config.patience_s)
        while True:
            for port in self._ports or (self.config.port,):
                try:
                    claim = Claim(self.config.host, port)
                except SimulatorOccupied as occupied:
                    last = occupied
                else:
                    self.config = self.config.model_copy(update={"port": port})
                    return claim
            if time.monotonic() >= deadline:
                raise last
            gc.collect()  # an environment that was dropped without close() may refer to itself
            time.sleep(RETRY_FIRST_S)

    def _open(self) -> None:
        self._lifeline = Lifeline(self.config.host, self.config.port, self._on_lost)
        # One streaming thread: messages are handed over in order of arrival, so a frame's collisions are known once
        # that frame's image has arrived.
        self.client = carla.Client(self.config.host, self.config.port, 1)
        self.client.set_timeout(min(self.config.timeout_s, max(2.0, self.config.patience_s)))
        self._check_version()
        self.client.set_timeout(self.config.timeout_s)
        self.world = self.client.get_world()
        if self.config.map is not None:
            self._switch_map(self.config.map)
        # In this order: apply_settings ticks until a snapshot comes, and only a snapshot tells a client of the actors
        # (protocol section 3.4). Otherwise the client would see no actors of a simulator that a dead collector left
        # synchronous.
        self._set_synchronous(True)
        self._remove_leftovers()
        self._frame = self.world.get_snapshot().frame

    def _check_version(self) -> None:
        ours, theirs = self.client.get_client_version(), self.client.get_server_version()
        if ours.split("-")[0] != theirs.split("-")[0]:
            raise NoSimulator(
                f"The simulator at {self.address} is version {theirs}, the client {ours}: start CARLA {ours}."
            )

    def _switch_map(self, wanted: str) -> None:
        if wanted.endswith(".xodr"):
            self._switch_opendrive(Path(wanted))
        elif wanted.rsplit("/", 1)[-1] != self.map.name.rsplit("/", 1)[-1]:
            begun_s = time.monotonic()
            try:
                self.world = self.client.load_world(wanted)
            except RuntimeError:
                if time.monotonic() - begun_s >= self.config.timeout_s:
                    raise  # no refusal: the map is still loading, and will be found loaded at the next try
                # Checked only now: carla-lite accepts names of towns from a seed, which its list can't have.
                names = sorted(name.rsplit("/", 1)[-1] for name in self.client.get_available_maps())
                if wanted.rsplit("/", 1)[-1] in names:
                    raise
                raise ConfigError(
                    f"simulator.map is {wanted!r}, but the simulator at {self.address} has {', '.join(names)}: "
                    "name one of these or give the path of an .xodr file."
                ) from None

    def _switch_opendrive(self, path: Path) -> None:
        try:
            xodr = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"simulator.map is {str(path)!r}, which can't be read ({error}): give a file.") from None
        # Loading leaks in CARLA (facts, section 4): a simulator that was started with this file keeps its world.
        if self.map.to_opendrive().strip() != xodr.strip():
            self.world = self.client.generate_opendrive_world(xodr)

    def _remove_leftovers(self) -> None:
        actors = list(self.world.get_actors())
        ours = {a.id for a in actors if a.attributes.get("role_name", "").startswith(ROLE_PREFIX)}
        riding = [a for a in actors if a.type_id.startswith(RIDERS) and (on := a.parent) and on.id in ours]
        ids = {a.id for a in riding}
        self.destroy([*riding, *(a for a in actors if a.id in ours - ids)])

    def _set_synchronous(self, synchronous: bool) -> None:
        settings = self.world.get_settings()
        settings.synchronous_mode = synchronous
        settings.fixed_delta_seconds = self.config.fixed_delta_s if synchronous else None
        settings.substepping, settings.max_substep_delta_time, settings.max_substeps = True, 0.01, 10
        self.world.apply_settings(settings)

    def _late_frame(self) -> int:
        """Return the frame of a tick whose reply timed out, once the world shows it (protocol section 5.2)."""
        deadline = self.tick_started_s + self.config.timeout_s
        while (frame := int(self.world.get_snapshot().frame)) <= self._frame:
            self._expect(deadline, "no reply to a tick")
            time.sleep(0.005)
        return frame

    def _expect(self, deadline: float, missing: str) -> None:
        if self._lifeline is None or self._lifeline.lost:
            raise SimulatorLost(f"The simulator at {self.address} closed its connection: {missing}.")
        if time.monotonic() >= deadline:
            raise SimulatorLost(f"The simulator at {self.address} is silent: {missing} in {self.config.timeout_s:g} s.")

    def _nothing_there(self, error: Exception) -> str:
        return (
            f"No simulator answered at {self.address} within {self.config.patience_s:g} s ({str(error).rstrip('.')}): "
            f"start CARLA or `python -m carla_lite --port {self.config.port}` there, set CARLA_HOST and CARLA_PORT, or "
            "wait longer with simulator.patience_s."
        )
