"""A second start resumes the run: options are saved once and used again, and options given now win."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from inspect import signature
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from carla_launcher import config, down
from carla_launcher import up as up_command
from carla_launcher.act.journal import Journal
from carla_launcher.act.launcher_state import LauncherState, ProcessState, UnusableStateError, read_previous
from carla_launcher.cli import app
from carla_launcher.decide.decisions import Ending
from carla_launcher.observe.pools import Cards
from carla_launcher.options import RefusedError, RunOptions, RuntimeKind, SimulatorKind
from carla_launcher.places import SHIPPED
from carla_launcher.plugins.page import live_page
from carla_launcher.resolve import agent_args, resuming
from carla_launcher.resolve.resuming import RunRequest
from carla_launcher.up import locked
from carla_launcher.up import run as up_run
from carla_run.events import LauncherEvent
from carla_run.exits import Exit, ExitError
from carla_run.files import append_line
from carla_run.paths import RunPaths
from carla_run.readers import read_object
from carla_run.sealed import unsealed
from carla_td3.cli import commands, options


@dataclass(frozen=True)
class Start:
    """One start as the command line asks for it."""

    run: RunPaths
    options: RunOptions
    resume: bool = False


Up = Callable[..., Start]
Value = tuple[tuple[str, ...], Any]
"""Words of ``up``, and what they come to."""

OF_RUN = {"command", "program", "cwd"}
"""Options of `run`, which has tests of its own."""
KEPT = [name for name, field in RunOptions.model_fields.items() if not field.exclude and name not in OF_RUN]
"""Options that a later start takes up."""
GIVEN: dict[str, tuple[Value, Value]] = {
    "config": ((("--config", "a.yaml"), "a.yaml"), (("--config", "b.yaml"), "b.yaml")),
    "launcher_config": ((("--launcher-config", "l.yaml"), "l.yaml"), (("--launcher-config", "m.yaml"), "m.yaml")),
    "stack": ((("--stack", "here"), "here"), (("--stack", "there"), "there")),
    "runtime": ((("--runtime", "process"), RuntimeKind.PROCESS), (("--runtime", "auto"), RuntimeKind.AUTO)),
    "simulator": ((("--simulator", "carla"), SimulatorKind.CARLA), (("--simulator", "carla-lite"), SimulatorKind.LITE)),
    "quality": ((("--quality", "Low"), "Low"), (("--quality", "Epic"), "Epic")),
    "device": ((("--device", "cpu"), "cpu"), (("--device", "auto"), "auto")),
    "policy": ((("--policy", "agent_cpu,carla_low"), ("agent_cpu", "carla_low")), (("--policy", ""), None)),
    "map": ((("--map", "Lite02"), "Lite02"), (("--map", ""), None)),
    "seed": ((("--seed", "3"), 3), (("--seed", "0"), 0)),
    "simulator_host": ((("--simulator-host", "gpu-box"), "gpu-box"), (("--simulator-host", ""), None)),
    "port": ((("--port", "2100"), 2100), (("--port", "2200"), 2200)),
    "gpu": ((("--gpu", "0,1"), Cards(0, 1)), (("--gpu", "1"), Cards(1, 1))),
    "share_gpu": ((("--share-gpu",), True), (("--no-share-gpu",), False)),
    "collectors": ((("--collectors", "4"), 4), (("--collectors", "2"), 2)),
    "cluster": ((("--cluster", "auto"), "auto"), (("--cluster", ""), None)),
    "max_timesteps": ((("--max-timesteps", "6000"), 6000), (("--max-timesteps", "8000"), 8000)),
    "dashboard_port": ((("--dashboard-port", "0"), 0), (("--dashboard-port", "8080"), 8080)),
    "on_event": ((("--on-event", "cat >> heard"), "cat >> heard"), (("--on-event", ""), "")),
    "agent_args": (
        (("--", "--set", "a.b=1"), ("--set", "a.b=1")),
        (("--", ""), ()),
    ),
    "simulator_args": (
        (("--simulator-arg=-benchmark", "--simulator-arg", "fps=20"), ("-benchmark", "fps=20")),
        (("--simulator-arg", ""), ()),
    ),
}
"""Each option: as given at first, and as changed or removed later."""
PATHS = {"config", "launcher_config", "stack"}
WRONG = {"no": "type"}


@pytest.fixture
def up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Up:
    """Return what the command line makes of ``up --run-name r1`` with more words, from a folder of its own."""
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b", "l", "m"):
        (tmp_path / f"{name}.yaml").write_text(SHIPPED.read_text(encoding="utf-8"), encoding="utf-8")
    starts: list[Start] = []

    def run(run: RunPaths, options: RunOptions, resume: bool, _say: Callable[[str], None]) -> Ending:
        starts.append(Start(run, options, resume))
        return Ending(Exit.FINISHED, "")

    monkeypatch.setattr(up_command, "run", run)

    def ask(*words: str) -> Start:
        result = CliRunner().invoke(app, ["up", "--run-name", "r1", *words])
        assert result.exit_code == 0, result.output
        return starts[-1]

    return ask


def run_request(start: Start) -> RunRequest:
    return resuming.run_request(start.run, start.options, start.resume)


def begun(start: Start | RunRequest, state: str = "running") -> RunPaths:
    """Have the run begun as its launcher does that and is killed then; return its paths."""
    start.run.logs.mkdir(parents=True, exist_ok=True)
    start.run.path.chmod(0o755)
    lay_a_row(start.run)
    save(start, state)
    return start.run


def save(start: Start | RunRequest, state: str = "running") -> None:
    config_ = {} if start.options.config else {"config": Path("a.yaml").absolute()}
    asked = start.options.model_copy(update=config_).model_dump(mode="json", exclude_unset=True)
    Journal(start.run, LauncherState("r1", asked, "127.0.0.1", 2000, state=state), time.time).save()


def lay_a_row(run: RunPaths) -> None:
    (run.path / "replay").mkdir(parents=True, exist_ok=True)
    (run.path / "replay" / "published").write_bytes((7).to_bytes(8, sys.byteorder))


def value_of(name: str, value: Any) -> Any:
    return Path(value).absolute() if name in PATHS else value


def test_every_option_has_its_case() -> None:
    assert set(GIVEN) == set(KEPT)


@pytest.mark.parametrize(("state", "again"), [("running", ()), ("stopped", ("--resume",))])
@pytest.mark.parametrize("name", KEPT)
def test_what_was_asked_for_holds_at_the_second_start(up: Up, name: str, state: str, again: tuple[str, ...]) -> None:
    (words, value), _ = GIVEN[name]
    first = up(*words)
    begun(first, state)
    found = run_request(up(*again))
    assert getattr(first.options, name) == getattr(found.options, name) == value_of(name, value)
    assert value_of(name, value) != RunOptions.model_fields[name].default
    assert found.notes == ()


@pytest.mark.parametrize("name", KEPT)
def test_what_is_given_anew_wins_and_is_said_in_a_line(up: Up, name: str) -> None:
    (words, value), (anew, other) = GIVEN[name]
    begun(up(*words, *(() if name == "agent_args" else ("--", "--debug"))))
    found = run_request(up(*anew))
    assert getattr(found.options, name) == value_of(name, other) != value_of(name, value)
    (note,) = found.notes
    (key,) = found.changed
    assert key == ("a.b" if name == "agent_args" else name)
    assert note == f"{key}: {found.changed[key][0]} → {found.changed[key][1]}"
    if name != "agent_args":
        assert found.options.agent_args == ("--debug",)


def test_the_line_has_the_values_as_a_person_gives_them(up: Up) -> None:
    begun(up("--max-timesteps", "6000", "--policy", "agent_cpu", "--on-event", "cat", "--", "--set", "td3.gamma=0.9"))
    again = up("--max-timesteps", "8000", "--policy", "", "--on-event", "", "--runtime", "process", "--", "--seed=4")
    assert run_request(again).notes == (
        "policy: agent_cpu → not given",
        "max_timesteps: 6000 → 8000",
        "on_event: cat → not given",
        "runtime: not given → process",
        "seed: not given → 4",
    )


def test_only_what_was_given_is_saved(up: Up) -> None:
    run = begun(up("--seed", "3"))
    assert read_object(run.launcher_state)["options"] == {"seed": 3, "config": str(Path("a.yaml").absolute())}


def test_a_third_start_goes_by_the_second(up: Up) -> None:
    begun(up("--seed", "3", "--", "--set", "a=1", "--set", "b=1"))
    begun(run_request(up("--max-timesteps", "9", "--", "--set", "b=2")))
    third = run_request(up()).options
    assert (third.seed, third.max_timesteps, third.agent_args) == (3, 9, ("--set", "a=1", "--set", "b=2"))


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (("--set", "a=1"), ("--set", "b=2"), ("--set", "a=1", "--set", "b=2")),
        (("--set", "a=1", "--set", "b=1"), ("--set", "a=2"), ("--set", "b=1", "--set", "a=2")),
        (("--set=a=1",), ("--set", " a =2", "--set", "a=3"), ("--set", "a=3")),
        (("--eval-freq", "5"), ("--set", "evaluation.every_steps=7"), ("--set", "evaluation.every_steps=7")),
        (("--set", "evaluation.every_steps=7"), ("--eval-freq=5",), ("--eval-freq", "5")),
        (
            ("--num-eval-episodes", "5"),
            ("--set", "evaluation.episodes=3"),
            ("--set", "evaluation.final_episodes=5", "--set", "evaluation.episodes=3"),
        ),
        (("--debug",), ("--no-such-option", "-1"), ("--debug", "--no-such-option", "-1")),
    ],
)
def test_the_agent_s_words_win_key_by_key(
    up: Up, first: tuple[str, ...], second: tuple[str, ...], expected: tuple[str, ...]
) -> None:
    begun(up("--", *first))
    assert run_request(up("--", *second)).options.agent_args == expected


@pytest.mark.parametrize("name", agent_args.OWN)
def test_an_option_of_both_programs_has_its_last_value(up: Up, name: str) -> None:
    (words, _), (anew, other) = GIVEN[name]
    begun(up(*words))
    second = run_request(up("--", "--set", f"{agent_args.OWN[name]}=5"))
    assert getattr(second.options, name) is None
    assert second.options.agent_args == ("--set", f"{agent_args.OWN[name]}=5")
    begun(second)
    third = run_request(up(*anew)).options
    assert (getattr(third, name), third.agent_args) == (other, ())


def test_the_agent_s_named_options_are_these() -> None:
    """Each with the keys that it sets there."""
    taken = {name: keys for name, keys in options.KEYS.items() if name in signature(commands.train).parameters}
    assert {f"--{name.replace('_', '-')}": keys for name, keys in taken.items()} == agent_args.KEYS


def test_another_simulator_host_has_its_own_port(up: Up) -> None:
    begun(up("--port", "2100"))
    assert run_request(up("--simulator-host", "gpu-box")).options.port is None
    assert run_request(up("--simulator-host", "gpu-box", "--port", "2300")).options.port == 2300


def test_a_map_s_file_is_found_from_another_folder(up: Up, tmp_path: Path) -> None:
    assert up("--map", "mine.xodr").options.map == str(tmp_path / "mine.xodr")


def test_a_first_start_that_came_to_nothing_is_no_run(up: Up) -> None:
    run = begun(up("--seed", "3", "--", "--no-such-option"), "stopped")
    (run.path / "replay" / "published").unlink()
    found = run_request(up("--config", "a.yaml"))
    assert (found.options.seed, found.options.agent_args) == (None, ())


# Whose command it is


@pytest.mark.parametrize(
    ("name", "mode", "why"),
    [
        ("launcher.json", 0o664, "other users can write"),
        ("launcher.json", 0o646, "other users can"),
        (".", 0o775, "other users can"),
    ],
)
def test_a_command_is_taken_from_no_file_that_others_can_write(up: Up, name: str, mode: int, why: str) -> None:
    run = begun(up("--on-event", "cat", "--seed", "3"))
    (run.path / name).chmod(mode)
    found = run_request(up())
    assert (found.options.on_event, found.options.seed) == ("", 3)
    (note,) = found.notes
    assert note.startswith("--on-event of the earlier start isn't used, since ")
    assert why in note
    assert str(run.path / name) in note
    given = run_request(up("--on-event", "tac"))
    assert (given.options.on_event, given.notes) == ("tac", ("on_event: cat → tac",))


def test_a_command_is_taken_from_no_file_of_another_user(up: Up, monkeypatch: pytest.MonkeyPatch) -> None:
    begun(up("--on-event", "cat", "--launcher-config", "l.yaml"))
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    found = run_request(up())
    assert (found.options.on_event, found.options.launcher_config) == ("", SHIPPED)
    assert [note.split()[0] for note in found.notes] == ["--on-event", "--launcher-config"]
    assert all(f"belongs to user {owner}, not to the launcher's user {owner + 1}" in note for note in found.notes)


def test_a_launcher_configuration_of_ones_own_is_believed(up: Up) -> None:
    """It can name a command, too; but no other user can have written this one."""
    run = begun(up("--launcher-config", "l.yaml"))
    run.launcher_state.chmod(0o666)
    Path("l.yaml").chmod(0o644)
    assert run_request(up()).options.launcher_config == Path("l.yaml").absolute()
    Path("l.yaml").chmod(0o666)
    assert run_request(up()).options.launcher_config == SHIPPED


def stopped_by(monkeypatch: pytest.MonkeyPatch, *words: str) -> tuple[config.LauncherConfig, str]:
    """Return the launcher's configuration by which ``down`` and ``dashboard`` go, and what they say of it."""
    found: list[config.LauncherConfig] = []

    def stop(_: RunPaths, limits: config.LauncherConfig) -> str:
        found.append(limits)
        return "It is down."

    monkeypatch.setattr(down, "run", stop)
    monkeypatch.setattr(live_page, "serve", lambda _run, _port, limits, *_, **__: found.append(limits))
    said = [CliRunner().invoke(app, [each, "r1", *words]).output for each in ("down", "dashboard")]
    assert found[0] == found[1], "both stop a run"
    return found[0], said[1]


