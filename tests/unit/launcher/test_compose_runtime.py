"""The Compose runtime where nothing answers, or not as expected: one sentence, or not knowing; never a traceback."""

from __future__ import annotations

import contextlib
import os
import platform
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from carla_launcher import config
from carla_launcher.act.compose import container, engine
from carla_launcher.act.compose.container import LOST, ComposeChild, Creation
from carla_launcher.act.compose.engine import Container, EngineError
from carla_launcher.act.compose.project import name_of
from carla_launcher.act.compose.runtime import SERVICES, ComposeRuntime
from carla_launcher.act.run_spec import RunSpec
from carla_launcher.act.runtime import Role, Start, StartError
from carla_launcher.observe.container_engine import ContainerEngine, Product
from carla_launcher.observe.observation import Ended
from carla_launcher.simulators import Carla, CarlaLite
from carla_run.paths import RunPaths
from tests.accounts import ALICE, needs_root
from tests.conftest import REPOSITORY
from tests.crowd import until

LIMITS = config.load()
SHORT_GRACES = LIMITS.model_copy(
    update={
        "agent": LIMITS.agent.model_copy(update={"stop_grace_s": 1.0}),
        "simulator": LIMITS.simulator.model_copy(update={"stop_grace_s": 1.0}),
    }
)
# Stands in for the command where only its words count.
COMPOSE = """#!/bin/sh
case "$*" in
    *version*) echo {version};;
    *" config "*) echo '{{"services": {{"agent": {{"image": "a", "mem_limit": "'${{AGENT_MEMORY-1048576}}'"}}, \
        "carla": {{"image": "c"}}}}}}';;
    *" up "*) printf '%s\\n' "$*" "RESTART=$RESTART" > {reported}.new; mv {reported}.new {reported};;
    *) echo "Cannot connect to the Docker daemon." >&2; exit 1;;
esac
"""

OLD, NEW = "0a" * 32, "1b" * 32
"""Two containers' ids. A short id could stand in the control groups or mounted files of any process."""


@pytest.fixture
def run(tmp_path: Path) -> RunPaths:
    run = RunPaths(tmp_path / "runs" / "run")
    run.logs.mkdir(parents=True)
    return run


def spec(run: RunPaths, **asked: Any) -> RunSpec:
    known = {"config": REPOSITORY / "config" / "td3_config.yaml", "simulator": CarlaLite()}
    return RunSpec(run, port=21_000, **{**known, **asked})


@pytest.fixture
def runs_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a process of the test stand for a container's."""
    monkeypatch.setattr(container, "is_in_container", lambda *_: True)


