"""Events, metrics, heartbeat and messages."""

from __future__ import annotations

import contextlib
import io
import json
import socket
import time
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from rich.console import Console

from carla_run import heartbeat_writer
from carla_run.event_log import EventLog, JsonLines
from carla_run.heartbeat import CollectorState, Phase
from carla_run.memory.processes import held_mib
from carla_run.paths import RunPaths
from carla_run.readers import read_lines
from carla_td3.exchange.messages import Channel, ChannelClosedError, EpisodeEnded, Evaluate, Stop
from carla_td3.exchange.status import Status
from carla_td3.memory.watermarks import Watermarks
from carla_td3.telemetry.heartbeat import HeartbeatWriter, Vitals
from carla_td3.telemetry.metrics import Episodes, Metrics, last_row
from carla_td3.telemetry.progress import ProgressLine, Shown
from tests.crowd import until
from tests.disks import fill, small_disk


def episode(reward: float, success: bool = False) -> EpisodeEnded:
    return EpisodeEnded(
        length=5,
        reward=reward,
        reward_terms={"progress": reward},
        route_completion=0.5,
        success=success,
        end="time",
    )


def test_an_event_is_one_line_with_time_cause_and_numbers(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "agent-events.jsonl", clock=lambda: 12.3456)
    log.append("collector_restarted", cause="killed by SIGKILL", restarts=1)
    log.append("finished")
    first, second = (json.loads(line) for line in (tmp_path / "agent-events.jsonl").read_text().splitlines())
    assert first == {"time": 12.346, "event": "collector_restarted", "cause": "killed by SIGKILL", "restarts": 1}
    assert second["event"] == "finished"


def test_numbers_that_json_lacks_become_null(tmp_path: Path) -> None:
    JsonLines(tmp_path / "rows").append({"a": float("nan"), "b": float("inf"), "c": 1.5})
    assert json.loads((tmp_path / "rows").read_text()) == {"a": None, "b": None, "c": 1.5}


