"""How a kernel is started over parts of its work, by several threads of which only the first comes from Python.

A kernel is a function of arrays and numbers and, at the end, of the range of the work to do. What starts it is compiled
for its arguments, too: it leaves them on a board (board.py), whence all threads take them without asking for Python's
lock. What divides the work among the threads is compiled once for all kernels (waiting.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils, sigutils
from numba.extending import intrinsic

from tensorgrad.kernels.numba.board import ARGUMENTS, DIVIDE, KERNEL, SIZE
from tensorgrad.kernels.numba.functions import compiled

_ROOM = 8 * (SIZE - ARGUMENTS)  # bytes for arguments
_I64 = ir.IntType(64)


def _place(builder, board, number: int, kind=_I64):
    """Where a number of a board lies, as a pointer."""
    place = builder.gep(builder.inttoptr(board, _I64.as_pointer()), [ir.Constant(_I64, number)])
    return builder.bitcast(place, kind.as_pointer())


def _borrowed(builder, kind, value):
    """An argument whose references nobody counts: the caller keeps the arrays. (A kernel that takes a row of an array
    counts it, which is an atomic instruction.)"""
    if isinstance(kind, types.Array):
        return builder.insert_value(value, ir.Constant(value.type.elements[0], None), 0)
    if isinstance(kind, types.BaseTuple):
        for n, inside in enumerate(kind.types):
            value = builder.insert_value(value, _borrowed(builder, inside, builder.extract_value(value, n)), n)
    return value


def _called(context, builder, arguments, kernel, values, first, last):
    """Calls a kernel by its address; returns its status."""
    kinds = [*arguments.types, types.int64, types.int64]
    kind = context.call_conv.get_function_type(types.none, kinds)
    function = builder.inttoptr(kernel, kind.as_pointer())
    given = [*cgutils.unpack_tuple(builder, values), first, last]
    return context.call_conv.call_function(builder, function, types.none, kinds, given)[0]


@intrinsic
def _alone(typing, kernel, arguments, last):
    """Runs a kernel in this thread; raises what the kernel raises."""

    def code(context, builder, signature, given):
        kernel, values, last = given
        values = _borrowed(builder, signature.args[1], values)
        status = _called(context, builder, signature.args[1], kernel, values, ir.Constant(_I64, 0), last)
        with builder.if_then(status.is_error, likely=False):
            context.call_conv.return_status_propagate(builder, status)
        return context.get_dummy_value()

    return types.void(kernel, arguments, last), code


@intrinsic
def _together(typing, kernel, arguments, last, board, workers):
    """Leaves the arguments on a board and calls the function that divides the work; returns what that returns."""

    def code(context, builder, signature, given):
        kernel, values, last, board, workers = given
        held = values.type
        if context.get_abi_sizeof(held) > _ROOM:
            raise ValueError(f"the arguments of a kernel take {context.get_abi_sizeof(held)} bytes, of {_ROOM}")

        # What threads call to do a range: it finds the kernel and the arguments on the board.
        kind = ir.FunctionType(_I64, [_I64] * 3)
        function = ir.Function(builder.module, kind, f"{builder.function.name}.range")
        function.linkage = "internal"
        inside = ir.IRBuilder(function.append_basic_block())
        place, first, end = function.args
        found = inside.load(_place(inside, place, ARGUMENTS, held), align=8)
        address = inside.load(_place(inside, place, KERNEL))
        status = _called(context, inside, signature.args[1], address, found, first, end)
        inside.ret(inside.zext(status.is_error, _I64))

        builder.store(kernel, _place(builder, board, KERNEL))
        values = _borrowed(builder, signature.args[1], values)
        builder.store(values, _place(builder, board, ARGUMENTS, held), align=8)
        divide = builder.load(_place(builder, board, DIVIDE))
        divide = builder.inttoptr(divide, ir.FunctionType(_I64, [_I64] * 4).as_pointer())
        return builder.call(divide, [builder.ptrtoint(function, _I64), board, last, workers])

    return types.int64(kernel, arguments, last, board, workers), code


def _launch(kernel, arguments, last, board, workers):
    """Runs a kernel over 0 ... last, in this thread and `workers` others; returns what has happened (board.py).

    `board` is the first one's. With no workers it raises what the kernel raises.
    """
    if workers:
        return _together(kernel, arguments, last, board, workers)
    _alone(kernel, arguments, last)
    return 0


class Shared:
    """A compiled kernel whose ranges several threads may do (pool.run)."""

    __slots__ = ("_function", "address", "launch")

    def __init__(self, function: Any, launch: Any):
        [made] = function.overloads.values()
        self._function, self.launch = function, launch
        self.address = made.library.get_pointer_to_function(made.fndesc.llvm_func_name)

    @property
    def __name__(self) -> str:
        return self._function.__name__


def shared(signature: str) -> Callable[[Callable], Shared]:
    """Compiles a kernel that takes arrays and numbers, and a range of the work: "void(..., int64, int64)"."""

    def decorate(function: Callable) -> Shared:
        given, _ = sigutils.normalize_signature(signature)
        kernel = compiled(signature, no_cpython_wrapper=True)(function)
        return Shared(kernel, compiled(types.int64(types.int64, types.Tuple(given[:-2]), *[types.int64] * 3))(_launch))

    return decorate


def with_loops(kernel: Callable, *loops: Callable) -> Callable[[], Callable]:
    """What makes the kernel of a row: compiles its loops first."""

    def make() -> Callable:
        for loop in loops:
            loop()
        return kernel

    return make
