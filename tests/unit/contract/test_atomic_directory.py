"""A directory is published whole, or what was there before stands."""

from __future__ import annotations

from pathlib import Path

import pytest

from carla_run.atomic_directory import newest_first, publish


def test_where_a_directory_can_not_be_put_in_place_the_one_before_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    final, rename = tmp_path / "step-1", Path.rename
    publish(final, lambda folder: (folder / "weights").touch())

    def refused_in_place(path: Path, target: Path) -> Path:
        if path.name.startswith(".new-"):
            raise OSError("no")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", refused_in_place)
    with pytest.raises(OSError, match="no"):
        publish(final, lambda _: None)
    assert newest_first(tmp_path, "step-*") == [final]
    assert (final / "weights").exists()
    assert {path.name for path in tmp_path.iterdir()} == {"latest", "step-1"}
