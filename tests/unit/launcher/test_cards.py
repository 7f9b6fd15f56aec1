"""Which GPU a run uses: named, remembered by a name that no renumbering changes, or as Compose's variables say."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pynvml
import pytest
from typer.testing import CliRunner

from carla_launcher import config, simulator
from carla_launcher import plan as plan_command
from carla_launcher.act.compose import project
from carla_launcher.cli import app
from carla_launcher.observe.gpu_lock import SHARED, lock_gpu
from carla_launcher.observe.memory import MemoryReader
from carla_launcher.observe.pools import Cards
from carla_launcher.options import RefusedError, RunOptions, RuntimeKind, SimulatorKind
from carla_launcher.places import SHIPPED
from carla_launcher.resolve import machine
from carla_launcher.resolve.cards import pick
from carla_run.exits import Exit
from carla_run.memory.nvml import DriverError, Nvml
from carla_run.paths import RunPaths
from tests.conftest import REPOSITORY
from tests.crowd import PATIENCE_S
from tests.gpu_stub.stub import Figures, build
from tests.unit.launcher.planned import reading

# A launcher up to where it would start something; it dies there, so the next one goes on.
PREPARE = """
import json, sys, time
from dataclasses import replace
from pathlib import Path
from carla_launcher import config, up
from carla_run.exits import ExitError
from carla_run.paths import RunPaths
from carla_launcher.act.journal import Journal
from carla_launcher.options import RunOptions
from carla_launcher.resolve.prepare import prepare
from carla_launcher.resolve.resuming import run_request
run = RunPaths(Path(sys.argv[1]))
run.logs.mkdir(parents=True, exist_ok=True)
options = RunOptions(**{"runtime": "process", "simulator": "carla-lite", **json.loads(sys.argv[2])})
limits = config.load()
installed = limits.simulator.model_copy(update={"command": "carla -graphicsadapter={gpu}"})
try:
    asked = replace(run_request(run, options), limits=limits.model_copy(update={"simulator": installed}))
    found = prepare(asked)
    with up.cards_held(found.resolved.memory, found.cards, False, lambda _: None) as held:
        locks = len(held)
except ExitError as error:
    sys.exit(f"{int(error.code)}: {error}")
