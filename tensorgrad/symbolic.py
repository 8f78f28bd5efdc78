"""PyTorch's functions for symbolic sizes: here sizes, and the results, are plain Python numbers.

The exception is the size of a nested tensor's ragged dimension, which is a `SymInt`.
"""

from __future__ import annotations

import builtins
import math
import numbers

from tensorgrad.size import SYMBOLS

__all__ = [
    "SymBool", "SymFloat", "SymInt", "sym_float", "sym_int", "sym_ite", "sym_max", "sym_min", "sym_not", "sym_sqrt",
    "sym_sum",
]  # fmt: skip


class SymInt:
    """A size without a value: that of a ragged dimension of a nested tensor, such as `j1`.

    >>> x = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged)
    >>> isinstance(x.size(1), torch.SymInt), isinstance(x.size(0), torch.SymInt)
    (True, False)
    """

    __slots__ = ()

    def __new__(cls, *args, **kwargs):
        raise NotImplementedError("torch.SymInt: the only symbolic sizes are those of nested tensors")


SYMBOLS.append(SymInt)


class SymFloat:
    """A float without a value: nothing is one here.

    >>> isinstance(torch.sym_float(3), torch.SymFloat)
    False
    """

    __slots__ = ()

    def __new__(cls, *args, **kwargs):
        raise NotImplementedError("torch.SymFloat: all numbers have values here")


class SymBool:
    """A boolean without a value: nothing is one here.

    >>> isinstance(torch.ones(2).size(0) == 2, torch.SymBool)
    False
    """

    __slots__ = ()

    def __new__(cls, *args, **kwargs):
        raise NotImplementedError("torch.SymBool: all booleans have values here")


def sym_int(a) -> builtins.int:
    """Returns a number as an integer, rounded towards zero.

    >>> torch.sym_int(-2.7)
    -2
    """
    return builtins.int(a)


def sym_float(a) -> builtins.float:
    """Returns a number as a float.

    >>> torch.sym_float(3)
    3.0
    """
    return builtins.float(a)


def sym_not(a) -> builtins.bool:
    """Returns the logical negation.

    >>> torch.sym_not(3 > 2)
    False
    """
    return not a


def sym_max(a, b):
    """Returns the larger of two numbers; a float if either is one.

    >>> torch.sym_max(3, 2.5)
    3.0
    """
    return _as_common(a, b, builtins.max(_number(a), _number(b)))


def sym_min(a, b):
    """Returns the smaller of two numbers; a float if either is one.

    >>> torch.sym_min(3, 2)
    2
    """
    return _as_common(a, b, builtins.min(_number(a), _number(b)))


def _number(a):
    if not isinstance(a, numbers.Real):
        raise AssertionError(f"expected a number, got {type(a)}")
    return a


def _as_common(a, b, value):
    return builtins.float(value) if isinstance(a, float) or isinstance(b, float) else value


def sym_sqrt(a) -> builtins.float:
    """Returns the square root.

    Raises:
        ValueError: For a negative number.

    >>> torch.sym_sqrt(9)
    3.0
    """
    return math.sqrt(a)


def sym_sum(args):
    """Returns the sum of a list of numbers.

    >>> torch.sym_sum([1, 2, 3])
    6
    """
    return builtins.sum(args)


def sym_ite(b: builtins.bool, t, f):
    """Returns `t` if `b` is true, else `f`.

    Raises:
        AssertionError: Unless `b` is a boolean and the others have the same type.

    >>> torch.sym_ite(3 > 2, 10, 20)
    10
    """
    if not isinstance(b, bool):
        raise AssertionError(f"expected SymBool or bool, got {type(b)}")
    if type(t) is not type(f):
        raise AssertionError(f"type mismatch: {type(t)} vs {type(f)}")
    return t if b else f
