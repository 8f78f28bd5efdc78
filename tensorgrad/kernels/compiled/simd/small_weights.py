"""Inner products of float32 numbers and weights of 16, 8 or 4 bits, which become float32 in registers.

Each sum consists of 16 partial sums, on every processor, whatever the size of its registers: number p is added to
partial sum p % 16, and these are added in a fixed order. So the results depend on no vector width.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import zip_longest

from tensorgrad.kernels.compiled.runtime.language import declared, intrinsic, ir, nothing, types
from tensorgrad.kernels.compiled.simd.vectors import I64, LANES, MANY, loop, pointer_at, pointer_of

PARTS = 16  # partial sums
ROWS = 8 if MANY else 4  # rows of weights at a time
INT4_ROWS = 4  # more would need more addresses, of weights and of scales, than there are registers for them

_F32, _I8, _I32 = ir.FloatType(), ir.IntType(8), ir.IntType(32)
_WIDE, _NUMBERS, _BYTES = ir.VectorType(_F32, PARTS), ir.VectorType(_I32, PARTS), ir.VectorType(_I8, PARTS)
_BITS, _HALVES = ir.VectorType(ir.IntType(16), PARTS), ir.VectorType(ir.HalfType(), PARTS)
_ZERO = ir.Constant(_WIDE, [0.0] * PARTS)


def _load(builder, pointer, kind, align):
    return builder.load(builder.bitcast(pointer, kind.as_pointer()), align=align)


def _spread(builder, number):
    empty = ir.Constant(_WIDE, ir.Undefined)
    first = builder.insert_element(empty, number, ir.Constant(_I32, 0))
    return builder.shuffle_vector(first, empty, ir.Constant(_NUMBERS, [0] * PARTS))


def _multiply_add(builder):
    return declared(builder.module, ir.FunctionType(_WIDE, [_WIDE] * 3), f"llvm.fma.v{PARTS}f32")


def _total(builder, vector):
    """The sum of the partial sums: i with i + 8, of these i with i + 4, and so on."""
    part = PARTS
    while part > 1:
        part //= 2
        order = [(n + part) % PARTS for n in range(PARTS)]
        vector = builder.fadd(vector, builder.shuffle_vector(vector, vector, ir.Constant(_NUMBERS, order)))
    return builder.extract_element(vector, ir.Constant(_I32, 0))


def _loop(builder, count, held, step):
    """Runs `step(k, held) -> held` for k = 0 ... count - 1, at least once, with vectors in registers."""
    before, body, after = builder.block, builder.append_basic_block("body"), builder.append_basic_block("after")
    builder.branch(body)
    builder.position_at_end(body)
    counter = builder.phi(I64)
    counter.add_incoming(ir.Constant(I64, 0), before)
    inside = []
    for start in held:
        inside.append(builder.phi(_WIDE))
        inside[-1].add_incoming(start, before)
    made = step(counter, inside)
    following = builder.add(counter, ir.Constant(I64, 1))
    counter.add_incoming(following, builder.block)
    for phi, new in zip(inside, made, strict=True):
        phi.add_incoming(new, builder.block)
    builder.cbranch(builder.icmp_signed("<", following, count), body, after)
    builder.position_at_end(after)
    return made


def _int8(builder, place):
    return builder.sitofp(builder.sext(_load(builder, place, _BYTES, 1), _NUMBERS), _WIDE)


def _bfloat16(builder, place):
    """They are the upper halves of float32 numbers."""
    bits = builder.zext(_load(builder, place, _BITS, 2), _NUMBERS)
    return builder.bitcast(builder.shl(bits, ir.Constant(_NUMBERS, [16] * PARTS)), _WIDE)


def _float16(builder, place):
    return builder.fpext(_load(builder, place, _HALVES, 2), _WIDE)


def _dots(wide: Callable):
    """Makes the function for weights that are stored as integers, of which `wide` loads float32 numbers."""

    @intrinsic
    def dots(typing, x, at, weights, start, pitch, count, out, to):
        """out[to + r] = Σₚ x[at + p] weights[start + r pitch + p] for ROWS rows r, over `count` PARTS numbers p.

        `count` is at least one. Nothing checks bounds.
        """
        index = types.int64
        signature = types.void(x, index, weights, index, index, index, out, index)

        def code(context, builder, signature, given):
            kinds, fused = signature.args, _multiply_add(builder)
            numbers = pointer_of(context, builder, kinds[0], given[0], given[1])
            first = pointer_of(context, builder, kinds[2], given[2], given[3])
            rows = [pointer_at(builder, first, builder.mul(given[4], ir.Constant(I64, r))) for r in range(ROWS)]

            def step(k, sums):
                place = builder.mul(k, ir.Constant(I64, PARTS))
                factor = _load(builder, pointer_at(builder, numbers, place), _WIDE, 4)
                made = []
                for row, total in zip(rows, sums, strict=True):
                    numbers_of_row = wide(builder, pointer_at(builder, row, place))
                    made.append(builder.call(fused, [factor, numbers_of_row, total]))
                return made

            sums = _loop(builder, given[5], [_ZERO] * ROWS, step)
            target = pointer_of(context, builder, kinds[6], given[6], given[7])
            for r, total in enumerate(sums):
                builder.store(_total(builder, total), pointer_at(builder, target, r))
            return nothing(context)

        return signature, code

    return dots


@intrinsic
def of_bfloat16(typing, bits):
    """The float32 number of a bfloat16, which is given as uint16."""

    def code(context, builder, signature, given):
        return builder.bitcast(builder.shl(builder.zext(given[0], _I32), ir.Constant(_I32, 16)), _F32)

    return types.float32(bits), code


@intrinsic
def of_float16(typing, bits):
    """The float32 number of a float16, which is given as uint16."""

    def code(context, builder, signature, given):
        return builder.fpext(builder.bitcast(given[0], ir.HalfType()), _F32)

    return types.float32(bits), code


@intrinsic
def to_bfloat16(typing, number):
    """The nearest bfloat16 as uint16: the even one of two that are equally near; a nan has the bits 7fc0 and a sign."""

    def code(context, builder, signature, given):
        bits = builder.bitcast(given[0], _I32)
        number = lambda value: ir.Constant(_I32, value)
        odd = builder.and_(builder.lshr(bits, number(16)), number(1))
        rounded = builder.lshr(builder.add(bits, builder.add(odd, number(0x7FFF))), number(16))
        sign = builder.or_(builder.and_(builder.lshr(bits, number(16)), number(0x8000)), number(0x7FC0))
        none = builder.fcmp_unordered("uno", given[0], given[0])
        return builder.trunc(builder.select(none, sign, rounded), ir.IntType(16))

    return types.uint16(number), code


@intrinsic
def to_float16(typing, number):
    """The nearest float16 as uint16: the even one of two that are equally near."""

    def code(context, builder, signature, given):
        return builder.bitcast(builder.fptrunc(given[0], ir.HalfType()), ir.IntType(16))

    return types.uint16(number), code


def _looked_up(builder, both):
    """A register of 16 numbers is a table of all of them; an instruction looks up the lower four bits of 16 places."""
    table = ir.Constant(_WIDE, [float(n - 8) for n in range(PARTS)])
    kind = ir.FunctionType(_WIDE, [_WIDE, _NUMBERS])
    look_up = declared(builder.module, kind, "llvm.x86.avx512.permvar.sf.512")
    both = builder.zext(both, _NUMBERS)
    upper = builder.lshr(both, ir.Constant(_NUMBERS, [4] * PARTS))
    return builder.call(look_up, [table, both]), builder.call(look_up, [table, upper])


def _converted(builder, both):
    four, low, eight = (ir.Constant(_BYTES, [number] * PARTS) for number in (4, 15, 8))
    parts = builder.and_(both, low), builder.lshr(both, four)
    return tuple(builder.sitofp(builder.sext(builder.sub(part, eight), _NUMBERS), _WIDE) for part in parts)


def _int4(builder, place):
    """The lower and the upper halves of 16 bytes, less 8, as float32 numbers."""
    both = _load(builder, place, _BYTES, 1)
    return _looked_up(builder, both) if LANES == PARTS else _converted(builder, both)


def _int4_dots(with_zeros: bool):
    """Makes the function for weights of 4 bits, with or without zeros."""

    @intrinsic
    def int4_dots(
        typing, x, at, packed, start, pitch, groups, blocks, scales, s, s_pitch, zeros, of_groups, g, out, to
    ):
        """out[to + r] = Σ over groups of scale Σₚ x[at + p] (q - 8) + zero Σₚ x[at + p], for INT4_ROWS rows r.

        A group has `blocks` blocks of 32 weights. `of_groups[g + 16 n + i]` holds the sums of x over group n for the
        partial sum i. Nothing checks bounds.
        """
        index = types.int64
        signature = types.void(x, index, packed, index, index, index, index, scales, index, index, zeros, of_groups,
                               index, out, index)  # fmt: skip

        def code(context, builder, signature, given):
            kinds, fused = signature.args, _multiply_add(builder)
            numbers = pointer_of(context, builder, kinds[0], given[0], given[1])

            def rows_of(position, begin, pitch):
                first = pointer_of(context, builder, kinds[position], given[position], begin)
                return [pointer_at(builder, first, builder.mul(pitch, ir.Constant(I64, r))) for r in range(INT4_ROWS)]

            rows, factors = rows_of(2, given[3], given[4]), rows_of(7, given[8], given[9])
            added = rows_of(10, given[8], given[9]) if with_zeros else []
            sums_of_groups = pointer_of(context, builder, kinds[11], given[11], given[12]) if with_zeros else None

            def block(n, sums=()):
                place = pointer_at(builder, numbers, builder.mul(n, ir.Constant(I64, 2 * PARTS)))
                first = _load(builder, place, _WIDE, 4)
                second = _load(builder, pointer_at(builder, place, PARTS), _WIDE, 4)
                made = []
                for row, total in zip_longest(rows, sums):
                    here = pointer_at(builder, row, builder.mul(n, ir.Constant(I64, PARTS)))
                    low, high = _int4(builder, here)
                    total = builder.call(fused, [first, low, total]) if sums else builder.fmul(first, low)
                    made.append(builder.call(fused, [second, high, total]))
                return made

            def group(n, totals):
                begin = builder.mul(n, given[6])
                sums = block(begin)
                step = lambda k, sums: block(builder.add(begin, k), sums)
                _, sums = loop(builder, ir.Constant(I64, 1), given[6], 1, sums, step)
                made = []
                for r, (total, one) in enumerate(zip(totals, sums, strict=True)):
                    scale = _spread(builder, builder.load(pointer_at(builder, factors[r], n)))
                    total = builder.call(fused, [scale, one, total])
                    if with_zeros:
                        zero = _spread(builder, builder.load(pointer_at(builder, added[r], n)))
                        place = pointer_at(builder, sums_of_groups, builder.mul(n, ir.Constant(I64, PARTS)))
                        total = builder.call(fused, [zero, _load(builder, place, _WIDE, 4), total])
                    made.append(total)
                return made

            totals = _loop(builder, given[5], [_ZERO] * INT4_ROWS, group)
            target = pointer_of(context, builder, kinds[13], given[13], given[14])
            for r, total in enumerate(totals):
                builder.store(_total(builder, total), pointer_at(builder, target, r))
            return nothing(context)

        return signature, code

    return int4_dots


# In the module, not in a closure: Numba's cache inspects what a closure holds, and would find these new every time.
int8_dots, bfloat16_dots = _dots(_int8), _dots(_bfloat16)
float16_dots = _dots(_float16)
int4_dots, int4_dots_with_zeros = _int4_dots(False), _int4_dots(True)
