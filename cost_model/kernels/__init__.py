"""Seconds of single kernels, one file per kind, broadcasting over every argument."""

from cost_model.kernels.all_to_all import all_to_all
from cost_model.kernels.attention import attention_decode, attention_prefill
from cost_model.kernels.band import difference_error, error_band
from cost_model.kernels.collectives import all_gather, all_reduce, reduce_scatter, send
from cost_model.kernels.elementwise import elementwise
from cost_model.kernels.experts import experts
from cost_model.kernels.gemm import batched_gemm, gemm, modelled_shape
from cost_model.kernels.mla import mla_decode, mla_prefill
from cost_model.kernels.routing import activated_experts

__all__ = [
    "activated_experts",
    "all_gather",
    "all_reduce",
    "all_to_all",
    "attention_decode",
    "attention_prefill",
    "batched_gemm",
    "difference_error",
    "elementwise",
    "error_band",
    "experts",
    "gemm",
    "mla_decode",
    "mla_prefill",
    "modelled_shape",
    "reduce_scatter",
    "send",
]
