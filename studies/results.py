"""A finished run as a person reads it: its tables, its best designs, one design described."""

from __future__ import annotations

import os
from collections.abc import Hashable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pandas as pd

from search.checkpoint import restored
from search.objective import ServingObjective
from spaces.architecture import FIELDS
from spaces.deployment import FIELDS as PLAN_FIELDS
from studies.objective import build_objective
from studies.plans import SERVING
from studies.store import RunDirectory
from studies.study import Study, load_study

# what readers of run.json need
META = {
    "name",
    "reference",
    "command",
    "seed",
    "versions",
    "objectives",
    "interactivity_targets",
    "max_ttft_s",
    "cells",
}
META |= {"axes", "certificate", "trials", "feasible_share", "points_priced", "seconds", "stop_reason", "hypervolume"}
META |= {"reference_hypervolume", "hypervolume_history", "scale"}
# what readers of the tables need
POINT = {"point", "design", "gpu", "engine", "workload", "recipe", "kv_format", *FIELDS, *PLAN_FIELDS} | {
    objective.name for objective in SERVING
}
COLUMNS = {
    "designs": {"design", "shape", "recipe", "kv_format", "gain_hypervolume", "shape_loss_difference", *FIELDS},
    "frontier": POINT | {"overall"},
    "points": POINT | {"kind"},
    "reference": POINT,
    "trials": set(),
}


class Run:
    """A run directory, read. Tables are pandas DataFrames (columns: see studies/tables.py).

    Attributes:
        directory: its files. study: the study as run. meta: run.json (versions, seed, hypervolume...).
    """

    def __init__(self, directory: RunDirectory) -> None:
        self.directory = directory
        self.meta = _meta(directory)

    @property
    def path(self) -> Path:
        return self.directory.path

    @property
    def name(self) -> str:
        return str(self.meta["name"])

    @property
    def reference_name(self) -> str:
        return str(self.meta["reference"])

    @cached_property
    def study(self) -> Study:
        return load_study(self.path / "study.toml")

    @cached_property
    def objective(self) -> ServingObjective:
        """The study's own objective: prices anything again, exactly as the run did."""
        return build_objective(self.study)

    @cached_property
    def designs(self) -> pd.DataFrame:
        return self._table("designs")

    @cached_property
    def frontier(self) -> pd.DataFrame:
        return self._table("frontier")

    @cached_property
    def points(self) -> pd.DataFrame:
        return self._table("points")

    @cached_property
    def reference(self) -> pd.DataFrame:
        return self._table("reference")

    @cached_property
    def trials(self) -> pd.DataFrame:
        return self._table("trials")

    def _table(self, name: str) -> pd.DataFrame:
        frame = self.directory.read_table(name)
        if missing := COLUMNS[name] - set(frame):
            path = self.path / f"{name}.parquet"
            raise ValueError(f"{path}: columns {', '.join(sorted(missing))} are missing; --resume writes it again")
        return frame

    @property
    def targets(self) -> list[float]:
        return list(self.meta["interactivity_targets"])

    def optuna_study(self) -> optuna.Study:
        """The search's Optuna study, rebuilt in memory, for Optuna's own plots and importances.

        Raises:
            ValueError: the space was enumerated, so there are no trials.
        """
        arrays = self.directory.read_arrays("checkpoint")
        if arrays is None:
            raise ValueError(f"{self.path}: the space was enumerated; there is no Optuna study")
        return restored(self.objective, arrays).study

    def summary(self) -> dict[str, Any]:
        """What the run found, JSON-able: the best design at each interactivity target and its gain."""
        keys = (
            "trials",
            "feasible_share",
            "points_priced",
            "seconds",
            "stop_reason",
            "hypervolume",
            "reference_hypervolume",
        )
        return {
            "name": self.name,
            "path": str(self.path),
            "reference": self.reference_name,
            **{key: self.meta[key] for key in keys},
            "designs": len(self.designs),
            "frontier_points": len(self.frontier),
            "best": [row for target in self.targets if (row := self._best(target)) is not None],
        }

    def _best(self, target: float) -> dict[str, Any] | None:
        column = f"tokens_per_s_per_gpu_at_{target:g}"
        reached = self.designs.dropna(subset=[column])
        if reached.empty:
            return None
        row = reached.iloc[int(reached[column].to_numpy().argmax())]
        gain = row[f"gain_at_{target:g}"]
        return {
            "interactivity": target,
            "design": row["design"],
            "shape": row["shape"],
            "recipe": row["recipe"],
            "kv_format": row["kv_format"],
            "tokens_per_s_per_gpu": float(row[column]),
            "gain": None if pd.isna(gain) else float(gain),
            "shape_loss_difference": float(row["shape_loss_difference"]),
        }

    def pick(self, at: float | None = None, knee: bool = False) -> str:
        """A design id: the best at an interactivity, or at the knee of the overall frontier.

        The knee is the point farthest from the chord between the frontier's ends in log-log.
        Raises:
            ValueError: neither or both asked, or no point is that fast, with the fastest there is.
        """
        if (at is None) == (not knee):
            raise ValueError("pick: give either at=TOKENS_PER_S_PER_USER or knee=True")
        if at is not None and not at > 0:
            raise ValueError(f"--at {at:g}: must be above 0 tokens/s/user")
        best = self.frontier[self.frontier["overall"]]
        if best.empty:
            raise ValueError(f"{self.path}: the frontier is empty: no point is within the study's limits")
        if at is not None:
            fast = best[best["tokens_per_s_per_user"] >= at]
            if fast.empty:
                fastest = best["tokens_per_s_per_user"].max()
                raise ValueError(f"--at {at:g}: no point is that fast; the fastest gives {fastest:.1f} tokens/s/user")
            return str(fast.iloc[int(fast["tokens_per_s_per_gpu"].to_numpy().argmax())]["design"])
        xy = np.log(best[["tokens_per_s_per_user", "tokens_per_s_per_gpu"]].to_numpy())
        ends = xy[np.argmin(xy[:, 0])], xy[np.argmax(xy[:, 0])]
        along, offset = ends[1] - ends[0], xy - ends[0]
        distance = along[0] * offset[:, 1] - along[1] * offset[:, 0]
        return str(best.iloc[int(np.argmax(distance))]["design"])

    def describe(self, identifier: str) -> dict[str, Any]:
        """Everything about one design (its row and its own frontier), or about one point.

        Raises:
            ValueError: unknown id, with some valid ones.
        """
        if identifier in set(self.designs["design"]):
            row = self.designs.set_index("design").loc[identifier]
            own = self.points[(self.points["design"] == identifier) & (self.points["kind"] == "own")]
            return {"design": identifier, **_plain(row.to_dict()), "points": [_plain(r) for r in _short(own)]}
        for table in (self.points, self.frontier, self.reference):
            match = table[table["point"] == identifier]
            if len(match):
                return _plain(match.iloc[0].to_dict())
        known = ", ".join(self.designs["design"].head(8))
        raise ValueError(f"{identifier!r}: no such design or point in {self.path}; designs: {known}, ...")


