"""The command ``carla-lite``: chooses between compiled and plain code, before any of it is imported.

``carla-lite coverage`` is a separate program; ``carla-lite`` without it has only the server's options.
"""

from __future__ import annotations

import sys

from carla_lite import compiled


def main() -> None:
    """Serve until SIGTERM or Ctrl-C, or print what is supported."""
    if sys.argv[1:2] == ["coverage"]:
        from carla_lite import coverage

        coverage.app(sys.argv[2:], prog_name="carla-lite coverage")
    compiled.use()
    try:
        from carla_lite.command import app
    except KeyboardInterrupt:  # before the command handles signals itself
        sys.exit(130)
    app(prog_name="carla-lite")


if __name__ == "__main__":
    main()
