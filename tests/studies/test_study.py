"""Study files: presets hold what they promise, overrides, and every way to get a key wrong."""

import json
import tomllib
from pathlib import Path

import numpy as np
import pytest

from cost_model.kernels import routing
from search import loop
from spaces.huggingface import load_architecture
from spaces.parameters import parameters
from studies import schema
from studies.study import available_presets, bundled_workloads, load_study, parse_override, study_path

PRESETS = {
    "8b-h200": "llama-3.1-8b",
    "70b-b200": "llama-3.1-70b",
    "moe-30b-gb200": "qwen3-30b-a3b",
    "long-context-128k": "llama-3.1-8b",
    "moe-1t-gb300": "kimi-k2",
    "edge-3b-thor": "llama-3.2-3b",
    "agents": "qwen3-32b",
    "two-gpus": "qwen3-8b",
}
SMALLEST = """
name = "small"
reference = "llama-3.1-8b"
[space]
layers = [28, 32]
[[target]]
gpu = "h200-sxm"
[[workload]]
isl = 1024
osl = 128
"""


@pytest.fixture(scope="module")
def studies():
    return {name: load_study(name) for name in available_presets()}


# -- presets --------------------------------------------------------------------------------------------


def test_the_presets_are_the_promised_ones(studies):
    assert {name: study.reference_name for name, study in studies.items()} == PRESETS


@pytest.mark.parametrize("name", PRESETS)
def test_random_proposals_are_legal_and_in_budget(studies, name):
    """10^5 proposals of each preset."""
    study = studies[name]
    generator, feasible = np.random.default_rng(0), 0
    own = parameters(study.reference)
    for _ in range(12):
        proposals = study.space.decode(study.space.random_index(8192, generator))
        keep = proposals.feasible
        feasible += keep.sum()
        assert np.all(np.isfinite(proposals.violation)) and np.all(np.isfinite(proposals.training_flops_ratio))
        if name != "edge-3b-thor":
            tolerance = study.space.budget.tolerance
            for got, wanted in (
                (proposals.total_parameters[keep], float(own.non_embedding_total)),
                (proposals.active_parameters[keep], float(own.non_embedding_active)),
            ):
                assert np.all(np.abs(got / wanted - 1) <= tolerance)
    assert feasible / (12 * 8192) >= 0.30


def test_the_edge_budget_is_a_range(studies):
    space = studies["edge-3b-thor"].space
    proposals = space.decode(space.random_index(8192, np.random.default_rng(0)))
    totals = proposals.total_parameters[proposals.feasible]
    assert totals.min() >= 2.0e9 and totals.max() <= 3.2e9 and totals.max() / totals.min() > 1.5


@pytest.mark.parametrize(
    ("name", "coordinates", "solved"),
    [
        ("8b-h200", {"hidden": 4096, "layers": 32, "heads": 32, "kv_heads": 8}, {"ffn": 14336}),
        ("70b-b200", {"hidden": 8192, "layers": 80, "heads": 64, "kv_heads": 8}, {"ffn": 28672}),
        (
            "moe-30b-gb200",
            {"hidden": 2048, "heads": 32, "kv_heads": 4, "top_k": 8, "expert_ffn": 768},
            {"layers": 48, "experts": 128},
        ),
        ("moe-1t-gb300", {"hidden": 7168, "heads": 64, "top_k": 8, "expert_ffn": 2048}, {"layers": 61, "experts": 384}),
        ("agents", {"hidden": 5120, "layers": 64, "heads": 64, "kv_heads": 8}, {"ffn": 25600}),
        ("two-gpus", {"hidden": 4096, "layers": 36, "heads": 32, "kv_heads": 8}, {"ffn": 12288}),
    ],
)
def test_a_preset_holds_its_own_reference(studies, name, coordinates, solved):
    space = studies[name].space
    row = [axis.labels.index(coordinates[axis.name]) if axis.name in coordinates else 0 for axis in space.axes]
    proposals = space.decode(np.array([row]))
    assert proposals.feasible[0]
    assert proposals.architecture.take(0).as_dict() == load_architecture(PRESETS[name]).as_dict() | solved


