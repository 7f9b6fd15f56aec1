"""The distributions, each in an environment that has what it asks for and nothing more, used outside any checkout."""

from __future__ import annotations

import functools
import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.conftest import REPOSITORY
from tests.crowd import PATIENCE_S

CONFIG = """
extends: lowmem
environment: {time_limit: {constant_s: 4}, route: {min_length_m: 60, max_length_m: 150}}
td3: {batch_size: 8, network: {channels: [4, 4, 4], features: 16, hidden: [16]}}
replay: {capacity: 1000}
training: {total_steps: 60, warmup_steps: 50, log_every_steps: 50, learner_threads: 1}
evaluation: {every_steps: 0, final_episodes: 0, baselines: false, video: false}
"""
OURS, LITE, REPORT = "carla-td3-lowmem", "carla-lite", "carla-run"
PROJECTS = {OURS: ".", LITE: "carla/lite", REPORT: "contract"}
COPIED = ("agent", "launcher", "contract", "carla/lite", "pyproject.toml", "README.md", "LICENSE")


Build = Callable[..., Path]
"""From a project's name and a hook of its build to the wheel."""


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """Builds each wheel once, without an index, from a copy of this checkout: a build leaves files beside sources."""
    source, ignored = tmp_path_factory.mktemp("source"), shutil.ignore_patterns("__pycache__", "*.egg-info", "build")
    for name in COPIED:
        if (REPOSITORY / name).is_dir():
            shutil.copytree(REPOSITORY / name, source / name, ignore=ignored)
        else:
            shutil.copy(REPOSITORY / name, source / name)

    @functools.cache
    def built(project: str, hook: str = "build_wheel") -> Path:
        into = tmp_path_factory.mktemp("wheel")
        program = f"import setuptools.build_meta as build, sys; print(build.{hook}(sys.argv[1]))"
        made = output([sys.executable, "-c", program, str(into)], cwd=source / PROJECTS[project])
        return into / made.split()[-1]

    return built


def output(command: list[str], **more: object) -> str:
    ended = subprocess.run(command, check=False, capture_output=True, text=True, timeout=PATIENCE_S, **more)  # type: ignore[call-overload]
    assert ended.returncode == 0, ended.stderr
    return str(ended.stdout)


def needed(requirement: Requirement, seen: set[str]) -> Iterator[importlib.metadata.Distribution]:
    """Yield what a requirement brings along, of what is installed here."""
    for extra in ("", *requirement.extras):
        if f"{requirement.name}[{extra}]" in seen or requirement.name in (OURS, LITE):
            continue
        seen.add(f"{requirement.name}[{extra}]")
        found = importlib.metadata.distribution(requirement.name)
        yield found
        yield from asked_for(found, extra, seen)


def asked_for(
    found: importlib.metadata.Distribution, extra: str, seen: set[str]
) -> Iterator[importlib.metadata.Distribution]:
    for each in map(Requirement, found.requires or ()):
        if each.marker is None or each.marker.evaluate({"extra": extra}):
            yield from needed(each, seen)


class Environment:
    """An environment of its own: wheels, and links to what they ask for."""

    def __init__(self, folder: Path, *wheels: Path, extras: tuple[str, ...] = ()) -> None:
        self.folder = folder / "elsewhere"
        self.folder.mkdir()
        output([sys.executable, "-m", "venv", "--without-pip", str(folder / "venv")])
        self.bin = folder / "venv" / "bin"
        (site,) = (folder / "venv" / "lib").glob("python*/site-packages")
        install = [sys.executable, "-m", "pip", "--python", str(self.bin / "python"), "install", "-q"]
        output([*install, "--no-deps", "--no-index", *map(str, wheels)])
        seen: set[str] = set()
        for ours in importlib.metadata.distributions(path=[str(site)]):
            for extra in ("", *extras):
                for each in asked_for(ours, extra, seen):
                    link(each, site)

    def run(self, program: str, *words: str) -> subprocess.CompletedProcess[str]:
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        return subprocess.run(
            [str(self.bin / program), *words],
            check=False,
            capture_output=True,
            text=True,
            cwd=self.folder,
            env=kept,
            timeout=500,
        )


