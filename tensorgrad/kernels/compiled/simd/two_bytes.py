"""Numbers that are stored in two bytes: kernels compute in float32, and round each result once when it is stored.

A kernel is written once, and compiled for each of the two kinds of storage below. It reads a row through `read`,
computes results where `place` says, and ends a row with `write`. For float32 these are the row itself, and nothing is
done; for float16 and bfloat16 they are rows of `scratch` that stay in a first-level cache. Machine code sees numbers of
two bytes as uint16, and an argument `brain` says whether they are bfloat16.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from tensorgrad.kernels.compiled.runtime.language import (
    MATRIX,
    MEMORY,
    counted,
    inlined,
    inner,
    intrinsic,
    ir,
    nothing,
    types,
)
from tensorgrad.kernels.compiled.simd.small_weights import of_bfloat16, of_float16, to_bfloat16, to_float16
from tensorgrad.kernels.compiled.simd.vectors import (
    I64,
    LANES,
    VECTOR,
    pointer_at,
    pointer_of,
    rows_of,
    store_vector,
    transposed,
)

STRETCH = 2048  # numbers that stay in a first-level cache, together with as many others

_BITS, _NUMBERS = ir.VectorType(ir.IntType(16), LANES), ir.VectorType(ir.IntType(32), LANES)
_HALVES = ir.VectorType(ir.HalfType(), LANES)


@inner
def widened(bits, out, brain):
    """Writes numbers as float32."""
    if brain:
        for i in range(out.size):
            out[i] = of_bfloat16(bits[i])
    else:
        for i in range(out.size):
            out[i] = of_float16(bits[i])


@inner
def rounded(numbers, out, brain):
    """Rounds float32 numbers to nearest, ties to even."""
    if brain:
        for i in range(out.size):
            out[i] = to_bfloat16(numbers[i])
    else:
        for i in range(out.size):
            out[i] = to_float16(numbers[i])


@inner
def widened_rows(source, at, apart, width, out, pitch, rows, brain):
    """out[r pitch + i] = source[at + r apart + i] for `rows` rows of `width` numbers i."""
    for r in range(rows):
        start, to = at + r * apart, r * pitch
        widened(source[start : start + width], out[to : to + width], brain)


def _widened_vector(builder, place, brain: bool):
    kind = _BITS if brain else _HALVES
    loaded = builder.load(builder.bitcast(place, kind.as_pointer()), align=2)
    if not brain:
        return builder.fpext(loaded, VECTOR)
    upper = builder.shl(builder.zext(loaded, _NUMBERS), ir.Constant(_NUMBERS, [16] * LANES))
    return builder.bitcast(upper, VECTOR)


def _carry(brain: bool):
    """Makes the function that widens and moves vectors."""

    @intrinsic
    def carry(typing, source, at, apart, out, to, step, count):
        """out[to + n step + i] = source[at + n apart + i] for LANES i and `count` n. Nothing checks bounds."""
        index = types.int64
        signature = types.void(source, index, index, out, index, index, index)

        def code(context, builder, signature, given):
            data = pointer_of(context, builder, signature.args[0], given[0], given[1])
            target = pointer_of(context, builder, signature.args[3], given[3], given[4])
            with counted(builder, given[6]) as n:
                vector = _widened_vector(builder, pointer_at(builder, data, builder.mul(n, given[2])), brain)
                store_vector(builder, vector, target, builder.mul(n, given[5]))
            return nothing(context)

        return signature, code

    return carry


def _widened_pairs(builder, pairs, brain: bool):
    """The first and the second numbers of LANES pairs, each of which fills four bytes."""
    bits, sixteen = builder.bitcast(pairs, _NUMBERS), ir.Constant(_NUMBERS, [16] * LANES)
    upper = builder.lshr(bits, sixteen)
    if brain:
        return [builder.bitcast(builder.shl(half, sixteen), VECTOR) for half in (bits, upper)]
    return [builder.fpext(builder.bitcast(builder.trunc(half, _BITS), _HALVES), VECTOR) for half in (bits, upper)]


def _turn(brain: bool):
    """Makes the function that widens and transposes."""

    @intrinsic
    def turn(typing, source, at, apart, present, out, to, step):
        """Transposes LANES rows of 2 LANES numbers: out[to + j step + i] = source[at + i apart + j].

        Two adjacent numbers move together. Only `present` of the rows i are read (the last one again for those beyond).
        Nothing checks bounds.
        """
        index = types.int64
        signature = types.void(source, index, index, index, out, index, index)

        def code(context, builder, signature, given):
            data = pointer_of(context, builder, signature.args[0], given[0], given[1])
            target = pointer_of(context, builder, signature.args[4], given[4], given[5])
            rows = [pointer_at(builder, data, row) for row in rows_of(builder, given[3], given[2])]
            held = [builder.load(builder.bitcast(row, VECTOR.as_pointer()), align=2) for row in rows]
            for j, pairs in enumerate(transposed(builder, held)):
                for n, numbers in enumerate(_widened_pairs(builder, pairs, brain)):
                    store_vector(builder, numbers, target, builder.mul(given[6], ir.Constant(I64, 2 * j + n)))
            return nothing(context)

        return signature, code

    return turn


# In the module, not in a closure: Numba's cache inspects what a closure holds, and would find these new every time.
carry_bfloat16, carry_float16 = _carry(True), _carry(False)
turn_bfloat16, turn_float16 = _turn(True), _turn(False)


class Storage(NamedTuple):
    """How numbers are stored: the types of arrays in a kernel's signature, and the functions it uses."""

    row: str
    matrix: str
    memory: str  # an array of any shape and strides, as the memory from its first element on
    empty: Callable  # (count) -> memory for numbers as they are stored
    scratch: Callable  # (count) -> memory for a row; none if rows are float32
    read: Callable  # (row, scratch, brain) -> the numbers of a row, as float32
    place: Callable  # (row, scratch) -> where to compute a row of results
    write: Callable  # (results, row, brain): ends a row
    keep: Callable  # (numbers, row, brain): stores float32 numbers that are elsewhere
    once: Callable  # (number, brain) -> what is left of a number that is stored in between

    @property
    def images(self) -> str:
        """The type of arrays of three dimensions."""
        return self.matrix.replace("[", "[:,")

    @property
    def maps(self) -> str:
        """The type of arrays of four dimensions."""
        return self.images.replace("[", "[:,")

    @property
    def heads(self) -> str:
        """The same in any memory order, but the last dimension is contiguous."""
        return self.maps.replace("::1", ":")

    @property
    def of_rows(self) -> tuple[Callable, Callable, Callable, Callable]:
        """The functions that most kernels of rows need."""
        return self.scratch, self.read, self.place, self.write


