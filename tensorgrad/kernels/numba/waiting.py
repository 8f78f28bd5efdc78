"""How the threads of the pool wait for each other: for a moment in a loop that holds no lock, without going to sleep.

Waking a thread that sleeps takes the system tens of microseconds, as long as many a kernel runs. The loop gives its
processor away every few microseconds to whatever else wants to run there.
"""

from __future__ import annotations

import os
import platform

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from tensorgrad.kernels.numba.functions import compiled

_CAN_GIVE_WAY = os.name == "posix"
_give_way = types.ExternalFunction("sched_yield", types.int32())
_PAUSE = "llvm.x86.sse2.pause" if platform.machine() in ("x86_64", "AMD64") else ""


@intrinsic
def _read(typing, address):
    """The 64-bit number at an address, which another thread may just be writing."""

    def generate(context, builder, signature, arguments):
        pointer = builder.inttoptr(arguments[0], ir.IntType(64).as_pointer())
        return builder.load_atomic(pointer, "acquire", 8)

    return types.int64(types.int64), generate


@intrinsic
def _write(typing, address, value):
    """Puts a 64-bit number where another thread reads it; what was written before is visible to that thread then."""

    def generate(context, builder, signature, arguments):
        pointer = builder.inttoptr(arguments[0], ir.IntType(64).as_pointer())
        builder.store_atomic(arguments[1], pointer, "release", 8)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


@intrinsic
def _pause(typing):
    """Tells the processor that this is a loop that waits."""

    def generate(context, builder, signature, arguments):
        if _PAUSE:
            nothing = ir.FunctionType(ir.VoidType(), [])
            builder.call(builder.module.declare_intrinsic(_PAUSE, fnty=nothing), [])
        return context.get_dummy_value()

    return types.void(), generate


def _wait():
    @compiled("boolean(int64, int64, int64, int64, int64, int64)")
    def loop(done, count, todo, seen, rounds, grace):
        if done:
            _write(done, count)
        for i in range(rounds):
            if _read(todo) != seen:
                for _ in range(grace):
                    _pause()
                return True
            for _ in range(8):
                _pause()
            if _CAN_GIVE_WAY and i % 16 == 15:
                _give_way()
        return _read(todo) != seen

    return loop


KERNELS = {"wait": _wait}
