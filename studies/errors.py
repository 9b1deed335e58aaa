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
    table, field, depth = _nearest(where, model)
    path = ".".join(map(str, where))
    if problem["type"] == "extra_forbidden":
        return f"unknown key {path!r}{_hint(str(where[-1]), table)}; valid: {', '.join(table.model_fields)}"
    if problem["type"] == "missing":
        wanted = table.model_fields[str(where[-1])].description
        return f"missing key {path!r}: {wanted}"
    valid = field.description if field is not None else ""
    said = str(problem["ctx"]["error"]) if problem["type"] == "value_error" else ""
    if problem["type"] in ("model_type", "dict_type", "list_type") and not valid:
        valid = "a table is needed"
    if said and (field is None or said == valid or depth < len(where)):
        valid = said
    elif said:
        valid = f"{said}; valid: {valid}"
    if isinstance(problem["input"], dict):
        return f"{path}: {valid}"
    shown = repr(problem["input"])
    return f"{path} = {shown if len(shown) <= _LONGEST else shown[:_LONGEST] + '...'}: must be {valid}"


def _nearest(where: list[Any], model: type[BaseModel]) -> tuple[type[BaseModel], FieldInfo | None, int]:
    """The innermost table on a path, the innermost described field, and how deep that field is."""
    table, field, depth = model, None, 0
    for position, part in enumerate(where):
        if isinstance(part, int):
            continue
        found = table.model_fields.get(part)
        if found is None:
            break
        field, depth = found, position + 1
        inner = _model_in(found.annotation)
        if inner is not None:
            table = inner
    return table, field, depth


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """The table type inside an annotation such as list[TargetTable] or Plateau | None."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for part in get_args(annotation) if (found := _model_in(part))), None)


def _hint(key: str, table: type[BaseModel]) -> str:
    near = difflib.get_close_matches(key, table.model_fields, n=1)
    return f", did you mean {near[0]!r}" if near else ""
