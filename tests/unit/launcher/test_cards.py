"""Which GPU a run uses: named, remembered by a name that no renumbering changes, or as Compose's variables say."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from contract.paths import RunPaths
from launcher import config
from launcher.act.compose import project
from launcher.observe.memory import MemoryReader
from launcher.observe.nvml import Nvml
from launcher.options import RefusedError, RunOptions, RuntimeKind, SimulatorKind
from launcher.resolve import machine
from launcher.resolve.cards import pick
from tests.conftest import REPOSITORY
from tests.gpu_stub.stub import Figures, build
from tests.unit.launcher.planned import reading

# A launcher up to where it would start something; it dies there, so the next one goes on.
PREPARE = """
import json, sys, time
from dataclasses import replace
from pathlib import Path
from launcher import config, up
from contract.exits import ExitError
from contract.paths import RunPaths
from launcher.act.journal import Journal
from launcher.options import RunOptions, RuntimeKind, SimulatorKind
from launcher.resolve.prepare import prepare
from launcher.resolve.resuming import requested
run = RunPaths(Path(sys.argv[1]))
run.logs.mkdir(parents=True, exist_ok=True)
options = RunOptions(runtime=RuntimeKind.PROCESS, simulator=SimulatorKind.LITE, **json.loads(sys.argv[2]))
try:
    found = prepare(requested(run, options), config.load())
except ExitError as error:
    sys.exit(f"{int(error.code)}: {error}")
Journal(run, replace(found.state, state="running"), time.time).save()
up.LocalRuntime = lambda spec, _limits: spec
spec = up._runtime(found, config.load(), ())
print(json.dumps([spec.gpu_uuid, spec.gpu_index, found.resolved.reading.pools[0].name]))
"""


@pytest.fixture
def figures(tmp_path: Path) -> Figures:
    return Figures(tmp_path / "figures", build(tmp_path), uuid="GPU-5ee1")


def prepare(figures: Figures, **asked: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", PREPARE, str(figures.path.parent / "runs" / "night"), json.dumps(asked)]
    return subprocess.run(
        command, check=False, capture_output=True, text=True, cwd=REPOSITORY, env=figures.environment, timeout=120
    )


def test_a_run_goes_on_with_its_card_where_the_machine_counts_anew_and_says_when_it_has_gone(figures: Figures) -> None:
    begun = prepare(figures, device="cuda")
    assert json.loads(begun.stdout) == ["GPU-5ee1", 0, "vram:0"], begun.stderr
    figures.index = 1
    figures.write()
    assert json.loads(prepare(figures).stdout) == ["GPU-5ee1", 1, "vram:1"]
    figures.uuid = "GPU-other"
    figures.write()
    gone = prepare(figures)
    assert gone.stderr.startswith(
        "65: The run's GPU GPU-5ee1 isn't in this machine: put it back, name another with --gpu"
    )
    assert len(gone.stderr.splitlines()) == 1
    assert json.loads(prepare(figures, gpu=1).stdout) == ["GPU-other", 1, "vram:1"], "what is named anew wins"
    assert json.loads(prepare(figures, device="cpu").stdout)[0] == "", "a run that needs no card is given none"


@pytest.fixture
def two_cards(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine of two cards, whose Compose variables name the second for both."""
    known = {"0": 0, "GPU-a": 0, "1": 1, "GPU-b": 1}
    monkeypatch.setattr(Nvml, "index_of", staticmethod(known.get))
    monkeypatch.setenv("CARLA_GPU", "1")
    monkeypatch.setenv("AGENT_GPU", "GPU-b")


@pytest.mark.parametrize(
    ("asked", "remembered", "index"),
    [
        ({}, "", 1),
        ({"gpu": 0}, "GPU-b", 0),
        ({}, "GPU-a", 0),
        ({"runtime": RuntimeKind.PROCESS}, "", 0),
        ({"device": "cpu", "simulator": SimulatorKind.LITE}, "GPU-gone", 1),
    ],
)
def test_what_is_named_wins_over_what_is_remembered_and_that_over_composes_variables(
    two_cards: None, asked: dict[str, Any], remembered: str, index: int
) -> None:
    assert pick(RunOptions(**asked), remembered) == (index, "")


def test_two_cards_are_told_as_unplanned_and_one_by_two_names_is_not(
    two_cards: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENT_GPU", "0")
    index, remark = pick(RunOptions())
    assert index == 1
    assert remark.startswith("CARLA_GPU is 1 and AGENT_GPU is 0: two cards are unplanned")
    assert pick(RunOptions(gpu=1)) == (1, "")


def test_a_variable_that_names_no_card_is_said(two_cards: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CARLA_GPU", "GPU-gone")
    with pytest.raises(RefusedError, match="CARLA_GPU: GPU-gone isn't in this machine") as refused:
        pick(RunOptions())
    assert refused.value.code == 65


def test_without_variables_it_is_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(project, "setting", lambda _name, _stack: "")
    assert pick(RunOptions()) == (0, "")


@pytest.mark.parametrize(("command", "refused"), [("carla -graphicsadapter={gpu}", False), ("carla", True)])
def test_an_installed_carla_that_would_draw_on_another_card_is_refused(
    two_cards: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: str, refused: bool
) -> None:
    """Vulkan goes by none of CUDA's variables: without a word CARLA takes the first card."""
    limits = config.load()
    installed = limits.model_copy(update={"simulator": limits.simulator.model_copy(update={"command": command})})
    monkeypatch.setattr(MemoryReader, "read", lambda _self: reading())
    run, asked = RunPaths(tmp_path / "run"), RunOptions(config=tmp_path / "a.yaml", gpu=1)
    if refused:
        with pytest.raises(RefusedError, match=r"expected GPU 1: add -graphicsadapter=\{gpu\} to it"):
            machine.resolve(run, asked, installed)
    else:
        assert machine.resolve(run, asked, installed).gpu_index == 1
