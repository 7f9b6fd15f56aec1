"""`plan` as a person meets it, with the real agent's figures: scenarios 16 and 18, exit codes, and nothing changed."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from typer.testing import CliRunner, Result

from carla_launcher import plan as command
from carla_launcher.act.run_spec import RunSpec
from carla_launcher.cli import app
from carla_launcher.observe.pools import Gpu, Pool, PoolKind, Reading, measured
from carla_launcher.options import RefusedError, RunOptions
from carla_launcher.resolve.footprint import Footprint, FootprintError
from carla_launcher.resolve.planning import make_plan
from carla_launcher.simulators import Carla, CarlaLite, Simulator
from carla_run.exits import Exit, ExitError
from carla_run.heartbeat import MemoryFigures, Phase
from carla_run.paths import RunPaths
from carla_td3 import config
from tests.unit.beats import BEAT
from tests.unit.launcher.planned import LIMITS, reading

REPOSITORY = Path(__file__).resolve().parents[3]
LOWMEM = "lowmem"
FULL = "full"


@cache
def agent(config: str) -> Footprint:
    """Return the real agent's footprint; what one test asked, the next needn't ask again."""
    return Footprint(config)


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    return tmp_path / "runs"


def run_of(runs: Path, simulator: Simulator) -> RunSpec:
    return RunSpec(RunPaths(runs / "new"), simulator, 2000)


@pytest.fixture
def reported(runs: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    """Return a function that plans and gives back exit code and object."""

    def tell(seen: Reading, config: str = LOWMEM, **asked: Any) -> tuple[Exit, dict[str, Any]]:
        kind = CarlaLite if seen.gpu is Gpu.NONE else Carla
        simulator = kind(asked.pop("map", None), finest=asked.pop("quality", None))
        planned = make_plan(run_of(runs, simulator), RunOptions(**asked), LIMITS, seen, agent(config))
        code = command.show(planned, as_json=True)
        printed = json.loads(capsys.readouterr().out)
        assert isinstance(printed, dict)
        return code, printed

    return tell


def planned_for(tmp_path: Path, *words: str, file: str = "{}") -> Result:
    """Return what ``plan --json`` gives for a command beside no simulator."""
    (tmp_path / "train.yaml").write_text(file)
    options = ("--simulator", "none", "--program", str(tmp_path / "train.yaml"), "--runs-dir", str(tmp_path / "runs"))
    return CliRunner().invoke(app, ["plan", "--json", *options, "--", *words])


def test_the_plan_of_a_command_has_the_keys_of_the_agents(reported: Any, tmp_path: Path) -> None:
    _, agents = reported(reading())
    given = planned_for(tmp_path, "sh", "-c", "true", file="memory: {ram: 1}")
    plan = json.loads(given.stdout)
    assert given.exit_code == Exit.FINISHED
    assert plan.keys() == agents.keys()
    assert plan["asked"].keys() == agents["asked"].keys()
    assert {"what": "agent at its peak", "mib": 1, "known": "estimated"} in plan["asked"]["items_mib"]["ram"]


@pytest.mark.parametrize(
    ("words", "file", "code", "said"),
    [
        (("sh",), "memory: {ram: 1e9}", Exit.OUT_OF_MEMORY, '"fits": false'),
        (("sh",), "memory: {ram: -1}", Exit.BAD_CONFIG, ""),
        (("no-such-program",), "{}", Exit.BAD_CONFIG, ""),
        (("sh", "{port}"), "{}", Exit.BAD_CONFIG, ""),
    ],
)
def test_a_plan_of_a_command_ends_as_that_of_the_agent(
    tmp_path: Path, words: tuple[str, ...], file: str, code: Exit, said: str
) -> None:
    given = planned_for(tmp_path, *words, file=file)
    assert given.exit_code == code
    assert said in given.stdout
    assert bool(given.stdout) == bool(said)
    if said:
        json.loads(given.stdout)


def tree(*roots: Path) -> dict[str, tuple[int, int]]:
    """Return what lies there; Python's own compiled files aside."""
    paths = (path for root in roots for path in root.rglob("*") if "__pycache__" not in path.parts)
    return {str(path): (path.stat().st_mtime_ns, path.stat().st_size) for path in paths if path.is_file()}


