"""The innermost loops of products, written for vector registers: compilers do not derive them from plain loops.

A processor multiplies and adds at full speed only if it keeps a whole block of sums in its registers and uses every
number it loads several times. The two functions made here do that for one block, over rows of numbers anywhere in a
buffer: row k begins at `offsets[k]`. So the windows of a convolution need not be copied side by side first.

Source: Goto, van de Geijn, "Anatomy of High-Performance Matrix Multiplication", 2008 (blocks in registers); Dukhan,
"The Indirect Convolution Algorithm", 2019 (rows through a table of offsets).
"""

from __future__ import annotations

import numpy as np

from tensorgrad.kernels.compiled.runtime import target
from tensorgrad.kernels.compiled.runtime.language import (
    counted,
    data_of,
    declared,
    intrinsic,
    ir,
    length_of,
    nothing,
    types,
)

LANES = target.current().lanes  # float32 numbers per register
MANY = target.current().registers == 32  # else 16
# Partial sums of a sum over numbers that are side by side. It is the same at every level, and so are the results.
# What decides how a result is computed uses it, too, instead of LANES.
PARTS = 16

# Blocks that fill the registers without spilling: (rows of weights, registers of pixels), and for one row alone.
BLOCK, LINE = ((8, 3) if MANY else (4, 3)), (1, 8)
# The rows of a block of `runs_2` and `runs_3`, which are named for their number of registers; `runs_1` has LANES.
ROWS = min(LANES, 8 if MANY else 4)
# The same for sums over pixels: (rows, columns), and for one row alone.
_HELD = PARTS // LANES  # registers of each sum
DOTS, DOTS_LINE = ((4, 6), (1, 9)) if _HELD == 1 else ((3, 2), (1, 6))
DOTS_PAIR = (2, 12 if _HELD == 1 else 3)  # for two rows

# For the arguments of compiled functions: Numba compiles a function again for each plain number passed to it.
NO, ONE, TWO = np.int64(0), np.int64(1), np.int64(2)
LAST = np.int64(LANES - 1)  # the last row of any block

_F32, _I32, I64 = ir.FloatType(), ir.IntType(32), ir.IntType(64)
VECTOR = ir.VectorType(_F32, LANES)
_NUMBERS = ir.VectorType(ir.IntType(8), LANES)
BYTES = ir.IntType(8).as_pointer()
ZERO_VECTOR = ir.Constant(VECTOR, [0.0] * LANES)


def multiply_add(builder):
    """Returns the function a b + c of vectors, rounded once: one instruction at every level."""
    kind = ir.FunctionType(VECTOR, [VECTOR] * 3)
    return declared(builder.module, kind, f"llvm.fma.v{LANES}f32")


def pointer_of(context, builder, kind, array, start=None):
    data = data_of(context, builder, kind, array)
    return data if start is None else builder.gep(data, [start])


def pointer_at(builder, pointer, index):
    return builder.gep(pointer, [ir.Constant(I64, index) if isinstance(index, int) else index])


def fetch(builder, pointer, registers: int = 1, write: bool = False) -> None:
    """Asks for LANES numbers from `pointer` on, for each of `registers`, to be in the cache soon.

    `write`: a later store writes to them (a result's memory is rarely in a cache).
    """
    kind = ir.FunctionType(ir.VoidType(), [BYTES, _I32, _I32, _I32])
    function = declared(builder.module, kind, "llvm.prefetch.p0")
    for n in range(registers):
        place = builder.bitcast(pointer_at(builder, pointer, n * LANES), BYTES)
        builder.call(function, [place, *(ir.Constant(_I32, v) for v in (int(write), 3, 1))])  # to keep, data


def load_vector(builder, pointer, index):
    """Loads LANES numbers from `pointer[index]` on."""
    return builder.load(builder.bitcast(pointer_at(builder, pointer, index), VECTOR.as_pointer()), align=4)


def store_vector(builder, vector, pointer, index):
    builder.store(vector, builder.bitcast(pointer_at(builder, pointer, index), VECTOR.as_pointer()), align=4)


def spread_out(builder, number):
    """Makes a vector that repeats one number."""
    empty = ir.Constant(VECTOR, ir.Undefined)
    first = builder.insert_element(empty, number, ir.Constant(_I32, 0))
    return builder.shuffle_vector(first, empty, ir.Constant(ir.VectorType(_I32, LANES), [0] * LANES))


