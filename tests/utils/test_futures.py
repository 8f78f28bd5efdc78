"""`torch.futures` does what PyTorch's does, in the same order and with the same errors."""

import threading

import pytest
import torch

import tensorgrad

BOTH = pytest.mark.parametrize("lib", [tensorgrad, torch], ids=["tensorgrad", "torch"])


@BOTH
def test_values_and_callbacks(lib):
    future, seen = lib.futures.Future(), []
    assert not future.done()
    with pytest.raises(RuntimeError):
        future.value()
    twice = future.then(lambda f: f.value() * 2)
    future.add_done_callback(lambda f: seen.append(f.wait()))
    assert not twice.done() and not seen
    assert future.set_result(3) is None and future.done()
    assert (future.wait(), future.value(), twice.wait(), seen) == (3, 3, 6, [3])
    assert twice.then(lambda f: f.value() + 1).value() == 7  # callbacks of a future that is done run at once
    with pytest.raises(RuntimeError, match="Attempting to mark a completed Future as complete again"):
        future.set_result(4)
    assert future.value() == 3


@BOTH
def test_errors(lib):
    future = lib.futures.Future()
    child = future.then(lambda f: f.value())
    with pytest.raises(AssertionError, match="3 is of type <class 'int'>, not an Exception"):
        future.set_exception(3)
    future.set_exception(ValueError("boom"))
    for call in (future.wait, future.value):
        with pytest.raises(ValueError, match=r"^boom$"):
            call()
    with pytest.raises(RuntimeError, match=r"^Got the following error when running the callback: ValueError: boom"):
        child.wait()
    fine = lib.futures.Future()
    fine.set_result(1)
    bad = fine.then(lambda f: 1 / 0)
    assert bad.done()
    with pytest.raises(RuntimeError, match="running the callback: ZeroDivisionError"):
        bad.wait()
    fine.add_done_callback(lambda f: 1 / 0)  # logged only
    for function in ("then", "add_done_callback"):
        with pytest.raises(TypeError):
            getattr(fine, function)(3)


@BOTH
def test_collecting(lib):
    one, two = lib.futures.Future(), lib.futures.Future()
    both = lib.futures.collect_all([one, two])
    total = both.then(lambda f: sum(x.value() for x in f.value()))
    one.set_result(1)
    assert not both.done()
    two.set_result(2)
    assert both.done() and total.wait() == 3
    assert lib.futures.wait_all([two, one]) == [2, 1] and lib.futures.wait_all([]) == []
    assert lib.futures.collect_all([]).done()


@BOTH
def test_waiting_for_another_thread(lib):
    future = lib.futures.Future()
    timer = threading.Timer(0.05, future.set_result, [5])
    timer.start()
    assert future.then(lambda f: f.wait() + 1).wait() == 6
    timer.join()


def test_an_error_among_collected_ones_is_raised():
    one, two = tensorgrad.futures.Future(), tensorgrad.futures.Future()
    both = tensorgrad.futures.collect_all([one, two])
    one.set_exception(ValueError("boom"))
    two.set_result(1)
    for call in (both.wait, lambda: tensorgrad.futures.wait_all([two, one])):
        with pytest.raises(ValueError, match=r"^boom$"):
            call()
    with pytest.raises(TypeError, match="expected a list of Future, but got int"):
        tensorgrad.futures.collect_all([1])


def test_lazy_futures_run_once_when_somebody_waits():
    ready, waiting, runs = [], [], []

    def compute():
        runs.append(1)
        return 3

    future = tensorgrad.futures.LazyFuture(compute, lambda: bool(ready), waiting.append)
    child, both = future.then(lambda f: f.value() + 1), tensorgrad.futures.collect_all([future, future])
    assert not future.done() and not runs
    assert child.wait() == 4 and child.value() == 4 and future.wait() == 3 and runs == [1]
    assert [f.value() for f in both.wait()] == [3, 3] and isinstance(both, tensorgrad.futures.Future)
    bad = future.then(lambda f: 1 / 0)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="running the callback: ZeroDivisionError"):
            bad.wait()
    with pytest.raises(RuntimeError, match="cannot be set"):
        future.set_result(1)
