"""A run directory: everything a run leaves behind, written so that a crash loses nothing that was there.

Every file is written beside its target, flushed to disk, and renamed over it. One process at a time holds the
directory's lock. Files: study.toml, run.json, trials / designs / frontier / reference / points .parquet,
frontier.csv, checkpoint.npz, report.html. A run.json says that the tables beside it belong together.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import itertools
import json
import os
import time
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

LOCK = ".lock"
LOCK_SECONDS = 2.0  # processes that a killed sweep leaves behind hold its lock until they notice


class RunDirectory:
    """The files of one run, by name."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    @classmethod
    def create(cls, name: str, out: str | Path | None = None) -> RunDirectory:
        """A new directory: `out`, or runs/<name>-<n> with the first free n.

        Raises:
            ValueError: `out` holds something already, or cannot be made.
        """
        path = Path("runs") if out is None else Path(out)
        try:
            if out is None:
                return cls(_first_free(path, name))
            path.mkdir(parents=True, exist_ok=True)
            used = any(not _leftover(entry.name) for entry in path.iterdir())
        except (OSError, ValueError) as error:
            raise ValueError(f"--out {path}: cannot be made: {reason(error)}; name a new or empty directory") from error
        if used:
            raise ValueError(f"--out {path}: exists and is not an empty directory; choose another, or use --resume")
        return cls(path)

    @classmethod
    def open(cls, path: str | Path) -> RunDirectory:
        """An existing run.

        Raises:
            ValueError: not a run directory.
        """
        if not os.path.isfile(Path(path) / "study.toml"):
            raise ValueError(f"{path}: not a run directory (no study.toml in it)")
        return cls(path)

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the directory; a second process is told so instead of mixing its results in.

        Raises:
            ValueError: another process holds it, or nothing can be written there.
        """
        try:
            handle = (self.path / LOCK).open("w")
        except OSError as error:
            raise ValueError(f"{self.path}: cannot be written: {reason(error)}") from error
        with handle:
            deadline = time.monotonic() + LOCK_SECONDS
            while not _locked(handle.fileno()):
                if time.monotonic() > deadline:
                    raise ValueError(f"{self.path}: another process is running in this directory")
                time.sleep(0.1)
            yield

    def write_bytes(self, name: str, data: bytes) -> Path:
        """Write a file whole or not at all.

        Raises:
            ValueError: the disk is full or the directory cannot be written; what was there stays.
        """
        self.write_together({name: data})
        return self.path / name

    def write_together(self, files: Mapping[str, bytes]) -> None:
        """Write files that belong together: all or none where writing fails.

        The last one vouches for the others: it is absent while they are replaced, so that a crash in between leaves
        no mixture that looks whole.
        Raises:
            ValueError: the disk is full or the directory cannot be written; what was there stays.
        """
        temporary = {name: self.path / f".{name}.tmp" for name in files}
        name = ""
        try:
            for name, data in files.items():
                with temporary[name].open("wb") as handle:
                    handle.write(data)
                    handle.flush()
                    os.fsync(handle.fileno())
            if len(files) > 1:
                (self.path / name).unlink(missing_ok=True)
            for name, path in temporary.items():
                path.replace(self.path / name)
        except OSError as error:
            for path in temporary.values():
                with contextlib.suppress(OSError):
                    path.unlink(missing_ok=True)
            raise ValueError(f"{self.path / name}: cannot be written: {reason(error)}") from error

    def write_text(self, name: str, text: str) -> Path:
        return self.write_bytes(name, text.encode("utf-8"))

    def write_json(self, name: str, value: Any) -> Path:
        return self.write_bytes(name, json_bytes(value))

    def write_table(self, name: str, frame: pd.DataFrame) -> Path:
        return self.write_bytes(f"{name}.parquet", parquet_bytes(frame))

    def write_arrays(self, name: str, arrays: Mapping[str, np.ndarray]) -> Path:
        buffer = io.BytesIO()
        np.savez(buffer, **arrays)  # type: ignore[arg-type]
        return self.write_bytes(f"{name}.npz", buffer.getvalue())

    def read_text(self, name: str) -> str:
        if not (self.path / name).is_file():  # a device or a pipe may never end
            raise ValueError(f"{self.path / name}: cannot be read: no such file")
        try:
            return (self.path / name).read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise ValueError(f"{self.path / name}: cannot be read: {reason(error)}") from error

    def read_json(self, name: str) -> Any:
        try:
            return json.loads(self.read_text(name))
        except (json.JSONDecodeError, RecursionError) as error:
            raise ValueError(f"{self.path / name}: not JSON: {error}") from error

    def read_table(self, name: str) -> pd.DataFrame:
        """A table of the run.

        Raises:
            ValueError: missing, truncated or not a Parquet file.
        """
        path = self.path / f"{name}.parquet"
        if not path.is_file():
            raise ValueError(f"{path}: missing; the run has not finished, use --resume")
        try:
            return pd.read_parquet(path)
        except (pa.ArrowException, OSError) as error:
            raise ValueError(f"{path}: not a readable Parquet file: {error}") from error

    def read_arrays(self, name: str) -> dict[str, np.ndarray] | None:
        """Arrays of a checkpoint (no pickled objects); None where there is none yet."""
        path = self.path / f"{name}.npz"
        if not path.is_file():
            return None
        try:
            with np.load(path, allow_pickle=False) as stored:
                return dict(stored)
        except (ValueError, OSError, EOFError, KeyError, TypeError, zipfile.BadZipFile, zlib.error) as error:
            raise ValueError(f"{path}: not a readable checkpoint: {error}") from error


def json_bytes(value: Any) -> bytes:
    return (json.dumps(value, indent=2, allow_nan=False) + "\n").encode()


def parquet_bytes(frame: pd.DataFrame) -> bytes:
    buffer = io.BytesIO()
    frame.to_parquet(buffer, compression="zstd", index=False)
    return buffer.getvalue()


def reason(error: Exception) -> str:
    """What an operating-system error says, without its number and path."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def _first_free(parent: Path, name: str) -> Path:
    """The directory <name>-<n> that did not exist yet, made."""
    for number in itertools.count(1):
        path = parent / f"{name}-{number}"
        try:
            path.mkdir(parents=True)
            break
        except FileExistsError:
            if not path.exists():
                raise
    return path


def _leftover(name: str) -> bool:
    """Whether a file is what a run leaves that was killed before it wrote anything."""
    return name == LOCK or (name.startswith(".") and name.endswith(".tmp"))


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
