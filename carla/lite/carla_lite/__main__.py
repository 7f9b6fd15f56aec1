"""``python -m carla_lite``: chooses the code that runs, compiled or not, before any of it is imported."""

from __future__ import annotations

from carla_lite import compiled

compiled.use()

from carla_lite.command import app  # noqa: E402

if __name__ == "__main__":
    app(prog_name="python -m carla_lite")
