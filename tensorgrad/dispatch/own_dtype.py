"""Pointwise ops that store their result in its own dtype only, where others cast it to that of `out=`."""

from __future__ import annotations

from tensorgrad.dtypes import SPOKEN
from tensorgrad.tensor import Tensor

# What PyTorch says of another dtype.
_NO_CAST = {
    **dict.fromkeys(
        ("abs", "bitwise_not", "ceil", "conj_physical", "floor", "frac", "hardshrink", "neg", "round", "sgn", "sign",
         "trunc"), "Found dtype {out} but expected {result}"
    ),
    **dict.fromkeys(("isneginf", "isposinf", "signbit"), "{name} does not support non-boolean outputs."),
    "float_power": "the output given to {name} has dtype {out} but the operation's result requires dtype {result}",
    "heaviside": "{name} is not yet implemented for tensors with different dtypes.",
    "nan_to_num": "{name}: dtype of out: {out} should be same as input: {result}",
}  # fmt: skip


def check_own_dtype(name: str, out: Tensor, result: Tensor, inputs: tuple) -> None:
    """Raises: RuntimeError if `out` has another dtype than the op of this name can write."""
    wanted = result.dtype
    if name == "abs" and inputs and inputs[0].dtype.is_complex:  # PyTorch's kernel has complex numbers for it first
        wanted = inputs[0].dtype if out.dtype.is_complex else out.dtype
    if name in _NO_CAST and out.dtype is not wanted:
        have, want = SPOKEN[out.dtype.name], SPOKEN[wanted.name]
        raise RuntimeError(_NO_CAST[name].format(name=name, out=have, result=want))
