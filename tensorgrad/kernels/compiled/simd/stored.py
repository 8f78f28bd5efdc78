"""Copies between float32 and numbers as they are stored: float32, float16 or bfloat16, as an argument says.

So a kernel that copies what it reads into an order of its own, and its results out of it, is compiled once for all
three. It asks for their memory (`STORED` in language.py) and `kind`: the code of casts.py. Positions are counted in
numbers. Each result is rounded once, to nearest, ties to even.

An array of float32 can be read through the same functions, as what it is; then `kind` is not looked at.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tensorgrad.kernels.compiled.runtime.language import (
    array_at,
    counted,
    data_of,
    declared,
    inlined,
    inner,
    intrinsic,
    ir,
    length_of,
    nothing,
    types,
)
from tensorgrad.kernels.compiled.simd.vectors import (
    I64,
    LANES,
    NO,
    ONE,
    TWO,
    VECTOR,
    ZERO_VECTOR,
    pointer_at,
    pointer_of,
    rows_of,
    shuffle,
    transposed,
)

FLOAT32, FLOAT16, BFLOAT16 = range(3)
WHOLE = NO  # float32 as a kind, for the arguments of compiled functions

_F32, _F16, _I16, _I32 = ir.FloatType(), ir.HalfType(), ir.IntType(16), ir.IntType(32)
_NUMBERS, _BITS = ir.VectorType(_I32, LANES), ir.VectorType(_I16, LANES)
_HALVES = ir.VectorType(_F16, LANES)
_ONES, _VECTORS = (_F32, _F16, _I16), (VECTOR, _HALVES, _BITS)  # of each kind


# --- one kind --------------------------------------------------------------------------------------------------------


def _widened(builder: Any, kind: int, stored: Any) -> Any:
    """Returns the float32 number of a stored one, or a vector of them."""
    several = isinstance(stored.type, ir.VectorType)
    if kind == FLOAT32:
        return stored
    if kind == FLOAT16:
        return builder.fpext(stored, VECTOR if several else _F32)
    numbers, sixteen = (_NUMBERS, [16] * LANES) if several else (_I32, 16)
    upper = builder.shl(builder.zext(stored, numbers), ir.Constant(numbers, sixteen))
    return builder.bitcast(upper, VECTOR if several else _F32)


def _rounded(builder: Any, kind: int, made: Any) -> Any:
    """Returns what is stored of a float32 number, or a vector of them: as the functions of small_weights.py round."""
    several = isinstance(made.type, ir.VectorType)
    if kind == FLOAT32:
        return made
    if kind == FLOAT16:
        return builder.fptrunc(made, _HALVES if several else _F16)

    def number(value: int) -> Any:
        return ir.Constant(_NUMBERS, [value] * LANES) if several else ir.Constant(_I32, value)

    bits = builder.bitcast(made, _NUMBERS if several else _I32)
    upper = builder.lshr(bits, number(16))
    odd = builder.and_(upper, number(1))
    nearest = builder.lshr(builder.add(bits, builder.add(odd, number(0x7FFF))), number(16))
    none = builder.fcmp_unordered("uno", made, made)
    sign = builder.or_(builder.and_(upper, number(0x8000)), number(0x7FC0))
    return builder.trunc(builder.select(none, sign, nearest), _BITS if several else _I16)


def _align(kind: int) -> int:
    return 4 if kind == FLOAT32 else 2


def _load(builder: Any, kind: int, place: Any) -> Any:
    held = builder.load(builder.bitcast(place, _VECTORS[kind].as_pointer()), align=_align(kind))
    return _widened(builder, kind, held)


def _store(builder: Any, kind: int, vector: Any, place: Any) -> None:
    place = builder.bitcast(place, _VECTORS[kind].as_pointer())
    builder.store(_rounded(builder, kind, vector), place, align=_align(kind))


def _mask(builder: Any, width: Any) -> Any:
    """Says of each lane whether it is one of the first `width`."""
    empty = ir.Constant(_NUMBERS, ir.Undefined)
    one = builder.insert_element(empty, builder.trunc(width, _I32), ir.Constant(_I32, 0))
    limit = builder.shuffle_vector(one, one, ir.Constant(_NUMBERS, [0] * LANES))
    return builder.icmp_signed("<", ir.Constant(_NUMBERS, list(range(LANES))), limit)


def _form(kind: int) -> tuple[Any, str]:
    """Returns the type of vectors that are loaded and stored in part, and LLVM's name of it."""
    return (VECTOR, f"v{LANES}f32") if kind == FLOAT32 else (_BITS, f"v{LANES}i16")


