"""Reads a YAML file as a pydantic model, or refuses it in one sentence.

Knows no particular model.
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
    """Return a file as a model; ``complete`` names an example with every required key.

    Raises:
        ExitError: an error of class ``refused``: the file is missing, isn't YAML, or has a wrong key or value.
    """
    try:
        return checked(yaml_file.read(path) or {}, str(path), model, refused, complete)
    except yaml_file.YamlError as error:
        raise refused(f"{path}: {error}.") from None


def checked(values: Any, source: str, model: type[M], refused: type[ExitError], complete: str = "the example") -> M:
    """Return values as a model; ``source`` is named in errors.

    Raises:
        ExitError: an error of class ``refused``, with one sentence on the first wrong key or value.
    """
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise refused(f"{source}: {refusal.clause(error, model, complete)}.") from None


def refuse_duplicates(names: Sequence[str], where: str) -> None:
    """Refuse a duplicate name, in a model's validator; ``where`` is the key with the names.

    Raises:
        ValueError: there is a duplicate name.
    """
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"{where} names {', '.join(twice)} twice")