def test_scenario_18_epic_beside_a_gpu_agent_is_refused(reported: Any, tmp_path: Path) -> None:
    """5 745 MiB, CARLA at Epic 5 530 by configuration, 85 held by Xorg."""
    (tmp_path / "runs" / "earlier").mkdir(parents=True)
    (tmp_path / "runs" / "earlier" / "launcher.json").write_text("{}")
    watched = (tmp_path, REPOSITORY / "config", REPOSITORY / "launcher", REPOSITORY / "agent")
    before, children = tree(*watched), psutil.Process().children(recursive=True)

    code, plan = reported(reading(vram=5745, xorg=85), quality="Epic")

    assert code == Exit.FINISHED
    assert tree(*watched) == before
    assert psutil.Process().children(recursive=True) == children
    found = {each["name"]: each for each in plan["configurations"]}
    refused = found["Epic, agent on the GPU"]
    needed = 5530 + 85 + 100 + plan["agent_by_phase_mib"]["vram"]["updating"]
    assert refused["fits"] is False
    assert refused["pools"]["vram:0"]["needed_mib"] == pytest.approx(needed, abs=0.2)
    assert refused["pools"]["vram:0"]["left_mib"] == pytest.approx(5745 - needed, abs=0.2)
    assert found["Epic, agent on the CPU"]["fits"] is True
    assert found["Epic, agent on the CPU"]["pools"]["vram:0"]["left_mib"] == 30
    assert found["Low, agent on the GPU"]["fits"] is True
    assert found["Low, agent on the GPU"]["pools"]["vram:0"]["left_mib"] == pytest.approx(
        refused["pools"]["vram:0"]["left_mib"] + 5530 - 4813, abs=0.2
    )
    assert plan["start"]["name"] == "Epic, agent on the CPU"
    assert plan["start"]["rungs"] == ["agent_cpu"]
    items = {each["what"]: (each["mib"], each["known"]) for each in plan["asked"]["items_mib"]["vram:0"]}
    assert items["CARLA at Epic"] == (5530, "estimated")
    assert items["Xorg"] == (85, "measured")
    assert items["CUDA context"] == (400, "estimated")
    assert items["reserve"][0] == 100


