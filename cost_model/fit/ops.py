"""The measured operations that calibration and benchmarks know, one `Op` per module of this folder."""

from cost_model.fit.all_to_all import ALL_TO_ALL
from cost_model.fit.attention import DECODE, PREFILL
from cost_model.fit.collectives import ALL_REDUCE, NCCL
from cost_model.fit.common import Op
from cost_model.fit.experts import EXPERTS
from cost_model.fit.gemm import GEMM
from cost_model.fit.mla import MLA_DECODE, MLA_PREFILL

OPS: tuple[Op, ...] = (GEMM, ALL_REDUCE, NCCL, ALL_TO_ALL, EXPERTS, PREFILL, DECODE, MLA_PREFILL, MLA_DECODE)


def chosen(names: list[str] | None) -> tuple[Op, ...]:
    """The operations named, or all of them.

    Raises:
        ValueError: unknown name, with the valid ones.
    """
    known = {op.name: op for op in OPS}
    for name in names or ():
        if name not in known:
            raise ValueError(f"unknown operation {name!r}; valid: {', '.join(known)}")
    return tuple(op for op in OPS if not names or op.name in names)
