"""The launcher's command line: ``python scripts/launch.py up | status | report``."""

from launcher.cli import app

if __name__ == "__main__":
    app()
