"""The design space: budgets held, published models recovered, the envelope's corners, refusals."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spaces.architecture import Architecture, canonical
from spaces.budget import Budget
from spaces.design_space import DesignSpace
from spaces.envelope import default_limits, envelope
from spaces.formats import RECIPES
from spaces.huggingface import available_models, load_architecture
from spaces.parameters import parameters

LLAMA_8B = load_architecture("llama-3.1-8b")
QWEN_30B = load_architecture("qwen3-30b-a3b")
KIMI = load_architecture("kimi-k2")

DENSE = DesignSpace(
    LLAMA_8B,
    {
        "hidden": {"min": 2048, "max": 8192, "step": 256},
        "layers": {"min": 16, "max": 64},
        "kv_heads": [4, 8],
        "recipe": ["bf16", "fp8"],
    },
    Budget(),
    align=256,
    inner=["recipe", "kv_heads"],
)
MOE = DesignSpace(
    QWEN_30B,
    {"hidden": {"min": 1536, "max": 4096}, "top_k": [4, 8, 12], "expert_ffn": [512, 768, 1024], "kv_heads": [4, 8]},
    Budget(
        active_parameters=float(parameters(QWEN_30B).non_embedding_active), tolerance=0.035, solve=("layers", "experts")
    ),
)
MLA = DesignSpace(
    KIMI,
    {
        "hidden": {"min": 5120, "max": 8192, "step": 512},
        "heads": [64, 128],
        "top_k": [6, 8],
        "dense_layers": [1, 3],
        "shared_experts": [1, 2],
        "kv_lora_rank": [512, 768],
    },
    Budget(active_parameters=float(parameters(KIMI).non_embedding_active), solve=("layers", "experts")),
)
# dense and MoE, GQA and MLA, with and without windows, in one study
MIXED = DesignSpace(
    LLAMA_8B,
    {
        "structure": ["dense", "moe"],
        "attention": ["gqa", "mla"],
        "hidden": {"min": 2048, "max": 6144, "step": 512},
        "kv_heads": [4, 8],
        "experts": [16, 32, 64],
        "top_k": [2, 4],
        "expert_ffn": [1024, 2048],
        "shared_experts": [0, 1],
        "dense_layers": [0, 2],
        "window": [0, 4096],
        "full_attention_share": [0.25, 0.5],
        "kv_lora_rank": [512],
        "qk_nope_head_dim": [128],
        "qk_rope_head_dim": [64],
        "v_head_dim": [128],
        "layers": {"min": 8, "max": 96},
    },
    Budget(
        total_parameters=(6e9, 12e9),
        active_parameters=(1e9, 12e9),
        tolerance=0.05,
        solve=("layers",),
        max_training_flops_ratio=1.6,
    ),
    exportable=False,
    limits={"full_attention_share": {"min": 0.25}},
)
SPACES = {"dense": DENSE, "moe": MOE, "mla": MLA, "mixed": MIXED}


def random_index(space: DesignSpace, count: int, seed: int = 0) -> np.ndarray:
    return space.random_index(count, np.random.default_rng(seed))


def at(space: DesignSpace, **values: object) -> np.ndarray:
    """(1, axes) index of named values; other axes at their first."""
    row = [axis.labels.index(values[axis.name]) if axis.name in values else 0 for axis in space.axes]
    return np.array([row])


# -- budgets ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SPACES)
def test_feasible_designs_are_legal_models_inside_the_budget(name):
    space = SPACES[name]
    proposals = space.decode(random_index(space, 2000))
    rows = np.flatnonzero(proposals.feasible)
    assert len(rows) > 100
    for row in rows[:150]:
        design = Architecture(**proposals.architecture.take(row).as_dict())  # raises where it is no model
        counts = parameters(design)
        assert counts.non_embedding_total == proposals.total_parameters[row]
        assert counts.non_embedding_active == proposals.active_parameters[row]
    totals, actives = proposals.total_parameters[rows], proposals.active_parameters[rows]
    tolerance = space.budget.tolerance
    if name == "mixed":
        assert totals.min() >= 6e9 and totals.max() <= 12e9
        assert actives.min() >= 1e9
        assert proposals.training_flops_ratio[rows].max() <= 1.6
    else:
        own = parameters(space.reference)
        assert np.all(np.abs(totals / float(own.non_embedding_total) - 1) <= tolerance)
        assert np.all(np.abs(actives / float(own.non_embedding_active) - 1) <= tolerance)


@pytest.mark.parametrize(("name", "least"), [("dense", 0.3), ("moe", 0.3), ("mla", 0.3)])
def test_random_proposals_land_inside(name, least):
    assert SPACES[name].decode(random_index(SPACES[name], 20_000)).feasible.mean() >= least


@pytest.mark.parametrize(
    ("model", "table", "solve", "solved"),
    [
        ("llama-3.1-8b", {"hidden": [4096]}, ("ffn",), {"ffn": 14336}),
        ("llama-3.1-70b", {"hidden": [8192]}, ("layers",), {"layers": 80}),
        ("llama-3.1-405b", {"hidden": [16384]}, ("ffn",), {"ffn": 53248}),
        ("qwen3-32b", {"hidden": [5120]}, ("layers",), {"layers": 64}),
        ("qwen3-30b-a3b", {"hidden": [2048]}, ("layers", "experts"), {"layers": 48, "experts": 128}),
        ("qwen3-235b-a22b", {"hidden": [4096]}, ("layers", "experts"), {"layers": 94, "experts": 128}),
        ("kimi-k2", {"hidden": [7168]}, ("layers", "experts"), {"layers": 61, "experts": 384}),
        ("deepseek-v3", {"hidden": [7168]}, ("layers", "experts"), {"layers": 61, "experts": 256}),
        ("glm-4.5", {"hidden": [5120]}, ("layers", "experts"), {"layers": 92, "experts": 160}),
        ("kimi-k2", {"hidden": [7168]}, ("experts",), {"experts": 384}),
        ("llama-4-maverick", {"hidden": [5120]}, ("layers",), {"layers": 48}),
        ("mixtral-8x7b", {"experts": {"min": 2, "max": 32, "step": 1}}, ("experts",), {"experts": 8}),
    ],
)
def test_published_models_are_recovered_from_their_own_budget(model, table, solve, solved):
    reference = load_architecture(model)
    active = float(parameters(reference).non_embedding_active) if reference.is_moe else None
    budget = Budget(active_parameters=active, solve=solve, tolerance=0.08)
    space = DesignSpace(reference, table, budget, exportable=False)
    proposals = space.decode(np.zeros((1, len(space.axes)), dtype=int))
    design = proposals.architecture.take(0).as_dict()
    assert {name: design[name] for name in solved} == solved
    assert design == {**canonical(reference).as_dict(), **solved}
    assert proposals.feasible[0], space.reasons[proposals.reason[0]]
    assert proposals.training_flops_ratio[0] == 1.0


def test_a_range_of_totals_is_an_axis_of_targets_each_met():
    table = {"hidden": [4096], "layers": [28, 32, 36]}
    space = DesignSpace(LLAMA_8B, table, Budget(total_parameters=(5e9, 9e9), tolerance=0.02))
    assert space.names[0] == "total_parameters"
    targets = space.axes[0].values
    assert len(targets) == int(np.ceil(np.log(9 / 5) / np.log(1.02 / 0.98)))
    index = np.stack([np.arange(len(targets)), *np.zeros((len(space.axes) - 1, len(targets)), int)], axis=1)
    totals = space.decode(index).total_parameters
    assert np.all(np.abs(totals / targets - 1) <= 0.02)
    assert totals.min() < 5.2e9 and totals.max() > 8.7e9


def test_solved_widths_are_multiples_of_align():
    ffn = DENSE.decode(random_index(DENSE, 4000)).architecture.ffn
    assert np.all(ffn % 256 == 0)
    experts = MOE.decode(random_index(MOE, 1000)).architecture.experts
    assert np.all(experts % 8 == 0)


def test_the_range_of_a_solved_dimension_is_kept():
    table = {"hidden": [4096], "layers": [24, 32, 48], "ffn": {"min": 10240, "max": 16384, "step": 512}}
    space = DesignSpace(LLAMA_8B, table, Budget())
    ffn = space.decode(random_index(space, 200)).architecture.ffn
    assert ffn.min() >= 10240 and ffn.max() <= 16384 and np.all(ffn % 512 == 0)


def test_training_flops_ratio_of_a_published_pair():
    # Qwen3-30B-A3B against Qwen3-8B: (2.73 + 0.31) / (6.95 + 0.62) matrix parameters per token
    dense = load_architecture("qwen3-8b")
    table = {
        "structure": ["moe"],
        "hidden": [2048],
        "experts": [128],
        "top_k": [8],
        "expert_ffn": [768],
        "heads": [32],
        "kv_heads": [4],
    }
    budget = Budget(total_parameters=29.9e9, active_parameters=2.73e9, solve=("layers",))
    proposals = DesignSpace(dense, table, budget).decode(np.zeros((1, 9), dtype=int))
    assert proposals.architecture.layers[0] == 48
    assert proposals.training_flops_ratio[0] == pytest.approx(3.04 / 7.57, rel=0.01)


# -- one design or many ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SPACES)
@given(seed=st.integers(0, 2**31))
@settings(max_examples=10, deadline=None)
def test_a_proposal_does_not_depend_on_its_neighbours(name, seed):
    space = SPACES[name]
    index = random_index(space, 24, seed)
    together = space.decode(index)
    row = seed % 24
    alone = space.decode(index[row : row + 1])
    assert together.architecture.take(row).as_dict() == alone.architecture.take(0).as_dict()
    for field in ("recipe", "kv_format", "feasible", "reason", "total_parameters", "active_parameters"):
        assert getattr(together, field)[row] == getattr(alone, field)[0]
    assert together.violation[row] == pytest.approx(alone.violation[0], abs=1e-12)
    assert np.array_equal(together.limits_touched[row], alone.limits_touched[0])


@pytest.mark.parametrize("name", SPACES)
@given(seed=st.integers(0, 2**31))
@settings(max_examples=10, deadline=None)
def test_violation_reason_and_misses_agree(name, seed):
    space = SPACES[name]
    index = random_index(space, 4, seed)
    proposals = space.decode(index)
    assert np.all(np.isfinite(proposals.violation)) and np.all(proposals.violation >= 0)
    assert np.array_equal(proposals.feasible, proposals.violation == 0)
    assert np.array_equal(proposals.feasible, proposals.reason == 0)
    for row, reason, feasible in zip(index, proposals.reason, proposals.feasible, strict=True):
        misses = space.misses(row)
        assert bool(misses) != feasible
        assert feasible or space.reasons[reason].split(":")[0] in misses


@pytest.mark.parametrize("name", SPACES)
@given(seed=st.integers(0, 2**31))
@settings(max_examples=10, deadline=None)
def test_idle_axes_do_not_change_a_design(name, seed):
    space = SPACES[name]
    index = random_index(space, 32, seed)
    moved = space.canonical(index)
    assert np.array_equal(space.canonical(moved), moved)
    before, after = space.decode(index), space.decode(moved)
    for field in ("hidden", "layers", "ffn", "experts", "kv_heads", "window", "full_attention_layers", "kv_lora_rank"):
        assert np.array_equal(getattr(before.architecture, field), getattr(after.architecture, field))
    assert np.array_equal(before.feasible, after.feasible)


def test_mixed_designs_are_canonical_models():
    proposals = MIXED.decode(random_index(MIXED, 3000))
    a = proposals.architecture
    dense, mla = a.experts == 0, a.kv_lora_rank > 0
    assert 0.3 < dense.mean() < 0.7 and 0.3 < mla.mean() < 0.7 and 0.3 < (a.window > 0).mean() < 0.7
    for field in ("top_k", "expert_ffn", "shared_experts", "dense_layers"):
        assert np.all(getattr(a, field)[dense] == 0)
    assert np.all(a.kv_heads[mla] == a.heads[mla]) and np.all(a.q_lora_rank[~mla] == 0)
    assert np.all(a.full_attention_layers[a.window == 0] == 0)
    windowed = a.window > 0
    share = a.full_attention_layers[windowed] / a.layers[windowed]
    assert share.min() >= 0.25 - 1e-9 and share.max() < 0.6
    own = canonical(a)
    for field in ("ffn", "experts", "kv_heads", "head_dim", "shared_ffn", "dense_layers", "full_attention_layers"):
        assert np.array_equal(getattr(own, field), getattr(a, field)), field


def test_exclusions_are_shares_of_the_proposals():
    index = random_index(MIXED, 3000)
    shares = MIXED.exclusions(index)
    assert list(shares.values()) == sorted(shares.values(), reverse=True)
    assert all(0 < share <= 1 for share in shares.values())
    outside = 1 - MIXED.decode(index).feasible.mean()
    assert max(shares.values()) <= outside + 1e-12 <= sum(shares.values()) + 1e-9


def test_axes_are_named_ordered_and_split():
    assert DENSE.names == ("hidden", "layers", "kv_heads", "recipe", "kv_format")
    assert [axis.ordered for axis in DENSE.axes] == [True, True, True, False, False]
    assert [DENSE.names[i] for i in DENSE.inner] == ["kv_heads", "recipe"]
    assert [DENSE.names[i] for i in DENSE.outer] == ["hidden", "layers", "kv_format"]
    assert DENSE.shape == (25, 49, 2, 2, 1) and DENSE.size == 25 * 49 * 2 * 2
    assert DENSE.axes[3].labels == ("bf16", "fp8")
    assert np.array_equal(np.diff(DENSE.axes[0].values), np.full(24, 256))


@pytest.mark.parametrize(
    "index", [np.zeros((3, 4), int), np.zeros(5, int), np.zeros((3, 5)), [[25, 0, 0, 0, 0]], [[-1] * 5]]
)
def test_an_index_outside_the_grid_is_refused(index):
    with pytest.raises(ValueError, match="index"):
        DENSE.decode(index)


# -- the envelope ---------------------------------------------------------------------------------------


def dense_space(reference: Architecture = LLAMA_8B, limits: dict | None = None, **table: object) -> DesignSpace:
    return DesignSpace(reference, table, Budget(tolerance=0.2), align=64, limits=limits, exportable=False)


@pytest.mark.parametrize(
    ("table", "limit"),
    [
        ({"kv_heads": [1]}, "kv_width"),
        ({"kv_heads": [2]}, "kv_width"),
        ({"kv_heads": [1], "head_dim": [512], "heads": [8]}, "kv_heads"),
        ({"head_dim": [64], "heads": [64], "kv_heads": [16]}, "head_dim"),
        ({"head_dim": [512], "heads": [8], "kv_heads": [2]}, "head_dim"),
        ({"hidden": [4096], "layers": [31]}, "hidden_per_layer"),  # 132
        ({"hidden": [2048], "layers": [56]}, "hidden_per_layer"),  # 36.6
        ({"hidden": [8192], "layers": [24]}, "hidden_per_layer"),
        ({"heads": [8], "kv_heads": [8]}, "query_width_ratio"),
        ({"heads": [112], "kv_heads": [8]}, "query_width_ratio"),
        ({"window": [512], "full_attention_share": [0.5]}, "window"),
        ({"window": [4096], "full_attention_share": [0.5]}, "full_attention_share"),
        ({"hidden": [2048], "layers": [20]}, "mlp_attention_ratio"),
    ],
)
def test_the_optimisers_corners_are_closed(table, limit):
    space = dense_space(**table)
    row = np.zeros(len(space.axes), dtype=int)
    assert limit in space.misses(row)
    assert not space.decode(row[None]).feasible[0]
    opened = dense_space(limits=dict.fromkeys(space.misses(row), "off"), **table)
    assert opened.decode(row[None]).feasible[0]


@pytest.mark.parametrize(
    "table",
    [
        {"kv_heads": [4]},  # 512 wide
        {"kv_heads": [2], "head_dim": [256], "heads": [16]},
        {"hidden": [4160], "layers": [32]},  # 130
    ],
)
def test_a_bound_itself_is_allowed(table):
    space = dense_space(**table)
    assert space.decode(np.zeros((1, len(space.axes)), dtype=int)).feasible[0]


def test_small_models_may_have_narrow_heads():
    small = load_architecture("llama-3.2-1b")  # 32 heads of 64
    assert dense_space(small).decode(np.zeros((1, 2), dtype=int)).feasible[0]
    below = dense_space(load_architecture("qwen3-1.7b"), head_dim=[64], heads=[32], kv_heads=[8])
    above = dense_space(load_architecture("llama-3.2-3b"), head_dim=[64], heads=[48], kv_heads=[8])
    assert below.decode(np.zeros((1, len(below.axes)), dtype=int)).feasible[0]
    assert set(above.misses(np.zeros(len(above.axes), dtype=int))) == {"head_dim"}


@pytest.mark.parametrize(
    ("field", "value", "limit"),
    [
        ("kv_lora_rank", 256, "mla_kv_rank"),
        ("qk_rope_head_dim", 32, "mla_rope"),
        ("qk_nope_head_dim", 64, "mla_nope"),
        ("v_head_dim", 64, "mla_v"),
        ("top_k", 1, "top_k"),
        ("expert_ffn", 512, "granularity"),
    ],
)
def test_moe_and_mla_corners_are_closed(field, value, limit):
    budget = Budget(active_parameters=(1e9, 60e9), solve=("layers",))
    space = DesignSpace(KIMI, {field: [value]}, budget, align=64)
    assert limit in space.misses(np.zeros(len(space.axes), dtype=int))


def test_sparsity_corners_are_closed():
    budget = Budget(active_parameters=(1e8, 60e9), solve=("layers",), tolerance=0.1)
    space = DesignSpace(KIMI, {"experts": [256, 640], "top_k": [2, 8]}, budget)
    assert "experts" in space.misses(at(space, experts=640, top_k=8)[0])
    assert "activation_ratio" in space.misses(at(space, experts=640, top_k=2)[0])
    assert "experts" not in space.misses(at(space, experts=256, top_k=8)[0])


def test_top_1_routing_is_allowed_where_the_reference_has_it():
    scout = load_architecture("llama-4-scout")
    budget = Budget(active_parameters=(1e9, 60e9), solve=("layers",), tolerance=0.05)
    space = DesignSpace(scout, {"top_k": [1, 2]}, budget, exportable=False)
    assert "top_k" not in space.misses(at(space, top_k=1)[0])


@pytest.mark.parametrize("model", [m for m in available_models() if load_architecture(m).ffn_matrices == 3])
def test_a_published_model_lies_in_the_envelope_around_itself(model):
    reference = load_architecture(model)
    active = float(parameters(reference).non_embedding_active) if reference.is_moe else None
    space = DesignSpace(
        reference, {}, Budget(active_parameters=active, solve=("layers",), tolerance=0.2), exportable=False
    )
    proposals = space.decode(np.zeros((1, 2), dtype=int))
    assert proposals.feasible[0], space.misses(np.zeros(2, dtype=int))
    assert proposals.architecture.take(0).as_dict() == canonical(reference).as_dict()


def test_plain_ffns_are_not_searched():
    space = DesignSpace(load_architecture("gpt-j-6b"), {"hidden": [4096]}, Budget(tolerance=0.1), exportable=False)
    assert set(space.misses(np.zeros(3, dtype=int))) >= {"ffn_matrices"}


def test_flagged_limits_keep_the_design_and_show():
    table = {"kv_heads": [1, 2, 4, 8]}
    space = dense_space(limits={"kv_width": "flag", "kv_heads": "flag"}, **table)
    proposals = space.decode(np.concatenate([at(space, kv_heads=n) for n in (1, 2, 4, 8)]))
    assert np.all(proposals.feasible)
    touched = proposals.limits_touched
    assert touched[:, space.limit_names.index("kv_width")].tolist() == [True, True, True, False]
    assert touched[:, space.limit_names.index("kv_heads")].tolist() == [True, True, False, False]


def test_limits_that_the_space_cannot_move_are_not_touched():
    proposals = DENSE.decode(random_index(DENSE, 2000))
    shares = dict(zip(DENSE.limit_names, proposals.limits_touched.mean(axis=0), strict=True))
    assert shares["kv_width"] > 0.4  # 4 KV heads of 128 sit on it
    assert shares["head_dim"] == 0  # 128 everywhere: no choice of the search
    assert shares["mla_kv_rank"] == 0


def test_tokens_per_active_parameter_flags_and_never_rejects():
    small = load_architecture("qwen3-0.6b")
    space = DesignSpace(small, {"layers": {"min": 24, "max": 32}}, Budget(tolerance=0.05), align=64, train_tokens=36e12)
    proposals = space.decode(random_index(space, 50))
    assert np.all(proposals.limits_touched[:, space.limit_names.index("tokens_per_active_parameter")])
    assert proposals.feasible.any()


def test_a_stated_bound_is_not_widened_by_the_reference():
    space = dense_space(limits={"hidden_per_layer": {"max": 100}}, layers=[32])  # the reference has 128
    assert space.misses(np.zeros(len(space.axes), dtype=int))["hidden_per_layer"] == (128.0, 37, 100)


def test_default_limits_state_source_and_action():
    limits = default_limits()
    assert {"hidden_per_layer", "kv_width", "head_dim", "mla_kv_rank", "window", "top_k", "ffn_matrices"} <= set(limits)
    assert limits["hidden_per_layer"].low == 37 and limits["hidden_per_layer"].high == 130
    assert limits["tokens_per_active_parameter"].action == "flag"
    assert envelope() == limits


# -- formats, families ------------------------------------------------------------------------------------


def test_recipes_need_their_alignment():
    # hidden 2112 = 16.5 x 128: int4 groups of 128 do not fit, fp8 tiles of 16 do
    table = {"hidden": [2112, 2176], "layers": [40], "recipe": ["fp8", "int4"]}
    space = DesignSpace(LLAMA_8B, table, Budget(total_parameters=4e9), align=64, exportable=False)
    assert RECIPES[space.decode(at(space, recipe="int4")).recipe[0]] == "int4"
    assert "alignment" in space.misses(at(space, hidden=2112, recipe="int4")[0])
    assert "alignment" not in space.misses(at(space, hidden=2112, recipe="fp8")[0])


def test_shapes_without_export_family_are_excluded_unless_asked():
    table = {"window": [0, 4096], "full_attention_share": [0.5]}
    limits = {"full_attention_share": {"min": 0.5}}
    closed = DesignSpace(LLAMA_8B, table, Budget(), limits=limits)
    opened = DesignSpace(LLAMA_8B, table, Budget(), limits=limits, exportable=False)
    windowed = at(closed, window=4096)
    assert set(closed.misses(windowed[0])) == {"export_family"}
    assert opened.decode(windowed).feasible[0]
    assert closed.decode(at(closed, window=0)).feasible[0]


# -- refusals ---------------------------------------------------------------------------------------------


def space_of(reference: Architecture = LLAMA_8B, budget: Budget | None = None, **table: object) -> DesignSpace:
    return DesignSpace(reference, table, budget or Budget(), align=256)


MOE_BUDGET = Budget(active_parameters=2.7e9, solve=("layers",), tolerance=0.05)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: space_of(width=[1]), r"unknown key 'width' in space; valid: structure, attention, hidden"),
        (lambda: space_of(hidden=[4000]), r"hidden = 4000: not a multiple of align = 256; nearest: 3840 or 4096"),
        (
            lambda: space_of(hidden={"min": 2048, "max": 4096, "step": 100}),
            r"hidden.step = 100: not a multiple of align",
        ),
        (lambda: space_of(hidden={"min": 4096, "max": 2048}), r"hidden: min = 4096 is above max = 2048"),
        (lambda: space_of(hidden={"max": 2048}), r"a range needs min and max"),
        (lambda: space_of(hidden=[4096.0]), r"hidden = 4096.0: a whole number is needed"),
        (lambda: space_of(hidden=[2**18]), r"hidden = 262144: must be at most 131072"),
        (lambda: space_of(hidden=["4096"]), r"hidden = '4096': a whole number"),
        (lambda: space_of(layers=[]), r"layers = \[\]: at least one value"),
        (lambda: space_of(layers=[0]), r"layers = 0: must be at least 1"),
        (lambda: space_of(layers=[32, 32]), r"layers: 32 is listed twice"),
        (lambda: space_of(heads=[30]), r"heads = 30: must be a multiple of one of kv_heads = 8"),
        (lambda: space_of(kv_heads=[5]), r"kv_heads|heads = .*must be"),
        (lambda: space_of(kv_heads=[8, 64]), r"kv_heads = 64: must be a divisor of one of heads = 32"),
        (lambda: space_of(recipe=["fp4"]), r"recipe = 'fp4': valid: bf16, fp8"),
        (lambda: space_of(kv_format=["int8"]), r"kv_format = 'int8': valid: bf16, fp8, nvfp4"),
        (lambda: space_of(structure=["sparse"]), r"structure = 'sparse': valid: dense, moe"),
        (lambda: space_of(attention=["linear"]), r"attention = 'linear': valid: gqa, mla"),
        (lambda: space_of(attention=["mla"]), r"space.kv_lora_rank: name it; mla designs"),
        (
            lambda: space_of(kv_lora_rank=[512]),
            r"kv_lora_rank: no mla design is proposed; add 'mla' to space.attention",
        ),
        (lambda: space_of(experts=[8]), r"experts: no moe design is proposed; add 'moe' to space.structure"),
        (lambda: space_of(structure=["dense", "moe"]), r"space.top_k: name it|space.experts: name it"),
        (lambda: space_of(ffn=[14336]), r"ffn = \[14336\]: ffn is solved from the budget; bound it by a range"),
        (lambda: space_of(full_attention_share=[1.5]), r"full_attention_share = 1.5: must be a number from 0 to 1"),
        (
            lambda: space_of(full_attention_share=[0.5], full_attention_layers=[4]),
            r"full_attention_layers and space.full_attention_share: name one",
        ),
        (lambda: space_of(tied_embeddings=[2]), r"tied_embeddings = \[2\]: valid: true, false"),
        (lambda: space_of(QWEN_30B, Budget(solve=("layers",))), r"active_parameters: needed where MoE"),
        (
            lambda: space_of(QWEN_30B, Budget(active_parameters=2.7e9)),
            r"solve = 'ffn': moe designs need one of 'layers'",
        ),
        (lambda: space_of(LLAMA_8B, Budget(solve=("experts",))), r"solve = 'experts': dense designs need one of 'ffn'"),
        (lambda: space_of(QWEN_30B, MOE_BUDGET, structure=["dense"]), r"space.ffn: name it; dense designs"),
        (lambda: space_of(QWEN_30B, MOE_BUDGET, dense_layers=[2]), r"space.ffn: name it; dense_layers are proposed"),
        (
            lambda: space_of(QWEN_30B, MOE_BUDGET, structure=["dense", "moe"], ffn=[8192]),
            r"max_training_flops_ratio: needed where dense and MoE designs compete",
        ),
        (lambda: space_of(KIMI, MOE_BUDGET, attention=["gqa"]), r"space.kv_heads: name it; gqa designs"),
        (
            lambda: DesignSpace(LLAMA_8B, {}, Budget(), inner=["heads"]),
            r"inner = 'heads': not an axis .* valid: recipe",
        ),
        (lambda: DesignSpace(LLAMA_8B, {}, Budget(), align=0), r"align = 0: must be at least 1"),
        (
            lambda: DesignSpace(LLAMA_8B, {}, Budget(), limits={"depth": "off"}),
            r"unknown envelope limit 'depth'; valid: hid",
        ),
        (lambda: DesignSpace(LLAMA_8B, {}, Budget(), limits={"layers": "warn"}), r"valid: reject, flag, off"),
        (
            lambda: DesignSpace(LLAMA_8B, {}, Budget(), limits={"layers": {"min": 9, "max": 8}}),
            r"min = 9 is above max = 8",
        ),
        (
            lambda: DesignSpace(LLAMA_8B, {}, Budget(), limits={"layers": {"min": float("nan")}}),
            r"must be a finite number",
        ),
        (lambda: Budget(solve=("width",)), r"solve = \['width'\]; valid: 'ffn', 'layers', 'experts'"),
        (lambda: Budget(tolerance=0.0), r"tolerance = 0.0: must be above 0"),
        (lambda: Budget(total_parameters=(2e9, 1e9)), r"total_parameters = .*: needs 0 < min <= max"),
        (lambda: Budget(max_training_flops_ratio=0.0), r"max_training_flops_ratio = 0.0"),
        (
            lambda: space_of(LLAMA_8B, Budget(total_parameters=(1e6, 1e12), tolerance=0.001)),
            r"targets .* widen the tol",
        ),
    ],
)
def test_refusals_name_key_value_and_what_is_valid(make, said):
    with pytest.raises(ValueError, match=said):
        make()


def test_a_step_coarser_than_the_band_is_refused_with_its_percent():
    # one expert of 32 x 3 x 2048 x 768 over 48 layers is 226 M of 29.9 B: 0.76 %; eight are 6.1 %
    budget = Budget(active_parameters=2.73e9, tolerance=0.02, solve=("layers", "experts"))
    with pytest.raises(ValueError, match=r"solve = 'experts': one step of 8 .* by 6\.\d%.* band of 4\.0%.*at most 5"):
        DesignSpace(QWEN_30B, {"hidden": [2048]}, budget)
    finer = {"hidden": [2048], "experts": {"min": 32, "max": 256, "step": 4}}
    assert DesignSpace(QWEN_30B, finer, budget).size == 1


def test_no_random_design_gives_anything_but_finite_numbers():
    for space in SPACES.values():
        proposals = space.decode(random_index(space, 5000, seed=3))
        for value in (proposals.violation, proposals.training_flops_ratio, proposals.total_parameters):
            assert np.all(np.isfinite(value))
        assert np.all(proposals.total_parameters > 0)
        assert np.all(proposals.reason < len(space.reasons))
