"""``python -m carla_lite``: chooses the code that runs, compiled or not, before any of it is imported."""

from __future__ import annotations

import sys

from carla_lite import compiled

compiled.use()

try:
    from carla_lite.command import app
except KeyboardInterrupt:  # before the command takes signals itself
    sys.exit(130)

if __name__ == "__main__":
    app(prog_name="python -m carla_lite")