def test_scenario_18_in_words(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, asked = run_of(runs, Carla(finest="Epic")), RunOptions(policy=("carla_low", "agent_cpu"))
    assert command.show(make_plan(run, asked, LIMITS, reading(), agent(LOWMEM))) == Exit.FINISHED
    said = capsys.readouterr().out
    for words in ("CARLA at Epic", "Xorg", "CUDA context", "reserve", "5745", "at its peak", "updating"):
        assert words in said
    assert "A run would start with Low, agent on the GPU: Epic, agent on the GPU is " in said
    assert "MiB short in vram:0" in said


def test_scenario_16_without_nvml_it_is_carla_lite_and_cpu(reported: Any) -> None:
    code, plan = reported(reading(vram=None))
    assert code == Exit.FINISHED
    assert plan["gpu"] == "none"
    assert plan["simulator"] == "carla-lite"
    assert plan["start"]["name"] == "carla-lite, agent on the CPU"
    assert set(plan["start"]["pools"]) == {"ram", "disk"}
    items = {each["what"] for each in plan["asked"]["items_mib"]["ram"]}
    assert {"carla-lite", "agent at its peak", "reserve"} <= items


def test_without_nvml_a_small_ram_pool_still_gets_its_rung(reported: Any) -> None:
    """The update's activations are what RAM is short of, so micro-batches are what helps."""
    needed = reported(reading(vram=None), FULL)[1]["start"]["pools"]["ram"]["needed_mib"]
    _, plan = reported(reading(vram=None, ram=needed - 10), FULL)
    assert plan["start"]["rungs"] == ["micro_batches"]
    assert plan["start"]["pools"]["ram"]["left_mib"] >= 0


def test_scenario_16_a_lost_gpu_is_a_sentence(runs: Path) -> None:
    lost = Reading((Pool("ram", PoolKind.RAM, measured(8000), measured(6000)),), Gpu.LOST, "GPU is lost")
    with pytest.raises(RefusedError, match=r"^The driver has lost the GPU \(GPU is lost\): ") as refused:
        make_plan(run_of(runs, Carla()), RunOptions(), LIMITS, lost, agent(LOWMEM))
    assert refused.value.code == Exit.OUT_OF_MEMORY


def test_a_full_cards_holder_is_named_and_what_waits(reported: Any) -> None:
    code, plan = reported(reading(vram=5745, xorg=4000))
    assert code == Exit.OUT_OF_MEMORY
    assert (
        "; in vram:0 Xorg (process 99) holds 4000 MiB: `bash scripts/wait_and_run.sh --gpu 0 --min-free "
        in plan["reason"]
    )
    wanted_mib = float(plan["reason"].split("--min-free ")[1].split()[0])
    assert reported(reading(vram=5745, xorg=5744 - wanted_mib))[0] == Exit.FINISHED, "then it fits"
    assert "wait_and_run" not in reported(reading(vram=4000))[1]["reason"], "waiting for Xorg wouldn't help"


@pytest.mark.parametrize(
    ("config", "simulator", "asked", "said"),
    [
        ("missing.yaml", CarlaLite(), {}, "missing.yaml: can't be read"),
        ("wrong.yaml", CarlaLite(), {}, "`td3.batch_size` is 0"),  # the agent's own sentence
        (LOWMEM, CarlaLite(), {"policy": ("nope",)}, "--policy names nope"),
        (LOWMEM, CarlaLite(), {"device": "cuda"}, "device is cuda, but the driver shows no GPU"),
        (LOWMEM, Carla(), {}, "CARLA needs a GPU"),
    ],
)
def test_what_cannot_be_is_one_sentence_and_exit_65(
    runs: Path, tmp_path: Path, config: str, simulator: Simulator, asked: dict[str, Any], said: str
) -> None:
    (tmp_path / "wrong.yaml").write_text("td3: {batch_size: 0}\n")
    config = str(tmp_path / config) if config == "wrong.yaml" else config
    with pytest.raises(ExitError) as refused:
        make_plan(run_of(runs, simulator), RunOptions(**asked), LIMITS, reading(vram=None), Footprint(config))
    assert refused.value.code == 65
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def script(folder: Path, body: str) -> Path:
    path = folder / "program"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def test_an_agent_elsewhere_is_asked_through_its_own_command(tmp_path: Path) -> None:
    """As ``docker compose run`` is: it prints lines of its own before the answer."""
    wrapper = script(tmp_path, f'echo "Container carla-1  Running"\nexec {sys.executable} -m carla_td3 "$@"')
    assert Footprint(LOWMEM, (str(wrapper),)).config()["td3.batch_size"] == 64


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("exit 3", "ended with 3 and said nothing"),
        ("echo no such service >&2; exit 1", "no such service"),
        ("echo '{}'", "different releases"),
        ('echo \'{"config": {}, "variants": [[]]}\'', "different releases"),
        (None, "can't be started"),
    ],
)
def test_an_agent_that_gives_no_sizes_is_a_sentence(tmp_path: Path, program: str | None, said: str) -> None:
    command = "no-such-program" if program is None else str(script(tmp_path, program))
    with pytest.raises(FootprintError, match=said):
        Footprint(LOWMEM, (command,)).config()


def beat(run: Path, device: str, host: float, reserved: float | None, micro_batch: int = 64) -> None:
    figures = {"host": host} | ({} if reserved is None else {"device_reserved": reserved})
    peaks = {"warming": {"host": 1.0}, "updating": figures}
    run.mkdir(parents=True)
    memory = MemoryFigures(peak_by_phase_mib=peaks)
    reported = replace(BEAT, phase=Phase.FINISHED, device=device, micro_batch=micro_batch, memory=memory)
    (run / "agent.json").write_text(reported.json())
    (run / "config.yaml").write_text(
        yaml.safe_dump(config.dump(config.load(Path(LOWMEM), {"td3.precision": "float32"})))
    )


def agent_line(plan: dict[str, Any], pool: str) -> tuple[float, str]:
    rows = plan["asked"]["items_mib"][pool]
    return next((row["mib"], row["known"]) for row in rows if row["what"] == "agent at its peak")


def test_what_a_run_measured_replaces_the_estimate(reported: Any, runs: Path) -> None:
    estimated = reported(reading())[1]
    beat(runs / "gpu", "cuda", host=700.0, reserved=180.0)
    measured_plan = reported(reading())[1]
    assert agent_line(measured_plan, "vram:0") == (180.0, "measured")
    assert agent_line(measured_plan, "ram") == (745.0, "measured"), "and the video's encoder, which nobody measured"
    first = {each["step"]: each["frees_mib"] for each in estimated["ladder"]["vram"]}
    later = {each["step"]: each["frees_mib"] for each in measured_plan["ladder"]["vram"]}
    assert first["offload (memory.offload = ['optimizer', 'targets'])"] == pytest.approx(
        later["offload (memory.offload = ['optimizer', 'targets'])"], abs=0.11
    )


