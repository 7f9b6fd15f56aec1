"""A YAML file that is one model: read and checked, or refused in one sentence.

Knows no model.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from carla_run.configuration import refusal, yaml_file
from carla_run.exits import ExitError

M = TypeVar("M", bound=BaseModel)


def read(path: Path, model: type[M], refused: type[ExitError], complete: str = "the example") -> M:
    """Return a file's checked values; ``complete`` names a file that has every key that is needed.

    Raises:
        ExitError: of the kind ``refused``: it is missing, isn't YAML, or a key or value is wrong.
    """
    try:
        return checked(yaml_file.read(path) or {}, str(path), model, refused, complete)
    except yaml_file.YamlError as error:
        raise refused(f"{path}: {error}.") from None


def checked(values: Any, source: str, model: type[M], refused: type[ExitError], complete: str = "the example") -> M:
    """Return checked values; ``source`` is named in the error.

    Raises:
        ExitError: of the kind ``refused``, with one sentence on the first thing that is wrong.
    """
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise refused(f"{source}: {refusal.clause(error, model, complete)}.") from None


def refuse_twice(names: Sequence[str], where: str) -> None:
    """Refuse a name that stands twice, in a model's validator; ``where`` is the key that has the names.

    Raises:
        ValueError: a name stands twice.
    """
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"{where} names {', '.join(twice)} twice")
