"""Inner products of float32 numbers and weights of 16, 8 or 4 bits, which become float32 in registers.

Each sum consists of 16 partial sums, on every processor, whatever the size of its registers: number p is added to
partial sum p % 16, and these are added in a fixed order. So the results depend on no vector width.
"""

from __future__ import annotations

from collections.abc import Callable

from tensorgrad.kernels.compiled.runtime.language import declared, inner, intrinsic, ir, nothing, types
from tensorgrad.kernels.compiled.simd.vectors import I64, LANES, MANY, loop, pointer_at, pointer_of

PARTS = 16  # partial sums
ROWS = 8 if MANY else 4  # rows of weights at a time
INT4_ROWS = 4  # more would need more addresses, of weights and of scales, than there are registers for them
FOUR, TWO = 4, 2  # rows of numbers for which weights that are in registers are used
_HELD = 16 if MANY else 4  # sums in registers, at most

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


def _dots(wide: Callable, lines: int):
    """Makes the function for weights that are stored as integers, of which `wide` loads float32 numbers."""
    held = min(ROWS, _HELD // lines)

    @intrinsic
    def dots(typing, x, at, width, weights, start, pitch, count, out, to):
        """out[to + m ROWS + r] = Σₚ x[at + m width + p] weights[start + r pitch + p], over `count` PARTS numbers p.

        For `lines` rows m and ROWS rows r, a few of these after the others. `count` is at least one. Nothing checks
        bounds.
        """
        index = types.int64
        signature = types.void(x, index, index, weights, index, index, index, out, index)

        def code(context, builder, signature, given):
            kinds, fused = signature.args, _multiply_add(builder)
            numbers = _rows_from(builder, pointer_of(context, builder, kinds[0], given[0], given[1]), given[2], lines)
            first = pointer_of(context, builder, kinds[3], given[3], given[4])
            target = pointer_of(context, builder, kinds[7], given[7], given[8])
            all_rows = _rows_from(builder, first, given[5], ROWS)
            for begin in range(0, ROWS, held):
                rows = all_rows[begin : begin + held]

                def step(k, sums, rows=rows):
                    place = builder.mul(k, ir.Constant(I64, PARTS))
                    factors = [_load(builder, pointer_at(builder, line, place), _WIDE, 4) for line in numbers]
                    made = []
                    for r, row in enumerate(rows):
                        weights_of_row = wide(builder, pointer_at(builder, row, place))
                        for m, factor in enumerate(factors):
                            made.append(builder.call(fused, [factor, weights_of_row, sums[r * lines + m]]))
                    return made

                sums = _loop(builder, given[6], [_ZERO] * (held * lines), step)
                for n, total in enumerate(sums):
                    place = n % lines * ROWS + begin + n // lines
                    builder.store(_total(builder, total), pointer_at(builder, target, place))
            return nothing(context)

        return signature, code

    return dots


def _rows_from(builder, pointer, pitch, count: int) -> list:
    """Where `count` rows begin that are `pitch` apart."""
    return [pointer_at(builder, pointer, builder.mul(pitch, ir.Constant(I64, r))) for r in range(count)]


def _few(wide: Callable):
    """Makes the function for a few rows of numbers: weights become float32 once for four of these, or for two."""
    one, two, four = _dots(wide, 1), _dots(wide, TWO), _dots(wide, FOUR)

    @inner
    def few(x, rows, depth, w, start, count, sums):
        """Computes sums[m ROWS + r] = Σₚ x[m depth + p] w[start + r depth + p] for `rows` rows m, and ROWS rows r."""
        m = 0
        while m + FOUR <= rows:
            four(x, m * depth, depth, w, start, depth, count, sums, m * ROWS)
            m += FOUR
        while m + TWO <= rows:
            two(x, m * depth, depth, w, start, depth, count, sums, m * ROWS)
            m += TWO
        if m < rows:
            one(x, m * depth, depth, w, start, depth, count, sums, m * ROWS)

    return few


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


def _int4_dots(with_zeros: bool, lines: int):
    """Makes the function for weights of 4 bits, with or without zeros."""
    held = min(INT4_ROWS, 2 * INT4_ROWS // lines)

    @intrinsic
    def int4_dots(
        typing, x, at, width, packed, start, pitch, groups, blocks, scales, s, zeros, of_groups, g, out, to
    ):  # fmt: skip
        """out[to + m INT4_ROWS + r] = Σ over groups of scale Σₚ x[m, p] (q - 8) + zero Σₚ x[m, p].

        For `lines` rows m, which begin at at + m width, and INT4_ROWS rows r. A group has `blocks` blocks of 32
        weights, a row of weights has `groups` scales. `of_groups[g + (m groups + n) 16 + i]` holds the sums of row m
        over group n for the partial sum i. Nothing checks bounds.
        """
        index = types.int64
        signature = types.void(x, index, index, packed, index, index, index, index, scales, index, zeros, of_groups,
                               index, out, index)  # fmt: skip

        def code(context, builder, signature, given):
            kinds, fused = signature.args, _multiply_add(builder)
            numbers = _rows_from(builder, pointer_of(context, builder, kinds[0], given[0], given[1]), given[2], lines)
            groups = given[6]

            def rows_of(position, begin, pitch):
                first = pointer_of(context, builder, kinds[position], given[position], begin)
                return _rows_from(builder, first, pitch, INT4_ROWS)

            all_rows, factors = rows_of(3, given[4], given[5]), rows_of(8, given[9], groups)
            added = rows_of(10, given[9], groups) if with_zeros else []
            sums_of_groups = []
            if with_zeros:
                first = pointer_of(context, builder, kinds[11], given[11], given[12])
                sums_of_groups = _rows_from(builder, first, builder.mul(groups, ir.Constant(I64, PARTS)), lines)
            target = pointer_of(context, builder, kinds[13], given[13], given[14])
            for begin in range(0, INT4_ROWS, held):
                rows = all_rows[begin : begin + held]

                def block(n, sums=(), rows=rows):
                    places = [pointer_at(builder, x, builder.mul(n, ir.Constant(I64, 2 * PARTS))) for x in numbers]
                    halves = [
                        (_load(builder, place, _WIDE, 4), _load(builder, pointer_at(builder, place, PARTS), _WIDE, 4))
                        for place in places
                    ]
                    made = []
                    for r, row in enumerate(rows):
                        low, high = _int4(builder, pointer_at(builder, row, builder.mul(n, ir.Constant(I64, PARTS))))
                        for m, (first, second) in enumerate(halves):
                            if sums:
                                total = builder.call(fused, [first, low, sums[r * lines + m]])
                            else:
                                total = builder.fmul(first, low)
                            made.append(builder.call(fused, [second, high, total]))
                    return made

                def group(n, totals, begin=begin, block=block):
                    start = builder.mul(n, given[7])
                    sums = block(start)
                    step = lambda k, sums: block(builder.add(start, k), sums)
                    _, sums = loop(builder, ir.Constant(I64, 1), given[7], 1, sums, step)
                    made = []
                    for i, (total, one) in enumerate(zip(totals, sums, strict=True)):
                        r, m = begin + i // lines, i % lines
                        scale = _spread(builder, builder.load(pointer_at(builder, factors[r], n)))
                        total = builder.call(fused, [scale, one, total])
                        if with_zeros:
                            zero = _spread(builder, builder.load(pointer_at(builder, added[r], n)))
                            place = pointer_at(builder, sums_of_groups[m], builder.mul(n, ir.Constant(I64, PARTS)))
                            total = builder.call(fused, [zero, _load(builder, place, _WIDE, 4), total])
                        made.append(total)
                    return made

                totals = _loop(builder, groups, [_ZERO] * (held * lines), group)
                for i, total in enumerate(totals):
                    place = i % lines * INT4_ROWS + begin + i // lines
                    builder.store(_total(builder, total), pointer_at(builder, target, place))
            return nothing(context)

        return signature, code

    return int4_dots


def _int4_few(with_zeros: bool):
    """Makes the function for a few rows of numbers, as for weights of more bits."""
    one, two, four = (_int4_dots(with_zeros, lines) for lines in (1, TWO, FOUR))

    @inner
    def few(x, rows, depth, packed, start, groups, blocks, scales, zeros, of_groups, sums):
        """Computes the sums of `rows` rows m and the rows of weights from `start` on, as sums[m INT4_ROWS + r]."""
        half, at, apart = depth // 2, start * (depth // 2), groups * PARTS
        m = 0
        while m + FOUR <= rows:
            four(x, m * depth, depth, packed, at, half, groups, blocks, scales, start * groups, zeros, of_groups,
                 m * apart, sums, m * INT4_ROWS)  # fmt: skip
            m += FOUR
        while m + TWO <= rows:
            two(x, m * depth, depth, packed, at, half, groups, blocks, scales, start * groups, zeros, of_groups,
                m * apart, sums, m * INT4_ROWS)  # fmt: skip
            m += TWO
        if m < rows:
            one(x, m * depth, depth, packed, at, half, groups, blocks, scales, start * groups, zeros, of_groups,
                m * apart, sums, m * INT4_ROWS)  # fmt: skip

    return few


# In the module, not in a closure: Numba's cache inspects what a closure holds, and would find these new every time.
int8_few, bfloat16_few, float16_few = _few(_int8), _few(_bfloat16), _few(_float16)
int4_few, int4_few_with_zeros = _int4_few(False), _int4_few(True)
