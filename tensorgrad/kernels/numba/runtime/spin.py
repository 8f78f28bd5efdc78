"""How the threads of the pool wait and divide the work: for a moment in a loop that holds no lock.

Waking a thread that sleeps takes the system tens of microseconds, as long as many a kernel runs; taking Python's lock
from a thread that holds it, the same. The loops give their processor away every few microseconds to whatever else wants
to run there. They go by the clock, as the pause between two looks is ten times as long on one processor as on another.
"""

from __future__ import annotations

import ctypes
import os
import platform
import time
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir

from tensorgrad.kernels.numba.runtime.internals import nothing
from tensorgrad.kernels.numba.runtime.language import inner, intrinsic, types
from tensorgrad.kernels.numba.runtime.launch import of_numbers, plain, shared
from tensorgrad.kernels.numba.runtime.mailbox import (
    CALLED,
    CLOCK,
    CROWDED,
    DONE,
    FAILED,
    FINISHED,
    FIRST,
    IDLE,
    IN_PYTHON,
    LAST,
    LATE,
    LEADER,
    MOVED,
    NOTHING,
    PATIENCE,
    PUBLISHER,
    TASK,
    WAITER_CLOCK,
    WORKERS,
    WRONG,
)  # fmt: skip

_TASK, _DONE, _WORKERS = 8 * TASK, 8 * DONE, 8 * WORKERS  # in bytes
_CAN_YIELD = os.name == "posix"
_CAN_TELL = _CAN_YIELD and hasattr(ctypes.CDLL(None), "sched_getcpu")
_LOST, _AGAIN = 20_000, 10_000_000  # nanoseconds that another thread has had our processor; from move to move
_TURN = 4_000  # nanoseconds, after which others may have the processor
_NAP = np.uint32(50)  # microseconds
_PROBED = 2_000_000  # nanoseconds that a range of the small kernel waits for the other
_LOOKS = 16  # before the clock is read
_LOOK = 250  # nanoseconds that one takes where there is no clock to tell
_I64 = ir.IntType(64)


@intrinsic
def read(typing, address):
    """The 64-bit number at an address, which another thread may just be writing."""

    def generate(context, builder, signature, arguments):
        pointer = builder.inttoptr(arguments[0], _I64.as_pointer())
        return builder.load_atomic(pointer, "acquire", 8)

    return types.int64(types.int64), generate


@intrinsic
def write(typing, address, value):
    """Puts a 64-bit number where another thread reads it; what was written before is visible to that thread then."""

    def generate(context, builder, signature, arguments):
        pointer = builder.inttoptr(arguments[0], _I64.as_pointer())
        builder.store_atomic(arguments[1], pointer, "release", 8)
        return nothing(context)

    return types.void(types.int64, types.int64), generate


@intrinsic
def exchange(typing, address, value):
    """Puts a 64-bit number in the place of another, which it returns: of several threads one gets it."""

    def generate(context, builder, signature, arguments):
        pointer = builder.inttoptr(arguments[0], _I64.as_pointer())
        return builder.atomic_rmw("xchg", pointer, arguments[1], "acq_rel")

    return types.int64(types.int64, types.int64), generate


@intrinsic
def _run_range(typing, task, place, first, last):
    """Calls the function whose address is `task` with where the arguments lie, and a range; whether it failed."""

    def generate(context, builder, signature, arguments):
        function = builder.inttoptr(arguments[0], ir.FunctionType(_I64, [_I64] * 3).as_pointer())
        return builder.call(function, arguments[1:])

    return types.int64(types.int64, types.int64, types.int64, types.int64), generate


def pause(builder, machine):
    """Code that tells a processor of this name (as `platform.machine()` has it) that this is a loop that waits."""
    if machine in ("x86_64", "AMD64"):
        kind = ir.FunctionType(ir.VoidType(), [])
        builder.call(builder.module.declare_intrinsic("llvm.x86.sse2.pause", fnty=kind), [])
    elif machine in ("aarch64", "arm64", "ARM64"):  # `isb`: on most of them `yield` does nothing
        number = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [number])
        builder.call(builder.module.declare_intrinsic("llvm.aarch64.isb", fnty=kind), [number(15)])


