"""A model of the training step of DistributedDataParallel: how long it takes with more processes than there are here.

The step is simulated event by event. Each rank computes the forward pass, then the gradients, which become complete at
measured times. Gradients fill buckets (1 MB, then 25 MB). A bucket that is full is reduced while the backward pass goes
on; buckets are reduced one after the other. The update begins when the last one has arrived.

A ring all-reduce of n bytes among p ranks is modelled as 2 (p - 1) messages of n / p bytes, each of which takes
`latency + bytes / bandwidth`; below `SHORT` bytes a tree needs 2 log2(p) messages of n bytes (Thakur, Rabenseifner and
Gropp, "Optimization of collective communication operations in MPICH", 2005).

On one machine the ranks add up gradients in memory that they share (`sums`). That takes a time for each byte that a
rank reads and writes, and a latency whenever ranks wait for each other. The cores themselves move this data: a rank
computes or moves, so nothing is hidden behind the backward pass.

More ranks than cores take turns: the fullest core counts, which has `turns` of them. A rank that waits looks whether it
can go on, and gives its core to another rank. The system cannot know which of them has work, so it may choose one that
waits, too. If it chooses at random, all k ranks of a core have had a turn after k (1 + 1/2 + ... + 1/k) of them on
average (the coupon collector's problem).

Assumptions:
- Ranks are equally fast, and each computes as if it had a core of its own, except for what is measured in turns.
- Between machines, data moves while a rank computes, and all connections are equally fast at all times.
- Waiting for a rank with a core of its own costs the latency; no other programs run.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

FIRST_BUCKET, BUCKET = 1 << 20, 25 << 20  # bytes, as in PyTorch
SHORT = 2048  # bytes
CHUNK = 1 << 19  # bytes that ranks of one machine add up at a time (`mpi/shared_sums.py`)


class Network(NamedTuple):
    """Connections between ranks."""

    name: str
    latency: float  # seconds per message
    bandwidth: float  # bytes per second


class Machine(NamedTuple):
    """Ranks that share memory."""

    name: str
    latency: float  # seconds until a rank sees that another one has written
    bandwidth: float  # bytes per second that a core reads and writes
    cores: int
    turn: float = 0.0  # seconds in which a rank looks whether it can go on, and gives its core to another one


class Compute(NamedTuple):
    """One rank's work in a step, in seconds."""

    forward: float
    backward: float
    update: float
    ready: Sequence[tuple[int, float]]  # bytes of each gradient, and when it is complete, since backward began
    own: float = 0.0  # what DistributedDataParallel itself does, besides adding up


def all_reduce(size: int, ranks: int, network: Network) -> float:
    """Seconds of an all-reduce of `size` bytes.

    >>> from benchmarks.scaling import Network, all_reduce
    >>> round(all_reduce(8_000_000, 4, Network("10 Gbit/s", 20e-6, 1.25e9)), 6)
    0.00972
    """
    if ranks == 1:
        return 0.0
    if size < SHORT:
        return 2 * math.ceil(math.log2(ranks)) * (network.latency + size / network.bandwidth)
    return 2 * (ranks - 1) * (network.latency + size / ranks / network.bandwidth)


def touched(ranks: int) -> float:
    """How many times its gradients' bytes a rank reads and writes in `sums`.

    It writes them where others see them (2). Of two ranks, each adds up everything (3). Of more, each adds up its part,
    and then copies all parts (2).

    >>> from benchmarks.scaling import touched
    >>> touched(2), touched(4)
    (5.0, 6.25)
    """
    return 5.0 if ranks == 2 else 4.0 + 3.0 * (ranks - 1) / ranks


def turns(ranks: int, machine: Machine) -> int:
    """How many ranks the fullest core of a machine has.

    >>> from benchmarks.scaling import Machine, turns
    >>> turns(3, Machine("here", 5e-6, 10e9, 2))
    2
    """
    return math.ceil(ranks / machine.cores)


def wait(ranks: int, machine: Machine) -> float:
    """Seconds until all ranks of a machine know that all have come to the same place.

    >>> from benchmarks.scaling import Machine, wait
    >>> here = Machine("here", 5e-6, 10e9, cores=2, turn=10e-6)
    >>> round(wait(2, here) * 1e6, 1), round(wait(4, here) * 1e6, 1)
    (5.0, 30.0)
    """
    count = turns(ranks, machine)
    taken = machine.turn * count * sum(1 / number for number in range(1, count + 1))
    return machine.latency if count == 1 else max(machine.latency, taken)


def sums(size: int, ranks: int, machine: Machine) -> float:
    """Seconds until the ranks of one machine have added up `size` bytes of each.

    >>> from benchmarks.scaling import Machine, sums
    >>> here = Machine("here", 5e-6, 10e9, cores=2, turn=10e-6)
    >>> round(sums(4 << 20, 2, here) * 1e3, 2), round(sums(4 << 20, 4, here) * 1e3, 2)
    (2.18, 5.96)
    """
    if ranks == 1:
        return 0.0
    waits = rendezvous(ranks) * math.ceil(size / CHUNK)
    return waits * wait(ranks, machine) + turns(ranks, machine) * touched(ranks) * size / machine.bandwidth


