"""The environment's marks in the status block, by which learner and launcher tell a hang from a wait."""

from __future__ import annotations

import threading
from pathlib import Path

from carla_run.heartbeat import CollectorState
from carla_td3.collector.watchdog import WatchdogEnv
from carla_td3.config import validate
from carla_td3.env.conditions import Conditions
from carla_td3.env.route import Route
from carla_td3.exchange.status import Status
from tests.conftest import Server
from tests.crowd import until
from tests.faults import Faulty
from tests.wire.trainee import SMALL

TIMEOUT_S = 1.0


def test_a_simulator_that_hangs_as_an_episode_begins_is_waited_for_as_any_other(faulty: Faulty, tmp_path: Path) -> None:
    simulator = {"port": faulty.server.port, "timeout_s": TIMEOUT_S}
    settings = validate({**SMALL, "simulator": simulator}, source="test")
    status = Status(tmp_path / "status.bin")
    env = WatchdogEnv(settings, status)
    env.reset(seed=5)
    status.state = CollectorState.STEPPING
    faulty.tell("fault hang")
    beginning = threading.Thread(target=env.reset, daemon=True)
    beginning.start()
    until(lambda: status.state is CollectorState.CONNECTING)
    assert status.read().limit_s > settings.simulator.patience_s
    faulty.tell("clear")
    beginning.join()
    assert status.state is CollectorState.STEPPING
    env.close()


class Looked(WatchdogEnv):
    """Notes its marks in the middle of a reset."""

    def _populate(self, route: Route, wanted: Conditions) -> None:
        self.seen = [self._status.read()]
        super()._populate(route, wanted)
        self.seen.append(self._status.read())


def test_a_reset_that_has_reached_its_simulator_has_the_limit_of_one_call_from_tick_to_tick(
    module_server: Server, tmp_path: Path
) -> None:
    simulator = {"port": module_server.port, "timeout_s": 20.0, "patience_s": 120.0}
    env = Looked(validate({**SMALL, "simulator": simulator}, source="test"), Status(tmp_path / "status.bin"))
    env.reset(seed=5)
    reached, populated = env.seen
    assert (reached.in_call, reached.limit_s) == (True, 120.0 + 20.0 + 5.0)
    assert populated.ticks > reached.ticks
    assert (populated.in_call, populated.limit_s) == (True, 20.0 + 5.0), "of one tick: each is a sign of life"
    env.reset(seed=6)
    assert env.seen[0].limit_s == 20.0 + 5.0, "a simulator that is there answers sooner"
    env.close()
