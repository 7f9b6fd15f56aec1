"""``gymnasium.make("CarlaTD3/Driving-v0")`` against real carla-lites: addresses, claims, pictures, vectors."""

from __future__ import annotations

import math
import multiprocessing
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.utils.passive_env_checker import env_render_passive_checker

from carla_td3.config import ConfigError, EnvironmentConfig
from carla_td3.env import ENVIRONMENT_ID
from carla_td3.env.claim import SimulatorOccupied
from carla_td3.env.driving import DrivingEnv
from carla_td3.env.session import NoSimulator
from tests.conftest import Server, StartServer, port_pair
from tests.wire.conftest import session_of, spawned

ADDRESS = ("CARLA_HOST", "CARLA_PORT", "CARLA_PORTS", "CARLA_OTHERS")
AHEAD = np.array((0.0, 0.6), np.float32)
PATIENT = {"patience_s": 60.0}


@pytest.fixture(autouse=True)
def no_address(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ADDRESS:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def filmed(module_server: Server) -> Iterator[gymnasium.Env[Any, Any]]:
    env = make(module_server.port, render_mode="rgb_array")
    yield env
    env.close()


def make(port: int, patience_s: float = 60.0, **arguments: Any) -> gymnasium.Env[Any, Any]:
    return gymnasium.make(ENVIRONMENT_ID, simulator={"port": port, "patience_s": patience_s}, **arguments)


def driving(env: gymnasium.Env[Any, Any]) -> DrivingEnv:
    assert isinstance(env.unwrapped, DrivingEnv)
    return env.unwrapped


@pytest.mark.parametrize("variable", ["CARLA_PORT", "CARLA_PORTS"])
def test_it_drives_in_the_simulator_that_the_environment_names(
    module_server: Server, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv("CARLA_HOST", "localhost")
    monkeypatch.setenv(variable, f"{module_server.port}-{module_server.port + 2}"[: None if variable[-1] == "S" else 5])
    env = gymnasium.make(ENVIRONMENT_ID)
    try:
        env.reset()
        assert driving(env).session.address == f"localhost:{module_server.port}"
    finally:
        env.close()


def test_it_says_what_it_waits_for_and_gives_up_soon() -> None:
    port = port_pair()
    env = gymnasium.make(ENVIRONMENT_ID, simulator={"port": port})
    until_s = time.monotonic() + 5.0
    with (
        pytest.warns(UserWarning, match=rf"Waiting up to 5 s for a simulator at 127\.0\.0\.1:{port}"),
        pytest.raises(NoSimulator, match=r"within 5 s .*CARLA_HOST.*simulator\.patience_s"),
    ):
        env.reset()
    assert time.monotonic() >= until_s


def test_the_task_comes_from_a_section_or_a_file(tmp_path: Path) -> None:
    file = tmp_path / "task.yaml"
    file.write_text("environment: {reward: {form: product}}\nsimulator: {port: 2345, patience_s: 90}\n")
    for task in (EnvironmentConfig(blocked_s=7), {"blocked_s": 7}):
        made = gymnasium.make(ENVIRONMENT_ID, config=task)
        assert driving(made).config.blocked_s == 7
    read = driving(gymnasium.make(ENVIRONMENT_ID, config=file))
    assert (read.config.reward.form, read.session.config.port, read.session.config.patience_s) == ("product", 2345, 90)
    assert driving(pickle.loads(pickle.dumps(made.spec)).make()).config.blocked_s == 7


def test_the_task_of_a_preset_may_have_other_steps_than_its_training() -> None:
    made = gymnasium.make(ENVIRONMENT_ID, config="traffic", simulator={"fixed_delta_s": 0.05})
    assert (driving(made).config.traffic.lights, made.metadata["render_fps"]) == (True, 20)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"config": {"blocked": 7}}, "gymnasium.make: unknown key `environment.blocked`"),
        ({"simulator": {"port": 0}}, "gymnasium.make: `simulator.port` is 0"),
        ({"config": "no.yaml"}, "no.yaml: can't be read"),
        ({"config": []}, r"config is \[\]: expected a file's path, a mapping or an EnvironmentConfig"),
        ({"simulator": 2000}, "simulator is 2000: expected a mapping or a SimulatorConfig"),
        ({"render_mode": "ansi"}, "render_mode is 'ansi': expected rgb_array"),
        ({"ports": "32200-32203"}, "ports is '32200-32203': expected a list of ports"),
        ({"ports": 32200}, "ports is 32200: expected a list of ports"),
        ({"ports": [2000, 0]}, "expected a list of ports"),
        ({"ports": (port for port in (32200, 32203))}, "expected a list of ports"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*possible render_modes")
def test_wrong_arguments_are_refused_in_a_sentence(arguments: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        gymnasium.make(ENVIRONMENT_ID, **arguments)


def test_no_ports_are_the_port_of_the_simulator() -> None:
    assert driving(make(32200, ports=None)).session.config.port == 32200


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"limit_s": math.nan}, "limit_s nan: expected a number of seconds above 0"),
        ({"limit_s": math.inf}, "limit_s inf: expected a number of seconds above 0"),
        ({"limit_s": 0}, "limit_s 0: expected a number of seconds above 0"),
        ({"route": "x"}, "route 'x': expected a Route of env.planner"),
        ({"limit_s": "5"}, "limit_s '5': expected a number of seconds above 0"),
        ({"seed": "5"}, "seed '5': expected a whole number from 0 on"),
        ({"seed": 1.5}, "seed 1.5: expected a whole number from 0 on"),
        ({"seed": -1}, "seed -1: expected a whole number from 0 on"),
        ({"lane_invasions": "no"}, "lane_invasions 'no': expected true or false"),
        ({"continue_after_infractions": 1}, "continue_after_infractions 1: expected true or false"),
        ({"rout": None}, "options has rout: expected some of continue_after_infractions, lane_invasions"),
        ({1: None, "rout": None}, "options has 1, rout: expected some of continue_after_infractions"),
        ([], r"options is \[\]: expected a mapping with some of continue_after_infractions"),
    ],
)
def test_wrong_options_begin_no_drive_and_end_the_last_one(
    filmed: gymnasium.Env[Any, Any], options: Any, sentence: str
) -> None:
    filmed.reset()
    with pytest.raises(ConfigError, match=sentence):
        filmed.reset(options=options)
    with pytest.raises(gymnasium.error.ResetNeeded):
        filmed.unwrapped.step(np.zeros(2, np.float32))


