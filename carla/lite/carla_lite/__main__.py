"""The command ``carla-lite``: chooses the code that runs, compiled or not, before any of it is imported."""

from __future__ import annotations

import sys

from carla_lite import compiled


def main() -> None:
    """Serve until SIGTERM or Ctrl-C."""
    compiled.use()
    try:
        from carla_lite.command import app
    except KeyboardInterrupt:  # before the command takes signals itself
        sys.exit(130)
    app(prog_name="carla-lite")


if __name__ == "__main__":
    main()
