"""Reading a table of measured kernel times, which anyone may have written: a .csv or .csv.gz file."""

from __future__ import annotations

import csv
import gzip
import zlib
from pathlib import Path

import numpy as np

# columns that hold names, whatever they look like ("2.9" is a version); the others of a known name hold numbers
TEXT = {"system", "backend", "backend_version", "kernel", "impl", "op", "phase", "comm_backend", "distribution"}
TEXT |= {"dtype", "kv_cache_dtype"}
NUMBERS = {"m", "n", "k", "batch", "seq", "kv_len", "heads", "kv_heads", "head_dim", "hidden", "inter", "topk"}
NUMBERS |= {"experts", "num_tokens", "moe_tp", "moe_ep", "tp_size", "ep_size", "node_num", "num_gpus"}
NUMBERS |= {"elements", "bytes"}
MAYBE_ZERO = {"window_size", "sms", "gated"}
SECONDS = "latency_us"


class Measured(dict[str, np.ndarray]):
    """Columns by name; one that is missing is an error that names the file."""

    def __init__(self, path: Path, columns: dict[str, np.ndarray]) -> None:
        super().__init__(columns)
        self.path = path

    def __missing__(self, name: str) -> np.ndarray:
        raise ValueError(f"{self.path}: column {name!r} is missing; it has {', '.join(self)}")


def read_csv(path: Path) -> Measured:
    """Columns of a file: numbers where every value is one, strings otherwise.

    Raises:
        ValueError: unreadable, no rows, rows of unequal length, or a value that cannot have been measured, naming the
            file, the row and the column.
    """
    try:
        opener = gzip.open if path.suffix == ".gz" else open
        with opener(path, "rt", encoding="utf-8-sig") as lines:
            rows = [row for row in csv.reader(lines) if row]
    except (OSError, EOFError, UnicodeDecodeError, csv.Error, zlib.error) as error:
        raise ValueError(f"{path}: not a readable CSV file: {error}") from error
    if len(rows) < 2:
        raise ValueError(f"{path}: holds no rows")
    names = rows.pop(0)
    for number, row in enumerate(rows, 2):
        if len(row) != len(names):
            raise ValueError(f"{path}: row {number} has {len(row)} values, its header names {len(names)} columns")
    columns = zip(names, zip(*rows, strict=True), strict=True)
    return Measured(path, {name: column(path, name, np.array(values)) for name, values in columns})


def column(path: Path, name: str, values: np.ndarray) -> np.ndarray:
    """The values of a column as what its name says they are.

    Raises:
        ValueError: text or an impossible number where a known column holds numbers.
    """
    if name in TEXT:
        return values
    numbers = as_numbers(values)
    if name not in NUMBERS | MAYBE_ZERO | {SECONDS}:
        return numbers
    possible = np.array([is_number(value) for value in values])
    if possible.all():
        least = 0 if name in MAYBE_ZERO else 1
        possible = np.isfinite(numbers) & ((numbers > 0) if name == SECONDS else (numbers >= least))
    if not possible.all():
        row = int(np.flatnonzero(~possible)[0])
        wanted = "a number above 0" if name == SECONDS else f"a number of at least {0 if name in MAYBE_ZERO else 1}"
        raise ValueError(f"{path}: row {row + 2}: {name} = {str(values[row])[:60]!r}: must be {wanted}")
    return numbers


def as_numbers(values: np.ndarray) -> np.ndarray:
    for kind in (np.int64, np.float64):
        try:
            return values.astype(kind)
        except (ValueError, OverflowError):
            continue
    return values


def is_number(value: str) -> bool:
    try:
        float(value)
    except ValueError:
        return False
    return True
