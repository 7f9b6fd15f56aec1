"""The base of all configuration models."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """Unknown keys are errors, values are frozen."""

    model_config = ConfigDict(extra="forbid", frozen=True)