def buckets(ready: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    """Bytes of each bucket, and when its last gradient is complete.

    >>> from benchmarks.scaling import buckets
    >>> buckets([(1 << 20, 0.1), (20 << 20, 0.2), (10 << 20, 0.3), (1 << 20, 0.4)])
    [(1048576, 0.1), (31457280, 0.3), (1048576, 0.4)]
    """
    found: list[tuple[int, float]] = []
    size = 0
    for number, (more, at) in enumerate(ready):
        size += more
        if size >= (BUCKET if found else FIRST_BUCKET) or number == len(ready) - 1:
            found.append((size, at))
            size = 0
    return found


def step(compute: Compute, ranks: int, network: Network | Machine) -> tuple[float, float]:
    """Seconds of a step, and of the part of them that only several ranks have: they wait for gradients, or move them.

    Args:
        compute: the work of a rank.
        ranks: how many there are.
        network: what connects them; a `Machine` if they are all on it.

    >>> from benchmarks.scaling import Compute, Machine, Network, step
    >>> work = Compute(1.0, 2.0, 0.5, [(1_000_000, 1.0), (1_000_000, 2.0)])
    >>> seconds, exposed = step(work, 2, Network("slow", 0.0, 1e6))
    >>> round(seconds, 3), round(exposed, 3)
    (5.5, 2.0)
    >>> round(step(work, 2, Machine("slow", 0.0, 5e6, 2))[0], 3)
    5.5
    """
    on_one_machine = isinstance(network, Machine)
    free = moving = 0.0  # when the buckets so far have been reduced, since backward began; how long that took
    for size, at in buckets(compute.ready):
        took = sums(size, ranks, network) if isinstance(network, Machine) else all_reduce(size, ranks, network)
        free, moving = max(free, at) + took, moving + took
    exposed = compute.own + moving if on_one_machine else max(0.0, free - compute.backward)
    return compute.forward + compute.backward + compute.update + exposed, exposed


def slept(compute: Compute, alone: float, busy: float, ranks: int, machine: Machine) -> float:
    """Seconds of a step in which ranks sleep for as long as they would compute, and so need less of their cores.

    Args:
        compute: the work that they sleep instead of.
        alone: seconds of such a step of one rank.
        busy: seconds of processor time in it. Some of it is spent while the rank need not be awake yet.
        ranks, machine: how many there are, and where.

    >>> from benchmarks.scaling import Compute, Machine, slept
    >>> work, here = Compute(1.0, 2.0, 0.5, [(1_000_000, 2.0)]), Machine("here", 0.0, 5e6, 2)
    >>> round(slept(work, 3.6, 0.3, 2, here), 3), round(slept(work, 3.6, 0.3, 4, here), 3)
    (4.6, 6.2)
    """
    count = turns(ranks, machine)
    awake = alone - (compute.forward + compute.backward + compute.update)
    moving = sum(sums(size, ranks, machine) for size, _ in buckets(compute.ready))
    return max(alone + (count - 1) * awake, count * busy) + count * compute.own + moving


def rendezvous(ranks: int) -> int:
    """How often ranks wait for each other in a sum of one chunk."""
    return 2 if ranks == 2 else 3


def turn_of(ranks: int, together: float) -> float:
    """Seconds of a turn, if so many ranks that share one core need `together` for the shortest sum.

    >>> from benchmarks.scaling import Machine, sums, turn_of
    >>> here = Machine("here", 5e-6, 10e9, cores=1, turn=10e-6)
    >>> round(turn_of(4, sums(4, 4, here)) * 1e6, 1)
    10.0
    """
    return together / (rendezvous(ranks) * wait(ranks, Machine("one core", 0.0, math.inf, 1, 1.0)))


def fitted(times: Sequence[tuple[int, float]], name: str, cores: int) -> Machine:
    """The figures of a machine that explain measured sums of two ranks, of which each has a core.

    Args:
        times: (bytes, seconds) of a small and a large sum.
        name, cores: of the machine.

    >>> from benchmarks.scaling import Machine, fitted, sums
    >>> true = Machine("m", 1e-5, 1e9, 2)
    >>> found = fitted([(size, sums(size, 2, true)) for size in (4, 4_000_000)], "m", 2)
    >>> round(found.latency * 1e6, 1), round(found.bandwidth / 1e9, 2)
    (10.0, 1.0)
    """
    (_, short), (large, long) = min(times), max(times)
    latency = short / 2
    moving = max(long - 2 * latency * math.ceil(large / CHUNK), 1e-9)
    return Machine(name, latency, touched(2) * large / moving, cores)