def accumulate(builder, count, sums, step, moving=()):
    """Runs `step(k, sums) -> sums` for k = 0 ... count - 1 (at least once), with the sums in registers.

    With `moving`, numbers that are added to at each step, it is `step(*places, sums)`: places[i] = k moving[i].
    """
    before, body, after = builder.block, builder.append_basic_block("body"), builder.append_basic_block("after")
    builder.branch(body)
    builder.position_at_end(body)
    counters = []
    for _ in (count, *moving):
        counters.append(builder.phi(I64))
        counters[-1].add_incoming(ir.Constant(I64, 0), before)
    held = [builder.phi(VECTOR) for _ in sums]
    for phi, start in zip(held, sums, strict=True):
        phi.add_incoming(start, before)
    made = step(*(counters[1:] or counters), held)
    following = [builder.add(k, by) for k, by in zip(counters, (ir.Constant(I64, 1), *moving), strict=True)]
    for k, new in zip(counters, following, strict=True):
        k.add_incoming(new, builder.block)
    for phi, new in zip(held, made, strict=True):
        phi.add_incoming(new, builder.block)
    builder.cbranch(builder.icmp_signed("<", following[0], count), body, after)
    builder.position_at_end(after)
    return made


def loop(builder, begin, end, pace, held, more):
    """Runs `more(k, values) -> values` for k = begin, begin + pace, … below `end`, with the values in registers.

    Returns what k is then, and the values. (`accumulate` is for loops that run at least once.)
    """
    before, head = builder.block, builder.append_basic_block("head")
    body, after = builder.append_basic_block("body"), builder.append_basic_block("after")
    builder.branch(head)
    builder.position_at_end(head)
    k, values = builder.phi(I64), [builder.phi(first.type) for first in held]
    for phi, first in zip([k, *values], [begin, *held], strict=True):
        phi.add_incoming(first, before)
    builder.cbranch(builder.icmp_signed("<", k, end), body, after)
    builder.position_at_end(body)
    made = more(k, values)
    for phi, new in zip([k, *values], [builder.add(k, ir.Constant(I64, pace)), *made], strict=True):
        phi.add_incoming(new, builder.block)
    builder.branch(head)
    builder.position_at_end(after)
    return k, values


def _products(rows: int, registers: int):
    """Makes the function that computes a block of a product with rows from a table.

    out[to + r pitch + p] = shift[s + r] + Σₖ weights[w + k step + r apart] source[start + offsets[k] + p], for `rows`
    rows r and `registers` LANES pixels p, over all of `offsets` (at least one). Nothing checks bounds.
    """

    @intrinsic
    def products(typing, weights, w, step, apart, source, offsets, start, shift, s, out, to, pitch):
        index = types.int64
        signature = types.void(weights, index, index, index, source, offsets, index, shift, index, out, index, index)

        def code(context, builder, signature, given):
            kinds = signature.args
            factors = pointer_of(context, builder, kinds[0], given[0], given[1])
            factors = [pointer_at(builder, factors, builder.mul(given[3], ir.Constant(I64, r))) for r in range(rows)]
            pixels = pointer_of(context, builder, kinds[4], given[4], given[6])
            table, count = (
                pointer_of(context, builder, kinds[5], given[5]),
                length_of(context, builder, kinds[5], given[5]),
            )
            shifts = pointer_of(context, builder, kinds[7], given[7], given[8])
            target = pointer_of(context, builder, kinds[9], given[9], given[10])
            fused = multiply_add(builder)

            def step_of(k, sums):
                place = pointer_at(builder, pixels, builder.load(pointer_at(builder, table, k)))
                loaded = [load_vector(builder, place, n * LANES) for n in range(registers)]
                column = builder.mul(k, given[2])
                made = []
                for r in range(rows):
                    factor = spread_out(builder, builder.load(pointer_at(builder, factors[r], column)))
                    for n in range(registers):
                        made.append(builder.call(fused, [factor, loaded[n], sums[r * registers + n]]))
                return made

            starts = [spread_out(builder, builder.load(pointer_at(builder, shifts, r))) for r in range(rows)]
            sums = accumulate(builder, count, [v for v in starts for _ in range(registers)], step_of)
            for r in range(rows):
                row = pointer_at(builder, target, builder.mul(given[11], ir.Constant(I64, r)))
                for n in range(registers):
                    store_vector(builder, sums[r * registers + n], row, n * LANES)
            return nothing(context)

        return signature, code

    return products


