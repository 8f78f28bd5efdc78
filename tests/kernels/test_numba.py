"""Compiled kernels against NumPy's: odd shapes, gaps, nan and inf, empty arrays; threads, forks; how they come in."""

import os
import threading

import numpy as np
import pytest

import tensorgrad as tg
from tensorgrad.kernels.compiled import table
from tests.support.kernels import absent
from tests.support.processes import environment, run_python

if absent():
    pytest.skip(absent(), allow_module_level=True)
from tensorgrad.kernels.compiled.runtime import thread_pool
from tests.support.compare import normal
from tests.support.kernels import assert_like_numpy, numpy_only, results, used_for_any_size

SPECIAL = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-45, -1e-45, 1e-38, 88.7, -87.3, -103.9, 3e38, -3e38, 1.0, -0.5, 20.0]
UNARY = ["exp", "tanh", "sigmoid", "erf", "relu", "gelu", "silu"]
F = tg.nn.functional


@pytest.fixture(scope="module", autouse=True)
def compiled():
    """Uses all kernels, for arrays of any size."""
    with used_for_any_size(table.ROWS):
        yield


def function(name):
    return getattr(F, name) if name in ("gelu", "silu", "relu") else getattr(tg, name)


def fast_and_slow(call, *arrays):
    """Returns the results of a call by compiled kernels and by NumPy's, in pairs."""
    fast = results(call, *arrays)
    with numpy_only():
        return list(zip(fast, results(call, *arrays), strict=True))


def check(call, *arrays, rtol=2e-5, atol=2e-6):
    assert_like_numpy(call, *arrays, rtol=rtol, atol=atol, run=results)


def with_gradient(call):
    """The call's result and the gradients of its floating-point inputs."""

    def run(*tensors):
        leaves = [t.requires_grad_() for t in tensors]
        result = call(*leaves)
        weights = tg.arange(float(result.numel())).sin().reshape(result.shape)
        return (result, *tg.autograd.grad(result, leaves, weights))

    return run


@pytest.mark.parametrize("name", UNARY)
def test_special_values(name):
    x = np.array(SPECIAL, np.float32)
    check(function(name), x, atol=3e-7)


@pytest.mark.parametrize("name", UNARY)
@pytest.mark.parametrize("shape", [(), (0,), (1,), (7,), (3, 0, 2), (5, 33), (2, 3, 17)])
def test_elementwise(name, shape):
    x = np.asarray(np.random.default_rng(0).standard_normal(shape) * 4, np.float32)
    check(with_gradient(function(name)), x)


def test_gelu_by_tanh():
    x = np.linspace(-8, 8, 1001, dtype=np.float32)
    check(with_gradient(lambda t: F.gelu(t, approximate="tanh")), x)


@pytest.mark.parametrize("name", ["exp", "tanh", "sigmoid", "erf"])
def test_accuracy(name):
    """Within a few units of the last place of the true value, over all magnitudes."""
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.uniform(-20, 20, 200_000), 10.0 ** rng.uniform(-30, 1, 50_000)]).astype(np.float32)
    found = function(name)(tg.from_numpy(x)).numpy()
    with numpy_only():
        true = function(name)(tg.from_numpy(x.astype(np.float64))).numpy()
    assert np.abs(found - true).max() < 4e-7 * np.abs(true).max()
    sized = np.abs(true) > 1e-30
    assert (np.abs(found - true)[sized] / np.abs(true)[sized]).max() < 6e-7


def test_accuracy_of_gelu():
    """To 2.5e-7, or of large results to 2.5e-7 of them; below zero in proportion, too; at last exactly 0."""
    x = np.concatenate([np.linspace(-14, 14, 200_001), [1e-45, -1e-45, 1e-38, -1e-38, 3e38]]).astype(np.float32)
    found, slope = with_gradient(F.gelu)(tg.from_numpy(x))
    with numpy_only():
        true, true_slope = with_gradient(F.gelu)(tg.from_numpy(x.astype(np.float64)))
    for got, expected in ((found, true), (slope, true_slope)):
        got, expected = got.detach().numpy(), expected.detach().numpy()
        assert (np.abs(got - expected) / np.maximum(np.abs(expected), 1.0)).max() < 2.5e-7
    near = (x < -1) & (x > -4)
    error, expected = np.abs(found.detach().numpy() - true.detach().numpy()), np.abs(true.detach().numpy())
    assert (error[near] / expected[near]).max() < 1e-3
    assert not F.gelu(tg.full((100,), -13.5)).any() and not F.gelu(tg.full((100,), -3e38)).any()


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
@pytest.mark.parametrize("shape", [(1,), (5,), (3, 1), (4, 7), (2, 3, 33), (0, 4), (3, 0)])
def test_softmax(name, shape):
    x = (np.random.default_rng(1).standard_normal(shape) * 5).astype(np.float32)
    check(with_gradient(lambda t: getattr(t, name)(-1)), x)
    check(lambda t: getattr(t, name)(0), x)


