"""The command ``carla-launcher``, and ``python -m carla_launcher``."""

from __future__ import annotations

from carla_run.program import program


def main() -> None:
    """Run the command line. Ctrl-C works during the import as well, which takes a second."""
    with program("launcher", extra="launcher"):
        from carla_launcher.cli import app

        app()


if __name__ == "__main__":
    main()
