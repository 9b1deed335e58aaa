"""Seconds of a kernel that only moves memory: norms, residual additions, rotary embedding, activation functions."""

from __future__ import annotations

from typing import Any

import numpy as np

from cost_model.accelerator import Accelerator


def elementwise(gpu: Accelerator, bytes: Any) -> Any:
    """Seconds to read and write `bytes` in one kernel: bandwidth above a launch floor.

    Floor and transfer overlap only in part, so they add (as for the activation-quantisation kernel of GEMMs).
    """
    constants = gpu.calibration.at("elementwise", "bf16")
    bandwidth = constants.memory_efficiency * gpu.memory_bytes_per_s
    return constants.overhead_s + np.asarray(bytes, dtype=float) / bandwidth
