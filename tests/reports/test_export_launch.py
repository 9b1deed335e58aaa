"""Launch files: told to each engine in words it knows, refused where it cannot, within what memory holds."""

import dataclasses
import json

import numpy as np
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cost_model import load_accelerator
from cost_model.memory import memory
from reports.launch import ENGINES, Point, engine_files
from reports.launch_point import Inexpressible, Server, limits, with_engine
from spaces import Deployment, Workload, enumerate_deployments, load_architecture
from spaces.families import FAMILIES, export_family
from tests.reports.engines import check_options, recorded, told

CHAT = Workload(isl=4096, osl=400, cached=2048)


def point(model, plan, gpu="h200-sxm", recipe="fp8", kv="fp8", workload=CHAT, **gpu_fields):
    a = load_architecture(model) if isinstance(model, str) else model
    accelerator = load_accelerator(gpu, **gpu_fields)
    device = load_accelerator(gpu).memory_bytes
    family = FAMILIES[int(export_family(a))]
    server = Server(a, family, recipe, kv, plan, workload, accelerator, device)
    return Point(server, plan, {"tokens_per_s_per_user": 100.0}, "balanced", ("a comment",))


def options_of(engine, words):
    words = words[words.index("trtllm-serve") if engine == "trtllm" else 0 :]  # past the cluster's launcher
    return check_options(words, recorded({"llama": "llama-server"}.get(engine, engine))["options"])


def check_yaml(text):
    """Every key is one that TorchLlmArgs and its parts define."""
    keys, values = recorded("trtllm")["keys"], recorded("trtllm")["values"]

    def walk(table, name):
        for key, value in table.items():
            assert key in keys[name], f"{name}: {key}"
            if isinstance(value, dict):
                walk(value, key)
            elif f"{name}.{key}" in values:
                assert value in values[f"{name}.{key}"]

    table = yaml.safe_load(text)
    walk(table, "TorchLlmArgs")
    return table


def run(p, engine, folder):
    """(options, YAML or None) that the engine gets."""
    files = engine_files(p, engine)
    options = options_of(engine, told(files, f"{engine}.sh", folder))
    return options, check_yaml(files["trtllm.yaml"]) if engine == "trtllm" else None


def test_tensor_parallel_dense(tmp_path):
    p = point("llama-3.1-70b", Deployment(attention_tp=4, ffn_tp=4, batch=32))
    options, _ = run(p, "vllm", tmp_path)
    assert options["--tensor-parallel-size"] == ["4"] and options["--max-num-seqs"] == ["32"]
    assert options["--kv-cache-dtype"] == ["fp8"] and "--data-parallel-size" not in options
    options, _ = run(p, "sglang", tmp_path)
    assert options["--tp-size"] == ["4"] and options["--max-running-requests"] == ["32"]
    assert options["--kv-cache-dtype"] == ["fp8_e4m3"] and options["--model-path"] == ["/models/a b"]
    _, table = run(p, "trtllm", tmp_path)
    assert table["tensor_parallel_size"] == 4 and table["max_batch_size"] == 32
    assert table["kv_cache_config"]["dtype"] == "fp8" and not table["enable_attention_dp"]


def test_attention_data_parallel_experts(tmp_path):
    p = point("deepseek-v3", Deployment(attention_dp=32, ep=32, ffn_tp=1, redundant_experts=32, batch=512),
              gpu="gb200-nvl72", recipe="nvfp4")  # fmt: skip
    options, _ = run(p, "vllm", tmp_path)
    assert options["--data-parallel-size"] == ["32"] and options["--tensor-parallel-size"] == ["1"]
    assert "--enable-expert-parallel" in options and "--enable-eplb" in options
    assert json.loads(options["--eplb-config"][0]) == {"num_redundant_experts": 32}
    assert options["--max-num-seqs"] == ["16"]  # of one rank
    assert options["--data-parallel-size-local"] == ["4"] and options["--data-parallel-start-rank"] == ["4"]
    assert "--headless" in options  # on the second host
    options, _ = run(p, "sglang", tmp_path)
    assert (options["--tp-size"], options["--attn-dp-size"], options["--ep-size"]) == (["32"], ["32"], ["32"])
    assert options["--max-running-requests"] == ["512"] and options["--ep-num-redundant-experts"] == ["32"]
    assert options["--dist-init-addr"] == ["10.0.0.1:5000"] and options["--nnodes"] == ["8"]
    files = engine_files(p, "trtllm")
    table = check_yaml(files["trtllm.yaml"])
    assert table["enable_attention_dp"] and table["moe_expert_parallel_size"] == 32
    assert table["moe_config"]["load_balancer"]["num_slots"] == 256 + 32 and table["max_batch_size"] == 16
    assert told(files, "trtllm.sh", tmp_path)[:4] == ["srun", "--mpi=pmix", "--nodes", "8"]