def test_presets_say_what_the_issues_ask(studies):
    thor, agents, two, kimi = (studies[n] for n in ("edge-3b-thor", "agents", "two-gpus", "moe-1t-gb300"))
    assert thor.serving.batches == [1]
    assert thor.search.objectives == ["tokens_per_s_per_user", "shape_loss", "memory_bytes_per_gpu"]
    assert thor.space.axes[thor.space.names.index("recipe")].labels == ("int4", "nvfp4")
    assert thor.targets[0].gpu.memory_bytes == 64e9
    workload = agents.workloads[0].workload
    assert (workload.cached, workload.isl, workload.osl) == (131072, 1024, 300)
    assert [target.gpu.name for target in two.targets] == ["h200-sxm", "b200-sxm"] and two.search.combine == "worst"
    assert [named.weight for named in two.workloads] == [1.0, 0.5]
    assert max(kimi.serving.redundant_experts) > 0 and 72 in kimi.targets[0].gpus
    assert studies["long-context-128k"].workloads[0].workload.isl == 131072


@pytest.mark.parametrize("name", PRESETS)
def test_a_study_as_run_reads_back_the_same(studies, name, tmp_path):
    study = studies[name]
    path = tmp_path / "study.toml"
    path.write_text(study.toml())
    again = load_study(path)
    assert again.table == study.table
    index = study.space.random_index(64, np.random.default_rng(1))
    assert np.array_equal(again.space.decode(index).violation, study.space.decode(index).violation)


# -- reading --------------------------------------------------------------------------------------------


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "study.toml"
    path.write_text(text)
    return path


def test_the_smallest_study_has_the_documented_defaults(tmp_path):
    study = load_study(write(tmp_path, SMALLEST))
    assert study.space.budget.tolerance == 0.02 and study.space.budget.solve == ("ffn",)
    assert study.accuracy.train_tokens == 15e12 and study.accuracy.tolerance_nats == 0.005
    assert study.accuracy.quant_limit == 0.07
    assert study.override({"accuracy.quantised": "qat"}).accuracy.quant_limit == 0.035
    assert study.search.objectives == ["tokens_per_s_per_user", "tokens_per_s_per_gpu"]
    assert study.targets[0].engine == "trtllm" and study.targets[0].gpus == (1, 2, 4, 8)
    assert study.workloads[0].name == "1024/128"
    assert study.serving.max_ttft_s is None


def test_the_study_of_the_design_text_is_valid(tmp_path):
    text = """
name = "8b-h200"
reference = "llama-3.1-8b"
[budget]
total_parameters = 6.98e9
tolerance = 0.02
solve = "ffn"
[accuracy]
train_tokens = 15e12
tolerance_nats = 0.005
quantised = "ptq"
max_quant_nats = 0.07
[space]
hidden = { min = 2048, max = 8192, step = 256 }
layers = { min = 16, max = 64 }
kv_heads = [4, 8]
align = 256
recipe = ["bf16", "fp8"]
inner = ["recipe", "kv_heads"]
[[target]]
gpu = "h200-sxm"
engine = "trtllm"
gpus = [1, 2, 4, 8]
usd_per_gpu_hour = 3.5
[[workload]]
isl = 1024
osl = 1024
cached = 0
weight = 1.0
[serving]
modes = ["aggregated"]
max_ttft_s = 5.0
expert_skew = "power_law_1.2"
[search]
objectives = ["tokens_per_s_per_user", "tokens_per_s_per_gpu"]
interactivity_targets = [25, 75, 200]
trials = 2000
seed = 0
"""
    study = load_study(write(tmp_path, text))
    assert study.space.shape == (25, 49, 2, 2, 1)
    assert study.targets[0].gpu.usd_per_gpu_hour == 3.5


def test_paths_are_relative_to_the_study_file(tmp_path):
    zoo = Path(__file__).parents[1] / "zoo" / "meta-llama--Meta-Llama-3.1-8B_config.json"
    (tmp_path / "model.json").write_text(zoo.read_text())
    study = load_study(write(tmp_path, SMALLEST.replace('"llama-3.1-8b"', '"model.json"')))
    assert study.reference == load_architecture("llama-3.1-8b")
    assert study.reference_name == str(tmp_path / "model.json")
    assert json.loads(Path(study.reference_name).read_text())["hidden_size"] == 4096


