"""Files that leave the house: written whole or not at all, never through a link, never over another's work.

Everything is made in memory first. A target is refused before anything is touched; then every file is written and
flushed beside its place, and only when all are on disk are they renamed into place, one after the other.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path


def write_folder(
    folder: Path, files: Mapping[str, str], force: bool, stale: Iterable[str] = (), dry_run: bool = False
) -> list[Path]:
    """Write text files under a folder that is made if needed.

    Args:
        files: text by relative name, e.g. "launch/latency/vllm.sh"; names that end in .sh are made executable.
        force: replace files that exist. stale: names that an earlier export may have left and this one does not
            write; removed under `force`. dry_run: refuse what would be refused, write nothing.
    Returns:
        The paths, in the order of `files`.
    Raises:
        ValueError: `..` in the path, a link or a file where a folder must be, files that exist, no permission, disk
            full. Nothing is changed then, unless a rename itself fails.
    """
    check_target(folder)
    paths, stale = {name: folder / name for name in files}, tuple(stale)
    _check_inside(folder, [*paths.values(), *(folder / name for name in stale)])
    there = [name for name, path in paths.items() if os.path.lexists(path)]
    if there and not force:
        raise ValueError(f"{folder}: {_few(there)} exists; use --force to overwrite, or another folder")
    if dry_run:
        return list(paths.values())
    temporary: dict[Path, Path] = {}
    try:
        for name, path in paths.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary[path] = path.with_name(f".{path.name}.{os.getpid()}.tmp")
            _write(temporary[path], files[name], executable=name.endswith(".sh"))
        for path, written in temporary.items():
            written.replace(path)
        for name in stale if force else ():
            if name not in files:
                (folder / name).unlink(missing_ok=True)
    except OSError as error:
        for written in temporary.values():
            written.unlink(missing_ok=True)
        raise ValueError(f"{folder}: cannot be written: {error.strerror}") from error
    return list(paths.values())


def check_target(folder: Path) -> None:
    """Raise a ValueError where a folder must not be written: `..`, a link, a file, or a file above it."""
    if ".." in folder.parts:
        raise ValueError(f"--out {folder}: '..' in the path; name the folder itself")
    if "\0" in str(folder):
        raise ValueError(f"--out {str(folder)!r}: a NUL character in the path")
    if folder.is_symlink():
        raise ValueError(f"--out {folder}: a symbolic link; name the folder it stands for")
    for path in (folder, *folder.parents):
        if path.exists():
            if not path.is_dir():
                raise ValueError(f"--out {folder}: {path} is a file; name a folder")
            return


def _check_inside(folder: Path, paths: Iterable[Path]) -> None:
    """Nothing below the folder may be a link, or a folder where a file must be."""
    for path in paths:
        for part in (path, *path.parents):
            if part == folder:
                break
            if part.is_symlink():
                raise ValueError(f"{part}: a symbolic link inside the folder; remove it first")
            if part == path and part.is_dir():
                raise ValueError(f"{part}: a folder where a file must be written")
            if part != path and part.exists() and not part.is_dir():
                raise ValueError(f"{part}: a file where a folder must be made")


def _write(path: Path, text: str, executable: bool) -> None:
    # O_EXCL: whatever waits under this name, a link included, is not followed
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o755 if executable else 0o644)
    with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def _few(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