@pytest.mark.parametrize("action", [(0.0,), (0.0, 0.0, 0.0), "ab", None, np.zeros((2, 1)), (math.nan, 0.0)])
def test_a_wrong_action_is_refused_and_the_drive_goes_on(filmed: gymnasium.Env[Any, Any], action: Any) -> None:
    filmed.reset()
    with pytest.raises(ValueError, match=r"(?s)The action is .*; expected two finite numbers in \[-1, 1\]"):
        filmed.unwrapped.step(action)
    filmed.step(AHEAD)


@pytest.mark.filterwarnings("error")
def test_gymnasiums_checks_pass_with_pictures(filmed: gymnasium.Env[Any, Any]) -> None:
    check_env(filmed.unwrapped, skip_render_check=True)  # it would make a second environment on the same simulator
    filmed.reset()
    env_render_passive_checker(filmed.unwrapped)
    assert filmed.metadata["render_fps"] == 10


def test_a_picture_shows_the_road_and_changes_as_the_car_drives(filmed: gymnasium.Env[Any, Any]) -> None:
    filmed.reset(seed=3)
    pictures = [filmed.render()]
    for _ in range(20):
        filmed.step(AHEAD)
        pictures.append(filmed.render())
    first, last = (np.asarray(picture) for picture in (pictures[0], pictures[-1]))
    assert first.shape == last.shape == (480, 880, 3)
    road = first[:, :480]
    assert road.std() > 20.0
    assert (first[:, :480] != last[:, :480]).mean() > 0.2
    sky = road[:40].mean(axis=(0, 1))
    assert sky[2] > sky[0]  # red comes first, and the sky is blue


def test_pictures_change_nothing_of_the_drive(start_server: StartServer) -> None:
    def rows(render_mode: str | None) -> np.ndarray:
        env = make(start_server().port, render_mode=render_mode)
        found = [env.reset(seed=5)[0]["vector"], *(env.step(AHEAD)[0]["vector"] for _ in range(15))]
        env.close()
        return np.array(found)

    np.testing.assert_array_equal(rows(None), rows("rgb_array"))


def test_closing_it_removes_its_cameras_and_may_be_done_twice(module_server: Server) -> None:
    env = make(module_server.port, render_mode="rgb_array")
    env.reset()
    env.close()
    env.close()
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.render()
    after = make(module_server.port)
    after.reset()
    driving(after).session.tick()
    assert len(driving(after).session.world.get_actors().filter("sensor.camera.rgb")) == 1
    after.close()