def test_overrides_reach_every_level():
    study = load_study(
        "8b-h200",
        **{
            "search.trials": 10,
            "workload.0.isl": 8192,
            "space.kv_heads": [8],
            "target.0.gpus": [4, 1],
            "serving": {"max_ttft_s": 1.5},
            "envelope.hidden_per_layer": "flag",
            "search.plateau.trials": 50,
        },
    )
    assert study.search.trials == 10 and study.search.plateau.trials == 50
    assert study.search.interactivity_targets == [50, 100, 200]  # the rest of the table stays
    assert study.workloads[0].workload.isl == 8192
    assert study.space.shape[study.space.names.index("kv_heads")] == 1
    assert study.targets[0].gpus == (1, 4)
    assert study.serving.max_ttft_s == 1.5
    assert study.space.limits["hidden_per_layer"].action == "flag"
    assert load_study("8b-h200").search.trials == 2000


def test_workloads_by_name():
    assert set(bundled_workloads()) == {"chat", "agents", "content", "translation"}
    study = load_study("8b-h200", workload=["chat", {"name": "translation", "weight": 2.0}])
    assert [named.name for named in study.workloads] == ["chat", "translation"]
    assert (study.workloads[0].workload.cached, study.workloads[0].workload.osl) == (2048, 400)
    assert load_study("8b-h200", workload="content").workloads[0].workload.osl == 2000
    longer = load_study("two-gpus", **{"workload.1.isl": 900})
    assert (longer.workloads[1].workload.isl, longer.workloads[1].workload.osl) == (900, 448)


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("search.trials=10", ("search.trials", 10)),
        ("space.recipe=['fp8']", ("space.recipe", ["fp8"])),
        ("target.0.gpu=b200-sxm", ("target.0.gpu", "b200-sxm")),
        ("budget.total_parameters={min=1e9,max=2e9}", ("budget.total_parameters", {"min": 1e9, "max": 2e9})),
        ("space.exportable = false", ("space.exportable", False)),
        ("name=a=b", ("name", "a=b")),
    ],
)
def test_a_command_line_override_is_toml_or_a_bare_word(text, parsed):
    assert parse_override(text) == parsed


@pytest.mark.parametrize("text", ["search.trials", "=3", ""])
def test_a_command_line_override_needs_key_and_value(text):
    with pytest.raises(ValueError, match=r"key\.path=value"):
        parse_override(text)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("8b-h20", "unknown study '8b-h20', did you mean '8b-h200'; presets: 70b-b200, 8b-h200"),
        ("nowhere.toml", "nowhere.toml: no such study file"),
        ("", "unknown study ''; presets:"),
    ],
)
def test_an_unknown_study_is_named(name, said):
    with pytest.raises(ValueError) as error:
        load_study(name)
    assert said in str(error.value)


def test_the_names_a_study_may_use_are_those_that_work():
    assert schema.SAMPLERS == loop.SAMPLERS
    assert schema.SKEWS == routing.SKEWS
    for name in schema.SAMPLERS:
        assert load_study("agents", **{"search.sampler": name}).search.sampler == name
    for name in schema.SKEWS:
        assert load_study("agents", **{"serving.expert_skew": name}).serving.expert_skew == name


def test_presets_are_commented_for_a_person():
    for name in available_presets():
        text = study_path(name).read_text()
        assert text.startswith("#") and "# Reference:" in text and text.count("#") >= 6
        assert tomllib.loads(text)["name"] == name


# -- every way to get a key wrong -----------------------------------------------------------------------

