"""A command in the agent's place: its words, what is refused of it, and what its rungs free until that is measured."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from carla_launcher import config
from carla_launcher.act.command import Command
from carla_launcher.act.runtime import StartError
from carla_launcher.decide.ladder import build_ladder, with_program
from carla_launcher.observe.pools import PoolKind, Provenance
from carla_launcher.options import RefusedError, RunOptions, SimulatorKind
from carla_launcher.resolve.commands import CommandSizes, command_of, limits_with
from carla_launcher.sizes import CPU, DEVICE
from carla_run.configuration import program_file
from carla_run.configuration.program_file import ProgramFile, ProgramFileError
from carla_run.exits import ExitError
from tests.conftest import REPOSITORY

VRAM, RAM = PoolKind.VRAM, PoolKind.RAM
BATCH = {"name": "less", "values": {"batch": [256, 128, 64]}}
PLACES = {"host": "127.0.0.1", "port": "2000", "tm_port": "8000", "gpu": "0"}


def file_with(**values: Any) -> ProgramFile:
    return program_file.validate(values, "train.yaml")


def command(*words: str, folder: Path = Path(), **values: Any) -> Command:
    return Command(words or ("train",), file_with(**values), folder)


@pytest.mark.parametrize(
    ("words", "setting", "expected"),
    [
        (("train", "--batch", "256"), {"word": "--batch"}, ("train", "--batch", "128")),
        (("train", "--batch=256", "-v"), {"word": "--batch"}, ("train", "--batch=128", "-v")),
        (("train",), {"word": "--batch"}, ("train", "--batch", "128")),
        (("train", "t.batch=256"), {"word": "t.batch="}, ("train", "t.batch=128")),
        (("train",), {"word": "t.batch="}, ("train", "t.batch=128")),
        (("train", "--batch", "256", "--batch", "64"), {"word": "--batch"}, ("train", *("--batch", "128") * 2)),
        (("train", "--batch", "null"), {"word": "--batch"}, ("train", "--batch", "128")),
        (("train", "t.batch=256", "t.batch=64"), {"word": "t.batch="}, ("train", "t.batch=128", "t.batch=128")),
        (("train",), {"environment": "BATCH"}, ("train",)),
    ],
)
def test_a_rungs_value_reaches_the_program(words: tuple[str, ...], setting: Any, expected: tuple[str, ...]) -> None:
    started = command(*words, settings={"batch": setting}).start(False, {"batch": 128}, PLACES, Path())
    assert started == (expected, {"BATCH": "128"} if "environment" in setting else {})


@pytest.mark.parametrize(
    ("named", "file"),
    [
        (("--config", "{}"), "conf.yaml"),
        (("--config={}",), "conf.yaml"),
        (("config=./{}",), "conf.yaml"),
        (("{}",), "lr=0.1.yaml"),
        (("--config={}",), "lr=0.1.yaml"),
    ],
)
def test_a_key_of_its_yaml_is_changed_in_a_copy(tmp_path: Path, named: tuple[str, ...], file: str) -> None:
    content = "optim: {batch: 256, lr: 0.1}\n"
    (tmp_path / file).write_text(content)
    settings = {"batch": {"yaml": file, "key": "optim.batch"}}
    given = (sys.executable, *(word.format(file) for word in named), "--name=a")
    (tmp_path / "train.yaml").write_text(json.dumps({"settings": settings}))
    asked = command_of(RunOptions(command=given, program=tmp_path / "train.yaml", cwd=tmp_path))
    assert asked is not None
    copy = tmp_path / "run" / "0" / file
    words, _ = asked.start(False, {"batch": 64}, PLACES, tmp_path / "run")
    assert words == (sys.executable, *(word.replace("./", "").format(copy) for word in named), "--name=a")
    assert yaml.safe_load(copy.read_text()) == {"optim": {"batch": 64, "lr": 0.1}}
    assert (asked.value("batch"), (tmp_path / file).read_text()) == (256, content)


def test_yaml_files_of_one_name_have_a_copy_each(tmp_path: Path) -> None:
    files = {"batch": "train/conf.yaml", "cars": "env/conf.yaml"}
    for file in files.values():
        (tmp_path / file).parent.mkdir()
        (tmp_path / file).write_text(f"of: {file}\n")
    asked = command(*files.values(), folder=tmp_path, settings={key: {"yaml": file} for key, file in files.items()})
    words, _ = asked.start(False, {"batch": 64, "cars": 5}, PLACES, tmp_path / "run")
    assert [yaml.safe_load(Path(word).read_text()) for word in words] == [
        {"of": "train/conf.yaml", "batch": 64},
        {"of": "env/conf.yaml", "cars": 5},
    ]


UNFIT_YAML = [
    ("optim: [256]", "`optim` is a list; expected keys below it, since `optim.batch` is a setting"),
    ("optim: 256", "`optim` is 256; expected keys below it"),
    ("- optim", "all of it is a list; expected keys with their values"),
    ("256", "all of it is 256; expected keys with their values"),
    ("optim: {batch", "isn't YAML that can be read"),
    ("optim: 2026-13-45", "isn't YAML that can be read"),
    ("optim: !tensor 1", "isn't YAML that can be read"),
]


@pytest.mark.parametrize(("content", "expected"), UNFIT_YAML)
def test_a_yaml_without_a_place_for_a_setting_is_refused_and_nothing_of_it_is_lost(
    tmp_path: Path, content: str, expected: str
) -> None:
    (tmp_path / "conf.yaml").write_text(content)
    settings = {"batch": {"yaml": "conf.yaml", "key": "optim.batch"}}
    (tmp_path / "train.yaml").write_text(json.dumps({"settings": settings}))
    words = (sys.executable, "conf.yaml")
    asked = RunOptions(command=words, program=tmp_path / "train.yaml", cwd=tmp_path, simulator=SimulatorKind.NONE)
    with pytest.raises(RefusedError, match=f"^{re.escape(f'{tmp_path}/conf.yaml: {expected}')}"):
        command_of(asked)
    (tmp_path / "run").mkdir()
    with pytest.raises(StartError, match=f"^{re.escape(f'{tmp_path}/conf.yaml: {expected}')}"):
        command(*words, folder=tmp_path, settings=settings).start(False, {"batch": 64}, PLACES, tmp_path / "run")
    assert [*(tmp_path / "run").iterdir()] == []


@pytest.mark.parametrize("content", ["", "optim:\n", "optim: {}\n", "other: 1\n"])
def test_a_section_without_keys_gets_the_value(tmp_path: Path, content: str) -> None:
    (tmp_path / "conf.yaml").write_text(content)
    asked = command("conf.yaml", folder=tmp_path, settings={"batch": {"yaml": "conf.yaml", "key": "optim.batch"}})
    asked.start(False, {"batch": 64}, PLACES, tmp_path / "run")
    kept = {"other": 1} if "other" in content else {}
    assert yaml.safe_load((tmp_path / "run" / "0" / "conf.yaml").read_text()) == {**kept, "optim": {"batch": 64}}


@pytest.mark.parametrize("word", ["[", "{a", "a: b: c", "2026-13-45", "!x y"])
def test_a_word_that_is_no_yaml_is_a_value_as_it_stands(word: str) -> None:
    assert command("train", "--name", word).value("name") == word


def test_only_its_own_placeholders_are_filled_in_and_resume_words_added() -> None:
    asked = command("train", "{host}:{port}", '{"lr": {x}}', resume={"words": ["--load", "{tm_port}"]})
    assert asked.start(False, {}, PLACES, Path())[0] == ("train", "127.0.0.1:2000", '{"lr": {x}}')
    assert asked.start(True, {}, PLACES, Path())[0][3:] == ("--load", "8000")
    other = command("train", resume={"command": ["again"]})
    assert other.start(True, {}, PLACES, Path())[0] == ("again",)
    by_itself = command("train", resume={"words": []})
    assert by_itself.start(True, {}, PLACES, Path())[0] == ("train",)
    assert (by_itself.resumes(0), command("train").resumes(0)) == (True, False)


@pytest.mark.parametrize("folder", ["plain", "lr=[0.1,0.2] *"])
def test_it_resumes_from_the_newest_checkpoint_of_this_run(tmp_path: Path, folder: str) -> None:
    tmp_path = tmp_path / folder
    resume = {"words": ["--load", "{checkpoint}"], "checkpoint": "saved/**/*.zip"}
    asked = command("train", folder=tmp_path, resume=resume)
    (tmp_path / "saved" / "a").mkdir(parents=True)
    for time_s, name in ((50, "before.zip"), (200, "a/2.zip"), (100, "1.zip")):
        path = tmp_path / "saved" / name
        path.touch()
        os.utime(path, (time_s, time_s))

    assert (asked.resumes(100), asked.resumes(201)) == (True, False)
    newest, other = asked.checkpoints(since_s=100)
    assert [each.name for each in (newest, other)] == ["2.zip", "1.zip"]
    assert asked.start(True, {}, {**PLACES, "checkpoint": str(newest)}, tmp_path)[0] == ("train", "--load", str(newest))
    assert asked.start(True, {}, PLACES, tmp_path)[0] == ("train",)


def test_a_checkpoint_may_be_in_the_users_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "1.zip").touch()
    assert command("train", resume={"words": [], "checkpoint": "~/*.zip"}).checkpoints(0) == [tmp_path / "1.zip"]


def test_a_checkpoint_that_is_removed_meanwhile_is_none(tmp_path: Path) -> None:
    asked = command("train", folder=tmp_path, resume={"words": ["--load", "{checkpoint}"], "checkpoint": "*.ckpt"})
    (tmp_path / "last.ckpt").symlink_to("epoch3.ckpt")
    assert (asked.checkpoints(since_s=0), asked.resumes(0)) == ([], False)
    (tmp_path / "epoch4.ckpt").touch()
    assert [each.name for each in asked.checkpoints(since_s=0)] == ["epoch4.ckpt"]


def with_docker(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a docker on the path, which does nothing."""
    (folder / "docker").write_text("#!/bin/sh\n")
    (folder / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")


@pytest.mark.parametrize(
    ("words", "values", "expected"),
    [
        (("no-such-program",), {}, "no-such-program: the command isn't there"),
        (("./train.yaml",), {}, "./train.yaml: the command can't be executed"),
        (("docker", "run", "-d", "x"), {}, "goes into the background"),
        ((sys.executable, "{port}"), {}, "The command, or its resume, names {port}, and --simulator none has none"),
        ((sys.executable,), {"resume": {"words": ["{host}"]}}, "or its resume, names {host}, and --simulator none"),
        ((sys.executable,), {"settings": {"a": {"yaml": "b.yaml"}}}, "settings.a.yaml is b.yaml, which isn't in"),
        ((sys.executable,), {"settings": {"a": {"yaml": "train.yaml"}}}, "no word of the command names it"),
        ((sys.executable,), {"resume": {"command": ["no-such"]}}, "no-such: the command isn't there"),
        (
            (sys.executable, "train.yaml"),
            {"settings": {"a": {"yaml": "train.yaml"}}, "resume": {"command": [sys.executable, "--resume"]}},
            "settings.a.yaml is train.yaml, and no word of resume.command names it: name it there.",
        ),
    ],
)
def test_a_command_that_cant_be_is_refused_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], values: Any, expected: str
) -> None:
    with_docker(tmp_path, monkeypatch)
    (tmp_path / "train.yaml").write_text(json.dumps(values))
    asked = RunOptions(command=words, program=tmp_path / "train.yaml", cwd=tmp_path, simulator=SimulatorKind.NONE)
    with pytest.raises(RefusedError) as refused:
        command_of(asked)
    assert expected in str(refused.value)


