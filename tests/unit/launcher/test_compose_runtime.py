"""The Compose runtime where nothing answers, or not as expected: one sentence, or not knowing; never a traceback."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from launcher import config
from launcher.run_directory import RunDirectory
from launcher.runtimes import compose_child
from launcher.runtimes.compose import SERVICES, ComposeRuntime
from launcher.runtimes.compose_child import LOST, ComposeChild
from launcher.runtimes.engine import Container, EngineError
from launcher.runtimes.project import REPOSITORY, name_of
from launcher.runtimes.runtime import Role, Start, StartError
from launcher.runtimes.setup import Setup
from launcher.watching.observation import Ended

LIMITS = config.load()
# Stands in for the command where only its words count.
COMPOSE = """#!/bin/sh
case "$*" in
    *version*) echo {version};;
    *" config "*) echo '{{"services": {{"agent": {{"image": "a", "mem_limit": "'${{AGENT_MEMORY-1048576}}'"}}, \
        "carla": {{"image": "c"}}}}}}';;
    *" up "*) printf '%s\\n' "$*" "RESTART=$RESTART" > {told}.new; mv {told}.new {told};;
    *) echo "Cannot connect to the Docker daemon." >&2; exit 1;;
esac
"""


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    run = RunDirectory(tmp_path / "runs" / "run")
    run.logs.mkdir(parents=True)
    return run


@pytest.fixture
def runtime(run: RunDirectory) -> ComposeRuntime:
    return ComposeRuntime(Setup(run, REPOSITORY / "config" / "td3_config.yaml", 21_000), LIMITS, lite=True)


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Put a ``docker`` on the path that knows a version of Compose and no engine, and notes what ``up`` is told."""

    def put(version: str) -> None:
        command = tmp_path / "bin" / "docker"
        command.parent.mkdir()
        command.write_text(COMPOSE.format(version=version, told=tmp_path / "told"))
        command.chmod(0o755)
        monkeypatch.setenv("PATH", f"{command.parent}:{os.environ['PATH']}")
        monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/no.sock")

    return put


ACTIONS: dict[str, Callable[[ComposeRuntime], object]] = {
    "start": lambda runtime: runtime.start(Start(Role.SIMULATOR, "Low")),
    "left": lambda runtime: runtime.left(Role.AGENT),
    "down": lambda runtime: runtime.clear(),
}


@pytest.mark.parametrize("action", ACTIONS)
def test_without_docker_every_action_is_refused_in_one_sentence(
    runtime: ComposeRuntime, monkeypatch: pytest.MonkeyPatch, action: str
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    with pytest.raises(StartError, match=r"^There is no `docker` command here: install Docker, or [^.]*\.$"):
        ACTIONS[action](runtime)


@pytest.mark.parametrize("action", ACTIONS)
def test_without_an_engine_every_action_is_refused_in_one_sentence(
    runtime: ComposeRuntime, install: Callable[[str], None], action: str
) -> None:
    install("2.26.1-4")
    with pytest.raises(StartError, match=r"^Docker's engine can't be asked .*: see that `docker version` names"):
        ACTIONS[action](runtime)


@pytest.mark.parametrize(
    ("version", "old"), [("2.20.3", True), ("v2.24.3", True), ("2.24.4", False), ("v3.0.0", False)]
)
def test_a_compose_that_can_not_read_the_files_is_refused(
    runtime: ComposeRuntime, install: Callable[[str], None], version: str, old: bool
) -> None:
    install(version)
    with pytest.raises(StartError) as refused:
        runtime.check()
    assert (f"Docker Compose is {version}, expected 2.24.4 or later" in str(refused.value)) is old


def test_the_containers_limits_are_what_compose_makes_of_the_variables_and_nothing_is_written(
    runtime: ComposeRuntime, run: RunDirectory, install: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    install("2.26.1")
    assert runtime.memory_limits_mib() == {Role.AGENT: 1.0}
    monkeypatch.setenv("AGENT_MEMORY", str(2**29))
    assert runtime.memory_limits_mib() == {Role.AGENT: 512.0}
    assert list(run.path.iterdir()) == [run.logs]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"config": Path("/etc/hostname")}, "/etc/hostname: the agent's container sees"),
        ({"map": "towns/mine.xodr"}, "The map towns/mine.xodr is a file here"),
    ],
)
def test_what_no_container_sees_is_refused(
    run: RunDirectory, install: Callable[[str], None], fields: dict[str, object], expected: str
) -> None:
    install("2.26.1")
    known = {"run": run, "config": run.path.parent / "own.yaml", "port": 21_000}
    with pytest.raises(StartError, match=expected):
        ComposeRuntime(Setup(**{**known, **fields}), LIMITS, lite=True).check()  # type: ignore[arg-type]


