"""Lists of arrays for compiled kernels: one launch for all of them, which threads divide by elements.

A kernel gets the identities of the array objects, and reads from them where their numbers are: asking each array for
its address in Python would take longer than many a kernel. `thread_pool.run` keeps the arrays alive.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate
from typing import Any

import numpy as np

from tensorgrad.dtypes import F32
from tensorgrad.kernels.compiled.runtime.language import array_at, inner, intrinsic, ir, types

# Places in an array object, as native.py checks them: its class, the address of its numbers, its rank, the addresses of
# its sizes and of its dtype, and its flags. In a list, the address of its items.
_CLASS, _DATA = 8, object.__basicsize__
_RANK, _SIZES, _DTYPE, _FLAGS = _DATA + 8, _DATA + 16, _DATA + 40, _DATA + 48
_ITEMS = object.__basicsize__ + 8
_PLAIN = 0x501  # the flags of an array that is row-major, aligned and writeable


def known(dtype: np.dtype) -> tuple[int, int, int, int]:
    """Returns what kernels compare objects in lists of arrays of a dtype with, and whether that is bfloat16."""
    return id(np.ndarray), id(dtype), id(None), int(dtype.char == "E")


KNOWN = known(F32)


def identities(arrays: Iterable[Any], count: int) -> np.ndarray:
    """Returns what a kernel gets in place of `count` contiguous float32 arrays."""
    return np.fromiter(map(id, arrays), np.int64, count)


def starts(sizes: Iterable[int]) -> np.ndarray:
    """Returns where each array starts if all are joined, and at last how many elements there are."""
    return np.array([*accumulate(sizes, initial=0)], np.int64)


@intrinsic
def array_of(typing, identity, size):
    """Returns the float32 array with an identity, as one row of `size` numbers."""
    return _row(types.float32, ir.FloatType(), 4)


@intrinsic
def bits_of(typing, identity, size):
    """Returns the array of two bytes with an identity, as one row of `size` numbers of type uint16."""
    return _row(types.uint16, ir.IntType(16), 2)


def _row(numbers, stored, itemsize):
    kind = types.Array(numbers, 1, "C")

    def code(context, builder, signature, given):
        word = ir.IntType(64)
        place = builder.inttoptr(builder.add(given[0], word(_DATA)), word.as_pointer())
        data = builder.inttoptr(builder.load(place), stored.as_pointer())
        return array_at(context, builder, kind, data, [given[1]], [word(itemsize)], word(itemsize))

    return kind(types.int64, types.int64), code


@intrinsic
def word_at(typing, address):
    """Returns the 64-bit number at an address."""

    def code(context, builder, signature, given):
        return builder.load(builder.inttoptr(given[0], ir.IntType(64).as_pointer()))

    return types.int64(types.int64), code


@inner
def items_of(identity):
    """Returns the address of the identities in a list, which is not changed meanwhile."""
    return word_at(identity + _ITEMS)


@inner
def _rank(identity):
    return word_at(identity + _RANK) & 0xFFFFFFFF


@inner
def _is_plain(identity, known):
    """Returns whether an object is a row-major float32 array, as kernels take them."""
    return (
        word_at(identity + _CLASS) == known[0]
        and word_at(identity + _DTYPE) == known[1]
        and word_at(identity + _FLAGS) & _PLAIN == _PLAIN
    )


@inner
def _alike(a, b):
    """Returns whether two arrays have the same shape."""
    alike = _rank(a) == _rank(b)
    for d in range(_rank(a) if alike else 0):
        alike = alike and word_at(word_at(a + _SIZES) + 8 * d) == word_at(word_at(b + _SIZES) + 8 * d)
    return alike


@inner
def measured(items, width, known, ends):
    """Looks at jobs: `width` arrays of one shape each, one after another in a list, or `None` in place of all but the
    first.

    Writes where the elements of each job start if all are joined, their number, and how many jobs do not fit, since an
    array is not row-major, not of float32, or of another shape: these have no elements.
    """
    total, unfit, count = 0, 0, ends.size - 2
    for k in range(count):
        own, size, fits = word_at(items), 1, True
        for n in range(width):
            other = word_at(items + 8 * n)
            fits = fits and (other == known[2] or (_is_plain(other, known) and _alike(own, other)))
        for d in range(_rank(own) if fits else 0):
            size *= word_at(word_at(own + _SIZES) + 8 * d)
        ends[k] = total
        total += size if fits else 0
        unfit += 0 if fits else 1
        items += 8 * width
    ends[count], ends[count + 1] = total, unfit


@inner
def found(starts, element):
    """Returns the index of the array that has an element; it is not empty."""
    low, high = 0, starts.size - 1
    while high - low > 1:
        middle = (low + high) // 2
        if starts[middle] <= element:
            low = middle
        else:
            high = middle
    return low
