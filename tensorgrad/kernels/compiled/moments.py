"""Sums over rows, and how means and sums of squared deviations of parts are combined: for norms and variances."""

from __future__ import annotations

import operator

import numpy as np

from tensorgrad.kernels.compiled.functions import TO_POWER, F, exp_factor
from tensorgrad.kernels.compiled.runtime.language import inner
from tensorgrad.kernels.compiled.simd.totals import Numbers, total


def _exp_below(x: Numbers) -> Numbers:
    """eˣ for x ≤ 0, as `functions.exp_below` computes it."""
    share, z = exp_factor(lambda a, b, c: x.same(a) * b + c, operator.sub, x.at_least(-88.0), TO_POWER)
    return share * z.power()


row_sum = total(lambda x: x)
row_dot = total(operator.mul, arrays=2)
# Writes eˣ⁻ᵗᵒᵖ of each number x to the second array, and returns the sum.
row_exps = total(lambda x, top: _exp_below(x - top), arrays=2, numbers=1, blocks=1, writes=True)
# Σ (x - centre) and Σ (x - centre)².
_deviations = total(lambda x, centre: (x - centre, (x - centre) * (x - centre)), numbers=1, results=2, blocks=3)


@inner
def _wide_deviations(row):
    """Returns the mean and the same two sums in double precision."""
    centre = plain = squares = 0.0
    for i in range(row.size):
        centre += np.float64(row[i])
    centre /= row.size
    for i in range(row.size):
        away = np.float64(row[i]) - centre
        plain += away
        squares += away * away
    return centre, plain, squares


@inner
def combined(count, mean, squares, size, other, more):
    """Combines count, mean and sum of squared deviations with those of `size` others (Chan, Golub, LeVeque, 1983)."""
    away, total = other - mean, count + size
    return total, mean + away * (size / total), squares + (more + away * away * (count * size / total))


@inner
def with_row(count, mean, squares, row):
    """The same with a row of others, whose sums are taken around its rounded mean and corrected."""
    size = np.float64(row.size)
    centre = np.float64(row_sum(row) / F(row.size))
    near, squared = _deviations(row, F(centre))
    plain, own = np.float64(near), np.float64(squared)  # (a nan in `own` outlasts the `max` below)
    if not (1e-25 < own < np.inf):  # squares that float32 cannot represent
        centre, plain, own = _wide_deviations(row)
    return combined(count, mean, squares, size, centre + plain / size, max(own - plain * plain / size, 0.0))
