"""Sums of rows and of lines, in vector registers that are loaded from whole cache lines.

The C library's blocks begin at any multiple of 16 bytes, and a register that is loaded from two cache lines takes as
long as two. So vectors begin where a cache line does; the numbers before and after them are loaded under a mask.
Results do not depend on where an array begins: a number's register and lane turn with the address, and registers, then
lanes, are added to those opposite, so that the same numbers are added wherever the circle begins.
"""

from __future__ import annotations

from tensorgrad.kernels.compiled.runtime.language import declared, inner, intrinsic, ir, nothing, types
from tensorgrad.kernels.compiled.simd.vectors import (
    I64,
    LANES,
    PARTS,
    VECTOR,
    ZERO_VECTOR,
    fetch,
    load_vector,
    loop,
    multiply_add,
    pointer_at,
    pointer_of,
    shuffle,
    store_vector,
)

_WIDTH = 4 * PARTS  # partial sums of a row, at every level: additions wait for those before them
_REGISTERS = _WIDTH // LANES  # that hold them
_WIDE = 4  # registers of adjacent columns: of more, lines far apart would push each other out of the first cache
_I32, _MASK = ir.IntType(32), ir.VectorType(ir.IntType(1), LANES)
_INDICES = ir.Constant(ir.VectorType(_I32, LANES), list(range(LANES)))


def _number(n):
    return ir.Constant(I64, n)


def below(builder, count):
    """Returns the mask of the lanes before `count`, which fits 32 bits."""
    kind, count = _INDICES.type, builder.trunc(count, _I32)
    first = builder.insert_element(ir.Constant(kind, ir.Undefined), count, ir.Constant(_I32, 0))
    order = ir.Constant(ir.VectorType(_I32, LANES), [0] * LANES)
    return builder.icmp_signed("<", _INDICES, builder.shuffle_vector(first, first, order))


def load_some(builder, pointer, mask):
    """Loads the lanes under a mask, and zeros. Nothing else is read."""
    place = builder.bitcast(pointer, VECTOR.as_pointer())
    kind = ir.FunctionType(VECTOR, [place.type, _I32, _MASK, VECTOR])
    load = declared(builder.module, kind, f"llvm.masked.load.v{LANES}f32.p0")
    return builder.call(load, [place, ir.Constant(_I32, 4), mask, ZERO_VECTOR])


def store_some(builder, vector, pointer, mask):
    place = builder.bitcast(pointer, VECTOR.as_pointer())
    kind = ir.FunctionType(ir.VoidType(), [VECTOR, place.type, _I32, _MASK])
    store = declared(builder.module, kind, f"llvm.masked.store.v{LANES}f32.p0")
    builder.call(store, [vector, place, ir.Constant(_I32, 4), mask])


def _ahead(builder, pointer):
    """Returns how many numbers come before the next address that is a multiple of a register's size."""
    at = builder.lshr(builder.ptrtoint(pointer, I64), _number(2))
    return builder.and_(builder.sub(_number(0), at), _number(LANES - 1))


def _row(square: bool):
    @intrinsic
    def total(typing, x, at, count):
        """Returns the sum of x[at] ... x[at + count - 1], or of their squares."""

        def code(context, builder, signature, given):
            start, count = pointer_of(context, builder, signature.args[0], given[0], given[1]), given[2]
            with builder.goto_entry_block():
                held = [builder.alloca(VECTOR) for _ in range(_REGISTERS)]
            fused = multiply_add(builder)

            def add(r, vector):
                so_far = builder.load(held[r])
                more = builder.call(fused, [vector, vector, so_far]) if square else builder.fadd(so_far, vector)
                builder.store(more, held[r])

            for slot in held:
                builder.store(ZERO_VECTOR, slot)
            short = builder.icmp_signed("<", count, _number(_WIDTH))
            ahead = builder.select(short, _number(0), _ahead(builder, start))
            with builder.if_then(builder.icmp_signed(">", ahead, _number(0))):
                skipped = builder.sub(_number(LANES), ahead)
                mask = builder.not_(below(builder, skipped))
                add(_REGISTERS - 1, load_some(builder, pointer_at(builder, start, builder.neg(skipped)), mask))
            first, rest = pointer_at(builder, start, ahead), builder.sub(count, ahead)
            whole = builder.and_(rest, _number(-_WIDTH))

            def lines(k, values):
                for r in range(_REGISTERS):
                    add(r, load_vector(builder, pointer_at(builder, first, k), r * LANES))
                return values

            loop(builder, _number(0), whole, _WIDTH, [], lines)
            left = builder.sub(rest, whole)
            for r in range(_REGISTERS):
                here = builder.sub(left, _number(r * LANES))
                with builder.if_then(builder.icmp_signed(">", here, _number(0))):
                    place = pointer_at(builder, pointer_at(builder, first, whole), r * LANES)
                    add(r, load_some(builder, place, below(builder, here)))
            sums = [builder.load(slot) for slot in held]
            while len(sums) > 1:
                half = len(sums) // 2
                sums = [builder.fadd(a, b) for a, b in zip(sums[:half], sums[half:], strict=True)]
            [last], part = sums, LANES
            while part > 1:
                part //= 2
                last = builder.fadd(last, shuffle(builder, last, last, [(n + part) % LANES for n in range(LANES)]))
            return builder.extract_element(last, ir.Constant(_I32, 0))

        return types.float32(x, types.int64, types.int64), code

    return total


