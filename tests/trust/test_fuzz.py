"""Whatever a file holds, reading it gives what it stands for or a ValueError: never another exception.

RIDGELINE_SLOW=1 draws 3,000 new examples of each.
"""

import json
import os
import tomllib

import numpy as np
import pytest
import tomli_w
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cost_model.accelerator import load_accelerator
from cost_model.engine import load_engine
from cost_model.fit.common import load
from cost_model.fit.ops import OPS
from reports.compare import read_measured
from spaces import Architecture, load_architecture, load_recipe
from studies.study import Study, build_study, load_study, parse_override
from tests.trust import bad_files

FUZZ = settings(
    max_examples=3000 if os.environ.get("RIDGELINE_SLOW") else 100,
    deadline=None,
    derandomize=not os.environ.get("RIDGELINE_SLOW"),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
NUMBERS = st.one_of(
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.sampled_from([0, -1, 1, 7, 2**31, 2**63, 10**30, 0.5, 1e308, float("nan"), float("inf"), True]),
)
TEXTS = st.one_of(
    st.text(max_size=20), st.sampled_from(["", "bf16", "fp8", "../x", "\0", "<script>", "llama", "é" * 300])
)
VALUES = st.recursive(
    st.one_of(st.none(), NUMBERS, TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=8), inner, max_size=3)),
    max_leaves=6,
)
STUDY = tomllib.loads(bad_files.STUDY)
KEYS = [
    f"{table}.{key}"
    for table, keys in {
        "budget": "total_parameters active_parameters tolerance solve max_training_flops_ratio",
        "accuracy": "train_tokens tolerance_nats quantised max_quant_nats",
        "space": "hidden layers heads kv_heads head_dim ffn align inner exportable recipe kv_format window structure x",
        "envelope": "hidden_per_layer layers y",
        "target.0": "gpu engine gpus weight usd_per_gpu_hour memory_bytes",
        "workload.0": "name isl osl cached weight load",
        "serving": "modes max_ttft_s expert_skew batches pp kvp redundant_experts draft_tokens acceptance",
        "search": "objectives interactivity_targets combine trials seconds plateau seed sampler",
    }.items()
    for key in keys.split()
] + ["name", "reference", "target", "workload", "budget", "space", "search"]


def without_none(value):
    """TOML has no null."""
    if isinstance(value, dict):
        return {key: without_none(item) for key, item in value.items() if item is not None}
    return [without_none(item) for item in value if item is not None] if isinstance(value, list) else value


def refused_or(read, kind):
    """The result of `read`, of that kind, or None where it raised a ValueError with a message."""
    try:
        result = read()
    except ValueError as error:
        assert str(error)
        return None
    assert isinstance(result, kind)
    return result


@FUZZ
@given(st.dictionaries(st.sampled_from(KEYS), VALUES, min_size=1, max_size=3))
def test_studies_of_any_values(changes):
    refused_or(lambda: build_study(STUDY, "fuzz", changes), Study)


@FUZZ
@given(st.integers(0, len(bad_files.STUDY)), st.integers(0, 40), st.binary(max_size=20))
def test_study_files_with_bytes_replaced(tmp_path, at, length, put):
    path = tmp_path / "study.toml"
    data = bad_files.STUDY.encode()
    path.write_bytes(data[:at] + put + data[at + length :])
    refused_or(lambda: load_study(path), Study)


@FUZZ
@given(st.text(max_size=60))
def test_overrides_of_any_text(text):
    refused_or(lambda: parse_override(text), tuple)


CONFIGS = [
    json.loads(path.read_text()) for path in sorted(bad_files.ZOO.glob("*config.json")) if "quant" not in path.name
]


@FUZZ
@given(st.data())
def test_configurations_of_any_values(tmp_path, data):
    config = dict(data.draw(st.sampled_from(CONFIGS)))
    for key in data.draw(st.lists(st.sampled_from([*config, "head_dim", "x"]), min_size=1, max_size=3)):
        config[key] = data.draw(VALUES)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    architecture = refused_or(lambda: load_architecture(path), Architecture)
    if architecture is not None:
        assert all(0 <= np.asarray(value) < 2**53 for value in architecture.as_dict().values())
    refused_or(lambda: load_recipe(path), tuple)


@FUZZ
@given(st.binary(max_size=200))
def test_configurations_of_any_bytes(tmp_path, data):
    path = tmp_path / "config.json"
    path.write_bytes(data)
    assert refused_or(lambda: load_architecture(path), Architecture) is None


@FUZZ
@given(st.sampled_from([*bad_files.GPU, "calibration", "x"]), VALUES)
def test_gpus_of_any_values(tmp_path, key, value):
    path = tmp_path / "gpu.toml"
    path.write_text(tomli_w.dumps({**bad_files.GPU, **without_none({key: value})}))
    gpu = refused_or(lambda: load_accelerator(path), object)
    if gpu is not None:
        assert all(np.isfinite([gpu.memory_bytes, gpu.memory_bytes_per_s, *gpu.peak_flops.values()]))


@FUZZ
@given(st.sampled_from([*bad_files.ENGINE, "gpu", "generation", "release", "fit", "x"]), VALUES)
def test_engines_of_any_values(tmp_path, key, value):
    path = tmp_path / "engine.toml"
    path.write_text(tomli_w.dumps({**bad_files.ENGINE, **without_none({key: value})}))
    refused_or(lambda: load_engine(path, "hopper", "h200-sxm"), object)


CELLS = st.one_of(st.text(alphabet='0123456789.-+eE",ainfx \n\0é', max_size=6), st.integers(-9, 9999).map(str))


@FUZZ
@given(st.lists(st.lists(CELLS, min_size=9, max_size=9), max_size=4), st.binary(max_size=10))
def test_measured_kernels_of_any_cells(tmp_path, rows, tail):
    path = tmp_path / "gemm.csv"
    path.write_bytes((bad_files.GEMM + "\n".join(map(",".join, rows))).encode() + tail)
    columns = refused_or(lambda: load(OPS[0], tmp_path, system="h200_sxm"), dict)
    if columns is not None:
        assert np.all(np.isfinite(columns["seconds"])) and np.all(columns["seconds"] > 0)


@FUZZ
@given(st.lists(st.lists(CELLS, min_size=2, max_size=2), max_size=4), st.binary(max_size=10))
def test_measured_points_of_any_cells(tmp_path, rows, tail):
    path = tmp_path / "points.csv"
    path.write_bytes((bad_files.MEASURED + "\n".join(map(",".join, rows))).encode() + tail)
    points = refused_or(lambda: read_measured(path), object)
    if points is not None and len(points):
        assert np.all(np.isfinite(points.select_dtypes("number"))) and np.all(points.select_dtypes("number") > 0)


@pytest.mark.parametrize("text", ["\ufeff" + bad_files.STUDY, bad_files.STUDY.replace("\n", "\r\n")])
def test_what_editors_add_is_no_mistake(tmp_path, text):
    path = tmp_path / "study.toml"
    path.write_bytes(text.encode())
    assert load_study(path).name == "small"
    config = tmp_path / "config.json"
    config.write_bytes(("\ufeff" + json.dumps(bad_files.LLAMA)).encode())
    assert load_architecture(config) == load_architecture("llama-3.1-8b")
