"""Each published law against the numbers its paper prints, and against other papers' measurements."""

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from cost_model.scaling_laws import (
    COEFFICIENTS,
    chinchilla,
    effective_share,
    efficiency_leverage,
    gemstones_loss,
    gemstones_optimal_layers,
    gemstones_shape,
    levine_width,
    ludziejewski,
    plas_loss,
    quantisation_loss,
    width_ratio_factor,
    width_ratio_optimum,
)

CHEN = COEFFICIENTS["chen"]


@pytest.mark.parametrize(
    ("fit", "flops", "parameters", "tokens_per_parameter"),
    [("besiroglu", 5.76e23, 7.2e10, 18.4), ("besiroglu", 1e21, 2.8e9, 21.6), ("hoffmann", 1e21, 2.2e9, 34.0)],
)
def test_compute_optimum(fit, flops, parameters, tokens_per_parameter):
    n, d = chinchilla(fit).compute_optimal(flops)
    assert n == pytest.approx(parameters, rel=0.015)
    assert d / n == pytest.approx(tokens_per_parameter, rel=0.01)
    assert 6 * n * d == pytest.approx(flops)


def test_base_loss():
    law = chinchilla("sardana")
    np.testing.assert_allclose(law.loss([6.9793e9, 1e9], [15e12, 2e10]), [2.1147, 2.7257], atol=1e-3)
    assert law.parameters_of_term(law.parameter_term(7e9)) == pytest.approx(7e9)


def test_unknown_fit_names_the_valid_ones():
    with pytest.raises(ValueError, match=r"'kaplan'.*sardana, besiroglu, hoffmann"):
        chinchilla("kaplan")


@pytest.mark.parametrize(  # arXiv 2502.05172, Table 1
    ("flops", "experts", "parameters", "tokens"),
    [
        (1e20, [1, 8, 32], [1.7e9, 0.99e9, 0.669e9], [9.7e9, 17e9, 24.9e9]),
        (1e22, [1, 32], [18.8e9, 12.2e9], [88.6e9, 136.9e9]),
    ],
)
def test_moe_compute_optimum(flops, experts, parameters, tokens):
    n, d = ludziejewski(experts).compute_optimal(flops)
    np.testing.assert_allclose(n, parameters, rtol=0.02)
    np.testing.assert_allclose(d, tokens, rtol=0.02)


@pytest.mark.parametrize(  # arXiv 2502.05172, Table 4; the paper prints its own coefficients rounded
    ("experts", "coefficients", "tolerance"),
    [(1, (30.364, 0.1817, 53.984, 0.1965), 3e-3), (8, (21.833, 0.1676, 119.91, 0.2338), 1e-3)],
)
def test_moe_law_at_fixed_experts(experts, coefficients, tolerance):
    law = ludziejewski(experts)
    np.testing.assert_allclose((law.A, law.alpha, law.B, law.beta), coefficients, rtol=tolerance)


def test_efficiency_leverage_claims():
    """Over 7 at 3.1 % active, granularity 12, 1e22 FLOPs; best granularity 8-12 (arXiv 2507.17702)."""
    assert efficiency_leverage(0.031, 12, 1e22) == pytest.approx(7.245, abs=0.01)
    granularity = np.linspace(1, 32, 311)
    assert 8 <= granularity[np.argmax(efficiency_leverage(0.031, granularity, 1e22))] <= 12
    assert efficiency_leverage(9 / 257, 7, 6 * 35.59e9 * 14.8e12) == pytest.approx(11.8, abs=0.05)


def test_ling_mini_beta_equals_its_dense_peer():
    """17.5B with 0.855B active after 1T tokens matched a dense 6.11B within 0.01 nats."""
    active = 0.855e9
    effective = active * efficiency_leverage((12 + 1) / (384 + 1), 2 * 2048 / 384, 6 * active * 1e12)
    assert effective == pytest.approx(6.11e9, rel=0.1)
    base = chinchilla("sardana")
    assert abs(base.loss(effective, 1e12) - base.loss(6.11e9, 1e12)) < 0.01


@pytest.mark.parametrize("tokens", [2e10, 1e11, 1e12])
@pytest.mark.parametrize("experts", [8, 32])
def test_two_independent_moe_laws_agree(tokens, experts):
    """Dense parameters worth a top-1 MoE of 1B active: arXiv 2502.05172 against 2507.17702, within 25 %."""
    active, dense = 1e9, ludziejewski(1)
    loss = ludziejewski(experts).loss(active, tokens)
    effective = dense.parameters_of_term(loss - dense.irreducible - dense.token_term(tokens))
    leverage = efficiency_leverage(1 / experts, 1.0, 6 * active * tokens)
    assert leverage == pytest.approx(effective / active, rel=0.25)


@pytest.mark.parametrize(  # arXiv 2510.18245: printed optima
    ("fit", "x", "r", "tolerance"), [("one_billion", 0.074, 1.229, 0.015), ("task_3", 0.08, 1.032, 0.005)]
)
def test_width_ratio_optimum(fit, x, r, tolerance):
    found = width_ratio_optimum(fit)
    np.testing.assert_allclose(found, (x, r), rtol=tolerance)
    least = width_ratio_factor(*found, fit)
    assert np.all(width_ratio_factor(found[0] * np.array([0.9, 1.1]), found[1], fit) > least)
    assert np.all(width_ratio_factor(found[0], found[1] * np.array([0.9, 1.1]), fit) > least)
    assert least == pytest.approx(1, abs=0.003)


