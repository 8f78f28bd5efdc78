"""Sums over rows, and how means and sums of squared deviations of parts are combined: for norms and variances."""

from __future__ import annotations

import numpy as np

from tensorgrad.kernels.compiled.functions import F
from tensorgrad.kernels.compiled.runtime.language import ANY_ORDER, inner


@inner(fastmath=ANY_ORDER)
def row_sum(row):
    total = F(0.0)
    for i in range(row.size):
        total += row[i]
    return total


@inner(fastmath=ANY_ORDER)
def row_dot(a, b):
    total = F(0.0)
    for i in range(a.size):
        total += a[i] * b[i]
    return total


@inner(fastmath=ANY_ORDER)
def _deviations(row, centre):
    """Σ (x - centre) and Σ (x - centre)²."""
    plain = squares = F(0.0)
    for i in range(row.size):
        away = row[i] - centre
        plain += away
        squares += away * away
    return np.float64(plain), np.float64(squares)


@inner(fastmath=ANY_ORDER)
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
    plain, own = _deviations(row, F(centre))  # (a nan in `own` outlasts the `max` below)
    if not (1e-25 < own < np.inf):  # squares that float32 cannot represent
        centre, plain, own = _wide_deviations(row)
    return combined(count, mean, squares, size, centre + plain / size, max(own - plain * plain / size, 0.0))
