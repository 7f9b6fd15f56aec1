"""``CarlaTD3/Driving-v0``: the driving environment as ``gymnasium.make`` returns it.

Reads where the simulator is as the agent's commands do, gives up soon if there is none, and renders the visual test's
picture. The drive itself is ``carla_td3.env.driving``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from carla_td3.config import LAST_PORT, ConfigError, EnvironmentConfig, SimulatorConfig, merged
from carla_td3.env.conditions import Conditions
from carla_td3.env.driving import Action, DrivingEnv
from carla_td3.env.observation import Observation
from carla_td3.env.route_line import Route
from carla_td3.env.sensors import FrameCamera
from carla_td3.evaluation import overlay
from carla_td3.evaluation.overlay import OverlayData, TownMap
from carla_td3.layered_yaml import read

PATIENCE_S = 5.0
"""Seconds to wait for a simulator if ``simulator.patience_s`` isn't given: shorter than for a training run."""

Task = EnvironmentConfig | Mapping[str, Any] | str | Path
Address = SimulatorConfig | Mapping[str, Any]


class RegisteredEnv(DrivingEnv):
    """The environment that ``gymnasium.make("CarlaTD3/Driving-v0", …)`` returns.

    Args:
        config: the task: the section ``environment`` of a configuration, or the path of such a file, whose section
            ``simulator`` is then read as well. None: a town without traffic.
        simulator: the section ``simulator``, as ``{"port": 2003, "patience_s": 120}``; it wins over ``CARLA_HOST``,
            ``CARLA_PORT`` and ``CARLA_PORTS``, which win over the file. A ``SimulatorConfig`` is taken as it is.
        seed, on_lost: see ``DrivingEnv``.
        ports: ports of several simulators. The environment takes the first one that no other environment uses, so that
            all members of a vector environment can have the same arguments.
        render_mode: ``rgb_array``, or None. A camera of 480×480 pixels is then on the car, and waited for at each step.

    Raises:
        ConfigError: one sentence about what is wrong with the arguments.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012 (gymnasium's own declaration)

    def __init__(
        self,
        config: Task | None = None,
        simulator: Address | None = None,
        seed: int = 0,
        on_lost: Callable[[], None] | None = None,
        *,
        ports: Sequence[int] | None = None,
        render_mode: str | None = None,
    ) -> None:
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise ConfigError(f"render_mode is {render_mode!r}: expected rgb_array, or None for no pictures.")
        listed = () if ports is None else ports
        if isinstance(listed, str) or not isinstance(listed, Collection) or not all(map(_is_port, listed)):
            raise ConfigError(f"ports is {ports!r}: expected a list of ports, such as [2000, 2003].")
        task, address = resolved(config, simulator)
        super().__init__(task, address, seed, on_lost, on_wait=gymnasium.logger.warn, ports=tuple(listed))
        self.metadata = {**self.metadata, "render_fps": round(1.0 / address.fixed_delta_s)}
        self.render_mode = render_mode
        self._viewing: FrameCamera | None = None
        self._town: TownMap | None = None
        self._last: tuple[Action, float, dict[str, Any]] = np.zeros(2, np.float32), 0.0, {}

    def reset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin a drive, see ``DrivingEnv.reset``."""
        observation, info = super().reset(seed=seed, options=options)
        self._last = np.zeros(2, np.float32), 0.0, info
        if self.render_mode is not None:
            self._town = TownMap(self.planner.lanes)
        return observation, info

    def step(self, action: Action) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Drive one step, see ``DrivingEnv.step``."""
        observation, reward, terminated, truncated, info = super().step(action)
        self._last = action, reward, info
        return observation, reward, terminated, truncated, info

    def render(self) -> NDArray[np.uint8] | None:
        """Return the visual test's picture of the newest frame, (480, 880, 3) uint8, red first.

        Raises:
            ResetNeeded: no drive has begun, or the environment is closed.
        """
        if self.render_mode is None:
            gymnasium.logger.warn('render() shows nothing: give gymnasium.make render_mode="rgb_array".')
            return None
        if self._viewing is None:
            raise gymnasium.error.ResetNeeded("No drive has begun, or the environment is closed: call reset() first.")
        seen = OverlayData.of(self, *self._last, step=self.drive.episode.steps)
        assert self._town is not None
        picture = overlay.composed(self._viewing.last[:, :, :3], self.config.camera, seen, self._town)
        return np.ascontiguousarray(picture[:, :, ::-1])

    def close(self) -> None:
        """End it, see ``DrivingEnv.close``."""
        super().close()
        self._viewing = None

    def _populate(self, route: Route, wanted: Conditions) -> None:
        before = self.car
        super()._populate(route, wanted)
        if self.render_mode is not None and self.car is not None and self.car is not before:
            self._viewing = self.car.add_view(overlay.FRONT)


def _is_port(value: object) -> bool:
    return isinstance(value, int) and 1 <= value <= LAST_PORT


def resolved(config: Task | None, simulator: Address | None) -> tuple[EnvironmentConfig, SimulatorConfig]:
    """Return the configuration of task and simulator, with environment variables applied.

    Raises:
        ConfigError: a file can't be read, or a key or value is wrong.
    """
    if not isinstance(config, EnvironmentConfig | Mapping | str | Path | None):
        raise ConfigError(f"config is {config!r:.60}: expected a file's path, a mapping or an EnvironmentConfig.")
    if not isinstance(simulator, SimulatorConfig | Mapping | None):
        raise ConfigError(f"simulator is {simulator!r:.60}: expected a mapping or a SimulatorConfig.")
    if isinstance(config, EnvironmentConfig) and isinstance(simulator, SimulatorConfig):
        return config, simulator
    path = Path(config) if isinstance(config, str | Path) else None
    values = {} if path is None else read(path)
    values.pop("td3", None)  # what its networks demand of the task isn't demanded of others
    if isinstance(config, Mapping):
        values["environment"] = dict(config)
    asked = dict(simulator) if isinstance(simulator, Mapping) else {}
    if "patience_s" not in (values.get("simulator") or {}):
        asked = {"patience_s": PATIENCE_S, **asked}
    overrides = {f"simulator.{key}": value for key, value in asked.items()}
    found = merged(values, str(path or "gymnasium.make"), overrides)
    task = config if isinstance(config, EnvironmentConfig) else found.environment
    return task, simulator if isinstance(simulator, SimulatorConfig) else found.simulator
