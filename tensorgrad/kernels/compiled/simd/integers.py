"""Inner products of integers of 16 and 8 bits, exact in 32 bits, and the largest and least of float32 numbers.

One instruction of x86 multiplies integers of 16 bits and adds each two products; elsewhere LLVM finds one that
multiplies and adds. Sums of integers are the same in any order.
"""

from __future__ import annotations

from tensorgrad.kernels.compiled.runtime import target
from tensorgrad.kernels.compiled.runtime.language import declared, intrinsic, ir, nothing, types
from tensorgrad.kernels.compiled.simd.vectors import (
    I64,
    LANES,
    MANY,
    ZERO_VECTOR,
    accumulate,
    load_vector,
    loop,
    pointer_at,
    pointer_of,
    shuffle,
)

STEP = 2 * LANES  # integers of 16 bits in a register
COLUMNS = 8  # rows of weights at a time for one row of numbers
BLOCK = ((4 if MANY else 2), 4)  # rows of numbers and of weights of a block that fills the registers

_F32, _I32 = ir.FloatType(), ir.IntType(32)
_SUMS = ir.VectorType(_I32, LANES)
_NONE = ir.Constant(_SUMS, [0] * LANES)
_SHORT, _SMALL = ir.VectorType(ir.IntType(16), STEP), ir.VectorType(ir.IntType(8), STEP)
_PAIRS = {16: "llvm.x86.avx512.pmaddw.d.512", 8: "llvm.x86.avx2.pmadd.wd"}


def _load(builder, pointer, kind, align):
    return builder.load(builder.bitcast(pointer, kind.as_pointer()), align=align)


def _part(builder, vector, places):
    return builder.shuffle_vector(vector, vector, ir.Constant(ir.VectorType(_I32, len(places)), places))


def _products(builder, a, b):
    """The sums of each two products of integers of 16 bits."""
    if target.current().machine == "x86_64":
        kind = ir.FunctionType(_SUMS, [_SHORT] * 2)
        return builder.call(declared(builder.module, kind, _PAIRS[LANES]), [a, b])
    halves = [list(range(LANES)), list(range(LANES, STEP))]
    parts = [[builder.sext(_part(builder, v, places), _SUMS) for v in (a, b)] for places in halves]
    return builder.add(*(builder.mul(*pair) for pair in parts))


def _totals(builder, sums):
    """The sum of each vector, in their order, LANES of them in a vector."""
    found = []
    for first in range(0, len(sums), LANES):
        held, part = list(sums[first : first + LANES]), LANES
        held += [_NONE] * (LANES - len(held))
        while part > 1:
            part //= 2
            blocks = [range(n, n + part) for n in range(0, LANES, 2 * part)]
            low = [i for block in blocks for i in block] + [i + LANES for block in blocks for i in block]
            pairs = zip(held[::2], held[1::2], strict=True)
            held = [
                builder.add(shuffle(builder, a, b, low), shuffle(builder, a, b, [i + part for i in low]))
                for a, b in pairs
            ]
        found += held
    return found


