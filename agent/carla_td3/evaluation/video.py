"""Films a driver from behind: an mp4 that any browser plays, in real time; ``overlay`` draws what is beside it.

Owns the chase camera and the encoder process. Each step has the picture of its frame.
"""

from __future__ import annotations

import contextlib
import functools
import os
import subprocess
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import carla
import imageio_ffmpeg
import numpy as np
import psutil
from numpy.typing import NDArray

from carla_run.memory.processes import held_mib
from carla_td3.env.driving import DrivingEnv
from carla_td3.env.route import Route
from carla_td3.env.sensors import FrameCamera
from carla_td3.env.session import BlockedStart, SimulatorLost
from carla_td3.evaluation import overlay
from carla_td3.evaluation.drivers import Driver
from carla_td3.evaluation.overlay import OverlayData, TownMap
from carla_td3.evaluation.routes import Steps, steps

Picture = NDArray[np.uint8]

WIDTH, HEIGHT, FOV_DEG = 640, 360, 90.0
BEHIND_M, ABOVE_M, PITCH_DEG = -5.5, 2.8, -14.0
CODEC = "libx264"
# Frame threads and look-ahead hold pictures in RAM: by default one thread per core and 40 pictures, 80 MiB on 2 cores
# and more on larger machines. With these settings it is 42 MiB everywhere, and the file is no larger.
FRUGAL = ("-threads", "1", "-x264-params", "rc-lookahead=10:sync-lookahead=0")
REHEARSED_PICTURES = 40  # until the encoder's memory stops growing


@dataclass(frozen=True)
class VideoSummary:
    """Facts about a video."""

    path: Path
    seconds: float
    metres: float
    routes: int
    encoder_mib: float
    """RAM of the encoder process when it had every picture."""


def record(
    env: DrivingEnv,
    driver: Driver,
    routes: Sequence[Route],
    path: Path,
    *,
    min_seconds: float = 10.0,
    min_metres: float = 50.0,
    max_seconds: float = 120.0,
    title: str = "",
    options: Mapping[str, Any] | None = None,
) -> Steps[VideoSummary]:
    """Film route after route until the video is long enough and the car moved far enough, or no route is left.

    Args:
        env: the environment itself (``gymnasium.make(...).unwrapped``).
        path: of the mp4 (H.264, yuv420p, 640×360). Its folder is created; the file appears complete or not at all.
        max_seconds: upper limit, whatever the car does.
        title: shown in the picture.
        options: for ``DrivingEnv.reset``, besides the route.

    Raises:
        BlockedStart, SimulatorLost: from the last route, if no route gave a picture.
        NoSimulator: the simulator is gone for longer than its patience.
    """
    frames, metres, driven = 0, 0.0, 0
    fps = 1.0 / env.session.config.fixed_delta_s
    with encoding(path, fps) as encoder:
        for route in routes:
            if frames >= max_seconds * fps or (frames >= min_seconds * fps and metres >= min_metres):
                break
            driven += 1
            before = metres
            yield
            try:
                with contextlib.closing(_drive(env, driver, {**(options or {}), "route": route}, title)) as drive:
                    for picture, distance_m in drive:
                        encoder.send(picture)
                        frames, metres = frames + 1, before + distance_m
                        yield
                        if frames >= max_seconds * fps:
                            break
            except (SimulatorLost, BlockedStart):
                if frames == 0 and driven == len(routes):
                    raise
        encoder_mib = _children_mib()
    return VideoSummary(path, frames / fps, metres, driven, encoder_mib)


def rehearse(fps: float) -> float:
    """Encode throw-away pictures, write nothing, and return the RAM of the encoder process in MiB."""
    picture = np.random.default_rng(0).integers(0, 256, (HEIGHT, WIDTH, 3), np.uint8)  # noise is hardest to encode
    with contextlib.closing(_ffmpeg(os.devnull, fps, (WIDTH, HEIGHT), "-f", "null")) as encoder:
        for shift in range(REHEARSED_PICTURES):
            encoder.send(np.roll(picture, 3 * shift, axis=1))
        return _children_mib()


