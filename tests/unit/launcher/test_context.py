"""The agent's CUDA context: measured as what it holds beyond its allocator, and put wherever the estimate stood."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carla_launcher.act.agent_figures import context_mib
from carla_launcher.act.effects import State
from carla_launcher.act.runtime import Role
from carla_launcher.decide import plan
from carla_launcher.observe.pools import Figure, Owner, OwnerKind, PoolKind, Provenance, Reading, measured
from carla_launcher.resolve import watermarks
from carla_run.heartbeat import MemoryFigures
from carla_run.paths import RunPaths
from tests.unit.launcher.planned import CONTEXT_MIB, LIMITS, Rule, card, reading, simulator, situation
from tests.unit.launcher.seen import driving, vram, with_beat
from tests.unit.launcher.simulated import World

RULE = Rule()
PHASES = st.sampled_from([{}, {"td3.micro_batch": 32}, {"memory.offload": ["optimizer"]}])


@pytest.mark.parametrize(
    ("beat", "known", "expected"),
    [
        ({"memory": MemoryFigures(device_mib={"reserved": 850.0})}, Provenance.MEASURED, 350.0),
        ({"memory": MemoryFigures(device_mib={"reserved": 850.0}), "phase": "collecting"}, Provenance.MEASURED, 350.0),
        ({"memory": MemoryFigures(device_mib={"reserved": 850.0}), "phase": "starting"}, Provenance.MEASURED, None),
        ({"memory": MemoryFigures(device_mib={"reserved": 850.0})}, Provenance.ESTIMATED, None),
        ({"memory": MemoryFigures(device_mib={"reserved": 1300.0})}, Provenance.MEASURED, None),
        ({"memory": MemoryFigures()}, Provenance.MEASURED, None),
    ],
)
def test_context_is_held_less_allocator(beat: dict[str, Any], known: Provenance, expected: float | None) -> None:
    pool = vram().pools[0]
    owners = (Owner("agent", OwnerKind.AGENT, (200,), Figure(1200.0, known)),)
    seen = replace(with_beat(driving(10), **beat), memory=Reading((replace(pool, owners=owners),)))
    assert context_mib(seen) == expected


def test_measured_context_is_kept_for_the_next_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(RunPaths(tmp_path / "runs" / "earlier"))
    plain, reserved = world.beat, MemoryFigures(device_mib={"reserved": 330.0})
    monkeypatch.setattr(
        world,
        "beat",
        lambda agent: None if (beat := plain(agent)) is None else replace(beat, memory=reserved),
    )
    world.steps_until(State.RUNNING)
    world.steps_for(20)
    world.last(Role.AGENT).end(0)
    world.steps_until(State.STOPPED)
    assert json.loads(world.run.launcher_state.read_text())["agent_context_mib"] == 270.0
    assert watermarks.agent_context(tmp_path / "runs") == measured(270.0)
    sizes_of = watermarks.with_context(RULE, watermarks.agent_context(tmp_path / "runs"))
    found = plan.make_plan(situation(reading(vram=8192), sizes_of), sizes_of).asked
    (line,) = [line for line in found.sum_of("vram:0").lines if line.what == "CUDA context"]
    assert line.figure == measured(270.0)
    assert watermarks.agent_context(tmp_path / "none") is None


@given(st.floats(1, 2000), PHASES, st.sampled_from(["cuda", "cpu"]))
def test_measured_context_replaces_the_estimate(context: float, values: dict[str, Any], device: str) -> None:
    context = round(context, 1)
    asked = {"device": device, **values}
    (before,), (after,) = RULE([asked]), watermarks.with_context(RULE, measured(context))([asked])
    if device == "cpu":
        assert after == before
        return
    assert after.context_mib == context
    assert after.mib[PoolKind.VRAM] - context == pytest.approx(before.mib[PoolKind.VRAM] - CONTEXT_MIB, abs=0.1)
    assert after.by_phase[PoolKind.VRAM]["updating"] - context == pytest.approx(
        before.mib[PoolKind.VRAM] - CONTEXT_MIB, abs=0.1
    )
    assert after.mib[PoolKind.RAM] == before.mib[PoolKind.RAM]


@given(context=st.floats(1, 2000), other=st.floats(1, 2000), room=st.floats(-300, 300))
def test_verdict_does_not_depend_on_the_contexts_size(context: float, other: float, room: float) -> None:
    """Need and room both hold it: a card that is larger by the context's size judges the same."""

    def fits(size: float) -> bool:
        sizes_of = watermarks.with_context(RULE, measured(size))
        beside = RULE.one({"device": "cuda"}).mib[PoolKind.VRAM] - CONTEXT_MIB
        total = 4813 + 85 + LIMITS.memory.reserve_mib[PoolKind.VRAM] + beside + size + round(room) + 0.5
        seen = reading()
        pools = (card(total, Owner("Xorg", OwnerKind.FOREIGN, (99,), measured(85))), *seen.pools[1:])
        return plan.make_plan(situation(replace(seen, pools=pools), sizes_of, simulator("Low")), sizes_of).asked.fits

    assert fits(round(context)) is fits(round(other)) is (round(room) + 0.5 > 0)
