"""Makes the README's pictures from real runs: ``python benchmarks/pictures.py --first RUN --night RUN --eyes FILM``.

``first-run.jpg``: two frames of a run's video; ``night.jpg``: the top of a run's report, as Chromium shows it;
``eyes.jpg``: two moments of the film of three drivers, ``benchmarks/results/driving/driving.mp4``;
``town.jpg``: people at a crosswalk in three weathers; ``visual.jpg``: the visual test among traffic. The last two start
carla-lite; without a run, the picture of that run stays as it is.
"""

from __future__ import annotations

import os
import queue
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any

import carla
import cv2
import imageio_ffmpeg
import numpy as np
import typer
from lite_server import lite_process, sensor, synchronous
from measuring import leave
from numpy.typing import NDArray

from carla_td3.evaluation import overlay

REPOSITORY = Path(__file__).resolve().parents[1]
IMAGES = REPOSITORY / "docs" / "images"
TOWN = "Lite:seed=7,size=400"
WEATHERS = ("ClearNoon", "HardRainSunset", "ClearNight")
WIDTH, HEIGHT = 480, 240
REPORT = "1120,1040"
QUALITY, GAP = 88, 8
BACK_M, UP_M, BEYOND_M = 13.0, 1.6, 3.5
"""Distances of the camera from the stop line, and of the crossing people."""
PEOPLE = ((-3.5, -90), (-1.2, -90), (1.0, 90), (2.6, 90), (4.4, -90), (6.0, 90))
"""Metres to the right of the lane, and each person's direction."""
SETTLED_TICKS = 10
EYES_WIDTH, EYES_AT = 1600, (0.1, 0.42)
"""Of the film of three drivers: the picture's width, and the two moments as shares of its length."""
CHROMIUM = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-background-networking")

Picture = NDArray[np.uint8]


