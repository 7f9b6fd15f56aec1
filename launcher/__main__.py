"""``python -m launcher``."""

from launcher.cli import app

app()
