"""The study file's tables as strict models: unknown keys, wrong types and impossible values are errors.

A field's description says what is valid; studies/study.py puts it into the error message.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PlainValidator, model_validator

from search.objective import OBJECTIVES
from spaces.axes import AXIS_NAMES
from spaces.budget import SOLVE_CHOICES, Budget
from spaces.workload import LOADS

SAMPLERS = ("frontier", "nsga2", "tpe", "random", "qmc")
MODES = ("aggregated", "disaggregated")
SKEWS = ("balanced", "power_law_1.01", "power_law_1.2", "random")
MAX_QUANT_NATS = {"ptq": 0.07, "qat": 0.035}  # design defaults: NVFP4 costs 0.03-0.08 nats
SPACE_KEYS = ("align", "inner", "exportable")
MOST_GPUS = 4096

T = TypeVar("T")


def _distinct(values: list[T]) -> list[T]:
    for value in values:
        if values.count(value) > 1:
            raise ValueError(f"{value!r} is listed twice")
    return values


def _amount(value: Any) -> Any:
    """A parameter budget: a number, a (min, max) range, or "reference"."""
    if value == "reference":
        return value
    if isinstance(value, Mapping):
        if set(value) != {"min", "max"}:
            raise ValueError("a range needs exactly min and max")
        return tuple(_positive(f"{key} = {value[key]!r}", value[key]) for key in ("min", "max"))
    return _positive("", value)


def _positive(where: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
        raise ValueError(f"{where}: a number above 0 is needed" if where else _AMOUNT)
    return float(value)


def _solve(value: Any) -> tuple[str, ...]:
    choice = (value,) if isinstance(value, str) else tuple(value) if isinstance(value, list) else ()
    if choice not in SOLVE_CHOICES:
        raise ValueError(_SOLVE)
    return choice


_AMOUNT = 'a number above 0, a range {min, max}, or "reference"'
_SOLVE = "one of " + ", ".join(f'"{c[0]}"' if len(c) == 1 else str(list(c)).replace("'", '"') for c in SOLVE_CHOICES)
_WHOLE = "a whole number of at least"
Amount = Annotated[Any, PlainValidator(_amount)]
Count = Annotated[int, Field(ge=1)]
Positive = Annotated[float, Field(gt=0)]
LISTED = Field(min_length=1, max_length=64)  # longer lists would price points by the billion
Weight = Annotated[float, Field(ge=1e-6, le=1e6)]
Batch = Annotated[int, Field(ge=0, le=1_000_000)]
Counts = Annotated[list[Annotated[int, Field(ge=1, le=MOST_GPUS)]], LISTED, AfterValidator(_distinct)]


class Table(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)


class BudgetTable(Table):
    total_parameters: Amount = Field(default="reference", description=_AMOUNT)
    active_parameters: Amount | None = Field(default=None, description=_AMOUNT)
    tolerance: float = Field(default=0.02, gt=0, le=0.5, description="a number above 0 and at most 0.5")
    solve: Annotated[Any, PlainValidator(_solve)] = Field(default=("ffn",), description=_SOLVE)
    max_training_flops_ratio: Positive | None = Field(
        default=None, description="a number above 0, 1.0 = the reference's"
    )

    def budget(self, reference_active: float) -> Budget:
        """The budget of a design space; "reference" resolved."""
        total = None if self.total_parameters == "reference" else self.total_parameters
        active = reference_active if self.active_parameters == "reference" else self.active_parameters
        return Budget(total, active, self.tolerance, self.solve, self.max_training_flops_ratio)


class Accuracy(Table):
    """What "accuracy held" means: shape_loss within tolerance_nats of the reference's, quant_loss under its own limit.

    max_quant_nats defaults to 0.07 (ptq) or 0.035 (qat).
    """

    train_tokens: float = Field(
        default=15e12, ge=1e9, le=1e15, description="training tokens, a number from 1e9 to 1e15"
    )
    tolerance_nats: float = Field(default=0.005, ge=0, le=1, description="nats per token, a number from 0 to 1")
    quantised: Literal["ptq", "qat"] = Field(default="ptq", description='"ptq" or "qat"')
    max_quant_nats: float | None = Field(default=None, ge=0, le=1, description="nats per token, a number from 0 to 1")

    @property
    def quant_limit(self) -> float:
        return MAX_QUANT_NATS[self.quantised] if self.max_quant_nats is None else self.max_quant_nats


class SpaceTable(Table):
    """Axes by name (checked by the design space), and how they are read."""

    model_config = ConfigDict(strict=True, extra="allow", frozen=True, allow_inf_nan=False)

    align: Count = Field(default=128, description=f"{_WHOLE} 1")
    inner: Annotated[list[str], AfterValidator(_distinct)] = Field(default=[], description="a list of axis names")
    exportable: bool = Field(default=True, description="true or false")

    @model_validator(mode="before")
    @classmethod
    def _known(cls, table: Any) -> Any:
        known = (*SPACE_KEYS, *AXIS_NAMES)
        for key in table if isinstance(table, Mapping) else ():
            if key not in known:
                near = difflib.get_close_matches(str(key), known, n=1)
                hint = f", did you mean {near[0]!r}" if near else ""
                raise ValueError(f"unknown key {key!r}{hint}; valid: {', '.join(known)}")
        return table

    @property
    def axes(self) -> dict[str, Any]:
        return dict(self.__pydantic_extra__ or {})


class TargetTable(Table):
    gpu: str = Field(description="a GPU name (ridgeline list gpus) or a path to a .toml file")
    engine: str = Field(
        default="trtllm", description="an engine name (ridgeline list engines) or a path to a .toml file"
    )
    gpus: Counts = Field(
        default=[1, 2, 4, 8],
        description=f"a list of GPU counts per replica, at most 64 whole numbers from 1 to {MOST_GPUS}",
    )
    weight: Weight = Field(default=1.0, description="a number from 1e-6 to 1e6")
    usd_per_gpu_hour: Positive | None = Field(
        default=None, description="a price above 0; leave out for the data sheet's"
    )
    memory_bytes: Annotated[float, Field(ge=1e9)] | None = Field(default=None, description="bytes, at least 1e9")


class WorkloadTable(Table):
    name: str = Field(
        min_length=1,
        max_length=100,
        description="a name, at most 100 characters; alone, a bundled workload",
    )
    isl: int = Field(ge=1, le=10_000_000, description="prompt tokens, a whole number from 1 to 10,000,000")
    osl: int = Field(ge=1, le=10_000_000, description="output tokens, a whole number from 1 to 10,000,000")
    cached: int = Field(
        default=0, ge=0, le=10_000_000, description="cached tokens, a whole number from 0 to 10,000,000"
    )
    weight: Weight = Field(default=1.0, description="a number from 1e-6 to 1e6")
    load: Literal["closed-loop", "static", "offline"] = Field(
        default="closed-loop", description=f"one of {', '.join(LOADS)}"
    )


class Serving(Table):
    """How designs are served, and the limits a point must keep; None = no limit."""

    modes: Annotated[list[Literal["aggregated", "disaggregated"]], Field(min_length=1), AfterValidator(_distinct)] = (
        Field(default=["aggregated"], description=f"a list of {', '.join(MODES)}")
    )
    max_ttft_s: Positive | None = Field(default=None, description="seconds above 0")
    min_tokens_per_s_per_user: Positive | None = Field(default=None, description="a number above 0")
    max_memory_bytes_per_gpu: Annotated[float, Field(ge=1e9)] | None = Field(
        default=None, description="bytes, at least 1e9"
    )
    expert_skew: Literal["balanced", "power_law_1.01", "power_law_1.2", "random"] = Field(
        default="power_law_1.2", description=f"one of {', '.join(SKEWS)}"
    )
    batches: Annotated[list[Batch], LISTED, AfterValidator(_distinct)] | None = Field(
        default=None,
        description="a list of sequences per replica, at most 64 whole numbers; 0 = as many as memory holds and "
        "max_ttft_s allows",
    )
    pp: Counts = Field(
        default=[1, 2, 4, 8],
        description=f"a list of pipeline stages, at most 64 whole numbers from 1 to {MOST_GPUS}",
    )
    kvp: Counts = Field(
        default=[1], description=f"a list of KV-parallel ranks, at most 64 whole numbers from 1 to {MOST_GPUS}"
    )
    redundant_experts: Annotated[list[Annotated[int, Field(ge=0, le=4096)]], LISTED, AfterValidator(_distinct)] = Field(
        default=[0], description="a list of spare experts per layer, at most 64 whole numbers from 0 to 4096"
    )
    draft_tokens: int = Field(
        default=0, ge=0, le=64, description="speculative tokens per step, a whole number from 0 to 64"
    )
    acceptance: float = Field(
        default=0.0, ge=0, lt=1, description="chance that a draft token is accepted, from 0 to below 1"
    )


class Plateau(Table):
    """Stop when the last `trials` trials raised the hypervolume by less than the fraction `gain`."""

    trials: Count = Field(default=1000, description=f"{_WHOLE} 1")
    gain: float = Field(default=0.001, gt=0, lt=1, description="a fraction between 0 and 1")


class Search(Table):
    objectives: Annotated[list[str], Field(min_length=2, max_length=3), AfterValidator(_distinct)] = Field(
        default=["tokens_per_s_per_user", "tokens_per_s_per_gpu"],
        description=f"two or three of {', '.join(OBJECTIVES)}",
    )
    interactivity_targets: Annotated[list[Positive], LISTED, AfterValidator(_distinct)] = Field(
        default=[25, 75, 200], description="a list of tokens/s/user, at most 64 numbers above 0"
    )
    combine: Literal["worst", "weighted"] = Field(
        default="worst", description='over several targets: "worst" or "weighted"'
    )
    trials: int = Field(default=2000, ge=1, le=10_000_000, description="a whole number from 1 to 10,000,000")
    seconds: Positive | None = Field(default=None, description="seconds above 0")
    plateau: Plateau | None = Field(default=None, description="a table with trials and gain")
    seed: int = Field(default=0, ge=0, le=2**32 - 1, description="a whole number from 0 to 4294967295")
    sampler: Literal["frontier", "nsga2", "tpe", "random", "qmc"] = Field(
        default="frontier", description=f"one of {', '.join(SAMPLERS)}"
    )

    @model_validator(mode="after")
    def _known_objectives(self) -> Search:
        for objective in self.objectives:
            if objective not in OBJECTIVES:
                raise ValueError(f"objectives has {objective!r}; valid: two or three of {', '.join(OBJECTIVES)}")
        return self


class StudyTable(Table):
    name: str = Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$",
        description="letters, digits, '.', '_' and '-', starting with a letter or digit, at most 100",
    )
    reference: str = Field(description="a bundled model (ridgeline list models) or a path to a config.json")
    budget: BudgetTable = Field(default=BudgetTable(), description="a table")
    accuracy: Accuracy = Field(default=Accuracy(), description="a table")
    space: SpaceTable = Field(default=SpaceTable(), description="a table of axes")
    envelope: dict[str, Any] = Field(default={}, description="a table of limits")
    target: Annotated[list[TargetTable], LISTED] = Field(description="one or more [[target]] tables")
    workload: Annotated[list[WorkloadTable], LISTED] = Field(
        description="one or more [[workload]] tables, or names of bundled workloads"
    )
    serving: Serving = Field(default=Serving(), description="a table")
    search: Search = Field(default=Search(), description="a table")
