"""Traffic lights and their cycle: one controller of a junction at a time is green, then yellow, then red.

Owns the lights' states, CARLA's times and the order of turns. Knows neither vehicles nor RPC methods.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import IntEnum
from typing import Any

from carla_lite.actors.actor import Actor, Identity
from carla_lite.actors.stops import STOP_HEIGHT_M, STOP_LENGTH_M, STOP_SHARE
from carla_lite.protocol import wire
from carla_lite.roads.signals import Signal
from carla_lite.scenery.projection import Pose
from carla_lite.scenery.sign_faces import LampState, SignFace, face_of


class LightState(IntEnum):
    """States as numbered on the wire."""

    RED = 0
    YELLOW = 1
    GREEN = 2
    OFF = 3
    UNKNOWN = 4


_LAMPS = {LightState.RED: LampState.RED, LightState.YELLOW: LampState.YELLOW, LightState.GREEN: LampState.GREEN}
_CYCLE = (LightState.GREEN, LightState.YELLOW, LightState.RED)
_TIMES_S = {LightState.GREEN: 10.0, LightState.YELLOW: 3.0, LightState.RED: 2.0}
# For a light without a controller in the map: it is a group of one, so its red phase needs its own length.
_ALONE_RED_S = 10.0


class TrafficSign(Actor):
    """A sign of the map. It can't be moved, as in CARLA."""

    def __init__(self, identity: Identity, signal: Signal, ground_m: float) -> None:
        # Its x axis points to the right as seen by the traffic that it faces (TrafficLightManager.cpp turns all signs
        # so).
        yaw = math.remainder(signal.yaw + 0.5 * math.pi, math.tau)
        self._stands = Pose(signal.x, signal.y, signal.z, 0.0, yaw)
        super().__init__(identity, self._stands)
        self.signal = signal
        self._faces = {lamp: face_of(signal, ground_m, lamp, identity.id) for lamp in LampState}
        self._box = self._trigger_volume()

    @property
    def place(self) -> Pose:
        """Its pose; setting it changes nothing."""
        return self._stands

    @place.setter
    def place(self, place: Pose) -> None:
        pass

    @property
    def face(self) -> SignFace:
        """Its face for cameras, besides its post."""
        return self._faces[LampState.DARK]

    def box(self) -> list[Any]:
        """Return the trigger volume relative to the sign: around all places where its traffic stops."""
        return self._box

    def record(self, into: bytearray, offset: int) -> None:
        """Write this sign's record into the world message."""
        wire.SIGN_RECORD.pack_into(into, offset, *self._head(), self.signal.id.encode()[:32])

    def _head(self) -> tuple[float, ...]:
        place = self.pose
        return self.id, wire.ACTIVE, place.x, place.y, place.z, 0.0, math.degrees(place.yaw), 0.0

    def _trigger_volume(self) -> list[Any]:
        stops = self.signal.stops
        if not stops:
            return wire.EMPTY_BOX
        place = self.pose
        c, s = math.cos(place.yaw), math.sin(place.yaw)
        right = [c * (stop.x - place.x) + s * (stop.y - place.y) for stop in stops]
        back = [c * (stop.y - place.y) - s * (stop.x - place.x) for stop in stops]
        half = STOP_SHARE * max(stop.lane_width_m for stop in stops)
        up = max(stop.z for stop in stops) - place.z
        centre = 0.5 * (min(right) + max(right)), 0.5 * (min(back) + max(back)), up
        extent = 0.5 * (max(right) - min(right)) + half, 0.5 * (max(back) - min(back)) + STOP_LENGTH_M, STOP_HEIGHT_M
        return wire.bounding_box(centre, extent)


class TrafficLight(TrafficSign):
    """A light. All lights of its controller share its times, and its junction freezes them together."""

    def __init__(self, identity: Identity, signal: Signal, ground_m: float, pole_index: int) -> None:
        super().__init__(identity, signal, ground_m)
        self.state = LightState.RED
        self.controller: Controller
        self._pole_index = pole_index

    @property
    def face(self) -> SignFace:
        """Its face for cameras, besides its post."""
        return self._faces[_LAMPS.get(self.state, LampState.DARK)]

    def record(self, into: bytearray, offset: int) -> None:
        """Write this light's record into the world message."""
        controller = self.controller
        wire.LIGHT_RECORD.pack_into(
            into,
            offset,
            *self._head(),
            self.signal.id.encode()[:32],
            *(controller.times_s[state] for state in _CYCLE),
            controller.elapsed_s,
            self._pole_index,
            controller.group.frozen,
            self.state,
        )


class Controller:
    """Lights that change together."""

    def __init__(self, lights: Sequence[TrafficLight], group: Group) -> None:
        self.lights, self.group = tuple(lights), group
        self.times_s = dict(_TIMES_S)
        self.elapsed_s = 0.0
        self._stage = 0
        for light in lights:
            light.controller = self

    def start(self) -> None:
        """Begin a turn with green."""
        self._show(0)

    def stop(self) -> None:
        """Show red."""
        self._show(len(_CYCLE) - 1)

    def advance(self, delta_s: float) -> bool:
        """Advance time, and return whether the turn is over."""
        self.elapsed_s += delta_s
        if self.elapsed_s <= self.times_s[_CYCLE[self._stage]]:
            return False
        if self._stage == len(_CYCLE) - 1:
            self.elapsed_s = 0.0
            return True
        self._show(self._stage + 1)
        return False

    def _show(self, stage: int) -> None:
        self._stage, self.elapsed_s = stage, 0.0
        for light in self.lights:
            light.state = _CYCLE[stage]


class Group:
    """The controllers of a junction, taking turns."""

    def __init__(self, controllers: Sequence[Sequence[TrafficLight]], controlled: bool) -> None:
        self.frozen = False
        self.controllers = [Controller(lights, self) for lights in controllers]
        if not controlled:
            self.controllers[0].times_s[LightState.RED] = _ALONE_RED_S
        self.reset()

    @property
    def lights(self) -> list[TrafficLight]:
        """All lights of the junction."""
        return [light for controller in self.controllers for light in controller.lights]

    def reset(self) -> None:
        """Start with the first controller's turn, all others red."""
        for controller in self.controllers:
            controller.stop()
        self._turn = 0
        self.controllers[0].start()

    def advance(self, delta_s: float) -> Controller | None:
        """Advance time unless frozen; return the controller whose turn it is."""
        if self.frozen:
            return None
        controller = self.controllers[self._turn]
        if controller.advance(delta_s):
            self._turn = (self._turn + 1) % len(self.controllers)
            self.controllers[self._turn].start()
        return controller
