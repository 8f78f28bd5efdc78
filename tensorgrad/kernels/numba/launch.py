"""How a kernel is started over parts of its work, by several threads of which only the first comes from Python.

A kernel is a function of arrays and numbers and, at the end, of the range of the work to do. What starts it is
compiled, too: it leaves the kernel's address, the arguments and a range on the board of each other thread (board.py),
which finds them there without asking for Python's lock; does a range itself; takes back what nobody has begun with, and
waits a moment for the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils, sigutils
from numba.extending import intrinsic

from tensorgrad.kernels.numba.board import ARGUMENTS, DONE, FAILED, FINISHED, KERNEL, LATE, SIZE, TASK, WRONG
from tensorgrad.kernels.numba.functions import compiled
from tensorgrad.kernels.numba.waiting import exchange, read, until, write

_TASK, _DONE = 8 * TASK, 8 * DONE  # in bytes
_ROOM = 8 * (SIZE - ARGUMENTS)  # bytes for arguments

_I64 = ir.IntType(64)


def _called(context, builder, arguments, kernel, values, first, last):
    """Calls a kernel by its address; returns its status."""
    kinds = [*arguments.types, types.int64, types.int64]
    kind = context.call_conv.get_function_type(types.none, kinds)
    function = builder.inttoptr(kernel, kind.as_pointer())
    given = [*cgutils.unpack_tuple(builder, values), first, last]
    return context.call_conv.call_function(builder, function, types.none, kinds, given)[0]


@intrinsic
def _run(typing, kernel, arguments, first, last):
    """Runs a range in this thread; raises what the kernel raises."""

    def code(context, builder, signature, given):
        status = _called(context, builder, signature.args[1], *given)
        with builder.if_then(status.is_error, likely=False):
            context.call_conv.return_status_propagate(builder, status)
        return context.get_dummy_value()

    return types.void(kernel, arguments, first, last), code


@intrinsic
def _attempt(typing, kernel, arguments, first, last):
    """Runs a range in this thread; returns whether it raised something."""

    def code(context, builder, signature, given):
        return _called(context, builder, signature.args[1], *given).is_error

    return types.boolean(kernel, arguments, first, last), code


@intrinsic
def _post(typing, board, kernel, arguments, first, last):
    """Leaves a range for the thread that has the board."""

    def code(context, builder, signature, given):
        kinds = signature.args[2]
        held = given[2].type
        if context.get_abi_sizeof(held) > _ROOM:
            raise ValueError(f"the arguments of a kernel take {context.get_abi_sizeof(held)} bytes, of {_ROOM}")
        memory = _I64.as_pointer()

        # What the other thread calls with its board: finds everything there.
        function = ir.Function(builder.module, ir.FunctionType(_I64, [_I64]), f"{builder.function.name}.from_board")
        function.linkage = "internal"
        inside = ir.IRBuilder(function.append_basic_block())
        places = inside.inttoptr(function.args[0], memory)
        here = [inside.load(inside.gep(places, [ir.Constant(_I64, KERNEL + n)])) for n in range(3)]
        values = inside.load(_place(inside, places, held), align=8)
        status = _called(context, inside, kinds, here[0], values, *here[1:])
        inside.ret(inside.zext(status.is_error, _I64))

        places = builder.inttoptr(given[0], memory)
        for n, value in enumerate((given[1], *given[3:])):
            builder.store(value, builder.gep(places, [ir.Constant(_I64, KERNEL + n)]))
        builder.store(given[2], _place(builder, places, held), align=8)
        return builder.ptrtoint(function, _I64)

    return types.int64(board, kernel, arguments, first, last), code


def _place(builder, places, held):
    return builder.bitcast(builder.gep(places, [ir.Constant(_I64, ARGUMENTS)]), held.as_pointer())


def _launch(kernel, arguments, last, team, workers, rounds):
    """Runs `kernel` over 0 ... last, in this thread and those whose boards' addresses lie at `team`.

    Returns what has happened, of LATE and WRONG. With no `workers` it raises what the kernel raises.
    """
    if not workers:
        _run(kernel, arguments, 0, last)
        return 0
    step = -(-last // (workers + 1))
    happened = 0
    for i in range(workers):
        board, first = read(team + 8 * i), (i + 1) * step
        if first < last:
            write(board + _DONE, 0)
            write(board + _TASK, _post(board, kernel, arguments, first, min(first + step, last)))
    if _attempt(kernel, arguments, 0, step):
        happened = WRONG
    for i in range(workers):
        board, first = read(team + 8 * i), (i + 1) * step
        if first < last and exchange(board + _TASK, 0):  # nobody has begun with it
            write(board + _DONE, FINISHED)
            if _attempt(kernel, arguments, first, min(first + step, last)):
                happened = WRONG
    for i in range(workers):
        board = read(team + 8 * i)
        if (i + 1) * step < last:
            if not until(board + _DONE, rounds):
                happened |= LATE
            elif read(board + _DONE) == FAILED:
                happened |= WRONG
    return happened


class Shared:
    """A compiled kernel whose ranges several threads may do (pool.run); called with a range at the end, this one."""

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
        numbers = [types.int64] * 4
        starts = compiled(types.int64(types.int64, types.Tuple(given[:-2]), *numbers))(_launch)
        return Shared(_kernel(signature)(function), starts)

    return decorate


def _kernel(signature: str):
    return compiled(signature, no_cpython_wrapper=True)
