"""Pedestrians, moved by the client's crowd over the map's navigation mesh (CARLA's ``controller.ai.walker``).

Owns the walkers and their controllers. Walkers have the role name ``td3-walker``; a controller has its walker as
parent. Only the client that started a controller moves its walker, one step before each ``world.tick``. The crowd leads
walkers to places anywhere on the mesh, by ways on which a metre of road costs as much as ten: few of them cross before
the car.
"""

from __future__ import annotations

import math
from typing import Any

import carla
import numpy as np

from carla_td3.config import ConfigError, TrafficConfig
from carla_td3.env.hazards import HALF_WIDTH_M, STARTING_MPS, Ahead
from carla_td3.env.session import ROLE_PREFIX, Session

ROLE = f"{ROLE_PREFIX}walker"
CONTROLLER = "controller.ai.walker"
MAX_SEED = 2**31 - 1
# A place on the mesh may be taken or be too near to another one; sometimes CARLA's mesh gives no place at all.
ROUNDS = 5
WALKING = 1
"""Index in a blueprint's recommended speeds: standing, walking, running."""
# A walker steps out so that it is on the path about when the car comes, and never before a car that can't stop.
WALKING_MPS, SETS_OUT_S, MEETS_S, STOPS_M = 1.2, 1.5, 1.0, 15.0
BESIDE_M = 12.0
# Where it goes: places on the mesh, and how far along and beside the route they may be.
SPOTS, ALONG_M, ACROSS_M = 400, 20.0, 18.0
# If walkers are to be near the start, the nearest of this many drawn places are taken; drawing one takes 0.3 ms.
POOL = 1_000