@inlined
def stored(number, brain):
    """Rounds a number to two bytes."""
    return of_bfloat16(to_bfloat16(number)) if brain else of_float16(to_float16(number))


@inner
def _floats(count):
    return np.empty(count, np.float32)


@inner
def _bits(count):
    return np.empty(count, np.uint16)


@inner
def _no_scratch(count):
    return np.empty(0, np.float32)


@inner
def _itself(row, scratch, brain):
    return row


@inner
def _in_place(row, scratch):
    return row


@inner
def _written(results, row, brain):
    pass


@inner
def _copied(numbers, row, brain):
    for i in range(row.size):
        row[i] = numbers[i]


@inlined
def _unchanged(number, brain):
    return number


@inner
def _widened_row(row, scratch, brain):
    widened(row, scratch[: row.size], brain)
    return scratch[: row.size]


@inner
def _place(row, scratch):
    return scratch[: row.size]


FLOAT32 = Storage(
    "float32[::1]", MATRIX, MEMORY, _floats, _no_scratch, _itself, _in_place, _written, _copied, _unchanged
)  # fmt: skip
TWO_BYTES = Storage(
    "uint16[::1]", "uint16[:,::1]", MEMORY.replace("float32", "uint16"), _bits, _floats, _widened_row, _place, rounded,
    rounded, stored,
)  # fmt: skip
STORAGES = FLOAT32, TWO_BYTES
