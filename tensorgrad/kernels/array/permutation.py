"""Random permutations: the outcome of PyTorch's shuffles, found without taking their steps one by one."""

from __future__ import annotations

import numpy as np

from tensorgrad.generator import Generator
from tensorgrad.kernels.array.sample import I64, U64, to_dtype

# From here on PyTorch's randperm draws 64 bits per element and shuffles "inside out".
INSIDE_OUT = (2**32 - 1) // 20


def randperm(gen: Generator, n: int, dtype: np.dtype = I64) -> np.ndarray:
    """A random permutation of 0 .. n-1 as a vector of `dtype`.

    Source: R. A. Fisher and F. Yates; in step i the number at i changes places with the one at i + word % (n - i).
    The steps look sequential; `_shuffle` finds their outcome without taking them, in a third of a loop's time.

    >>> randperm(Generator().manual_seed(0), 5).tolist()
    [4, 0, 1, 3, 2]
    """
    if n >= INSIDE_OUT:
        targets = gen.random64(n)
        targets %= np.arange(1, n + 1, dtype=U64)
        return to_dtype(_inside_out(targets.view(I64)), dtype)
    if n < 2:
        return to_dtype(np.zeros(n, I64), dtype)
    steps = gen.words(n - 1).view(I64)
    steps %= np.arange(n, 1, -1)
    if n <= 384:
        numbers = list(range(n))
        for i, step in enumerate(steps.tolist()):
            j = i + step
            numbers[i], numbers[j] = numbers[j], numbers[i]
        return to_dtype(np.array(numbers, I64), dtype)
    targets = np.empty(n, I64)
    np.add(steps, np.arange(n - 1), out=targets[:-1])
    targets[-1] = n - 1  # the last number stays where it is
    return to_dtype(_shuffle(targets), dtype)


def _previous(targets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each step the last one before it with the same target; for each place the last step that has it for a target.

    -1 stands for none. (Whole-array selections throughout: boolean indexing by a random mask is several times slower.)
    """
    n = targets.size
    order = np.sort(targets.view(U64) << np.uint64(32) | np.arange(n, dtype=U64))  # by target, then by step
    target, step = (order >> np.uint64(32)).view(I64), (order & np.uint64(2**32 - 1)).view(I64)
    before = np.full(n, -1)
    np.copyto(before[1:], step[:-1], where=target[1:] == target[:-1])
    previous, last = np.empty(n, I64), np.full(n, -1)
    previous[step] = before
    last[target] = step  # of several, the last stays
    return previous, last


def _follow(parent: np.ndarray) -> np.ndarray:
    """The end of each chain i -> parent[i] -> ..., by doubling: the chains have a few dozen links at most."""
    while True:
        further = parent.take(parent)
        if np.array_equal(further, parent):
            return parent
        parent = further


def _shuffle(targets: np.ndarray) -> np.ndarray:
    """The outcome of swapping i with targets[i] (which is >= i) for i = 0, 1, ..., on the numbers 0 .. n-1.

    Step i takes away what lies at targets[i]: what the previous step with this target, m, had put there (the number
    then at m), or else targets[i] itself. And what lies at i when step i begins was put there by the last earlier step
    with target i, or is i. Both are chains from step to earlier step, so all of them are followed at once.
    """
    previous, last = _previous(targets)
    steps = np.arange(targets.size)
    earlier = np.where(last == steps, previous, last)  # a step may be its own target, and is then the last to be so
    at = _follow(np.where(earlier < 0, steps, earlier))
    return np.where(previous < 0, targets, at.take(previous, mode="wrap"))


def _inside_out(targets: np.ndarray) -> np.ndarray:
    """The outcome of a[i] = a[targets[i]], a[targets[i]] = i (targets[i] <= i) for i = 0, 1, ... .

    A place holds the last step that had it for a target. If none had, it holds what its own step found at the target:
    the step before with that target, or else what that place got from its own step, and so on along a chain.
    """
    previous, last = _previous(targets)
    steps = np.arange(targets.size)
    at = _follow(np.where(previous < 0, targets, steps))
    found = np.where(previous < 0, steps, previous).take(at)
    return np.where(last < 0, found, last)