def contained(folder: Path, monkeypatch: pytest.MonkeyPatch, values: Any, *options: str) -> RunOptions:
    """Return what asks for a program in a container."""
    with_docker(folder, monkeypatch)
    (folder / "train.yaml").write_text(json.dumps(values))
    return RunOptions(command=("docker", "run", *options, "image"), program=folder / "train.yaml", cwd=folder)


CONTAINED = [
    {"resume": {"words": [], "checkpoint": "saved/**/[0-9]*.zip"}},
    {"done": {"file": "saved/trained.txt"}},
    {"alive": {"file": "saved/step.txt", "within_s": 1}},
    {"alive": {"folder": "saved", "within_s": 1}},
    {"checkpoint": {"signal": "SIGUSR1", "shows": "saved/last"}},
]


@pytest.mark.parametrize("values", CONTAINED, ids=".".join)
@pytest.mark.parametrize(
    ("options", "seen"),
    [
        ("--rm", False),
        ("-v {0}:/work:ro", False),
        ("-v /elsewhere:/work", False),
        ("-v {0}:/work", True),
        ("-v ./saved:/work/saved", True),
        ("--mount type=bind,src={0},dst=/work", True),
    ],
)
def test_what_a_container_writes_must_be_on_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, values: Any, options: str, seen: bool
) -> None:
    asked = contained(tmp_path, monkeypatch, values, *options.format(tmp_path).split())
    if seen:
        assert command_of(asked) is not None
        return
    with pytest.raises(RefusedError, match=f"no writable mount of the container is there: add -v {tmp_path}"):
        command_of(asked)


