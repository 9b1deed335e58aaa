"""Refit the kernel constants: `benchmarks/calibrate.py DATA_DIR [--ops gemm ...] [--gpu h100-sxm ...] [--out DIR]`.

Reads DATA_DIR/*.csv or *.csv.gz (any subset), fits every GPU and engine found on four groups in five and writes
`<gpu>.<engine>.toml` into --out (default: cost_model/calibration) with errors on the fifth. Only the tables of the
operations asked for are replaced. The groups used are recorded in benchmarks/fitted_groups.json.gz (or
OUT/fitted_groups.json.gz), so that benchmarks/kernels.py never scores them.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
from datetime import date
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks import command  # noqa: E402
from cost_model.accelerator import Accelerator, load_accelerator  # noqa: E402
from cost_model.fit.calibrate import ENGINE_OF, calibrate, home, locked, write_constants  # noqa: E402
from cost_model.fit.common import Columns, Op, load, partitions, select  # noqa: E402
from cost_model.fit.ops import OPS, chosen  # noqa: E402

FITTED_GROUPS = ROOT / "benchmarks" / "fitted_groups.json.gz"
CALIBRATION = ROOT / "cost_model" / "calibration"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--ops", nargs="+", metavar="OP", help=", ".join(op.name for op in OPS))
    parser.add_argument("--gpu", nargs="+", metavar="NAME")
    parser.add_argument("--out", type=Path, default=CALIBRATION)
    parser.add_argument("--source", default="aiconfigurator-core 0.12.0")
    arguments = parser.parse_args()
    record = FITTED_GROUPS if arguments.out == CALIBRATION else arguments.out / FITTED_GROUPS.name
    for op in chosen(arguments.ops):
        rows = load(op, arguments.data)
        if rows is None:
            print(f"{op.name}: no {' or '.join(op.files)} in {arguments.data}", file=sys.stderr)
            continue
        for (name, backend), own in partitions(rows, "gpu", "backend"):
            if arguments.gpu and name not in arguments.gpu:
                continue
            engine = ENGINE_OF.get(backend, backend)
            gpu = load_accelerator(name, engine=engine)
            sisters = sister_rows(op, gpu, rows, backend)
            fitted, used = calibrate(op, gpu, own, arguments.source, date.today().isoformat(), sisters)
            used["gpu"] = np.full(len(used["gpu"]), name)  # a sister's groups are no longer unseen here either
            for operation, keys in fitted.items():
                for key, values in keys.items():
                    holder = home(gpu, operation, key)
                    write_constants(arguments.out / f"{name}.{holder}.toml", {operation: {key: values}})
                    print(f"{name} {holder} {operation}.{key}: {values.get('fit', 'no held-out rows')}", flush=True)
            record_groups(record, op.name, used)


def sister_rows(op: Op, gpu: Accelerator, rows: Columns, backend: str) -> Columns | None:
    """Rows of the generation's other GPUs with the same kernels, for an operation that pools them."""
    names = [str(name) for name in np.unique(rows["gpu"]) if name != gpu.name]
    sisters = [name for name in names if load_accelerator(name).generation == gpu.generation]
    own = np.isin(rows["gpu"], sisters) & (rows["backend"] == backend)
    return select(rows, own) if gpu.name in op.pooled and own.any() else None


def record_groups(path: Path, op: str, used: Columns) -> None:
    """Write which groups of each table were fitted, replacing what was recorded for these tables."""
    with locked(path.parent):
        groups = read_groups(path)
        for table, rows in partitions(used, "gpu", "backend", "format"):
            groups.setdefault(op, {})["|".join(table)] = np.unique(rows["group"]).tolist()
        text = json.dumps(groups, sort_keys=True, separators=(",", ":"))
        path.write_bytes(gzip.compress(text.encode(), mtime=0))


def read_groups(path: Path = FITTED_GROUPS) -> dict[str, dict[str, list[str]]]:
    """{op: {"gpu|backend|format": [groups used in the fit]}}, empty where nothing was fitted."""
    return json.loads(gzip.decompress(path.read_bytes())) if path.is_file() else {}


if __name__ == "__main__":
    command(main)
