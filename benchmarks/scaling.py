"""A model of the training step of DistributedDataParallel: how long it takes with more processes than there are here.

The step is simulated event by event. Each rank computes the forward pass, then the gradients, which become complete at
measured times. Gradients fill buckets (1 MB, then 25 MB). A bucket that is full is reduced while the backward pass goes
on; buckets are reduced one after the other. The update begins when the last one has arrived.

A ring all-reduce of n bytes among p ranks is modelled as 2 (p - 1) messages of n / p bytes, each of which takes
`latency + bytes / bandwidth`; below `SHORT` bytes a tree needs 2 log2(p) messages of n bytes (Thakur, Rabenseifner and
Gropp, "Optimization of collective communication operations in MPICH", 2005).

Assumptions:
- Ranks are equally fast, and each has a core of its own. More ranks than cores are not modelled: they would wait for
  the scheduler, too. So the model is checked with as many processes as there are cores.
- Between machines, data moves while a rank computes. Within a machine (`copied=True`) the cores themselves move it:
  then a rank computes or moves data, not both, and nothing is hidden behind the backward pass.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

FIRST_BUCKET, BUCKET = 1 << 20, 25 << 20  # bytes, as in PyTorch
SHORT = 2048  # bytes


class Network(NamedTuple):
    """Connections between ranks."""

    name: str
    latency: float  # seconds per message
    bandwidth: float  # bytes per second


class Compute(NamedTuple):
    """One rank's work in a step, in seconds."""

    forward: float
    backward: float
    update: float
    ready: Sequence[tuple[int, float]]  # bytes of each gradient, and when it is complete, since backward began


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


def step(compute: Compute, ranks: int, network: Network, copied: bool = False) -> tuple[float, float]:
    """Seconds of a step, and of the part of them in which a rank only waits for gradients.

    Args:
        compute: the work of a rank.
        ranks: how many there are.
        network: what connects them.
        copied: whether the ranks' own cores move the data, through shared memory.

    >>> from benchmarks.scaling import Compute, Network, step
    >>> work = Compute(1.0, 2.0, 0.5, [(1_000_000, 1.0), (1_000_000, 2.0)])
    >>> seconds, exposed = step(work, 2, Network("slow", 0.0, 1e6))
    >>> round(seconds, 3), round(exposed, 3)
    (5.5, 2.0)
    >>> round(step(work, 2, Network("slow", 0.0, 1e6), copied=True)[0], 3)
    5.5
    """
    free = moving = 0.0  # when the buckets so far have been reduced, since backward began; how long that took
    for size, at in buckets(compute.ready):
        took = all_reduce(size, ranks, network)
        free, moving = max(free, at) + took, moving + took
    exposed = moving if copied else max(0.0, free - compute.backward)
    return compute.forward + compute.backward + compute.update + exposed, exposed


def fitted(times: Sequence[tuple[int, float]], ranks: int, name: str) -> Network:
    """The latency and bandwidth that explain measured all-reduces: (bytes, seconds) of a small and a large one.

    >>> from benchmarks.scaling import Network, all_reduce, fitted
    >>> true = Network("n", 1e-5, 1e9)
    >>> found = fitted([(size, all_reduce(size, 4, true)) for size in (4, 4_000_000)], 4, "n")
    >>> round(found.latency * 1e6, 1), round(found.bandwidth / 1e9, 2)
    (10.0, 1.0)
    """
    (small, short), (large, long) = min(times), max(times)
    messages = 2 * math.ceil(math.log2(ranks)) if small < SHORT else 2 * (ranks - 1)
    latency = short / messages
    moved = 2 * (ranks - 1) * large / ranks
    return Network(name, latency, moved / max(long - 2 * (ranks - 1) * latency, 1e-9))
