"""The threads that share a kernel's work: every range is done once, whoever comes late, errs, forks or sleeps."""

import gc
import os
import threading
import time
import weakref

import numpy as np
import pytest

pytest.importorskip("numba", reason="the package numba is optional: pip install '.[fast]'")

from tensorgrad.kernels.numba import pool, runtime, table

ALWAYS = 10**9  # elements, enough for every thread


@pytest.fixture(autouse=True, params=["awake", "asleep"])
def waiting(request, monkeypatch):
    """Threads that wait in a loop, and threads that go to sleep at once (as before the loop is compiled)."""
    table.WAITING.available()
    runtime.wait()
    assert table.WAITING.ready is not None
    if request.param == "asleep":
        monkeypatch.setattr(table.WAITING, "ready", None)


def count(seen, first, last):
    for i in range(first, last):
        seen[i] += 1


@pytest.mark.parametrize("length", [1, 2, 3, 7, 1000])
def test_every_range_is_done_once(length):
    for _ in range(50):
        seen = np.zeros(length, np.int64)
        pool.run(count, length, (seen,), ALWAYS)
        assert (seen == 1).all()


def test_many_threads_share_at_the_same_time():
    wrong = []

    def work():
        for _ in range(200):
            seen = np.zeros(100, np.int64)
            pool.run(count, 100, (seen,), ALWAYS)
            if not (seen == 1).all():
                wrong.append(seen)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_pause_between_two_kernels_is_no_harm():
    for pause in (0, 0.0001, 0.001, 0.05):
        seen = np.zeros(10, np.int64)
        pool.run(count, 10, (seen,), ALWAYS)
        time.sleep(pause)
        assert (seen == 1).all()


def test_ranges_that_take_long():
    def sleep(seen, first, last):
        time.sleep(0.02)
        count(seen, first, last)

    seen = np.zeros(4, np.int64)
    pool.run(sleep, 4, (seen,), ALWAYS)
    assert (seen == 1).all()


@pytest.mark.parametrize("bad", [0, 9])
def test_an_error_in_any_range_is_raised_and_the_pool_goes_on(bad):
    def fail(first, last):
        if first <= bad < last:
            raise ValueError("this range")

    for _ in range(20):
        with pytest.raises(ValueError, match="this range"):
            pool.run(fail, 10, (), ALWAYS)
        seen = np.zeros(10, np.int64)
        pool.run(count, 10, (seen,), ALWAYS)
        assert (seen == 1).all()


def test_nothing_is_kept_alive():
    class Held:
        pass

    held = Held()
    gone = weakref.ref(held)
    pool.run(lambda held, first, last: None, 10, (held,), ALWAYS)
    del held
    until = time.monotonic() + 5  # a thread that came too late may still be about to put it down
    while gone() is not None and time.monotonic() < until:
        time.sleep(0.001)
    assert gone() is None


def test_an_error_keeps_nothing_alive():
    class Held:
        pass

    def fail(held, first, last):
        if first:
            raise ValueError("this range")
        time.sleep(0.1)  # long enough for a thread of the pool to begin with the other range

    held = Held()
    gone = weakref.ref(held)
    with pytest.raises(ValueError, match="this range"):
        pool.run(fail, 10, (held,), ALWAYS)
    del held
    gc.collect()  # pytest's own record of the error
    until = time.monotonic() + 5
    while gone() is not None and time.monotonic() < until:
        time.sleep(0.001)
    assert gone() is None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
def test_a_forked_child_starts_its_own_threads():
    seen = np.zeros(10, np.int64)
    pool.run(count, 10, (seen,), ALWAYS)
    child = os.fork()
    if not child:
        seen = np.zeros(10, np.int64)
        pool.run(count, 10, (seen,), ALWAYS)
        os._exit(0 if (seen == 1).all() else 1)
    assert os.waitpid(child, 0)[1] == 0
