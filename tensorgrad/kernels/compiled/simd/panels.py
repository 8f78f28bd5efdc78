"""Small matrix products inside compiled loops, of rows anywhere in memory.

Attention and recurrent layers multiply tiles that were just computed and are in the cache. Each block of the result
stays in registers while the sum runs, as in vectors.py. Nothing checks bounds: see `along` and `across` for what is
accessed.
"""

from __future__ import annotations

import numpy as np

from tensorgrad.kernels.compiled.runtime.language import array_at, inner, intrinsic, ir, nothing, truth, types
from tensorgrad.kernels.compiled.simd.vectors import (
    I64,
    LANES,
    MANY,
    VECTOR,
    ZERO_VECTOR,
    accumulate,
    carry,
    load_vector,
    multiply_add,
    pointer_at,
    pointer_of,
    spread_out,
    store_vector,
    turn,
)  # fmt: skip

# Rows of a block, by its number of registers: together with the loaded operands they use exactly all registers.
_ROWS = {4: 6, 3: 8, 2: 12, 1: 12} if MANY else {3: 4, 2: 6, 1: 8}
WIDEST = max(_ROWS)
PAD = 12  # extra rows that a result may need beyond its own
EVEN = 24  # a multiple of every block's rows
_BESIDE = 8  # rows that are copied together


