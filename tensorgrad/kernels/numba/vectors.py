"""The innermost loops of products, written for the processor's vector registers: no compiler makes them of plain loops.

A processor multiplies and adds as fast as it can only if it keeps a whole block of sums in its registers and uses every
number it loads several times. The two functions made here do that for one block, over rows of numbers that lie anywhere
in a buffer: row k begins at `offsets[k]`. So the windows of a convolution need not be copied side by side first.

Source: Goto, van de Geijn, "Anatomy of High-Performance Matrix Multiplication", 2008 (blocks in registers); Dukhan,
"The Indirect Convolution Algorithm", 2019 (rows by a table of places).
"""

from __future__ import annotations

import llvmlite.binding
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

_FEATURES = llvmlite.binding.get_host_cpu_features()
LANES = 16 if _FEATURES.get("avx512f") else 8 if _FEATURES.get("avx") else 4  # float32 numbers in a register
_MANY = LANES != 8 and (LANES == 16 or "neon" in _FEATURES)  # 32 registers, else 16

# Blocks that fill the registers without spilling: (rows of weights, registers of pixels), and for one row alone.
BLOCK, LINE = ((8, 3) if _MANY else (4, 3)), (1, 8)
# The same for sums over pixels: (rows, columns), and for one row alone.
DOTS, DOTS_LINE = ((4, 6) if _MANY else (3, 3)), (1, 9)

_F32, _I32, _I64 = ir.FloatType(), ir.IntType(32), ir.IntType(64)
_VECTOR = ir.VectorType(_F32, LANES)
_ZERO = ir.Constant(_VECTOR, [0.0] * LANES)


def _multiply_add(builder):
    """The function a b + c of vectors, one instruction where the processor has one."""
    kind = ir.FunctionType(_VECTOR, [_VECTOR] * 3)
    return cgutils.get_or_insert_function(builder.module, kind, f"llvm.fmuladd.v{LANES}f32")


def _pointer(context, builder, kind, array, start=None):
    data = context.make_array(kind)(context, builder, array).data
    return data if start is None else builder.gep(data, [start])


def _at(builder, pointer, index):
    return builder.gep(pointer, [ir.Constant(_I64, index) if isinstance(index, int) else index])


def _load(builder, pointer, index):
    """LANES numbers from `pointer[index]` on."""
    return builder.load(builder.bitcast(_at(builder, pointer, index), _VECTOR.as_pointer()), align=4)


def _store(builder, vector, pointer, index):
    builder.store(vector, builder.bitcast(_at(builder, pointer, index), _VECTOR.as_pointer()), align=4)


def _spread(builder, number):
    """A vector of one number."""
    empty = ir.Constant(_VECTOR, ir.Undefined)
    first = builder.insert_element(empty, number, ir.Constant(_I32, 0))
    return builder.shuffle_vector(first, empty, ir.Constant(ir.VectorType(_I32, LANES), [0] * LANES))


def _accumulate(builder, count, sums, step):
    """Runs `step(k, sums) -> sums` for k = 0 ... count - 1 (at least once), with the sums in registers."""
    before, body, after = builder.block, builder.append_basic_block("body"), builder.append_basic_block("after")
    builder.branch(body)
    builder.position_at_end(body)
    k = builder.phi(_I64)
    k.add_incoming(ir.Constant(_I64, 0), before)
    held = [builder.phi(_VECTOR) for _ in sums]
    for phi, start in zip(held, sums, strict=True):
        phi.add_incoming(start, before)
    made = step(k, held)
    following = builder.add(k, ir.Constant(_I64, 1))
    k.add_incoming(following, builder.block)
    for phi, new in zip(held, made, strict=True):
        phi.add_incoming(new, builder.block)
    builder.cbranch(builder.icmp_signed("<", following, count), body, after)
    builder.position_at_end(after)
    return made


def _products(rows: int, registers: int):
    """Makes the function that computes a block of a product with rows from a table.

    out[to + r pitch + p] = shift[s + r] + Σₖ weights[w + k rows + r] source[start + offsets[k] + p], for `rows` rows r
    and `registers` LANES pixels p, over all of `offsets` (one at least). Nothing checks bounds.
    """

    @intrinsic
    def products(typing, weights, w, source, offsets, start, shift, s, out, to, pitch):
        index = types.int64
        signature = types.void(weights, index, source, offsets, index, shift, index, out, index, index)

        def code(context, builder, signature, given):
            kinds = signature.args
            factors = _pointer(context, builder, kinds[0], given[0], given[1])
            pixels = _pointer(context, builder, kinds[2], given[2], given[4])
            table = context.make_array(kinds[3])(context, builder, given[3])
            shifts = _pointer(context, builder, kinds[5], given[5], given[6])
            target = _pointer(context, builder, kinds[7], given[7], given[8])
            fused = _multiply_add(builder)

            def step(k, sums):
                place = _at(builder, pixels, builder.load(_at(builder, table.data, k)))
                loaded = [_load(builder, place, n * LANES) for n in range(registers)]
                column = _at(builder, factors, builder.mul(k, ir.Constant(_I64, rows)))
                made = []
                for r in range(rows):
                    factor = _spread(builder, builder.load(_at(builder, column, r)))
                    for n in range(registers):
                        made.append(builder.call(fused, [factor, loaded[n], sums[r * registers + n]]))
                return made

            starts = [_spread(builder, builder.load(_at(builder, shifts, r))) for r in range(rows)]
            count = builder.extract_value(table.shape, 0)
            sums = _accumulate(builder, count, [v for v in starts for _ in range(registers)], step)
            for r in range(rows):
                row = _at(builder, target, builder.mul(given[9], ir.Constant(_I64, r)))
                for n in range(registers):
                    _store(builder, sums[r * registers + n], row, n * LANES)
            return context.get_dummy_value()

        return signature, code

    return products