class Walkers:
    """A crowd, empty until ``resize``.

    Args:
        session: connected.
        config: how many cross roads, how many step out, and how near to a drive's start they begin it.
        seed: for their places, models and ways.
    """

    def __init__(self, session: Session, config: TrafficConfig, seed: int) -> None:
        self._session = session
        self._crossing = config.walkers_crossing
        self._step_out = config.walkers_step_out
        self._within_m = config.within_m
        self._pairs: list[tuple[Any, Any]] = []
        self._spots: list[Any] = []
        self._pool: list[Any] = []
        self._near: list[Any] = []
        self._decided: set[int] = set()
        self.reseed(seed)

    @property
    def people(self) -> list[Any]:
        """The walkers, without their controllers."""
        return [person for person, _ in self._pairs]

    def reseed(self, seed: int) -> None:
        """Make the walkers spawned from now on a function of this seed."""
        self._rng = np.random.default_rng(seed)
        with self._session.answered():
            # Whether a walker crosses roads is decided when it is added, so the share must be set first.
            self._session.world.set_pedestrians_cross_factor(self._crossing)
            self._session.world.set_pedestrians_seed(int(self._rng.integers(MAX_SEED)))
        # New places each time: drawing them uses the client's random state, which is then the same for the same seed.
        self._pool = [self._anywhere() for _ in range(POOL)] if self._within_m is not None else []
        self._spots = [self._anywhere() for _ in range(SPOTS)] if self._step_out > 0.0 else []

    def send_across(self, ahead: Ahead, speed_mps: float) -> None:
        """Let some walkers beside the route ahead cross it before the car; call it once per simulated second.

        Each walker is considered once per drive.
        """
        if self._step_out == 0.0:
            return
        undecided = [each for each in self._living() if each[0].id not in self._decided]
        if not undecided:
            return
        gap, lateral, _ = ahead.project(np.array([(place.x, place.y) for _, _, place in undecided]))
        beside_m = np.abs(lateral) - HALF_WIDTH_M
        there_s = SETS_OUT_S + beside_m / WALKING_MPS
        meets = np.abs(gap / max(speed_mps, STARTING_MPS) - there_s) < MEETS_S
        for index in np.flatnonzero(meets & (beside_m > 0.0) & (beside_m < BESIDE_M) & (gap > STOPS_M)):
            person, controller, _ = undecided[index]
            self._decided.add(person.id)
            spot = self._across(ahead, float(gap[index]), float(lateral[index]))
            if self._rng.random() < self._step_out and spot is not None:
                with self._session.answered():
                    controller.go_to_location(spot)

    def _across(self, ahead: Ahead, gap_m: float, lateral_m: float) -> Any | None:
        """Return the place on the route's other side that is nearest along the route; None if there is none near."""
        gap, lateral, _ = ahead.project(np.array([(spot.x, spot.y) for spot in self._spots]))
        beside = (lateral * lateral_m < 0.0) & (np.abs(lateral) > HALF_WIDTH_M) & (np.abs(lateral) < ACROSS_M)
        along = np.where(beside, np.abs(gap - gap_m), np.inf)
        best = int(np.argmin(along))
        return self._spots[best] if along[best] < ALONG_M else None

    def resize(self, count: int, start: tuple[float, float]) -> None:
        """Set the number of walkers, after removing those that were run over or are too far from the start (x, y).

        Surplus walkers are removed, or missing ones added, which takes a tick.

        Raises:
            ConfigError: the map has no navigation mesh.
            SimulatorLost: the simulator doesn't answer.
        """
        self._decided.clear()
        within_m = math.inf if self._within_m is None else self._within_m
        self._near = [place for place in self._pool if math.dist((place.x, place.y), start) <= within_m] or self._pool
        kept = [
            (person, controller)
            for person, controller, place in self._living()
            if math.dist((place.x, place.y), start) <= within_m
        ]
        self._remove([pair for pair in self._pairs if pair not in kept] + kept[count:])
        self._pairs = kept[:count]
        if count > len(self._pairs):
            self._start(self._spawned(count - len(self._pairs)))

    def empty(self) -> None:
        """Remove all walkers, controllers first: a crowd that misses a walker destroys its controller itself."""
        self._remove(self._pairs)
        self._pairs = []

    def _living(self) -> list[tuple[Any, Any, Any]]:
        """Return walkers, their controllers and places. The client destroys the controllers of walkers that were run
        over.
        """
        seen = self._session.seen(actor for pair in self._pairs for actor in pair)
        return [
            (person, controller, seen[person.id].get_transform().location)
            for person, controller in self._pairs
            if person.id in seen and controller.id in seen
        ]

    def _remove(self, pairs: list[tuple[Any, Any]]) -> None:
        seen = self._session.seen(controller for _, controller in pairs)
        with self._session.answered():
            for _, controller in pairs:
                if controller.id in seen:
                    controller.stop()
        self._session.destroy([controller for _, controller in pairs] + [person for person, _ in pairs])

    def _spawned(self, count: int) -> list[tuple[int, int]]:
        """Return the ids of new walkers and of their controllers; fewer if the mesh is full, or a spawn was refused."""
        library = self._session.world.get_blueprint_library()
        looks = sorted(library.filter("walker.pedestrian.*"), key=lambda blueprint: str(blueprint.id))
        people: list[int] = []
        for _ in range(ROUNDS):
            batch = [self._new_walker(looks) for _ in range(count - len(people))]
            people += [person for person in self._applied(batch) if person is not None]
        brain = library.find(CONTROLLER)
        brains = self._applied([carla.command.SpawnActor(brain, carla.Transform(), person) for person in people])
        pairs = list(zip(people, brains, strict=True))
        self._session.destroy([person for person, controller in pairs if controller is None])
        return [(person, controller) for person, controller in pairs if controller is not None]

    def _new_walker(self, looks: list[Any]) -> Any:
        blueprint = looks[self._rng.integers(len(looks))]
        blueprint.set_attribute("role_name", ROLE)
        if blueprint.has_attribute("is_invincible"):
            blueprint.set_attribute("is_invincible", "false")
        blueprint.set_attribute("speed", blueprint.get_attribute("speed").recommended_values[WALKING])
        return carla.command.SpawnActor(blueprint, carla.Transform(self._place()))

    def _place(self) -> Any:
        return self._near[self._rng.integers(len(self._near))] if self._near else self._anywhere()

    def _anywhere(self) -> Any:
        with self._session.answered():
            for _ in range(ROUNDS):
                place = self._session.world.get_random_location_from_navigation()
                if place is not None:
                    return place
        raise ConfigError(
            f"environment.traffic.walkers: map {self._session.map.name} of the simulator at {self._session.address} "
            "has no navigation mesh for people to walk on: take another map, or set it to 0."
        )

    def _applied(self, batch: list[Any]) -> list[int | None]:
        """Return the actor id for each spawn command of a batch; None if it was refused."""
        with self._session.answered():
            replies = self._session.client.apply_batch_sync(batch, False) if batch else []
        return [None if reply.has_error() else int(reply.actor_id) for reply in replies]

    def _start(self, ids: list[tuple[int, int]]) -> None:
        self._session.tick()  # only a snapshot tells the client where they are
        with self._session.answered():
            actors = {actor.id: actor for actor in self._session.world.get_actors([i for pair in ids for i in pair])}
            # another client may have destroyed one meanwhile, or a car run over it
            seen = self._session.seen(actors.values())
            there = [pair for pair in ids if all(i in seen for i in pair)]
            self._session.destroy([i for pair in ids if pair not in there for i in reversed(pair)])
            for person, brain in there:
                walker, controller = actors[person], actors[brain]
                controller.start()
                controller.go_to_location(self._place())
                controller.set_max_speed(float(walker.attributes["speed"]))
                self._pairs.append((walker, controller))
