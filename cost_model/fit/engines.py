"""Fit of an engine's constants to measured deployments: overheads, and factors over kernels measured alone.

Constants of one engine on one GPU are fitted together: factors, overheads, a factor per weight format, and per release
a factor and a layer overhead. Each is pulled towards its parent (the engine's value over all GPUs; 1 or 0 at the top)
by a ridge, so that a constant which few rows support stays near it. The data enter through soft-L1 of log ratios.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cost_model.constants import has_measured_kernels
from cost_model.design import Design
from cost_model.engine import BY_FORMAT, Engine
from cost_model.steady import steady_state
from cost_model.step import Seconds, Tokens, charged, kernel_seconds
from spaces.deployment import Deployment
from spaces.formats import FORMATS
from spaces.workload import Workload

NOISE = {"tpot": 0.1, "ttft": 0.3, "throughput": 0.05}  # log errors below which a residual counts as quadratic
WEIGHT = {"tpot": 1.0, "ttft": 0.225, "throughput": 0.5}
RIDGE = 0.1  # residual of a constant one spread away from its parent
STEP = 1e-2  # of a constant, in spreads, for slopes

# how far a constant may plausibly lie from its parent: standard deviations (log for factors), and its bounds
SPREAD = {
    "linear_factor": 0.12,
    "experts_factor": 0.15,
    "expert_parallel_factor": 0.12,
    "dispatched_experts_factor": 0.12,
    "attention_factor": 0.12,
    "prompt_attention_factor": 0.2,
    "communication_factor": 0.2,
    "exchange_factor": 0.2,
    "prefill_factor": 0.15,
    "moe_prefill_factor": 0.15,
    "pool_factor": 0.25,
    "pool_wait_factor": 0.25,
    "admission_steps": 20.0,
    "queue_factor": 0.15,
    "step_overhead_s": 3e-4,
    "layer_overhead_s": 3e-6,
    "moe_layer_overhead_s": 6e-6,
    "sequence_overhead_s": 2e-6,
    "prefill_overhead_s": 1e-3,
    "first_token_s": 1e-2,
    "handover_s": 1e-1,
}
UNMEASURED = 2.0  # how much farther where no kernel of the generation was measured: factors then carry that too
FORMAT_SPREAD = 0.06  # narrow: formats are compared with one another, and few are measured in every engine
RELEASE_SPREAD = {
    "release_factor": 0.1,
    "prefill_factor": 0.25,
    "prompt_attention_factor": 0.3,  # SGLang 0.5.10 runs long prompts three to four times slower than 0.5.12
    "layer_overhead_s": 3e-6,
}
LEAST = {
    "admission_steps": 0.0,
    "step_overhead_s": 0.0,
    "layer_overhead_s": -15e-6,
    "moe_layer_overhead_s": -30e-6,
    "sequence_overhead_s": 0.0,
    "prefill_overhead_s": 0.0,
    "first_token_s": 0.0,
    "handover_s": 0.0,
}


Drift = dict[str, dict[str, float]]  # by release and constant, from the typical release: log for factors


@dataclass
class Case:
    """Measured rows that share a design; `release` indexes the releases of the fit, weights are per row.

    Attributes:
        measured: tpot, ttft (seconds), throughput (requests per second of the deployment), NaN where not measured.
        settings: constants that these deployments were launched with, whatever the engine's are.
        median: the row's TTFT is a median. ranks: decode ranks x micro-batches x replicas of the deployment.
    """

    design: Design
    plan: Deployment
    workload: Workload
    sequences: np.ndarray
    waiting: np.ndarray
    median: np.ndarray
    ranks: np.ndarray
    release: np.ndarray
    weight: np.ndarray
    measured: dict[str, np.ndarray]
    settings: dict[str, Any]
    kernels_alone: list[list[Seconds]]

    @property
    def known(self) -> dict[str, np.ndarray]:
        """Which rows measured what, in the order of `misfit`."""
        return {name: np.isfinite(self.measured[name]) for name in WEIGHT}

    def predicted(self, engine: Engine) -> dict[str, np.ndarray]:
        """tpot, ttft and throughput under trial constants; kernel seconds are priced on the first call only."""
        calls = iter(range(len(self.kernels_alone) or 100))
        design = replace(self.design, gpu=replace(self.design.gpu, engine=replace(engine, **self.settings)))

        def forward(design: Design, plan: Deployment, passes: list[Tokens]) -> list[Seconds]:
            number = next(calls)
            if number >= len(self.kernels_alone):
                self.kernels_alone.append(kernel_seconds(design, plan, passes))
            raw = self.kernels_alone[number]
            return [charged(design, plan, tokens, seconds) for tokens, seconds in zip(passes, raw, strict=True)]

        state, _ = steady_state(design, self.plan, self.workload, self.sequences, forward)
        ttft = np.where(self.median, state.ttft_median_s, state.ttft_s) + self.waiting * state.e2e_s
        return {"tpot": state.tpot_s, "ttft": ttft, "throughput": state.requests_per_s * self.ranks}


@dataclass(frozen=True)
class Parameter:
    """One number of a fit: which constant, for which format or release ("" = all), and its spread about a parent."""

    name: str
    key: str
    parent: float
    spread: float

    @property
    def factor(self) -> bool:
        return self.name.endswith("factor")


def parameters(cases: list[Case], parent: Engine, releases: list[str], drift: Drift) -> list[Parameter]:
    """What the cases can identify; no releases given: they are not told apart."""
    generations = {case.design.gpu.generation for case in cases}
    wide = 1.0 if any(map(has_measured_kernels, generations)) else UNMEASURED
    found = [Parameter(name, "", _parent(parent, name), wide * spread) for name, spread in SPREAD.items()]
    used = {"linear_factor": {c.design.attention_format for c in cases}, "experts_factor": set()}
    for case in cases:
        moe = bool(np.any(case.design.architecture.is_moe))
        used["experts_factor" if moe else "linear_factor"].add(case.design.ffn_format)
    for name, codes in used.items():
        above = np.log(getattr(parent, name) / _parent(parent, name))  # the parent's own deviation of each format
        found += [Parameter(name, FORMATS[c], float(above[c]), wide * FORMAT_SPREAD) for c in sorted(map(int, codes))]
    seen = sorted({int(r) for case in cases for r in np.unique(case.release)}) if releases else []
    for name, spread in RELEASE_SPREAD.items():
        found += [Parameter(name, releases[r], drift.get(releases[r], {}).get(name, 0.0), spread) for r in seen]
    return found


def together(wanted: list[Parameter]) -> list[list[int]]:
    """Parameters that no row shares, so that one trial tells the slopes of all: a release constant over releases."""
    groups: dict[tuple[str, Any], list[int]] = {}
    for number, parameter in enumerate(wanted):
        alone = not parameter.key or parameter.key in FORMATS
        groups.setdefault((parameter.name, number if alone else ""), []).append(number)
    return list(groups.values())


def _parent(parent: Engine, name: str) -> float:
    value = getattr(parent, name)
    return float(np.median(value)) if name in BY_FORMAT else float(value)


def constants(parent: Engine, wanted: list[Parameter], values: np.ndarray) -> dict[str, Any]:
    """Engine constants of a vector of deviations: scalars, tables by format, tables of releases under "releases"."""
    result: dict[str, Any] = {}
    for parameter, value in zip(wanted, values, strict=True):
        if not parameter.key:
            result[parameter.name] = parameter.parent * np.exp(value) if parameter.factor else parameter.parent + value
            if parameter.name in LEAST:
                result[parameter.name] = max(result[parameter.name], LEAST[parameter.name])
    tables: dict[str, dict[str, float]] = {name: {"other": result[name]} for name in BY_FORMAT}
    releases: dict[str, dict[str, float]] = {}
    for parameter, value in zip(wanted, values, strict=True):
        if parameter.key in FORMATS:
            tables[parameter.name][parameter.key] = result[parameter.name] * float(np.exp(parameter.parent + value))
        elif parameter.key:
            own = releases.setdefault(parameter.key, {})
            own[parameter.name] = _moved(parameter.name, result.get(parameter.name, 1.0), parameter.parent + value)
    return {**result, **tables, "releases": releases}


def drift(found: dict[str, Any]) -> Drift:
    """How far each release of a fit lies from its typical one."""

    def moved(name: str, value: float) -> float:
        typical = found.get(name, 1.0)
        return float(np.log(value / typical) if name.endswith("factor") else value - typical)

    return {label: {name: moved(name, own[name]) for name in own} for label, own in found["releases"].items()}


def drifted(found: dict[str, Any], unseen: Drift) -> dict[str, dict[str, float]]:
    """Constants by release: of the fit's own, and of others, as far from its typical one as on other GPUs."""
    others = {
        label: {name: _moved(name, found.get(name, 1.0), by) for name, by in own.items()}
        for label, own in unseen.items()
    }
    seen: dict[str, dict[str, float]] = found["releases"]
    return seen | others