@pytest.mark.parametrize("values", [{}, {"resume": {"words": []}}, {"done": {"log": "done"}}])
def test_a_container_without_such_files_needs_no_mount(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, values: Any
) -> None:
    assert command_of(contained(tmp_path, monkeypatch, values)) is not None


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"alive": {"log": ".*", "within_s": 9}}, "alive.log is '.*', which every line fits: it can't fail"),
        ({"alive": {"log": "(", "within_s": 9}}, "alive.log is '('; expected a regular expression"),
        ({"alive": {"log": "a"}}, "`alive.within_s` is missing"),
        ({"alive": {"within_s": 9}}, "alive has none of them; expected one of file, folder, log"),
        ({"alive": {"log": "a", "file": "b", "within_s": 9}}, "alive has file and log; expected one of"),
        ({"alive": {"file": "b", "within_s": 9, "first_within_s": 3}}, "alive.first_within_s is 3; expected at least"),
        ({"checkpoint": {"shows": "a"}}, "checkpoint has none of them; expected one of signal, touch"),
        ({"settings": {"a": {}}}, "a setting has none of them; expected one of word, environment, yaml"),
        ({"settings": {"a": {"environment": "A=B"}}}, "'A=B' can't be the name of an environment variable"),
        ({"resume": {}}, "resume has none of them; expected one of words, command"),
        ({"resume": {"words": [], "command": ["a"]}}, "resume has words and command; expected one of"),
        ({"exits": {"0": "well"}}, "`exits.0` is 'well'; expected 'finished', 'stopped'"),
        ({"resume": {"words": ["{checkpoint}"]}}, "resume names {checkpoint}, and resume.checkpoint doesn't say"),
        ({"done": {"file": "a", "log": "b"}}, "done has file and log; expected one of them"),
        ({"done": {"log": ".*"}}, "done.log is '.*', which every line fits: it can't fail"),
        (
            {"alive": {"folder": "a", "step_in_name": "m_\\d+", "within_s": 9}},
            "expected one group, the step",
        ),
        (
            {"alive": {"folder": "a", "step_in_name": "(", "within_s": 9}},
            "step_in_name is '('; expected a regular",
        ),
        ({"alive": {"folder": "a", "step_in_name": "(.*)", "within_s": 9}}, "which every name fits: it can't fail"),
        ({"alive": {"folder": "a", "step_in_name": "a/(.+)", "within_s": 9}}, "fits no name: none has a /"),
        (
            {"alive": {"log": "a", "step_in_name": "a(.+)", "within_s": 9}},
            "needs the folder of these files",
        ),
        ({"done": {"exits_within_s": 9}}, "done.exits_within_s needs a sign that the work is finished"),
        ({"memory": {"vram": 0}}, "`memory.vram` is 0; expected more than 0"),
        ({"done": {"log": ""}}, "done.log is '', which every line fits: it can't fail"),
        ({"done": {"file": ""}}, "`done.file` is ''; expected a path"),
        ({"alive": {"folder": "", "within_s": 9}}, "`alive.folder` is ''; expected a path"),
        ({"checkpoint": {"signal": "SIGUSR1", "shows": ""}}, "`checkpoint.shows` is ''; expected a path"),
        ({"exits": {-9: "out_of_memory"}}, "exits has -9; expected codes from 0 to 255, 128 + n for signal n"),
        ({"rungs": [{**BATCH, "pools": []}]}, "`rungs.0.pools` is []; expected at least 1 in it"),
        ({"rungs": [{**BATCH, "name": ""}]}, "`rungs.0.name` is ''; expected"),
    ],
)
def test_a_mistake_in_a_program_file_is_one_sentence(values: Any, expected: str) -> None:
    with pytest.raises(ProgramFileError) as refused:
        file_with(**values)
    assert expected in str(refused.value)


