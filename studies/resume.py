"""Go on where a run or a sweep stopped: the same study, and what was saved of it."""

from __future__ import annotations

import time
from collections.abc import Set
from pathlib import Path

from search.checkpoint import restored, saved
from search.objective import ServingObjective
from search.state import SearchState
from studies.store import RunDirectory
from studies.study import Study, load_study

SHARE = 0.05  # of the time that saving may take
STOPPING = {"trials", "seconds", "plateau"}  # keys of [search] that say when to stop, not what is found
HOW_TO_SEARCH = STOPPING | {"sampler", "seed"}  # keys that change what is found, but not what there is to find


def open_directory(study: Study, name: str, out: str | Path | None, resume: bool) -> RunDirectory:
    """The directory `out` of the same study to go on with, or a new one.

    Raises:
        ValueError: not a run directory, another study's, or in use.
    """
    if not resume:
        return RunDirectory.create(name, out)
    if out is None:
        raise ValueError("--resume: name the run directory with --out")
    directory = RunDirectory.open(out)
    refuse_another_study(study, load_study(directory.path / "study.toml"), f"--resume {out}")
    return directory


def refuse_another_study(study: Study, before: Study, where: str, free: Set[str] = STOPPING) -> None:
    """Only the `free` keys of [search] may differ.

    Raises:
        ValueError: anything else does; keys of [search] with both values.
    """
    ours, theirs = ({k: v for k, v in s.table.items() if k != "search"} for s in (study, before))
    changed = sorted(k for k in ours.keys() | theirs.keys() if ours.get(k) != theirs.get(k))
    here, there = (s.search.model_dump(exclude=set(free)) for s in (study, before))
    changed += [f"search.{k} (there {there[k]!r}, here {here[k]!r})" for k in here if here[k] != there[k]]
    if changed:
        raise ValueError(f"{where}: holds another study; these differ: {', '.join(changed)}")


class Checkpoints:
    """Saves a search after each batch, or after every few where saving has grown dear: it takes SHARE of the time."""

    def __init__(self, directory: RunDirectory) -> None:
        self.directory, self._due = directory, 0.0

    def read(self, objective: ServingObjective) -> SearchState | None:
        """The search as last saved, None where it never was.

        Raises:
            ValueError: the checkpoint is damaged, or belongs to another study.
        """
        arrays = self.directory.read_arrays("checkpoint")
        try:
            return restored(objective, arrays) if arrays else None
        except (ValueError, KeyError, TypeError, IndexError) as error:
            path = self.directory.path / "checkpoint.npz"
            raise ValueError(f"{path}: not a checkpoint of this study: {error}; remove it to start anew") from error

    def save_sometimes(self, state: SearchState) -> None:
        if time.monotonic() >= self._due:
            self.save(state)

    def save(self, state: SearchState) -> None:
        start = time.monotonic()
        self.directory.write_arrays("checkpoint", saved(state))
        end = time.monotonic()
        self._due = end + (end - start) / SHARE
