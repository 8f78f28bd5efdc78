"""Helpers shared by the tests of compiled kernels. They need the files that `make kernels` writes."""

import contextlib
import os

import pytest

import tensorgrad
from tensorgrad.kernels.compiled.runtime import library
from tests.support.compare import assert_close


def absent() -> str:
    """Returns why this process has no compiled kernels; "" if it has."""
    if os.environ.get("TENSORGRAD_FAST") == "0":
        return "TENSORGRAD_FAST=0"
    try:
        library.image()
    except library.Unusable as error:
        return str(error)
    return ""


def needed() -> None:
    """Skips the tests of a file where there are no compiled kernels."""
    if absent():
        pytest.skip(f"compiled kernels: {absent()}", allow_module_level=True)


def load_kernels(rows) -> None:
    """Loads the kernels of some rows."""
    for row in rows:
        row.ready = row.ready or library.load(row.kernel)


@contextlib.contextmanager
def used_for_any_size(rows):
    """Loads the kernels of some rows, and uses them for arrays of any size while the block runs."""
    load_kernels(rows)
    before = {row: row.elements for row in rows}
    for row in rows:
        row.elements = 0
    try:
        yield
    finally:
        for row, elements in before.items():
            row.elements = elements


def record_used(monkeypatch, rows, without=()) -> set[str]:
    """Returns a set that collects the names of the ops whose compiled kernels return a result, except some."""
    names = set()

    def recording(row, ready):
        def kernel(*args, **options):
            made = ready(*args, **options)
            if made is not NotImplemented and row.op not in without:
                names.add(row.op)
            return made

        return kernel

    for row in rows:
        monkeypatch.setattr(row, "ready", recording(row, row.ready))
    return names


def fixtures(rows, without=()):
    """Makes two fixtures for a file of tests: `compiled`, its rows for arrays of any size, and `used`, as above."""

    @pytest.fixture(scope="module", autouse=True)
    def compiled():
        with used_for_any_size(rows):
            yield

    @pytest.fixture
    def used(monkeypatch):
        return record_used(monkeypatch, rows, without)

    return compiled, used


@contextlib.contextmanager
def numpy_only():
    """Runs a block by NumPy's kernels alone."""
    tensorgrad.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        tensorgrad.use_deterministic_algorithms(False)


def results(call, *arrays) -> list:
    """Returns the results of a call on tensors of these arrays, as arrays."""
    made = call(*(tensorgrad.from_numpy(a.copy()) for a in arrays))
    return [t.detach().numpy() for t in (made if isinstance(made, tuple) else (made,))]


def results_and_gradients(call, *arrays) -> list:
    """Returns the results of a call, and the gradients of its floating-point arguments for a weighted sum of them."""
    tensors = [tensorgrad.from_numpy(a.copy()) for a in arrays]
    leaves = [t.requires_grad_() for t in tensors if t.dtype.is_floating_point]
    return [t.detach().numpy() for t in with_gradients(call(*tensors), leaves)]


def with_gradients(made, leaves) -> list:
    """Returns the results of a call, and the gradients of some leaves for a weighted sum of all of them."""
    made = made if isinstance(made, tuple) else (made,)
    loss = sum((r * tensorgrad.arange(float(r.numel())).sin().reshape(r.shape)).sum() for r in made)
    return [*made, *tensorgrad.autograd.grad(loss, leaves)]


def assert_like_numpy(call, *arrays, rtol, atol, run=results_and_gradients) -> None:
    """Asserts that a call has the same results by compiled kernels and by NumPy's, within a tolerance.

    Args:
        run: The function that computes them, either results or results_and_gradients.
    """
    found = run(call, *arrays)
    with numpy_only():
        expected = run(call, *arrays)
    assert_close(found, expected, rtol, atol=atol)