def test_a_rung_that_takes_less_of_nothing_is_refused() -> None:
    sizes = CommandSizes(command("train", rungs=[{"name": "less", "values": {"batch": "half"}}]))
    with pytest.raises(ExitError, match="nothing says what batch is: give it in the command, or as"):
        sizes.config()


def sizes_of(tmp_path: Path, evaluating: Any = None, **values: Any) -> CommandSizes:
    by_phase = {"evaluating": evaluating or {}}
    rungs = [{**BATCH, **values}]
    words = ("train", "--batch", "256")
    sizes = CommandSizes(command(*words, rungs=rungs, memory={"ram": 3000}, memory_by_phase=by_phase))
    sizes.sizes_by(tmp_path, {**sizes.config(), DEVICE: CPU})
    return sizes


def peaks(sizes: CommandSizes, tmp_path: Path) -> list[float]:
    base = {**sizes.config(), DEVICE: CPU}
    return [each.mib[RAM] for each in sizes.sizes_by(tmp_path, base)([{}, {"batch": 128}, {"batch": 64}])]


@pytest.mark.parametrize(
    ("values", "expected"),
    [({"frees_mib": {"ram": 400}}, [3000, 2600, 2200]), ({}, [3000, 1500, 0])],
)
def test_a_rung_frees_what_is_believed(tmp_path: Path, values: Any, expected: list[float]) -> None:
    assert peaks(sizes_of(tmp_path, **values), tmp_path) == expected