@intrinsic
def _pause(typing):
    def generate(context, builder, signature, arguments):
        pause(builder, platform.machine())
        return nothing(context)

    return types.void(), generate


# --- the system's functions: where one is missing nothing may name it, since an unknown name ends the process ---

if _CAN_YIELD:
    _sched_yield = types.ExternalFunction("sched_yield", types.int32())
    _clock_gettime = types.ExternalFunction("clock_gettime", types.int32(types.int32, types.int64))
    _usleep = types.ExternalFunction("usleep", types.int32(types.uint32))
    _CLOCK = np.int32(getattr(time, "CLOCK_MONOTONIC", 0))

    @inner
    def _yield_processor():
        _sched_yield()

    @inner
    def _sleep():
        _usleep(_NAP)

    @inner
    def _now(place, before, looks):
        """The time in nanoseconds, so many looks after `before`; `place` is memory for the system's two numbers."""
        _clock_gettime(_CLOCK, place)
        return read(place) * 1_000_000_000 + read(place + 8)

else:

    @inner
    def _yield_processor():
        pass

    @inner
    def _sleep():
        pass

    @inner
    def _now(place, before, looks):
        return before + looks * _LOOK


if _CAN_TELL:
    _sched_getcpu = types.ExternalFunction("sched_getcpu", types.int32())

    @inner
    def _processor():
        """The one that this thread runs on."""
        return np.int64(_sched_getcpu())

    @inner
    def _beside_publisher(mailbox):
        """Whether this thread is where the one was that last gave it a task."""
        return _processor() == read(mailbox + 8 * PUBLISHER)

else:

    @inner
    def _processor():
        return np.int64(-1)

    @inner
    def _beside_publisher(mailbox):
        return False


@inner
def _seen(address, looks):
    """Whether the number at an address is another than 0 at one of so many looks."""
    for _ in range(looks):
        if read(address):
            return True
        for _ in range(8):
            _pause()
    return False


@inner
def spin_until(address, limit, clock):
    """Waits for the number at an address to become another than 0, so many nanoseconds at most; whether it did.

    What others have of the processor meanwhile does not count. `clock` is memory for the time.
    """
    if limit <= 0 or read(address):
        return read(address) != 0
    waited = turn = np.int64(0)
    since = _now(clock, np.int64(0), 0)
    while waited < limit:
        if _seen(address, _LOOKS):
            return True
        now = _now(clock, since, _LOOKS)
        waited, turn, since = waited + now - since, turn + now - since, now
        if turn >= _TURN:
            _yield_processor()
            turn, since = np.int64(0), _now(clock, now, 0)
    return read(address) != 0


@inner
def _pause_for(grace, clock):
    """Waits so many nanoseconds."""
    start = now = _now(clock, np.int64(0), 0)
    while now - start < grace:
        for _ in range(8):
            _pause()
        now = _now(clock, now, 1)


@inner
def _may_move(mailbox, now):
    """Whether a thread that is in another's way is to be moved; not soon again, if that was of no use."""
    again = now - read(mailbox + 8 * MOVED) > _AGAIN
    if again:
        write(mailbox + 8 * MOVED, now)
    return again


@inner
def _spin(mailbox, limit):
    """Waits as `spin_until` for a task; returns CALLED (for any), IDLE or CROWDED.

    A thread that finds itself on one processor with another says so, to be moved; if that was of no use it goes to
    sleep for a moment, as on a busy machine it is in the way.
    """
    waited, turn, clock = np.int64(0), np.int64(0), mailbox + 8 * CLOCK
    since = _now(clock, np.int64(0), 0)
    while waited < limit:
        if _seen(mailbox + _TASK, _LOOKS):
            return CALLED
        now = _now(clock, since, _LOOKS)
        waited, turn, since = waited + now - since, turn + now - since, now
        if turn >= _TURN:
            _yield_processor()
            turn, since = np.int64(0), _now(clock, now, 0)
            lost = since - now > _LOST
            if (lost or _beside_publisher(mailbox)) and _may_move(mailbox, since):
                return CROWDED
            if lost:
                _sleep()
                since = _now(clock, since, 0)
    return CALLED if read(mailbox + _TASK) else IDLE