def test_a_line_that_cannot_be_written_is_said_once_and_stops_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = JsonLines(tmp_path / "absent" / "rows")
    lines.append({"a": 1})
    lines.append({"a": 2})
    assert capsys.readouterr().err.count("lines are being lost") == 1


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")  # TensorBoard's thread's traceback
def test_a_full_disk_costs_rows_and_never_the_training(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with small_disk(tmp_path, mib=1) as disk:
        metrics = Metrics(disk / "tensorboard", disk / "metrics.jsonl")
        metrics.write(0, {"a": 1.0})
        filler = fill(disk)
        for step in range(1, 500):
            metrics.write(step, {f"a{number}": 1.0 for number in range(10)})
        said = capsys.readouterr().err
        assert said.count("be written any more (No space left on device)") == 1
        assert said.count("lines are being lost") == 1
        filler.unlink()
        metrics.write(500, {"a": 1.0})
        metrics.close()
        steps = [json.loads(line)["step"] for line in (disk / "metrics.jsonl").read_text().splitlines()]
        assert steps == [*range(len(steps) - 1), 500]  # whole lines only, and more once there is room


def test_a_disk_that_is_full_from_the_start_costs_tensorboard_and_never_the_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with small_disk(tmp_path, mib=1) as disk:
        fill(disk)
        metrics = Metrics(disk / "tensorboard", disk / "metrics.jsonl")
        metrics.hyperparameters({"seed": 3})
        metrics.write(1, {"a": 1.0})
        metrics.picture(1, "seen", disk / "absent.png")
        metrics.close()
    assert capsys.readouterr().err.count("be written any more (No space left on device)") == 1


def test_metrics_reach_tensorboard_and_the_lines_alike(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import (  # type: ignore[import-untyped]
        EventAccumulator,
    )

    metrics = Metrics(tmp_path / "tensorboard", tmp_path / "metrics.jsonl")
    metrics.write(500, {"train/critic_loss": 0.25, "time/fps": 100.0})
    metrics.close()
    assert json.loads((tmp_path / "metrics.jsonl").read_text()) == {
        "step": 500,
        "train/critic_loss": 0.25,
        "time/fps": 100.0,
    }
    board = EventAccumulator(str(tmp_path / "tensorboard"))
    board.Reload()
    assert [(e.step, e.value) for e in board.Scalars("train/critic_loss")] == [(500, 0.25)]


def test_pictures_and_hyperparameters_stand_beside_the_scalars(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData  # type: ignore[import-untyped]

    _, png = cv2.imencode(".png", np.full((20, 30, 3), 90, np.uint8))
    (tmp_path / "seen.png").write_bytes(png.tobytes())
    (tmp_path / "torn.png").write_bytes(b"no picture")
    metrics = Metrics(tmp_path / "tensorboard", tmp_path / "metrics.jsonl")
    metrics.hyperparameters({"seed": 3, "td3": {"batch_size": 64, "precision": "float32", "network": {"hidden": [16]}}})
    metrics.write(10, {"eval/mean_reward": 5.0})
    for name in ("seen", "torn", "absent"):
        metrics.picture(10, f"eval/{name}", tmp_path / f"{name}.png")
    metrics.close()
    board = EventAccumulator(str(tmp_path / "tensorboard"))
    board.Reload()
    assert board.Tags()["images"] == ["eval/seen"]
    (image,) = board.Images("eval/seen")
    assert (image.step, image.width, image.height) == (10, 30, 20)
    told = {tag: HParamsPluginData.FromString(data) for tag, data in board.PluginTagToContent("hparams").items()}
    values = next(data for tag, data in told.items() if "session_start" in tag).session_start_info.hparams
    assert {name: value.number_value or value.string_value for name, value in values.items()} == {
        "seed": 3.0,
        "td3.batch_size": 64.0,
        "td3.precision": "float32",
        "td3.network.hidden": "[16]",
    }
    shown = next(data for tag, data in told.items() if "experiment" in tag).experiment.metric_infos
    assert "eval/mean_reward" in [metric.name.tag for metric in shown]


@pytest.mark.parametrize(
    ("phase", "words"),
    [
        ("updating", ["updating", "7250/8000", "137 steps/s · 43 updates/s · route 100 %"]),
        ("evaluating: td3-greyed, route 8 of 8", ["evaluating", "7250/8000", "td3-greyed, route 8 of 8"]),
    ],
)
def test_on_a_terminal_of_80_columns_bar_count_and_figures_are_whole(phase: str, words: list[str]) -> None:
    page = Console(file=io.StringIO(), width=80, force_terminal=True, color_system=None)
    with ProgressLine(8000, page) as progress:
        progress.show(Shown(7250, 136.6, 43.2, -12.3, 1.0, phase))
        progress._bar.refresh()
    assert isinstance(page.file, io.StringIO)
    shown = page.file.getvalue()
    assert "━━━━" in shown
    assert "…" not in shown.splitlines()[-1].replace("-:--:--", "")
    for word in words:
        assert word in shown


def test_progress_is_a_line_now_and_then_where_there_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 1000, 4))
    monkeypatch.setattr("carla_td3.telemetry.progress.time.monotonic", lambda: next(clock))
    page = Console(file=io.StringIO(), width=80)
    with ProgressLine(20, page, "evaluation", "routes") as progress:
        for done in range(6):
            progress.move(done, "td3")
    with ProgressLine(None, page, "waiting") as progress:
        for done in range(4):
            progress.move(done, "for a simulator")
    assert page.file.getvalue().splitlines() == [  # type: ignore[attr-defined]
        "2/20 routes · td3",
        "5/20 routes · td3",
        "waiting · for a simulator",
    ]


def test_episodes_are_averaged_over_the_window() -> None:
    episodes = Episodes(window=2)
    assert episodes.scalars() == {}
    assert episodes.mean_return is None
    for reward in (100.0, 1.0, 3.0):
        episodes.add(episode(reward, success=reward == 3.0))
    assert episodes.scalars() == {
        "rollout/ep_rew_mean": 2.0,
        "rollout/ep_len_mean": 5.0,
        "rollout/success_rate": 0.5,
        "rollout/route_completion": 0.5,
        "reward/progress": 2.0,
    }


def test_a_resumed_run_averages_over_the_episodes_before(tmp_path: Path) -> None:
    run = RunPaths(tmp_path)
    assert Episodes(last_row(run.metrics)).mean_return is None
    with contextlib.closing(Metrics(run.tensorboard, run.metrics)) as metrics:
        metrics.write(9, {"rollout/ep_rew_mean": 8.0, "reward/progress": 2.0, "train/loss": 1.0, "time/episodes": 3})
        metrics.write(9, {"eval/mean_reward": 1.0, "time/episodes": 3})
    episodes = Episodes(last_row(run.metrics), window=4)
    assert episodes.scalars() == {"rollout/ep_rew_mean": 8.0, "reward/progress": 2.0}
    for expected in (6.0, 4.0, 2.0, 0.0):
        episodes.add(episode(0.0))
        assert episodes.mean_return == expected


def test_the_heartbeat_says_what_both_processes_do(tmp_path: Path) -> None:
    run, vitals = RunPaths(tmp_path), Vitals(total_steps=100, device="cpu")
    status = Status(tmp_path / "status.bin")
    with HeartbeatWriter(run, vitals, [status], Watermarks(torch.device("cpu"))):
        first = json.loads(run.heartbeat.read_text())
        assert first["phase"] == "starting"
        assert first["collector"] == {"pid": None, "state": "starting"}
        assert "collectors" not in first
        assert first["memory"]["learner_mib"] > 10
        assert first["memory"]["device_mib"] is None
        status.state = CollectorState.CONNECTING
        with status.calling(limit_s=60):
            time.sleep(1.2)
            second = json.loads(run.heartbeat.read_text())
        assert second["phase"] == "waiting_for_simulator"
        assert second["tick_outstanding_s"] > 0
        status.state = CollectorState.STEPPING
        vitals.set(phase=Phase.FINISHED, step=100, exit_code=0)
    last = json.loads(run.heartbeat.read_text())
    assert (last["phase"], last["step"], last["exit_code"]) == ("finished", 100, 0)
    assert set(last["memory"]["peak_by_phase_mib"]) == {"starting", "waiting_for_simulator", "finished"}
    assert last["memory"]["peak_by_phase_mib"]["finished"]["host"] == last["memory"]["learner_mib"]


def test_the_heartbeat_lists_several_collectors_and_sums_them(tmp_path: Path) -> None:
    run, vitals, memory = RunPaths(tmp_path), Vitals(), Watermarks(torch.device("cpu"))
    statuses = [Status.of(tmp_path, number) for number in range(2)]
    vitals.set(phase=Phase.COLLECTING)
    vitals.collector_restarts[1], vitals.collector_steps, memory.collector_pids[1] = 2, [3, 4], 77
    statuses[0].state, statuses[1].state = CollectorState.CONNECTING, CollectorState.STEPPING
    statuses[0].ticks, statuses[1].ticks, statuses[1].episodes = 10, 20, 5
    with HeartbeatWriter(run, vitals, statuses, memory):
        beat = json.loads(run.heartbeat.read_text())
    assert (beat["phase"], beat["ticks"], beat["episode"], beat["collector_restarts"]) == ("collecting", 30, 5, 2)
    assert beat["collector"] == {"pid": None, "state": "connecting"}
    second = {"pid": 77, "state": "stepping", "steps": 4, "ticks": 20, "tick_outstanding_s": 0.0, "restarts": 2}
    assert beat["collectors"][1] == second


def test_a_heartbeat_that_cannot_be_written_is_said_once(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    memory = Watermarks(torch.device("cpu"))
    with HeartbeatWriter(RunPaths(tmp_path / "absent"), Vitals(), [Status(tmp_path / "status.bin")], memory):
        pass
    assert capfd.readouterr().err.count("can't be written (No such file or directory); the work goes on.") == 1


def test_the_heartbeat_goes_on_after_whatever_a_reading_raises(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeat_writer, "INTERVAL_S", 0.01)
    run, memory, failed = RunPaths(tmp_path), Watermarks(torch.device("cpu")), list[str]()

    def read(phase: str) -> None:
        if len(failed) < 3:
            failed.append(phase)
            raise RuntimeError("CUDA driver error: unknown error")

    monkeypatch.setattr(memory, "read", read)
    with HeartbeatWriter(run, Vitals(), [Status(tmp_path / "status.bin")], memory):
        until(run.heartbeat.exists)
    assert capfd.readouterr().err.count("Traceback (most recent call last)") == 1


def test_memory_of_a_process_that_is_gone_is_unknown() -> None:
    assert held_mib(None) is None
    assert held_mib(2**22 + 1) is None


def test_messages_arrive_whole_and_in_order() -> None:
    left, right = socket.socketpair()
    learner, collector = Channel(left), Channel(right)
    learner.send(Evaluate(step=7, final=False))
    learner.send(Stop())
    assert collector.receive(1.0) == Evaluate(step=7, final=False)
    assert collector.receive() == Stop()
    assert collector.receive() is None
    collector.send(episode(2.5))
    assert learner.receive(1.0) == episode(2.5)


def test_what_a_dead_side_said_is_still_heard() -> None:
    left, right = socket.socketpair()
    learner, collector = Channel(left), Channel(right)
    collector.send(episode(1.0))
    collector.close()
    assert learner.receive(1.0) == episode(1.0)
    with pytest.raises(ChannelClosedError):
        learner.receive(1.0)
    with pytest.raises(ChannelClosedError):
        learner.send(Stop())


def test_a_line_that_a_crash_of_the_machine_tore_spoils_no_other(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"number": 1}\n{"numb')
    JsonLines(path).append({"number": 2})
    assert read_lines(path) == [{"number": 1}, {"number": 2}]