def _moved(name: str, typical: float, by: float) -> float:
    return float(typical * np.exp(by) if name.endswith("factor") else typical + by)


def trial_engine(parent: Engine, found: dict[str, Any], releases: list[str], rows: np.ndarray) -> Engine:
    """An Engine whose release constants are arrays over a case's rows."""
    values = {name: value for name, value in found.items() if name != "releases"}
    for name in BY_FORMAT:
        values[name] = np.array([values[name].get(form, values[name]["other"]) for form in FORMATS])
    own = [found["releases"].get(releases[r], {}) if releases else {} for r in rows]
    for name in RELEASE_SPREAD:
        default = values.get(name, getattr(parent, name))
        values[name] = np.array([row.get(name, default) for row in own])
    return replace(parent, **values)


def fit(cases: list[Case], parent: Engine, releases: list[str], above: Drift | None = None) -> dict[str, Any]:
    """Constants of one engine on one GPU (or on all of them, for the parent).

    Args:
        above: drift of the parent's releases, to which those of the cases are pulled; None: to the typical one.
    """
    from scipy.optimize import least_squares  # the calibration extra

    wanted = parameters(cases, parent, releases, above or {})
    scale = np.array([p.spread for p in wanted])
    rows = [np.concatenate([case.release[known] for known in case.known.values()]) for case in cases]
    release = np.concatenate(rows) if rows else np.zeros(0, dtype=int)
    groups = together(wanted)

    def residuals(unit: np.ndarray) -> np.ndarray:
        found = constants(parent, wanted, unit * scale)
        parts = [misfit(case, case.predicted(trial_engine(parent, found, releases, case.release))) for case in cases]
        return np.concatenate([*parts, RIDGE * unit])

    def slopes(unit: np.ndarray) -> np.ndarray:
        here = residuals(unit)
        matrix = np.zeros((len(here), len(unit)))
        for group in groups:
            trial = unit.copy()
            trial[group] += STEP
            slope = (residuals(trial) - here)[: len(release)] / STEP
            for number in group:
                own = True if len(group) == 1 else release == releases.index(wanted[number].key)
                matrix[: len(release), number] = np.where(own, slope, 0.0)
        matrix[len(release) :] = RIDGE * np.eye(len(unit))
        return matrix

    best = least_squares(residuals, np.zeros(len(wanted)), slopes, bounds=(-6, 6), max_nfev=15, ftol=1e-4, xtol=1e-4)
    return constants(parent, wanted, best.x * scale)


def misfit(case: Case, predicted: dict[str, np.ndarray]) -> np.ndarray:
    """Weighted residuals whose squares sum to a robust loss of the log ratios: soft-L1, and Geman-McClure for TTFT."""
    parts = []
    for name, weight in WEIGHT.items():
        known = case.known[name]
        ratio = np.log(np.broadcast_to(predicted[name], known.shape)[known] / case.measured[name][known]) / NOISE[name]
        if name == "ttft":  # bounded: a run that warms up or queues out of sight is no evidence at all
            root = ratio / np.sqrt(1.0 + ratio * ratio) * NOISE[name]
        else:
            root = np.sqrt(2.0 * (np.sqrt(1.0 + ratio * ratio) - 1.0)) * np.sign(ratio) * NOISE[name]
        parts.append(np.sqrt(weight * case.weight[known]) * root)
    return np.concatenate(parts)