def test_softmax_of_special_values():
    rows = [[np.nan, 1, 2], [np.inf, 1, 2], [-np.inf, 1, 2], [-np.inf] * 3, [3e38, -3e38, 0], [1000.0, 1001.0, 1002.0]]
    x = np.array(rows, np.float32)
    check(lambda t: t.softmax(-1), x)
    check(lambda t: t.log_softmax(-1), x)


@pytest.mark.parametrize(("shape", "axes"), [((4, 7), 1), ((2, 3, 5), 2), ((40, 33), 1), ((300, 16), 1), ((6,), 1)])
@pytest.mark.parametrize("affine", ["both", "weight", "none"])
def test_layer_norm(shape, axes, affine):
    rng = np.random.default_rng(2)
    inner = shape[len(shape) - axes :]
    x, w, b = (rng.standard_normal(s).astype(np.float32) for s in (shape, inner, inner))
    if affine == "none":
        check(with_gradient(lambda t: F.layer_norm(t, inner)), x, rtol=1e-4, atol=3e-5)
    elif affine == "weight":
        check(with_gradient(lambda t, w: F.layer_norm(t, inner, w)), x, w, rtol=1e-4, atol=3e-5)
    else:
        check(with_gradient(lambda t, w, b: F.layer_norm(t, inner, w, b)), x, w, b, rtol=1e-4, atol=3e-5)


@pytest.mark.parametrize(("shape", "axes"), [((4, 7), 1), ((2, 3, 5), 2), ((40, 33), 1), ((300, 16), 1), ((6,), 1)])
@pytest.mark.parametrize("affine", [True, False])
def test_rms_norm(shape, axes, affine):
    inner = shape[len(shape) - axes :]
    x, w = (np.random.default_rng(2).standard_normal(s).astype(np.float32) for s in (shape, inner))
    call = with_gradient(lambda t, *w: F.rms_norm(t, inner, *w))
    check(call, x, *([w] if affine else []), rtol=1e-4, atol=3e-5)


# --- arithmetic, comparisons, choices --------------------------------------------------------------------------------

ARITHMETIC = ["add", "sub", "mul", "div"]
COMPARISONS = ["eq", "ne", "lt", "le", "gt", "ge"]
SHAPES = [((40, 33), (33,)), ((40, 33), (40, 1)), ((3, 5, 4, 9), (5, 1, 1)), ((3, 5, 4, 9), (1, 5, 4, 1)), ((9,), (1,)),
          ((7, 1), (1, 30)), ((5, 1, 30), (4, 1)), ((2, 3, 2, 3, 8), (3, 1, 3, 1)), ((6, 3), (3,)), ((0, 9), (9,)),
          ((1, 1), (9,)), ((4, 8), (2, 4, 8))]  # fmt: skip


@pytest.mark.parametrize("name", [*ARITHMETIC, *COMPARISONS, "maximum", "minimum"])
def test_two_operands(name):
    x, y = normal(300, 7), normal(300, 7, seed=1)
    x[:16, 0], y[:16, 0] = SPECIAL, SPECIAL[::-1]
    y[20:60] = x[20:60]
    check(getattr(tg, name), x, y, rtol=0, atol=0)
    if name in ARITHMETIC + COMPARISONS:
        for number in (2.5, -3, 0, float("inf")):
            check(lambda t, number=number: getattr(tg, name)(t, number), x, rtol=0, atol=0)
    if name in ARITHMETIC:
        check(with_gradient(getattr(tg, name)), x[60:], y[60:], rtol=1e-6)


@pytest.mark.parametrize("name", ARITHMETIC)
@pytest.mark.parametrize(("one", "other"), SHAPES)
def test_broadcasting(name, one, other):
    x, y = normal(*one), normal(*other, seed=1)
    check(getattr(tg, name), x, y, rtol=0, atol=0)
    check(getattr(tg, name), y, x, rtol=0, atol=0)
    x[...], y[...] = np.resize(np.float32(SPECIAL), one), np.resize(np.float32(SPECIAL[::-1]), other)
    check(getattr(tg, name), x, y, rtol=0, atol=0)