def link(distribution: importlib.metadata.Distribution, site: Path) -> None:
    for name in {file.parts[0] for file in distribution.files or ()} - {"..", "__pycache__"}:
        if not (site / name).exists():
            (site / name).symlink_to(Path(str(distribution.locate_file(name))))


@pytest.mark.parametrize("hook", ["build_wheel", "build_editable"])
@pytest.mark.parametrize(
    ("project", "programs"),
    [(OURS, ("carla-td3", "carla-launcher")), (LITE, ("carla-lite",))],
    ids=lambda part: part[0],
)
def test_a_distribution_starts_alone(
    tmp_path: Path, build: Build, project: str, programs: tuple[str, ...], hook: str
) -> None:
    alone = Environment(tmp_path, build(project, hook))
    for program in programs:
        ended = alone.run(program, "--help")
        assert (ended.returncode, ended.stderr) == (0, "")
        assert "Usage" in ended.stdout
    assert not list((tmp_path / "venv").glob("lib/*/site-packages/torch*")), "a base install is light"


def test_all_have_one_version(build: Build) -> None:
    names = [build(project).name.split("-")[:2] for project in PROJECTS]
    assert {version for _, version in names} == {(REPOSITORY / "carla/lite/VERSION").read_text().strip()}


def test_a_trainer_gets_what_reports_and_needs_nothing_else(build: Build) -> None:
    with zipfile.ZipFile(build(REPORT)) as wheel:
        names = wheel.namelist()
        (about,) = [wheel.read(name).decode() for name in names if name.endswith("METADATA")]
    assert {"carla_run/run.py", "carla_run/memory/errors.py", "carla_run/py.typed"} <= set(names)
    assert not [name for name in names if "configuration" in name]
    assert "Requires-Python: >=3.8" in about
    assert "Requires-Dist" not in about


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory, build: Build) -> Environment:
    folder = tmp_path_factory.mktemp("installed")
    found = Environment(folder, build(OURS), build(LITE), extras=("agent", "lite", "launcher", "web"))
    (found.folder / "own.yaml").write_text(CONFIG, encoding="utf-8")
    return found


def test_a_plan_and_an_examination_need_no_checkout(installed: Environment) -> None:
    for config in ("own.yaml", "lowmem"):
        options = ("--simulator", "carla-lite", "--device", "cpu", "--config", config)
        plan = installed.run("carla-launcher", "plan", *options, "--json")
        assert plan.returncode == 0, plan.stderr
        assert json.loads(plan.stdout)
    found = {row["check"]: row for row in json.loads(installed.run("carla-launcher", "doctor", "--json").stdout)}
    assert found["Python"]["verdict"] == "ok"


def test_a_run_of_local_processes_needs_no_checkout(installed: Environment) -> None:
    options = ("--runtime", "process", "--simulator", "carla-lite", "--device", "cpu", "--config", "own.yaml")
    ended = installed.run("carla-launcher", "up", *options, "--run-name", "away")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert (installed.folder / "runs" / "away" / "report.html").is_file()


def test_nodes_of_a_cluster_know_each_other_by_their_sources(installed: Environment) -> None:
    asked = "from carla_td3.cluster import versions; print(versions._digest())"
    there = installed.run("python", "-c", asked)
    assert there.stdout == output([sys.executable, "-c", asked]), there.stderr


@pytest.mark.skipif(shutil.which("docker") is None, reason="no docker command here")
def test_containers_ask_for_a_checkout_in_one_sentence_and_take_the_one_that_is_named(installed: Environment) -> None:
    options = ("--runtime", "compose", "--simulator", "carla-lite", "--config", "lowmem")
    ended = installed.run("carla-launcher", "plan", *options)
    assert ended.returncode == 65
    assert ended.stderr == (
        f"launcher: {installed.folder} has no docker-compose.yml: the Compose stack needs a checkout of this project; "
        "name its folder with --stack, or use --runtime process.\n"
    )
    named = installed.run("carla-launcher", "plan", *options, "--stack", str(REPOSITORY))
    assert "needs a checkout" not in named.stderr