@pytest.fixture
def runtime(run: RunPaths) -> ComposeRuntime:
    return ComposeRuntime(spec(run), LIMITS)


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Put a ``docker`` on the path that knows a version of Compose and no engine, and notes what ``up`` is told."""

    def put(version: str) -> None:
        command = tmp_path / "bin" / "docker"
        command.parent.mkdir()
        command.write_text(COMPOSE.format(version=version, reported=tmp_path / "told"))
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
    with pytest.raises(StartError, match=r"^Docker's engine doesn't answer .*: check that `docker version` shows"):
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
    runtime: ComposeRuntime, run: RunPaths, install: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    install("2.26.1")
    assert runtime.memory_limits_mib() == {Role.AGENT: 1.0}
    monkeypatch.setenv("AGENT_MEMORY", str(2**29))
    assert runtime.memory_limits_mib() == {Role.AGENT: 512.0}
    assert list(run.path.iterdir()) == [run.logs]


@pytest.mark.parametrize(
    ("runtimes", "asked", "lite", "expected"),
    [
        ({"runc", "nvidia"}, None, False, "nvidia"),
        ({"runc"}, None, False, None),
        ({"runc", "nvidia"}, "runc", False, None),
        ({"runc", "nvidia"}, None, True, None),
    ],
)
def test_the_runtime_for_gpus_is_asked_for_where_the_engine_has_it_unless_another_is_named(
    run: RunPaths,
    install: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch,
    runtimes: set[str],
    asked: str | None,
    lite: bool,
    expected: str | None,
) -> None:
    install("2.26.1")
    if asked is not None:
        monkeypatch.setenv("GPU_RUNTIME", asked)
    stack = ComposeRuntime(spec(run, simulator=CarlaLite() if lite else Carla()), LIMITS)
    monkeypatch.setattr(stack, "_engine", Engine(says=docker_engine(runtimes=frozenset(runtimes))))
    stack.memory_limits_mib()
    assert stack.environment.get("GPU_RUNTIME") == expected


def test_under_a_rootless_engine_the_files_of_a_run_are_the_caller_s_as_its_root(
    run: RunPaths, install: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    install("2.26.1")
    monkeypatch.setattr(os, "getuid", lambda: 1234)
    for rootless, owner in ((False, "1234"), (True, "0")):
        stack = ComposeRuntime(spec(run), LIMITS)
        monkeypatch.setattr(stack, "_engine", Engine(says=docker_engine(rootless=rootless)))
        stack.memory_limits_mib()
        assert stack.environment["RUN_UID"] == owner


@pytest.mark.parametrize(
    ("lite", "asked", "expected"), [(False, "", True), (True, "", False), (False, "nvidia", False)]
)
def test_an_engine_without_the_toolkit_is_an_obstacle_for_carla_unless_the_caller_vouches_for_a_runtime(
    run: RunPaths, monkeypatch: pytest.MonkeyPatch, lite: bool, asked: str, expected: bool
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("GPU_RUNTIME", asked)
    stack = ComposeRuntime(spec(run, simulator=CarlaLite() if lite else Carla()), LIMITS)
    monkeypatch.setattr(stack, "_engine", Engine(says=docker_engine()))
    assert bool(stack.obstacle) is expected
    assert not stack.obstacle or "install the NVIDIA Container Toolkit" in stack.obstacle


@pytest.mark.parametrize(
    ("lite", "uuids", "expected"),
    [
        (False, ("GPU-5ee1", "GPU-5ee1"), {"CARLA_GPU": "GPU-5ee1", "AGENT_GPU": "GPU-5ee1"}),
        (False, ("GPU-5ee1", "GPU-ca7"), {"CARLA_GPU": "GPU-5ee1", "AGENT_GPU": "GPU-ca7"}),
        (False, ("", ""), {}),
        (True, ("GPU-5ee1", "GPU-5ee1"), {}),
    ],
)
def test_each_container_is_given_the_card_that_was_planned_for_it(
    run: RunPaths, install: Callable[[str], None], lite: bool, uuids: tuple[str, str], expected: dict[str, str]
) -> None:
    install("2.26.1")
    simulator = CarlaLite() if lite else Carla()
    stack = ComposeRuntime(replace(spec(run, simulator=simulator), gpu_uuids=uuids), LIMITS)
    stack.memory_limits_mib()
    assert {name: value for name, value in stack.environment.items() if name.endswith("_GPU")} == expected


def test_carla_lites_container_is_given_the_folder_of_maps(
    run: RunPaths, install: Callable[[str], None], tmp_path: Path
) -> None:
    install("2.26.1")
    limits = LIMITS.model_copy(update={"simulator": LIMITS.simulator.model_copy(update={"map_dir": tmp_path})})
    stack = ComposeRuntime(spec(run, simulator=CarlaLite("Town02")), limits)
    stack.memory_limits_mib()
    assert (stack.environment["LITE_MAP"], stack.environment["LITE_MAP_DIR"]) == ("Town02", str(tmp_path))


@pytest.mark.parametrize(
    ("roles", "here", "said"),
    [
        (tuple(Role), (), "c and a; build with `docker compose -f docker-compose.yml -f .* build carla agent`"),
        ((Role.AGENT,), (), "c and a; build with"),
        (tuple(Role), ("a",), "Not built here yet: c; build with .* build carla`"),
        ((Role.AGENT,), ("a",), None),
    ],
)
def test_all_images_that_are_missing_are_named_before_anything_is_asked_of_one(
    runtime: ComposeRuntime,
    install: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch,
    roles: tuple[Role, ...],
    here: tuple[str, ...],
    said: str | None,
) -> None:
    install("2.26.1")
    monkeypatch.setattr(engine.Engine, "has_image", lambda _self, name: name in here)
    if said is None:
        runtime.expect_images(*roles)
        return
    with pytest.raises(StartError, match=said):
        runtime.expect_images(*roles)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"config": Path("/etc/hostname")}, "/etc/hostname: the agent's container sees"),
        ({"simulator": CarlaLite("/a/towns/mine.xodr")}, "The map /.*/towns/mine.xodr is a file of this machine"),
    ],
)
def test_what_no_container_sees_is_refused(
    run: RunPaths, install: Callable[[str], None], fields: dict[str, object], expected: str
) -> None:
    install("2.26.1")
    known = {"config": run.path.parent / "own.yaml"}
    with pytest.raises(StartError, match=expected):
        ComposeRuntime(spec(run, **{**known, **fields}), LIMITS).check()


def test_a_project_is_named_after_the_runs_name_and_folder(tmp_path: Path) -> None:
    names = [name_of(RunPaths(tmp_path / folder / "My Run!")) for folder in ("one", "two", "one/../one")]
    assert names[0] == names[2] != names[1]
    assert all(name.startswith("carla-td3-my-run-") for name in names)


@pytest.mark.parametrize(("role", "waits"), [(Role.SIMULATOR, True), (Role.AGENT, False)])
def test_a_start_concerns_one_service_alone_and_leaves_restarts_to_the_launcher(
    runtime: ComposeRuntime,
    run: RunPaths,
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
    reported = tmp_path / "told"
    until(reported.exists)
    runtime.close()
    command, restart = reported.read_text().splitlines()
    words = command.split()
    assert words[-1] == SERVICES[role]
    assert "--no-deps" in words
    assert ("--wait" in words) is waits
    assert restart == "RESTART=no"
    assert 'RESTART="no"' in (run.path / "launcher.env").read_text().splitlines()


@pytest.mark.parametrize(("said", "reason"), [("one\nno such network.\n\n", "no such network"), ("", "no output")])
def test_a_compose_that_fails_is_quoted_with_its_last_words(
    runtime: ComposeRuntime, install: Callable[[str], None], tmp_path: Path, said: str, reason: str
) -> None:
    install("2.26.1")
    (tmp_path / "bin" / "docker").write_text(f"#!/bin/sh\nprintf '{said}' >&2; exit 1\n")
    with pytest.raises(StartError, match=rf"^`docker compose version` failed: {reason}\.$"):
        runtime.check()


@pytest.mark.parametrize(
    ("stubborn", "signals"),
    [
        ((), ["agent SIGTERM", "simulator SIGTERM"]),
        (("agent",), ["agent SIGTERM", "agent SIGKILL", "simulator SIGTERM"]),
    ],
)
def test_down_asks_the_agent_before_the_simulator_and_kills_only_what_goes_on_beyond_its_grace(
    run: RunPaths,
    install: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch,
    stubborn: tuple[str, ...],
    signals: list[str],
) -> None:
    install("2.26.1")
    stack = Stack(stubborn=stubborn)
    runtime = ComposeRuntime(spec(run), SHORT_GRACES)
    monkeypatch.setattr(runtime, "_engine", stack)
    with pytest.raises(StartError, match="Cannot connect to the Docker daemon"):  # this command removes nothing
        runtime.clear()
    assert stack.signals == signals
    runtime.close()


def running(pid: int) -> Container:
    return Container(NEW, pid, running=True, finished=False, started="", exit_code=0, oom_killed=False)


@dataclass
class Engine:
    """An engine that has all images; says of containers what it is told, or nothing."""

    answers: list[Container | None] = field(default_factory=list)
    oom_seen: bool = False
    created: list[str] = field(default_factory=list)
    silent: bool = False
    says: ContainerEngine | None = None

    def container(self, _: str) -> Container | None:
        if not self.answers:
            raise EngineError("gone")
        return self.answers[0]

    def ids(self, *_: object, **__: object) -> tuple[str, ...]:
        if self.silent:
            raise EngineError("gone")
        return tuple(self.created)

    def has_image(self, _: str) -> bool:
        return True

    def kind(self) -> ContainerEngine | None:
        return self.says

    def saw_oom_kill(self, _: Container) -> bool:
        return self.oom_seen

    def signal(self, *_: str) -> None:
        raise EngineError("gone")

    @contextlib.contextmanager
    def output(self, *_: object) -> Iterator[list[bytes]]:
        yield []


@dataclass
class Stack(Engine):
    """An engine with both containers, of which the stubborn ones end only by SIGKILL."""

    stubborn: tuple[str, ...] = ()
    signals: list[str] = field(default_factory=list)
    ended: set[str] = field(default_factory=set)

    def ids(self, *project_and_service: object, **_: object) -> tuple[str, ...]:
        return ({"carla": "simulator", "agent": "agent"}[str(project_and_service[1])],)

    def container(self, name: str) -> Container:
        gone = name in self.ended
        return Container(name, 2**22 + 1, running=not gone, finished=gone, started="", exit_code=0, oom_killed=False)

    def signal(self, *reported: str) -> None:
        self.signals.append(" ".join(reported))
        if reported[0] not in self.stubborn or reported[1] == "SIGKILL":
            self.ended.add(reported[0])


def docker_engine(**fields: Any) -> ContainerEngine:
    return ContainerEngine(Product.DOCKER, "28.1.1", **{"kernel": platform.release(), **fields})


def child(run: RunPaths, engine: Engine) -> ComposeChild:
    made = ComposeChild(engine, "p", "agent", run.logs / "agent.log", None, NEW)  # type: ignore[arg-type]
    made.look()
    return made


@pytest.mark.usefixtures("runs_here")
def test_an_engine_that_is_silent_ends_nothing_while_the_process_is_there(
    run: RunPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(container, "ENGINE_PATIENCE_S", -1.0)
    engine = Engine([running(os.getpid())])
    alive = child(run, engine)
    engine.answers.clear()
    alive.look()
    assert alive.poll() is None
    alive.terminate()
    assert os.getpid() in alive.pids()


def test_a_process_that_shows_no_sign_of_the_container_is_not_taken_for_its_own(run: RunPaths) -> None:
    """An engine in a virtual machine numbers its processes as that machine does."""
    elsewhere = child(run, Engine([running(os.getpid())]))
    assert (elsewhere.poll(), elsewhere.pid, elsewhere.pids()) == (None, 0, frozenset())
    elsewhere.detach()


def test_an_engine_that_stays_silent_after_the_process_has_gone_is_believed_lost(
    run: RunPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine([running(2**22 + 1)])  # above the highest process id
    gone = child(run, engine)
    engine.answers.clear()
    gone.look()
    assert gone.poll() is None, "an engine that starts again tells how it ended"
    monkeypatch.setattr(container, "ENGINE_PATIENCE_S", -1.0)
    gone.detach()
    gone.look()
    assert gone.poll() == Ended(LOST)


def test_an_oom_kill_that_only_the_engines_events_tell_of_counts(run: RunPaths) -> None:
    ended = Container(NEW, 0, running=False, finished=True, started="", exit_code=0, oom_killed=False)
    assert child(run, Engine([ended], oom_seen=True)).poll() == Ended(0, oom_killed=True)
    assert child(run, Engine([ended])).poll() == Ended(0)


@dataclass
class Command:
    """A Compose command that runs until it is killed, or has ended with a code."""

    code: int | None = None

    def poll(self) -> Ended | None:
        return None if self.code is None else Ended(self.code)

    def kill(self) -> None:
        self.code = 137


def created(run: RunPaths, engine: Engine, command: Command, said: str = "") -> ComposeChild:
    """Return the child of a command that replaces container c0."""
    log = run.logs / "compose.log"
    log.write_text("of an earlier start\n")
    creation = Creation(command, frozenset({OLD}), log, log.stat().st_size)  # type: ignore[arg-type]
    with log.open("a") as file:
        file.write(said)
    return ComposeChild(engine, "p", "agent", run.logs / "agent.log", creation)  # type: ignore[arg-type]


@pytest.mark.usefixtures("runs_here")
def test_while_compose_creates_a_container_the_one_before_it_is_nobodys_end(run: RunPaths) -> None:
    ended = Container(OLD, 0, running=False, finished=True, started="", exit_code=3, oom_killed=False)
    engine = Engine([ended], created=[OLD])
    made = created(run, engine, Command())
    made.look()
    assert (made.poll(), made.pid, made.pids()) == (None, 0, frozenset())
    engine.created, engine.answers = [NEW, OLD], [running(os.getpid())]
    made.look()
    assert (made.poll(), made.pid) == (None, os.getpid())
    made.detach()


def test_a_container_that_was_created_and_not_started_has_not_ended(run: RunPaths) -> None:
    waits = Container(NEW, 0, running=False, finished=False, started="", exit_code=0, oom_killed=False)
    made = created(run, Engine([waits], created=[NEW]), Command())
    made.look()
    assert made.poll() is None


@pytest.mark.parametrize(("code", "expected"), [(17, 17), (0, LOST)])
@pytest.mark.parametrize("silent", [False, True])
@pytest.mark.parametrize(("said", "reason"), [("Error: no space left\n\n", "Error: no space left"), ("", "no output")])
def test_a_command_that_made_no_container_is_a_failure_with_its_last_words_in_the_log(
    run: RunPaths, code: int, expected: int, silent: bool, said: str, reason: str
) -> None:
    """Also where the engine has gone meanwhile."""
    made = created(run, Engine(created=[OLD], silent=silent), Command(code), said)
    made.look()
    assert made.poll() == Ended(expected)
    assert (run.logs / "agent.log").read_text() == f"launcher: docker compose up agent: {reason}\n"


def test_links_in_the_place_of_its_logs_cost_the_words_only(run: RunPaths) -> None:
    precious = run.path / "precious"
    precious.write_text("keep me")
    made = created(run, Engine(created=[OLD]), Command(17))
    (run.logs / "compose.log").unlink()
    for name in ("agent.log", "compose.log"):
        (run.logs / name).symlink_to(precious)
    made.look()
    assert made.poll() == Ended(17)
    assert precious.read_text() == "keep me"


def test_a_start_that_is_stopped_creates_no_container_any_more(run: RunPaths) -> None:
    command = Command()
    made = created(run, Engine(created=[OLD]), command)
    made.terminate()
    assert command.code == 137
    made.look()
    assert made.poll() == Ended(137)


@pytest.mark.usefixtures("runs_here")
def test_a_container_that_somebody_removed_has_ended_nobody_knows_how(run: RunPaths) -> None:
    engine = Engine([running(os.getpid())])
    removed = child(run, engine)
    assert removed.poll() is None
    engine.answers = [None]
    removed.look()
    assert removed.poll() == Ended(LOST)


@needs_root
def test_root_gives_the_run_to_the_agent_and_nothing_beyond_it(run: RunPaths, runtime: ComposeRuntime) -> None:
    outside = run.path.parent.parent / "etc"
    outside.mkdir()
    (outside / "shadow").touch()
    (run.logs / "agent.log").touch()
    (run.path / "videos").symlink_to(outside)
    (run.path / "config.yaml").symlink_to(outside / "shadow")
    os.chown(run.path, ALICE, ALICE)
    runtime._chown_run()
    own = (run.path, run.logs, run.logs / "agent.log", run.path / "videos", run.path / "config.yaml")
    assert [path.lstat().st_uid for path in own] == [ALICE] * len(own)
    assert [path.stat().st_uid for path in (outside, outside / "shadow")] == [0, 0]


@needs_root
def test_root_doesnt_follow_a_run_s_folder_that_became_a_link(
    run: RunPaths, runtime: ComposeRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime, "check", lambda: None)
    outside = run.path.parent.parent / "etc"
    outside.mkdir()
    run.path.rename(run.path.with_name("aside"))
    run.path.symlink_to(outside)
    os.lchown(run.path, ALICE, ALICE)
    with pytest.raises(StartError, match=r"can't be given to the agent \(a link on the way that isn't root's\)"):
        runtime.start(Start(Role.AGENT))
    assert outside.stat().st_uid == 0
