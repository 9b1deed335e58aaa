"""A run directory: everything a run leaves behind, written so that a crash loses nothing that was there.

Every file is written beside its target, flushed to disk, and renamed over it. One process at a time holds the
directory's lock. Files: study.toml, run.json, trials / designs / frontier / reference / points .parquet,
frontier.csv, checkpoint.npz, report.html.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

TABLES = ("trials", "designs", "frontier", "reference", "points")


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
        if out is None:
            number = 1
            while (path := Path("runs") / f"{name}-{number}").exists():
                number += 1
        else:
            path = Path(out)
            if path.exists() and (not path.is_dir() or any(path.iterdir())):
                raise ValueError(f"--out {path}: exists and is not an empty directory; choose another, or use --resume")
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ValueError(f"--out {path}: cannot be made: {error.strerror}") from error
        return cls(path)

    @classmethod
    def open(cls, path: str | Path) -> RunDirectory:
        """An existing run.

        Raises:
            ValueError: not a run directory.
        """
        if not (Path(path) / "study.toml").is_file():
            raise ValueError(f"{path}: not a run directory (no study.toml in it)")
        return cls(path)

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the directory; a second process is told so instead of mixing its results in."""
        with (self.path / ".lock").open("w") as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise ValueError(f"{self.path}: another process is running in this directory") from error
            yield

    def write_bytes(self, name: str, data: bytes) -> Path:
        """Write a file whole or not at all.

        Raises:
            ValueError: the disk is full or the directory cannot be written; what was there stays.
        """
        target = self.path / name
        temporary = self.path / f".{name}.tmp"
        try:
            with temporary.open("wb") as handle:
                handle.write(data)
                handle.flush()
                os.fsync(handle.fileno())
            temporary.replace(target)
        except OSError as error:
            temporary.unlink(missing_ok=True)
            raise ValueError(f"{target}: cannot be written: {error.strerror}") from error
        return target

    def write_text(self, name: str, text: str) -> Path:
        return self.write_bytes(name, text.encode("utf-8"))

    def write_json(self, name: str, value: Any) -> Path:
        return self.write_text(name, json.dumps(value, indent=2, allow_nan=False) + "\n")

    def write_table(self, name: str, frame: pd.DataFrame) -> Path:
        buffer = io.BytesIO()
        frame.to_parquet(buffer, compression="zstd", index=False)
        return self.write_bytes(f"{name}.parquet", buffer.getvalue())

    def write_arrays(self, name: str, arrays: dict[str, np.ndarray]) -> Path:
        buffer = io.BytesIO()
        np.savez(buffer, **arrays)  # type: ignore[arg-type]
        return self.write_bytes(f"{name}.npz", buffer.getvalue())

    def read_text(self, name: str) -> str:
        try:
            return (self.path / name).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(f"{self.path / name}: cannot be read: {error}") from error

    def read_json(self, name: str) -> Any:
        try:
            return json.loads(self.read_text(name))
        except json.JSONDecodeError as error:
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
        except (ValueError, OSError, EOFError, KeyError) as error:
            raise ValueError(f"{path}: not a readable checkpoint: {error}") from error
