"""The composed loss model: published and measured models, degenerate shapes, uncertainty, errors."""

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cost_model.quality import difference_sigma, predicted_loss, relative_size
from cost_model.scaling_laws import chinchilla
from spaces.architecture import FIELDS, Architecture, stack
from spaces.formats import KV_FORMATS, RECIPES

MEASURED = Path(__file__).parent.parent / "measured"


def rows(name):
    lines = (MEASURED / name).read_text(encoding="utf-8").splitlines()
    return list(csv.DictReader(line for line in lines if not line.startswith("#")))


def architecture(row):
    return Architecture(**{name: int(row[name]) for name in FIELDS if name in row})


def column(table, name):
    return np.array([float(row[name]) for row in table])


OPEN = rows("quality_open_models.csv")
TOKENS = column(OPEN, "train_tokens_t") * 1e12
MODELS = stack([architecture(row) for row in OPEN])
BY_NAME = {row["model"]: architecture(row) for row in OPEN}
LLAMA_8B = BY_NAME["Llama-3.1-8B"]


def reshaped(**changes):
    return Architecture(**{**LLAMA_8B.as_dict(), **changes})


# ---- open models ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("term", "name", "decimals"),
    [
        ("efficiency_leverage", "efficiency_leverage", 2),
        ("base", "base", 4),
        ("width_ratio_factor", "width_ratio_factor", 4),
        ("delta_shape", "delta_shape", 4),
        ("delta_kv", "delta_kv", 4),
    ],
)
def test_parts_of_open_models(term, name, decimals):
    terms = predicted_loss(MODELS, train_tokens=TOKENS).terms
    np.testing.assert_allclose(terms[term], column(OPEN, name), atol=0.51 * 10**-decimals)


def test_sizes_of_open_models():
    terms = predicted_loss(MODELS, train_tokens=TOKENS).terms
    np.testing.assert_allclose(terms["active_parameters"] / 1e9, column(OPEN, "active_b"), atol=0.0051)
    np.testing.assert_allclose(terms["effective_parameters"] / 1e9, column(OPEN, "effective_b"), atol=0.051)


def test_loss_of_open_models():
    for tokens, name in ((TOKENS, "loss"), (15e12, "loss_at_15t")):
        prediction = predicted_loss(MODELS, train_tokens=tokens)
        np.testing.assert_allclose(prediction.loss, column(OPEN, name), atol=1e-4)
        np.testing.assert_array_equal(prediction.loss, prediction.shape_loss)


def test_families_measured_on_one_corpus():
    """21 models measured by others: 0.042 nats remain after one offset per family, and every order is right."""
    table = rows("gemstones_validation_loss.csv")
    family = np.array([row["family"] for row in table])
    predicted = predicted_loss(
        stack([architecture(row) for row in table]), train_tokens=column(table, "train_tokens_t") * 1e12
    ).loss
    measured = column(table, "loss")
    residuals = []
    for name in np.unique(family):
        p, m = predicted[family == name], measured[family == name]
        np.testing.assert_array_equal(np.argsort(p), np.argsort(m), err_msg=name)
        residuals.append((p - p.mean()) - (m - m.mean()))
    assert len(residuals) == 6
    assert np.sqrt(np.mean(np.concatenate(residuals) ** 2)) <= 0.045


@pytest.mark.parametrize(("recipe", "loss"), [("bf16", 2.1587), ("fp8", 2.1617), ("nvfp4", 2.2216), ("int4", 2.1976)])
def test_llama_8b_in_every_published_format(recipe, loss):
    prediction = predicted_loss(LLAMA_8B, recipe)
    assert prediction.loss == pytest.approx(loss, abs=1e-4)
    assert prediction.shape_loss == pytest.approx(2.1587, abs=1e-4)