def test_shapes_that_do_not_fit():
    with pytest.raises(RuntimeError, match="must match the size"):
        tg.ones(4, 9) + tg.ones(3, 9)


@pytest.mark.parametrize("name", ["neg", "abs", "sqrt", "reciprocal", "log", "log2", "log10", "log1p", "expm1", "exp2",
                                  "tanh", "sin", "cos", "square"])  # fmt: skip
def test_functions_that_threads_share(name):
    x = normal(3, 1001)
    x[0, :16] = SPECIAL
    before = tg.get_num_threads()
    tg.set_num_threads(3)
    try:
        with np.errstate(all="ignore"):
            check(getattr(tg, name), x, rtol=3e-7)
            check(getattr(tg, name), x.astype(np.float64), rtol=1e-15)
            check(lambda t: getattr(t, name + "_")(), x, rtol=3e-7)
            check(getattr(tg, name), x[:, ::2], rtol=3e-7)
    finally:
        tg.set_num_threads(before)
    check(lambda t: t**2, x, rtol=0)
    check(lambda t: t**0.5, np.abs(x), rtol=0)


@pytest.mark.parametrize("name", ["add_", "sub_", "mul_", "div_"])
def test_two_operands_in_place(name):
    x, y = normal(200_000), normal(200_000, seed=1)
    check(lambda x, y: getattr(x, name)(y), x, y, rtol=0, atol=0)
    check(lambda x: getattr(x, name)(x), x, rtol=0, atol=0)
    check(lambda x: getattr(x, name)(1.7), x, rtol=0, atol=0)
    check(lambda x, y: getattr(x.view(400, 500), name)(y[:500]), x, y, rtol=0, atol=0)


def test_choices():
    x, y = normal(60, 31), normal(60, 31, seed=1)
    x[0, :16] = y[1, :16] = SPECIAL
    mask = y > 0
    check(tg.where, mask, x, y, rtol=0, atol=0)
    check(lambda c, x: tg.where(c, x, 2.0), mask, x, rtol=0, atol=0)
    check(lambda c, x: tg.where(c, float("-inf"), x), mask, x, rtol=0, atol=0)
    for part in (mask, mask[0], mask[:, :1], mask[:1, :1]):
        check(lambda c, x: x.masked_fill(c, float("nan")), part, x, rtol=0, atol=0)
        check(lambda c, x, y: tg.where(c, x, y), part, x, y, rtol=0, atol=0)
    check(lambda c, x: x.masked_fill(c, 0.0), mask[None], x, rtol=0, atol=0)
    check(lambda c, x, y: with_gradient(lambda x, y: tg.where(c, x, y))(x, y), mask, x, y, rtol=0, atol=0)


# --- reductions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["sum", "mean", "var", "amax", "amin", "norm", "argmax", "argmin", "max", "min"])
@pytest.mark.parametrize(
    ("shape", "dims"),
    [
        ((17,), [None, 0]), ((70_001,), [None]), ((5, 1000), [None, 0, 1]), ((1000, 40), [0, 1]), ((3, 40_000), [1]),
        ((3, 7, 19, 4), [None, 0, 1, (0, 2), (1, 2), (2, 3), (0, 1, 2, 3), (0, 3)]), ((1, 1), [None, 0]),
        ((0, 3), [1]), ((4, 1, 33), [1, (0, 1), 0]), ((600, 3, 17), [0, 1]),
    ],
)  # fmt: skip
def test_reductions(name, shape, dims):
    x = normal(*shape)
    for dim in dims:
        if name not in ("sum", "mean", "var", "amax", "amin", "norm") and not (dim is None or isinstance(dim, int)):
            continue
        for options in ({}, {"keepdim": True}):
            if dim is None and (options or name == "norm"):
                options = {}
            given = options if dim is None else {"dim": dim, **options}
            # A sum's rounding is relative to what is added, and differs with the width of the processor's vectors.
            atol = 1e-4 + 1e-8 * (np.abs(x).sum() if name == "sum" else 0)
            check(lambda t, given=given: tuple(_tensors(getattr(t, name)(**given))), x, rtol=2e-6, atol=atol)


def _tensors(result):
    return result if isinstance(result, tuple) else (result,)


