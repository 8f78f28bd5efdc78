"""Points of several adjacent channels: sums and quotients, channel by channel.

A point has a few vectors of channels. What compilers make of a loop over so few numbers is mostly its beginning and its
end; here the vectors are counted, and the last one is loaded and stored under a mask.
"""

from __future__ import annotations

from tensorgrad.kernels.compiled.runtime.language import counted, intrinsic, ir, nothing, types
from tensorgrad.kernels.compiled.simd.sums import below, load_some, store_some
from tensorgrad.kernels.compiled.simd.vectors import (
    I64,
    LANES,
    load_vector,
    pointer_at,
    pointer_of,
    spread_out,
    store_vector,
)


def _each_point(builder, points, channels, work):
    """Emits work(n, c, load, store) for each point n and each vector of its channels, from channel c on."""
    lanes = ir.Constant(I64, LANES)
    vectors, left = builder.sdiv(channels, lanes), builder.srem(channels, lanes)
    mask, some = below(builder, left), builder.icmp_signed(">", left, ir.Constant(I64, 0))

    def load(pointer):
        return load_vector(builder, pointer, 0)

    def store(vector, pointer):
        store_vector(builder, vector, pointer, 0)

    with counted(builder, points) as n:
        with counted(builder, vectors) as v:
            work(n, builder.mul(v, lanes), load, store)
        with builder.if_then(some):
            work(
                n,
                builder.mul(vectors, lanes),
                lambda pointer: load_some(builder, pointer, mask),
                lambda vector, pointer: store_some(builder, vector, pointer, mask),
            )


@intrinsic
def add_points(typing, total, to, source, at, step, points, channels):
    """total[to + n channels + c] += source[at + n step + c] for so many points n and channels c."""
    index = types.int64
    signature = types.void(total, index, source, index, index, index, index)

    def code(context, builder, signature, given):
        target = pointer_of(context, builder, signature.args[0], given[0], given[1])
        start = pointer_of(context, builder, signature.args[2], given[2], given[3])
        step, points, channels = given[4:]

        def work(n, c, load, store):
            place = pointer_at(builder, target, builder.add(builder.mul(n, channels), c))
            more = load(pointer_at(builder, start, builder.add(builder.mul(n, step), c)))
            store(builder.fadd(load(place), more), place)

        _each_point(builder, points, channels, work)
        return nothing(context)

    return signature, code


@intrinsic
def divide_points(typing, source, over, divisors, points, channels, out, to):
    """out[to + n channels + c] = source[n channels + c] / (over divisors[n]) for so many points n and channels c."""
    index = types.int64
    signature = types.void(source, types.float32, divisors, index, index, out, index)

    def code(context, builder, signature, given):
        start = pointer_of(context, builder, signature.args[0], given[0])
        over, (points, channels) = given[1], given[3:5]
        numbers = pointer_of(context, builder, signature.args[2], given[2])
        target = pointer_of(context, builder, signature.args[5], given[5], given[6])

        def work(n, c, load, store):
            place = builder.add(builder.mul(n, channels), c)
            divisor = builder.fmul(over, builder.load(pointer_at(builder, numbers, n)))
            quotient = builder.fdiv(load(pointer_at(builder, start, place)), spread_out(builder, divisor))
            store(quotient, pointer_at(builder, target, place))

        _each_point(builder, points, channels, work)
        return nothing(context)

    return signature, code