Journal(run, replace(found.state, state="running"), time.time).save()
up.LocalRuntime = lambda spec, _limits: spec
spec = up._runtime(found, config.load(), ())
pools = [pool.name for pool in found.resolved.reading.pools if pool.kind.value == "vram"]
print(json.dumps([spec.gpu_uuids, str(spec.cards), pools, locks]))
"""


FIRST, SECOND, OTHER = (f"GPU-{name}-{os.getpid()}" for name in ("5ee1", "ca7", "e15e"))
"""For this test only: a launcher locks its cards for the whole machine."""


@pytest.fixture
def figures(tmp_path: Path) -> Iterator[Figures]:
    yield Figures(tmp_path / "figures", build(tmp_path), uuid=FIRST)
    for uuid in (FIRST, SECOND, OTHER):
        (SHARED / f"carla-td3-{uuid}.lock").unlink(missing_ok=True)


@pytest.fixture
def second(figures: Figures, tmp_path: Path) -> Figures:
    """A second card in the same machine."""
    figures.second = Figures(tmp_path / "second", figures.libraries, uuid=SECOND, index=1)
    return figures.second


def prepare(figures: Figures, **asked: Any) -> subprocess.CompletedProcess[str]:
    return python(figures, "-c", PREPARE, str(figures.path.parent / "runs" / "night"), json.dumps(asked))


def python(figures: Figures, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words],
        check=False,
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        env=figures.environment,
        timeout=PATIENCE_S,
    )


def test_a_run_keeps_its_card_whatever_its_number(figures: Figures) -> None:
    begun = prepare(figures, device="cuda")
    assert json.loads(begun.stdout) == [[FIRST, FIRST], "0", ["vram:0"], 1], begun.stderr
    figures.index = 1
    figures.write()
    assert json.loads(prepare(figures).stdout) == [[FIRST, FIRST], "1", ["vram:1"], 1]
    figures.uuid = OTHER
    figures.write()
    gone = prepare(figures)
    assert gone.stderr.startswith(
        f"65: The run's GPU {FIRST} isn't in this machine: put it back, name another with --gpu"
    )
    assert len(gone.stderr.splitlines()) == 1
    named = prepare(figures, gpu={"simulator": 1, "agent": 1})
    assert json.loads(named.stdout) == [[OTHER, OTHER], "1", ["vram:1"], 1], "what is named anew wins"
    assert json.loads(prepare(figures, device="cpu").stdout)[0] == ["", ""], "a run that needs no card is given none"


def test_a_run_keeps_both_cards_and_locks_what_it_needs(figures: Figures, second: Figures) -> None:
    begun = prepare(figures, device="cuda", simulator="carla", gpu={"simulator": 0, "agent": 1})
    both = [FIRST, SECOND]
    assert json.loads(begun.stdout) == [both, "0,1", ["vram:0", "vram:1"], 2], begun.stderr
    figures.index, second.index = 1, 0
    figures.write()
    second.write()
    again = prepare(figures, simulator="carla")
    assert json.loads(again.stdout) == [both, "1,0", ["vram:0", "vram:1"], 2], again.stderr
    on_one = prepare(figures, simulator="carla", device="cpu")
    assert json.loads(on_one.stdout)[3] == 1, "an agent on the CPU needs none"


def test_of_two_cards_both_are_held_or_none(figures: Figures, second: Figures) -> None:
    other = lock_gpu(second.uuid, "another")
    try:
        refused = prepare(figures, device="cuda", simulator="carla", gpu={"simulator": 0, "agent": 1})
    finally:
        other.release()
    assert f"GPU {second.uuid} is held by another launcher" in refused.stderr.splitlines()[-1]
    assert "run another" in refused.stderr
    lock_gpu(figures.uuid, "free again").release()


@pytest.mark.parametrize(
    ("simulators_mib", "agents_mib", "short", "quality", "device"),
    [(8192, 200, "vram:1", "Epic", "cpu"), (5200, 6144, "vram:0", "Low", "cuda")],
)
def test_the_program_on_the_short_card_gives_way(
    figures: Figures,
    second: Figures,
    tmp_path: Path,
    simulators_mib: float,
    agents_mib: float,
    short: str,
    quality: str,
    device: str,
) -> None:
    figures.total_mib, second.total_mib = simulators_mib, agents_mib
    figures.write()
    second.write()
    limits = tmp_path / "launcher.yaml"
    limits.write_text(SHIPPED.read_text().replace("command: null", 'command: "carla -graphicsadapter={gpu}"'))
    given = ("--launcher-config", str(limits), "--runs-dir", str(tmp_path / "runs"), "--quality", "Epic")
    words = ("-m", "carla_launcher", "plan", "--json", "--gpu", "0,1", "--device", "cuda")
    ended = python(figures, *words, *given)
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout)
    assert found["cards"] == {"simulator": 0, "agent": 1}
    assert f"MiB short in {short}" in found["reason"]
    assert (found["start"]["quality"], found["start"]["device"]) == (quality, device)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"simulator": 0, "agent": 5}, "65: --gpu 0,5: GPU 5 isn't in this machine, expected 0 or 1: "),
        ({"simulator": 2, "agent": 2}, "65: --gpu 2: GPU 2 isn't in this machine, expected 0 or 1: "),
    ],
)
def test_a_missing_index_is_one_sentence_with_those_there(
    figures: Figures, second: Figures, asked: dict[str, int], said: str
) -> None:
    refused = prepare(figures, gpu=asked)
    assert refused.stderr.startswith(said), refused.stderr
    assert len(refused.stderr.splitlines()) == 1


@pytest.mark.parametrize(("cards", "refused"), [(1, True), (2, False), (0, False), (None, False)])
def test_an_index_is_refused_only_where_cards_are_counted(
    monkeypatch: pytest.MonkeyPatch, cards: int | None, refused: bool
) -> None:
    monkeypatch.setattr(Nvml, "count", lambda: cards)
    asked = RunOptions(gpu=Cards(1, 1))
    if refused:
        with pytest.raises(RefusedError, match="GPU 1 isn't in this machine, expected 0: "):
            pick(asked)
        with pytest.raises(RefusedError, match=r"expected 0: put it back, or name another with --gpu\.$"):
            pick(asked.model_copy(update={"command": ("train",)}))
    else:
        assert pick(asked) == Cards(1, 1)


@pytest.mark.parametrize(("code", "cards"), [(999, None), (18, None), (9, 0), (12, 0)])
def test_the_number_of_cards_is_unknown_while_the_driver_fails(
    monkeypatch: pytest.MonkeyPatch, code: int, cards: int | None
) -> None:
    def fails() -> None:
        raise pynvml.NVMLError(code)

    monkeypatch.setattr(pynvml, "nvmlInit", fails)
    assert Nvml.count() == cards
    said: list[str] = []
    assert simulator._cards(3, said.append) == Cards(0)
    assert len(said) == (cards is None)


@pytest.mark.parametrize("text", ["0,x", "x", "0,1,2", "", "0,", "-1"])
def test_what_names_no_cards_is_a_usage_error(text: str) -> None:
    ended = CliRunner().invoke(app, ["plan", "--gpu", text], env={"COLUMNS": "300", "TERM": "dumb"})
    assert ended.exit_code == 2
    assert f"{text!r}: expected the index of one GPU, as 0, or the simulator's and the agent's, as 0,1." in ended.output


@pytest.mark.parametrize(("text", "cards"), [("2", Cards(2, 2)), ("1,0", Cards(1, 0)), ("1,1", Cards(1, 1))])
def test_one_index_is_both_programs_card(monkeypatch: pytest.MonkeyPatch, text: str, cards: Cards) -> None:
    asked: list[RunOptions] = []

    def run(_run: RunPaths, options: RunOptions, *_: object) -> Exit:
        asked.append(options)
        return Exit.FINISHED

    monkeypatch.setattr(plan_command, "run", run)
    assert CliRunner().invoke(app, ["plan", "--gpu", text]).exit_code == 0
    assert asked[0].gpu == cards


@pytest.fixture
def two_cards(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine of two cards, whose Compose variables name the second for the simulator and the first for the agent."""
    known = {"0": 0, "GPU-a": 0, "1": 1, "GPU-b": 1}
    monkeypatch.setattr(Nvml, "index_of", staticmethod(known.get))
    monkeypatch.setattr(Nvml, "count", staticmethod(lambda: 2))
    monkeypatch.setenv("CARLA_GPU", "1")
    monkeypatch.setenv("AGENT_GPU", "GPU-a")


