"""Inner products of float32 numbers and weights of 8 or 4 bits, which become float32 in registers.

Each sum consists of 16 partial sums, on every processor, whatever the size of its registers: number p is added to
partial sum p % 16, and these are added in a fixed order. So the results depend on no vector width.
"""

from __future__ import annotations

from tensorgrad.kernels.compiled.runtime.language import declared, intrinsic, ir, nothing, types
from tensorgrad.kernels.compiled.simd.vectors import I64, MANY, pointer_at, pointer_of

PARTS = 16  # partial sums
ROWS = 8 if MANY else 4  # rows of weights at a time

_F32, _I8, _I32 = ir.FloatType(), ir.IntType(8), ir.IntType(32)
_WIDE, _NUMBERS, _BYTES = ir.VectorType(_F32, PARTS), ir.VectorType(_I32, PARTS), ir.VectorType(_I8, PARTS)
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


@intrinsic
def int8_dots(typing, x, at, weights, start, pitch, count, out, to):
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
                loaded = _load(builder, pointer_at(builder, row, place), _BYTES, 1)
                wide = builder.sitofp(builder.sext(loaded, _NUMBERS), _WIDE)
                made.append(builder.call(fused, [factor, wide, total]))
            return made

        sums = _loop(builder, given[5], [_ZERO] * ROWS, step)
        target = pointer_of(context, builder, kinds[6], given[6], given[7])
        for r, total in enumerate(sums):
            builder.store(_total(builder, total), pointer_at(builder, target, r))
        return nothing(context)

    return signature, code


def _int4_dots(with_zeros: bool):
    """Makes the function for weights of 4 bits, with or without zeros."""

    @intrinsic
    def int4_dots(
        typing, x, at, packed, start, pitch, groups, blocks, scales, s, s_pitch, zeros, of_groups, g, out, to
    ):
        """out[to + r] = Σ over groups of scale Σₚ x[at + p] (q - 8) + zero Σₚ x[at + p], for ROWS rows r.

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
                return [pointer_at(builder, first, builder.mul(pitch, ir.Constant(I64, r))) for r in range(ROWS)]

            rows, factors = rows_of(2, given[3], given[4]), rows_of(7, given[8], given[9])
            added = rows_of(10, given[8], given[9]) if with_zeros else []
            sums_of_groups = pointer_of(context, builder, kinds[11], given[11], given[12]) if with_zeros else None
            low, eight, four = (
                ir.Constant(kind, [number] * PARTS) for kind, number in ((_BYTES, 15), (_NUMBERS, 8), (_BYTES, 4))
            )

            def group(n, totals):
                begin = builder.mul(n, given[6])

                def step(k, sums):
                    block = builder.add(begin, k)
                    place = pointer_at(builder, numbers, builder.mul(block, ir.Constant(I64, 2 * PARTS)))
                    first, second = (
                        _load(builder, place, _WIDE, 4),
                        _load(builder, pointer_at(builder, place, PARTS), _WIDE, 4),
                    )
                    made = []
                    for row, total in zip(rows, sums, strict=True):
                        here = pointer_at(builder, row, builder.mul(block, ir.Constant(I64, PARTS)))
                        loaded = _load(builder, here, _BYTES, 1)
                        for factor, half in ((first, builder.and_(loaded, low)), (second, builder.lshr(loaded, four))):
                            wide = builder.sub(builder.zext(half, _NUMBERS), eight)
                            total = builder.call(fused, [factor, builder.sitofp(wide, _WIDE), total])
                        made.append(total)
                    return made

                sums = _loop(builder, given[6], [_ZERO] * ROWS, step)
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

            totals = _loop(builder, given[5], [_ZERO] * ROWS, group)
            target = pointer_of(context, builder, kinds[13], given[13], given[14])
            for r, total in enumerate(totals):
                builder.store(_total(builder, total), pointer_at(builder, target, r))
            return nothing(context)

        return signature, code

    return int4_dots


# In the module, not in a closure: Numba's cache inspects what a closure holds, and would find these new every time.
int4_dots, int4_dots_with_zeros = _int4_dots(False), _int4_dots(True)
