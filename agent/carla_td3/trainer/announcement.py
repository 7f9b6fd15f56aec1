"""The first event of a learner: whether the run starts or resumes, with which configuration, what changed; or why not.

Owns the events ``started`` and ``resumed``, ``failed`` in their place, and that ``config.yaml`` is replaced after them.
Decides nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import yaml

from carla_run.event_log import EventLog
from carla_run.events import Failed
from carla_run.exits import Exit
from carla_run.heartbeat import read_heartbeat
from carla_run.keys import leaves
from carla_run.paths import RunPaths
from carla_td3.config import AgentConfig, dump
from carla_td3.exits import exit_code, sentence
from carla_td3.run_directory import provenance, read_overrides, save_config
from carla_td3.trainer.pacing import Counters


@contextlib.contextmanager
def refusal_recorded(run: RunPaths, events: EventLog) -> Iterator[None]:
    """Log why a start is refused (exit code 65), so that status and report of the launcher can say it."""
    try:
        yield
    except Exception as error:
        if exit_code(error) is Exit.BAD_CONFIG:
            beat = read_heartbeat(run.heartbeat)
            steps = 0 if beat is None else beat.step
            events.add(Failed(Exit.BAD_CONFIG, type(error).__name__, steps=steps, cause=sentence(error)))
        raise


def announce(events: EventLog, run: RunPaths, config: AgentConfig, counters: Counters) -> None:
    """Log that the run starts or resumes, then save its configuration.

    Raises:
        OSError: the configuration can't be saved.
    """
    events.append(
        "started" if counters.saved_updates < 0 and counters.steps == 0 else "resumed",
        steps=counters.steps,
        updates=counters.updates,
        config_digest=config.digest(),
        overrides=read_overrides(run),
        changed=changed(run, config),
        **provenance(),
    )
    save_config(run, config)


def changed(run: RunPaths, config: AgentConfig) -> dict[str, list[Any]]:
    """Return the dotted keys that differ from the run's last ``config.yaml``, with old and new value."""
    try:
        before = dict(leaves(yaml.safe_load(run.config.read_text(encoding="utf-8"))))
    except (OSError, ValueError, AttributeError, RecursionError, yaml.YAMLError):
        return {}  # the file is missing or a user has damaged it; the options have reported that where it mattered
    now = dict(leaves(dump(config, address=False)))
    return {key: [before.get(key), value] for key, value in now.items() if before.get(key) != value}