def _load_some(builder: Any, kind: int, place: Any, mask: Any) -> Any:
    form, name = _form(kind)
    function = ir.FunctionType(form, [form.as_pointer(), _I32, mask.type, form])
    function = declared(builder.module, function, f"llvm.masked.load.{name}.p0")
    zeros = ZERO_VECTOR if kind == FLOAT32 else ir.Constant(_BITS, [0] * LANES)
    given = [builder.bitcast(place, form.as_pointer()), ir.Constant(_I32, _align(kind)), mask, zeros]
    held = builder.call(function, given)
    return _widened(builder, kind, builder.bitcast(held, _HALVES) if kind == FLOAT16 else held)


def _store_some(builder: Any, kind: int, vector: Any, place: Any, mask: Any) -> None:
    form, name = _form(kind)
    function = ir.FunctionType(ir.VoidType(), [form, form.as_pointer(), _I32, mask.type])
    function = declared(builder.module, function, f"llvm.masked.store.{name}.p0")
    made = _rounded(builder, kind, vector)
    given = [builder.bitcast(made, form) if kind == FLOAT16 else made, builder.bitcast(place, form.as_pointer())]
    builder.call(function, [*given, ir.Constant(_I32, _align(kind)), mask])


# --- any kind --------------------------------------------------------------------------------------------------------


def _each(builder: Any, kind: Any, array: Any, code: Callable) -> list[Any]:
    """Emits `code(kind) -> values` for every kind, of which the one runs that is given. Returns its values."""
    if array.dtype == types.float32:
        return code(FLOAT32)
    blocks = [builder.append_basic_block("kind") for _ in _ONES]
    after = builder.append_basic_block("after")
    switch = builder.switch(kind, blocks[FLOAT32])
    for n in (FLOAT16, BFLOAT16):
        switch.add_case(ir.Constant(I64, n), blocks[n])
    made = []
    for n, block in enumerate(blocks):
        builder.position_at_end(block)
        values = code(n)
        made.append((values, builder.block))
        builder.branch(after)
    builder.position_at_end(after)
    found = []
    for n, value in enumerate(made[0][0]):
        phi = builder.phi(value.type)
        for values, block in made:
            phi.add_incoming(values[n], block)
        found.append(phi)
    return found


def _at(context: Any, builder: Any, array: Any, value: Any, kind: int, place: Any) -> Any:
    """Returns the address of a number."""
    data = builder.bitcast(pointer_of(context, builder, array, value), _ONES[kind].as_pointer())
    return pointer_at(builder, data, place)


@intrinsic
def count_of(typing, array, kind):
    """Returns how many numbers there are."""

    def code(context, builder, signature, given):
        size = length_of(context, builder, signature.args[0], given[0])
        if array.dtype == types.float32:
            return size
        whole = builder.icmp_signed("==", given[1], ir.Constant(I64, FLOAT32))
        return builder.select(whole, builder.ashr(size, ir.Constant(I64, 1)), size)

    return types.int64(array, types.int64), code


@intrinsic
def floats_of(typing, memory):
    """Views memory of float32 numbers as these, in a row without an end."""
    kind = types.Array(types.float32, 1, "C")

    def code(context, builder, signature, given):
        data = builder.bitcast(data_of(context, builder, signature.args[0], given[0]), _F32.as_pointer())
        return array_at(context, builder, kind, data, [ir.Constant(I64, 1 << 40)], [ir.Constant(I64, 4)],
                        ir.Constant(I64, 4))  # fmt: skip

    return kind(memory), code


@intrinsic
def number_from(typing, source, kind, at):
    """Returns the number source[at]. Nothing checks bounds."""

    def code(context, builder, signature, given):
        def read(kind):
            held = builder.load(_at(context, builder, signature.args[0], given[0], kind, given[2]))
            return [_widened(builder, kind, held)]

        [number] = _each(builder, given[1], source, read)
        return number

    return types.float32(source, types.int64, types.int64), code


