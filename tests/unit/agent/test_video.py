"""Films joined to one."""

from __future__ import annotations

from pathlib import Path

import imageio_ffmpeg
import numpy as np
import pytest

from carla_td3.evaluation import video
from carla_td3.evaluation.video import HEIGHT, WIDTH, VideoSummary


def film(path: Path, grey: int, pictures: int) -> VideoSummary:
    with video.encoding(path, 10.0) as encoder:
        for _ in range(pictures):
            encoder.send(np.full((HEIGHT, WIDTH, 3), grey, np.uint8))
    return VideoSummary(path, pictures / 10.0, 0.0, 1, 0.0)


def test_films_run_side_by_side(tmp_path: Path) -> None:
    films = [film(tmp_path / "a.mp4", 60, 5), film(tmp_path / "b.mp4", 200, 10)]
    video.side_by_side(films, tmp_path / "both.mp4")
    reader = imageio_ffmpeg.read_frames(str(tmp_path / "both.mp4"))
    assert next(reader)["size"] == (2 * WIDTH, HEIGHT)
    pictures = [np.frombuffer(picture, np.uint8).reshape(HEIGHT, 2 * WIDTH, 3) for picture in reader]
    assert len(pictures) == 10
    for picture in pictures:
        assert abs(picture[:, :WIDTH].mean() - 60) < 5
        assert abs(picture[:, WIDTH:].mean() - 200) < 5
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a.mp4", "b.mp4", "both.mp4"]


@pytest.mark.parametrize(
    ("program", "says"), [("/none", "there is no ffmpeg"), ("/bin/false", "/bin/false doesn't have libx264")]
)
def test_an_encoder_that_is_not_there_is_one_sentence(monkeypatch: pytest.MonkeyPatch, program: str, says: str) -> None:
    monkeypatch.setenv("IMAGEIO_FFMPEG_EXE", program)
    found = video.missing.__wrapped__()
    assert says in found
    assert "\n" not in found


def test_the_encoder_that_comes_with_the_agent_can_do_it() -> None:
    assert video.missing() == ""
