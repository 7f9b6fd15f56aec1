"""The options of a command, made from the fields of a model: each is declared once.

A field's description is its help, its bounds say what is a usage error, and typer's ``Option`` or ``Argument`` in its
annotation says what else ``--help`` has of it. Knows no option.
"""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, Any, get_origin

import typer
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from typer.models import ParameterInfo

from carla_run.configuration import refusal

Command = Callable[..., Any]


def asking(
    model: type[BaseModel], names: str, helps: Mapping[str, str | None] | None = None, *, defaults: bool = False
) -> Callable[[Command], Command]:
    """Have a command take options of a model, which its first parameter is then given as far as they were given.

    Args:
        model: declares them; none is required.
        names: of its fields, and of the command's other parameters, in the order of ``--help``.
        helps: what ``--help`` says of a field, where this command says something else.
        defaults: ``--help`` has the fields' defaults, and what isn't given counts as given at them.
    """

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def run(**given: Any) -> Any:
            asked = {name: value for name in declared if (value := given.pop(name)) not in (None, [])}
            try:
                options = model(**asked)
            except ValidationError as error:  # what the command line takes and the model refuses
                raise typer.BadParameter(f"{refusal.clause(error, model)}.") from None
            return command(options, **given)

        own = dict([*inspect.signature(command, eval_str=True).parameters.items()][1:])
        declared = {name: model.model_fields[name] for name in names.split() if name not in own}
        parameters = [
            own.get(name) or _parameter(name, declared[name], helps or {}, defaults) for name in names.split()
        ]
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {each.name: each.annotation for each in parameters}
        return run

    return decorate


def _parameter(name: str, field: FieldInfo, helps: Mapping[str, str | None], defaults: bool) -> inspect.Parameter:
    """Return a field as a command's parameter: optional, and None where it isn't given unless ``defaults``."""
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
