"""What other values of a configuration would take, many at once: what the launcher builds its ladder from.

Owns the form of the question and of the answer. Asks no GPU and imports no torch: figures alone, whether they fit is
the asker's business.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from agent import config as configuration
from agent import layered_yaml
from agent.config import AgentConfig, ConfigError
from agent.memory import footprint
from agent.memory.footprint import MIB, POOLS
from agent.memory.survey import PHASES

Values = Mapping[str, Any]
"""Dotted keys of the configuration to values."""

BASE_KEYS = (
    "device",
    "td3.batch_size",
    "td3.micro_batch",
    "td3.precision",
    "td3.network",
    "memory.offload",
    "environment.camera.width",
    "environment.camera.height",
    "environment.traffic.vehicles",
    "replay.capacity",
    "training.max_lead_steps",
    "training.keep_checkpoints",
    "evaluation.video",
    "evaluation.final_episodes",
    "simulator.timeout_s",
    "collector.hang_margin_s",
)
"""What a ladder may start from, an earlier run's watermarks must share, or a watch must know."""


def parse(text: str) -> list[dict[str, Any]]:
    """Return the sets of values that ``--variants`` holds.

    Raises:
        ConfigError: it isn't a JSON list of objects.
    """
    try:
        found = json.loads(text)
    except ValueError as error:
        raise ConfigError(f'--variants: isn\'t JSON ({error}); give a list as [{{"td3.batch_size": 64}}].') from None
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise ConfigError('--variants: expected a JSON list of objects, as [{"td3.batch_size": 64}].')
    return found


def answer(config: AgentConfig, variants: Sequence[Values]) -> dict[str, Any]:
    """Return ``config``, the values of ``BASE_KEYS``, and ``variants``: what each, laid over it, would take, MiB.

    ``device: auto`` counts as cuda.
    """
    values = configuration.dump(config)
    return {
        "config": {key: _value(values, key) for key in BASE_KEYS},
        "variants": [_size(config, each) for each in variants],
    }


def _size(config: AgentConfig, values: Values) -> dict[str, Any]:
    """Return one answer; ``refusal`` is the sentence of a configuration that can't be, whose figures are missing."""
    try:
        varied = _varied(config, values)
    except ConfigError as error:
        return {"values": dict(values), "refusal": str(error)}
    cuda = varied.device != "cpu"
    found = footprint.estimate(varied, cuda)
    by_phase = {
        f"{pool}_by_phase_mib": {phase: _mib(found.total(pool, parts)) for phase, parts in PHASES.items()}
        for pool in ("device", "host")
    }
    totals = {f"{pool}_mib": _mib(found.total(pool)) for pool in POOLS}
    context = {"context_mib": _mib(footprint.CUDA_CONTEXT) if cuda else 0.0}
    return {"values": dict(values), "refusal": None, **totals, **context, **by_phase}


def _varied(config: AgentConfig, values: Values) -> AgentConfig:
    plain = configuration.dump(config)
    for dotted, value in values.items():
        layered_yaml.assign(plain, dotted, value)
    return configuration.validate(plain, source="this variant")


def _value(values: Any, dotted: str) -> Any:
    for part in dotted.split("."):
        values = values[part]
    return values


def _mib(size: int) -> float:
    return round(size / MIB, 1)