def opened_to_all(*paths: Path) -> None:
    for path in paths:
        path.chmod(0o666)


def own_limits(poll_s: float) -> None:
    text = Path("l.yaml").read_text(encoding="utf-8")
    Path("l.yaml").write_text(text.replace("poll_s: 0.2", f"poll_s: {poll_s}"), encoding="utf-8")


def test_a_run_is_stopped_by_its_own_launcher_configuration(up: Up, monkeypatch: pytest.MonkeyPatch) -> None:
    own_limits(0.3)
    begun(up("--launcher-config", "l.yaml"))
    assert stopped_by(monkeypatch) == (config.load(Path("l.yaml")), "")
    assert stopped_by(monkeypatch, "--launcher-config", "m.yaml")[0] == config.load(Path("m.yaml"))


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda _: Path("l.yaml").unlink(), "l.yaml: can't be read"),
        (lambda run: opened_to_all(run.launcher_state, Path("l.yaml")), "other users can write"),
        (lambda run: spoiled(run, "port", value=WRONG), "`port` is"),
    ],
    ids=["gone", "open", "unusable"],
)
def test_else_the_shipped_one_counts_and_why_is_said(
    up: Up, monkeypatch: pytest.MonkeyPatch, spoil: Callable[[RunPaths], object], why: str
) -> None:
    own_limits(0.3)
    run = begun(up("--launcher-config", "l.yaml"))
    spoil(run)
    limits, said = stopped_by(monkeypatch)
    assert limits == config.load()
    assert why in said
    assert "the shipped one is used" in said or "shipped configuration is used" in said