TWO_OR_THREE = "two or three of tokens_per_s_per_user, tokens_per_s_per_gpu, ttft_s"
AMOUNT = 'a number above 0, a range {min, max}, or "reference"'
WRONG = [
    # key, value, what the message says
    ("serach", {"trials": 3}, "unknown key 'serach', did you mean 'search'; valid: name, reference, budget"),
    ("search.trails", 3, "unknown key 'search.trails', did you mean 'trials'; valid: objectives, "),
    ("budget.total", 7e9, "unknown key 'budget.total'"),
    ("accuracy.tolerance", 0.1, "valid: train_tokens, tolerance_nats, quantised, max_quant_nats"),
    ("target.0.gpu_count", 8, "unknown key 'target.0.gpu_count'"),
    ("workload.0.input", 8, "unknown key 'workload.0.input'; valid: name, isl, osl, cached, weight, load"),
    ("serving.ttft", 1.0, "unknown key 'serving.ttft'"),
    ("search.plateau", {"trial": 5}, "unknown key 'search.plateau.trial', did you mean 'trials'; valid: trials, gain"),
    ("search.trials", "many", "search.trials = 'many'; valid: a whole number from 1 to 10,000,000"),
    ("search.trials", 0, "search.trials = 0; valid: a whole number"),
    ("search.trials", -5, "search.trials = -5; valid: a whole number"),
    ("search.trials", 2.5, "search.trials = 2.5; valid: a whole number"),
    ("search.trials", True, "search.trials = True; valid: a whole number"),
    ("search.trials", 10**9, "search.trials = 1000000000; valid: a whole number from 1 to 10,000,000"),
    ("search.seconds", 0, "search.seconds = 0; valid: seconds above 0"),
    ("search.seconds", float("inf"), "search.seconds = inf; valid: seconds above 0"),
    ("search.seed", -1, "search.seed = -1; valid: a whole number from 0"),
    ("search.sampler", "cma-es", "search.sampler = 'cma-es'; valid: one of frontier, nsga2, tpe, random, qmc"),
    ("search.combine", "best", "search.combine = 'best'; valid: over several targets"),
    ("search.objectives", ["ttft_s"], f"search.objectives = ['ttft_s']; valid: {TWO_OR_THREE}"),
    ("search.objectives", ["ttft_s", "speed"], f"'speed'; valid: {TWO_OR_THREE}"),
    ("search.objectives", ["ttft_s", "ttft_s"], "'ttft_s' is listed twice"),
    ("search.objectives", "ttft_s", f"search.objectives = 'ttft_s'; valid: {TWO_OR_THREE}"),
    ("search.interactivity_targets", [], "search.interactivity_targets = []; valid: a list of tokens/s/user"),
    ("search.interactivity_targets", [0], "search.interactivity_targets.0 = 0; valid: a list"),
    ("search.plateau.gain", 1.5, "search.plateau.gain = 1.5; valid: a fraction between 0 and 1"),
    ("search.plateau", 5, "search.plateau = 5; valid: a table with trials and gain"),
    ("budget.total_parameters", -1, f"budget.total_parameters = -1: {AMOUNT}"),
    ("budget.total_parameters", "8B", f"budget.total_parameters = '8B': {AMOUNT}"),
    ("budget.total_parameters", {"min": 1e9}, "budget.total_parameters: a range needs exactly min and max"),
    ("budget.total_parameters", {"min": 2e9, "max": 1e9}, "needs 0 < min <= max"),
    ("budget.total_parameters", {"min": "a", "max": 1e9}, "min = 'a': a number above 0 is needed"),
    ("budget.tolerance", 0.0, "budget.tolerance = 0.0; valid: a number above 0 and at most 0.5"),
    ("budget.tolerance", 0.9, "budget.tolerance = 0.9; valid: a number above 0 and at most 0.5"),
    ("budget.tolerance", float("nan"), "budget.tolerance = nan; valid: a number"),
    ("budget.tolerance", 1e-3, "one step of 256 changes the parameters by"),
    ("budget.solve", "width", 'budget.solve = \'width\': one of "ffn", "layers", "experts"'),
    ("budget.solve", ["ffn", "layers"], "budget.solve = ['ffn', 'layers']: one of"),
    ("budget.solve", "experts", "budget.solve = 'experts': dense designs need one of 'ffn', 'layers'"),
    ("accuracy.train_tokens", 15, "accuracy.train_tokens = 15; valid: training tokens, a number from 1e9 to 1e15"),
    ("accuracy.tolerance_nats", -0.1, "accuracy.tolerance_nats = -0.1; valid: nats per token"),
    ("accuracy.quantised", "awq", 'accuracy.quantised = \'awq\'; valid: "ptq" or "qat"'),
    ("space.hiden", [4096], "unknown key 'hiden', did you mean 'hidden'; valid: align, inner, exportable"),
    ("space.hidden", [4000], "space.hidden = 4000: not a multiple of align = 256; nearest: 3840 or 4096"),
    ("space.hidden.step", 100, "space.hidden.step = 100: not a multiple of align = 256; nearest: 256"),
    ("space.hidden.max", 1024, "space.hidden: min = 2560 is above max = 1024"),
    ("space.layers.pace", 2, "a range needs min and max, and may have step"),
    ("space.layers", [], "space.layers = []: at least one value is needed"),
    ("space.layers", ["32"], "space.layers = '32': a whole number is needed"),
    ("space.kv_heads", [4, 4], "space.kv_heads: 4 is listed twice"),
    ("space.heads", [30], "space.heads = 30: must be a multiple of one of kv_heads = 4, 8"),
    ("space.recipe", ["fp9"], "space.recipe = 'fp9': valid: bf16, fp8, fp8-block"),
    ("space.kv_format", ["int8"], "space.kv_format = 'int8': valid: bf16, fp8, nvfp4"),
    ("space.align", 0, "space.align = 0; valid: a whole number of at least 1"),
    ("space.inner", ["depth"], "space.inner = 'depth': not an axis of this study; valid: hidden, layers, heads"),
    ("space.inner", "recipe", "space.inner = 'recipe'; valid: a list of axis names"),
    ("space.exportable", "no", "space.exportable = 'no'; valid: true or false"),
    ("space.ffn", [14336], "space.ffn = [14336]: ffn is solved from the budget"),
    ("space.experts", [8], "space.experts: no moe design is proposed; add 'moe' to space.structure"),
    ("space.structure", ["moe"], "name it; moe designs are proposed and the reference is not one"),
    ("space", 5, "space = 5; valid: a table of axes"),
    ("envelope.depth", "off", "unknown envelope limit 'depth'; valid: hidden_per_layer, hidden, layers"),
    ("envelope.layers", "warn", "envelope.layers.action = 'warn'; valid: reject, flag, off"),
    ("envelope.layers", {"low": 3}, "envelope.layers = {'low': 3}: one of reject, flag, off, or a table"),
    ("envelope.layers", {"min": 99, "max": 3}, "envelope.layers: min = 99 is above max = 3"),
    ("target.0.gpu", "h300", "target.0: unknown GPU 'h300'; valid: a100-sxm, "),
    ("target.0.gpu", 7, "target.0.gpu = 7; valid: a GPU name"),
    ("target.0.engine", "tgi", "target.0: unknown engine 'tgi'; valid: ideal, sglang, trtllm, vllm"),
    ("target.0.gpus", [], "target.0.gpus = []; valid: a list of GPU counts"),
    ("target.0.gpus", [0], "target.0.gpus.0 = 0; valid: a list of GPU counts"),
    ("target.0.gpus", [8, 8], "8 is listed twice"),
    ("target.0.usd_per_gpu_hour", -2, "target.0.usd_per_gpu_hour = -2; valid: a price above 0"),
    ("target.0.memory_bytes", 80, "target.0.memory_bytes = 80; valid: bytes, at least 1e9"),
    ("target.1.gpu", "b200-sxm", "cannot set 'target.1': '1' must be a position from 0 to 0"),
    ("target", [], "target = []; valid: one or more [[target]] tables"),
    ("workload.0.isl", 0, "workload.0.isl = 0; valid: prompt tokens, a whole number from 1"),
    ("workload.0.osl", 1.5, "workload.0.osl = 1.5; valid: output tokens, a whole number from 1"),
    ("workload.0.cached", -1, "workload.0.cached = -1; valid: cached tokens, a whole number from 0"),
    ("workload.0.load", "open", "workload.0.load = 'open'; valid: one of closed-loop, static, offline"),
    (
        "workload",
        "chatt",
        "workload.0.name = 'chatt': no such bundled workload; valid: chat, agents, content, translation",
    ),
    ("workload", ["chat", "chat"], "workload.1: 'chat' repeats workload.0"),
    ("workload", [{"isl": 10}], "missing key 'workload.0.osl'; valid: output tokens"),
    ("workload", 3, "workload = 3; valid: one or more [[workload]] tables"),
    ("serving.modes", ["split"], "serving.modes.0 = 'split'; valid: a list of aggregated, disaggregated"),
    ("serving.max_ttft_s", 0, "serving.max_ttft_s = 0; valid: seconds above 0"),
    ("serving.expert_skew", "zipf", "serving.expert_skew = 'zipf'; valid: one of balanced, power_law_1.01"),
    ("serving.acceptance", 1.0, "serving.acceptance = 1.0; valid: chance"),
    ("serving.draft_tokens", 3, "serving.acceptance = 0.0: speculative decoding"),
    ("serving.batches", [-1], "serving.batches.0 = -1; valid: a list of sequences per replica"),
    ("serving.pp", [0], "serving.pp.0 = 0; valid: a list of pipeline stages"),
    ("name", "my study", "name = 'my study'; valid: letters, digits"),
    ("name", "../up", "name = '../up'; valid: letters, digits"),
    ("reference", "llama-9", "reference: unknown model 'llama-9'"),
    ("reference", 7, "reference = 7; valid: a bundled model"),
    ("search.trials.x", 3, "cannot set 'search.trials.x': its parent is a value, not a table"),
]


