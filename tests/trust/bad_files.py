"""Files that something is wrong with, made in a folder: what test_bad_input.py gives to every command."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import tomli_w

from cost_model import accelerator, engine

ZOO = Path(__file__).parents[1] / "zoo"
DEEPSEEK = json.loads((ZOO / "deepseek-ai--DeepSeek-V3_config.json").read_text())
LLAMA = json.loads((ZOO / "meta-llama--Meta-Llama-3.1-8B_config.json").read_text())
GPU = tomllib.loads(accelerator.accelerator_path("h200-sxm").read_text())
ENGINE = tomllib.loads((Path(engine.__file__).parent / "engines" / "ideal.toml").read_text())
STUDY = """name = "small"
reference = "llama-3.1-8b"
[space]
layers = [28, 32]
[[target]]
gpu = "h200-sxm"
gpus = [1]
[[workload]]
isl = 1024
osl = 128
"""
GEMM = "system,backend,backend_version,kernel,dtype,m,n,k,latency_us\n"
GEMM_ROW = "mine,torch,torch 2.9,torch,bfloat16,{m},4096,4096,{us}\n"
MEASURED = "tokens_per_s_per_user,tokens_per_s_per_gpu\n"
NAN, INF = float("nan"), float("inf")
DEEP = 100_000  # levels of nesting


def changed(table: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """A copy with some keys replaced, `...` standing for left out; `a__b` reaches into a table."""
    copy = json.loads(json.dumps(table))
    for path, value in changes.items():
        *parents, last = path.split("__")
        node = copy
        for parent in parents:
            node = node.setdefault(parent, {})
        node.pop(last, None) if value is ... else node.__setitem__(last, value)
    return copy


def config(**changes: Any) -> bytes:
    return json.dumps(changed(LLAMA, **changes)).encode()


def gpu(**changes: Any) -> bytes:
    return tomli_w.dumps(changed(GPU, **changes)).encode()


def engine_file(**changes: Any) -> bytes:
    return tomli_w.dumps(changed(ENGINE, **changes)).encode()


def gemm(*rows: tuple[Any, Any], header: str = GEMM) -> bytes:
    return (header + "".join(GEMM_ROW.format(m=m, us=us) for m, us in rows)).encode()


FILES: dict[str, tuple[bytes, str]] = {  # content, and what is said of it
    # model configurations
    "empty.json": (b"", "not valid JSON"),
    "list.json": (b"[1, 2]", "a JSON object is needed, found a list"),
    "text.json": (b"hidden_size: 4096", "not valid JSON"),
    "cut.json": (json.dumps(LLAMA).encode()[:200], "not valid JSON"),
    "deep.json": (b'{"a":' * DEEP + b"1" + b"}" * DEEP, "nested too deeply"),
    "huge.json": (b'{"a": "' + b"x" * (9 << 20) + b'"}', "larger than 8388608 bytes"),
    "nan.json": (json.dumps({**LLAMA, "hidden_size": NAN}).encode(), "NaN is not a number that JSON knows"),
    "inf.json": (json.dumps({**LLAMA, "hidden_size": INF}).encode(), "Infinity is not a number"),
    "nul.json": (b"\0" * 64, "not valid JSON"),
    "utf16.json": (json.dumps(LLAMA).encode("utf-16"), "not UTF-8 text"),
    "latin.json": ('{"name": "é"}'.encode("latin-1"), "not UTF-8 text"),
    "twice.json": (b'{"hidden_size": 1, "hidden_size": 2}', "key 'hidden_size' appears twice"),
    "digits.json": (b'{"hidden_size": ' + b"9" * 5000 + b"}", "not valid JSON"),
    "layers.json": (config(num_hidden_layers=10**9), "layers = 1000000000: must be at most 1024"),
    "nolayers.json": (config(num_hidden_layers=0), "layers = 0: must be at least 1"),
    "heads-negative.json": (config(num_attention_heads=-32), "num_attention_heads = -32: must be at least 0"),
    "heads-fraction.json": (config(num_attention_heads=32.5), "num_attention_heads = 32.5: a whole number is needed"),
    "heads-text.json": (config(num_attention_heads="32"), 'num_attention_heads = "32": a whole number'),
    "heads-true.json": (config(num_attention_heads=True), "num_attention_heads = True: a whole number"),
    "kv-heads.json": (config(num_key_value_heads=7), "kv_heads = 7: must divide heads = 32"),
    "kv-more.json": (config(num_key_value_heads=64), "kv_heads = 64: must divide heads = 32"),
    "hidden.json": (config(hidden_size=10**30), "hidden = 1000000000000000000000000000000: a whole number"),
    "vocab.json": (config(vocab_size=0), "vocab = 0: must be at least 1"),
    "latent.json": (
        json.dumps(changed(DEEPSEEK, kv_lora_rank=0)).encode(),
        "kv_lora_rank = 0: must be at least 1",
    ),
    "head-dim.json": (config(head_dim=0), "head_dim = 0: must be at least 1"),
    "ffn.json": (config(intermediate_size=-1), "intermediate_size = -1: must be at least 0"),
    "type.json": (config(model_type="mamba<script>"), "model_type = 'mamba<script>': not supported; supported: llama"),
    "type-number.json": (config(model_type=7), "model_type = 7: text is needed"),
    "type-missing.json": (config(model_type=...), "model_type = None: not supported"),
    "tied.json": (config(tie_word_embeddings="yes"), 'tie_word_embeddings = "yes": true or false'),
    "quantised.json": (config(quantization_config="fp8"), 'quantization_config = "fp8": an object is needed'),
    "quantised-method.json": (
        config(quantization_config={"quant_method": "magic"}),
        "quant_method = 'magic': not supported; supported: modelopt",
    ),
    # studies
    "empty.toml": (b"", "missing key 'name'; valid: letters"),
    "cut.toml": (STUDY.encode()[:60], "not a TOML file"),
    "nul.toml": (b"\0" * 64, "not a TOML file"),
    "utf16.toml": (STUDY.encode("utf-16"), "not a TOML file"),
    "latin.toml": ('name = "é"'.encode("latin-1"), "not a TOML file"),
    "deep.toml": (b"name = " + b"[" * DEEP + b"]" * DEEP, "nested too deeply"),
    "deep-keys.toml": (b".".join([b"a"] * DEEP) + b" = 1", "nested too deeply"),
    "huge.toml": (b"#" * (5 << 20), "larger than 4194304 bytes"),
    "html.toml": (
        STUDY.replace('"small"', '"<script>alert(1)</script>"').encode(),
        "name = '<script>alert(1)</script>'; valid: letters",
    ),
    "escape.toml": (STUDY.replace('"small"', '"../../small"').encode(), "name = '../../small'; valid: letters"),
    "reference-nul.toml": (STUDY.replace("llama-3.1-8b", "a\\u0000.json").encode(), "a\\x00.json: no such file"),
    "reference-long.toml": (STUDY.replace("llama-3.1-8b", "x" * 5000 + ".json").encode(), ".json: no such file"),
    "gpu-nul.toml": (
        STUDY.replace("h200-sxm", "a\\u0000.toml").encode(),
        "target.0: unknown GPU 'a\\x00.toml'; valid: a100-sxm",
    ),
    "gpu-list.toml": (
        STUDY.replace('"h200-sxm"', '["h200-sxm"]').encode(),
        "target.0.gpu = ['h200-sxm']; valid: a GPU name",
    ),
    "layers-many.toml": (
        STUDY.replace("[28, 32]", "{ min = 1, max = 1000000000 }").encode(),
        "space.layers.max = 1000000000: must be at most 1024",
    ),
    "layers-date.toml": (
        STUDY.replace("[28, 32]", "1979-05-27").encode(),
        "space.layers = datetime.date(1979, 5, 27): a whole number",
    ),
    "isl-huge.toml": (
        STUDY.replace("1024", "9223372036854775807").encode(),
        "workload.0.isl = 9223372036854775807; valid: prompt tokens",
    ),
    "weight-nan.toml": (
        (STUDY + "weight = nan\n").encode(),
        "workload.0.weight = nan; valid: a number from 1e-6 to 1e6",
    ),
    "price-inf.toml": (
        STUDY.replace("gpus = [1]", "usd_per_gpu_hour = inf").encode(),
        "target.0.usd_per_gpu_hour = inf; valid: a price above 0",
    ),
    "gpus-many.toml": (
        STUDY.replace("gpus = [1]", f"gpus = {list(range(1, 3000))}").encode(),
        "valid: a list of GPU counts per replica, at most 64",
    ),
    # GPUs
    "gpu-cut.toml": (gpu()[:100], "not a TOML file"),
    "gpu-missing.toml": (gpu(memory_bytes=...), "missing key 'memory_bytes'; valid:"),
    "gpu-unknown.toml": (gpu(memory_gb=141), "unknown key 'memory_gb'; valid:"),
    "gpu-text.toml": (gpu(memory_bytes="141 GB"), "memory_bytes = '141 GB': must be a finite number from 1"),
    "gpu-nan.toml": (
        gpu(memory_bytes_per_s=1).replace(b"memory_bytes_per_s = 1\n", b"memory_bytes_per_s = nan\n"),
        "memory_bytes_per_s = nan: must be a finite number",
    ),
    "gpu-inf.toml": (
        gpu(l2_bytes=1).replace(b"l2_bytes = 1\n", b"l2_bytes = inf\n"),
        "l2_bytes = inf: must be a finite number from 0",
    ),
    "gpu-negative.toml": (gpu(memory_bytes=-1), "memory_bytes = -1: must be"),
    "gpu-true.toml": (gpu(sm_count=True), "sm_count = True: must be a whole number"),
    "gpu-fraction.toml": (gpu(sm_count=1.5), "sm_count = 1.5: must be a whole number"),
    "gpu-endless.toml": (
        gpu(memory_bytes=1).replace(b"memory_bytes = 1\n", b"memory_bytes = 1" + b"0" * 400 + b"\n"),
        "...: must be a finite number",
    ),
    "gpu-name.toml": (gpu(name=""), "name = '': must be printable text"),
    "gpu-name-number.toml": (gpu(name=7), "name = 7: must be printable text"),
    "gpu-name-control.toml": (gpu(name="a\x1b[2J"), "must be printable text"),
    "gpu-tdp.toml": (gpu(tdp_w="700"), "tdp_w = '700': must be"),
    "gpu-price.toml": (gpu(usd_per_gpu_hour=-1), "usd_per_gpu_hour = -1: must be"),
    "gpu-peaks.toml": (gpu(peak_flops=5), "peak_flops = 5: must be a table"),
    "gpu-peaks-bf16.toml": (gpu(peak_flops__bf16=...), "with at least bf16"),
    "gpu-peaks-text.toml": (gpu(peak_flops__bf16="fast"), "peak_flops.bf16 = 'fast': must be"),
    "gpu-peaks-zero.toml": (gpu(peak_flops__fp8=0), "peak_flops.fp8 = 0: must be"),
    "gpu-formats.toml": (gpu(native_formats="bf16"), "native_formats = 'bf16': must be a list"),
    "gpu-formats-unknown.toml": (gpu(native_formats=["bf16", "fp7"]), "unknown format 'fp7'; valid: bf16"),
    "gpu-formats-peak.toml": (gpu(native_formats=["nvfp4"]), "native_formats has 'nvfp4' but peak_flops lacks 'fp4'"),
    "gpu-provenance.toml": (gpu(provenance="a friend"), "provenance = 'a friend': must be a table"),
    "gpu-constants.toml": (gpu(calibration=[1]), "calibration = [1]: must be a table"),
    "gpu-constants-op.toml": (gpu(calibration={"gem": {}}), "calibration: unknown key 'gem'; valid:"),
    "gpu-constants-key.toml": (
        gpu(calibration={"gemm": {"fp7": {}}}),
        "calibration.gemm: unknown key 'fp7'; valid: bf16",
    ),
    "gpu-constants-missing.toml": (
        gpu(calibration={"send": {"nccl": {"latency_s": 1e-6}}}),
        "calibration.send.nccl: missing key 'link_efficiency'",
    ),
    "gpu-constants-unknown.toml": (
        gpu(calibration={"send": {"nccl": {"latency": 1e-6}}}),
        "calibration.send.nccl: unknown key 'latency'; valid: latency_s",
    ),
    "gpu-constants-text.toml": (
        gpu(calibration={"send": {"nccl": {"latency_s": "1us", "link_efficiency": 0.9}}}),
        "calibration.send.nccl.latency_s = '1us': must be",
    ),
    "gpu-constants-zero.toml": (
        gpu(calibration={"send": {"nccl": {"latency_s": 1e-6, "link_efficiency": 0.0}}}),
        "link_efficiency = 0.0: must be",
    ),
    "gpu-constants-sign.toml": (
        gpu(calibration={"send": {"nccl": {"latency_s": -1.0, "link_efficiency": 0.9}}}),
        "latency_s = -1.0: must be",
    ),
    "gpu-constants-band.toml": (
        gpu(
            calibration={
                "send": {
                    "nccl": {"latency_s": 1e-6, "link_efficiency": 0.9, "fit": {"error_low": 2.0, "error_high": 1.0}}
                }
            }
        ),
        "fit.error_high = 1.0: must be a finite number from 2",
    ),
    # engines
    "engine-cut.toml": (engine_file()[:100], "not a TOML file"),
    "engine-missing.toml": (engine_file(tokens_per_block=...), "missing key 'tokens_per_block'; valid:"),
    "engine-unknown.toml": (engine_file(speed=2), "unknown key 'speed'; valid:"),
    "engine-text.toml": (engine_file(step_overhead_s="fast"), "step_overhead_s = 'fast': must be"),
    "engine-true.toml": (engine_file(queue_factor=True), "queue_factor = True: must be"),
    "engine-word.toml": (engine_file(windowed_kv="yes"), "windowed_kv = 'yes': valid: true, false"),
    "engine-fraction.toml": (engine_file(memory_fraction=1.5), "memory_fraction = 1.5: must be"),
    "engine-block.toml": (engine_file(tokens_per_block=0), "tokens_per_block = 0: must be a whole number"),
    "engine-chunk.toml": (engine_file(prefill_chunk=10.5), "prefill_chunk = 10.5: must be a whole number"),
    "engine-kernels.toml": (engine_file(kernels="tgi"), "kernels = 'tgi': valid: ideal"),
    "engine-launch.toml": (engine_file(all_reduce_launch="lazy"), "all_reduce_launch = 'lazy': valid: graph, eager"),
    "engine-kv.toml": (engine_file(quantised_kv_format="int8"), "quantised_kv_format = 'int8': valid: bf16"),
    "engine-fused.toml": (engine_file(fused_quantisation="fp8"), "fused_quantisation = 'fp8': must be a list"),
    "engine-fused-format.toml": (engine_file(fused_quantisation=["fp7"]), "fused_quantisation = 'fp7': valid: bf16"),
    "engine-factor.toml": (engine_file(linear_factor=1.1), "linear_factor = 1.1: must be a table"),
    "engine-factor-format.toml": (engine_file(linear_factor={"fp7": 1.1}), "linear_factor format = 'fp7': valid: bf16"),
    "engine-factor-zero.toml": (engine_file(linear_factor={"fp8": 0.0}), "linear_factor.fp8 = 0.0: must be"),
    "engine-gpu.toml": (engine_file(gpu=5), "gpu = 5: must be a table"),
    "engine-gpu-row.toml": (engine_file(gpu={"h200-sxm": 5}), "gpu.h200-sxm = 5: must be a table"),
    "engine-gpu-key.toml": (engine_file(gpu={"h200-sxm": {"speed": 5}}), "unknown key 'speed'; valid:"),
    "engine-release.toml": (
        engine_file(release=[{"version": "1"}]),
        "release.0 = {'version': '1'}: must be a [[release]] table",
    ),
    "engine-release-date.toml": (
        engine_file(release=[{"version": "1", "date": "soon", "gpu": {}}]),
        "release.0.date = 'soon': must be a date",
    ),
    # measured tables: a folder each for calibrate
    "no-files/readme.txt": (b"", "holds none of allreduce.csv"),
    "csv-empty/gemm.csv": (b"", "gemm.csv: holds no rows"),
    "csv-header/gemm.csv": (GEMM.encode(), "gemm.csv: holds no rows"),
    "csv-ragged/gemm.csv": (gemm((1, 5)) + b"1,2,3\n", "row 3 has 3 values, its header names 9 columns"),
    "csv-nul/gemm.csv": (gemm((1, 5)) + b"\0\0\0\n", "gemm.csv"),
    "csv-utf16/gemm.csv": (gemm((1, 5)).decode().encode("utf-16"), "not a readable CSV file"),
    "csv-latin/gemm.csv": (gemm((1, 5)).replace(b"mine", b"m\xefne"), "not a readable CSV file"),
    "csv-column/gemm.csv": (
        gemm((1, 5)).replace(b"latency_us", b"latency"),
        "column 'latency_us' is missing; it has system",
    ),
    "csv-dims/gemm.csv": (gemm((1, 5)).replace(b",m,n,k,", b",rows,n,k,"), "column 'm' is missing; it has system"),
    "csv-text/gemm.csv": (gemm((1, 5), (2, "fast")), "row 3: latency_us = 'fast': must be a number above 0"),
    "csv-tokens/gemm.csv": (gemm((1, 5), ("many", 6)), "row 3: m = 'many': must be a number of at least 1"),
    "csv-nan/gemm.csv": (gemm((1, 5), (2, "nan")), "row 3: latency_us = 'nan': must be a number above 0"),
    "csv-zero/gemm.csv": (gemm((1, 5), (2, 0)), "row 3: latency_us = '0': must be a number above 0"),
    "csv-negative/gemm.csv": (gemm((1, 5), (2, -7)), "row 3: latency_us = '-7': must be"),
    "csv-infinite/gemm.csv": (gemm((1, 5), (2, "inf")), "row 3: latency_us = 'inf': must be"),
    "csv-shape/gemm.csv": (gemm((1, 5), (-2, 7)), "row 3: m = '-2': must be a number of at least 1"),
    "csv-gzip/gemm.csv.gz": (gemm((1, 5)), "not a readable CSV file"),
    "csv-format/gemm.csv": (gemm((1, 5)).replace(b"bfloat16", b"float7"), "holds none of allreduce.csv"),
    # measured points for compare
    "points-empty.csv": (b"", "not a readable CSV file"),
    "points-columns.csv": (b"speed,rate\n1,2\n", "needs a column tokens_per_s_per_user"),
    "points-text.csv": ((MEASURED + "fast,2\n").encode(), "row 2: tokens_per_s_per_user must be a number above 0"),
    "points-negative.csv": ((MEASURED + "-1,2\n").encode(), "row 2: tokens_per_s_per_user must be"),
    "points-infinite.csv": ((MEASURED + "inf,2\n").encode(), "row 2: tokens_per_s_per_user must be"),
    "points-ragged.csv": ((MEASURED + "1,2\n1,2,3,4\n").encode(), "not a readable CSV file"),
    "points-utf16.csv": ((MEASURED + "1,2\n").encode("utf-16"), "not a readable CSV file"),
    "points-nul.csv": (b"\0\0\0\0", "needs a column"),
    # places to write
    "file": (b"here already", ""),
    "full/file": (b"here already", ""),
}


def make(folder: Path) -> None:
    """Write them all, and the links."""
    for name, (content, _) in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    (folder / "dangling").symlink_to(folder / "nowhere" / "at-all")
    (folder / "loop").symlink_to(folder / "loop")
    (folder / "loop.json").symlink_to(folder / "loop.json")
    (folder / "loop.toml").symlink_to(folder / "loop.toml")
    (folder / "endless").mkdir()
    for name in ("zero.json", "zero.toml", "zero.csv", "endless/gemm.csv"):
        (folder / name).symlink_to("/dev/zero")  # reading it would never end
    (folder / "directory.json").mkdir()
    (folder / "directory.toml").mkdir()
    (folder / "small.toml").write_text(STUDY)