def _dots(rows: int, columns: int, exact: bool):
    """Makes the function that computes a block of a product; `exact`: the sums as they are, else as numbers."""

    @intrinsic
    def dots(typing, x, at, pitch, last, w, start, depth, steps, factors, bias, biased, n, out, to, out_pitch):
        """out[to + r out_pitch + c] = Σₖ x[at + r pitch + k] w[start + c depth + k], for `rows` r and `columns` c.

        Unless exact, it is multiplied with factors[n + c], and if `biased` bias[n + c] is added. A row of weights has
        at least STEP integers. Rows of x have `steps` STEP integers: in the last STEP, those that the others contain
        are 0. Only the rows of x up to `last` are read, the last one again for those beyond, whose results take its
        place. Nothing checks bounds.
        """
        index = types.int64
        signature = types.void(x, index, index, index, w, index, index, index, factors, bias, index, index, out, index,
                               index)  # fmt: skip

        def code(context, builder, signature, given):
            kinds = signature.args
            lines = []
            for r in range(rows):
                line = ir.Constant(I64, r)
                lines.append(builder.select(builder.icmp_signed("<", line, given[3]), line, given[3]))
            numbers = pointer_of(context, builder, kinds[0], given[0], given[1])
            numbers = [pointer_at(builder, numbers, builder.mul(line, given[2])) for line in lines]
            weights = pointer_of(context, builder, kinds[4], given[4], given[5])
            weights = [pointer_at(builder, weights, builder.mul(given[6], ir.Constant(I64, c))) for c in range(columns)]
            end = builder.sub(given[6], ir.Constant(I64, STEP))

            def step(k, sums):
                place = builder.mul(k, ir.Constant(I64, STEP))
                there = builder.select(builder.icmp_signed("<", place, end), place, end)
                left = [_load(builder, pointer_at(builder, row, place), _SHORT, 2) for row in numbers]
                made = list(sums)
                for c, row in enumerate(weights):
                    right = builder.sext(_load(builder, pointer_at(builder, row, there), _SMALL, 1), _SHORT)
                    for r in range(rows):
                        here = r * columns + c
                        made[here] = builder.add(made[here], _products(builder, left[r], right))
                return made

            _, sums = loop(builder, ir.Constant(I64, 0), given[7], 1, [_NONE] * (rows * columns), step)
            totals, width = _totals(builder, sums), min(columns, LANES)
            kind = ir.VectorType(_F32, width)
            factor = pointer_of(context, builder, kinds[8], given[8], given[11])
            added = pointer_of(context, builder, kinds[9], given[9], given[11])
            has_bias = builder.icmp_signed("!=", given[10], ir.Constant(I64, 0))
            added = builder.select(has_bias, added, factor)  # something that may be read
            goal = pointer_of(context, builder, kinds[12], given[12], given[13])
            for first in range(0, rows * columns, width):
                row, column = divmod(first, columns)
                found = _part(builder, totals[first // LANES], [first % LANES + i for i in range(width)])
                if not exact:
                    found = builder.fmul(
                        builder.sitofp(found, kind), _load(builder, pointer_at(builder, factor, column), kind, 4)
                    )
                    shifted = builder.fadd(found, _load(builder, pointer_at(builder, added, column), kind, 4))
                    found = builder.select(has_bias, shifted, found)
                place = pointer_at(builder, goal, builder.mul(lines[row], given[14]))
                place = pointer_at(builder, place, column)
                builder.store(found, builder.bitcast(place, found.type.as_pointer()), align=4)
            return nothing(context)

        return signature, code

    return dots


@intrinsic
def extremes(typing, row, count, out):
    """out = the largest and the least of `count` numbers, at least LANES of them; nan twice if one is not finite."""

    def code(context, builder, signature, given):
        data = pointer_of(context, builder, signature.args[0], given[0])
        end = builder.sub(given[1], ir.Constant(I64, LANES))
        zero = ir.Constant(_F32, 0.0)

        def more(held, numbers):
            high, low, doubt = held
            high = builder.select(builder.fcmp_ordered(">", numbers, high), numbers, high)
            low = builder.select(builder.fcmp_ordered("<", numbers, low), numbers, low)
            return [high, low, builder.fadd(doubt, builder.fmul(numbers, ZERO_VECTOR))]

        def step(k, held):
            return more(held, load_vector(builder, data, builder.mul(k, ir.Constant(I64, LANES))))

        last = load_vector(builder, data, end)  # overlaps the one before it
        begun = [last, last, builder.fmul(last, ZERO_VECTOR)]
        high, low, doubt = accumulate(builder, builder.sdiv(given[1], ir.Constant(I64, LANES)), begun, step)
        part = LANES
        while part > 1:
            part //= 2
            order = [(n + part) % LANES for n in range(LANES)]
            turned = [shuffle(builder, v, v, order) for v in (high, low, doubt)]
            high = builder.select(builder.fcmp_ordered(">", high, turned[0]), high, turned[0])
            low = builder.select(builder.fcmp_ordered("<", low, turned[1]), low, turned[1])
            doubt = builder.fadd(doubt, turned[2])
        goal = pointer_of(context, builder, signature.args[2], given[2])
        first = ir.Constant(_I32, 0)
        doubt = builder.extract_element(doubt, first)
        for n, vector in enumerate((high, low)):
            found = builder.extract_element(vector, first)
            found = builder.select(builder.fcmp_ordered("==", doubt, zero), found, doubt)
            builder.store(found, pointer_at(builder, goal, n))
        return nothing(context)

    return types.void(row, types.int64, out), code


# In the module, not in a closure: Numba's cache inspects what a closure holds, and would find these new every time.
row_sums, block_sums = _dots(1, COLUMNS, True), _dots(*BLOCK, True)
row_numbers, block_numbers = _dots(1, COLUMNS, False), _dots(*BLOCK, False)