def test_kv_term():
    """Multi-head to 8 and to 1 KV heads of width 128 (arXiv 2602.10377); latent attention pays nothing."""
    assert predicted_loss(LLAMA_8B).terms["delta_kv"] == pytest.approx(0.00947, abs=1e-5)
    assert predicted_loss(reshaped(kv_heads=1)).terms["delta_kv"] == pytest.approx(0.02497, abs=1e-5)
    assert predicted_loss(reshaped(kv_heads=32)).terms["delta_kv"] == 0
    assert predicted_loss(BY_NAME["DeepSeek-V3/R1"]).terms["delta_kv"] == 0


# ---- degenerate shapes ------------------------------------------------------------------------------------


@pytest.mark.parametrize(  # all near 6.98e9 non-embedding parameters
    ("changes", "loss"),
    [
        ({"hidden": 8192, "layers": 8, "heads": 64, "ffn": 28672}, 2.2367),
        ({"hidden": 11648, "layers": 4, "heads": 91, "kv_heads": 13, "ffn": 40960}, 2.3367),
        ({"hidden": 2048, "layers": 128, "heads": 16, "kv_heads": 4, "ffn": 7168}, 2.1625),
        ({"hidden": 1024, "layers": 512, "heads": 8, "kv_heads": 2, "ffn": 3584}, 2.2152),
        ({"kv_heads": 1, "ffn": 14848}, 2.1780),
        ({"kv_heads": 32, "ffn": 12288}, 2.1414),
        ({"heads": 12, "kv_heads": 4, "ffn": 16384}, 2.1752),
        ({"heads": 96, "kv_heads": 32, "ffn": 7168}, 2.1492),
    ],
)
def test_degenerate_shapes(changes, loss):
    assert predicted_loss(reshaped(**changes)).loss == pytest.approx(loss, abs=1e-4)


# ---- formats ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(  # perplexity of AWQ int4 over fp16 (arXiv 2306.00978, Table 4), natural logarithm
    ("model", "tokens", "measured"),
    [
        ("Llama-2-7B", 2e12, np.log(5.60 / 5.47)),
        ("Mistral-7B", 8e12, np.log(4.30 / 4.14)),
        ("Mixtral-8x7B", 8e12, np.log(6.05 / 5.94)),
    ],
)
def test_int4_after_training(model, tokens, measured):
    assert predicted_loss(BY_NAME[model], "int4", train_tokens=tokens).quant_loss == pytest.approx(measured, abs=0.008)


def test_published_order_of_formats():
    """MMLU loss of W4A8-AWQ is 1.06-1.12 times that of INT4-AWQ; MXFP4 costs 2.5 / 1.5 times NVFP4."""
    loss = {name: float(predicted_loss(LLAMA_8B, name).quant_loss) for name in RECIPES}
    assert loss["bf16"] == 0
    assert loss["int8"] == loss["fp8-block"] == loss["fp8"] < loss["int4"] < loss["nvfp4"] < loss["mxfp4"]
    assert 1.06 <= loss["w4a8"] / loss["int4"] <= 1.12
    assert loss["mxfp4"] / loss["nvfp4"] == pytest.approx(2.5 / 1.5, rel=0.01)


def test_ffn_only_recipes_pay_for_the_ffn_share():
    """Llama-3.1-8B: 4.2 FFN parameters per attention parameter."""
    for part, whole in (("nvfp4-ffn", "nvfp4"), ("mxfp4-experts", "mxfp4")):
        ratio = predicted_loss(LLAMA_8B, part).quant_loss / predicted_loss(LLAMA_8B, whole).quant_loss
        assert ratio == pytest.approx(4.2 / 5.2)


def test_training_with_quantisation_halves_the_law():
    for recipe in ("int4", "nvfp4", "mxfp4"):
        after, during = (predicted_loss(LLAMA_8B, recipe, quantised=mode).quant_loss for mode in ("ptq", "qat"))
        assert during == pytest.approx(after / 2)


def test_kv_formats_add():
    loss = [float(predicted_loss(LLAMA_8B, "fp8", kv).quant_loss) for kv in KV_FORMATS]
    np.testing.assert_allclose(loss, [0.003, 0.004, 0.009])


