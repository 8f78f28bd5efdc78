"""Gradients of the maxima of 2x2 windows, a register of windows at a time: the inverse of `largest_of_four`."""

from __future__ import annotations

from tensorgrad.kernels.compiled.runtime.language import intrinsic, ir, nothing, types
from tensorgrad.kernels.compiled.simd.vectors import (
    LANES,
    ZERO_VECTOR,
    load_vector,
    pointer_at,
    pointer_of,
    shuffle,
    store_vector,
)  # fmt: skip

_I32 = ir.IntType(32)
_FLAGS = ir.VectorType(_I32, LANES)
_NUMBERS = ir.VectorType(ir.IntType(8), LANES)
_INTERLEAVED = [n // 2 + n % 2 * LANES for n in range(2 * LANES)]


@intrinsic
def spread_to_four(typing, slopes, maxima, places, at, count, to, top, bottom):
    """Writes slopes[at + j] to the place of the maximum of window j, places[at + j], if that maximum is not ≤ 0.

    The windows' rows begin at `top` and `bottom`; all their other numbers become 0. For j < `count`; others of the
    LANES windows that are written are 0. A slope of -0.0 becomes 0.0, as if it were added to 0. Nothing checks bounds.
    """
    index = types.int64
    signature = types.void(slopes, maxima, places, index, index, to, index, index)

    def code(context, builder, signature, given):
        kinds = signature.args
        values = load_vector(builder, pointer_of(context, builder, kinds[0], given[0]), given[3])
        held = load_vector(builder, pointer_of(context, builder, kinds[1], given[1]), given[3])
        source = pointer_at(builder, pointer_of(context, builder, kinds[2], given[2]), given[3])
        numbers = builder.load(builder.bitcast(source, _NUMBERS.as_pointer()), align=1)
        numbers = builder.zext(numbers, _FLAGS)
        one = builder.insert_element(
            ir.Constant(_FLAGS, ir.Undefined), builder.trunc(given[4], _I32), ir.Constant(_I32, 0)
        )
        limit = builder.shuffle_vector(one, one, ir.Constant(_FLAGS, [0] * LANES))
        wanted = builder.icmp_signed("<", ir.Constant(_FLAGS, list(range(LANES))), limit)
        wanted = builder.and_(wanted, builder.fcmp_unordered(">", held, ZERO_VECTOR))  # also true for nan
        values = builder.select(wanted, builder.fadd(ZERO_VECTOR, values), ZERO_VECTOR)
        target = pointer_of(context, builder, kinds[5], given[5])
        for row, start in enumerate(given[6:8]):
            left, right = (
                builder.select(
                    builder.icmp_signed("==", numbers, ir.Constant(_FLAGS, [2 * row + column] * LANES)), values,
                    ZERO_VECTOR,
                )
                for column in range(2)
            )  # fmt: skip
            for half in range(2):
                part = shuffle(builder, left, right, _INTERLEAVED[half * LANES : (half + 1) * LANES])
                store_vector(builder, part, target, builder.add(start, ir.Constant(start.type, half * LANES)))
        return nothing(context)

    return signature, code