@pytest.mark.parametrize(
    ("asked", "remembered", "cards"),
    [
        ({}, ("", ""), Cards(1, 0)),
        ({"gpu": Cards(0, 1)}, ("", ""), Cards(0, 1)),
        ({}, ("GPU-a", "GPU-b"), Cards(0, 1)),
        ({"gpu": Cards(1, 1)}, ("GPU-a", "GPU-a"), Cards(0, 0)),
        ({}, ("GPU-b", ""), Cards(1, 0)),
        ({"runtime": RuntimeKind.PROCESS}, ("", ""), Cards(0, 0)),
        ({"device": "cpu", "simulator": SimulatorKind.LITE}, ("GPU-gone", "GPU-gone"), Cards(1, 0)),
    ],
)
def test_remembered_cards_win_over_named_and_composes(
    two_cards: None, asked: dict[str, Any], remembered: tuple[str, str], cards: Cards
) -> None:
    assert pick(RunOptions(**asked), remembered) == cards


def test_a_driver_that_fails_gives_no_other_card(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(name: str) -> int:
        raise DriverError(f"GPU {name} can't be found (NVML: Unknown Error); nvidia-smi may show more.")

    monkeypatch.setattr(Nvml, "index_of", staticmethod(fails))
    with pytest.raises(DriverError, match="GPU GPU-b can't be found"):
        pick(RunOptions(), ("GPU-b", "GPU-b"))
    monkeypatch.setenv("CARLA_GPU", "GPU-b")
    assert pick(RunOptions(device="cpu", simulator=SimulatorKind.LITE)) == Cards(0, 0)


def test_one_card_by_two_names_is_one_pool(two_cards: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENT_GPU", "GPU-b")
    assert pick(RunOptions()).indices == (1,)


@pytest.mark.parametrize(
    ("variable", "name", "said"),
    [
        ("CARLA_GPU", "GPU-gone", "CARLA_GPU: GPU-gone isn't in this machine: "),
        ("AGENT_GPU", "GPU-gone", "AGENT_GPU: GPU-gone isn't in this machine: "),
        ("AGENT_GPU", "3", "AGENT_GPU: 3 isn't in this machine"),
    ],
)
def test_a_variable_that_names_no_card_is_said(
    two_cards: None, monkeypatch: pytest.MonkeyPatch, variable: str, name: str, said: str
) -> None:
    monkeypatch.setenv(variable, name)
    with pytest.raises(RefusedError, match=said) as refused:
        pick(RunOptions())
    assert refused.value.code == 65


def test_a_file_beside_the_compose_files_names_them_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("CARLA_GPU", "AGENT_GPU"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Nvml, "count", staticmethod(lambda: 2))
    (tmp_path / ".env").write_text("CARLA_GPU=0\nAGENT_GPU=1\n")
    assert pick(RunOptions(stack=tmp_path)) == Cards(0, 1)


def test_without_variables_it_is_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(project, "setting", lambda _name, _stack: "")
    assert pick(RunOptions()) == Cards(0, 0)


@pytest.mark.parametrize(("command", "refused"), [("carla -graphicsadapter={gpu}", False), ("carla", True)])
def test_an_installed_carla_must_draw_on_the_planned_card(
    two_cards: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: str, refused: bool
) -> None:
    """Vulkan goes by none of CUDA's variables: without a word CARLA takes the first card."""
    limits = config.load()
    installed = limits.model_copy(update={"simulator": limits.simulator.model_copy(update={"command": command})})
    monkeypatch.setattr(MemoryReader, "read", lambda _self: reading())
    run, asked = RunPaths(tmp_path / "run"), RunOptions(config=tmp_path / "a.yaml", gpu=Cards(1, 0))
    if refused:
        with pytest.raises(RefusedError, match=r"expected GPU 1: add -graphicsadapter=\{gpu\} to it"):
            machine.resolve(run, asked, installed)
    else:
        assert machine.resolve(run, asked, installed).spec.cards == Cards(1, 0)
