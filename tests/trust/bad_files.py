"""Files that something is wrong with, made in a folder: what test_bad_input.py gives to every command."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tomli_w

from cost_model import accelerator, engine

ZOO = Path(__file__).parents[1] / "zoo"
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


FILES: dict[str, bytes | Callable[[Path], None]] = {
    # model configurations
    "empty.json": b"",
    "list.json": b"[1, 2]",
    "text.json": b"hidden_size: 4096",
    "cut.json": json.dumps(LLAMA).encode()[:200],
    "deep.json": b'{"a":' * DEEP + b"1" + b"}" * DEEP,
    "huge.json": b'{"a": "' + b"x" * (9 << 20) + b'"}',
    "nan.json": json.dumps({**LLAMA, "hidden_size": NAN}).encode(),
    "inf.json": json.dumps({**LLAMA, "hidden_size": INF}).encode(),
    "nul.json": b"\0" * 64,
    "utf16.json": json.dumps(LLAMA).encode("utf-16"),
    "latin.json": '{"name": "é"}'.encode("latin-1"),
    "twice.json": b'{"hidden_size": 1, "hidden_size": 2}',
    "digits.json": b'{"hidden_size": ' + b"9" * 5000 + b"}",
    "layers.json": config(num_hidden_layers=10**9),
    "nolayers.json": config(num_hidden_layers=0),
    "heads-negative.json": config(num_attention_heads=-32),
    "heads-fraction.json": config(num_attention_heads=32.5),
    "heads-text.json": config(num_attention_heads="32"),
    "heads-true.json": config(num_attention_heads=True),
    "kv-heads.json": config(num_key_value_heads=7),
    "kv-more.json": config(num_key_value_heads=64),
    "hidden.json": config(hidden_size=10**30),
    "vocab.json": config(vocab_size=0),
    "head-dim.json": config(head_dim=0),
    "ffn.json": config(intermediate_size=-1),
    "type.json": config(model_type="mamba<script>"),
    "type-number.json": config(model_type=7),
    "type-missing.json": config(model_type=...),
    "tied.json": config(tie_word_embeddings="yes"),
    "quantised.json": config(quantization_config="fp8"),
    "quantised-method.json": config(quantization_config={"quant_method": "magic"}),
    # studies
    "empty.toml": b"",
    "cut.toml": STUDY.encode()[:60],
    "nul.toml": b"\0" * 64,
    "utf16.toml": STUDY.encode("utf-16"),
    "latin.toml": 'name = "é"'.encode("latin-1"),
    "deep.toml": b"name = " + b"[" * DEEP + b"]" * DEEP,
    "deep-keys.toml": b".".join([b"a"] * DEEP) + b" = 1",
    "huge.toml": b"#" * (5 << 20),
    "html.toml": STUDY.replace('"small"', '"<script>alert(1)</script>"').encode(),
    "escape.toml": STUDY.replace('"small"', '"../../small"').encode(),
    "reference-nul.toml": STUDY.replace("llama-3.1-8b", "a\\u0000.json").encode(),
    "reference-long.toml": STUDY.replace("llama-3.1-8b", "x" * 5000 + ".json").encode(),
    "gpu-nul.toml": STUDY.replace("h200-sxm", "a\\u0000.toml").encode(),
    "gpu-list.toml": STUDY.replace('"h200-sxm"', '["h200-sxm"]').encode(),
    "layers-many.toml": STUDY.replace("[28, 32]", "{ min = 1, max = 1000000000 }").encode(),
    "layers-date.toml": STUDY.replace("[28, 32]", "1979-05-27").encode(),
    "isl-huge.toml": STUDY.replace("1024", "9223372036854775807").encode(),
    "weight-nan.toml": (STUDY + "weight = nan\n").encode(),
    "price-inf.toml": STUDY.replace("gpus = [1]", "usd_per_gpu_hour = inf").encode(),
    "gpus-many.toml": STUDY.replace("gpus = [1]", f"gpus = {list(range(1, 3000))}").encode(),
    "infeasible.toml": (STUDY + "[budget]\ntotal_parameters = 9e9\n").encode(),
    # GPUs
    "gpu-cut.toml": gpu()[:100],
    "gpu-missing.toml": gpu(memory_bytes=...),
    "gpu-unknown.toml": gpu(memory_gb=141),
    "gpu-text.toml": gpu(memory_bytes="141 GB"),
    "gpu-nan.toml": gpu(memory_bytes_per_s=1).replace(b"memory_bytes_per_s = 1\n", b"memory_bytes_per_s = nan\n"),
    "gpu-inf.toml": gpu(l2_bytes=1).replace(b"l2_bytes = 1\n", b"l2_bytes = inf\n"),
    "gpu-negative.toml": gpu(memory_bytes=-1),
    "gpu-true.toml": gpu(sm_count=True),
    "gpu-fraction.toml": gpu(sm_count=1.5),
    "gpu-endless.toml": gpu(memory_bytes=1).replace(b"memory_bytes = 1\n", b"memory_bytes = 1" + b"0" * 400 + b"\n"),
    "gpu-name.toml": gpu(name=""),
    "gpu-name-number.toml": gpu(name=7),
    "gpu-name-control.toml": gpu(name="a\x1b[2J"),
    "gpu-tdp.toml": gpu(tdp_w="700"),
    "gpu-price.toml": gpu(usd_per_gpu_hour=-1),
    "gpu-peaks.toml": gpu(peak_flops=5),
    "gpu-peaks-bf16.toml": gpu(peak_flops__bf16=...),
    "gpu-peaks-text.toml": gpu(peak_flops__bf16="fast"),
    "gpu-peaks-zero.toml": gpu(peak_flops__fp8=0),
    "gpu-formats.toml": gpu(native_formats="bf16"),
    "gpu-formats-unknown.toml": gpu(native_formats=["bf16", "fp7"]),
    "gpu-formats-peak.toml": gpu(native_formats=["nvfp4"]),
    "gpu-provenance.toml": gpu(provenance="a friend"),
    "gpu-constants.toml": gpu(calibration=[1]),
    "gpu-constants-op.toml": gpu(calibration={"gem": {}}),
    "gpu-constants-key.toml": gpu(calibration={"gemm": {"fp7": {}}}),
    "gpu-constants-missing.toml": gpu(calibration={"send": {"nccl": {"latency_s": 1e-6}}}),
    "gpu-constants-unknown.toml": gpu(calibration={"send": {"nccl": {"latency": 1e-6}}}),
    "gpu-constants-text.toml": gpu(calibration={"send": {"nccl": {"latency_s": "1us", "link_efficiency": 0.9}}}),
    "gpu-constants-zero.toml": gpu(calibration={"send": {"nccl": {"latency_s": 1e-6, "link_efficiency": 0.0}}}),
    "gpu-constants-sign.toml": gpu(calibration={"send": {"nccl": {"latency_s": -1.0, "link_efficiency": 0.9}}}),
    "gpu-constants-band.toml": gpu(
        calibration={
            "send": {"nccl": {"latency_s": 1e-6, "link_efficiency": 0.9, "fit": {"error_low": 2.0, "error_high": 1.0}}}
        }
    ),
    # engines
    "engine-cut.toml": engine_file()[:100],
    "engine-missing.toml": engine_file(tokens_per_block=...),
    "engine-unknown.toml": engine_file(speed=2),
    "engine-text.toml": engine_file(step_overhead_s="fast"),
    "engine-true.toml": engine_file(queue_factor=True),
    "engine-word.toml": engine_file(windowed_kv="yes"),
    "engine-fraction.toml": engine_file(memory_fraction=1.5),
    "engine-block.toml": engine_file(tokens_per_block=0),
    "engine-chunk.toml": engine_file(prefill_chunk=10.5),
    "engine-kernels.toml": engine_file(kernels="tgi"),
    "engine-launch.toml": engine_file(all_reduce_launch="lazy"),
    "engine-kv.toml": engine_file(quantised_kv_format="int8"),
    "engine-fused.toml": engine_file(fused_quantisation="fp8"),
    "engine-fused-format.toml": engine_file(fused_quantisation=["fp7"]),
    "engine-factor.toml": engine_file(linear_factor=1.1),
    "engine-factor-format.toml": engine_file(linear_factor={"fp7": 1.1}),
    "engine-factor-zero.toml": engine_file(linear_factor={"fp8": 0.0}),
    "engine-gpu.toml": engine_file(gpu=5),
    "engine-gpu-row.toml": engine_file(gpu={"h200-sxm": 5}),
    "engine-gpu-key.toml": engine_file(gpu={"h200-sxm": {"speed": 5}}),
    "engine-release.toml": engine_file(release=[{"version": "1"}]),
    "engine-release-date.toml": engine_file(release=[{"version": "1", "date": "soon", "gpu": {}}]),
    # measured tables: a folder each for calibrate
    "no-files/readme.txt": b"",
    "csv-empty/gemm.csv": b"",
    "csv-header/gemm.csv": GEMM.encode(),
    "csv-ragged/gemm.csv": gemm((1, 5)) + b"1,2,3\n",
    "csv-nul/gemm.csv": gemm((1, 5)) + b"\0\0\0\n",
    "csv-utf16/gemm.csv": gemm((1, 5)).decode().encode("utf-16"),
    "csv-latin/gemm.csv": gemm((1, 5)).replace(b"mine", b"m\xefne"),
    "csv-column/gemm.csv": gemm((1, 5)).replace(b"latency_us", b"latency"),
    "csv-dims/gemm.csv": gemm((1, 5)).replace(b",m,n,k,", b",rows,n,k,"),
    "csv-text/gemm.csv": gemm((1, 5), (2, "fast")),
    "csv-tokens/gemm.csv": gemm((1, 5), ("many", 6)),
    "csv-nan/gemm.csv": gemm((1, 5), (2, "nan")),
    "csv-zero/gemm.csv": gemm((1, 5), (2, 0)),
    "csv-negative/gemm.csv": gemm((1, 5), (2, -7)),
    "csv-infinite/gemm.csv": gemm((1, 5), (2, "inf")),
    "csv-shape/gemm.csv": gemm((1, 5), (-2, 7)),
    "csv-gzip/gemm.csv.gz": gemm((1, 5)),
    "csv-format/gemm.csv": gemm((1, 5)).replace(b"bfloat16", b"float7"),
    # measured points for compare
    "points-empty.csv": b"",
    "points-columns.csv": b"speed,rate\n1,2\n",
    "points-text.csv": (MEASURED + "fast,2\n").encode(),
    "points-negative.csv": (MEASURED + "-1,2\n").encode(),
    "points-infinite.csv": (MEASURED + "inf,2\n").encode(),
    "points-ragged.csv": (MEASURED + "1,2\n1,2,3,4\n").encode(),
    "points-utf16.csv": (MEASURED + "1,2\n").encode("utf-16"),
    "points-nul.csv": b"\0\0\0\0",
    # places to write
    "file": b"here already",
    "full/file": b"here already",
}


def make(folder: Path) -> None:
    """Write them all, and the links."""
    for name, content in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    (folder / "dangling").symlink_to(folder / "nowhere" / "at-all")
    (folder / "loop").symlink_to(folder / "loop")
    (folder / "loop.json").symlink_to(folder / "loop.json")
    (folder / "loop.toml").symlink_to(folder / "loop.toml")
    (folder / "directory.json").mkdir()
    (folder / "directory.toml").mkdir()
    (folder / "small.toml").write_text(STUDY)
