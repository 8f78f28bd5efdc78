"""How the pool's threads wait and divide work: briefly, in loops that hold no lock.

Waking a sleeping thread takes the system tens of microseconds, as long as many kernels run, and so does taking the GIL
from a thread that holds it. The loops yield their processor every few microseconds if the thread that they wait for, or
one that takes the processor by itself, wants to run there. Otherwise they do not: programs of low priority would then
run for milliseconds at a time. They go by the clock, because the pause between two reads is ten times as long on some
processors as on others.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tensorgrad.kernels.compiled.runtime import native, target
from tensorgrad.kernels.compiled.runtime.language import inner, intrinsic, ir, nothing, types
from tensorgrad.kernels.compiled.runtime.launch import of_numbers, plain, shared
from tensorgrad.kernels.compiled.runtime.mailbox import (
    ARGUMENTS,
    ASLEEP,
    BACKOFF,
    CALLED,
    COUNT,
    CROWDED,
    DONE,
    EACH,
    FAILED,
    FINISHED,
    FIRST,
    IDLE,
    IN_PYTHON,
    LAST,
    LATE,
    LEADER,
    MIGRATED,
    MIGRATION,
    NOTHING,
    PLACE,
    PUBLISHER,
    SEMAPHORE,
    SLEEPS,
    SPIN_LIMIT,
    TASK,
    WAITER,
    WORKER,
    WORKERS,
    WRONG,
    YIELDS_UNTIL,
)  # fmt: skip
from tensorgrad.kernels.compiled.runtime.timing import (
    MAX_BACKOFF,
    MAX_MIGRATION,
    MIN_BACKOFF,
    MIN_MIGRATION,
    PAUSES_PER_READ,
    POLL,
    PREEMPTED,
    PROBE,
    RARELY_PREEMPTED,
    READ,
    READS_PER_CLOCK,
    YIELD_INTERVAL,
)

_TASK, _DONE, _WORKERS, _ARGUMENTS = 8 * TASK, 8 * DONE, 8 * WORKERS, 8 * ARGUMENTS  # in bytes
_SLEEP = np.uint32(POLL // 1000)  # microseconds
_I64 = ir.IntType(64)
SYSTEM, SYSTEM_NUMBERS = native.PREFIX + "system", native.CAN_SLEEP + 1
CLOCK, CAN_YIELD, CAN_TELL = np.int64(native.CLOCK), np.int64(native.CAN_YIELD), np.int64(native.CAN_TELL)


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
def fence(typing):
    """Waits until what this thread has written is visible to the others, before it reads on."""

    def generate(context, builder, signature, arguments):
        builder.fence("seq_cst")
        return nothing(context)

    return types.void(), generate


@intrinsic
def _run_range(typing, task, place, first, last):
    """Calls the function at address `task` with the address of the arguments and a range. Returns whether it failed."""

    def generate(context, builder, signature, arguments):
        function = builder.inttoptr(arguments[0], ir.FunctionType(_I64, [_I64] * 3).as_pointer())
        return builder.call(function, arguments[1:])

    return types.int64(types.int64, types.int64, types.int64, types.int64), generate


def pause(builder, machine):
    """Emits the instruction that marks a waiting loop on a processor."""
    if machine == "x86_64":
        kind = ir.FunctionType(ir.VoidType(), [])
        builder.call(builder.module.declare_intrinsic("llvm.x86.sse2.pause", fnty=kind), [])
    elif machine == "aarch64":  # `isb`, as on most of them `yield` does nothing
        number = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [number])
        builder.call(builder.module.declare_intrinsic("llvm.aarch64.isb", fnty=kind), [number(15)])


@intrinsic
def _pause(typing):
    def generate(context, builder, signature, arguments):
        pause(builder, target.current().machine)
        return nothing(context)

    return types.void(), generate


# --- system functions: which of them there are, a kernel reads from numbers that the loader fills in (native.py) ---


@intrinsic
def _system(typing, which):
    """Returns one of the numbers that tell what this system has."""

    def generate(context, builder, signature, arguments):
        module, kind = builder.module, ir.ArrayType(_I64, SYSTEM_NUMBERS)
        numbers = module.globals.get(SYSTEM) or ir.GlobalVariable(module, kind, SYSTEM)
        return builder.load(builder.gep(numbers, [ir.Constant(_I64, 0), arguments[0]]))

    return types.int64(types.int64), generate


_sched_yield = types.ExternalFunction("sched_yield", types.int32())
_clock_gettime = types.ExternalFunction("clock_gettime", types.int32(types.int32, types.int64))
_usleep = types.ExternalFunction("usleep", types.int32(types.uint32))
_sched_getcpu = types.ExternalFunction("sched_getcpu", types.int32())
_sem_wait = types.ExternalFunction("sem_wait", types.int32(types.int64))
_sem_post = types.ExternalFunction("sem_post", types.int32(types.int64))


@inner
def _yield_processor():
    if _system(CAN_YIELD):
        _sched_yield()


@inner
def _sleep():
    if _system(CAN_YIELD):
        _usleep(_SLEEP)


@inner
def _now(place, before, looks):
    """Returns the time in nanoseconds, `looks` reads after `before`; `place` is memory for the system's numbers."""
    clock = _system(CLOCK)
    if clock < 0:
        return before + looks * READ
    _clock_gettime(np.int32(clock), place)
    return read(place) * 1_000_000_000 + read(place + 8)