@pytest.mark.parametrize(
    "state",
    [
        {"options": "x"},
        {"options": {"command": 3}},
        {"options": {"command": ["train", "--batch", "256"]}, "command_peaks_mib": 7},
    ],
    ids=str,
)
def test_an_odd_state_of_another_run_says_nothing(tmp_path: Path, state: dict[str, Any]) -> None:
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / "launcher.json").write_text(json.dumps(state))
    assert peaks(sizes_of(tmp_path, frees_mib={"ram": 400}), tmp_path) == [3000, 2600, 2200]


def test_what_was_measured_corrects_a_wrong_belief(tmp_path: Path) -> None:
    sizes = sizes_of(tmp_path, frees_mib={"ram": 400})
    sizes.measured({}, "updating", {RAM: 2000.0})
    assert peaks(sizes, tmp_path) == [2000, 1600, 1200]
    sizes.measured({"batch": 128}, "updating", {RAM: 1900.0})
    assert peaks(sizes, tmp_path) == [2000, 1900, 1500]


def test_a_phase_counts_as_believed_until_it_is_measured(tmp_path: Path) -> None:
    base = {"batch": 256, DEVICE: CPU}
    sizes = sizes_of(tmp_path, {"ram": 4200}, frees_mib={"ram": 400})
    assert peaks(sizes, tmp_path) == [4200, 3800, 3400]
    sizes.measured({}, "updating", {RAM: 2500.0})
    sizes.measured({"batch": 128}, "updating", {RAM: 2300.0})
    full, half = sizes.sizes_by(tmp_path, base)([{}, {"batch": 128}])
    assert full.by_phase[RAM] == {"updating": 2500, "evaluating": 4200}
    assert (full.mib[RAM], full.figure(RAM).provenance) == (4200, Provenance.ESTIMATED)
    assert half.by_phase[RAM] == {"updating": 2300, "evaluating": 4000}  # 200 less, as measured
    sizes.measured({}, "evaluating", {RAM: 2600.0})
    (full,) = sizes.sizes_by(tmp_path, base)([{}])
    assert (full.mib[RAM], full.figure(RAM).provenance) == (2600, Provenance.MEASURED)


