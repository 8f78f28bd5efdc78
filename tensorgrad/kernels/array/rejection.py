"""Rejection samplers: Poisson, binomial, gamma, Dirichlet.

The number of uniforms an element takes depends on their values, so the elements must be drawn one after the other to
stay in step with PyTorch. That costs half a microsecond to 3 each; everything that can be vectorized is in `sample.py`.
Decisions are made in double precision with the C library's functions, as in PyTorch; a sample could differ only if a
comparison depends on the last bit.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import chain

import numpy as np

from tensorgrad.kernels.array.sample import F32, F64, to_dtype, unit64
from tensorgrad.random.generator import Generator

_LOW_53 = 2**53 - 1


class Reader:
    """Uniforms in double precision, one at a time, where the k-th element takes at least `least[k]`.

    `uniform()` returns a number in [0, 1); the results of elements are appended to `done`. Numbers are drawn ahead only
    as far as the remaining elements certainly need them, so that none is left over.

    >>> gen = Generator().manual_seed(0)
    >>> with Reader(gen, np.array([1, 1])) as reader:
    ...     reader.done += [reader.uniform(), reader.uniform()]
    >>> int(gen.state_bytes()[16])
    4
    """

    def __init__(self, gen: Generator, least: np.ndarray):
        self.gen = gen
        self.done: list[float] = []
        self.after = np.append(least[::-1].cumsum()[::-1], 0)  # what the k-th element and those after it need

    def __enter__(self) -> Reader:
        self.gen.lock.acquire()
        # All in C from here on: a method that returns one number takes three times as long.
        self.uniform: Callable[[], float] = chain.from_iterable(self._numbers()).__next__
        return self

    def _numbers(self):
        while True:  # one number is needed now, in addition to the least of the elements after it
            n = int(self.after[min(len(self.done) + 1, len(self.after) - 1)])
            if n > 16:
                yield unit64(self.gen, min(n, 8192)).tolist()
            else:
                words = iter(self.gen.words(2 * max(n, 1)).tolist())
                yield [((high << 32 | low) & _LOW_53) * 2.0**-53 for high, low in zip(words, words, strict=True)]

    def __exit__(self, *error) -> None:
        self.gen.lock.release()


def _each(gen: Generator, sample, least: np.ndarray, *arrays: np.ndarray) -> np.ndarray:
    """Runs `sample(reader, element, ...)` on the elements of equally shaped arrays in index order; returns float64."""
    lists = [a.reshape(-1).tolist() for a in arrays]
    with Reader(gen, least.reshape(-1)) as reader:
        for elements in zip(*lists, strict=True):
            reader.done.append(sample(reader, *elements))
    return np.array(reader.done, F64).reshape(arrays[0].shape)


def _rounder(dtype: np.dtype):
    """Returns a function that rounds a Python float to `dtype`, in which PyTorch computes parts of these samplers."""
    return (lambda x: float(np.float32(x))) if dtype == F32 else float


# --- Poisson ---------------------------------------------------------------------------------------------------------


def poisson(gen: Generator, rate: np.ndarray) -> np.ndarray:
    """A Poisson count for each rate, in the dtype of `rate`.

    Source: below rate 10, D. E. Knuth's product of uniforms; from 10 on, W. Hoermann, "The transformed rejection
    method for generating Poisson random variables", Insurance: Mathematics and Economics 12 (1993), algorithm PTRS.

    Raises: RuntimeError if a rate is negative or nan.
    """
    if rate.size and not (rate >= 0).all():
        raise RuntimeError("invalid Poisson rate, expected rate to be non-negative")
    with Reader(gen, (rate > 0).reshape(-1)) as reader:
        uniform, exp, counts = reader.uniform, math.exp, reader.done
        for r in rate.astype(F64).reshape(-1).tolist():
            if r == 0:
                count: float = 0
            elif r >= 10:
                count = _poisson_by_rejection(reader, r)
            else:
                limit, product, count = exp(-r), uniform(), 0
                while product > limit:
                    product *= uniform()
                    count += 1
            counts.append(count)
    return to_dtype(np.array(counts, F64).reshape(rate.shape), rate.dtype)


def _poisson_by_rejection(reader: Reader, rate: float) -> float:
    log_rate = math.log(rate)
    b = 0.931 + 2.53 * math.sqrt(rate)
    a = -0.059 + 0.02483 * b
    inverse_alpha = 1.1239 + 1.1328 / (b - 3.4)
    inner = 0.9277 - 3.6224 / (b - 2)
    while True:
        u, v = reader.uniform() - 0.5, reader.uniform()
        edge = 0.5 - abs(u)
        if edge == 0.0:
            continue
        count = math.floor((2 * a / edge + b) * u + rate + 0.43)
        if edge >= 0.07 and v <= inner:
            return count
        if count < 0 or (edge < 0.013 and v > edge):
            continue
        left = _log(v) + math.log(inverse_alpha) - math.log(a / (edge * edge) + b)
        if left <= -rate + count * log_rate - math.lgamma(count + 1.0):
            return count


def _log(x: float) -> float:
    return math.log(x) if x > 0.0 else -math.inf


# --- binomial --------------------------------------------------------------------------------------------------------


def binomial(gen: Generator, count: np.ndarray, prob: np.ndarray) -> np.ndarray:
    """The number of successes in `count` trials with probability `prob`; equally shaped arrays of the same float dtype.

    Source: below 10 expected successes, sums of geometric waiting times; from 10 on, W. Hoermann, "The generation of
    binomial random variates", J. Stat. Comput. Simul. 46 (1993), algorithm BTRS.
    """
    rounded = _rounder(count.dtype)

    def one(reader: Reader, count: float, prob: float) -> float:
        if count <= 0.0 or prob <= 0.0:
            return 0.0
        if prob >= 1.0:
            return count
        if prob != prob:
            return math.nan
        smaller = prob if prob <= 0.5 else rounded(1.0 - prob)
        sampler = _binomial_by_rejection if rounded(count * smaller) >= 10.0 else _binomial_by_waiting
        successes = sampler(reader, count, smaller, rounded)
        return successes if prob <= 0.5 else count - successes

    return _each(gen, one, (count > 0) & (prob > 0) & (prob < 1), count, prob).astype(count.dtype)


def _binomial_by_waiting(reader: Reader, count: float, prob: float, rounded) -> float:
    log_tails, trials, successes = rounded(math.log1p(-prob)), 0.0, 0.0
    while True:
        wait = _log(reader.uniform()) / log_tails
        trials += wait if wait == math.inf else math.ceil(wait)
        if trials > count:
            return successes
        successes += 1


def _binomial_by_rejection(reader: Reader, n: float, p: float, rounded) -> float:
    deviation = rounded(math.sqrt(rounded(rounded(n * p) * rounded(1 - p))))
    b = 1.15 + 2.53 * deviation
    a = -0.0873 + 0.0248 * b + 0.01 * p
    centre = rounded(n * p) + 0.5
    inner = 0.92 - 4.2 / b
    odds = rounded(p / rounded(1 - p))
    alpha = (2.83 + 5.1 / b) * deviation
    mode = math.floor(rounded(rounded(n + 1) * p))
    while True:
        u, v = reader.uniform() - 0.5, reader.uniform()
        edge = 0.5 - abs(u)
        if edge == 0.0:
            continue
        successes = float(math.floor((2 * a / edge + b) * u + centre))
        if successes < 0 or successes > n:
            continue
        if edge >= 0.07 and v <= inner:
            return successes
        bound = (
            (mode + 0.5) * math.log((mode + 1) / (odds * (n - mode + 1)))
            + (n + 1) * math.log((n - mode + 1) / (n - successes + 1))
            + (successes + 0.5) * math.log(odds * (n - successes + 1) / (successes + 1))
            + _stirling_rest(mode)
            + _stirling_rest(n - mode)
            - _stirling_rest(successes)
            - _stirling_rest(n - successes)
        )
        if _log(v * alpha / (a / (edge * edge) + b)) <= bound:
            return successes


# log k! minus Stirling's approximation of it in terms of k + 1, for k = 0 .. 9.
STIRLING_REST = [
    math.lgamma(k + 1.0) - ((k + 0.5) * math.log(k + 1.0) - (k + 1.0) + 0.5 * math.log(2.0 * math.pi))
    for k in range(10)
]


def _stirling_rest(k: float) -> float:
    if k < 10:
        return STIRLING_REST[int(k)]
    square = (k + 1) * (k + 1)
    return (1.0 / 12 - (1.0 / 360 - 1.0 / 1260 / square) / square) / (k + 1)


# --- gamma and Dirichlet ---------------------------------------------------------------------------------------------

THIRD = float(np.float32(1) / np.float32(3))  # PyTorch writes its constants in single precision
SQUEEZE = float(np.float32(0.0331))
_SEVERAL = 64  # equal elements from which many attempts are made together


def _gammas(gen: Generator, alpha: np.ndarray) -> np.ndarray:
    """Gamma samples of scale 1 for a vector of shape parameters (float32 or float64), as float64."""
    if alpha.size >= _SEVERAL and alpha[0] >= 1 and (alpha == alpha[0]).all():
        d = float(alpha[0] - alpha.dtype.type(THIRD))
        return d * _cubes(gen, alpha.size, 1.0 / math.sqrt(9.0 * d), d)
    below = alpha < 1
    grown = np.where(below, alpha + alpha.dtype.type(1), alpha)  # for alpha < 1, samples of alpha + 1 are shrunk
    drawn = alpha > 0
    d = (grown - alpha.dtype.type(THIRD)).astype(F64)
    c = 1.0 / np.sqrt(9.0 * d)
    # Each takes a uniform, and half a pair of normals. If one of a pair is left over from before, all together take one
    # less, which the numbers of the current element make up for: the reader does not count them.
    with Reader(gen, drawn * (2 + below)) as reader:
        shrinks = _accept(reader, drawn.tolist(), below.tolist(), c.tolist(), d.tolist())
    values = np.array(reader.done, F64)
    if shrinks:
        some = below & drawn
        powers = (alpha.dtype.type(1) / alpha[some]).tolist()
        values[some] *= d[some] * [u**power for u, power in zip(shrinks, powers, strict=True)]
        values[~some] *= d[~some]
    else:
        values *= d
    values[alpha == 0] = 0.0
    values[~(alpha >= 0)] = math.nan
    return values


def _accept(reader: Reader, drawn: list, below: list, c: list, d: list) -> list:
    """Finds the (1 + c x)^3 to accept for each element; 1 where nothing is drawn.

    Returns the uniforms that shrink those of small alpha.
    """
    uniform, gen = reader.uniform, reader.gen
    log, log1p, sqrt, sin, cos, turn = math.log, math.log1p, math.sqrt, math.sin, math.cos, 2.0 * math.pi
    cubes, shrinks, stored = reader.done, [], gen.next_normal
    for draw, shrink, c_i, d_i in zip(drawn, below, c, d, strict=True):
        if not draw:
            cubes.append(1.0)
            continue
        if shrink:
            shrinks.append(1 - uniform())
        while True:
            if stored is None:  # normals come in pairs; the second is for the next request
                angle = turn * uniform()
                radius = sqrt(-2.0 * log1p(-uniform()))
                x, stored = radius * cos(angle), radius * sin(angle)
            else:
                x, stored = stored, None
            y = 1.0 + c_i * x
            if y <= 0:
                continue
            v = y * y * y
            u = 1 - uniform()
            square = x * x
            if u < 1.0 - SQUEEZE * square * square or log(u) < 0.5 * square + d_i * (1.0 - v + log(v)):
                break
        cubes.append(v)
    gen.next_normal = stored
    return shrinks


def _cubes(gen: Generator, count: int, c: float, d: float) -> np.ndarray:
    """Returns the (1 + c x)^3 that `_accept` would find for `count` elements of the same alpha >= 1.

    Then attempts are interchangeable between elements, so many are made together: two normals x from two uniforms, and
    a uniform for each. Only if 1 + c x is not positive is none drawn, and the rest begins one earlier.
    """
    found, missing = [], count
    ahead = np.empty(0)  # uniforms drawn ahead: never more than certainly needed
    chance = max(math.erfc(math.sqrt(0.5) / c), 1e-9)  # of such an x: of a large alpha smaller than any number
    most = int(min(4096.0, max(32.0, 0.2 / chance)))  # pairs that rarely contain one
    with gen.lock:
        waiting = [] if gen.next_normal is None else [gen.next_normal]
        while missing:
            if waiting:
                x = np.array([waiting.pop(0)])
                drawn = int(1.0 + c * x[0] > 0)
                if drawn and not ahead.size:
                    ahead = unit64(gen, 1)
                good = _good_cubes(x[:drawn], ahead[:drawn], c, d)
                ahead = ahead[drawn:]
            else:
                ahead = np.concatenate((ahead, unit64(gen, max(missing + (missing + 1) // 2 * 2 - ahead.size, 0))))
                pairs = min(missing // 2, most)
                if not pairs:
                    waiting, ahead = _normals(ahead[:2].reshape(1, 2)).tolist(), ahead[2:]
                    continue
                block = ahead[: 4 * pairs].reshape(pairs, 4)
                x = _normals(block)
                wrong = (1.0 + c * x <= 0).nonzero()[0]
                stop = int(wrong[0]) if wrong.size else x.size
                good = _good_cubes(x[:stop], block[:, 2:].reshape(-1)[:stop], c, d)
                waiting = x[stop + 1 : stop + 2].tolist() if stop < x.size and not stop % 2 else []
                ahead = ahead[stop // 2 * 4 + (0 if stop == x.size else 3 if stop % 2 else 2) :]
            found.append(good)
            missing -= good.size
        gen.next_normal = waiting[0] if waiting else None
    return np.concatenate(found)


def _normals(uniforms: np.ndarray) -> np.ndarray:
    """Returns two normals from the first two uniforms of each row."""
    radius, angle = np.sqrt(-2.0 * np.log1p(-uniforms[:, 1])), 2.0 * math.pi * uniforms[:, 0]
    return np.stack((radius * np.cos(angle), radius * np.sin(angle)), 1).reshape(-1)


def _good_cubes(x: np.ndarray, uniforms: np.ndarray, c: float, d: float) -> np.ndarray:
    """Returns the (1 + c x)^3 that are accepted."""
    y, u, square = 1.0 + c * x, 1.0 - uniforms, x * x
    v = y * y * y
    accepted = u < 1.0 - SQUEEZE * square * square
    rest = (~accepted).nonzero()[0]
    accepted[rest] = np.log(u[rest]) < 0.5 * square[rest] + d * (1.0 - v[rest] + np.log(v[rest]))
    return v[accepted]


def standard_gamma(gen: Generator, alpha: np.ndarray) -> np.ndarray:
    """A gamma sample of scale 1 for each shape parameter `alpha` (float32 or float64).

    It is at least the smallest normal number.

    Source: G. Marsaglia and W. W. Tsang, "A simple method for generating gamma variables", ACM TOMS 26 (2000); for
    alpha < 1 that of alpha + 1, times a uniform to the power 1 / alpha.
    """
    with np.errstate(all="ignore"):
        values = _gammas(gen, alpha.reshape(-1)).astype(alpha.dtype).reshape(alpha.shape)
    return np.maximum(values, np.finfo(alpha.dtype).tiny)


def dirichlet(gen: Generator, alpha: np.ndarray) -> np.ndarray:
    """A point on the simplex for each last-dimension row of concentrations: gamma samples divided by their sum."""
    with np.errstate(all="ignore"):
        gammas = _gammas(gen, alpha.astype(F64).reshape(-1)).reshape(alpha.shape)
    gammas = np.maximum(gammas, np.finfo(F64).tiny)
    shares = (gammas / gammas.sum(-1, keepdims=True)).astype(alpha.dtype)
    one = alpha.dtype.type(1)
    return np.clip(shares, np.finfo(alpha.dtype).tiny, np.nextafter(one, alpha.dtype.type(0)))
