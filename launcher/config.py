"""The launcher's configuration: what ``config/launcher.yaml`` holds, checked.

Owns the schema and the sentences about it; the values stand in the file alone. Knows nothing of the agent's.
"""

from __future__ import annotations

from pathlib import Path

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

SHIPPED = Path(__file__).resolve().parent.parent / "config" / "launcher.yaml"


class LauncherConfigError(Exception):
    """A configuration that can't be used; the message is one sentence for a person (exit code 65)."""


class Section(BaseModel):
    """Base of all sections: unknown keys are errors, values are frozen."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class SimulatorLimits(Section):
    """How the simulator is started, and how often again."""

    map: str = Field(description="Map of a simulator that the launcher starts, unless --map names another.")
    seed: int = Field(ge=0, description="Its seed, unless --seed gives another.")
    start_limit_s: float = Field(gt=0, description="From its start to answering and ticking.")
    running_limit_s: float = Field(gt=0, description="The same for one that somebody else runs (--simulator-host).")
    check_timeout_s: float = Field(gt=0, le=5, description="Of each answer in a health check.")
    stop_grace_s: float = Field(ge=0, description="Between SIGTERM and SIGKILL.")
    stable_after_s: float = Field(gt=0, description="Healthy for this long, its earlier failures are forgotten.")
    restarts: int = Field(ge=0, description="Failures in a row that are answered by a restart; one more ends the run.")
    first_delay_s: float = Field(gt=0, description="Before the first restart; doubles with each further one.")
    longest_delay_s: float = Field(gt=0, description="Where the doubling ends.")
    jitter: float = Field(ge=0, lt=1, description="Random share by which a delay is longer or shorter.")


class AgentLimits(Section):
    """How the agent is stopped."""

    stop_grace_s: float = Field(ge=0, description="Between SIGTERM and SIGKILL: its time to write a checkpoint.")


class LauncherConfig(Section):
    """Everything the launcher goes by."""

    simulator: SimulatorLimits
    agent: AgentLimits
    poll_s: float = Field(gt=0, le=1, description="Between two looks at processes and requests to stop.")


def load(path: Path = SHIPPED) -> LauncherConfig:
    """Return the checked file.

    Raises:
        LauncherConfigError: it is missing, isn't YAML, or a key or value is wrong.
    """
    try:
        return LauncherConfig.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")) or {})
    except OSError as error:
        reason = f"can't be read ({error.strerror}); give the path of a YAML file"
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        reason = f"isn't YAML: {' '.join(str(error).split())}"
    except ValidationError as error:
        reason = _sentence(error)
    raise LauncherConfigError(f"{path}: {reason}.")


def _sentence(error: ValidationError) -> str:
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"]) or "the file"
    if first["type"] == "extra_forbidden":
        return f"unknown key `{where}`; {SHIPPED.name} as shipped has all that exist"
    if first["type"] == "missing":
        return f"`{where}` is missing; {SHIPPED.name} as shipped has all that are needed"
    return f"`{where}` is {first['input']!r}; {first['msg'][0].lower()}{first['msg'][1:]}"