def test_speculation(tmp_path):
    p = point("llama-3.1-8b", Deployment(batch=8, draft_tokens=3, acceptance=0.8))
    options, _ = run(p, "vllm", tmp_path)
    told_ = json.loads(options["--speculative-config"][0])
    assert told_ == {"method": "eagle3", "model": "/models/draft", "num_speculative_tokens": 3}
    options, _ = run(p, "sglang", tmp_path)
    assert options["--speculative-num-steps"] == ["3"] and options["--speculative-num-draft-tokens"] == ["4"]
    _, table = run(p, "trtllm", tmp_path)
    assert table["speculative_config"]["max_draft_len"] == 3
    with pytest.raises(Inexpressible, match="speculative plans are not exported"):
        engine_files(point("llama-3.1-8b", p.plan, recipe="int4"), "llama")


DISAGGREGATED = Deployment(
    attention_tp=4, ffn_tp=4, batch=64, prefill_attention_tp=2, prefill_attention_dp=1, prefill_ffn_tp=2, prefill_ep=1,
    prefill_pp=1, prefill_batch=4, prefill_replicas=3, decode_replicas=2,
)  # fmt: skip


def test_disaggregated_pools_have_both_sides_and_a_router(tmp_path):
    p = point("llama-3.1-70b", DISAGGREGATED)
    files = engine_files(p, "vllm")
    prefill = options_of("vllm", told(files, "vllm_prefill.sh", tmp_path))
    decode = options_of("vllm", told(files, "vllm_decode.sh", tmp_path))
    assert prefill["--tensor-parallel-size"] == ["2"] and decode["--tensor-parallel-size"] == ["4"]
    assert json.loads(prefill["--kv-transfer-config"][0])["kv_role"] == "kv_producer"
    assert decode["--max-num-seqs"] == ["64"] and prefill["--max-num-seqs"] == ["4"]
    router = check_options(told(files, "vllm_router.sh", tmp_path), recorded("vllm-router")["options"])
    assert len(router["--prefill"]) == 3 and len(router["--decode"]) == 2
    files = engine_files(p, "sglang")
    assert options_of("sglang", told(files, "sglang_prefill.sh", tmp_path))["--disaggregation-mode"] == ["prefill"]
    assert options_of("sglang", told(files, "sglang_decode.sh", tmp_path))["--disaggregation-mode"] == ["decode"]
    words = told(files, "sglang_router.sh", tmp_path)
    assert check_options(words, recorded("sglang-router")["options"])["--prefill"][0] == "http://prefill0:30001"
    files = engine_files(p, "trtllm")
    for side, tp in (("prefill", 2), ("decode", 4)):
        table = check_yaml(files[f"trtllm_{side}.yaml"])
        assert table["tensor_parallel_size"] == tp and table["disable_overlap_scheduler"] == (side == "prefill")
        assert table["cache_transceiver_config"]["max_tokens_in_buffer"] >= 4096 + 2048
    pools = yaml.safe_load(files["trtllm_router.yaml"])
    assert set(pools) <= set(recorded("trtllm")["keys"]["disaggregated"])
    assert pools["context_servers"]["num_instances"] == 3 == len(pools["context_servers"]["urls"])
    assert told(files, "trtllm_router.sh", tmp_path)[:3] == ["trtllm-serve", "disaggregated", "-c"]