def _short(points: pd.DataFrame) -> list[dict[Hashable, Any]]:
    """Points without the fields that their design's row already shows."""
    hidden = {*FIELDS, "design", "recipe", "kv_format", "shape_loss", "quant_loss", "kind"}
    return points.drop(columns=[name for name in points if name in hidden]).to_dict("records")


def _plain(row: Mapping[Any, Any]) -> dict[str, Any]:
    """JSON-able values: NumPy numbers become Python's, missing ones None."""
    return {
        name: None
        if value is None or (isinstance(value, float) and np.isnan(value))
        else getattr(value, "item", lambda v=value: v)()
        for name, value in row.items()
    }


def _meta(directory: RunDirectory) -> dict[str, Any]:
    """run.json, which a run writes last."""
    path = directory.path / "run.json"
    if not os.path.isfile(path):
        raise ValueError(f"{path}: missing: the run has not finished, go on with --resume; or this is a sweep")
    meta = directory.read_json("run.json")
    missing = META - meta.keys() if isinstance(meta, dict) else META
    if missing:
        raise ValueError(f"{path}: not the record of a run: {', '.join(sorted(missing))} missing; --resume writes it")
    return dict(meta)


def load_run(directory: str | Path) -> Run:
    """Read a run directory.

    Raises:
        ValueError: not a run directory, unfinished, or a file that cannot be read.
    """
    return Run(RunDirectory.open(directory))
