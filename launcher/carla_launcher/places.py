"""Files and folders that the launcher takes unless options name others."""

from __future__ import annotations

from pathlib import Path

SHIPPED = Path(__file__).resolve().with_name("launcher.yaml")
"""The launcher's configuration, with all default values."""
CHECKOUT = Path(__file__).resolve().parents[2]
STACK = CHECKOUT if (CHECKOUT / "docker-compose.yml").is_file() else Path()
"""Folder of the Compose files unless ``--stack`` names another one; a wheel has none."""
DEFAULT_CONFIG = Path("lowmem")
"""The agent's configuration of a new run for which none is given."""
