"""Reading a configuration written by someone else: a JSON object of bounded size, and typed access to its keys.

Whatever is wrong with the file is a ValueError that names the file and, where there is one, the key.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

MAX_BYTES = 8 * 2**20  # published configs stay below 1 MB, long exclusion lists included
REQUIRED = object()


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in `path`.

    Raises:
        ValueError: unreadable, too large, not UTF-8, not strict JSON (NaN, repeated keys) or not an object.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a NUL byte in the name
        raise ValueError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from error
    if len(data) > MAX_BYTES:
        raise ValueError(f"{path}: larger than {MAX_BYTES} bytes: not a model configuration")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8 text: {error.reason} at byte {error.start}") from error
    try:
        value = json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_unique)
    except RecursionError:
        raise ValueError(f"{path}: nested too deeply to be a model configuration") from None
    except ValueError as error:  # JSONDecodeError and the refusals below
        raise ValueError(f"{path}: not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise ValueError(f"{path}: a JSON object is needed, found {_kind(value)}")
    return value


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number that JSON knows")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"key {twice!r} appears twice")
    return values


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "text", bool: "a truth value", type(None): "null"}
    return names.get(type(value), "a number")


class Fields:
    """The keys of one configuration: typed, and remembered once read.

    `null` counts as absent, as it does in the published configuration classes.
    """

    def __init__(self, values: dict[str, Any], where: str) -> None:
        self.values = values
        self.where = where
        self.read: set[str] = set()

    def get(self, key: str) -> Any:
        """The raw value; None where absent or null."""
        self.read.add(key)
        return self.values.get(key)

    def integer(self, key: str, default: Any = REQUIRED, least: int = 0) -> Any:
        """A whole number, never a float or a truth value."""
        value = self.get(key)
        if value is None:
            return self._default(key, default)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.error(key, f"= {_short(value)}: a whole number is needed")
        if value < least:
            raise self.error(key, f"= {value}: must be at least {least}")
        return value

    def flag(self, key: str, default: Any = REQUIRED) -> Any:
        value = self.get(key)
        if value is None:
            return self._default(key, default)
        if not isinstance(value, bool):
            raise self.error(key, f"= {_short(value)}: true or false is needed")
        return value

    def word(self, key: str) -> str | None:
        """Text, or None where absent or null."""
        value = self.get(key)
        if value is not None and not isinstance(value, str):
            raise self.error(key, f"= {_short(value)}: text is needed")
        return value

    def table(self, key: str) -> dict[str, Any]:
        value = self.get(key)
        if not isinstance(value, dict):
            raise self.error(key, f"= {_short(value)}: an object is needed")
        return value

    def words(self, key: str, default: Any = REQUIRED) -> list[str]:
        found: list[str] = self._list(key, default, str, "text")
        return found

    def integers(self, key: str, default: Any = REQUIRED) -> list[int]:
        found: list[int] = self._list(key, default, int, "whole numbers")
        return found

    def expect(self, key: str, *allowed: Any) -> None:
        """Refuse the key unless it is absent, null or one of the allowed values."""
        value = self.get(key)
        if value is not None and not any(type(value) is type(one) and value == one for one in allowed):
            valid = ", ".join(json.dumps(one) for one in allowed)
            raise self.error(key, f"= {_short(value)}: only {valid} is supported")

    def error(self, key: str, message: str) -> ValueError:
        return ValueError(f"{self.where}: {key} {message}")

    def _default(self, key: str, default: Any) -> Any:
        if default is REQUIRED:
            raise self.error(key, "is missing and is never guessed from another field")
        return default

    def _list(self, key: str, default: Any, kind: type, what: str) -> Any:
        value = self.get(key)
        if value is None:
            return self._default(key, default)
        if not isinstance(value, list) or any(type(item) is not kind for item in value):
            raise self.error(key, f"= {_short(value)}: a list of {what} is needed")
        return value


def _short(value: Any) -> str:
    text = json.dumps(value) if not isinstance(value, int | float) else repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
