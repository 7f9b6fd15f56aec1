"""carla-lite's window goes on after whatever drawing it raises, and says what that was."""

from __future__ import annotations

import pytest

from carla_lite.view import watch
from carla_lite.view.watch import Watch


def test_a_mistake_costs_a_moment_and_is_said(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(watch, "RETRY_S", 0.0)
    looks = iter([LookupError("no such mesh"), None, SystemExit()])
    problems: list[str] = []
    window = Watch("127.0.0.1", 1, 0)
    window.look()

    def look() -> None:
        problems.append(window.problem)
        if (error := next(looks)) is not None:
            raise error

    monkeypatch.setattr(window, "_watch", look)
    with pytest.raises(SystemExit):
        window.run()
    assert problems == ["connecting", "LookupError: no such mesh", ""]
    assert "no such mesh" in capfd.readouterr().err