@intrinsic
def flat(typing, x):
    """Views an array's memory from its first element on, as one row without an end."""
    kind = types.Array(x.dtype, 1, "C")

    def code(context, builder, signature, given):
        size, itemsize = ir.Constant(I64, 1 << 40), ir.Constant(I64, x.dtype.bitwidth // 8)
        data = pointer_of(context, builder, signature.args[0], given[0])
        return array_at(context, builder, kind, data, [size], [itemsize], itemsize)

    return kind(x), code


def _block(registers: int, along: bool):
    """Makes the function that sums one block: the innermost part of `along` and `across`."""
    rows = _ROWS[registers]

    @intrinsic
    def block(typing, a, at, stride, last, b, start, b_pitch, count, out, to, pitch, fresh):
        index = types.int64
        signature = types.void(a, index, index, index, b, index, index, index, out, index, index, types.boolean)

        def code(context, builder, signature, given):
            kinds = signature.args
            factors = pointer_of(context, builder, kinds[0], given[0], given[1])
            right = pointer_of(context, builder, kinds[4], given[4], given[5])
            target = pointer_of(context, builder, kinds[8], given[8], given[9])
            fused = multiply_add(builder)
            lines = [pointer_at(builder, target, builder.mul(given[10], ir.Constant(I64, r))) for r in range(rows)]
            if along:
                left = [pointer_at(builder, factors, r) for r in range(rows)]
            else:
                left = []
                for r in range(rows):
                    row = ir.Constant(I64, r)
                    row = builder.select(builder.icmp_signed("<", row, given[3]), row, given[3])
                    left.append(pointer_at(builder, factors, builder.mul(given[2], row)))

            def step(k, sums):
                place = pointer_at(builder, right, builder.mul(k, given[6]))
                loaded = [load_vector(builder, place, n * LANES) for n in range(registers)]
                here = builder.mul(k, given[2]) if along else k
                made = []
                for r in range(rows):
                    factor = spread_out(builder, builder.load(pointer_at(builder, left[r], here)))
                    for n in range(registers):
                        made.append(builder.call(fused, [factor, loaded[n], sums[r * registers + n]]))
                return made

            with builder.if_else(truth(builder, given[11])) as (new, old):
                with new:
                    zeros = [ZERO_VECTOR] * (rows * registers)
                    after_new = builder.block
                with old:
                    held = [load_vector(builder, line, n * LANES) for line in lines for n in range(registers)]
                    after_old = builder.block
            starts = []
            for zero, kept in zip(zeros, held, strict=True):
                phi = builder.phi(VECTOR)
                phi.add_incoming(zero, after_new)
                phi.add_incoming(kept, after_old)
                starts.append(phi)
            sums = accumulate(builder, given[7], starts, step)
            for n, total in enumerate(sums):
                store_vector(builder, total, lines[n // registers], n % registers * LANES)
            return nothing(context)

        return signature, code

    return block


# In the module, not in a closure: Numba's cache inspects what a closure holds, and would find these new every time.
_along1, _along2, _along3 = _block(1, True), _block(2, True), _block(3, True)
_across1, _across2, _across3 = _block(1, False), _block(2, False), _block(3, False)
_along4, _across4 = (_block(4, True), _block(4, False)) if MANY else (_along3, _across3)
_ROWS1, _ROWS2, _ROWS3, _ROWS4 = _ROWS[1], _ROWS[2], _ROWS[3], _ROWS.get(4, 0)


@inner
def _registers(left, rows):
    """Returns the next block's width in registers, with `left` to do, so that few rows and registers are wasted."""
    if _ROWS4:
        if left > 4 and (left <= 6 or left == 9 or -rows % _ROWS3 < -rows % _ROWS4):
            return 3
        return left if left <= 4 else 4
    return left if left <= 3 else 2 if left == 4 else 3


@inner
def along(a, at, stride, b, start, b_pitch, count, out, to, pitch, fresh, rows, width):
    """out[to + r pitch + p] = Σₖ a[at + k stride + r] b[start + k b_pitch + p], added to `out` unless `fresh`.

    For r < rows and p < width (a multiple of LANES), over k < count, all at least 1. The arrays are flat, or only start
    where the numbers begin. Up to PAD - 1 more rows of `out` are written, and as many numbers after `a`'s rows are
    read.
    """
    p = 0
    while p < width:
        n = _registers((width - p) // LANES, rows)
        if n == 4:
            for r in range(0, rows, _ROWS4):
                _along4(a, at + r, stride, 0, b, start + p, b_pitch, count, out, to + r * pitch + p, pitch, fresh)
        elif n == 3:
            for r in range(0, rows, _ROWS3):
                _along3(a, at + r, stride, 0, b, start + p, b_pitch, count, out, to + r * pitch + p, pitch, fresh)
        elif n == 2:
            for r in range(0, rows, _ROWS2):
                _along2(a, at + r, stride, 0, b, start + p, b_pitch, count, out, to + r * pitch + p, pitch, fresh)
        else:
            for r in range(0, rows, _ROWS1):
                _along1(a, at + r, stride, 0, b, start + p, b_pitch, count, out, to + r * pitch + p, pitch, fresh)
        p += n * LANES


@inner
def across(a, at, stride, b, start, b_pitch, count, out, to, pitch, fresh, rows, width):
    """out[to + r pitch + p] = Σₖ a[at + r stride + k] b[start + k b_pitch + p], added to `out` unless `fresh`.

    Like `along`, but nothing is read beyond `a`'s rows.
    """
    p = 0
    while p < width:
        n = _registers((width - p) // LANES, rows)
        if n == 4:
            for r in range(0, rows, _ROWS4):
                _across4(a, at + r * stride, stride, rows - 1 - r, b, start + p, b_pitch, count, out,
                         to + r * pitch + p, pitch, fresh)  # fmt: skip
        elif n == 3:
            for r in range(0, rows, _ROWS3):
                _across3(a, at + r * stride, stride, rows - 1 - r, b, start + p, b_pitch, count, out,
                         to + r * pitch + p, pitch, fresh)  # fmt: skip
        elif n == 2:
            for r in range(0, rows, _ROWS2):
                _across2(a, at + r * stride, stride, rows - 1 - r, b, start + p, b_pitch, count, out,
                         to + r * pitch + p, pitch, fresh)  # fmt: skip
        else:
            for r in range(0, rows, _ROWS1):
                _across1(a, at + r * stride, stride, rows - 1 - r, b, start + p, b_pitch, count, out,
                         to + r * pitch + p, pitch, fresh)  # fmt: skip
        p += n * LANES


@inner
def into_panels(source, at, lane_step, step, lanes, depth, out, goal):
    """Copies source[at + lane · lane_step + k · step] into panels out[goal + (lane / LANES, k, lane % LANES)].

    One of the steps is 1. Lanes beyond the last hold another lane's numbers.
    """
    whole = lanes // LANES
    if lane_step == 1:  # several rows at a time, from one panel to the next: adjacent in memory
        for k in range(0, depth, _BESIDE):
            count = min(_BESIDE, depth - k)
            for panel in range(whole):
                to = goal + (panel * depth + k) * LANES
                carry(source, at + panel * LANES + k * step, step, out, to, LANES, count)
    for panel in range(whole if lane_step == 1 else 0, -(-lanes // LANES)):
        here, to = at + panel * LANES * lane_step, goal + panel * depth * LANES
        present = min(LANES, lanes - panel * LANES)
        if step == 1 and depth >= LANES:
            for k in range(0, depth, LANES):
                k = min(k, depth - LANES)
                turn(source, here + k, lane_step, present, out, to + k * LANES, LANES, LANES)
        else:
            for k in range(depth):
                for i in range(LANES):
                    i = min(i, present - 1)
                    out[np.uint64(to + k * LANES + i)] = source[np.uint64(here + i * lane_step + k * step)]