def test_a_stack_of_others_isnt_taken_down_by_their_files(up: Up) -> None:
    run = begun(up("--stack", "elsewhere", "--runtime", "compose"))
    before = resuming.previous_run(run)
    assert before is not None
    assert before.believed.stack == Path("elsewhere").absolute()
    run.launcher_state.chmod(0o666)
    before = resuming.previous_run(run)
    assert before is not None
    assert before.believed.stack == RunOptions().stack
    assert before.believed.runtime == "compose"


def test_what_a_launcher_writes_ignores_the_umask(up: Up) -> None:
    start, before = up("--on-event", "cat"), os.umask(0)
    try:
        with locked(start.run, config.load()):
            save(start)
    finally:
        os.umask(before)
    lay_a_row(start.run)
    assert run_request(up()).options.on_event == "cat"
    assert start.run.path.stat().st_mode & 0o777 == 0o755
    assert start.run.launcher_state.stat().st_mode & 0o777 == 0o644


def test_the_launchers_configuration_is_read_again(up: Up) -> None:
    begun(up("--launcher-config", "l.yaml"))
    text = Path("l.yaml").read_text(encoding="utf-8")
    Path("l.yaml").write_text(text.replace("poll_s: 0.2", "poll_s: 0.3"), encoding="utf-8")
    assert config.load(run_request(up()).options.launcher_config).poll_s == 0.3
    Path("l.yaml").unlink()
    start = up()
    with pytest.raises(config.LauncherConfigError, match=r"l\.yaml: can't be read") as refused:
        up_run(start.run, start.options, start.resume, print)
    assert refused.value.code == Exit.BAD_CONFIG