def test_a_project_is_named_after_the_runs_name_and_folder(tmp_path: Path) -> None:
    names = [name_of(RunDirectory(tmp_path / folder / "My Run!")) for folder in ("one", "two", "one/../one")]
    assert names[0] == names[2] != names[1]
    assert all(name.startswith("carla-td3-my-run-") for name in names)


@pytest.mark.parametrize(("role", "waits"), [(Role.SIMULATOR, True), (Role.AGENT, False)])
def test_a_start_concerns_one_service_alone_and_leaves_restarts_to_the_launcher(
    runtime: ComposeRuntime,
    run: RunDirectory,
    install: Callable[[str], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    role: Role,
    waits: bool,
) -> None:
    """Else the agent's start could replace the simulator, and the engine start again what the launcher stopped."""
    install("2.26.1")
    monkeypatch.setattr(runtime, "_engine", Engine())
    runtime.start(Start(role, "Low"))
    told = tmp_path / "told"
    until(told.exists)
    runtime.close()
    command, restart = told.read_text().splitlines()
    words = command.split()
    assert words[-1] == SERVICES[role]
    assert "--no-deps" in words
    assert ("--wait" in words) is waits
    assert restart == "RESTART=no"
    assert 'RESTART="no"' in (run.path / "launcher.env").read_text().splitlines()


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


def running(pid: int) -> Container:
    return Container("c1", pid, running=True, finished=False, started="", exit_code=0, oom_killed=False)


@dataclass
class Engine:
    """An engine that has all images and no container of this run; says of others what it is told, or nothing."""

    answers: list[Container | None] = field(default_factory=list)
    oom_seen: bool = False

    def container(self, _: str) -> Container | None:
        if not self.answers:
            raise EngineError("gone")
        return self.answers[0]

    def ids(self, *_: object, **__: object) -> tuple[str, ...]:
        return ()

    def has_image(self, _: str) -> bool:
        return True

    def saw_oom_kill(self, _: Container) -> bool:
        return self.oom_seen

    def signal(self, *_: str) -> None:
        raise EngineError("gone")

    @contextlib.contextmanager
    def output(self, *_: object) -> Iterator[list[bytes]]:
        yield []


def child(run: RunDirectory, engine: Engine) -> ComposeChild:
    made = ComposeChild(engine, "p", "agent", run.logs / "agent.log", None, "c1")  # type: ignore[arg-type]
    made.look()
    return made


def test_an_engine_that_is_silent_ends_nothing_while_the_process_is_there(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compose_child, "ENGINE_PATIENCE_S", -1.0)
    engine = Engine([running(os.getpid())])
    alive = child(run, engine)
    engine.answers.clear()
    alive.look()
    assert alive.poll() is None
    alive.terminate()
    assert os.getpid() in alive.pids()


def test_an_engine_that_stays_silent_after_the_process_has_gone_is_believed_lost(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine([running(2**22 + 1)])  # above the highest process id
    gone = child(run, engine)
    engine.answers.clear()
    gone.look()
    assert gone.poll() is None, "an engine that starts again tells how it ended"
    monkeypatch.setattr(compose_child, "ENGINE_PATIENCE_S", -1.0)
    gone.let_go()
    gone.look()
    assert gone.poll() == Ended(LOST)


def test_an_oom_kill_that_only_the_engines_events_tell_of_counts(run: RunDirectory) -> None:
    ended = Container("c1", 0, running=False, finished=True, started="", exit_code=0, oom_killed=False)
    assert child(run, Engine([ended], oom_seen=True)).poll() == Ended(0, oom_killed=True)
    assert child(run, Engine([ended])).poll() == Ended(0)
