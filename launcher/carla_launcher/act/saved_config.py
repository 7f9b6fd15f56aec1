"""Reads the agent's resolved configuration, which its run saved."""

from __future__ import annotations

from typing import Any

import yaml

from carla_run.paths import RunPaths
from carla_run.readers import read_text


def saved_config(run: RunPaths) -> dict[str, Any]:
    """Return the sections of ``config.yaml``; empty if the file is missing or invalid."""
    try:
        value = yaml.safe_load(read_text(run.config))
    except (ValueError, RecursionError, yaml.YAMLError):
        return {}
    return value if isinstance(value, dict) else {}
