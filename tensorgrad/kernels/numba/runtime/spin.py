"""How the pool's threads wait and divide work: briefly, in loops that hold no lock.

Waking a sleeping thread takes the system tens of microseconds, as long as many kernels run, and so does taking the GIL
from a thread that holds it. The loops yield their processor every few microseconds to anything else that wants to run.
They go by the clock, because the pause between two reads is ten times as long on some processors as on others.
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
_LOST, _AGAIN = 20_000, 10_000_000  # nanoseconds another thread has run on our processor; between two moves
_TURN = 4_000  # nanoseconds after which the processor is yielded
_NAP = np.uint32(50)  # microseconds
_PROBED = 2_000_000  # nanoseconds that one range of the small kernel waits for the other
_LOOKS = 16  # reads before the clock is checked
_LOOK = 250  # nanoseconds that a read takes, where there is no clock to measure it
_I64 = ir.IntType(64)


@intrinsic
def read(typing, address):
    """Reads the 64-bit number at an address that another thread may be writing."""

    def generate(context, builder, signature, arguments):
        pointer = builder.inttoptr(arguments[0], _I64.as_pointer())
        return builder.load_atomic(pointer, "acquire", 8)

    return types.int64(types.int64), generate


@intrinsic
def write(typing, address, value):
    """Writes a 64-bit number for another thread; that thread then also sees everything written before."""

    def generate(context, builder, signature, arguments):
        pointer = builder.inttoptr(arguments[0], _I64.as_pointer())
        builder.store_atomic(arguments[1], pointer, "release", 8)
        return nothing(context)

    return types.void(types.int64, types.int64), generate


@intrinsic
def exchange(typing, address, value):
    """Replaces a 64-bit number atomically and returns the old one: of several threads only one gets it."""

    def generate(context, builder, signature, arguments):
        pointer = builder.inttoptr(arguments[0], _I64.as_pointer())
        return builder.atomic_rmw("xchg", pointer, arguments[1], "acq_rel")

    return types.int64(types.int64, types.int64), generate


@intrinsic
def _run_range(typing, task, place, first, last):
    """Calls the function at address `task` with the address of the arguments and a range. Returns whether it failed."""

    def generate(context, builder, signature, arguments):
        function = builder.inttoptr(arguments[0], ir.FunctionType(_I64, [_I64] * 3).as_pointer())
        return builder.call(function, arguments[1:])

    return types.int64(types.int64, types.int64, types.int64, types.int64), generate


def pause(builder, machine):
    """Emits the instruction that marks a waiting loop on a processor (a name as in `platform.machine()`)."""
    if machine in ("x86_64", "AMD64"):
        kind = ir.FunctionType(ir.VoidType(), [])
        builder.call(builder.module.declare_intrinsic("llvm.x86.sse2.pause", fnty=kind), [])
    elif machine in ("aarch64", "arm64", "ARM64"):  # `isb`, as on most of them `yield` does nothing
        number = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [number])
        builder.call(builder.module.declare_intrinsic("llvm.aarch64.isb", fnty=kind), [number(15)])


@intrinsic
def _pause(typing):
    def generate(context, builder, signature, arguments):
        pause(builder, platform.machine())
        return nothing(context)

    return types.void(), generate


# --- system functions: a missing one must not be named, since an unknown name ends the process ---

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
        """Returns the time in nanoseconds, `looks` reads after `before`; `place` is memory for the system's numbers."""
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
        """Returns the processor that this thread runs on."""
        return np.int64(_sched_getcpu())

    @inner
    def _beside_publisher(mailbox):
        """Returns whether this thread runs on the processor of the thread that last published a task to it."""
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
    """Returns whether the number at an address is nonzero at one of `looks` reads."""
    for _ in range(looks):
        if read(address):
            return True
        for _ in range(8):
            _pause()
    return False


@inner
def spin_until(address, limit, clock):
    """Waits up to `limit` nanoseconds for the number at an address to become nonzero. Returns whether it did.

    Time in which other threads use the processor does not count. `clock` is memory for the time.
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
    """Waits `grace` nanoseconds."""
    start = now = _now(clock, np.int64(0), 0)
    while now - start < grace:
        for _ in range(8):
            _pause()
        now = _now(clock, now, 1)


@inner
def _may_move(mailbox, now):
    """Returns whether a thread that shares its processor should be moved; not again soon, if that did not help."""
    again = now - read(mailbox + 8 * MOVED) > _AGAIN
    if again:
        write(mailbox + 8 * MOVED, now)
    return again


@inner
def _spin(mailbox, limit):
    """Waits for a task as `spin_until` does. Returns CALLED (for any task), IDLE or CROWDED.

    A thread that shares its processor with another asks to be moved. If moving it did not help, it sleeps for a moment:
    on a busy machine it would be in the way.
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
        """Runs the tasks that arrive in a mailbox, and returns why it stopped.

        IDLE: none arrived for `limit` nanoseconds; CALLED: a call in Python arrived `grace` nanoseconds ago; or
        CROWDED.
        """
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
        """Waits up to `limit` nanoseconds for a task to be done. Returns whether it is."""
        return spin_until(mailbox + _DONE, limit, mailbox + 8 * WAITER_CLOCK)

    return done


def _divide():
    @of_numbers("int64(int64, int64, int64, int64)")
    def divide(task, place, last, workers):
        """Runs 0 ... last in this thread and `workers` others. Returns flags of what happened: LATE and WRONG.

        `task` is the address of the function that runs a range; the mailbox at `place` has the arguments and the
        others' addresses.
        """
        step, here = -(-last // (workers + 1)), _processor()
        for i in range(workers):
            mailbox, first = read(place + _WORKERS + 8 * i), (i + 1) * step
            write(mailbox + _DONE, NOTHING if first < last else FINISHED)  # whatever the outcome of the task before
            if first < last:
                write(mailbox + 8 * LEADER, place)
                write(mailbox + 8 * FIRST, first)
                write(mailbox + 8 * LAST, min(first + step, last))
                write(mailbox + 8 * PUBLISHER, here)
                write(mailbox + _TASK, task)
        happened = WRONG if _run_range(task, place, 0, step) else 0
        for i in range(workers):
            mailbox, first = read(place + _WORKERS + 8 * i), (i + 1) * step
            if first < last and exchange(mailbox + _TASK, NOTHING):  # stolen: its worker had not begun it
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
        """Computes out = 2 x. The range from 0 waits briefly at the gate, so that another thread takes the other."""
        for i in range(first, last):
            out[i] = x[i] + x[i]
        if first:
            write(gate, 1)
        elif last < len(x):
            spin_until(gate, _PROBED, gate + 8)

    return probe


class Loops(NamedTuple):
    """The compiled loops: one waits for work, one waits for another thread, one divides work."""

    serve: Any
    done: Any
    divide: Any  # a C function, by its address
    probe: Any  # a small kernel with which self_test.py checks the others


KERNELS = {"wait": lambda: Loops(_serve(), _done(), _divide(), _probe())}
