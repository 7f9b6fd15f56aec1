"""Makes the options of a command from the fields of a pydantic model, so that each is declared once.

A field's description is its help, and its bounds are checked as usage errors. A typer ``Option`` or ``Argument`` in the
annotation sets the rest of ``--help``.
"""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypeVar, get_origin

import typer
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from typer.models import ParameterInfo

from carla_run.configuration import refusal

Command = Callable[..., Any]
Model = TypeVar("Model", bound=BaseModel)


def asking(
    model: type[BaseModel], names: str, helps: Mapping[str, str | None] | None = None, *, defaults: bool = False
) -> Callable[[Command], Command]:
    """Return a decorator that gives a command options of a model; the command gets the model as its first parameter.

    Args:
        model: declares the options; none is required.
        names: names of the model's fields and of the command's other parameters, in the order of ``--help``.
        helps: help texts that replace those of the model for this command.
        defaults: show the fields' defaults in ``--help``, and count them as given.
    """

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def run(**given: Any) -> Any:
            return command(given_options(model, {name: given.pop(name) for name in declared}), **given)

        own = dict([*inspect.signature(command, eval_str=True).parameters.items()][1:])
        declared = {name: model.model_fields[name] for name in names.split() if name not in own}
        parameters = [
            own.get(name) or _parameter(name, declared[name], helps or {}, defaults) for name in names.split()
        ]
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {each.name: each.annotation for each in parameters}
        return run

    return decorate


def given_options(model: type[Model], given: Mapping[str, Any]) -> Model:
    """Return the options of a model that a command line gives, by name; None and no words count as not given.

    Raises:
        typer.BadParameter: typer accepts a value that the model refuses.
    """
    try:
        return model(**{name: value for name, value in given.items() if value not in (None, [], ())})
    except ValidationError as error:
        raise typer.BadParameter(f"{refusal.clause(error, model)}.") from None


def _parameter(name: str, field: FieldInfo, helps: Mapping[str, str | None], defaults: bool) -> inspect.Parameter:
    """Return a field as a command's parameter; its default is None unless ``defaults``."""
    shown = copy.copy(next((each for each in field.metadata if isinstance(each, ParameterInfo)), typer.Option()))
    shown.help = helps.get(name, shown.help or field.description)
    for bound in field.metadata:
        shown.min, shown.max = getattr(bound, "ge", shown.min), getattr(bound, "le", shown.max)
    kind: Any = field.annotation
    if shown.parser is not None:
        kind = str
    elif get_origin(kind) is tuple:
        kind = list[str]
    default = field.default if defaults and not isinstance(field.default, tuple) else None
    annotation = Annotated[kind | None, shown]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