@inner
def _block(mailbox):
    """Sleeps until there is a task."""
    write(mailbox + 8 * ASLEEP, 1)
    fence()
    if read(mailbox + _TASK) and exchange(mailbox + 8 * ASLEEP, 0):
        return
    while _sem_wait(mailbox + 8 * SEMAPHORE):  # a signal interrupted it
        pass


@inner
def _wake_up(mailbox):
    """Wakes a thread if it sleeps. Returns whether it did."""
    if read(mailbox + 8 * SLEEPS) and read(mailbox + 8 * ASLEEP) and exchange(mailbox + 8 * ASLEEP, 0):
        _sem_post(mailbox + 8 * SEMAPHORE)
        return True
    return False


@inner
def _wake_some(place, count):
    """Wakes some of the workers that sleep though they have a task; each of them wakes others in turn.

    Waking one takes microseconds, too long for the thread that starts a kernel to wake them all.
    """
    woken = 0
    for i in range(count):
        mailbox = read(place + _WORKERS + 8 * i)
        if read(mailbox + 8 * ASLEEP) and read(mailbox + _TASK) and _wake_up(mailbox):
            woken += 1
            if woken == EACH:
                break


@inner
def _processor():
    """Returns the processor that this thread runs on; -1 if the system does not tell."""
    return np.int64(_sched_getcpu()) if _system(CAN_TELL) else np.int64(-1)


@inner
def _beside_publisher(mailbox):
    """Returns whether this thread runs on the processor of the thread that last published a task to it."""
    return _system(CAN_TELL) != 0 and _processor() == read(mailbox + 8 * PUBLISHER)


@inner
def _nonzero(address, looks):
    """Returns whether the number at an address is nonzero at one of `looks` reads."""
    for _ in range(looks):
        if read(address):
            return True
        for _ in range(PAUSES_PER_READ):
            _pause()
    return False


@inner
def _preempted(waiter, since, now):
    """Takes note that another thread had this one's processor from `since` to `now`. Returns whether that is often.

    If so, this thread yields it for some time, and longer each time: the other has a right to a large share, and this
    one is only waiting. A program of low priority gets a small one, but would run for milliseconds after each yield.
    """
    before = read(waiter + 8 * YIELDS_UNTIL)
    span: Any = np.int64(0)
    often = since - before < RARELY_PREEMPTED * (now - since)
    if often:
        span = min(max(2 * read(waiter + 8 * BACKOFF), MIN_BACKOFF), MAX_BACKOFF)
    write(waiter + 8 * BACKOFF, span)
    write(waiter + 8 * YIELDS_UNTIL, now + span)
    return often


@inner
def spin_until(address, limit, waiter, beside):
    """Waits up to `limit` nanoseconds for the number at an address to become nonzero. Returns whether it did.

    Time in which other threads use the processor does not count. `waiter` is memory for what a waiting thread knows.
    `beside` is the address of the processor that it yields, as the thread that it waits for runs there.
    """
    if limit <= 0 or read(address):
        return read(address) != 0
    waited = turn = np.int64(0)
    since = _now(waiter, np.int64(0), 0)
    while waited < limit:
        if _nonzero(address, READS_PER_CLOCK):
            return True
        now = _now(waiter, since, READS_PER_CLOCK)
        if now - since > PREEMPTED:
            _preempted(waiter, since, now)
        else:
            waited, turn = waited + now - since, turn + now - since
        since = now
        if turn >= YIELD_INTERVAL:
            turn = np.int64(0)
            if now < read(waiter + 8 * YIELDS_UNTIL) or _processor() == read(beside):
                _yield_processor()
                since = _now(waiter, now, 0)
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
def _may_migrate(mailbox, now):
    """Returns whether a thread that shares its processor should be moved.

    Not again soon, and each time later, if that did not help: on a busy machine every processor is shared.
    """
    since, stays = now - read(mailbox + 8 * MIGRATED), max(read(mailbox + 8 * MIGRATION), MIN_MIGRATION)
    if since <= stays:
        return False
    write(mailbox + 8 * MIGRATION, MIN_MIGRATION if since > 16 * stays else min(2 * stays, MAX_MIGRATION))
    write(mailbox + 8 * MIGRATED, now)
    return True