@pytest.mark.parametrize(  # arXiv 2510.18245, Tables 1 and 2: (x, r) of the two models, their measured losses
    ("ours", "theirs", "measured", "tolerance"),
    [
        ((0.082, 1.07), (0.066, 4.80), 2.782 / 2.803, 0.0015),
        ((0.082, 3.60), (0.066, 4.80), 2.804 / 2.803, 0.003),
        ((0.076, 1.23), (0.058, 3.00), 2.606 / 2.625, 0.001),
        ((0.077, 1.00), (0.058, 3.00), 2.619 / 2.625, 0.005),
    ],
)
def test_width_ratio_predicts_trained_models(ours, theirs, measured, tolerance):
    assert width_ratio_factor(*ours) / width_ratio_factor(*theirs) == pytest.approx(measured, abs=tolerance)


@pytest.mark.parametrize(  # arXiv 2502.06857: measured after 300.1B tokens
    ("width", "layers", "parameters", "predicted", "measured"),
    [
        (1024, 28, 543_482_880, 2.7137, 2.7093),
        (1792, 7, 517_499_136, 2.7983, 2.7896),
        (3072, 12, 2_007_837_696, 2.5462, 2.5291),
        (2048, 27, 1_904_850_944, 2.5180, 2.5138),
        (768, 3, 103_814_400, 3.3104, 3.3180),
        (256, 80, 104_440_064, 3.1198, 3.1217),
    ],
)
def test_gemstones_predicts_its_models(width, layers, parameters, predicted, measured):
    loss = gemstones_loss(width, layers, parameters, 3.001e11)
    assert loss == pytest.approx(predicted, abs=1e-4)
    assert loss == pytest.approx(measured, abs=0.0216)  # the fit's own RMSE


def test_gemstones_shape_agrees_with_kaplan():
    """(6, 4288) within 3 % of (48, 1600) at a loss near 3 (arXiv 2001.08361, Fig. 5)."""
    assert gemstones_shape(4288, 6) - gemstones_shape(1600, 48) == pytest.approx(0.1015, abs=1e-3)
    assert gemstones_shape(4288, 6) - gemstones_shape(1600, 48) == pytest.approx(0.03 * 3, abs=0.02)


@pytest.mark.parametrize(
    ("hidden", "layers", "optimal"), [(4096, 32, 57), (8192, 80, 88), (16384, 126, 125), (896, 24, 31)]
)
def test_gemstones_optimal_layers(hidden, layers, optimal):
    size = layers * hidden**2
    found = gemstones_optimal_layers(size)
    assert round(float(found)) == optimal
    search = minimize_scalar(lambda l: gemstones_shape(np.sqrt(size / l), l), bounds=(2, 500), method="bounded")
    assert found == pytest.approx(search.x, rel=1e-3)


@pytest.mark.parametrize(
    ("arguments", "loss"),
    [
        ((16, 2048, 4, 1, 512), 3.3306),
        ((16, 2048, 4, 0.125, 512), 3.0588),
        ((4, 3072, 4, 1, 3072), 4.2138),
        ((32, 768, 4, 1, 768), 3.5557),
    ],
)
def test_plas_loss(arguments, loss):
    assert plas_loss(*arguments) == pytest.approx(loss, abs=1e-3)


def test_plas_best_sparsity_falls_with_width():
    """Share of active experts at which the expert and width terms balance goes as width^-1.19 (published)."""
    c = COEFFICIENTS["plas"]
    exponent = (-c["share_width_exponent"] - c["width_exponent"]) / c["share_exponent"]
    assert exponent == pytest.approx(-1.19, abs=0.01)


def test_levine_width_of_a_trillion_parameters():
    """Width 30,000 is depth-efficient at 1T parameters (arXiv 2006.12467)."""
    width = levine_width(95)
    assert width == pytest.approx(30077, rel=0.01)
    assert 12 * 95 * width**2 == pytest.approx(1.03e12, rel=0.01)


def test_precision_of_weights():
    np.testing.assert_allclose(
        effective_share([4, 8], COEFFICIENTS["kumar"]["weights"]["gamma"]), [0.776, 0.950], atol=1e-3
    )


def test_best_training_precision():
    """Seven to eight bits give the most effective parameters per bit (arXiv 2411.04330)."""
    laws = [COEFFICIENTS["kumar"][name] for name in ("weights", "activations", "kv")]
    bits = np.linspace(3, 16, 1301)
    share = np.prod([effective_share(bits, **law) for law in laws], axis=0)
    assert bits[np.argmax(share / bits)] == pytest.approx(7.0, abs=0.3)


@pytest.mark.parametrize(  # arXiv 2505.14302: loss of 4-bit activations over that of 4-bit weights, 595M
    ("tokens_per_parameter", "group", "published"), [(100, 32, 1.67), (1000, 32, 1.20), (1000, 256, 1.62)]
)
def test_activations_lose_more_than_weights(tokens_per_parameter, group, published):
    n = 595e6
    point = (n, n * tokens_per_parameter, group)
    ratio = quantisation_loss(*point, **CHEN["w16a4"]) / quantisation_loss(*point, **CHEN["w4a16"])
    assert ratio == pytest.approx(published, rel=0.04)


def test_four_bit_pretraining():
    """NVFP4 pre-training of a 12B model on 10T tokens: 1 to 1.5 % of a loss near 1.9 (arXiv 2509.25149)."""
    loss = quantisation_loss(12e9, 10e12, 16, **CHEN["w4a4"])
    assert loss == pytest.approx(0.0271, abs=1e-4)
    assert 0.01 * 1.9 <= loss <= 0.015 * 1.9 * 1.01