def test_a_neighbour_of_what_was_measured_is_estimated_from_it(reported: Any, runs: Path) -> None:
    """It ran with micro-batches of 8: the whole batch takes as much more as the estimates say."""
    beat(runs / "gpu", "cuda", host=700.0, reserved=180.0, micro_batch=8)
    mib, known = agent_line(reported(reading())[1], "vram:0")
    assert known == "estimated"
    assert 180 < mib < 200


@pytest.mark.parametrize(("came_to", "counts"), [("float32", True), ("bfloat16", True), ("float16", False)])
def test_with_precision_auto_what_it_came_to_counts(
    reported: Any, runs: Path, tmp_path: Path, came_to: str, counts: bool
) -> None:
    auto = tmp_path / "auto.yaml"
    auto.write_text(f"extends: {LOWMEM}\ntd3: {{precision: auto}}\n")
    estimated = agent_line(reported(reading(), config=str(auto))[1], "vram:0")
    beat(runs / "gpu", "cuda", host=700.0, reserved=180.0)
    saved = runs / "gpu" / "config.yaml"
    saved.write_text(saved.read_text().replace("float32", came_to))
    found = agent_line(reported(reading(), config=str(auto))[1], "vram:0")
    assert (found != estimated) is counts
    assert not counts or found[0] >= 180, "not below what was measured"


def test_a_run_of_other_networks_or_no_update_says_nothing(reported: Any, runs: Path) -> None:
    estimated = agent_line(reported(reading())[1], "vram:0")
    beat(runs / "narrow", "cuda", host=700.0, reserved=180.0)
    narrow = runs / "narrow" / "config.yaml"
    narrow.write_text(narrow.read_text().replace("features: 512", "features: 64"))
    beat(runs / "short", "cuda", host=700.0, reserved=180.0)
    short = runs / "short" / "agent.json"
    short.write_text(short.read_text().replace('"updating"', '"starting"'))
    (runs / "torn").mkdir()
    (runs / "torn" / "agent.json").write_text('{"memory": {"peak_by')
    assert agent_line(reported(reading())[1], "vram:0") == estimated


def test_a_refusal_by_a_measured_figure_names_its_run(reported: Any, runs: Path) -> None:
    (runs / "night").mkdir(parents=True)
    leaked = {"simulator_peak_mib": {"vram": {"Low": 5700.0, "Epic": 5725.0}}}
    (runs / "night" / "launcher.json").write_text(json.dumps(leaked))
    code, plan = reported(reading(), quality="Low")
    assert code == Exit.OUT_OF_MEMORY
    assert "CARLA at Low in vram:0, 5700 MiB (run night)" in plan["reason"]
    assert plan["reason"].endswith("; --ignore-measured plans without these figures")
    code, plan = reported(reading(), quality="Low", ignore_measured=True)
    assert code == Exit.FINISHED


def test_a_refusal_by_estimate_and_measure_names_both(reported: Any, runs: Path) -> None:
    beat(runs / "night", "cpu", host=30_000.0, reserved=None)
    code, plan = reported(reading(vram=4096), quality="Low", device="cpu")
    assert code == Exit.OUT_OF_MEMORY
    assert "The memory of CARLA at Low is an estimate" in plan["reason"]
    assert "agent at its peak in ram" in plan["reason"].partition("Earlier runs measured: ")[2]
    assert "(run night)" in plan["reason"]


def test_a_peak_measured_on_this_map_replaces_the_first(reported: Any, runs: Path) -> None:
    for name, town, peak in (("old", "Town01", 5000.0), ("new", "Town01", 5100.0), ("elsewhere", "Town12", 5700.0)):
        (runs / name).mkdir(parents=True)
        state = {"options": {"map": town}, "simulator_peak_mib": {"vram": {"Epic": peak}, "ram": {"Epic": 3000.0}}}
        (runs / name / "launcher.json").write_text(json.dumps(state))
    for age, name in enumerate(("elsewhere", "new", "old")):
        os.utime(runs / name / "launcher.json", (1_000_000 - age, 1_000_000 - age))
    _, plan = reported(reading(), quality="Epic", map="Town01")
    rows = {row["what"]: (row["mib"], row["known"]) for row in plan["asked"]["items_mib"]["vram:0"]}
    assert rows["CARLA at Epic"] == (5100.0, "measured")
    frees = {each["rung"]: each["frees_mib"] for each in plan["ladder"]["vram"]}
    assert frees["carla_low"]["vram"] == pytest.approx(5100 - 4813)