def test_helix_is_for_tensorrt_llm_and_refused_elsewhere_with_what_comes_nearest():
    plan = Deployment(attention_tp=1, kvp=8, ffn_tp=1, ep=8, batch=8)
    p = point("deepseek-v3", plan, gpu="gb200-nvl72", recipe="nvfp4")
    table = check_yaml(engine_files(p, "trtllm")["trtllm.yaml"])
    assert table["context_parallel_size"] == 8 and table["cp_config"]["cp_type"] == "HELIX"
    # its own rule: both block sizes must agree
    assert table["cp_config"]["tokens_per_block"] == table["kv_cache_config"]["tokens_per_block"]
    for engine in ("vllm", "sglang"):
        with pytest.raises(Inexpressible, match=r"KVP8 \(Helix\) adds ranks.*Nearest plan it can run: attention TP"):
            engine_files(p, engine)


REFUSALS = [
    ("trtllm", "qwen3-30b-a3b", Deployment(attention_tp=2, attention_dp=2, ep=4, batch=8), {}, "never both"),
    ("trtllm", "qwen3-8b", Deployment(attention_dp=4, batch=8), {}, "keeps the whole FFN"),
    ("trtllm", "llama-3.1-8b", Deployment(batch=8), {"recipe": "int8", "kv": "bf16"}, "no kernels for int8 linears"),
    ("trtllm", "llama-3.1-8b", Deployment(batch=8), {"recipe": "nvfp4"}, "capability 10.0 or more; h200-sxm has 9.0"),
    ("trtllm", "llama-3.1-8b", Deployment(batch=8), {"gpu": "mi300x"}, "NVIDIA GPUs, not AMD"),
    ("vllm", "qwen3-8b", Deployment(attention_dp=4, batch=8), {}, "whole replicas"),
    ("vllm", "qwen3-30b-a3b", Deployment(attention_tp=8, ffn_tp=2, ep=4, batch=8), {}, "EP8.*TP8.*over all 8"),
    ("vllm", "llama-3.1-8b", Deployment(batch=8), {"gpu": "b200-sxm", "recipe": "w4a8"}, "w4a8 linears on compute"),
    ("sglang", "llama-3.1-8b", Deployment(attention_dp=4, batch=8), {}, "Llama attention ignores it"),
    ("sglang", "qwen3-30b-a3b", Deployment(attention_tp=8, ffn_tp=2, ep=4, batch=8),
     {"gpu": "b200-sxm", "recipe": "nvfp4"}, "EP1 or EP8 only"),
    ("llama", "llama-3.1-8b", Deployment(batch=8), {}, "fp8 weights have no GGUF counterpart"),
    ("llama", "llama-3.1-8b", Deployment(attention_tp=2, batch=8), {"recipe": "int4"}, "splits layers"),
    ("vllm", "qwen3-30b-a3b", Deployment(attention_tp=4, ffn_tp=4, batch=8),
     {"gpu": "h100-sxm", "recipe": "fp8-block"}, "does not cut quantisation blocks: fp8-block"),
    ("vllm", "llama-3.1-405b", Deployment(attention_tp=2, batch=8), {}, "does not fit on 2 x h200-sxm"),
    ("vllm", "deepseek-v3", Deployment(attention_tp=8, batch=8),
     {"gpu": "b200-sxm", "recipe": "nvfp4", "kv": "nvfp4"}, "NVFP4 cache of latent attention"),
]  # fmt: skip


@pytest.mark.parametrize(("engine", "model", "plan", "more", "reason"), REFUSALS)
def test_what_an_engine_cannot_express_is_refused_with_the_reason(engine, model, plan, more, reason):
    with pytest.raises(Inexpressible, match=reason):
        engine_files(point(model, plan, **more), engine)


def test_the_nearest_plan_is_one_that_the_engine_runs():
    p = point("qwen3-30b-a3b", Deployment(attention_tp=8, ffn_tp=2, ep=4, batch=8))
    with pytest.raises(Inexpressible, match=r"attention TP8, FFN TP1 EP8, at the same batch: predicted \d+") as error:
        engine_files(p, "vllm")
    assert "tokens/s/user instead of 100" in str(error.value)
    engine_files(dataclasses.replace(p, plan=Deployment(attention_tp=8, ffn_tp=1, ep=8, batch=8)), "vllm")


