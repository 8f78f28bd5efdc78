"""exp of whole vector registers, with an instruction of AVX-512 that compilers do not choose by themselves.

It multiplies by a power of two (scalef), rounding results that have fewer digits, and overflowing, as it must: 12
operations do what 18 do without it. Elsewhere the scalar function serves (functions.py), with the same sources.
Error: 0.9 units of the last place.
"""

from __future__ import annotations

from typing import Any

from tensorgrad.kernels.compiled.functions import F, exp_factor
from tensorgrad.kernels.compiled.runtime import target
from tensorgrad.kernels.compiled.runtime.language import counted, declared, intrinsic, ir, length_of, nothing, types
from tensorgrad.kernels.compiled.simd.sums import below, load_some, store_some
from tensorgrad.kernels.compiled.simd.vectors import (
    I64,
    LANES,
    VECTOR,
    ZERO_VECTOR,
    load_vector,
    multiply_add,
    pointer_at,
    pointer_of,
    store_vector,
)  # fmt: skip

_I16, _I32 = ir.IntType(16), ir.IntType(32)
_BESIDE = 2  # registers whose operations take turns, as each waits for the one before it
_ROUNDING = 12582912.0  # 1.5·2²³: added to a number below 2²², it rounds it to a whole number
_LOWEST = -104.0  # eˣ is 0 below


def _all(number):
    return ir.Constant(VECTOR, [float(number)] * LANES)


def _times_power(builder, x, n):
    """x 2ⁿ."""
    rest = ZERO_VECTOR, ir.Constant(_I16, -1), ir.Constant(_I32, 4)  # all lanes; the current mode of rounding
    kind = ir.FunctionType(VECTOR, [VECTOR, VECTOR, *[value.type for value in rest]])
    return builder.call(declared(builder.module, kind, "llvm.x86.avx512.mask.scalef.ps.512"), [x, n, *rest])


def _exp(builder, x):
    """eˣ; nan stays nan.

    Far above the largest x with a finite result, the remainder r is a rounding error of any size. But the polynomial
    has no root, so it is positive, and the result is inf all the same.
    """
    fused, low, rounding = multiply_add(builder), _all(_LOWEST), _all(_ROUNDING)
    y = builder.select(builder.fcmp_ordered("<", x, low), low, x)

    def fma(*given):
        return builder.call(fused, [_all(number) if isinstance(number, float | F) else number for number in given])

    p, z = exp_factor(fma, builder.fsub, y, rounding)
    return _times_power(builder, p, builder.fsub(z, rounding))


def _each(function):
    """Makes the function that sets to[i] = function(x[i]) for all of `to`, which may be the same memory as x."""

    @intrinsic
    def each(typing, x, to):
        def code(context, builder, signature, given):
            source = pointer_of(context, builder, signature.args[0], given[0])
            target = pointer_of(context, builder, signature.args[1], given[1])
            size, step = length_of(context, builder, signature.args[1], given[1]), ir.Constant(I64, _BESIDE * LANES)
            with counted(builder, builder.sdiv(size, step)) as n:
                at = builder.mul(n, step)
                held = [load_vector(builder, pointer_at(builder, source, at), k * LANES) for k in range(_BESIDE)]
                for k, vector in enumerate([function(builder, vector) for vector in held]):
                    store_vector(builder, vector, pointer_at(builder, target, at), k * LANES)
            left = builder.srem(size, step)
            at = builder.sub(size, left)
            for k in range(_BESIDE):
                more = builder.sub(left, ir.Constant(I64, k * LANES))
                with builder.if_then(builder.icmp_signed(">", more, ir.Constant(I64, 0))):
                    mask, place = below(builder, more), builder.add(at, ir.Constant(I64, k * LANES))
                    vector = load_some(builder, pointer_at(builder, source, place), mask)
                    store_some(builder, function(builder, vector), pointer_at(builder, target, place), mask)
            return nothing(context)

        return types.void(x, to), code

    return each


# exp(x, to); None where the processor lacks the instruction.
exp: Any = _each(_exp) if target.current().lanes == 16 else None
