"""People on foot, whom the client's own crowd leads over the map's navigation mesh (CARLA's ``controller.ai.walker``).

Owns them and their controllers; the people are named ``td3-walker``, a controller is known by whom it rides. Only the
client that started a controller moves its walker, one step before each ``world.tick``.
"""

from __future__ import annotations

from typing import Any

import carla
import numpy as np

from agent.config import ConfigError
from agent.env.session import ROLE_PREFIX, Session

ROLE = f"{ROLE_PREFIX}walker"
CONTROLLER = "controller.ai.walker"
MOST_SEED = 2**31 - 1
# A place of the mesh may be taken, or be too near to another's; CARLA's mesh now and then gives none at all.
ROUNDS = 5
WALKING = 1
"""Of a blueprint's recommended speeds: standing, walking, running."""


class Walkers:
    """A crowd, empty until ``resize``.

    Args:
        session: connected.
        crossing: share of the people who cross roads anywhere, the others at crosswalks alone.
        seed: of their places, looks and ways.
    """

    def __init__(self, session: Session, crossing: float, seed: int) -> None:
        self._session = session
        self._crossing = crossing
        self._pairs: list[tuple[Any, Any]] = []
        self.reseed(seed)

    @property
    def people(self) -> list[Any]:
        """The walkers, without their controllers."""
        return [person for person, _ in self._pairs]

    def reseed(self, seed: int) -> None:
        """Let whoever comes from now on be a function of this seed."""
        self._rng = np.random.default_rng(seed)
        with self._session.answered():
            # Which of them cross is decided as each is added, so it has to be known first.
            self._session.world.set_pedestrians_cross_factor(self._crossing)
            self._session.world.set_pedestrians_seed(int(self._rng.integers(MOST_SEED)))

    def resize(self, count: int) -> None:
        """Remove who was run over, then those who are too many, or add who is missing; adding takes a tick.

        Raises:
            ConfigError: the map has no navigation mesh.
            SimulatorLost: the simulator doesn't answer.
        """
        snapshot = self._session.world.get_snapshot()
        # The client destroys the controller of a walker whom a car has run over.
        living = [pair for pair in self._pairs if all(snapshot.find(actor.id) for actor in pair)]
        self._remove([pair for pair in self._pairs if pair not in living] + living[count:])
        self._pairs = living[:count]
        if count > len(self._pairs):
            self._start(self._spawned(count - len(self._pairs)))

    def empty(self) -> None:
        """Remove everybody: the controllers first, for a crowd that misses a walker destroys its controller itself."""
        self._remove(self._pairs)
        self._pairs = []

    def _remove(self, pairs: list[tuple[Any, Any]]) -> None:
        snapshot = self._session.world.get_snapshot()
        with self._session.answered():
            for _, controller in pairs:
                if snapshot.find(controller.id):
                    controller.stop()
        self._session.destroy([controller for _, controller in pairs] + [person for person, _ in pairs])

    def _spawned(self, count: int) -> list[tuple[int, int]]:
        """Return the ids of new people and of their controllers; fewer where the mesh is full."""
        library = self._session.world.get_blueprint_library()
        looks = sorted(library.filter("walker.pedestrian.*"), key=lambda blueprint: str(blueprint.id))
        people: list[int] = []
        for _ in range(ROUNDS):
            batch = [self._newcomer(looks) for _ in range(count - len(people))]
            people += self._applied(batch)
        brain = library.find(CONTROLLER)
        brains = self._applied([carla.command.SpawnActor(brain, carla.Transform(), person) for person in people])
        return list(zip(people, brains, strict=True))

    def _newcomer(self, looks: list[Any]) -> Any:
        blueprint = looks[self._rng.integers(len(looks))]
        blueprint.set_attribute("role_name", ROLE)
        if blueprint.has_attribute("is_invincible"):
            blueprint.set_attribute("is_invincible", "false")
        blueprint.set_attribute("speed", blueprint.get_attribute("speed").recommended_values[WALKING])
        return carla.command.SpawnActor(blueprint, carla.Transform(self._place()))

    def _place(self) -> Any:
        with self._session.answered():
            for _ in range(ROUNDS):
                place = self._session.world.get_random_location_from_navigation()
                if place is not None:
                    return place
        raise ConfigError(
            f"environment.traffic.walkers: map {self._session.map.name} of the simulator at {self._session.address} "
            "has no navigation mesh for people to walk on: take another map, or set it to 0."
        )

    def _applied(self, batch: list[Any]) -> list[int]:
        with self._session.answered():
            replies = self._session.client.apply_batch_sync(batch, False) if batch else []
        return [reply.actor_id for reply in replies if not reply.has_error()]

    def _start(self, ids: list[tuple[int, int]]) -> None:
        self._session.tick()  # only a snapshot tells the client where they are
        with self._session.answered():
            actors = {actor.id: actor for actor in self._session.world.get_actors([i for pair in ids for i in pair])}
            for person, brain in ids:
                walker, controller = actors[person], actors[brain]
                controller.start()
                controller.go_to_location(self._place())
                controller.set_max_speed(float(walker.attributes["speed"]))
                self._pairs.append((walker, controller))
