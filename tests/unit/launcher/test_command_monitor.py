"""What is seen of a command that writes no heartbeat: what its file calls progress, and its last words."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from carla_launcher.act.command_requests import CommandRequests
from carla_launcher.observe.command import CommandMonitor, as_step
from carla_launcher.observe.observation import AgentSeen, Ended
from carla_launcher.show import dashboard
from carla_run.configuration import program_file
from carla_run.heartbeat import Phase, read_heartbeat
from carla_run.memory.room import disk_room
from carla_run.paths import RunPaths
from carla_run.requests import Result
from tests.unit.beats import BEAT


@dataclass
class Process:
    """A command's process."""

    log: Path
    pid: int = 7
    ended: Ended | None = None

    def poll(self) -> Ended | None:
        return self.ended

    def pids(self) -> frozenset[int]:
        return frozenset({self.pid})


@dataclass
class Seen:
    """A run's folder, its command, and the looks at it."""

    folder: Path
    now_s: float = 0.0
    told: list[AgentSeen] = field(default_factory=list)

    def begin(self, values: Any) -> None:
        self.run = RunPaths(self.folder / "run")
        self.run.logs.mkdir(parents=True, exist_ok=True)
        log = self.run.logs / "agent.log"
        log.touch()
        self.file = program_file.validate(values, "train.yaml")
        self.monitor = CommandMonitor(self.run, self.file, self.folder, log)
        self.process = Process(log)

    def look(self, *lines: str) -> AgentSeen:
        with self.process.log.open("a") as log:
            log.writelines(f"{line}\n" for line in lines)
        self.now_s += 1
        return self.monitor.look(self.now_s, self.process)


@pytest.fixture
def seen(tmp_path: Path) -> Seen:
    return Seen(tmp_path)


def phases_and_ages(seen: Seen, acts: Sequence[Callable[[], Any] | str | None]) -> list[tuple[str | None, float]]:
    found = []
    for act in acts:
        if callable(act):
            act()
        now = seen.look(*([act] if isinstance(act, str) else []))
        found.append((None if now.beat is None else str(now.beat.step), now.beat_age_s))
    return found


def test_without_a_sign_it_lives_as_long_as_it_runs(seen: Seen) -> None:
    seen.begin({})
    assert phases_and_ages(seen, [None, None]) == [("0", 0), ("0", 0)]


def test_only_another_step_in_its_output_is_progress(seen: Seen) -> None:
    seen.begin({"alive": {"log": r"step\s+([\d,]+)", "within_s": 9}})
    found = phases_and_ages(seen, ["hello", "step 1,200 of 9", "step 1200", "nothing", "step 1300"])
    assert found == [(None, 0), ("1200", 0), ("1200", 1), ("1200", 2), ("1300", 0)]


@pytest.mark.parametrize("sign", ["file", "folder"])
def test_a_change_of_a_file_is_progress(seen: Seen, sign: str) -> None:
    (seen.folder / "saved").mkdir()
    weights = seen.folder / "saved" / "weights"
    seen.begin({"alive": {sign: "saved/weights" if sign == "file" else "saved", "within_s": 9}})
    found = phases_and_ages(seen, [None, lambda: weights.write_text("1"), None, lambda: weights.write_text("12")])
    assert [age for _, age in found] == [0, 0, 1, 0]
    assert [beat is not None for beat, _ in found] == [False, True, True, True]


@pytest.mark.parametrize(
    ("alive", "awaited"),
    [
        (None, ""),
        ({"log": r"step (\d+)", "within_s": 9}, r"a line that fits `step (\d+)`"),
        ({"folder": "saved", "within_s": 9}, "a change of {}/saved"),
    ],
)
def test_what_shows_that_it_lives_is_named(seen: Seen, alive: Any, awaited: str) -> None:
    seen.begin({} if alive is None else {"alive": alive})
    assert seen.look().awaited == awaited.format(seen.folder)


