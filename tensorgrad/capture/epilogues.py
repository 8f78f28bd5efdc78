"""Epilogues: launches of a plan that one kernel does together, with the same bits.

Batch norm, ReLU and the maxima of 2x2 windows, in training: what the three pass to each other is used by nothing else,
so that it never has to be written to memory; and the same of their gradients (kernels/compiled/norm_pool.py). Where
the kernel does not take its arrays, the functions of the launches that it stands for are called.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from tensorgrad.capture.launches import Launch, Launches
from tensorgrad.capture.lifetimes import VARIABLE
from tensorgrad.dtypes import F32
from tensorgrad.rows.kernel_tables import COMPILED
from tensorgrad.settings import SETTINGS

FORWARD, BACKWARD = "batch_norm_relu_pool", "batch_norm_relu_pool_grad"
# Those that have to be there, so that the bits are theirs.
_KERNELS = (
    FORWARD,
    BACKWARD,
    "batch_norm",
    "relu",
    "max_pool",
    "max_pool_grad",
    "relu.backward",
    "batch_norm.backward",
)
_WINDOWS = ("(2, 2, )", "(2, 2, )", "(0, 0, )", "(1, 1, )")


class Together:
    """Batch norm, ReLU and pooling: maxima, their places, means, variances, and reciprocal deviations."""

    def __init__(self, norm: Callable, relu: Callable, pool: Callable, eps: float) -> None:
        self.norm, self.relu, self.pool, self.eps, self.__name__ = norm, relu, pool, eps, FORWARD

    def __call__(self, x: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> tuple:
        row = COMPILED.get(FORWARD)
        if row is not None:
            made = row.attempt(x.size, x, weight, bias, self.eps)
            if made is not NotImplemented:
                return made
        normal, mean, variance, _, rstd = self.norm(x, weight, bias, None, None, True, self.eps)
        maxima, places = self.pool(self.relu(normal), (2, 2), (2, 2), (0, 0), (1, 1), False)
        return maxima, places, mean, variance, rstd


class Gradients:
    """The gradients of batch norm, ReLU and pooling, from that of the maxima."""

    def __init__(self, norm: Callable, pool: Callable, needs: tuple) -> None:
        self.norm, self.pool, self.needs, self.__name__ = norm, pool, needs, BACKWARD

    def __call__(self, g: Any, maxima: Any, places: Any, x: Any, weight: Any, mean: Any, rstd: Any) -> tuple:
        row = COMPILED.get(BACKWARD)
        if row is not None:
            made = row.attempt(x.size, g, maxima, places, x, weight, mean, rstd, self.needs)
            if made is not NotImplemented:
                return made
        # The maximum of a window is the only number of it that a gradient arrives at: ReLU may look at that before.
        slopes = np.where(maxima <= 0, np.float32(0), g)
        slopes = self.pool(slopes, places, x.shape, ((2, 2), (2, 2), (0, 0), (1, 1)))
        return self.norm(x, slopes, x, weight, mean, rstd, True, self.needs)


class _Block(NamedTuple):
    """The launches that one takes the place of."""

    norm: Launch
    relu: Launch
    pool: Launch
    backward: tuple[Launch, Launch, Launch]  # of pooling, ReLU and batch norm


def joined(launches: Launches, tail: str) -> list[Launch]:
    """The launches, with those together that one kernel does. `tail` is the text that follows."""
    if COMPILED.get(FORWARD) is None or SETTINGS.deterministic:
        return launches.launches
    uses = Counter(VARIABLE.findall(tail))
    users: dict[str, list[Launch]] = {}
    for launch in launches.launches:
        for name in VARIABLE.findall(launch.text)[len(launch.results) :]:
            uses[name] += 1
            users.setdefault(name, []).append(launch)
    instead: dict[int, Launch | None] = {}
    for norm in launches.launches:
        block = _block(norm, users, uses) if norm.of == "batch_norm" else None
        if block is not None and _fits(launches, block):
            instead |= _together(launches, block)
    return [found for launch in launches.launches if (found := instead.get(id(launch), launch)) is not None]


def _block(norm: Launch, users: dict[str, list[Launch]], uses: Counter) -> _Block | None:
    """The launches from a batch norm to the pooling, and back, if what these pass on is used by nothing else."""
    if norm.arguments[3:6] != ("None", "None", "True") or "None" in norm.arguments[:3] or len(norm.results) != 5:
        return None
    normal = norm.results[0]
    relu = _only(users, uses, normal, "relu")
    if relu is None or len(relu.results) != 1 or len(relu.arguments) != 1:
        return None
    (positive,) = relu.results
    using = users.get(positive, [])
    pools = [u for u in using if u.of == "max_pool" and u.arguments[1:] == (*_WINDOWS, "False")]
    if len(pools) != 1 or uses[positive] != len(using) or len(pools[0].results) != 2:
        return None
    (pool,) = pools
    others = [u for u in using if u is not pool]
    if len(others) != 1 or others[0].of != "relu.backward" or others[0].arguments[1:] != (positive,):
        return None
    (relu_back,) = others
    slopes, places = relu_back.arguments[0], pool.results[1]
    pool_back = [u for u in users.get(places, []) if u.of == "max_pool_grad" and u.results == (slopes,)]
    norm_back = _only(users, uses, relu_back.results[0], "batch_norm.backward")
    if len(pool_back) != 1 or norm_back is None or uses[slopes] != 1 or uses[places] != 1:
        return None
    x, weight = norm.arguments[:2]
    kept = (x, relu_back.results[0], x, weight, norm.results[3], norm.results[4], "True")
    if norm_back.arguments[:7] != kept or uses[norm.results[3]] != 1:
        return None
    return _Block(norm, relu, pool, (pool_back[0], relu_back, norm_back))


def _only(users: dict[str, list[Launch]], uses: Counter, name: str, of: str) -> Launch | None:
    """The one launch of an op that uses an array, if nothing else does."""
    using = users.get(name, [])
    return using[0] if uses[name] == len(using) == 1 and using[0].of == of else None


def _fits(launches: Launches, block: _Block) -> bool:
    """Whether the kernel takes arrays of these shapes, and the kernels of each op would have served."""
    array = launches.described(block.norm.arguments[0])
    rows = [COMPILED.get(name) for name in _KERNELS]
    return (
        array is not None and array.ndim == 4 and array.dtype == F32 and array.flags.c_contiguous
        and min(array.shape[2:]) >= 2 and array.size >= COMPILED[FORWARD].large_from
        and all(row is not None and row.available() for row in rows)
    )  # fmt: skip


def _together(launches: Launches, block: _Block) -> dict[int, Launch | None]:
    """What stands in the place of each launch; None where nothing does."""
    norm, relu, pool = block.norm, block.relu, block.pool
    eps = eval(norm.arguments[6], dict(launches.values))
    results = (*pool.results, norm.results[1], norm.results[2], norm.results[4])
    function = Together(norm.function, relu.function, pool.function, eps)
    made = launches.called(f"{norm.name}_relu_pool", function, norm.arguments[:3], results, FORWARD)
    pool_back, relu_back, norm_back = block.backward
    gradients = Gradients(norm_back.function, pool_back.function, eval(norm_back.arguments[-1]))
    given = (pool_back.arguments[0], *pool.results, *norm.arguments[:2], norm.results[1], norm.results[4])
    back = launches.called(f"{norm_back.name}_relu_pool", gradients, given, norm_back.results, BACKWARD)
    instead: dict[int, Launch | None] = dict.fromkeys(map(id, (relu, pool, pool_back, relu_back)))
    return instead | {id(norm): made, id(norm_back): back}
