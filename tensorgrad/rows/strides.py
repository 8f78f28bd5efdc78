"""Strides of results: where PyTorch puts the elements of what an op makes.

Every kind of op has a rule, a row may name another one (`strides=`):

rows        the last dimension varies fastest: reductions, ops along a dimension
operands    the dimensions in the order of the operands' strides, without gaps: pointwise ops
input       as the first input lies, if it has no gaps; else in the order of its strides: copies and casts
columns     matrices lie column by column, as LAPACK leaves them

or it is a function of the op's arguments, with arrays for tensors, that returns the dimensions of the result in the
order that they have in memory, outermost first, or None if they lie as the kernel returns them. Where the expression in
its attribute `unless` holds, of the arrays x0, x1, ..., it is not asked: they do. Ops with several results name a rule
for each. Without a rule, results lie as the kernel returns them
(rows with `format_of=` have that of dispatch/memory_formats.py).

NumPy orders the dimensions of a ufunc's result by almost the same rule as "operands": only if operands disagree, rows
win there, and the first operand here. So generated functions call this file where an operand does not lie in rows, and
where the kernel is not a ufunc and returns another order.
"""

from __future__ import annotations

from functools import lru_cache

from tensorgrad.layouts import channels_last, made_in_order, memory_strides, strides_in_order
from tensorgrad.storage.stubs import STORAGES, Storage

Strides = tuple[int, ...]
Geometry = tuple[tuple[int, ...], Strides]  # shape and strides (in elements)

BY_KIND = {"pointwise": "operands", "reduction": "rows", "same shape": "rows", "cast": "input"}


def of_operands(shape: tuple[int, ...], operands: tuple[Geometry, ...]) -> Strides:
    """The strides of a result computed element by element; a number is an operand of no dimensions.

    >>> from tensorgrad.rows.strides import of_operands
    >>> of_operands((2, 3), (((2, 3), (1, 2)), ((2, 3), (3, 1))))
    (1, 2)
    """
    if all([given == shape for given, _ in operands]):
        strides = _alike(shape, tuple([strides for _, strides in operands]))
        if strides is not None:
            return strides
    return _ordered(shape, tuple([_broadcast(shape, *operand) for operand in operands]))


def of_copy(shape: tuple[int, ...], strides: Strides) -> Strides:
    """The strides of a copy that keeps the layout (`preserve_format`)."""
    return strides if is_dense(shape, strides) else _ordered(shape, (strides,))


def of_columns(shape: tuple[int, ...]) -> Strides:
    """The strides of matrices that lie column by column, one after the other."""
    *lead, m, n = shape
    return (*memory_strides((*lead, max(m, 1) * max(n, 1)), None)[:-1], 1, max(m, 1))


def is_dense(shape: tuple[int, ...], strides: Strides) -> bool:
    """Whether elements at these strides have neither gaps between them nor a place in common."""
    step = 1
    for stride, n in sorted([(s, n) for s, n in zip(strides, shape, strict=True) if n != 1]):
        if stride != step:
            return False
        step *= n
    return True


def _alike(shape: tuple[int, ...], all_strides: tuple[Strides, ...]) -> Strides | None:
    """The strides if all operands lie alike; None if they do not, or have gaps."""
    formats = [memory_strides(shape, None)]
    if len(shape) == 4:
        formats.append(memory_strides(shape, channels_last))
    for made in formats:
        if all([_same_places(shape, made, strides) for strides in all_strides]):
            return made
    first = all_strides[0]
    return first if all_strides.count(first) == len(all_strides) and is_dense(shape, first) else None


def _same_places(shape, a, b) -> bool:
    return all([s == t or n == 1 for n, s, t in zip(shape, a, b)])


def _broadcast(shape: tuple[int, ...], given: tuple[int, ...], strides: Strides) -> Strides:
    lead = len(shape) - len(given)
    return (0,) * lead + tuple([0 if m == 1 != n else s for m, n, s in zip(given, shape[lead:], strides)])


def _ordered(shape: tuple[int, ...], all_strides: tuple[Strides, ...]) -> Strides:
    """Dense strides in the order of the operands' strides: the first one that tells two dimensions apart decides."""
    order = list(range(len(shape)))[::-1]  # innermost first
    for i in range(1, len(order)):
        at = i
        for below in range(i - 1, -1, -1):
            found = _compared(shape, all_strides, order[below], order[at])
            if found < 0:
                break
            if found > 0:
                order[below], order[at] = order[at], order[below]
                at = below
    return strides_in_order(shape, order[::-1])


def _compared(shape: tuple[int, ...], all_strides: tuple[Strides, ...], a: int, b: int) -> int:
    """1 if dimension `a` lies outside of `b` in memory, -1 if inside, 0 if no operand tells."""
    for strides in all_strides:
        s, t = strides[a], strides[b]
        if s and t:
            if s != t:
                return 1 if s > t else -1
            if shape[a] > shape[b]:
                return 1
    return 0


