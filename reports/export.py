"""What a team takes away from a run: one design as files that other programs read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from spaces import Architecture
from spaces.architecture import FIELDS
from spaces.families import to_config
from studies.results import Run


def export(run: Run, identifier: str, out: str | Path, force: bool = False) -> list[Path]:
    """Write a design's config.json (Hugging Face) and design.json (everything known about it).

    Args:
        identifier: a design or point id of the run. out: the folder, made if needed.
        force: overwrite files that are there.
    Raises:
        ValueError: unknown id, no export family, or files that exist.
    """
    described = run.describe(identifier)
    architecture = Architecture(**{name: int(described[name]) for name in FIELDS})
    files: dict[str, Any] = {"config.json": to_config(architecture), "design.json": described}
    return write_files(Path(out), {name: json.dumps(value, indent=2) + "\n" for name, value in files.items()}, force)


def write_files(folder: Path, files: dict[str, str], force: bool) -> list[Path]:
    """Write text files into a folder; nothing is touched where one of them exists and `force` is off."""
    there = [name for name in files if (folder / name).exists()]
    if there and not force:
        raise ValueError(f"{folder}: {', '.join(there)} exists; use --force to overwrite, or another folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise ValueError(f"{folder}: cannot be written: {error.strerror}") from error
    return [folder / name for name in files]