def test_codes_and_names_broadcast():
    designs = stack([LLAMA_8B, BY_NAME["DeepSeek-V3/R1"], BY_NAME["gpt-oss-120b"]]).column()
    table = predicted_loss(designs, np.arange(len(RECIPES)), "fp8")
    assert table.loss.shape == table.sigma.shape == table.inside_envelope.shape == (3, len(RECIPES))
    assert table.shape_loss.shape == (3, 1)
    named = predicted_loss(designs, np.array(RECIPES), np.array(["fp8"]))
    np.testing.assert_array_equal(table.loss, named.loss)
    for i, recipe in enumerate(RECIPES):
        np.testing.assert_allclose(table.loss[:, i], predicted_loss(designs, recipe, "fp8").loss[:, 0], rtol=1e-14)


# ---- differences ------------------------------------------------------------------------------------------


def test_sigma_of_sparsity():
    """Half as many or more effective parameters: 0.041 nats at 8B, 0.022 at 240B."""
    for size, sigma in ((8e9, 0.041), (240e9, 0.022)):
        dense = replace(
            predicted_loss(LLAMA_8B), terms={**predicted_loss(LLAMA_8B).terms, "parameter_term": 33.66 / size**0.18}
        )
        sparse = replace(dense, terms={**dense.terms, "activation_ratio": np.float64(0.1)})
        assert np.sqrt(difference_sigma(sparse, dense) ** 2 - 0.01**2) == pytest.approx(sigma, abs=6e-4)
        denser = replace(dense, terms={**dense.terms, "activation_ratio": np.float64(0.15)})
        assert difference_sigma(sparse, denser) == 0.01


def test_sigma_of_differences():
    reference = predicted_loss(LLAMA_8B)
    assert difference_sigma(reference, reference) == pytest.approx(0.01)
    int4 = predicted_loss(LLAMA_8B, "int4")
    assert difference_sigma(int4, reference) == pytest.approx(np.hypot(0.01, int4.quant_loss / 2))
    deep = predicted_loss(reshaped(hidden=2048, layers=128, heads=16, kv_heads=4, ffn=7168))
    assert difference_sigma(deep, reference) >= 0.06
    assert difference_sigma(deep, deep) == pytest.approx(0.01)
    batch = predicted_loss(MODELS)
    ours = difference_sigma(batch, reference)
    np.testing.assert_array_equal(ours, difference_sigma(reference, batch))
    assert ours.shape == TOKENS.shape


@pytest.mark.parametrize(("size", "change"), [(8e9, 0.20), (100e9, 0.33)])
def test_relative_size(size, change):
    """0.02 nats are 20 % of the parameters at 8B and 33 % at 100B."""
    prediction = predicted_loss(LLAMA_8B)
    loss = chinchilla("sardana").loss(size, 15e12)
    better, worse = (replace(prediction, loss=loss + delta) for delta in (-0.01, 0.01))
    assert np.log(relative_size(better, worse)) == pytest.approx(change, abs=0.02)
    half = replace(prediction, loss=chinchilla("sardana").loss(size / 2, 15e12))
    assert relative_size(half, replace(prediction, loss=loss)) == pytest.approx(0.5)


def test_unequal_tokens_do_not_compare():
    pair = predicted_loss(LLAMA_8B), predicted_loss(LLAMA_8B, train_tokens=2e12)
    for compare in (difference_sigma, relative_size):
        with pytest.raises(ValueError, match="equal train_tokens"):
            compare(*pair)


# ---- properties -------------------------------------------------------------------------------------------