def _serve():
    @plain("int64(int64, int64, int64)")
    def serve(mailbox, limit, grace):
        """Does the tasks that come to a mailbox. Returns IDLE if none comes for so many nanoseconds, CALLED for one in
        Python, `grace` nanoseconds after it came, or CROWDED."""
        while True:
            what = _spin(mailbox, limit)
            if what != CALLED:
                return what
            if read(mailbox + _TASK) == IN_PYTHON:
                _pause_for(grace, mailbox + 8 * CLOCK)
                return CALLED
            task = exchange(mailbox + _TASK, NOTHING)
            if task == IN_PYTHON:
                return CALLED
            if task:
                place, first, last = read(mailbox + 8 * LEADER), read(mailbox + 8 * FIRST), read(mailbox + 8 * LAST)
                write(mailbox + _DONE, FAILED if _run_range(task, place, first, last) else FINISHED)
                if _beside_publisher(mailbox) and _may_move(mailbox, _now(mailbox + 8 * CLOCK, np.int64(0), 0)):
                    return CROWDED

    return serve


def _done():
    @plain("boolean(int64, int64)")
    def done(mailbox, limit):
        """Waits until a task is done, so many nanoseconds at most; whether it is."""
        return spin_until(mailbox + _DONE, limit, mailbox + 8 * WAITER_CLOCK)

    return done


def _divide():
    @of_numbers("int64(int64, int64, int64, int64)")
    def divide(task, place, last, workers):
        """Has 0 ... last done by this thread and `workers` others. Returns what has happened, of LATE and WRONG.

        `task` is the address of what does a range; the mailbox at `place` has the arguments and the others' addresses.
        """
        step, here = -(-last // (workers + 1)), _processor()
        for i in range(workers):
            mailbox, first = read(place + _WORKERS + 8 * i), (i + 1) * step
            write(mailbox + _DONE, NOTHING if first < last else FINISHED)  # whatever became of the task before
            if first < last:
                write(mailbox + 8 * LEADER, place)
                write(mailbox + 8 * FIRST, first)
                write(mailbox + 8 * LAST, min(first + step, last))
                write(mailbox + 8 * PUBLISHER, here)
                write(mailbox + _TASK, task)
        happened = WRONG if _run_range(task, place, 0, step) else 0
        for i in range(workers):
            mailbox, first = read(place + _WORKERS + 8 * i), (i + 1) * step
            if first < last and exchange(mailbox + _TASK, NOTHING):  # stolen: it was not begun
                write(mailbox + _DONE, FINISHED)
                if _run_range(task, place, first, min(first + step, last)):
                    happened = WRONG
        for i in range(workers):
            mailbox = read(place + _WORKERS + 8 * i)
            if not spin_until(mailbox + _DONE, read(place + 8 * PATIENCE), mailbox + 8 * WAITER_CLOCK):
                happened |= LATE
            elif read(mailbox + _DONE) == FAILED:
                happened |= WRONG
        return happened

    return divide


def _probe():
    @shared("void(float32[::1], float32[::1], int64, int64, int64)")
    def probe(x, out, gate, first, last):
        """out = 2 x. The range that begins with 0 waits a moment at the gate, so that another thread does the other."""
        for i in range(first, last):
            out[i] = x[i] + x[i]
        if first:
            write(gate, 1)
        elif last < len(x):
            spin_until(gate, _PROBED, gate + 8)

    return probe


class Loops(NamedTuple):
    """The compiled loops: of a thread that waits for work, and of one that waits for another; what divides work."""

    serve: Any
    done: Any
    divide: Any  # a C function, by its address
    probe: Any  # a small kernel, by which self_test.py sees whether all this works


KERNELS = {"wait": lambda: Loops(_serve(), _done(), _divide(), _probe())}