@intrinsic
def turn_from(typing, source, kind, at, apart, present, out, to, step, kept):
    """Transposes LANES x LANES numbers: out[to + j step + i] = source[at + i apart + j].

    Only `present` of the rows i are read (the last one again for those beyond), only `kept` of the rows j are written.
    Nothing checks bounds.
    """
    index = types.int64
    signature = types.void(source, index, index, index, index, out, index, index, index)

    def code(context, builder, signature, given):
        target = pointer_of(context, builder, signature.args[5], given[5], given[6])
        rows = list(rows_of(builder, given[4], given[3]))

        def read(kind):
            first = _at(context, builder, signature.args[0], given[0], kind, given[2])
            return [_load(builder, kind, pointer_at(builder, first, row)) for row in rows]

        held = transposed(builder, _each(builder, given[1], source, read))
        # In reverse, so that of rows written to the same address the intended one is last.
        for vector, row in reversed(list(zip(held, rows_of(builder, given[8], given[7]), strict=True))):
            _store(builder, FLOAT32, vector, pointer_at(builder, target, row))
        return nothing(context)

    return signature, code


@intrinsic
def turn_to(typing, source, at, apart, present, out, kind, to, step, kept):
    """Does what `turn_from` does, of float32 numbers that are to be stored."""
    index = types.int64
    signature = types.void(source, index, index, index, out, index, index, index, index)

    def code(context, builder, signature, given):
        data = pointer_of(context, builder, signature.args[0], given[0], given[1])
        rows = [pointer_at(builder, data, row) for row in rows_of(builder, given[3], given[2])]
        held = transposed(builder, [_load(builder, FLOAT32, row) for row in rows])
        places = list(rows_of(builder, given[8], given[7]))

        def write(kind):
            first = _at(context, builder, signature.args[4], given[4], kind, given[6])
            for vector, place in reversed(list(zip(held, places, strict=True))):
                _store(builder, kind, vector, pointer_at(builder, first, place))
            return []

        _each(builder, given[5], out, write)
        return nothing(context)

    return signature, code


