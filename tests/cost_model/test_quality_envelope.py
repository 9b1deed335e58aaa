"""Where the predicted loss is trusted: published models inside, the corners that a search would sit on outside."""

import csv
from pathlib import Path

import numpy as np
import pytest

from cost_model.quality import limits, predicted_loss
from spaces.architecture import FIELDS, Architecture, stack

TABLE = (Path(__file__).parent.parent / "measured" / "quality_open_models.csv").read_text(encoding="utf-8")
OPEN = list(csv.DictReader(line for line in TABLE.splitlines() if not line.startswith("#")))
BY_NAME = {row["model"]: Architecture(**{name: int(row[name]) for name in FIELDS if name in row}) for row in OPEN}
LLAMA_8B = BY_NAME["Llama-3.1-8B"]


def reshaped(**changes):
    return Architecture(**{**LLAMA_8B.as_dict(), **changes})


def outside(architecture, kind, **options):
    prediction = predicted_loss(architecture, **options)
    return {l.name for l in limits(architecture, prediction.terms) if l.kind == kind and not np.all(l.inside)}


def test_published_models_are_inside():
    models = stack(list(BY_NAME.values()))
    prediction = predicted_loss(models, train_tokens=[float(row["train_tokens_t"]) * 1e12 for row in OPEN])
    for limit in limits(models, prediction.terms):
        outside = [
            row["model"] for row, ok in zip(OPEN, np.broadcast_to(limit.inside, len(OPEN)), strict=True) if not ok
        ]
        assert limit.kind == "flag" or not outside, limit.message
    assert prediction.inside_envelope.all()


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"kv_heads": 1}, {"kv_heads"}),
        ({"hidden": 8192, "layers": 8, "heads": 64, "ffn": 28672}, {"hidden_per_layer"}),
        ({"hidden": 11648, "layers": 4, "heads": 91, "kv_heads": 13, "ffn": 40960}, {"layers", "hidden_per_layer"}),
        ({"hidden": 2048, "layers": 128, "heads": 16, "kv_heads": 4, "ffn": 7168}, {"hidden_per_layer", "depth_ratio"}),
        ({"heads": 12, "kv_heads": 4, "ffn": 16384}, {"query_width_ratio", "mlp_attention_ratio"}),
        ({"head_dim": 32, "heads": 128, "kv_heads": 32}, {"head_dim"}),
        (
            {"experts": 640, "top_k": 4, "expert_ffn": 256},
            {"experts", "activation_ratio", "granularity", "mlp_attention_ratio"},
        ),
    ],
)
def test_limits_name_what_is_outside(changes, names):
    design = reshaped(**changes)
    assert outside(design, "reject") == names
    assert not predicted_loss(design).inside_envelope


def test_flags_do_not_reject():
    assert outside(LLAMA_8B, "flag", train_tokens=80e12) == {"tokens_per_active_parameter"}
    assert outside(BY_NAME["Mixtral-8x7B"], "flag") == {"coarse_granularity"}
    assert outside(BY_NAME["gpt-oss-120b"], "flag") == {"windowed_layers"}
    assert predicted_loss(LLAMA_8B, train_tokens=80e12).inside_envelope


def test_four_bits_need_a_billion_parameters():
    small = BY_NAME["Qwen3-0.6B"]
    assert outside(small, "reject", recipe="nvfp4-ffn") == {"four_bit_effective_parameters"}
    assert predicted_loss(small, np.array(["fp8", "int4"])).inside_envelope.tolist() == [True, False]


def test_messages_give_range_and_reason():
    named = {l.name: l for l in limits(LLAMA_8B, predicted_loss(LLAMA_8B).terms)}
    assert named["hidden_per_layer"].value == 128
    assert named["hidden_per_layer"].message.startswith("hidden_per_layer is trusted at 25 to 256: ")
    assert {l.kind for l in named.values()} == {"reject", "flag"}