def main(
    first: Annotated[Path | None, typer.Option(help="Run with a video, as `make run` leaves it.")] = None,
    night: Annotated[Path | None, typer.Option(help="Run with a report, as benchmarks/night.py leaves it.")] = None,
    eyes: Annotated[Path | None, typer.Option(help="Film that `benchmarks/driving.py --video` leaves.")] = None,
    checkpoint: Annotated[
        Path | None, typer.Option(help="Checkpoint of the driver that is shown. Default: the expert.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for the pictures.")] = IMAGES,
) -> None:
    """Make the pictures whose runs are given, and those that need none."""
    out.mkdir(parents=True, exist_ok=True)
    if first is not None:
        _save(out / "first-run.jpg", _beside(_frames(first / "videos" / "td3.mp4", (1 / 3, 2 / 3)), GAP))
    if night is not None:
        _save(out / "night.jpg", _page(night / "report.html"))
    if eyes is not None:
        film = np.concatenate(_frames(eyes, EYES_AT))
        height = round(film.shape[0] * EYES_WIDTH / film.shape[1])
        _save(
            out / "eyes.jpg", np.asarray(cv2.resize(film, (EYES_WIDTH, height), interpolation=cv2.INTER_AREA), np.uint8)
        )
    _save(out / "town.jpg", _beside(_town(), GAP // 2))
    _save(out / "visual.jpg", _visual(checkpoint))
    leave()


def _frames(video: Path, shares: tuple[float, ...]) -> list[Picture]:
    """Return the frames at some shares of a film's length."""
    reader = imageio_ffmpeg.read_frames(str(video), pix_fmt="bgr24")
    width, height = next(reader)["size"]
    frames = [np.frombuffer(frame, np.uint8).reshape(height, width, 3) for frame in reader]
    return [frames[int(share * len(frames))] for share in shares]


def _page(page: Path) -> Picture:
    """Return the top of a page as a browser shows it."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    if browser is None:
        raise SystemExit("There is no chromium here: apt-get install chromium.")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        taken = Path(folder) / "page.png"
        flags = (*CHROMIUM, f"--user-data-dir={folder}/profile", f"--window-size={REPORT}", f"--screenshot={taken}")
        subprocess.run([browser, *flags, page.resolve().as_uri()], check=True, stderr=subprocess.DEVNULL)
        return _read(taken)


def _town() -> list[Picture]:
    """Return people at a crosswalk before a red light, in each weather."""
    with lite_process(TOWN) as (port, _):
        client, world = synchronous(port, delta_s=0.1, timeout_s=60.0)
        world.freeze_all_traffic_lights(True)
        light, stop = _approach(world)
        light.set_state(carla.TrafficLightState.Red)
        people = world.get_blueprint_library().filter("walker.pedestrian.*")
        for number, (right_m, turn_deg) in enumerate(PEOPLE):
            pose = _moved(stop.transform, BEYOND_M, right_m, 1.0)
            pose.rotation.yaw += turn_deg
            world.spawn_actor(people[3 * number], pose).set_simulate_physics(False)
        pictures = []
        camera, arrivals = _camera(world, _moved(stop.transform, -BACK_M, 0.0, UP_M))
        for weather in WEATHERS:
            world.set_weather(getattr(carla.WeatherParameters, weather))
            for _ in range(SETTLED_TICKS):
                frame = world.tick()
            while (image := arrivals.get(timeout=60.0)).frame < frame:
                pass
            bgra = np.frombuffer(image.raw_data, np.uint8).reshape(HEIGHT, WIDTH, 4)
            pictures.append(bgra[:, :, :3].copy())
        camera.stop()
        del client
        return pictures


def _approach(world: Any) -> tuple[Any, Any]:
    """Return the first light whose lane comes straight up to its stop line, and the place to stop at."""
    for light in sorted(world.get_actors().filter("traffic.traffic_light"), key=lambda light: light.id):
        for stop in light.get_stop_waypoints()[:1]:
            behind = stop.previous(40.0)
            if behind and abs(behind[0].transform.rotation.yaw - stop.transform.rotation.yaw) % 360.0 < 3.0:
                return light, stop
    raise SystemExit(f"No light of {TOWN} has a straight road before it.")


def _moved(pose: Any, ahead_m: float, right_m: float, up_m: float) -> Any:
    forward, right, at = pose.get_forward_vector(), pose.get_right_vector(), pose.location
    where = carla.Location(
        at.x + ahead_m * forward.x + right_m * right.x, at.y + ahead_m * forward.y + right_m * right.y, at.z + up_m
    )
    return carla.Transform(where, carla.Rotation(yaw=pose.rotation.yaw))


def _camera(world: Any, pose: Any) -> tuple[Any, queue.SimpleQueue[Any]]:
    arrivals: queue.SimpleQueue[Any] = queue.SimpleQueue()
    camera = sensor(world, "camera.rgb", pose, image_size_x=WIDTH, image_size_y=HEIGHT, fov=90)
    camera.listen(arrivals.put)
    return camera, arrivals


def _visual(checkpoint: Path | None) -> Picture:
    """Return the frame of the visual test in that town, once it drives, with most cars and people around."""
    driver = ("--driver", "expert") if checkpoint is None else ("--checkpoint", str(checkpoint), "--explain")
    traffic = ("--vehicles", "50", "--walkers", "80", "--lights", "--weather", "ClearNoon")
    with lite_process(TOWN) as (port, _), tempfile.TemporaryDirectory() as folder:
        film = Path(folder) / "seen.mp4"
        words = ("--steps", "150", "--show", "nothing", "--camera", "viewing", "--video", str(film), *driver, *traffic)
        environment = {**os.environ, "CARLA_HOST": "127.0.0.1", "CARLA_PORT": str(port)}
        test = [sys.executable, str(REPOSITORY / "scripts" / "test_visual_navigation.py"), *words]
        subprocess.run(test, cwd=REPOSITORY, env=environment, check=True)
        return max(_frames(film, tuple(share / 50 for share in range(15, 50))), key=_others)


def _others(frame: Picture) -> int:
    """Return how many pixels of the view from above are cars and people."""
    above = frame[: overlay.TOWN_HEIGHT, -overlay.SIDE_WIDTH :].astype(int)
    return sum(int((np.abs(above - colour) < 30).all(axis=2).sum()) for colour in (overlay.BLUE, overlay.ORANGE))


def _beside(pictures: list[Picture], gap: int) -> Picture:
    white = np.full((len(pictures[0]), gap, 3), 255, np.uint8)
    row = [part for picture in pictures for part in (picture, white)][:-1]
    return np.concatenate(row, axis=1)


def _read(path: Path) -> Picture:
    picture = cv2.imread(str(path))
    assert picture is not None
    return np.asarray(picture, np.uint8)


def _save(path: Path, picture: Picture) -> None:
    cv2.imwrite(str(path), picture, [cv2.IMWRITE_JPEG_QUALITY, QUALITY])
    print(path, flush=True)


if __name__ == "__main__":
    typer.run(main)
