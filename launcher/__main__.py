"""``python -m launcher``, and the command ``td3-launch``."""

from __future__ import annotations

from contract.program import program


def main() -> None:
    """Run the command that the command line names; the import, which takes a second, can be interrupted as well."""
    with program("launcher"):
        from launcher.cli import app

        app()


if __name__ == "__main__":
    main()