@inner
def _spin(mailbox, limit):
    """Waits for a task as `spin_until` does. Returns CALLED (for any task), IDLE or CROWDED.

    A thread that shares its processor with another asks to be moved. If moving it did not help, it sleeps for a moment:
    on a busy machine it would be in the way.
    """
    waited, turn, waiter = np.int64(0), np.int64(0), mailbox + 8 * WORKER
    since = _now(waiter, np.int64(0), 0)
    while waited < limit:
        if _nonzero(mailbox + _TASK, READS_PER_CLOCK):
            return CALLED
        now = _now(waiter, since, READS_PER_CLOCK)
        preempted = False
        if now - since > PREEMPTED:
            preempted = _preempted(waiter, since, now)
        else:
            waited, turn = waited + now - since, turn + now - since
        since = now
        if preempted or turn >= YIELD_INTERVAL:
            turn = np.int64(0)
            beside = _beside_publisher(mailbox)
            if beside or now < read(waiter + 8 * YIELDS_UNTIL):
                _yield_processor()
                since = _now(waiter, now, 0)
                preempted |= since - now > PREEMPTED
            if (preempted or beside) and _may_migrate(mailbox, since):
                return CROWDED
            if preempted:
                _sleep()
                since = _now(waiter, since, 0)
    return CALLED if read(mailbox + _TASK) else IDLE


def _serve():
    @plain("int64(int64, int64, int64)")
    def serve(mailbox, limit, grace):
        """Runs the tasks that arrive in a mailbox, and returns why it stopped.

        IDLE: none arrived for `limit` nanoseconds; CALLED: a call in Python arrived `grace` nanoseconds ago; or
        CROWDED. If it may sleep here, it does so instead of returning IDLE.
        """
        sleeps = read(mailbox + 8 * SLEEPS) != 0
        while True:
            what = _spin(mailbox, read(mailbox + 8 * SPIN_LIMIT) if sleeps else limit)
            if what == IDLE and sleeps:
                _block(mailbox)
                leader = read(mailbox + 8 * LEADER)
                if leader:
                    _wake_some(leader, read(leader + 8 * COUNT))
                continue
            if what != CALLED:
                return what
            if read(mailbox + _TASK) == IN_PYTHON:
                _pause_for(grace, mailbox + 8 * WORKER)
                return CALLED
            task = exchange(mailbox + _TASK, NOTHING)
            if task == IN_PYTHON:
                return CALLED
            if task:
                place, first, last = read(mailbox + 8 * LEADER), read(mailbox + 8 * FIRST), read(mailbox + 8 * LAST)
                write(mailbox + 8 * PLACE, _processor())
                failed = _run_range(task, place + _ARGUMENTS, first, last)
                write(mailbox + _DONE, FAILED if failed else FINISHED)
                if _beside_publisher(mailbox) and _may_migrate(mailbox, _now(mailbox + 8 * WORKER, np.int64(0), 0)):
                    return CROWDED

    return serve


def _wake():
    @plain("boolean(int64)")
    def wake(mailbox):
        """Wakes the thread of a mailbox, in which a task was just written, if it sleeps. Returns whether it did."""
        fence()
        return _wake_up(mailbox)

    return wake


def _done():
    @plain("boolean(int64, int64)")
    def done(mailbox, limit):
        """Waits up to `limit` nanoseconds for a task to be done. Returns whether it is."""
        return spin_until(mailbox + _DONE, limit, mailbox + 8 * WAITER, mailbox + 8 * PLACE)

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
        write(place + 8 * COUNT, workers)
        fence()
        _wake_some(place, workers)
        happened = WRONG if _run_range(task, place + _ARGUMENTS, 0, step) else 0
        for i in range(workers):
            mailbox, first = read(place + _WORKERS + 8 * i), (i + 1) * step
            if first < last and exchange(mailbox + _TASK, NOTHING):  # stolen: its worker had not begun it
                write(mailbox + _DONE, FINISHED)
                if _run_range(task, place + _ARGUMENTS, first, min(first + step, last)):
                    happened = WRONG
        for i in range(workers):
            mailbox = read(place + _WORKERS + 8 * i)
            if not spin_until(mailbox + _DONE, read(place + 8 * SPIN_LIMIT), mailbox + 8 * WAITER, mailbox + 8 * PLACE):
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
            spin_until(gate, PROBE, gate + 8, gate)

    return probe


class Loops(NamedTuple):
    """The compiled loops: one waits for work, one wakes the thread that does, one waits for another thread, one
    divides work."""

    serve: Any
    wake: Any
    done: Any
    divide: Any  # a C function, by its address
    probe: Any  # a small kernel with which self_test.py checks the others

    @property
    def sleeps(self) -> bool:
        """Whether `serve` can sleep."""
        return bool(native.system_numbers()[native.CAN_SLEEP])


KERNELS = {"wait": lambda: Loops(_serve(), _wake(), _done(), _divide(), _probe())}
