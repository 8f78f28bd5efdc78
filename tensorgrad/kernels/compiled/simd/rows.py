"""Weighted sums of rows of a matrix, in vector registers.

Of rows anywhere in it: a row of a sparse matrix times a dense matrix. Of rows that follow each other: a few rows times
a matrix.
"""

from __future__ import annotations

from tensorgrad.kernels.compiled.runtime.language import counted, intrinsic, ir, nothing, types
from tensorgrad.kernels.compiled.simd.vectors import (
    I64,
    LANES,
    MANY,
    ZERO_VECTOR,
    accumulate,
    fetch,
    load_vector,
    multiply_add,
    pointer_at,
    pointer_of,
    spread_out,
    store_vector,
)  # fmt: skip

AHEAD = 16  # elements


def _weighted(registers: int):
    """Makes the function that sums some columns of two rows at a time.

    out[to + p] = Σₖ values[begin + k] b[places[begin + k] width + column + p] for `registers` LANES columns p, over k <
    2 pairs (at least one pair). Even and odd k have sums of their own, since each addition waits for the one before.
    The rows of the elements that are AHEAD are fetched into the cache meanwhile; `last` is the largest k in `places`.
    Nothing checks bounds.
    """

    @intrinsic
    def weighted(typing, b, width, column, places, values, begin, pairs, last, out, to):
        index = types.int64
        signature = types.void(b, index, index, places, values, index, index, index, out, index)

        def code(context, builder, signature, given):
            kinds = signature.args
            data = pointer_of(context, builder, kinds[0], given[0], given[2])
            table = pointer_of(context, builder, kinds[3], given[3], given[5])
            factors = pointer_of(context, builder, kinds[4], given[4], given[5])
            target = pointer_of(context, builder, kinds[8], given[8], given[9])
            fused = multiply_add(builder)

            def row_of(k):
                return pointer_at(builder, data, builder.mul(builder.load(pointer_at(builder, table, k)), given[1]))

            def step(pair, sums):
                made = []
                for which in range(2):
                    k = builder.add(builder.mul(pair, ir.Constant(I64, 2)), ir.Constant(I64, which))
                    row, later = row_of(k), builder.add(k, ir.Constant(I64, AHEAD))
                    later = builder.select(builder.icmp_signed("<", later, given[7]), later, given[7])
                    fetch(builder, row_of(later), registers)
                    factor = spread_out(builder, builder.load(pointer_at(builder, factors, k)))
                    for n in range(registers):
                        loaded = load_vector(builder, row, n * LANES)
                        made.append(builder.call(fused, [factor, loaded, sums[which * registers + n]]))
                return made

            sums = accumulate(builder, given[6], [ZERO_VECTOR] * (2 * registers), step)
            for n in range(registers):
                store_vector(builder, builder.fadd(sums[n], sums[registers + n]), target, n * LANES)
            return nothing(context)

        return signature, code

    return weighted


def _added(rows: int, deep: int, ahead: bool):
    """Makes the function that adds weighted sums of `deep` rows to `rows` rows.

    out[to + r pitch + i] += Σⱼ factors[f + r step + j] source[at + j apart + i] for j < `deep` and `blocks` LANES i.
    `ahead`: the `deep` rows after these are fetched into the cache meanwhile. Nothing checks bounds.
    """

    @intrinsic
    def added(typing, factors, f, step, source, at, apart, out, to, pitch, blocks):
        index = types.int64
        signature = types.void(factors, index, index, source, index, index, out, index, index, index)

        def code(context, builder, signature, given):
            kinds = signature.args
            numbers = pointer_of(context, builder, kinds[0], given[0], given[1])
            data = pointer_of(context, builder, kinds[3], given[3], given[4])
            target = pointer_of(context, builder, kinds[6], given[6], given[7])
            fused = multiply_add(builder)

            def each(pointer, apart, count):
                return [pointer_at(builder, pointer, builder.mul(apart, ir.Constant(I64, n))) for n in range(count)]

            spread = [
                [spread_out(builder, builder.load(pointer_at(builder, line, j))) for j in range(deep)]
                for line in each(numbers, given[2], rows)
            ]
            lines, targets = each(data, given[5], deep), each(target, given[8], rows)
            beyond = builder.mul(given[5], ir.Constant(I64, deep))
            with counted(builder, given[9]) as n:
                place = builder.mul(n, ir.Constant(I64, LANES))
                sums = [load_vector(builder, to, place) for to in targets]
                for j, line in enumerate(lines):
                    if ahead:
                        fetch(builder, pointer_at(builder, line, builder.add(place, beyond)), 1)
                    loaded = load_vector(builder, line, place)
                    sums = [builder.call(fused, [spread[r][j], loaded, sums[r]]) for r in range(rows)]
                for total, to in zip(sums, targets, strict=True):
                    store_vector(builder, total, to, place)
            return nothing(context)

        return signature, code

    return added


weighted_1, weighted_4 = _weighted(1), _weighted(4)
DEEP = 8 if MANY else 4  # rows at a time: their factors for two rows stay in registers
added_2 = _added(2, DEEP, False)
last_1, last_2 = _added(1, DEEP, True), _added(2, DEEP, True)