# A launcher.json that is of no use


def spoiled(run: RunPaths, *path: str, value: Any) -> None:
    found = unsealed(read_object(run.launcher_state))
    inner = found
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    run.launcher_state.write_text(json.dumps(found), encoding="utf-8")


def check_it_is_said_and_resumed(up: Up, run: RunPaths, why: str) -> None:
    run.config.write_text("{}", encoding="utf-8")
    with pytest.raises(RefusedError, match="add --resume") as refused:
        run_request(up())
    assert why in str(refused.value)
    assert refused.value.code == Exit.BAD_CONFIG
    found = run_request(up("--resume", "--max-timesteps", "9"))
    assert (found.before, found.options.max_timesteps) == (None, 9)
    assert found.options.config == run.config
    (note,) = found.notes
    assert why in note
    assert "\n" not in note


@pytest.mark.parametrize(
    "path",
    [*((each.name,) for each in fields(LauncherState)), *(("options", name) for name in KEPT)],
    ids=".".join,
)
def test_a_value_of_another_type_is_one_sentence(up: Up, path: tuple[str, ...]) -> None:
    run = begun(up())
    spoiled(run, *path, value=WRONG)
    check_it_is_said_and_resumed(up, run, f"launcher.json can't be used: `{'.'.join(path)}")


