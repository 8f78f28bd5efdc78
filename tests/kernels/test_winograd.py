"""Winograd's method for convolutions against sums in float64: sizes, channels, threads, errors, numbers not finite."""

from functools import partial

import numpy as np
import pytest

import tensorgrad as tg
from tensorgrad.kernels.array import conv as conv_arrays
from tensorgrad.kernels.compiled import table
from tests.support.kernels import absent

if absent():
    pytest.skip(absent(), allow_module_level=True)
from tensorgrad.kernels.compiled import conv as conv_loops
from tensorgrad.kernels.compiled import winograd
from tests.support.compare import normal
from tests.support.kernels import used_for_any_size

OURS = [row for row in table.ROWS if row.kernel.startswith("conv.conv")]
BOUND = 1e-5  # the error, relative to the largest result


@pytest.fixture(scope="module", autouse=True)
def compiled():
    """Uses the kernels of this file for arrays of any size."""
    with used_for_any_size(OURS):
        yield


def _noted(taken, function, *given, **more):
    taken.append(function)
    return function(*given, **more)


@pytest.fixture(autouse=True)
def always(monkeypatch):
    """Takes Winograd's method whatever it costs, and says how often it was taken."""
    taken = []
    for name in ("convolve", "correlate"):
        monkeypatch.setattr(winograd, name, partial(_noted, taken, getattr(winograd, name)))
    for name in ("cost", "correlate_cost"):
        monkeypatch.setattr(winograd, name, lambda *shape: -1.0)
    made = (conv_loops._plan, conv_loops._forwards, conv_loops._backwards, conv_loops._correlation)
    for plans in made:
        plans.cache_clear()
    yield taken
    for plans in made:
        plans.cache_clear()


def error(found, expected):
    assert found.dtype == np.float32
    assert found.shape == expected.shape
    return np.abs(found - expected).max() / max(np.abs(expected).max(), 1e-30)


def check(rng, batch, channels, outs, size, padding, bias=False):
    """Forward and both gradients of one convolution, within the bound of the error."""
    x, w = normal(batch, channels, *size, seed=rng), normal(outs, channels, 3, 3, seed=rng)
    shift = normal(outs, seed=rng) if bias else None
    rest = ((1, 1), padding, (1, 1), 1)
    wide = [a if a is None else a.astype(np.float64) for a in (x, w, shift)]
    expected = conv_arrays.conv(np, *wide, *rest)
    what = (batch, channels, outs, size, padding)
    assert error(conv_loops.conv(x, w, shift, *rest), expected) < BOUND, what
    g = normal(*expected.shape, seed=rng)
    exact = conv_arrays.conv_grad_input(np, g.astype(np.float64), wide[1], x.shape, *rest)
    found = conv_loops.conv_grad_input(g, w, x.shape, *rest)
    assert error(found, exact) < BOUND, what
    exact = conv_arrays.conv_grad_weight(np, g.astype(np.float64), wide[0], w.shape, *rest)
    found = conv_loops.conv_grad_weight(g, x, w.shape, *rest)
    assert error(found, exact) < BOUND, what


@pytest.mark.parametrize("padding", [(0, 0), (1, 1), (2, 1)])
@pytest.mark.parametrize(("channels", "outs"), [(1, 1), (3, 16), (16, 17), (33, 70), (64, 130)])
def test_sizes(always, channels, outs, padding):
    rng = np.random.default_rng(channels)
    for batch, size in ((1, (3, 3)), (2, (7, 5)), (3, (4, 8)), (1, (17, 30)), (5, (14, 14))):
        check(rng, batch, channels, outs, size, padding, bias=batch % 2 == 1)
    assert len(always) == 15


@pytest.mark.parametrize(("groups", "ins", "outs"), [(2, 3, 5), (5, 16, 32), (3, 20, 70), (32, 16, 17)])
def test_groups_of_channels(always, groups, ins, outs):
    """The gradient of the weights; groups are also how that of each sample is computed (vmap)."""
    rng = np.random.default_rng(groups)
    for batch, size, padding in ((1, (14, 14), (1, 1)), (2, (7, 5), (0, 0)), (9, (12, 9), (2, 1))):
        x, shape = normal(batch, groups * ins, *size, seed=rng), (groups * outs, ins, 3, 3)
        points = [n + 2 * p - 2 for n, p in zip(size, padding, strict=True)]
        g, rest = normal(batch, groups * outs, *points, seed=rng), ((1, 1), padding, (1, 1), groups)
        exact = conv_arrays.conv_grad_weight(np, g.astype(np.float64), x.astype(np.float64), shape, *rest)
        assert error(conv_loops.conv_grad_weight(g, x, shape, *rest), exact) < BOUND, (batch, size)
    assert len(always) == 3


def test_many_rows_and_parts():
    """Several chunks of tiles, and several parts of a weight's gradient."""
    rng = np.random.default_rng(2)
    check(rng, 9, 32, 40, (40, 33), (1, 1), bias=True)
    check(rng, 2, 20, 130, (64, 70), (1, 1))


def test_results_do_not_depend_on_threads():
    rng = np.random.default_rng(3)
    x, w, g = normal(4, 32, 24, 24, seed=rng), normal(200, 32, 3, 3, seed=rng), normal(4, 200, 24, 24, seed=rng)
    rest, found, before = ((1, 1), (1, 1), (1, 1), 1), [], tg.get_num_threads()
    try:
        for threads in (1, 2, 5):
            tg.set_num_threads(threads)
            found.append((conv_loops.conv(x, w, None, *rest), conv_loops.conv_grad_input(g, w, x.shape, *rest),
                          conv_loops.conv_grad_weight(g, x, w.shape, *rest)))  # fmt: skip
    finally:
        tg.set_num_threads(before)
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            assert np.array_equal(a, b)


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, 3e38])
@pytest.mark.parametrize("where", ["x", "w"])
def test_numbers_that_are_not_finite_reach_only_what_they_should(always, where, value):
    """One such number would spoil a whole tile: the convolution is done again by sums."""
    rng = np.random.default_rng(4)
    x, w = normal(2, 8, 9, 9, seed=rng), normal(8, 8, 3, 3, seed=rng)
    if where == "x":
        x[1, 2, 4, 4] = value
    else:
        w[3, 2, 1, 1] = value
    rest = ((1, 1), (1, 1), (1, 1), 1)
    with np.errstate(all="ignore"):
        expected = conv_arrays.conv(np, x, w, None, *rest)
        g = normal(*expected.shape, seed=rng)
        slopes = conv_arrays.conv_grad_weight(np, g, x, w.shape, *rest)
    found = conv_loops.conv(x, w, None, *rest)
    assert always
    assert np.array_equal(np.isfinite(found), np.isfinite(expected))
    assert np.isfinite(found).mean() > 0.8 or where == "w"
    made = conv_loops.conv_grad_weight(g, x, w.shape, *rest)
    if made is not NotImplemented:
        assert np.array_equal(np.isfinite(made), np.isfinite(slopes))


def test_weights_of_any_layout():
    rng = np.random.default_rng(5)
    whole, x = normal(40, 20, 3, 6, seed=rng), normal(3, 20, 12, 12, seed=rng)
    turned, one = whole[:20, :, :, :3].transpose(1, 0, 2, 3), np.broadcast_to(whole[:1, :, :, :3], (40, 20, 3, 3))
    for w in (whole[..., ::2], turned, one):
        rest = ((1, 1), (1, 1), (1, 1), 1)
        expected = conv_arrays.conv(np, x.astype(np.float64), w.astype(np.float64), None, *rest)
        assert error(conv_loops.conv(x, w, None, *rest), expected) < BOUND