def _carried(takes: tuple, reads: bool) -> tuple[Any, Callable]:
    """The code of `carry_from` and its kind, for these types.

    `reads`: the source is what is stored, and the result float32; otherwise the other way round. With a width, which is
    one argument more, only so many lanes are read and written.
    """

    def code(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        if reads:
            stored, kind, first, apart, floats, to, step, count, *width = given
            place, other = 0, 4
        else:
            floats, to, step, stored, kind, first, apart, count, *width = given
            place, other = 3, 0
        mask = _mask(builder, width[0]) if width else None
        data = pointer_of(context, builder, signature.args[other], floats, to)

        def copy(kind: int) -> list:
            begin = _at(context, builder, signature.args[place], stored, kind, first)
            with counted(builder, count) as n:
                ends = ((kind, pointer_at(builder, begin, builder.mul(n, apart))),
                        (FLOAT32, pointer_at(builder, data, builder.mul(n, step))))  # fmt: skip
                source, target = ends if reads else ends[::-1]
                if mask is None:
                    _store(builder, target[0], _load(builder, *source), target[1])
                else:
                    _store_some(builder, target[0], _load_some(builder, *source, mask), target[1], mask)
            return []

        _each(builder, kind, signature.args[place], copy)
        return nothing(context)

    return types.void(*takes), code


@intrinsic
def carry_from(typing, source, kind, at, apart, out, to, step, count):
    """out[to + n step + i] = source[at + n apart + i] for LANES i and `count` n. Nothing checks bounds."""
    return _carried((source, *[types.int64] * 3, out, *[types.int64] * 3), reads=True)


@intrinsic
def carry_to(typing, source, at, apart, out, kind, to, step, count):
    """Does what `carry_from` does, of float32 numbers that are to be stored."""
    return _carried((source, *[types.int64] * 2, out, *[types.int64] * 4), reads=False)


@intrinsic
def carry_few_from(typing, source, kind, at, apart, out, to, step, count, width):
    """out[to + n step + i] = source[at + n apart + i] for `count` n and i < `width`, which is LANES at most.

    Nothing else is read or written; nothing checks bounds.
    """
    return _carried((source, *[types.int64] * 3, out, *[types.int64] * 4), reads=True)


@intrinsic
def carry_few_to(typing, source, at, apart, out, kind, to, step, count, width):
    """Does what `carry_few_from` does, of float32 numbers that are to be stored."""
    return _carried((source, *[types.int64] * 2, out, *[types.int64] * 5), reads=False)


@intrinsic
def every_other_from(typing, source, kind, at, out, to, blocks):
    """out[to + i] = source[at + 2 i] for `blocks` LANES numbers i. Nothing checks bounds.

    Of numbers of two bytes, the one after the last is read, too.
    """
    index = types.int64
    signature = types.void(source, index, index, out, index, index)

    def code(context, builder, signature, given):
        target = pointer_of(context, builder, signature.args[3], given[3], given[4])
        order = [*range(0, LANES, 2), *range(LANES + 1, 2 * LANES, 2)]

        def copy(kind):
            first = _at(context, builder, signature.args[0], given[0], kind, given[2])
            with counted(builder, given[5]) as n:
                at = builder.mul(n, ir.Constant(I64, LANES))
                place = pointer_at(builder, first, builder.mul(at, ir.Constant(I64, 2)))
                if kind == FLOAT32:  # the second half overlaps, so that it ends with the last number needed
                    low, high = (_load(builder, kind, pointer_at(builder, place, first)) for first in (0, LANES - 1))
                    held = shuffle(builder, low, high, order)
                else:  # two adjacent numbers are one of four bytes
                    pairs = builder.load(builder.bitcast(place, _NUMBERS.as_pointer()), align=2)
                    lower = builder.trunc(pairs, _BITS)
                    held = _widened(builder, kind, builder.bitcast(lower, _HALVES) if kind == FLOAT16 else lower)
                _store(builder, FLOAT32, held, pointer_at(builder, target, at))
            return []

        _each(builder, given[1], source, copy)
        return nothing(context)

    return signature, code


@intrinsic
def put(typing, out, kind, at, number):
    """out[at] = number. Nothing checks bounds."""
    signature = types.void(out, types.int64, types.int64, types.float32)

    def code(context, builder, signature, given):
        def write(kind):
            place = _at(context, builder, signature.args[0], given[0], kind, given[2])
            builder.store(_rounded(builder, kind, given[3]), place)
            return []

        _each(builder, given[1], out, write)
        return nothing(context)

    return signature, code


@inlined
def _taken(source, kind, at, step, out, to, count):
    # Unsigned, since an index that could be negative is not vectorized; no slices, which cost more than a short row.
    at, step, to = np.uint64(at), np.uint64(step), np.uint64(to)
    for i in range(np.uint64(count)):
        out[to + i] = number_from(source, kind, np.int64(at + i * step))


@inner
def move_from(source, kind, at, step, out, to, count):
    """Copies `count` numbers (at least one), `step` apart from `source[at]` on, to `out[to]` and on."""
    done = np.int64(0)
    if step == 1:
        carry_from(source, kind, at, LANES, out, to, LANES, count // LANES)
        done = count // LANES * LANES
    elif step == 2:
        blocks = (count if kind == FLOAT32 else count - 1) // LANES
        every_other_from(source, kind, at, out, to, blocks)
        done = blocks * LANES
    _taken(source, kind, at + done * step, step, out, to + done, count - done)


@inlined
def _put_apart(source, at, out, kind, to, apart, count):
    at, to, apart = np.uint64(at), np.uint64(to), np.uint64(apart)
    for i in range(np.uint64(count)):
        put(out, kind, np.int64(to + i * apart), source[at + i])


@inner
def move_to(source, at, out, kind, to, apart, count):
    """Copies `count` numbers from `source[at]` on to `out[to]` and on, `apart` apart."""
    if apart == 1:
        whole = count // LANES
        carry_to(source, at, LANES, out, kind, to, LANES, whole)
        _put_apart(source, at + whole * LANES, out, kind, to + whole * LANES, ONE, count - whole * LANES)
    elif kind == FLOAT32 and apart == 2:
        _put_apart(source, at, out, WHOLE, to, TWO, count)
    else:
        _put_apart(source, at, out, kind, to, apart, count)