@st.composite
def designs(draw):
    kv_heads = draw(st.sampled_from([1, 2, 4, 8, 16]))
    shape = {
        "hidden": draw(st.integers(2, 128)) * 128,
        "layers": draw(st.integers(1, 128)),
        "heads": kv_heads * draw(st.integers(1, 16)),
        "kv_heads": kv_heads,
        "head_dim": draw(st.sampled_from([64, 128, 256])),
        "ffn": draw(st.integers(1, 512)) * 128,
        "vocab": 128256,
    }
    kind = draw(st.sampled_from(["dense", "moe", "mla"]))
    if kind != "dense":
        experts = draw(st.integers(1, 512))
        shape |= {
            "experts": experts,
            "top_k": draw(st.integers(1, min(experts, 16))),
            "expert_ffn": draw(st.integers(1, 128)) * 64,
            "shared_experts": draw(st.integers(0, 2)),
            "dense_layers": draw(st.integers(0, shape["layers"])),
        }
    if kind == "mla":
        shape |= {"kv_heads": shape["heads"], "q_lora_rank": draw(st.sampled_from([0, 1536])), "kv_lora_rank": 512}
        shape |= {"head_dim": 128, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}
    return Architecture(**shape)


@given(
    st.lists(designs(), min_size=1, max_size=8),
    st.sampled_from(RECIPES),
    st.sampled_from(KV_FORMATS),
    st.floats(1e9, 1e15),
)
@settings(max_examples=60, deadline=None)
def test_batch_equals_singles_and_stays_finite(architectures, recipe, kv_format, tokens):
    batch = predicted_loss(stack(architectures), recipe, kv_format, tokens)
    for name in ("loss", "shape_loss", "quant_loss", "sigma", "inside_envelope"):
        singles = [getattr(predicted_loss(a, recipe, kv_format, tokens), name) for a in architectures]
        assert np.shape(singles[0]) == ()
        np.testing.assert_allclose(np.broadcast_to(getattr(batch, name), len(singles)), singles, rtol=1e-12)
    assert all(np.all(np.isfinite(value)) for value in batch.terms.values())
    assert np.all(batch.terms["delta_shape"] > -1e-12)
    assert np.all(batch.terms["width_ratio_factor"] > 1 - 1e-12)
    assert np.all(batch.loss >= batch.shape_loss)
    assert np.all(batch.terms["effective_parameters"] <= batch.terms["total_parameters"])
    assert np.all(batch.sigma >= 0.01)


@given(designs(), st.floats(1e9, 1e14), st.floats(1.01, 100))
@settings(max_examples=100, deadline=None)
def test_more_tokens_lose_less(architecture, tokens, factor):
    assert (
        predicted_loss(architecture, train_tokens=tokens * factor).shape_loss
        < predicted_loss(architecture, train_tokens=tokens).shape_loss
    )


@given(st.integers(4, 16), st.integers(14, 32), st.integers(8, 14))
@settings(max_examples=100, deadline=None)
def test_larger_of_one_shape_loses_less(groups, layers, expansion):
    """Twice the width and depth at equal proportions: hidden 128 per head, 4 heads per KV head."""

    def scaled(factor):
        width = groups * factor * 512
        return Architecture(
            hidden=width, layers=layers * factor, heads=groups * factor * 4, kv_heads=groups * factor,
            head_dim=128, ffn=width * expansion // 4, vocab=128256,
        )  # fmt: skip

    assert predicted_loss(scaled(2)).shape_loss < predicted_loss(scaled(1)).shape_loss


# ---- errors -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tokens", [0, -1e12, np.nan, np.inf, [15e12, 0]])
def test_bad_tokens(tokens):
    with pytest.raises(ValueError, match="train_tokens"):
        predicted_loss(LLAMA_8B, train_tokens=tokens)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"recipe": "int3"}, "unknown recipe 'int3'; valid: bf16, fp8"),
        ({"kv_format": "int4"}, "unknown KV format 'int4'; valid: bf16, fp8, nvfp4"),
        ({"quantised": "awq"}, "unknown quantised 'awq'; valid: ptq, qat"),
        ({"recipe": 99}, "recipe 99"),
    ],
)
def test_unknown_names(options, message):
    with pytest.raises(ValueError, match=message):
        predicted_loss(LLAMA_8B, **options)