def _lines(square: bool, registers: int, some: bool = False):
    @intrinsic
    def block(typing, x, at, count, step, out, to, width):
        """Adds up `count` lines that are `step` apart: columns from `at` on, four lines at a time.

        There are so many `registers` of columns, or if `some`, `width` (at most LANES).
        """
        index = types.int64
        signature = types.void(x, index, index, index, out, index, index)

        def code(context, builder, signature, given):
            start = pointer_of(context, builder, signature.args[0], given[0], given[1])
            target = pointer_of(context, builder, signature.args[4], given[4], given[5])
            count, step, fused = given[2], given[3], multiply_add(builder)
            mask = below(builder, given[6]) if some else None

            def loaded(line):
                place = pointer_at(builder, start, builder.mul(line, step))
                if some:
                    return [load_some(builder, place, mask)]
                return [load_vector(builder, place, r * LANES) for r in range(registers)]

            def squares(a, b=None):
                if not square:
                    return a if b is None else builder.fadd(a, b)
                return builder.call(fused, [a, a, ZERO_VECTOR if b is None else builder.fmul(b, b)])

            def four(line, sums):
                if registers > 1:  # the next lines' columns may be far away
                    for n in range(4, 8):
                        ahead = builder.mul(builder.add(line, _number(n)), step)
                        fetch(builder, pointer_at(builder, start, ahead), registers)
                rows = [loaded(builder.add(line, _number(n))) for n in range(4)]
                pairs = [[squares(a, b) for a, b in zip(*rows[n : n + 2], strict=True)] for n in (0, 2)]
                together = [builder.fadd(a, b) for a, b in zip(*pairs, strict=True)]
                return [builder.fadd(a, b) for a, b in zip(sums, together, strict=True)]

            def one(line, sums):
                return [builder.fadd(a, squares(b)) for a, b in zip(sums, loaded(line), strict=True)]

            fours = builder.and_(count, _number(-4))
            _, sums = loop(builder, _number(0), fours, 4, [ZERO_VECTOR] * registers, four)
            _, sums = loop(builder, fours, count, 1, sums, one)
            for r, vector in enumerate(sums):
                if some:
                    store_some(builder, vector, target, mask)
                else:
                    store_vector(builder, vector, target, r * LANES)
            return nothing(context)

        return signature, code

    return block


@intrinsic
def _before_line(typing, x, at):
    """Returns how many numbers from x[at] on come before a cache line (or a register's size, if that is less)."""

    def code(context, builder, signature, given):
        return _ahead(builder, pointer_of(context, builder, signature.args[0], given[0], given[1]))

    return types.int64(x, types.int64), code


def _sum_of_lines(square: bool):
    wide, narrow, some = _lines(square, _WIDE), _lines(square, 1), _lines(square, 1, True)

    @inner
    def lines(to, x, at, count, step):
        """Sets `to` to the sum of `count` lines, `step` apart, that begin at x[at]."""
        c, width = min(_before_line(x, at), to.size), to.size
        if c:
            some(x, at, count, step, to, 0, c)
        while c + _WIDE * LANES <= width:
            wide(x, at + c, count, step, to, c, 0)
            c += _WIDE * LANES
        while c + LANES <= width:
            narrow(x, at + c, count, step, to, c, 0)
            c += LANES
        if c < width:
            some(x, at + c, count, step, to, c, width - c)

    return lines


# row(x, at, count) and lines(to, x, at, count, step), and the same for squares.
row, row_of_squares = _row(False), _row(True)
lines, lines_of_squares = _sum_of_lines(False), _sum_of_lines(True)
