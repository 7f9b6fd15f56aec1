"""People on foot need a map that they can walk on, and step out before the car where that is asked for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from carla_td3.config import ConfigError, SimulatorConfig, TrafficConfig
from carla_td3.env.hazards import Ahead
from carla_td3.env.session import Session
from carla_td3.env.walkers import SPOTS, Walkers
from tests.unit.agent.roads import road

PERSON = SimpleNamespace(
    id="walker.pedestrian.0001",
    set_attribute=lambda *_: None,
    has_attribute=lambda _: False,
    get_attribute=lambda _: SimpleNamespace(recommended_values=("0.0", "1.4", "2.8")),
)


def session_of(**world: Any) -> Session:
    plain: dict[str, Any] = {
        "set_pedestrians_cross_factor": lambda _: None,
        "set_pedestrians_seed": lambda _: None,
        "get_snapshot": lambda: None,
        "get_random_location_from_navigation": lambda: None,
        "get_blueprint_library": lambda: SimpleNamespace(filter=lambda _: [PERSON]),
        "get_map": lambda: SimpleNamespace(name="Carla/Maps/OpenDriveMap"),
    }
    session = Session(SimulatorConfig())
    session.world = SimpleNamespace(**{**plain, **world})
    return session


def test_a_map_without_a_navigation_mesh_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"OpenDriveMap of the simulator at 127.0.0.1:2000 has no navigation mesh"):
        Walkers(session_of(), TrafficConfig(), seed=1).resize(3, (0.0, 0.0))


class Street:
    """A straight street to the east with a pavement on either side, on which people stand and places lie."""

    def __init__(self, *people: tuple[float, float], step_out: float = 1.0, seed: int = 1) -> None:
        self.sent: list[tuple[int, float, float]] = []
        places = {100 + number: place for number, place in enumerate(people)} | dict.fromkeys(
            range(200, 200 + len(people)), (0.0, 0.0)
        )
        self.asked = 0
        self.walkers = Walkers(
            session_of(
                get_snapshot=lambda: SimpleNamespace(find=lambda actor: _seen(places.get(actor))),
                get_random_location_from_navigation=self._spot,
            ),
            TrafficConfig(walkers_step_out=step_out),
            seed,
        )
        self.walkers._pairs = [
            (SimpleNamespace(id=100 + number), SimpleNamespace(id=200 + number, go_to_location=self._sends(number)))
            for number in range(len(people))
        ]
        self.gone = places

    def _spot(self) -> Any:
        self.asked += 1
        return SimpleNamespace(x=float(self.asked % 100), y=(5.0, -8.0)[self.asked % 2])

    def _sends(self, number: int) -> Any:
        return lambda spot: self.sent.append((number, spot.x, spot.y))

    def second(self, speed_mps: float = 8.0) -> None:
        self.walkers.send_across(Ahead(road((119, 0.0)), 0.0), speed_mps)


def _seen(place: tuple[float, float] | None) -> Any:
    if place is None:
        return None
    location = SimpleNamespace(x=place[0], y=place[1])
    return SimpleNamespace(get_transform=lambda: SimpleNamespace(location=location))


@pytest.mark.parametrize(("ahead_m", "right_m", "to_m"), [(40.0, 5.0, -8.0), (58.0, -8.0, 5.0)])
def test_who_would_meet_the_car_is_sent_across_once(ahead_m: float, right_m: float, to_m: float) -> None:
    street = Street((ahead_m, right_m))
    street.second()
    street.second()
    ((who, x, y),) = street.sent
    assert (who, y) == (0, to_m)
    assert x == pytest.approx(ahead_m, abs=1.0)


@pytest.mark.parametrize("place", [(16.0, 3.0), (60.0, 5.0), (30.0, 12.0), (30.0, -8.0), (30.0, 0.5), (80.0, 13.5)])
def test_who_would_not_meet_the_car_is_not_sent(place: tuple[float, float]) -> None:
    street = Street(place)
    for _ in range(20):
        street.second()
    assert street.sent == []
    assert not street.walkers._decided


def test_chance_decides_and_a_seed_decides_the_same() -> None:
    sent = []
    for _ in range(2):
        street = Street(*((38.0 + number / 20, 5.0) for number in range(100)), step_out=0.3)
        street.second()
        street.second()
        sent.append(street.sent)
    assert sent[0] == sent[1]
    assert 15 <= len(sent[0]) <= 45
    assert len({who for who, *_ in sent[0]}) == len(sent[0])


def test_who_has_been_run_over_is_left_alone() -> None:
    street = Street((40.0, 5.0))
    del street.gone[200]
    street.second()
    assert street.sent == []


def test_without_it_nothing_is_drawn() -> None:
    street = Street((30.0, 5.0), step_out=0.0)
    before = street.walkers._rng.bit_generator.state
    street.second()
    assert street.asked == 0
    assert street.walkers._rng.bit_generator.state == before
    assert Street(step_out=0.1).asked == SPOTS
