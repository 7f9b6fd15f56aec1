"""Many vehicles at once: each moves as it would alone, bit for bit."""

from __future__ import annotations

import copy
import math
import random
from dataclasses import fields

import pytest

from carla_lite.blueprints.catalogue import CATALOGUE
from carla_lite.blueprints.vehicles import VehicleBlueprint
from carla_lite.motion.fleet import FEW, advance_all
from carla_lite.motion.physics import Body, Control, Ground, advance

TICKS = 250
MODELS = [row.model for row in CATALOGUE.values() if isinstance(row, VehicleBlueprint)]


def hills(x: float, y: float) -> float:
    return 0.02 * x + 0.5 * math.sin(0.3 * x) + (3.0 if y > 20.0 else 0.0)


def any_control(rng: random.Random) -> Control:
    pedal = rng.choice([0.0, 1.0, math.nan, rng.uniform(0.0, 1.2)])
    steer, brake = rng.choice([0.0, rng.uniform(-1.2, 1.2)]), rng.choice([0.0, 0.0, rng.random()])
    hand_brake, reverse, manual = (rng.random() < 0.1 for _ in range(3))
    return Control(pedal, steer, brake, hand_brake, reverse, manual, rng.choice([-1, 0, 1, 2]))


def state_of(body: Body) -> list[str]:
    return [repr(getattr(body, field.name)) for field in fields(body) if field.name not in ("model", "control")]


@pytest.mark.parametrize(("ground", "level"), [(hills, None), (lambda _x, _y: 1.5, 1.5)])
def test_among_many_a_vehicle_moves_as_alone(ground: Ground, level: float | None):
    rng = random.Random(0)
    alone = []
    for _ in range(FEW + 30):
        x, y, speed = rng.uniform(-50.0, 50.0), rng.uniform(-50.0, 50.0), rng.uniform(-5.0, 30.0)
        model = rng.choice(MODELS)
        alone.append(Body(model, x, y, ground(x, y), yaw=rng.uniform(-3.0, 3.0), vx=speed, gravity=rng.random() > 0.05))
    together = copy.deepcopy(alone)
    moved = 0
    for _ in range(TICKS):
        for one, other in zip(alone, together, strict=True):
            if rng.random() < 0.1:
                one.control = other.control = any_control(rng)
            if rng.random() < 0.01:
                one.vz = other.vz = 5.0
        dt = rng.choice([0.1, 0.05, 0.03])
        moved += sum(body.vx != 0.0 for body in alone) > FEW
        for one in alone:
            advance(one, dt, ground)
        advance_all(together, dt, ground, level)
        assert list(map(state_of, together)) == list(map(state_of, alone))
    assert moved > TICKS // 2
