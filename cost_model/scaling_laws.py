"""Published scaling laws of language models, each in the form of its paper; constants in quality.toml.

Everywhere: losses in nats per token, `parameters` and `tokens` raw counts, `flops` of training; all
arguments broadcast. What is added up into a prediction, and why, is in quality.py.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

COEFFICIENTS = tomllib.loads((Path(__file__).parent / "quality.toml").read_text(encoding="utf-8"))


@dataclass(frozen=True)
class PowerLaw:
    """L(N, D) = irreducible + A / N^alpha + B / D^beta (Hoffmann et al., arXiv 2203.15556, Eq. 10)."""

    irreducible: Any
    A: Any
    alpha: Any
    B: Any
    beta: Any

    def parameter_term(self, parameters: Any) -> Any:
        return self.A / np.asarray(parameters, dtype=float) ** self.alpha

    def token_term(self, tokens: Any) -> Any:
        return self.B / np.asarray(tokens, dtype=float) ** self.beta

    def loss(self, parameters: Any, tokens: Any) -> Any:
        return self.irreducible + self.parameter_term(parameters) + self.token_term(tokens)

    def parameters_of_term(self, term: Any) -> Any:
        """Inverse of `parameter_term`."""
        return (self.A / np.asarray(term, dtype=float)) ** (1 / self.alpha)

    def compute_optimal(self, flops: Any) -> tuple[Any, Any]:
        """(parameters, tokens) of least loss under flops = 6 N D: the closed form of the same paper."""
        G = (self.alpha * self.A / (self.beta * self.B)) ** (1 / (self.alpha + self.beta))
        parameters = G * (np.asarray(flops, dtype=float) / 6) ** (self.beta / (self.alpha + self.beta))
        return parameters, flops / 6 / parameters


def chinchilla(fit: str) -> PowerLaw:
    """The law of one fit: sardana, besiroglu or hoffmann.

    Raises:
        ValueError: unknown fit.
    """
    fits = COEFFICIENTS["chinchilla"]
    if fit not in fits:
        raise ValueError(f"fit = {fit!r}; valid: {', '.join(fits)}")
    return PowerLaw(**{name: value for name, value in fits[fit].items() if name not in ("source", "evidence")})


def _saturating(x: Any, start: float, maximum: float) -> Any:
    """x^ of Clark et al. (arXiv 2202.01169): start at x = 0, x + start in between, maximum at infinity."""
    return 1 / (1 / (x + 1 / (1 / start - 1 / maximum)) + 1 / maximum)


def ludziejewski(experts: Any) -> PowerLaw:
    """The law in (active parameters with embeddings, tokens) of a top-1 MoE (arXiv 2502.05172, Eq. 6)."""
    c = COEFFICIENTS["ludziejewski"]
    E = _saturating(np.asarray(experts, dtype=float) - 1, c["start"], c["maximum"])
    return PowerLaw(
        irreducible=c["irreducible"],
        A=c["a"] * E ** c["delta"],
        alpha=-(c["alpha"] + c["gamma"] * np.log(E)),
        B=c["b"] * E ** c["omega"],
        beta=-(c["beta"] + c["zeta"] * np.log(E)),
    )


def efficiency_leverage(activation_ratio: Any, granularity: Any, flops: Any) -> Any:
    """FLOPs of a dense model over those of a MoE of equal loss (arXiv 2507.17702, Eq. 13).

    Args:
        activation_ratio: experts a token visits over all experts, shared ones in both.
        granularity: 2 hidden / expert_ffn.
        flops: training FLOPs of the MoE, 6 x active parameters x tokens.
    """
    c = COEFFICIENTS["ling"]
    A = _saturating(activation_ratio, c["start"], c["maximum"])
    log_g = np.log2(granularity)
    return A ** (c["a"] + c["d"] * np.log10(flops) + (c["gamma"] * log_g + c["beta"]) * log_g)


def width_ratio_factor(width_ratio: Any, mlp_attention_ratio: Any, fit: str = "one_billion") -> Any:
    """Factor on the loss of x = hidden / sqrt(N) and r = FFN / attention parameters (arXiv 2510.18245, Eq. 3)."""
    c, x, r = COEFFICIENTS["width_ratio"][fit], width_ratio, mlp_attention_ratio
    return (c["a0"] + c["a1"] * np.log(x) + c["a2"] / x) * (c["b0"] + c["b1"] * np.log(r) + c["b2"] / r)


def width_ratio_optimum(fit: str = "one_billion") -> tuple[float, float]:
    """(x, r) of least loss: a log x + b / x has its minimum at b / a."""
    c = COEFFICIENTS["width_ratio"][fit]
    return c["a2"] / c["a1"], c["b2"] / c["b1"]


def gemstones_shape(width: Any, layers: Any) -> Any:
    """Width and depth terms of the Gemstones law (arXiv 2502.06857)."""
    c = COEFFICIENTS["gemstones"]
    width_term = np.exp(c["log_width"]) * np.asarray(width, dtype=float) ** -c["alpha"]
    return width_term + np.exp(c["log_layers"]) * np.asarray(layers, dtype=float) ** -c["beta"]


def gemstones_optimal_layers(size: Any) -> Any:
    """Layers of least `gemstones_shape` at a fixed size = layers x width^2 (its derivative set to zero)."""
    c = COEFFICIENTS["gemstones"]
    alpha, beta = c["alpha"], c["beta"]
    ratio = 2 * beta * np.exp(c["log_layers"]) / (alpha * np.exp(c["log_width"]))
    return (ratio * np.asarray(size, dtype=float) ** (alpha / 2)) ** (1 / (alpha / 2 + beta))


def gemstones_loss(width: Any, layers: Any, parameters: Any, tokens: Any) -> Any:
    """The whole Gemstones law: shape, size and data."""
    c = COEFFICIENTS["gemstones"]
    size = PowerLaw(
        np.exp(c["log_irreducible"]), np.exp(c["log_parameters"]), c["gamma"], np.exp(c["log_tokens"]), c["zeta"]
    )
    return gemstones_shape(width, layers) + size.loss(parameters, tokens)


def plas_loss(layers: Any, width: Any, expansion: Any, active_share: Any, kv_width: Any) -> Any:
    """Loss after 10B tokens (arXiv 2602.10377, Eq. 15).

    Args:
        expansion: activated FFN width over hidden. active_share: top_k / experts, 1 = dense.
        kv_width: kv_heads x head_dim.
    """
    c = COEFFICIENTS["plas"]
    expert_term = c["share"] * active_share ** c["share_exponent"] * width ** c["share_width_exponent"]
    width_term = c["width"] / width ** c["width_exponent"]
    ffn_terms = (expert_term + width_term) / expansion ** c["expansion_exponent"]
    return c["layers"] / layers ** c["layers_exponent"] + ffn_terms + plas_kv_term(kv_width) + c["irreducible"]


def plas_kv_term(kv_width: Any) -> Any:
    """KV term of the PLAS law: what keys and values of width kv_heads x head_dim leave on the table."""
    c = COEFFICIENTS["plas"]
    return c["kv"] / np.asarray(kv_width, dtype=float) ** c["kv_exponent"]


def levine_width(layers: Any) -> Any:
    """Width below which this many layers are more than depth-efficient (arXiv 2006.12467)."""
    c = COEFFICIENTS["levine"]
    return np.exp(c["intercept"] + c["slope"] * np.asarray(layers, dtype=float))


def effective_share(bits: Any, gamma: float, offset: float = 0.0) -> Any:
    """Share of the parameters that count at this precision (Kumar et al., arXiv 2411.04330, Eq. 2)."""
    return 1 - np.exp(-np.asarray(bits, dtype=float) / gamma + offset)


def quantisation_loss(
    parameters: Any, tokens: Any, group: Any, k: Any, gamma_n: Any, gamma_d: Any, gamma_g: Any
) -> Any:
    """Loss that quantisation-aware training with one scale per `group` values adds (arXiv 2505.14302)."""
    return k * tokens**gamma_d * np.log2(group) ** gamma_g / parameters**gamma_n
