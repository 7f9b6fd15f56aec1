"""A run's replay, fitted to a configuration that asks for another one than the run has: called before it goes on.

Owns the event and the refusal; the files are ``td3.reshaping``'s.
"""

from __future__ import annotations

from dataclasses import asdict

from agent.config import AgentConfig
from agent.exits import AgentError
from agent.reporting.telemetry import EventLog
from agent.td3.layout import bytes_for
from agent.td3.reshaping import reshape
from agent.td3.ring import NoRoomError, free_bytes
from contract.events import CannotFit, MemoryPool
from contract.exits import Exit
from contract.paths import RunPaths

_MIB = 2**20


def refit(config: AgentConfig, run: RunPaths) -> None:
    """Make the replay over if it has another capacity or frame size, and tell: event ``replay_reshaped``.

    Raises:
        AgentError: the disk can't hold both for a while (exit 71, event ``cannot_fit``).
        ReplayError: the replay can't be used.
    """
    events, side = EventLog(run.agent_events), config.environment.camera.width
    reserve_mib = config.memory.reserve_mib
    try:
        done = reshape(run.replay, config.replay.capacity, side, int(reserve_mib * _MIB))
    except NoRoomError as error:
        needed, free = bytes_for(config.replay.capacity, side), free_bytes(run.replay)
        events.add(
            CannotFit(
                cause=str(error),
                pool=MemoryPool.DISK,
                folder=str(run.path),
                needed_mib=round(needed / _MIB, 1),
                free_mib=round(free / _MIB, 1),
                reserve_mib=reserve_mib,
                fitting_replay=max(0, free - int(reserve_mib * _MIB)) // bytes_for(1, side) or None,
            )
        )
        raise AgentError(str(error), Exit.OUT_OF_MEMORY, MemoryPool.DISK) from None
    if done is not None:
        events.append("replay_reshaped", "the configuration asks for another replay", **asdict(done))