@pytest.mark.parametrize(("key", "value", "said"), WRONG, ids=[f"{key}={value!r:.40}" for key, value, _ in WRONG])
def test_a_wrong_key_is_named_with_what_is_valid(key, value, said):
    with pytest.raises(ValueError) as error:
        load_study("8b-h200", **{key: value})
    assert said in str(error.value)
    assert "8b-h200" in str(error.value) and "pydantic" not in str(error.value)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda t: t.replace('name = "small"', ""), "missing key 'name'; valid: letters, digits"),
        (lambda t: t.replace('reference = "llama-3.1-8b"', ""), "missing key 'reference'; valid: a bundled model"),
        (lambda t: t.replace('[[target]]\ngpu = "h200-sxm"', ""), "missing key 'target'; valid: one or more"),
        (lambda t: t.replace("[[workload]]\nisl = 1024\nosl = 128", ""), "missing key 'workload'"),
        (lambda t: t.replace('gpu = "h200-sxm"', ""), "missing key 'target.0.gpu'; valid: a GPU name"),
        (lambda t: t.replace("[[target]]", "[target]"), "target is one table; valid: one or more [[target]] tables"),
        (lambda t: t + "[[target]]\ngpu = 'h200-sxm'\n", "target.1: ('h200-sxm', 'trtllm') repeats target.0"),
        (lambda t: t.replace("llama-3.1-8b", "qwen3-30b-a3b"), "budget.solve = 'ffn': moe designs need one of"),
        (
            lambda t: t.replace("llama-3.1-8b", "qwen3-30b-a3b") + "[budget]\nsolve = 'experts'",
            "budget.active_parameters: needed where MoE",
        ),
        (lambda t: t.replace("layers = [28", "layers = [28,,"), "not a TOML file"),
        (lambda t: t.replace("h200-sxm", "jetson-thor") + "[search]\nobjectives = ['usd_per_million_tokens', 'ttft_s']",
         "jetson-thor has no price; state target.0.usd_per_gpu_hour"),
        (lambda t: t.replace("isl = 1024", "isl = 'x'").replace("osl = 128", "osl = 0"), "workload.0.isl = 'x'"),
    ],
)  # fmt: skip
def test_a_wrong_file_is_refused(tmp_path, change, said):
    path = write(tmp_path, change(SMALLEST))
    with pytest.raises(ValueError) as error:
        load_study(path)
    assert said in str(error.value) and str(path) in str(error.value)


def test_every_problem_is_reported_at_once():
    with pytest.raises(ValueError) as error:
        load_study("8b-h200", **{"search.trials": 0, "budget.tolerance": 2, "serving.ttft": 1})
    assert all(key in str(error.value) for key in ("search.trials", "budget.tolerance", "serving.ttft"))


def test_a_binary_file_is_refused(tmp_path):
    path = tmp_path / "study.toml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match="not a TOML file"):
        load_study(path)