def _dots(rows: int, columns: int):
    """Makes the function that computes a block of inner products with rows from a table.

    out[to + r pitch + c] += Σₚ left[start + r width + p] source[offsets[first + c] + p], for `rows` rows r and
    `columns` columns c, over `count` LANES (one at least) numbers p. Nothing checks bounds.
    """

    @intrinsic
    def dots(typing, left, start, width, source, offsets, first, count, out, to, pitch):
        index = types.int64
        signature = types.void(left, index, index, source, offsets, index, index, out, index, index)

        def code(context, builder, signature, given):
            kinds = signature.args
            lines = _pointer(context, builder, kinds[0], given[0], given[1])
            lines = [_at(builder, lines, builder.mul(given[2], ir.Constant(_I64, r))) for r in range(rows)]
            data = _pointer(context, builder, kinds[3], given[3])
            table = _pointer(context, builder, kinds[4], given[4], given[5])
            places = [_at(builder, data, builder.load(_at(builder, table, c))) for c in range(columns)]
            target = _pointer(context, builder, kinds[7], given[7], given[8])
            fused = _multiply_add(builder)

            def step(k, sums):
                at = builder.mul(k, ir.Constant(_I64, LANES))
                loaded = [_load(builder, line, at) for line in lines]
                made: list = [None] * (rows * columns)
                for c in range(columns):
                    other = _load(builder, places[c], at)
                    for r in range(rows):
                        made[r * columns + c] = builder.call(fused, [loaded[r], other, sums[r * columns + c]])
                return made

            sums = _accumulate(builder, given[6], [_ZERO] * (rows * columns), step)
            for n, total in enumerate(_totals(builder, sums)):
                place = _at(builder, target, builder.mul(given[9], ir.Constant(_I64, n // columns)))
                place = _at(builder, place, n % columns)
                builder.store(builder.fadd(builder.load(place), total), place)
            return context.get_dummy_value()

        return signature, code

    return dots


def _shuffle(builder, a, b, order):
    return builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(_I32, LANES), order))


def _totals(builder, vectors):
    """The sum of each vector's numbers: two vectors become one, then two of these, until each has one place left."""
    found = []
    for first in range(0, len(vectors), LANES):
        held = vectors[first : first + LANES]
        count = len(held)
        held = held + [_ZERO] * (LANES - count)
        part = LANES  # numbers of each vector that are left, side by side
        while part > 1:
            part //= 2
            blocks = [range(n, n + part) for n in range(0, LANES, 2 * part)]
            low = [i for block in blocks for i in block] + [i + LANES for block in blocks for i in block]
            high = [i + part for i in low]
            pairs = zip(held[::2], held[1::2], strict=True)
            held = [builder.fadd(_shuffle(builder, a, b, low), _shuffle(builder, a, b, high)) for a, b in pairs]
        found += [builder.extract_element(held[0], ir.Constant(_I32, n)) for n in range(count)]
    return found


@intrinsic
def every_other(typing, source, at, out, to, blocks):
    """out[to + i] = source[at + 2 i] for `blocks` LANES numbers i. Reads nothing else; nothing checks bounds."""
    index = types.int64
    signature = types.void(source, index, out, index, index)

    def code(context, builder, signature, given):
        data = _pointer(context, builder, signature.args[0], given[0], given[1])
        target = _pointer(context, builder, signature.args[2], given[2], given[3])
        order = [*range(0, LANES, 2), *range(LANES + 1, 2 * LANES, 2)]
        with cgutils.for_range(builder, given[4]) as loop:
            at = builder.mul(loop.index, ir.Constant(_I64, LANES))
            place = _at(builder, data, builder.mul(at, ir.Constant(_I64, 2)))
            # The second half overlaps, so that it ends with the last number that is asked for.
            halves = _load(builder, place, 0), _load(builder, place, LANES - 1)
            _store(builder, _shuffle(builder, *halves, order), target, at)
        return context.get_dummy_value()

    return signature, code


# In the module, not in a closure: Numba's cache looks at what a closure holds, and would find these new every time.
block_products, line_products = _products(*BLOCK), _products(*LINE)
block_dots, line_dots = _dots(*DOTS), _dots(*DOTS_LINE)
