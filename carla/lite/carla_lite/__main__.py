"""The command ``carla-lite``: chooses between compiled and plain code, before any of it is imported.

``carla-lite coverage`` is a separate program; ``carla-lite`` without it has only the server's options.
"""

from __future__ import annotations

import gc
import os
import sys

from carla_lite import compiled


def main() -> None:
    """Serve until SIGTERM or Ctrl-C, or print what is supported."""
    if sys.argv[1:2] == ["coverage"]:
        from carla_lite import coverage

        coverage.main(sys.argv[2:], prog_name="carla-lite coverage")
    # Little of what is imported and built goes away again: looking for it takes a twentieth of the start.
    gc.disable()
    # No product of matrices here is worth a second thread, which costs 30 ms and spins.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    compiled.use()
    try:
        from carla_lite.command import main as serve
    except KeyboardInterrupt:  # before the command handles signals itself
        sys.exit(130)
    serve(prog_name="carla-lite")


if __name__ == "__main__":
    main()
