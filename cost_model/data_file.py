"""Reading a TOML data file that a user may have written: everything in it is checked before it is used."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

MAX_BYTES = 4 * 2**20
LARGEST = 1e21  # no figure of a GPU or a kernel is larger; what is, is a slip of the keyboard
LONGEST_NAME = 80
# a.a.a... a hundred levels deep: no file of ours is, and the parser's time grows with their square
_DEEP_KEY = re.compile(rb"""(?<![\w"'-])(?:[\w"'-]++\s*+\.\s*+){100}""")


def read_toml(path: Path) -> dict[str, Any]:
    """The tables of a TOML file.

    Raises:
        ValueError: unreadable, too large, not UTF-8 text or not TOML.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise ValueError(f"{path}: larger than {MAX_BYTES} bytes: not a file of this program")
        if _DEEP_KEY.search(data):
            raise RecursionError
        return tomllib.loads(data.decode("utf-8-sig"))
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error.strerror}") from error
    except RecursionError:
        raise ValueError(f"{path}: nested too deeply") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: not a TOML file: {error}") from error


def check_number(where: str, value: Any, least: float, most: float = LARGEST, whole: bool = False) -> None:
    """Refuse what is not a finite number in [least, most].

    Raises:
        ValueError: naming `where`, the value and what is valid.
    """
    wanted = f"a {'whole' if whole else 'finite'} number from {least:g} to {most:g}"
    if isinstance(value, bool) or not isinstance(value, int if whole else int | float) or not least <= value <= most:
        raise ValueError(f"{where} = {shown(value)}: must be {wanted}")


def check_text(where: str, value: Any, empty: bool = False, longest: int = 2000) -> None:
    """Refuse what is not printable text."""
    if not isinstance(value, str) or not (empty or value) or len(value) > longest or not value.isprintable():
        least = 0 if empty else 1
        raise ValueError(f"{where} = {shown(value)}: must be printable text of {least} to {longest} characters")


def shown(value: Any) -> str:
    """A value as an error repeats it."""
    short = repr(value)
    return short if len(short) <= 60 else f"{short[:57]}..."


def check_constants(where: str, tables: Any, known: dict[str, dict[str, dict[str, Any]]]) -> None:
    """Check kernel constants {operation: {key: {name: number, "fit": record}}} against `known` ones of that form.

    Raises:
        ValueError: an unknown operation, key or name, a missing name, or a number that no kernel can have.
    """
    for operation, keys in _items(where, tables, known):
        for key, entry in _items(f"{where}.{operation}", keys, known[operation]):
            _entry(f"{where}.{operation}.{key}", entry, known[operation][key])


def _items(where: str, table: Any, known: dict[str, Any]) -> list[tuple[str, Any]]:
    """The entries of a table with no other keys than the known ones."""
    if not isinstance(table, dict):
        raise ValueError(f"{where} = {shown(table)}: must be a table of {', '.join(known)}")
    for name in table:
        if name not in known:
            raise ValueError(f"{where}: unknown key {name!r}; valid: {', '.join(known)}")
    return list(table.items())


def _entry(where: str, entry: Any, known: dict[str, Any]) -> None:
    values = {"fit": {}, **dict(_items(where, entry, known))}
    for name in known:
        if name not in values:
            raise ValueError(f"{where}: missing key {name!r}; valid: {', '.join(known)}")
        if name == "fit":
            _record(f"{where}.fit", values[name])
        elif name.endswith("_efficiency"):
            check_number(f"{where}.{name}", values[name], 1e-6, 10.0)
        else:  # a saving of time is negative, by less than a millisecond
            check_number(f"{where}.{name}", values[name], -1e-3 if name.endswith("_s") else 0.0)


def _record(where: str, record: Any) -> None:
    if not isinstance(record, dict):
        raise ValueError(f"{where} = {shown(record)}: must be a table with error_low, error_high, source ...")
    low, high = record.get("error_low", 0.8), record.get("error_high", 1.25)
    check_number(f"{where}.error_low", low, 1e-3, 1e3)
    check_number(f"{where}.error_high", high, low, 1e3)
    check_text(f"{where}.source", record.get("source", ""), empty=True)
