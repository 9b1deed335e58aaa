"""One readable message out of a validation error: every problem with its key, its value and what is valid."""

from __future__ import annotations

import difflib
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

_LONGEST = 60  # characters of a value that an error repeats


def readable(error: ValidationError, model: type[BaseModel]) -> str:
    """The problems of a failed validation, one per line."""
    return "\n".join(dict.fromkeys(_line(problem, model) for problem in error.errors(include_url=False)))


def _line(problem: Any, model: type[BaseModel]) -> str:
    where = [part for part in problem["loc"] if isinstance(part, int) or not part.startswith("function-")]
    absent = problem["type"] in ("missing", "extra_forbidden")
    table, field = _nearest(where[:-1] if absent else where, model)
    path = ".".join(map(str, where))
    if problem["type"] == "extra_forbidden":
        return f"unknown key {path!r}{_hint(str(where[-1]), table)}; valid: {', '.join(table.model_fields)}"
    if problem["type"] == "missing":
        wanted = table.model_fields[str(where[-1])].description
        return f"missing key {path!r}; valid: {wanted}"
    valid = field.description if field is not None else "a table"
    said = str(problem["ctx"]["error"]) if problem["type"] == "value_error" else ""
    if "valid:" not in said:
        said += f"; valid: {valid}"
    shown = repr(problem["input"])
    value = f" = {shown[:_LONGEST] + '...' * (len(shown) > _LONGEST)}"
    if isinstance(problem["input"], dict):
        value = "" if problem["type"] == "value_error" else " is one table"
    return f"{path}{value}{': ' if not said.startswith(';') else ''}{said}"


def _nearest(where: list[Any], model: type[BaseModel]) -> tuple[type[BaseModel], FieldInfo | None]:
    """The innermost table on a path and the innermost described field."""
    table, field = model, None
    for part in where:
        if isinstance(part, int):
            continue
        found = table.model_fields.get(part)
        if found is None:
            break
        field = found
        table = _model_in(found.annotation) or table
    return table, field


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """The table type inside an annotation such as list[TargetTable] or Plateau | None."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for part in get_args(annotation) if (found := _model_in(part))), None)


def _hint(key: str, table: type[BaseModel]) -> str:
    near = difflib.get_close_matches(key, table.model_fields, n=1)
    return f", did you mean {near[0]!r}" if near else ""
