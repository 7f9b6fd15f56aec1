"""What every section of the configuration is made of.

Owns the strictness: an unknown key is an error, a value never changes. Below ``config``, so that a room can keep its
own section beside the code that reads it.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """Base of all sections: unknown keys are errors, values are frozen."""

    model_config = ConfigDict(extra="forbid", frozen=True)