def test_a_later_run_of_the_same_command_remembers(tmp_path: Path) -> None:
    for words, run in ((["train", "--batch", "256"], "a"), (["other"], "b")):
        mib = {"ram": {"updating": 1000.0 if run == "a" else 9.0}, "vram": {"updating": 0}}
        row = {"values": {"batch": 256, "device": "cpu"}, "by_phase": mib}
        (tmp_path / run).mkdir()
        state = {"options": {"command": words}, "command_peaks_mib": [row]}
        (tmp_path / run / "launcher.json").write_text(json.dumps(state))
    assert peaks(sizes_of(tmp_path, frees_mib={"ram": 400}), tmp_path) == [1000, 600, 200]


def test_a_ladder_has_its_rungs_though_no_peak_is_known(tmp_path: Path) -> None:
    sizes = CommandSizes(command("train", rungs=[{**BATCH, "frees_mib": {"vram": 300}}]))
    base = {**sizes.config(), DEVICE: "cuda"}
    rungs = with_program(config.load().ladder, sizes.program)
    ladder = build_ladder(rungs, base, None, sizes.frees_by(sizes.sizes_by(tmp_path, base)))
    found = [(str(step), dict(step.frees_mib)) for step in ladder[VRAM] if step.rung == "less"]
    assert found == [("less (batch = 128)", {VRAM: 300.0}), ("less (batch = 64)", {VRAM: 300.0})]


def test_the_times_of_a_program_file_hold_for_its_run() -> None:
    limits = limits_with(config.load(), file_with(alive={"log": "a", "within_s": 9}, stop_grace_s=1))
    assert (limits.agent.beat_limit_s, limits.agent.warming_limit_s, limits.agent.stop_grace_s) == (9, 600, 1)
    assert limits_with(config.load(), ProgramFile()).agent == config.load().agent


@pytest.mark.parametrize(
    "path", sorted((REPOSITORY / "examples" / "programs").glob("*.yaml")), ids=lambda path: path.stem
)
def test_the_examples_can_be_used_as_they_are(path: Path, tmp_path: Path) -> None:
    (tmp_path / "conf.yaml").write_text("data: {batch_size: 32, num_workers: 4}\n")
    words = (sys.executable, "train.py", "--config", "conf.yaml", "--batch-size", "256")
    found = command_of(RunOptions(command=words, program=path, cwd=tmp_path))
    assert found is not None
    sizes = CommandSizes(found)
    base = {**sizes.config(), DEVICE: "cuda"}
    ladder = build_ladder(
        with_program(config.load().ladder, sizes.program), base, None, sizes.frees_by(sizes.sizes_by(tmp_path, base))
    )
    names = {step.rung for steps in ladder.values() for step in steps}
    assert names >= {rung.name for rung in found.file.rungs}