# --- on arrays -----------------------------------------------------------------------------------------------------


def in_order_of(inputs: tuple, array):
    """The result of a pointwise op in the strides that its operands give it: itself, or a copy."""
    first = inputs[0]
    if array.ndim < getattr(first, "ndim", 0):  # reduced to a number
        return array
    if len(inputs) == 1 and array.strides == first.strides and array.itemsize == first.itemsize:
        return array  # dense, as a new array is
    geometries = tuple([(x.shape, x.strides, x.itemsize) if hasattr(x, "strides") else x for x in inputs])
    return with_strides(array, *_of_operands(array.shape, array.itemsize, geometries))


def like_input(x, array):
    """A copy of an array (in another dtype, perhaps) in the strides of a copy that keeps the layout."""
    if array.shape != x.shape:
        return array
    return with_strides(array, *_of_copy(array.itemsize, x.shape, x.strides, x.itemsize))


def order_of_copy(array) -> Strides:
    """The dimensions, outermost in memory first, of a copy that keeps the layout."""
    return _of_copy(array.itemsize, array.shape, array.strides, array.itemsize)[1]


def order_of_operands(shape: tuple[int, ...], itemsize: int, *operands) -> Strides:
    """The same of a result computed element by element; the operands are (shape, strides, itemsize)."""
    return _of_operands(shape, itemsize, operands)[1]


@lru_cache(4096)
def _of_operands(shape, itemsize, geometries) -> tuple[Strides, Strides]:
    given = [((), ()) if g.__class__ is not tuple else (g[0], _elements(*g[1:])) for g in geometries if g is not None]
    return _placed(shape, of_operands(shape, tuple(given)), itemsize)


@lru_cache(1024)
def _of_copy(itemsize, shape, strides, own) -> tuple[Strides, Strides]:
    return _placed(shape, of_copy(shape, _elements(strides, own)), itemsize)


@lru_cache(1024)
def _of_columns(itemsize, shape) -> tuple[Strides, Strides]:
    return _placed(shape, of_columns(shape), itemsize)


def _elements(strides: Strides, itemsize: int) -> Strides:
    return tuple([s // itemsize for s in strides])


def _placed(shape: tuple[int, ...], strides: Strides, itemsize: int) -> tuple[Strides, Strides]:
    """Dense strides in bytes, and the dimensions in their order, outermost first."""
    order = sorted(range(len(shape)), key=lambda d: (-strides[d], -shape[d]))
    return tuple([s * itemsize for s in strides]), tuple(order)


def in_columns(array):
    """Matrices column by column. (The factor that `qr(mode="r")` leaves out is an empty vector.)"""
    return array if array.ndim < 2 else with_strides(array, *_of_columns(array.itemsize, array.shape))


def in_rows(array):
    """A copy of the array whose elements lie in the order of rows."""
    storage = STORAGES[array.__class__]
    if not _movable(storage):
        return array
    copied = storage.empty(array.shape, array.dtype, storage.device_of(array))
    storage.write(copied, array)
    return copied


def in_order(order, array):
    """The result with its dimensions in this order in memory, without gaps; None: as the kernel returns it."""
    if order is None:
        return array
    return with_strides(array, strides_in_order(array.shape, order, array.itemsize), tuple(order))


def each_laid_out(rules: str, x, arrays) -> list:
    """The results of an op with several outputs, each by its rule."""
    return [RULES[rule](x, array) for rule, array in zip(rules.split(), arrays, strict=True)]


RULES = {
    "rows": lambda x, array: in_rows(array) if array.ndim > 1 and not array.flags.c_contiguous else array,
    "columns": lambda x, array: in_columns(array),
    "input": like_input,
    "operands": lambda x, array: in_order_of((x,), array),
}


def with_strides(array, strides: Strides, order: Strides):
    """The elements of an array at dense strides (in bytes; `order`: its dimensions, outermost first).

    That is the array itself if it has them, else new memory.
    """
    if array.strides == strides:
        return array
    storage = STORAGES[array.__class__]
    if not array.size or not _movable(storage):
        return array
    if _same_places(array.shape, array.strides, strides):
        return storage.of(array).strided(array.shape, strides, 0, array.dtype)
    device = storage.device_of(array)
    made = made_in_order(lambda shape: storage.empty(shape, array.dtype, device), array.shape, order)
    if made.strides != strides:  # of dimensions of one element
        made = storage.of(made).strided(array.shape, strides, 0, array.dtype)
    storage.write(made, array)
    return made


def _movable(storage: type[Storage]) -> bool:
    """Whether arrays of this class may have any strides: not batched or sparse ones, nor those of simple devices."""
    return storage.strided is not Storage.strided and (storage.xp is not None or storage.device_type == "meta")
