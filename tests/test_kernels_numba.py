"""Compiled kernels against NumPy's: odd shapes, gaps, nan and inf, empty arrays; threads, forks; how they come in."""

import os
import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest

import tensorgrad as tg
from tensorgrad.kernels.numba import table

pytest.importorskip("numba", reason="the package numba is optional: pip install '.[fast]'")
if not table.wanted():
    pytest.skip("TENSORGRAD_FAST=0 switches compiled kernels off", allow_module_level=True)

from tensorgrad.kernels.numba import pool, runtime

SPECIAL = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-45, -1e-45, 1e-38, 88.7, -87.3, -103.9, 3e38, -3e38, 1.0, -0.5, 20.0]
UNARY = ["exp", "tanh", "sigmoid", "erf", "relu", "gelu", "silu"]
F = tg.nn.functional


@pytest.fixture(scope="module", autouse=True)
def compiled():
    """All kernels, used for arrays of any size; afterwards as before."""
    before = {row: row.elements for row in table.ROWS}
    for row in table.ROWS:
        row.asked, row.ready = True, row.ready or runtime.compiled(row)
        row.elements = 0
    yield
    for row, elements in before.items():
        row.elements = elements


class numpy_only:
    """A `with` block in which NumPy serves."""

    def __enter__(self):
        tg.use_deterministic_algorithms(True)

    def __exit__(self, *exception):
        tg.use_deterministic_algorithms(False)


def function(name):
    return getattr(F, name) if name in ("gelu", "silu", "relu") else getattr(tg, name)


def both(call, *arrays):
    """The results of a call on the same arrays by compiled kernels and by NumPy's."""

    def run():
        result = call(*(tg.from_numpy(a.copy()) for a in arrays))
        return [t.detach().numpy() for t in (result if isinstance(result, tuple) else (result,))]

    fast = run()
    with numpy_only():
        return list(zip(fast, run(), strict=True))


def check(call, *arrays, rtol=2e-5, atol=2e-6):
    for fast, slow in both(call, *arrays):
        assert fast.dtype == slow.dtype and fast.shape == slow.shape
        np.testing.assert_allclose(fast, slow, rtol=rtol, atol=atol)


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
        one = [x.exp(), x.softmax(-1), F.layer_norm(x, (1000,))]
        tg.set_num_threads(4)
        four = [x.exp(), x.softmax(-1), F.layer_norm(x, (1000,))]
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
        pool.run(kernel, 4, (), 10**9)


def run_program(text, **environment):
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(text)], capture_output=True, text=True, timeout=120,
        env={**os.environ, **environment},
    )  # fmt: skip


def test_numpy_serves_until_a_kernel_is_compiled(tmp_path):
    done = run_program(
        """
        import sys
        import tensorgrad as torch
        x = torch.randn(100, 1000)
        assert "numba" not in sys.modules
        torch.randn(3).exp()                    # small: nothing is asked for
        from tensorgrad.kernels.numba import runtime, table
        rows = {row.op: row for row in table.ROWS}
        assert not rows["exp"].asked
        first = x.exp()                         # NumPy's, at once
        assert rows["exp"].asked
        runtime.wait()
        assert rows["exp"].ready is not None
        assert torch.allclose(x.exp(), first, rtol=1e-5)
        print("done")
        """,
        TENSORGRAD_CACHE=str(tmp_path),
    )
    assert done.stdout.strip() == "done", done.stderr
    assert any(tmp_path.rglob("*.nbc")), "nothing was cached"


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
        from tensorgrad.kernels.numba import runtime
        torch.set_num_threads(4)
        x = torch.randn(1000, 1000)
        x.exp(), x.softmax(-1)
        runtime.wait()
        expected = x.exp().sum()                # the workers run
        child = os.fork()
        if child == 0:
            same = bool(x.exp().sum() == expected)
            x.tanh()                            # never compiled: in a child NumPy serves
            os._exit(0 if same else 1)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        """
    )
    assert done.stdout.strip() == "0", done.stderr


def test_warmup(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "tensorgrad.warmup"], capture_output=True, text=True, timeout=300,
        env={**os.environ, "TENSORGRAD_CACHE": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 0 and "kernels ready" in done.stdout, done.stderr