@pytest.mark.parametrize("name", ["amax", "amin", "sum", "var", "max", "argmin", "argmax", "min"])
@pytest.mark.parametrize("dim", [0, 1])
def test_reductions_of_special_values(name, dim):
    x = normal(40, 32)
    for k, value in enumerate([np.nan, -np.float32(np.nan), np.inf, -np.inf, -0.0]):
        x[k, k + 3], x[k + 8, 3] = value, value
    x[20], x[21], x[22, 4:6], x[23] = np.inf, -np.inf, np.nan, 0.0
    x[23, ::2] = -0.0
    check(lambda t: tuple(_tensors(getattr(t, name)(dim))), x, rtol=1e-6, atol=2e-6)
    check(lambda t: tuple(_tensors(getattr(t, name)())), x[8:20], rtol=1e-6, atol=2e-6)


def test_a_long_sum_is_as_exact_as_numpys():
    x = np.random.default_rng(0).random(3_000_000, np.float32)
    true = x.astype(np.float64).sum()
    assert abs(tg.from_numpy(x).sum().item() - true) < 2e-7 * true
    assert abs(tg.from_numpy(x.reshape(-1, 30)).sum(0).double().sum().item() - true) < 2e-7 * true


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("shape", [(64, 100), (3, 5000), (600_001,), (2, 3, 999), (7, 20)])
def test_topk(shape, largest):
    x = normal(*shape)
    x.reshape(-1)[:16] = SPECIAL
    for k in (1, 3, 10):
        (values, places), (expected, _) = zip(
            *fast_and_slow(lambda t, k=k: tuple(t.topk(k, -1, largest)), x), strict=True
        )
        values, expected = fast_and_slow(lambda t, k=k: t.topk(k, -1, largest)[0], x)[0]
        np.testing.assert_array_equal(values, expected)
        places = tg.from_numpy(x.copy()).topk(k, -1, largest)[1].numpy()
        np.testing.assert_array_equal(np.take_along_axis(x, places, -1), expected)
        assert all(len(set(row)) == k for row in places.reshape(-1, k).tolist())
    if len(shape) > 1:
        check(lambda t: t.topk(2, 0, largest)[0], x[..., 20:] if shape[-1] > 40 else x, rtol=0, atol=0)


# --- dropout ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 7, 311, 312, 313, 2048, 2049, 100_001])
@pytest.mark.parametrize("p", [0.1, 0.5, 0.999])
def test_dropout_takes_the_same_bits(n, p):
    def run(x):
        tg.manual_seed(n)
        tg.rand(3)
        return F.dropout(x, p), tg.rand(3), tg.get_rng_state()

    check(run, normal(n), rtol=0, atol=0)
    check(with_gradient(lambda x: (tg.manual_seed(0), F.dropout(x, p))[1]), normal(n), rtol=0, atol=0)


@pytest.mark.parametrize("n", [4097, 16384, 16385, 100_001])
@pytest.mark.parametrize("low, high", [(0, 1), (-0.3, 0.2), (0, 0.7), (-0.5, 0.5), (5, 5), (1e-20, 1)])
def test_uniforms_and_normals_take_the_same_bits(n, low, high):
    def run(x):
        tg.manual_seed(n)
        made = tg.rand(n), tg.empty(n).uniform_(low, high), tg.randn(n), x.normal_(low, 1 + high)
        return *made, tg.rand(3), tg.get_rng_state()

    check(run, normal(n), rtol=0, atol=0)


# --- optimizers ------------------------------------------------------------------------------------------------------

STEPS = [
    ("SGD", {"lr": 0.1}), ("SGD", {"lr": 0.1, "weight_decay": 0.1, "maximize": True}),
    ("SGD", {"lr": 0.1, "momentum": 0.9}), ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.3, "maximize": True}),
    ("Adam", {"lr": 0.1}), ("Adam", {"lr": 0.1, "weight_decay": 0.1}), ("Adam", {"lr": 0.1, "amsgrad": True}),
    ("AdamW", {"lr": 0.1}), ("AdamW", {"lr": 0.1, "amsgrad": True, "maximize": True, "betas": (0.5, 0.6)}),
    ("RMSprop", {"lr": 0.1}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "options"), STEPS)
def test_steps_of_optimizers(name, options):
    """Several parameters in one launch, among them small ones, a transposed one, and one of another dtype."""
    shapes = [(3,), (70, 41), (5001,), (1,), (33, 2, 3)]

    def run(*arrays):
        params = [a.requires_grad_() for a in arrays]
        params += [arrays[1].detach().t().clone(memory_format=tg.preserve_format).requires_grad_()]
        params += [arrays[2].detach().double().requires_grad_()]
        optimizer = getattr(tg.optim, name)(params, **options)
        for turn in range(4):
            for k, p in enumerate(params):
                p.grad = None if turn == 1 and k == 2 else ((p * (k + 1)).detach().sin() + turn)
            optimizer.step()
        state = [v for s in optimizer.state_dict()["state"].values() for v in s.values() if v is not None]
        return (*params, *state)

    check(run, *(normal(*shape, seed=k) for k, shape in enumerate(shapes)), rtol=1e-5, atol=2e-6)


