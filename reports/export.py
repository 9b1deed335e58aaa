"""What a team takes away from a run: designs as files that other programs read.

For each design a folder: config.json, quantisation recipes, launch files for three of its points (or for the one
point asked for), training arguments, design.json that reads back, and a one-page card. Everything is built before
anything is written; what an engine cannot express is said where its files would be.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from reports import recipes
from reports.export_card import card
from reports.export_chart import chart
from reports.export_design import ROLES, Design, find, folders, launch_point, origin, read_design, record
from reports.export_files import check_target, write_folder
from reports.export_readme import readme
from reports.launch import ENGINES, engine_files
from reports.launch import names as launch_names
from reports.launch_point import Inexpressible
from reports.megatron import megatron_script
from studies.results import Run

__all__ = ["export", "read_design"]

_STALE = (
    *recipes.NAMES,
    *(f"launch/{folder}/{name}" for folder in (*ROLES, "point") for engine in ENGINES for name in launch_names(engine)),
)


def export(
    run: Run,
    identifier: str | Sequence[str],
    out: str | Path,
    force: bool = False,
    engine: str | None = None,
    at: float | None = None,
) -> list[Path]:
    """Export one design or point into a folder, or several into a folder of folders named by their ids.

    Args:
        identifier: a design or point id of the run, or several. out: the folder, made if needed.
        force: overwrite the files of an earlier export. engine: launch files of this one only.
        at: tokens/s/user that the balanced point must reach (default: the knee of the design's own frontier).
    Returns:
        The files written.
    Raises:
        ValueError: unknown id or engine, no export family, a plan that the one asked engine cannot run, or a target
            that must not be written; then nothing is.
    """
    if engine is not None and engine not in ENGINES:
        raise ValueError(f"unknown engine {engine!r}; valid: {', '.join(ENGINES)}")
    folder = Path(out)
    check_target(folder)
    several = not isinstance(identifier, str)
    wanted = list(dict.fromkeys(identifier)) if several else [str(identifier)]
    built = {}
    for one in wanted:
        files = build(find(run, one, at), engine)
        built[folder / one if several else folder] = files
    if not force:  # refuse before the first of several is written
        for target, files in built.items():
            write_folder(target, files, force=False, dry_run=True)
    return [path for target, files in built.items() for path in write_folder(target, files, force, _STALE)]


def build(design: Design, engine: str | None = None) -> dict[str, str]:
    """Every file of one export, as text by relative name.

    Raises:
        ValueError: `engine` is given and cannot run a chosen point.
    """
    files = {"config.json": _json(design.config)}
    quantised, notes = recipes.quantisation(
        design.architecture, design.family, design.recipe, design.kv_format, design.config, origin(design)
    )
    files |= quantised
    launch, launched = _launch(design, engine)
    files |= launch
    ratio = None if design.row is None else float(design.row["training_flops_ratio"])
    files["megatron.sh"] = megatron_script(
        design.architecture, design.config, [origin(design)], design.run.reference_name, ratio
    )
    files["frontier.svg"] = _picture(design)
    files["design.json"] = _json(record(design, launched))
    files["card.md"] = card(design, launched)
    files["README.md"] = readme(design, tuple(files), launched, notes)
    return files


def _launch(design: Design, engine: str | None) -> tuple[dict[str, str], dict[str, dict[str, str]]]:
    """(files, folder -> engine -> what was written or "refused: reason")."""
    files: dict[str, str] = {}
    said: dict[str, dict[str, str]] = {}
    for folder, row in folders(design.chosen).items():
        point = launch_point(design, folder, row)
        said[folder] = {}
        for name in ENGINES if engine is None else (engine,):
            try:
                written = engine_files(point, name)
                said[folder][name] = ", ".join(f"{folder}/{file}" for file in written)
            except Inexpressible as error:
                if engine is not None:
                    raise ValueError(f"{row['point']}: {name} cannot run it: {error}") from error
                said[folder][name] = f"refused: {error}"
                written = {f"{name}.refused.txt": f"{error}\n"}
            files |= {f"launch/{folder}/{file}": text for file, text in written.items()}
    return files, said


def _picture(design: Design) -> str:
    shown = next(iter(design.chosen.values()))

    def pairs(table: Any) -> list[tuple[float, float]]:
        cell = (table["gpu"] == shown["gpu"]) & (table["workload"] == shown["workload"])
        same = (table["recipe"] == design.recipe) & (table["kv_format"] == design.kv_format)
        rows = table[cell & same & table["within_ttft"]]
        return [*zip(rows[axes[0]], rows[axes[1]], strict=True)]

    axes = ("tokens_per_s_per_user", "tokens_per_s_per_gpu")
    marks = {role: (row[axes[0]], row[axes[1]]) for role, row in folders(design.chosen).items()}
    own = sorted({*pairs(design.points), *marks.values()})
    reference = [] if design.design == "reference" else pairs(design.run.reference)
    return chart(own, reference, (design.design, design.run.reference_name), marks)


def _json(value: Any) -> str:
    return json.dumps(value, indent=2, allow_nan=False) + "\n"