PLANS = enumerate_deployments(
    [1, 2, 4, 8, 16], moe=True, kvp=(1, 2), pp=(1, 2), redundant_experts=(0, 8), batches=[16, 64]
)
MODELS = ("llama-3.1-8b", "qwen3-8b", "qwen3-30b-a3b", "mixtral-8x7b", "deepseek-v3", "glm-4.5-air", "gpt-oss-120b")


@settings(deadline=None, max_examples=80, suppress_health_check=list(HealthCheck))
@given(
    model=st.sampled_from(MODELS),
    row=st.integers(0, len(np.asarray(PLANS.batch)) - 1),
    recipe=st.sampled_from(("bf16", "fp8", "fp8-block", "int8", "int4", "nvfp4", "mxfp4-experts", "int4-experts")),
    kv=st.sampled_from(("bf16", "fp8", "nvfp4")),
    gpu=st.sampled_from(("h200-sxm", "gb300-nvl72", "mi355x", "l40s")),
    engine=st.sampled_from(ENGINES),
)
def test_any_plan_is_told_in_known_words_or_refused(tmp_path_factory, model, row, recipe, kv, gpu, engine):
    p = point(model, Deployment(**PLANS.take(row).as_dict()), gpu, recipe, kv)
    folder = tmp_path_factory.getbasetemp() / "told"
    folder.mkdir(exist_ok=True)
    try:
        options, table = run(p, engine, folder)
    except Inexpressible as error:
        assert len(str(error)) > 20
        return
    server = dataclasses.replace(p.server, gpu=with_engine(p.server.gpu, engine))
    bounds = limits(server)
    held = memory(server.architecture, recipe, server.plan, CHAT, server.gpu, kv)
    assert bounds.sequences <= int(held.largest_batch)
    sizes = table or options
    assert bounds.per_rank * int(server.plan.attention_dp) >= bounds.sequences
    assert sizes and 0 < bounds.free_share <= 1 and 0 < bounds.static_share <= bounds.used_share + 0.01 <= 1.01


def test_limits_follow_memory_where_a_study_uses_part_of_the_device():
    whole = point("llama-3.2-3b", Deployment(batch=1), "jetson-thor", "int4", "bf16")
    half = point("llama-3.2-3b", Deployment(batch=1), "jetson-thor", "int4", "bf16", memory_bytes=64e9)
    shares = [limits(p.server).used_share for p in (whole, half)]
    assert shares[1] == pytest.approx(shares[0] / 2, abs=0.011)
    assert limits(half.server).largest < limits(whole.server).largest


def test_llama_server_where_the_recipe_has_a_counterpart(tmp_path):
    p = point("llama-3.2-3b", Deployment(batch=4), "jetson-thor", "int4", "fp8")
    files = engine_files(p, "llama")
    options = options_of("llama", told(files, "llama.sh", tmp_path))
    assert options["--cache-type-k"] == ["q8_0"] and options["--parallel"] == ["4"]
    assert int(options["--ctx-size"][0]) >= 4 * (4096 + 400 + 2048)
    assert "Q4_0" in files["llama.sh"]


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_the_engine_itself_parses_what_we_write(engine, tmp_path):
    """With the package at hand (an unpacked wheel is enough), its own parser reads the words."""
    pytest.importorskip(engine)
    from tests.reports import record_engine_arguments as record

    parser = getattr(record, engine)()
    plan = Deployment(attention_dp=8, ep=8, ffn_tp=1, redundant_experts=8, batch=64, draft_tokens=2, acceptance=0.5)
    for p in (point("qwen3-30b-a3b", plan), point("llama-3.1-70b", DISAGGREGATED)):
        for name, text in engine_files(p, engine).items():
            if "router" not in name:
                words = told({name: text}, name, tmp_path)
                arguments = words[2:] if engine == "vllm" else words[3:]
                found = vars(parser.parse_args(arguments))
                assert found["tensor_parallel_size" if engine == "vllm" else "tp_size"] >= 1
