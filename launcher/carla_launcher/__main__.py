"""The command ``carla-launcher``, and ``python -m carla_launcher``."""

from __future__ import annotations

from carla_run.program import program


def main() -> None:
    """Run the command that the command line names; the import, which takes a second, can be interrupted as well."""
    with program("launcher", extra="launcher"):
        from carla_launcher.cli import app

        app()


if __name__ == "__main__":
    main()