def _dots(rows: int, columns: int):
    """Makes the function that computes a block of inner products with rows from a table.

    out[to + r pitch + c] += Σₚ left[start + r width + p] source[offsets[first + c] + p], for `rows` rows r and
    `columns` columns c, over `count` PARTS (at least one) numbers p. Nothing checks bounds.
    """

    @intrinsic
    def dots(typing, left, start, width, source, offsets, first, count, out, to, pitch):
        index = types.int64
        signature = types.void(left, index, index, source, offsets, index, index, out, index, index)

        def code(context, builder, signature, given):
            kinds = signature.args
            lines = pointer_of(context, builder, kinds[0], given[0], given[1])
            lines = [pointer_at(builder, lines, builder.mul(given[2], ir.Constant(I64, r))) for r in range(rows)]
            data = pointer_of(context, builder, kinds[3], given[3])
            table = pointer_of(context, builder, kinds[4], given[4], given[5])
            places = [pointer_at(builder, data, builder.load(pointer_at(builder, table, c))) for c in range(columns)]
            target = pointer_of(context, builder, kinds[7], given[7], given[8])
            fused = multiply_add(builder)

            def step(k, sums):
                made: list = [None] * len(sums)
                for part in range(_HELD):
                    at = builder.add(builder.mul(k, ir.Constant(I64, PARTS)), ir.Constant(I64, part * LANES))
                    loaded = [load_vector(builder, line, at) for line in lines]
                    for c in range(columns):
                        other = load_vector(builder, places[c], at)
                        for r in range(rows):
                            n = (part * rows + r) * columns + c
                            made[n] = builder.call(fused, [loaded[r], other, sums[n]])
                return made

            sums = accumulate(builder, given[6], [ZERO_VECTOR] * (_HELD * rows * columns), step)
            while len(sums) > rows * columns:
                half = len(sums) // 2
                sums = [builder.fadd(a, b) for a, b in zip(sums[:half], sums[half:], strict=True)]
            for n, total in enumerate(_totals(builder, sums)):
                place = pointer_at(builder, target, builder.mul(given[9], ir.Constant(I64, n // columns)))
                place = pointer_at(builder, place, n % columns)
                builder.store(builder.fadd(builder.load(place), total), place)
            return nothing(context)

        return signature, code

    return dots


def shuffle(builder, a, b, order):
    return builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(_I32, LANES), order))


def _totals(builder, vectors):
    """Sums each vector's numbers: two vectors become one, then two of these, until each has one lane left."""
    found = []
    for first in range(0, len(vectors), LANES):
        held = vectors[first : first + LANES]
        count = len(held)
        held = held + [ZERO_VECTOR] * (LANES - count)
        part = LANES  # numbers of each vector that are left, side by side
        while part > 1:
            part //= 2
            blocks = [range(n, n + part) for n in range(0, LANES, 2 * part)]
            low = [i for block in blocks for i in block] + [i + LANES for block in blocks for i in block]
            high = [i + part for i in low]
            pairs = zip(held[::2], held[1::2], strict=True)
            held = [builder.fadd(shuffle(builder, a, b, low), shuffle(builder, a, b, high)) for a, b in pairs]
        found += [builder.extract_element(held[0], ir.Constant(_I32, n)) for n in range(count)]
    return found


@intrinsic
def largest(typing, row, count):
    """Returns the largest of row[0] ... row[count - 1], at least LANES of them; any number if one is nan."""

    def code(context, builder, signature, given):
        data = pointer_of(context, builder, signature.args[0], given[0])
        last = load_vector(builder, data, builder.sub(given[1], ir.Constant(I64, LANES)))  # overlaps the one before it

        def larger(a, b):
            return builder.select(builder.fcmp_ordered(">", a, b), a, b)

        def step(k, held):
            return [larger(held[0], load_vector(builder, data, builder.mul(k, ir.Constant(I64, LANES))))]

        [held] = accumulate(builder, builder.sdiv(given[1], ir.Constant(I64, LANES)), [last], step)
        part = LANES
        while part > 1:
            part //= 2
            held = larger(held, shuffle(builder, held, held, [(n + part) % LANES for n in range(LANES)]))
        return builder.extract_element(held, ir.Constant(_I32, 0))

    return types.float32(row, types.int64), code


def _runs(rows: int, registers: int):
    """Makes the function that computes a block of a product whose inner dimension consists of runs.

    out[to + r pitch + n beside + p] = first + Σ over runs (a, b, count) of Σₖ left[w + a + k step + r row] ·
    right[start + b + k pace + n apart + p], for `rows` rows r, `registers` n and LANES lanes p, over the runs `begin`
    ... `end` - 1 (at least one, none empty). `first` is shift[s + r], or if s is negative, held[h + r held_pitch + n
    beside + p]. Of `left` only the rows up to `last` are read, that one again for those beyond. Nothing checks bounds.
    """

    @intrinsic
    def runs(
        typing, left, w, step, row, last, right, start, pace, apart, table, begin, end, shift, s, held, h, held_pitch,
        out, to, pitch, beside
    ):  # fmt: skip
        index = types.int64
        signature = types.void(
            left, index, index, index, index, right, index, index, index, table, index, index, shift, index, held,
            index, index, out, index, index, index,
        )  # fmt: skip

        def code(context, builder, signature, given):
            kinds = signature.args
            factors = pointer_of(context, builder, kinds[0], given[0], given[1])
            lanes = pointer_of(context, builder, kinds[5], given[5], given[6])
            entries = pointer_of(context, builder, kinds[9], given[9], builder.mul(given[10], ir.Constant(I64, 3)))
            shifts = pointer_of(context, builder, kinds[12], given[12])
            begun = pointer_of(context, builder, kinds[14], given[14], given[15])
            target = pointer_of(context, builder, kinds[17], given[17], given[18])
            fused = multiply_add(builder)
            steps = [builder.mul(given[8], ir.Constant(I64, n)) for n in range(registers)]
            lines = []
            for r in range(rows):
                line = ir.Constant(I64, r)
                line = builder.select(builder.icmp_signed("<", line, given[4]), line, given[4])
                lines.append(builder.mul(line, given[3]))

            def places_of(pitch):
                return [
                    builder.add(builder.mul(pitch, ir.Constant(I64, r)), builder.mul(given[20], ir.Constant(I64, n)))
                    for r in range(rows)
                    for n in range(registers)
                ]

            places = places_of(given[19])

            for place in places:
                fetch(builder, pointer_at(builder, target, place), write=True)

            def run(j, sums):
                entry = pointer_at(builder, entries, builder.mul(j, ir.Constant(I64, 3)))
                column = pointer_at(builder, factors, builder.load(entry))
                numbers = [pointer_at(builder, column, line) for line in lines]
                row = pointer_at(builder, lanes, builder.load(pointer_at(builder, entry, 1)))

                def step_of(at, along, held):
                    place = pointer_at(builder, row, along)
                    loaded = [load_vector(builder, place, n) for n in steps]
                    made = []
                    for r in range(rows):
                        factor = spread_out(builder, builder.load(pointer_at(builder, numbers[r], at)))
                        for n in range(registers):
                            made.append(builder.call(fused, [factor, loaded[n], held[r * registers + n]]))
                    return made

                count = builder.load(pointer_at(builder, entry, 2))
                return accumulate(builder, count, sums, step_of, (given[2], given[7]))

            anew = builder.icmp_signed(">=", given[13], ir.Constant(I64, 0))
            starts = []
            with builder.if_else(anew) as (yes, no):
                with yes:
                    spread = [
                        spread_out(
                            builder,
                            builder.load(pointer_at(builder, shifts, builder.add(given[13], ir.Constant(I64, r)))),
                        )
                        for r in range(rows)
                    ]
                    from_shift = builder.block
                with no:
                    held = [load_vector(builder, begun, place) for place in places_of(given[16])]
                    from_held = builder.block
            for n, old in enumerate(held):
                phi = builder.phi(VECTOR)
                phi.add_incoming(spread[n // registers], from_shift)
                phi.add_incoming(old, from_held)
                starts.append(phi)
            sums = accumulate(builder, builder.sub(given[11], given[10]), starts, run)
            for place, total in zip(places, sums, strict=True):
                store_vector(builder, total, target, place)
            return nothing(context)

        return signature, code

    return runs


def transposed(builder, held):
    """Transposes LANES registers."""
    part = 1
    while part < LANES:  # swaps blocks of `part` numbers between rows `part` apart
        low = [i if not i & part else i - part + LANES for i in range(LANES)]
        high = [i + part if not i & part else i + LANES for i in range(LANES)]
        new = list(held)
        for i in range(LANES):
            if not i & part:
                new[i] = shuffle(builder, held[i], held[i + part], low)
                new[i + part] = shuffle(builder, held[i], held[i + part], high)
        held, part = new, part * 2
    return held


def rows_of(builder, count, apart):
    """Yields where LANES rows begin that are `apart`: of `count` rows, and the last one again for those beyond."""
    last = builder.sub(count, ir.Constant(I64, 1))
    for i in range(LANES):
        here = ir.Constant(I64, i)
        here = builder.select(builder.icmp_signed("<", here, last), here, last)
        yield builder.mul(here, apart)


@intrinsic
def turn(typing, source, at, apart, present, out, to, step, kept):
    """Transposes LANES x LANES numbers: out[to + j step + i] = source[at + i apart + j].

    Only `present` of the rows i are read (the last one again for those beyond), only `kept` of the rows j are written.
    Nothing checks bounds.
    """
    index = types.int64
    signature = types.void(source, index, index, index, out, index, index, index)

    def code(context, builder, signature, given):
        data = pointer_of(context, builder, signature.args[0], given[0], given[1])
        target = pointer_of(context, builder, signature.args[4], given[4], given[5])
        held = [load_vector(builder, data, row) for row in rows_of(builder, given[3], given[2])]
        held = transposed(builder, held)
        # In reverse, so that of rows written to the same address the intended one is last.
        for vector, row in reversed(list(zip(held, rows_of(builder, given[7], given[6]), strict=True))):
            store_vector(builder, vector, target, row)
        return nothing(context)

    return signature, code


@intrinsic
def carry(typing, source, at, apart, out, to, step, count):
    """out[to + n step + i] = source[at + n apart + i] for LANES i and `count` n. Nothing checks bounds."""
    index = types.int64
    signature = types.void(source, index, index, out, index, index, index)

    def code(context, builder, signature, given):
        data = pointer_of(context, builder, signature.args[0], given[0], given[1])
        target = pointer_of(context, builder, signature.args[3], given[3], given[4])
        with counted(builder, given[6]) as n:
            vector = load_vector(builder, data, builder.mul(n, given[2]))
            store_vector(builder, vector, target, builder.mul(n, given[5]))
        return nothing(context)

    return signature, code


def _largest_of_four(asked: bool):
    """Makes the function that finds the largest of each 2x2 points of two rows, and with `asked` also its number."""

    @intrinsic
    def largest_of_four(typing, source, top, bottom, out, places, to):
        """Finds the largest of each 2x2 points of two rows that begin at `top` and `bottom`, for LANES of them.

        out[to + j] is the largest, places[to + j] its number among the four (uint8). Of equal values the first wins,
        of several nan the last. Nothing checks bounds.
        """
        index = types.int64
        signature = types.void(source, index, index, out, places, index)

        def code(context, builder, signature, given):
            best, at = _best_of_four(context, builder, signature.args[0], given)
            target = pointer_of(context, builder, signature.args[3], given[3])
            store_vector(builder, best, target, given[5])
            if asked:
                goal = pointer_at(builder, pointer_of(context, builder, signature.args[4], given[4]), given[5])
                builder.store(builder.trunc(at, _NUMBERS), builder.bitcast(goal, _NUMBERS.as_pointer()), align=1)
            return nothing(context)

        return signature, code

    return largest_of_four


def _best_of_four(context, builder, kind, given):
    """Returns the largest of the four values, and its number."""
    flags = ir.VectorType(_I32, LANES)
    best = at = None
    for row, start in enumerate(given[1:3]):
        data = pointer_of(context, builder, kind, given[0], start)
        halves = load_vector(builder, data, 0), load_vector(builder, data, LANES)
        for column in range(2):
            values = shuffle(builder, *halves, list(range(column, 2 * LANES, 2)))
            if best is None:
                best, at = values, ir.Constant(flags, [0] * LANES)
                continue
            larger = builder.fcmp_unordered(">", values, best)  # also true for nan
            number = builder.fcmp_ordered("ord", values, values)
            kept = builder.and_(number, builder.fcmp_unordered("uno", best, best))
            better = builder.and_(larger, builder.not_(kept))
            best = builder.select(better, values, best)
            at = builder.select(better, ir.Constant(flags, [2 * row + column] * LANES), at)
    return best, at


# In the module, not in a closure: Numba's cache inspects what a closure holds, and would find these new every time.
block_products, line_products = _products(*BLOCK), _products(*LINE)
block_products_2, block_products_1 = _products(BLOCK[0], 2), _products(BLOCK[0], 1)
block_dots, line_dots, pair_dots = _dots(*DOTS), _dots(*DOTS_LINE), _dots(*DOTS_PAIR)
largest_of_four, largest_of_four_only = _largest_of_four(True), _largest_of_four(False)
# One register of four rows would wait for each sum: a processor starts eight before the first is done.
runs_1, runs_2, runs_3 = _runs(LANES, 1), _runs(ROWS, 2), _runs(ROWS, 3)
WIDE_ROWS = 6  # the rows of a block of four registers, where there are enough for it
runs_4 = _runs(WIDE_ROWS, 4) if MANY else runs_3