def test_a_step_counts_as_a_write():
    w = tg.ones(5000, requires_grad=True)
    y = (w * w).sum()
    w.grad = tg.ones(5000)
    tg.optim.Adam([w]).step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


@pytest.mark.parametrize("max_norm", [0.5, 1e6])
def test_clip_grad_norm(max_norm):
    def run(*grads):
        params = [tg.zeros(g.shape, requires_grad=True) for g in grads]
        for p, g in zip(params, grads, strict=True):
            p.grad = g
        return (tg.nn.utils.clip_grad_norm_(params, max_norm), *(p.grad for p in params))

    check(run, normal(70_000), normal(3), normal(40, 50), normal(0), rtol=1e-6)
    bad = normal(70_000)
    bad[5] = np.nan
    check(run, bad, normal(3))
    bad[5] = np.inf
    check(run, bad, normal(3))


def test_gaps_and_other_dtypes_go_to_numpy():
    x = tg.linspace(-2, 2, 24).reshape(4, 6)
    for view in (x.t(), x[:, ::2], x.double(), x.half()):
        assert view.softmax(-1).shape == view.shape
        np.testing.assert_allclose(view.tanh().double().numpy(), np.tanh(view.double().numpy()), rtol=2e-3, atol=1e-3)


def test_in_place():
    x = tg.linspace(-2, 2, 100)
    expected = x.exp()
    address = x.data_ptr()
    assert x.exp_() is x and x.data_ptr() == address and bool((x == expected).all())


def test_threads_share_the_work_and_agree():
    x = tg.randn(700, 1000)
    before = tg.get_num_threads()
    try:
        tg.set_num_threads(1)
        one = [
            x.exp(),
            x.softmax(-1),
            F.layer_norm(x, (1000,)),
            x.sum(),
            x.sum(0),
            x.amax(),
            x + x[0],
            x * 2.0,
            x.norm(),
        ]
        tg.set_num_threads(4)
        four = [
            x.exp(),
            x.softmax(-1),
            F.layer_norm(x, (1000,)),
            x.sum(),
            x.sum(0),
            x.amax(),
            x + x[0],
            x * 2.0,
            x.norm(),
        ]
    finally:
        tg.set_num_threads(before)
    assert all(bool((a == b).all()) for a, b in zip(one, four))


def test_many_python_threads_at_once():
    x = tg.randn(300, 1000)
    expected, wrong = x.softmax(-1), []

    def work():
        for _ in range(20):
            if not bool((x.softmax(-1) == expected).all()):
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_an_error_in_a_kernel_arrives():
    def kernel(first, last):
        if first:
            raise ValueError("in a worker")

    with pytest.raises(ValueError, match="in a worker"):
        thread_pool.run(kernel, 4, (), 10**9)


def run_program(code, **variables):
    return run_python(code, timeout=120, env=environment(**variables))


def test_a_kernel_is_loaded_by_the_first_call_that_needs_it():
    done = run_program(
        """
        import sys, threading
        import tensorgrad as torch
        from tensorgrad.kernels.compiled import table
        rows = {row.op: row for row in table.ROWS}
        torch.randn(3).exp()                    # small: nothing is loaded
        assert rows["exp"].ready is None
        x, before = torch.randn(100, 1000), threading.active_count()
        first = x.exp()
        assert rows["exp"].ready is not None and rows["softmax"].ready is None
        assert torch.equal(x.exp(), first)
        assert not {"numba", "llvmlite"} & set(sys.modules) and threading.active_count() == before
        print("done")
        """,
    )
    assert done.stdout.strip() == "done", done.stderr


def test_switched_off():
    done = run_program(
        "import tensorgrad as t, sys; t.randn(100, 1000).exp(); print('numba' in sys.modules)", TENSORGRAD_FAST="0"
    )
    assert done.stdout.strip() == "False", done.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_after_a_fork():
    done = run_program(
        """
        import os
        import tensorgrad as torch
        torch.set_num_threads(4)
        x = torch.randn(1000, 1000)
        x.exp().sum(), x.softmax(-1)
        expected = x.exp().sum()                # the workers run
        child = os.fork()
        if child == 0:
            same = bool(x.exp().sum() == expected)
            x.tanh(), x.sigmoid()               # loaded in the child
            os._exit(0 if same else 1)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        """
    )
    assert done.stdout.strip() == "0", done.stderr