def test_what_the_launcher_writes_in_the_folder_is_no_progress(seen: Seen) -> None:
    """TensorBoard's usual folder is `runs`, as the launcher's."""
    seen.begin({"alive": {"folder": ".", "within_s": 9}})
    seen.run.launcher_lock.touch()
    event, weights = seen.folder / "run" / "launcher-events.jsonl", seen.folder / "run" / "weights.pt"
    seen.look()
    found = phases_and_ages(seen, [lambda: weights.write_text("1"), "it prints", lambda: event.write_text("{}"), None])
    assert [age for _, age in found] == [0, 1, 2, 3]


def test_another_process_has_to_show_progress_again(seen: Seen) -> None:
    seen.begin({"alive": {"log": r"step (\d+)", "within_s": 9}})
    assert seen.look("step 7").beat is not None
    seen.process = Process(seen.process.log, 8)
    assert seen.look().beat is None
    beat = seen.look("step 7").beat  # from its checkpoint
    assert beat is not None
    assert beat.step == 7


def test_a_run_keeps_its_step_though_another_launcher_resumes_it(seen: Seen) -> None:
    alive = {"log": r"step (\d+)", "within_s": 9}
    seen.begin({"alive": alive})
    seen.look("step 300")
    seen.begin({"alive": alive})
    assert seen.look().beat is None
    seen.process.ended = Ended(0)
    seen.look("all 300 steps are done")
    beat = read_heartbeat(seen.run.heartbeat)
    assert beat is not None
    assert (beat.phase, beat.step) == (Phase.FINISHED, 300)


def test_a_sign_that_comes_without_the_program_is_named(seen: Seen, capsys: pytest.CaptureFixture[str]) -> None:
    seen.begin({"alive": {"folder": "saved", "within_s": 9}})
    (seen.folder / "saved").mkdir()
    for content in ("1", "12", "123"):
        (seen.folder / "saved" / "log").write_text(content)
        seen.monitor.look(1.0, None)
    assert capsys.readouterr().out.count("changes while the command isn't running, so it can't show") == 1


def test_status_and_report_read_a_heartbeat_of_it(seen: Seen) -> None:
    seen.begin({"alive": {"log": r"step (\d+)", "within_s": 9, "steps": 100}})
    seen.look("step 7")
    beat = read_heartbeat(seen.run.heartbeat)
    assert beat is not None
    assert (beat.step, beat.total_steps, beat.phase) == (7, 100, Phase.UPDATING)
    # Nothing is known of these, and no reader shows them.
    assert (beat.device, beat.updates, beat.batch) == ("", 0, 0)
    shown = dashboard.figures(dashboard.status(seen.run, beat.time))
    assert shown["agent"].startswith("updating, heartbeat")


def test_of_a_command_that_shows_nothing_nothing_is_told(seen: Seen) -> None:
    seen.begin({})
    seen.look()
    shown = dashboard.figures(dashboard.status(seen.run, seen.now_s))
    assert "progress" not in shown
    assert not any(word in shown["agent"] for word in ("cuda", "updates", "micro-batch"))


def test_one_that_reports_is_left_to_it(seen: Seen) -> None:
    seen.begin({})
    seen.look()
    assert not seen.monitor.reports
    seen.run.heartbeat.write_text(replace(BEAT, pid=7, step=41, time=5.0).json())
    found = seen.look().beat
    assert seen.monitor.reports
    assert found is not None
    assert found.step == 41
    assert read_heartbeat(seen.run.heartbeat) == replace(BEAT, pid=7, step=41, time=5.0)


@pytest.mark.parametrize(("done", "code"), [(None, 75), ("weights", 0)])
def test_one_that_reports_a_stop_and_exits_with_0_has_stopped(seen: Seen, done: str | None, code: int) -> None:
    """Unless it has shown that it is done."""
    (seen.folder / "weights").touch()
    seen.begin({} if done is None else {"done": {"file": done}})
    seen.look()
    seen.run.heartbeat.write_text(replace(BEAT, pid=7, time=5.0, phase=Phase.STOPPED, exit_code=75).json())
    seen.process.ended = Ended(0)
    ended = seen.look().ended
    assert ended is not None
    assert ended.code == code


