"""The environment's marks in the status block, by which learner and launcher tell a hang from a wait."""

from __future__ import annotations

import threading
from pathlib import Path

from agent.collector.watchdog import WatchdogEnv
from agent.config import validate
from agent.exchange.status import Status
from contract.heartbeat import CollectorState
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