def side_by_side(films: Sequence[VideoSummary], path: Path) -> None:
    """Join films side by side, the first on the left; one that is over shows its last picture.

    The file at ``path`` appears complete or not at all.
    """
    longest = max(film.seconds for film in films)
    held = ";".join(f"[{n}:v]tpad=stop_mode=clone:stop_duration={longest}[v{n}]" for n in range(len(films)))
    row = "".join(f"[v{n}]" for n in range(len(films))) + f"hstack=inputs={len(films)}"
    inputs = [word for film in films for word in ("-i", str(film.path))]
    output = ("-t", f"{longest}", "-pix_fmt", "yuv420p", *FRUGAL)
    with _whole(path) as unfinished:
        joined = ["-y", "-v", "error", *inputs, "-filter_complex", f"{held};{row}", *output, str(unfinished)]
        subprocess.run([imageio_ffmpeg.get_ffmpeg_exe(), *joined], check=True)


def _drive(
    env: DrivingEnv, driver: Driver, options: Mapping[str, Any], title: str
) -> Generator[tuple[Picture, float], None, None]:
    """Yield the picture and the metres driven after every step; a lost simulator or a taken start ends the route."""
    env.reset(options=options)  # there is a car to follow only after this
    assert env.car is not None
    pose = carla.Transform(carla.Location(x=BEHIND_M, z=ABOVE_M), carla.Rotation(pitch=PITCH_DEG))
    camera = FrameCamera(env.session, env.car.actor, pose, width=WIDTH, height=HEIGHT, fov_deg=FOV_DEG)
    try:
        camera.wait_for_first()
        town = TownMap(env.planner.lanes)
        for step in steps(env, driver, env.reset(options=options)):
            picture = camera.image(env.frame)[:, :, :3].copy()
            seen = OverlayData.of(env, step.action, step.reward, step.info, title=title)
            own = overlay.views(env.picture, env.config.camera)
            yield overlay.filmed(picture, own, seen, town), step.info["distance_m"]
    finally:
        camera.destroy()


@functools.cache
def missing() -> str:
    """Return why no video can be encoded here, one sentence; empty if one can."""
    try:
        program = imageio_ffmpeg.get_ffmpeg_exe()
        one_picture = ("-f", "lavfi", "-i", "color=size=64x64", "-frames:v", "1", "-c:v", CODEC, "-f", "null", "-")
        tried = subprocess.run([program, "-v", "error", *one_picture], capture_output=True, check=False)
    except (OSError, RuntimeError) as error:
        return (
            f"No video can be encoded, because there is no ffmpeg ({error}): `pip install imageio-ffmpeg` brings one."
        )
    if tried.returncode == 0:
        return ""
    return (
        f"No video can be encoded, because {program} doesn't have {CODEC}: unset IMAGEIO_FFMPEG_EXE, or name another."
    )


@contextlib.contextmanager
def encoding(
    path: Path, fps: float, size: tuple[int, int] = (WIDTH, HEIGHT)
) -> Iterator[Generator[None, Picture, None]]:
    """Run ffmpeg while the block runs; the file gets its name only when it is complete."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with _whole(path) as unfinished, contextlib.closing(_ffmpeg(str(unfinished), fps, size)) as encoder:
        yield encoder


@contextlib.contextmanager
def _whole(path: Path) -> Iterator[Path]:
    """Yield a temporary path. After the block the file gets its name, or is removed if the block failed."""
    unfinished = path.with_name(f".unfinished-{path.name}")
    try:
        yield unfinished
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def _ffmpeg(path: str, fps: float, size: tuple[int, int], *output: str) -> Generator[None, Picture, None]:
    """Start the encoder and return it; ``output`` are further options of its output."""
    encoder: Generator[None, Picture, None] = imageio_ffmpeg.write_frames(
        path,
        size,
        pix_fmt_in="bgr24",
        fps=fps,
        codec=CODEC,
        quality=7,
        macro_block_size=8,
        output_params=[*FRUGAL, *output],
    )
    encoder.send(None)  # type: ignore[arg-type]  # starts the generator
    return encoder


def _children_mib() -> float:
    return sum(held_mib(child.pid) or 0.0 for child in psutil.Process().children())