def test_a_full_disk_doesnt_make_it_one_that_reports(seen: Seen, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_room(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    seen.begin({})
    seen.look()
    monkeypatch.setattr("carla_launcher.observe.command.write_whole", no_room)
    seen.look()
    seen.look()
    assert not seen.monitor.reports


def test_a_step_is_read_from_the_name_of_the_newest_checkpoint(seen: Seen) -> None:
    def write(name: str, time_s: int) -> Callable[[], None]:
        def act() -> None:
            (seen.folder / "saved").mkdir(exist_ok=True)
            (seen.folder / "saved" / name).write_text("weights")
            os.utime(seen.folder / "saved" / name, (time_s, time_s))

        return act

    write("model_9000_steps.zip", 1)()  # of an earlier run
    alive = {"folder": "saved", "step_in_name": r"model_(\d+)_steps\.zip", "within_s": 60}
    seen.begin({"alive": alive})
    acts = [None, write("model_100_steps.zip", 2), write("events.out", 3), write("model_1000_steps.zip", 4), None]
    steps = phases_and_ages(seen, acts)
    assert steps == [(None, 0), ("100", 0), ("100", 1), ("1000", 0), ("1000", 1)]
    seen.process = Process(seen.process.log, 8)
    assert phases_and_ages(seen, [None, write("model_100_steps.zip", 5)]) == [(None, 0), ("100", 0)]


def test_names_without_a_step_are_named_once(seen: Seen) -> None:
    said: list[str] = []
    seen.begin({"alive": {"folder": "saved", "step_in_name": r"model_(\d+)_step$", "within_s": 60}})
    seen.monitor = CommandMonitor(seen.run, seen.file, seen.folder, seen.process.log, said.append)
    (seen.folder / "saved").mkdir()
    for number in (1, 2, 3):
        assert seen.look().beat is None
        assert len(said) == max(0, number - 2)
        (seen.folder / "saved" / f"model_{number}_steps.zip").touch()
        seen.now_s += 200
    assert "model_2_steps.zip in" in said[0]
    assert "has no step by the expression" in said[0]


@pytest.mark.parametrize(
    ("words", "pool"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", "device"),
        ("jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to", "device"),
        ("numpy._core._exceptions._ArrayMemoryError: Unable to allocate 7.45 GiB for an array", "host"),
        ("OSError: [Errno 28] No space left on device: 'model.pt'", "disk"),
        ("ValueError: no", None),
    ],
)
def test_what_ran_out_is_read_from_its_last_words(seen: Seen, words: str, pool: str | None) -> None:
    seen.begin({})
    seen.look("Traceback (most recent call last):")
    seen.process.ended = Ended(1)
    (event,) = seen.look(words).events
    assert (event["event"], event["pool"], event["cause"]) == ("failed", pool, words)


def test_a_code_for_a_lack_of_memory_leaves_it_to_the_last_words_which(seen: Seen) -> None:
    seen.begin({"exits": {0: "finished", 3: "out_of_memory", 4: "bad_configuration"}})
    seen.process.ended = Ended(3)
    (event,) = seen.look("caught: std::bad_alloc").events
    assert (event["pool"], event["cause"]) == ("host", "caught: std::bad_alloc")
    seen.process = Process(seen.process.log, 8, Ended(4))
    assert seen.look("caught: std::bad_alloc").events == ()


MEMORY_ERROR = ("Traceback (most recent call last):", '  File "train.py", line 7', "MemoryError")


@pytest.mark.parametrize("another_launcher", [False, True])
def test_the_last_words_of_a_process_before_are_not_its_own(seen: Seen, another_launcher: bool) -> None:
    seen.begin({})
    seen.process.ended = Ended(1)
    (event,) = seen.look(*MEMORY_ERROR).events
    assert event["pool"] == "host"
    if another_launcher:
        seen.begin({})
    seen.process = Process(seen.process.log, 8)
    seen.look("step 1")
    seen.process.ended = Ended(1)
    (event,) = seen.look("no room for the second wheel").events
    assert (event["pool"], event["cause"]) == (None, "no room for the second wheel")


def test_of_a_log_that_was_cut_the_last_words_are_read(seen: Seen) -> None:
    seen.begin({})
    seen.process.ended = Ended(0)
    seen.look("x" * 999)
    seen.process = Process(seen.process.log, 8, Ended(1))
    seen.process.log.write_text("")
    (event,) = seen.look(*MEMORY_ERROR).events
    assert event["pool"] == "host"


ERROR = "PermissionError: [Errno 13] Permission denied: 'checkpoint.json'"


@pytest.mark.parametrize(
    ("lines", "code", "cause"),
    [
        (("Traceback (most recent call last):", '  File "train.py", line 7', ERROR, "step 50 of 400"), 1, ERROR),
        (("Traceback (most recent call last):", "step 49 of 400", "    save()", ERROR, "step 50 of 400"), 1, ERROR),
        (("Traceback (most recent call last):", '  File "train.py"', "KeyboardInterrupt"), 1, "KeyboardInterrupt"),
        (("Traceback (most recent call last):", "  cut off", "step 50 of 400"), 1, "step 50 of 400"),
        (("Traceback (most recent call last):", ERROR, "step 50 of 400"), 139, "step 50 of 400"),
        (("step 49 of 400", "step 50 of 400"), 1, "step 50 of 400"),
    ],
)
def test_the_cause_is_the_end_of_the_traceback_though_other_output_came_after_it(
    seen: Seen, lines: tuple[str, ...], code: int, cause: str
) -> None:
    """Docker passes standard output and errors on separately."""
    seen.begin({})
    seen.process.ended = Ended(code)
    (event,) = seen.look(*lines).events
    assert event["cause"] == cause


@pytest.mark.parametrize(("done", "undone"), [(False, "out/result.json"), (True, "")])
def test_an_end_without_what_shows_it_is_none(seen: Seen, done: bool, undone: str) -> None:
    seen.begin({"done": {"file": "out/result.json"}})
    seen.look()
    if done:
        (seen.folder / "out").mkdir()
        (seen.folder / "out" / "result.json").touch()
    seen.process.ended = Ended(0)
    ended = seen.look().ended
    assert ended is not None
    assert ended.undone == undone


@pytest.mark.parametrize("code", [errno.EACCES, errno.ESTALE, errno.EIO])
def test_what_cannot_be_looked_at_is_not_there(seen: Seen, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    """A container's root made the folder for itself, or it is on a network disk that fails."""
    seen.begin({"done": {"file": "out/result.json"}, "alive": {"folder": "out", "within_s": 60}})
    stat = os.stat

    def refused(path: Any, *args: Any, **how: Any) -> os.stat_result:
        if "out" in Path(str(path)).parts:
            raise OSError(code, os.strerror(code))
        return stat(path, *args, **how)

    monkeypatch.setattr(os, "stat", refused)
    assert seen.look().ended is None
    room, above = disk_room(seen.folder / "out" / "deep"), disk_room(seen.folder)
    assert room is not None
    assert above is not None
    assert room.total_mib == above.total_mib
    seen.process.ended = Ended(0)
    ended = seen.look().ended
    assert ended is not None
    assert ended.undone == "out/result.json"


def test_a_line_shows_the_end_of_the_process_that_printed_it(seen: Seen) -> None:
    seen.begin({"done": {"log": "^Finished"}})
    seen.look("Finished")
    seen.process.ended = Ended(0)
    ends = [seen.look().ended]
    seen.process = Process(seen.process.log, 8, Ended(0))
    ends.append(seen.look("Exit").ended)
    assert [None if each is None else each.undone for each in ends] == ["", "a line that fits `^Finished`"]


@pytest.mark.parametrize(
    ("words", "alone"),
    [
        ("RuntimeError: time-out of 2000ms while waiting for the simulator, make sure the simulator is ready", True),
        ("ConnectionRefusedError: [Errno 111] Connection refused", True),
        ("RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central directory", False),
    ],
)
def test_a_program_that_found_no_simulator_says_so(seen: Seen, words: str, alone: bool) -> None:
    seen.begin({})
    seen.process.ended = Ended(1)
    (event,) = seen.look(words).events
    assert event["no_simulator"] is alone


LINE, MODEL = {"log": "^Finished"}, {"file": "model.zip"}


@pytest.mark.parametrize(
    ("done", "looks", "end", "words", "finished"),
    [
        (LINE, 1, Ended(134), "terminate called without an active exception", True),
        (LINE, 0, Ended(1), "wandb.errors.CommError: no network", True),
        (LINE, 0, Ended(75), "", False),  # what an exit code of the file means counts
        (MODEL, 2, Ended(1), "wandb.errors.CommError: no network", True),
        (MODEL, 0, Ended(1), "KeyboardInterrupt", False),  # it may be half written
        (MODEL, 0, Ended(139), "Segmentation fault", True),
        (MODEL, 0, Ended(134), "terminate called after throwing an instance of 'std::bad_alloc'", False),
        (MODEL, 0, Ended(137, oom_killed=True), "", False),
        (MODEL, 2, Ended(137, oom_killed=True), "", True),
        ({}, 1, Ended(139), "Finished", False),
    ],
)
def test_a_crash_after_the_work_is_done_is_an_end(
    seen: Seen, done: Any, looks: int, end: Ended, words: str, finished: bool
) -> None:
    (seen.folder / "model.zip").write_text("of an earlier run")
    seen.begin({"done": done} if done else {})
    assert seen.look().done is None
    (seen.folder / "model.zip").write_text("this run's")
    for line in ["Finished", *[""] * looks][:looks]:
        seen.look(line)
    seen.process.ended = end
    found = seen.look(*([] if looks else ["Finished"]), words)
    assert found.ended is not None
    assert bool(found.ended.done) == finished
    assert (found.beat is not None and found.beat.phase is Phase.FINISHED) == finished
    assert not (finished and found.events)


@pytest.mark.parametrize("done", [LINE, MODEL])
def test_it_is_done_since_it_showed_it(seen: Seen, done: Any) -> None:
    seen.begin({"done": {**done, "exits_within_s": 60}})
    found = [seen.look("step 1").done]
    (seen.folder / "model.zip").write_text("weights")
    found += [seen.look("Finished").done, seen.look("bye").done]
    seen.process = Process(seen.process.log, 8)
    found.append(seen.look("step 1").done)
    assert [each and (each.for_s, each.limit_s) for each in found] == [None, (0, 60), (1, 60), None]


@pytest.mark.parametrize("way", ["signal", "touch"])
def test_a_checkpoint_is_asked_for_and_seen(seen: Seen, way: str) -> None:
    seen.begin({"checkpoint": {way: "SIGUSR1" if way == "signal" else "please", "shows": "saved"}})
    seen.look()
    sent: list[tuple[int, int]] = []
    requests = CommandRequests(seen.run, seen.file, seen.folder, seen.monitor, lambda *args: sent.append(args))
    number = requests.send("checkpoint")
    assert (bool(sent), (seen.folder / "please").exists()) == (way == "signal", way == "touch")
    assert requests.answer(number) is None
    (seen.folder / "saved").write_text("weights")
    answer = requests.answer(number)
    assert answer is not None
    assert answer.result is Result.OK


def test_what_cant_be_asked_of_it_is_refused_at_once(seen: Seen) -> None:
    seen.begin({})
    seen.look()
    requests = CommandRequests(seen.run, seen.file, seen.folder, seen.monitor, os.kill)
    answer = requests.answer(requests.send("apply", {"a": 1}))
    assert answer is not None
    assert answer.result is Result.REFUSED


@pytest.mark.parametrize(
    ("text", "step"),
    [("12", 12), ("1,200", 1200), ("1e3", 1000), ("1_000", 1000), ("2.0", 2), ("a", None), (None, None)],
)
def test_a_step_is_read_as_programs_print_it(text: str | None, step: int | None) -> None:
    assert as_step(text) == step