@pytest.mark.parametrize("path", [("chosen",), ("options", "colour"), ("agent",), ("taken",)], ids=".".join)
def test_so_is_a_key_that_nobody_knows(up: Up, path: tuple[str, ...]) -> None:
    run = begun(up())
    spoiled(run, *path, value={"pid": 3, "colour": 1} if path == ("agent",) else [{"colour": 1}])
    check_it_is_said_and_resumed(up, run, f"launcher.json can't be used: `{'.'.join(path)}")


@pytest.mark.parametrize("text", ["", "{", "[1]", "null", "{}", '"' * 9, "[" * 100_000])
def test_so_is_what_is_no_object(up: Up, text: str) -> None:
    run = begun(up())
    run.launcher_state.write_text(text, encoding="utf-8")
    check_it_is_said_and_resumed(up, run, "launcher.json can't be used: `run` is missing")


def test_no_flipped_bit_is_taken_for_a_value(up: Up) -> None:
    run = begun(up())
    whole = run.launcher_state.read_bytes()
    before, damaged = read_previous(run), 0
    assert before is not None
    for place in range(0, 8 * len(whole), 37):
        content = bytearray(whole)
        content[place // 8] ^= 1 << place % 8
        run.launcher_state.write_bytes(content)
        try:
            found = read_previous(run)
        except UnusableStateError:
            damaged += 1
        else:  # white space, or the checksum's own name
            assert found == before, place
    assert damaged > len(whole) // 10


def test_so_is_one_that_cannot_be_read(up: Up) -> None:
    run = begun(up())
    run.launcher_state.unlink()
    run.launcher_state.mkdir()
    check_it_is_said_and_resumed(up, run, "launcher.json can't be read (Is a directory)")


def test_without_one_resume_goes_by_the_runs_configuration(up: Up) -> None:
    """As after plain training, or after `docker compose up`."""
    run = RunPaths(Path("runs") / "r1")
    lay_a_row(run)
    run.config.write_text("{}", encoding="utf-8")
    found = run_request(up("--resume"))
    assert (found.options.config, found.before, found.notes) == (run.config, None, ())
    with pytest.raises(RefusedError, match="already holds a run: add --resume"):
        run_request(up())


def test_resume_of_no_run_says_that_one_begins(up: Up) -> None:
    (note,) = run_request(up("--resume")).notes
    assert note == "runs/r1 holds no run to resume; the run uses lowmem and the options given now."


def test_down_says_that_it_cannot_know_of_containers(up: Up) -> None:
    run = begun(up())
    spoiled(run, "port", value=WRONG)
    with pytest.raises(ExitError, match=r"`port` is .*docker ps --filter label="):
        down.run(run, config.load())


# Of a command, without launcher.json or with one that others can write


@pytest.fixture
def ran(tmp_path: Path) -> RunPaths:
    """Return the run of a command, stopped in order."""
    run = RunPaths(tmp_path / "runs" / "r1")
    run.logs.mkdir(parents=True)
    run.path.chmod(0o755)
    asked = RunOptions(command=("true",), program=tmp_path / "train.yaml", simulator=SimulatorKind.NONE)
    (tmp_path / "train.yaml").write_text("resume: {words: [--resume]}", encoding="utf-8")
    state = LauncherState("r1", asked.model_dump(mode="json", exclude_unset=True), "", 0, agent=ProcessState(1))
    journal = Journal(run, replace(state, state="stopped"), time.time)
    journal.event(LauncherEvent.RUN_STARTED, command=("true",))
    journal.event(LauncherEvent.AGENT_STARTED)
    return run


LOSES: dict[str, tuple[Callable[[RunPaths], object], str]] = {
    "zeroed": (lambda run: run.launcher_state.write_bytes(bytes(300)), "launcher.json can't be used"),
    "gone": (lambda run: run.launcher_state.unlink(), "run --resume --run-name r1 -- python train.py"),
    "open": (lambda run: run.launcher_state.chmod(0o664), "The command of the earlier start isn't used, since other"),
}


@pytest.mark.parametrize(("lose", "why"), LOSES.values(), ids=LOSES)
@pytest.mark.parametrize("of_command", [True, False])
def test_a_lost_command_is_asked_for(
    ran: RunPaths, lose: Callable[[RunPaths], object], why: str, of_command: bool
) -> None:
    """Else the agent would train in its folder."""
    lose(ran)
    with pytest.raises(RefusedError, match=" after --") as refused:
        resuming.run_request(ran, RunOptions(), resume=True, of_command=of_command)
    assert why in str(refused.value)


@pytest.mark.parametrize("lose", [LOSES["zeroed"][0], LOSES["gone"][0]])
def test_a_command_goes_on_without_its_state(ran: RunPaths, lose: Callable[[RunPaths], object]) -> None:
    lose(ran)
    given = RunOptions(command=("true",), simulator=SimulatorKind.NONE)
    with pytest.raises(RefusedError, match="already holds a run"):
        resuming.run_request(ran, given)
    assert resuming.run_request(ran, given, resume=True).began


def test_a_run_that_ended_on_a_full_disk_wasnt_killed(ran: RunPaths) -> None:
    spoiled(ran, "state", value="running")
    assert [each.killed for each in [resuming.previous_run(ran)] if each] == [True]
    append_line(ran.launcher_events, b'{"event": "run_ended", "cause": "the agent finished", "exit_code": 0}')
    with pytest.raises(RefusedError, match="already holds a run: add --resume"):
        resuming.run_request(ran, RunOptions())


def test_a_lost_program_file_is_asked_for(ran: RunPaths) -> None:
    """Without it the command would begin from its beginning."""
    ran.launcher_state.chmod(0o664)
    with pytest.raises(RefusedError, match=r"--program of the earlier start isn't used, since .*: give it again\.$"):
        resuming.run_request(ran, RunOptions(command=("true",)), resume=True)


def test_an_agents_run_takes_no_command_even_with_resume(tmp_path: Path) -> None:
    run = RunPaths(tmp_path / "first")
    run.path.mkdir()
    lay_a_row(run)
    for resume in (False, True):
        with pytest.raises(RefusedError, match="holds a run of the agent: choose another --run-name for the command"):
            resuming.run_request(run, RunOptions(command=("true",)), resume, of_command=True)


def test_no_command_starts_the_agent(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match="give the command after --"):
        resuming.run_request(RunPaths(tmp_path / "new"), RunOptions(), resume=True, of_command=True)


def test_an_evaluation_is_known_without_its_state(tmp_path: Path) -> None:
    run = RunPaths(tmp_path / "night")
    run.path.mkdir()
    Journal(run, LauncherState("night", {}, "", 0), time.time).event(LauncherEvent.ITEMS, items=("1",), drives=2)
    run.launcher_state.unlink()
    with pytest.raises(RefusedError, match="is an evaluation by `routes`"):
        resuming.run_request(run, RunOptions())
