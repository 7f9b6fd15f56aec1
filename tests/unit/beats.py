"""A heartbeat as a well run writes it."""

from __future__ import annotations

from carla_run.heartbeat import CollectorFigures, CollectorState, Heartbeat, Phase

BEAT = Heartbeat(
    time=0.0,
    pid=7,
    phase=Phase.UPDATING,
    step=5000,
    total_steps=100_000,
    updates=4000,
    episode=20,
    device="cuda",
    batch=64,
    micro_batch=64,
    ticks=9000,
    tick_outstanding_s=0.0,
    collector_restarts=0,
    collector=CollectorFigures(8, CollectorState.STEPPING),
)
