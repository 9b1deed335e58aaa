"""Every bundled model against its publisher: parameters, KV bytes and weight bytes."""

import math

import numpy as np
import pytest

from cost_model import counts
from spaces import available_models, load_architecture
from spaces.architecture import stack
from tests.zoo import table

ROWS = table.published()


def test_every_bundled_model_has_a_row():
    assert sorted(row["model"] for row in ROWS) == list(available_models())


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["model"])
def test_total_parameters_equal_the_published_count_to_the_unit(row):
    total = counts.parameters(load_architecture(row["model"])).total
    assert int(total) == int(row["total"]) - int(row["not_counted"])


@pytest.mark.parametrize("row", [row for row in ROWS if row["active"]], ids=lambda row: row["model"])
def test_active_parameters_match_the_published_digits(row):
    ours = table.active_as_published(load_architecture(row["model"]), row["active_counts"]) / 1e9
    last_digit = 10.0 ** -len(row["active"].partition(".")[2])
    assert abs(ours - float(row["active"])) < last_digit  # publishers round and truncate


def test_routing_corrections_explain_the_difference_exactly():
    for row in ROWS:
        if row["what"] == "routing corrections":
            a = load_architecture(row["model"])
            assert int(row["not_counted"]) == int(a.moe_layers) * a.experts


def test_quoted_billions():
    quoted = {  # total, active with embeddings, as quoted for these models
        "mixtral-8x7b": (46.70, 12.88),
        "deepseek-v3": (671.0, 37.6),
        "llama-4-maverick": (400.7, 17.2),
        "llama-3.1-405b": (405.85, 405.85),
    }
    for name, (total, active) in quoted.items():
        count = counts.parameters(load_architecture(name))
        assert math.isclose(count.total / 1e9, total, abs_tol=0.06)
        assert math.isclose(count.active / 1e9, active, abs_tol=0.06)


def test_a_batch_counts_as_each_model_alone():
    names = available_models()
    batch = counts.parameters(stack([load_architecture(name) for name in names]))
    for i, name in enumerate(names):
        alone = counts.parameters(load_architecture(name))
        for field in ("total", "active", "embedding", "non_embedding_total", "non_embedding_active"):
            assert getattr(batch, field)[i] == getattr(alone, field)
            assert np.asarray(getattr(alone, field)).dtype == np.int64


@pytest.mark.parametrize(
    ("name", "held", "bytes_"),
    [
        ("llama-3.1-8b", 0, 131_072),
        ("llama-3.1-70b", 100_000, 327_680),
        ("deepseek-v3", 5_000, 70_272),
        ("gpt-oss-120b", 127, 73_728),  # the 128th token
        ("gpt-oss-120b", 128, 36_864),  # the 129th
    ],
)
def test_kv_bytes_of_the_next_token(name, held, bytes_):
    assert table.kv_bytes_of_next_token(load_architecture(name), held) == bytes_


def test_published_checkpoint_sizes():
    """gpt-oss model card (2508.10925), table 1: 60.8 GiB and 12.8 GiB; FP8 Llama-3.1-8B: 9.08 GB."""
    gib = {
        name: counts.weight_bytes(load_architecture(name), "mxfp4-experts").total / 2**30
        for name in ("gpt-oss-120b", "gpt-oss-20b")
    }
    assert round(gib["gpt-oss-120b"], 1) == 60.8
    assert round(gib["gpt-oss-20b"], 1) == 12.8
    assert round(counts.weight_bytes(load_architecture("llama-3.1-8b"), "fp8").total / 1e9, 2) == 9.08


def test_the_document_is_the_table():
    assert table.DOCUMENT.read_text(encoding="utf-8") == table.document(), "run python tests/zoo/table.py"
