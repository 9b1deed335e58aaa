"""A GPU file calibrated to a machine of one's own: a relative's data sheet with constants fitted to own rows."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

from cost_model.accelerator import accelerator_path, load_accelerator
from cost_model.data_file import read_toml
from cost_model.fit.calibrate import calibrate, write_constants
from cost_model.fit.common import GPUS, load
from cost_model.fit.ops import OPS

_ONE_MACHINE = next(iter(GPUS))  # rows of one machine: which name they carry does not matter


def calibrate_own(data: Path, base: str, out: Path, name: str | None = None) -> dict[str, dict[str, Any]]:
    """Fit what a directory of measurements holds and write an accelerator file that every --gpu takes.

    Args:
        data: directory of measured .csv files (see cost_model/measure.py). base: the bundled GPU or TOML file whose
            data sheet and remaining constants are kept. out: the .toml to write. name: of the GPU, default out's stem.
    Returns:
        {operation.key: fit record} of what was fitted.
    Raises:
        ValueError: no measured file, unknown base, or `out` does not end in .toml.
    """
    import tomli_w

    if out.suffix != ".toml":
        raise ValueError(f"--out {out}: must end in .toml")
    gpu = load_accelerator(base)
    facts = read_toml(accelerator_path(base))
    fitted: dict[str, Any] = {}
    for op in OPS:
        rows = load(op, data, system=_ONE_MACHINE) if data.is_dir() else None
        if rows is None or not len(rows["seconds"]):
            continue
        constants, _ = calibrate(op, gpu, rows, f"measured here, {data.name}", date.today().isoformat())
        for operation, keys in constants.items():
            fitted.setdefault(operation, {}).update(keys)
    if not fitted:
        files = ", ".join(sorted({f"{name}.csv" for op in OPS for name in op.files}))
        raise ValueError(f"{data}: holds none of {files}")
    facts["name"] = name or out.stem
    facts.setdefault("provenance", {})["calibrated"] = f"constants fitted to {data.name} on {date.today().isoformat()}"
    out.parent.mkdir(parents=True, exist_ok=True)
    temporary = out.with_name(f".{out.name}.tmp")  # what is there stays until the new file is whole
    temporary.write_text(tomli_w.dumps(facts), encoding="utf-8")
    write_constants(temporary, fitted, under="calibration")
    temporary.replace(out)
    return {
        f"{operation}.{key}": values.get("fit", {})
        for operation, keys in fitted.items()
        for key, values in keys.items()
    }
