"""Seconds of single kernels, one file per kind, broadcasting over every argument."""

from cost_model.kernels.band import error_band
from cost_model.kernels.elementwise import elementwise
from cost_model.kernels.gemm import batched_gemm, gemm

__all__ = ["batched_gemm", "elementwise", "error_band", "gemm"]