@pytest.mark.parametrize("ticks", [1, 2, 3])
def test_an_interrupted_reset_leaves_nothing(module_server: Server, ticks: int) -> None:
    """After one tick there is a car, after two its sensors, after three the camera of ``render``."""
    env = make(module_server.port, render_mode="rgb_array")
    session = driving(env).session

    def interrupt() -> None:
        if session.ticks == ticks:
            raise KeyboardInterrupt

    session.on_tick = interrupt
    with pytest.raises(KeyboardInterrupt):
        env.reset()
    world = session_of("127.0.0.1", module_server.port, synchronous=False).world
    world.wait_for_tick(10.0)
    assert (spawned(world.get_actors()), world.get_settings().synchronous_mode) == (["spectator"], False)
    env.reset()
    assert np.asarray(env.render()).shape == (480, 880, 3)
    env.close()


def test_gymnasium_records_a_video_of_it(filmed: gymnasium.Env[Any, Any], tmp_path: Path) -> None:
    pytest.importorskip("moviepy")
    recorded = gymnasium.wrappers.RecordVideo(filmed, str(tmp_path), episode_trigger=lambda _: True, video_length=5)
    recorded.reset()
    for _ in range(8):
        recorded.step(AHEAD)
    recorded.close()
    (video,) = tmp_path.glob("*.mp4")
    assert video.stat().st_size > 2_000


def test_a_second_environment_is_refused_until_the_first_is_closed(module_server: Server) -> None:
    first, second = make(module_server.port), make(module_server.port, patience_s=3.0)
    first.reset()
    with pytest.raises(
        SimulatorOccupied, match=rf"127\.0\.0\.1:{module_server.port} is driven by another .* this process"
    ):
        second.reset()
    first.step(AHEAD)
    first.close()
    second.reset()
    second.close()


HOLDER = """
import sys, time
import gymnasium
import carla_td3.env
env = gymnasium.make("CarlaTD3/Driving-v0", simulator={"port": int(sys.argv[1]), "patience_s": 60.0})
env.reset()
print("drives", flush=True)
time.sleep(600)
"""


def test_a_killed_process_frees_its_simulator(module_server: Server) -> None:
    command = [sys.executable, "-c", HOLDER, str(module_server.port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "drives\n"
            env = make(module_server.port, patience_s=3.0)
            with pytest.raises(SimulatorOccupied, match=rf"in process {holder.pid}:"):
                env.reset()
        finally:
            holder.send_signal(signal.SIGKILL)
    env.reset()
    env.close()


def test_a_forgotten_environment_frees_its_simulator(module_server: Server) -> None:
    make(module_server.port).reset()
    env = make(module_server.port)
    env.reset()
    env.close()


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_vector_environment_drives_each_of_its_simulators(start_server: StartServer, mode: str) -> None:
    ports = [start_server().port for _ in range(2)]
    before = set(multiprocessing.active_children())
    envs = gymnasium.make_vec(ENVIRONMENT_ID, num_envs=2, vectorization_mode=mode, ports=ports, simulator=PATIENT)
    workers = set(multiprocessing.active_children()) - before
    observations, _ = envs.reset(seed=1)
    assert observations["image"].shape == (2, 4, 84, 84)
    assert (observations["vector"][0] != observations["vector"][1]).any()
    for _ in range(10):
        _, rewards, *_ = envs.step(np.stack((AHEAD, AHEAD)))
    assert rewards.shape == (2,)
    if isinstance(envs, gymnasium.vector.SyncVectorEnv):
        assert {driving(env).session.config.port for env in envs.envs} == set(ports)
    envs.close()
    assert [worker.exitcode for worker in workers] == [0] * (2 if mode == "async" else 0)


def test_stable_baselines3s_vectors_share_a_list_of_simulators(start_server: StartServer) -> None:
    env_util = pytest.importorskip("stable_baselines3.common.env_util")
    arguments = {"ports": [start_server().port for _ in range(2)], "simulator": PATIENT, "render_mode": None}
    envs = env_util.make_vec_env(ENVIRONMENT_ID, n_envs=2, seed=3, env_kwargs=arguments)
    assert envs.reset()["vector"].shape == (2, 53)
    observations, rewards, *_ = envs.step(np.stack((AHEAD, AHEAD)))
    assert (observations["image"].shape, rewards.shape) == ((2, 4, 84, 84), (2,))
    envs.close()


def test_more_environments_than_simulators_are_refused(module_server: Server) -> None:
    arguments: Any = {"ports": [module_server.port], "simulator": {"patience_s": 3.0}}
    envs = gymnasium.make_vec(ENVIRONMENT_ID, num_envs=2, vectorization_mode="sync", **arguments)
    with pytest.raises(SimulatorOccupied):
        envs.reset()
    envs.close()
