"""Samplers that accept and reject: Poisson, binomial, gamma, Dirichlet.

How many uniforms an element takes depends on their values, so the elements must be drawn one after the other to stay in
step with PyTorch. That costs 1 to 3 microseconds each; everything that can be vectorised is in `sample.py`.
The decisions are taken in double precision with the C library's functions, as PyTorch's are; a sample could differ only
where a comparison is decided in the last bit.
"""

from __future__ import annotations

import math

import numpy as np

from tensorgrad.generator import Generator
from tensorgrad.kernels.array.sample import F32, F64, to_dtype, unit64


class Reader:
    """Uniforms and normals in double precision, one at a time; on leaving, hands back the words that were not used.

    >>> gen = Generator().manual_seed(0)
    >>> with Reader(gen, 1) as reader:
    ...     _ = reader.uniform()
    >>> int(gen.state_bytes()[16])
    2
    """

    def __init__(self, gen: Generator, expected: int):
        self.gen, self.size = gen, min(max(expected, 8), 8192)
        self.left: list[float] = []

    def __enter__(self) -> Reader:
        self.gen.lock.acquire()
        self.start, self.drawn, self.left = self.gen.mark(), 0, []
        return self

    def __exit__(self, *error) -> None:
        self.gen.rewind(self.start)
        self.gen.skip(2 * (self.drawn - len(self.left)))
        self.gen.lock.release()

    def uniform(self) -> float:
        """A number in [0, 1)."""
        if not self.left:
            self.left = unit64(self.gen, self.size)[::-1].tolist()
            self.drawn += self.size
        return self.left.pop()

    def normal(self) -> float:
        """A standard normal; every other one comes from the pair before, which the generator remembers."""
        stored = self.gen.next_normal
        if stored is not None:
            self.gen.next_normal = None
            return stored
        first, second = self.uniform(), self.uniform()
        radius, angle = math.sqrt(-2.0 * math.log1p(-second)), 2.0 * math.pi * first
        self.gen.next_normal = radius * math.sin(angle)
        return radius * math.cos(angle)


def _each(gen: Generator, sample, *arrays: np.ndarray, per_element: int = 4) -> np.ndarray:
    """`sample(reader, element, ...)` for the elements of equally shaped arrays in index order, as float64."""
    lists = [a.reshape(-1).tolist() for a in arrays]
    with Reader(gen, per_element * arrays[0].size) as reader:
        values = [sample(reader, *elements) for elements in zip(*lists, strict=True)]
    return np.array(values, F64).reshape(arrays[0].shape)


def _rounder(dtype: np.dtype):
    """Rounds a Python float to `dtype`: PyTorch computes parts of these samplers in the tensor's own precision."""
    return (lambda x: float(np.float32(x))) if dtype == F32 else float


# --- Poisson ---------------------------------------------------------------------------------------------------------


def poisson(gen: Generator, rate: np.ndarray) -> np.ndarray:
    """A Poisson count for each rate, in the dtype of `rate`.

    Source: below rate 10, D. E. Knuth's product of uniforms; from there W. Hoermann, "The transformed rejection method
    for generating Poisson random variables", Insurance: Mathematics and Economics 12 (1993), algorithm PTRS.

    Raises: RuntimeError if a rate is negative or nan.
    """
    if rate.size and not (rate >= 0).all():
        raise RuntimeError("invalid Poisson rate, expected rate to be non-negative")
    expected = 6 if rate.size == 0 else int(min(float(rate.astype(F64).mean()), 10.0)) + 2
    return to_dtype(_each(gen, _poisson, rate.astype(F64), per_element=expected), rate.dtype)


def _poisson(reader: Reader, rate: float) -> float:
    if rate == 0:
        return 0
    if rate >= 10:
        return _poisson_by_rejection(reader, rate)
    limit, product, count = math.exp(-rate), reader.uniform(), 0
    while product > limit:
        product *= reader.uniform()
        count += 1
    return count


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
    """The number of heads in `count` tosses with probability `prob`; equally shaped arrays of the same float dtype.

    Source: below 10 expected heads, sums of geometric waiting times; from there W. Hoermann, "The generation of
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
        rare = prob if prob <= 0.5 else rounded(1.0 - prob)
        sampler = _binomial_by_rejection if rounded(count * rare) >= 10.0 else _binomial_by_waiting
        heads = sampler(reader, count, rare, rounded)
        return heads if prob <= 0.5 else count - heads

    return _each(gen, one, count, prob).astype(count.dtype)


def _binomial_by_waiting(reader: Reader, count: float, prob: float, rounded) -> float:
    log_tails, tosses, heads = rounded(math.log1p(-prob)), 0.0, 0.0
    while True:
        wait = _log(reader.uniform()) / log_tails
        tosses += wait if wait == math.inf else math.ceil(wait)
        if tosses > count:
            return heads
        heads += 1


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
        heads = float(math.floor((2 * a / edge + b) * u + centre))
        if heads < 0 or heads > n:
            continue
        if edge >= 0.07 and v <= inner:
            return heads
        bound = (
            (mode + 0.5) * math.log((mode + 1) / (odds * (n - mode + 1)))
            + (n + 1) * math.log((n - mode + 1) / (n - heads + 1))
            + (heads + 0.5) * math.log(odds * (n - heads + 1) / (heads + 1))
            + _stirling_rest(mode)
            + _stirling_rest(n - mode)
            - _stirling_rest(heads)
            - _stirling_rest(n - heads)
        )
        if _log(v * alpha / (a / (edge * edge) + b)) <= bound:
            return heads


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


def _gamma(dtype: np.dtype):
    rounded = _rounder(dtype)

    def one(reader: Reader, alpha: float) -> float:
        scale = 1.0
        if alpha < 1.0:
            if alpha == 0.0:
                return 0.0
            scale = (1 - reader.uniform()) ** rounded(1.0 / alpha)
            alpha = rounded(alpha + 1.0)
        d = rounded(alpha - THIRD)
        c = 1.0 / math.sqrt(9.0 * d)
        while True:
            x = reader.normal()
            y = 1.0 + c * x
            if y <= 0:
                continue
            v = y * y * y
            u = 1 - reader.uniform()
            square = x * x
            if u < 1.0 - SQUEEZE * square * square or math.log(u) < 0.5 * square + d * (1.0 - v + math.log(v)):
                return scale * d * v

    return one


def standard_gamma(gen: Generator, alpha: np.ndarray) -> np.ndarray:
    """A gamma variate of scale 1 for each shape parameter `alpha` (float32 or float64), at least the smallest normal.

    Source: G. Marsaglia and W. W. Tsang, "A simple method for generating gamma variables", ACM TOMS 26 (2000); for
    alpha < 1 that of alpha + 1, times a uniform to the power 1 / alpha.
    """
    with np.errstate(all="ignore"):
        values = _each(gen, _gamma(alpha.dtype), alpha).astype(alpha.dtype)
    return np.maximum(values, np.finfo(alpha.dtype).tiny)


def dirichlet(gen: Generator, alpha: np.ndarray) -> np.ndarray:
    """A point on the simplex for each last-dimension row of concentrations: gamma variates over their sum."""
    gammas = np.maximum(_each(gen, _gamma(F64), alpha.astype(F64)), np.finfo(F64).tiny)
    shares = (gammas / gammas.sum(-1, keepdims=True)).astype(alpha.dtype)
    one = alpha.dtype.type(1)
    return np.clip(shares, np.finfo(alpha.dtype).tiny, np.nextafter(one, alpha.dtype.type(0)))
