"""The loader's worker processes: PyTorch's batches and random numbers, errors that arrive, and nothing left behind."""

import gc
import json
import multiprocessing
import os
import random
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
import warnings

import numpy as np
import pytest

import tensorgrad as tg
from tensorgrad.utils import data
from tensorgrad.utils.data import channel, worker_pool

# torch is imported only by the tests that compare with it, since spawned workers import this file.
FORKS = "fork" in multiprocessing.get_all_start_methods()
fork = {"multiprocessing_context": "fork"}
needs_fork = pytest.mark.skipif(not FORKS, reason="this system starts processes otherwise than by fork")
LIMIT = 90  # seconds after which a hanging test is stopped


def descriptors():
    return len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0


compared: list[str] = []  # with PyTorch, whose own workers leave files open


@pytest.fixture(scope="module", autouse=True)
def helpers_of_multiprocessing():
    """Starts processes of multiprocessing that are started once and remain."""
    if FORKS:
        from multiprocessing import forkserver, resource_tracker

        resource_tracker.ensure_running()
        forkserver.ensure_running()


@pytest.fixture(autouse=True)
def nothing_left_behind():
    """Stops hanging tests, and checks that each test leaves no processes, threads or open files behind."""
    compared.clear()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "This DataLoader will create")  # on machines with few processors
        warnings.filterwarnings("ignore", ".*multi-threaded, use of fork", DeprecationWarning)
        threads, files = threading.active_count(), descriptors()
        if hasattr(signal, "alarm"):
            signal.signal(signal.SIGALRM, late)
            signal.alarm(LIMIT)
        try:
            yield
        finally:
            if hasattr(signal, "alarm"):
                signal.alarm(0)
    # A caught error keeps a reference to its iterator; so do some of PyTorch's.
    if multiprocessing.active_children() if compared else descriptors() > files:
        gc.collect()
    if compared:
        return
    assert multiprocessing.active_children() == []
    assert threading.active_count() <= threads and descriptors() <= files


def late(number, frame):
    raise TimeoutError(f"the test took longer than {LIMIT} seconds")


def oracle():
    torch = pytest.importorskip("torch", reason="PyTorch is the oracle of this test and is not installed")
    compared.append(torch.__version__)
    return torch


def plain(value):
    if hasattr(value, "tolist"):
        return str(value.dtype), value.tolist()
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    return value


def assert_same_story(story, seed=11):
    """Asserts that both libraries yield the same from one seed, and then draw the same random value."""
    told = []
    for lib in (tg, oracle()):
        lib.manual_seed(seed)
        told.append([plain(x) for x in story(lib, lib.utils.data)] + [lib.rand(1).item()])
    assert told[0] == told[1]


class Squares(data.Dataset):
    """Sample i is (i, i²). At module level, so that it can be sent to a spawned worker."""

    def __len__(self):
        return 7

    def __getitem__(self, i):
        return tg.full((2,), float(i)), i * i


class Told(Squares):
    """Sample i is the worker's information about itself, and the first random numbers of each kind."""

    def __getitem__(self, i):
        info = data.get_worker_info()
        numbers = random.random(), float(np.random.rand()), tg.rand(1).item()
        return i, info.id, info.num_workers, info.seed, tg.initial_seed(), numbers


class Shares(data.IterableDataset):
    """Worker i reads its own range."""

    def __init__(self, *sizes):
        self.sizes = sizes

    def __iter__(self):
        number = data.get_worker_info().id
        return iter(range(100 * number, 100 * number + self.sizes[number]))


class Doing(data.Dataset):
    """Five samples; for number 3 something happens."""

    def __init__(self, what):
        self.what = what

    def __len__(self):
        return 5

    def __getitem__(self, i):
        return self.what(i) if i == 3 else i


def loading(dataset, **options):
    return data.DataLoader(dataset, **{"num_workers": 2, "batch_size": None, **fork, **options})


# --- the same as PyTorch -------------------------------------------------------------------------------------------


@needs_fork
@pytest.mark.parametrize("persistent_workers", [False, True])
@pytest.mark.parametrize(
    "options",
    [
        {"batch_size": 3}, {"batch_size": 4, "shuffle": True}, {"batch_size": 3, "drop_last": True},
        {"batch_size": None, "shuffle": True}, {"batch_sampler": [[1, 2], [5], [3, 3, 0]]}, {"sampler": [4, 2, 9]},
        {"batch_size": 2, "prefetch_factor": 1, "num_workers": 3}, {"batch_size": 9, "collate_fn": len},
    ],
    ids=str,
)  # fmt: skip
def test_batches(options, persistent_workers):
    def story(lib, d):
        dataset = d.TensorDataset(lib.arange(20.0).reshape(10, 2), lib.arange(10))
        loader = d.DataLoader(
            dataset, **{"num_workers": 2, "persistent_workers": persistent_workers, **fork, **options}
        )
        yield len(loader)
        if persistent_workers:
            yield next(iter(loader))  # an unfinished epoch
            yield from loader
        yield from loader

    assert_same_story(story)


@needs_fork
@pytest.mark.parametrize("seed", [0, 1, 2**40 + 3])
def test_random_numbers_of_the_workers(seed):
    def story(lib, d):
        class Random(d.Dataset):
            def __len__(self):
                return 6

            def __getitem__(self, i):
                info = d.get_worker_info()
                numbers = random.random(), np.random.rand(), lib.rand(1).item()
                return i, info.id, info.num_workers, info.seed, lib.initial_seed(), numbers

        generator = lib.Generator().manual_seed(9)
        for options in ({}, {"generator": generator, "shuffle": True}, {"persistent_workers": True}):
            loader = d.DataLoader(Random(), batch_size=None, num_workers=2, collate_fn=str, **fork, **options)
            yield from loader
            yield from loader
        yield lib.rand(1, generator=generator)

    assert_same_story(story, seed)


@needs_fork
@pytest.mark.parametrize("sizes", [(4, 4), (5, 0), (0, 0)], ids=str)
@pytest.mark.parametrize("batch_size", [None, 2, 3])
def test_iterable_data_sets(sizes, batch_size):
    def story(lib, d):
        class Stream(d.IterableDataset):
            def __iter__(self):
                number = d.get_worker_info().id
                return iter(range(100 * number, 100 * number + sizes[number]))

        loader = d.DataLoader(
            Stream(), batch_size, num_workers=2, drop_last=batch_size == 2, persistent_workers=batch_size == 3, **fork
        )  # fmt: skip
        yield from loader
        if batch_size == 3:
            yield from loader

    assert_same_story(story)


@needs_fork
def test_every_sample_of_uneven_shares_comes_once():
    for sizes in ((1, 9, 4), (0, 2, 0), (3, 0, 8)):
        expected = [100 * number + i for number, size in enumerate(sizes) for i in range(size)]
        for options in ({}, {"in_order": False}, {"prefetch_factor": 1}, {"batch_size": 2}):
            loader = loading(Shares(*sizes), num_workers=3, persistent_workers=True, **options)
            for _ in range(2):
                samples = [i for batch in loader for i in (batch.tolist() if "batch_size" in options else [batch])]
                assert sorted(samples) == expected


@needs_fork
def test_the_promised_length_of_an_iterable_data_set():
    class Promising(Shares):
        def __len__(self):
            return 1

    loader = loading(Promising(2, 2))
    assert len(loader) == 1
    with pytest.warns(UserWarning, match="not properly configuring the IterableDataset replica at each worker"):
        assert sorted(loader) == [0, 1, 100, 101]


@needs_fork
def test_when_the_sampler_is_asked():
    """The sampler is read for as many tasks as can be in progress, then once for each batch that is returned."""

    def story(lib, d):
        def numbers():
            for i in range(12):
                asked.append(i)
                yield i

        asked = []
        iterator = iter(d.DataLoader(range(12), batch_size=None, sampler=numbers(), num_workers=2, **fork))
        for _ in range(14):
            yield next(iterator, None), len(asked)

    assert_same_story(story)


def test_worker_info():
    assert data.get_worker_info() is None
    info = data.worker.WorkerInfo(1, 2, 3, "dataset")
    torch = oracle()
    theirs = torch.utils.data._utils.worker.WorkerInfo(1, 2, 3, "dataset")
    assert repr(info) == repr(theirs)
    with pytest.raises(AttributeError):
        info.id = 3


def test_too_many_workers():
    torch, texts = oracle(), []
    for d in (data, torch.utils.data):
        with pytest.warns(UserWarning, match="worker processes in total") as told:
            d.DataLoader([1], num_workers=4096)
        texts.append(str(told[0].message))
    assert texts[0] == texts[1]


# --- order ---------------------------------------------------------------------------------------------------------


@needs_fork
@pytest.mark.parametrize("in_order", [True, False])
def test_a_slow_worker(in_order):
    """Out of order, the others' batches do not wait for it; in order, they do."""
    go = multiprocessing.get_context("fork").Event()

    class Slow(Squares):
        def __getitem__(self, i):
            if i == 0:
                assert go.wait(LIMIT)
            return i

    iterator = iter(loading(Slow(), in_order=in_order))
    if in_order:
        go.set()
        assert list(iterator) == list(range(7))
        return
    first = [next(iterator) for _ in range(4)]  # number 2 is waiting behind 0
    go.set()
    assert first == [1, 3, 4, 5]
    assert sorted([*first, *iterator]) == list(range(7))


@needs_fork
def test_batches_and_lists_of_numbers_that_fill_the_pipes():
    numbers = [list(range(100_000)) for _ in range(8)]

    class Big(Squares):
        def __getitems__(self, indices):
            return tg.arange(len(indices), dtype=tg.float64)

    loader = loading(Big(), batch_size=1, batch_sampler=numbers, collate_fn=lambda batch: batch, prefetch_factor=3)
    for batch in loader:
        assert batch.shape == (100_000,) and batch[-1] == 99_999


@needs_fork
def test_an_array_that_the_data_set_fills_again():
    class Refilled(data.IterableDataset):
        def __iter__(self):
            sample = np.empty(5000)
            for i in range(20):
                sample.fill(i)
                yield sample

    loader = loading(Refilled(), num_workers=1, prefetch_factor=10)
    assert [(float(x.min()), float(x.max())) for x in loader] == [(i, i) for i in range(20)]


@needs_fork
def test_batches_can_be_written_to():
    for size in (2, 5000):
        (batch,) = loading(data.TensorDataset(tg.zeros(1, size)), batch_size=1)
        batch[0] += 1
        assert batch[0].sum() == size


@needs_fork
def test_persistent_workers_are_the_same_processes():
    class Who(Squares):
        def __getitem__(self, i):
            return os.getpid()

    for persistent in (True, False):
        loader = loading(Who(), persistent_workers=persistent)
        epochs = [set(loader) for _ in range(2)]
        assert all(len(epoch) == 2 for epoch in epochs)
        assert (epochs[0] == epochs[1]) is persistent
        assert len(multiprocessing.active_children()) == (2 if persistent else 0)
        del loader


@needs_fork
def test_two_iterators_at_once():
    loader = loading(Squares())
    for (a, i), (b, j) in zip(loader, loader):
        assert (a == b).all() and i == j


# --- errors --------------------------------------------------------------------------------------------------------


class Two(Exception):
    def __init__(self, one, two):
        super().__init__(one, two)


def raising(error):
    def what(i):
        raise error

    return what


def local_error(i):
    class Local(Exception):
        pass

    raise Local("three")


ERRORS = {
    "its type": (raising(ValueError("three")), ValueError, "ValueError: three"),
    "a KeyError, which shows its lines": (raising(KeyError("three")), KeyError, "KeyError: 'three'"),
    "one that cannot be made from a text": (raising(Two(1, 2)), RuntimeError, r"Two: \(1, 2\)"),
    "one that cannot be pickled": (local_error, RuntimeError, "Local: three"),
    "an OSError": (raising(FileNotFoundError(2, "No such file", "x")), FileNotFoundError, "No such file: 'x'"),
    "a sample that cannot be sent": (lambda i: lambda: i, (AttributeError, Exception), "but sending it to the main"),
    "a tensor with a graph": (
        lambda i: tg.ones(2, requires_grad=True) * i, RuntimeError, "Cowardly refusing to serialize non-leaf tensor",
    ),
}  # fmt: skip


@needs_fork
@pytest.mark.parametrize("what, kind, text", ERRORS.values(), ids=ERRORS)
def test_errors(what, kind, text):
    iterator = iter(loading(Doing(what)))
    assert [next(iterator) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(kind, match=text) as error:
        next(iterator)
    assert re.search(
        r"Caught \w+ in DataLoader worker process 1\.\nOriginal Traceback \(most recent call last\)", str(error.value)
    )
    assert list(iterator) == [4]  # it goes on
    assert list(iterator) == []


@needs_fork
def test_an_error_of_worker_init_fn():
    iterator = iter(loading(Squares(), worker_init_fn=raising(ValueError("no"))))
    for worker in (0, 1, 0):
        with pytest.raises(ValueError, match=f"^Caught ValueError in DataLoader worker process {worker}.\nOriginal"):
            next(iterator)


@needs_fork
def test_worker_init_fn():
    class Seen(Squares):
        def __getitem__(self, i):
            return os.environ["WORKER"], data.get_worker_info().dataset is self

    def init(number):
        os.environ["WORKER"] = str(number)

    assert list(loading(Seen(), worker_init_fn=init))[:2] == [["0", True], ["1", True]]
    assert "WORKER" not in os.environ


@needs_fork
def test_an_error_of_an_iterable_data_set():
    def story(lib, d):
        class Stream(d.IterableDataset):
            def __iter__(self):
                yield 1
                raise ValueError("after one")

        iterator = iter(d.DataLoader(Stream(), batch_size=None, num_workers=2, **fork))
        for _ in range(5):
            try:
                yield next(iterator, "end")
            except ValueError as error:
                yield str(error).splitlines()[0]

    assert_same_story(story)


DEATHS = {
    "killed": (lambda i: os.kill(os.getpid(), signal.SIGKILL), "killed by SIGKILL, as happens when memory runs out"),
    "left": (lambda i: os._exit(3), "exit code 3; see its output for the reason"),
    "asked to exit": (lambda i: sys.exit(5), "exit code 5"),
}


@needs_fork
@pytest.mark.parametrize("what, how", DEATHS.values(), ids=DEATHS)
@pytest.mark.parametrize("options", [{}, {"in_order": False}, {"timeout": 20}, {"persistent_workers": True}], ids=str)
def test_a_worker_that_dies(what, how, options):
    loader = loading(Doing(what), **options)
    iterator = iter(loader)
    pids = [process.pid for process in iterator._workers]
    with pytest.raises(RuntimeError, match=rf"DataLoader worker \(pid\(s\) {pids[1]}\) exited unexpectedly \({how}"):
        list(iterator)
    assert multiprocessing.active_children() == []
    with pytest.raises(RuntimeError, match="workers of this iterator have been stopped"):
        next(iterator)
    if "in_order" not in options:  # new ones; the first of those that are ready may be the error again
        assert next(iter(loader)) == 0


@needs_fork
def test_a_worker_that_is_killed_in_the_middle_of_a_message():
    """Its batch is larger than the pipe, so it is not completely sent when its first part can be read."""
    iterator = iter(loading(data.TensorDataset(tg.zeros(4, 1_000_000)), batch_size=2, num_workers=1))
    worker, connection = iterator._workers[0], iterator._pool.connections[0]
    assert channel.loads(channel.receive(connection))[2] == data.worker.READY
    assert connection.poll(LIMIT)
    worker.kill()
    worker.join()
    with pytest.raises(RuntimeError, match="killed by SIGKILL"):
        next(iterator)


class Time:
    """A clock, and a wait in which as much time passes as it may last; nothing else happens in it."""

    def __init__(self):
        self.now, self.waits = 100.0, []

    def rule(self, iterator):
        """From now on an iterator's time passes in its waits for workers only; before `stop` it does not pass."""
        iterator._pool.clock, iterator._pool.wait = self, lambda pipes, seconds: worker_pool.wait(pipes, LIMIT)

    def stop(self, iterator):
        """From now on nothing arrives."""
        iterator._pool.wait = self.wait

    def __call__(self):
        return self.now

    def wait(self, pipes, seconds):
        self.waits.append(seconds)
        if seconds * 1000 > 2**31 - 1:
            raise OverflowError("timeout is too large")  # as the system's
        self.now += seconds
        return []


@needs_fork
@pytest.mark.parametrize("timeout", [3, 0.25, 40 * 86400])
@pytest.mark.parametrize("options", [{}, {"in_order": False}, {"persistent_workers": True}], ids=str)
def test_a_timeout_is_all_the_time_that_a_hanging_worker_gets(monkeypatch, timeout, options):
    """Then it is terminated, without time to finish its batch; the others have theirs."""
    joined, time_ = [], Time()
    # Without the fifth: out of order it goes to the worker that answers first, perhaps the one that is about to hang.
    samples = data.Subset(Doing(lambda i: time.sleep(LIMIT)), range(4))
    iterator = iter(loading(samples, timeout=timeout, **options))
    time_.rule(iterator)
    assert sorted(next(iterator) for _ in range(3)) == [0, 1, 2]
    processes = iterator._workers
    join = type(processes[0]).join
    monkeypatch.setattr(type(processes[0]), "join", lambda self, timeout=None: (
        joined.append((self, timeout, self.is_alive())), join(self, timeout))[1])  # fmt: skip
    time_.stop(iterator)
    with pytest.raises(RuntimeError, match=re.escape(f"DataLoader timed out after {timeout} seconds")):
        next(iterator)
    assert sum(time_.waits) == time_.now - 100 == timeout and max(time_.waits) <= worker_pool.LONGEST
    del iterator
    gc.collect()
    hanging = processes[1]
    assert hanging.exitcode == -signal.SIGTERM
    assert [seconds for process, seconds, _ in joined if process is hanging] == [1]  # after it was terminated


@needs_fork
def test_a_worker_may_answer_after_a_timeout():
    go, time_ = multiprocessing.get_context("fork").Event(), Time()
    iterator = iter(loading(Doing(lambda i: go.wait(LIMIT)), timeout=0.2))
    time_.rule(iterator)
    assert [next(iterator) for _ in range(3)] == [0, 1, 2]
    time_.stop(iterator)
    with pytest.raises(RuntimeError, match=re.escape("DataLoader timed out after 0.2 seconds")):
        next(iterator)
    go.set()
    time_.rule(iterator)
    assert list(iterator) == [True, 4]


@needs_fork
def test_answers_from_an_epoch_before_do_not_extend_a_timeout():
    loader = loading(Doing(lambda i: i), timeout=3, persistent_workers=True, num_workers=1)
    next(iter(loader))
    time_ = Time()
    iterator = iter(loader)
    real = worker_pool.wait

    def wait(pipes, seconds):
        time_.waits.append(seconds)
        time_.now += 1
        return real(pipes, LIMIT)

    iterator._pool.clock, iterator._pool.wait = time_, wait
    assert next(iterator) == 0
    assert len(time_.waits) > 1 and time_.waits == [max(0.0, 3.0 - i) for i in range(len(time_.waits))]


# --- nothing is left behind ----------------------------------------------------------------------------------------


@needs_fork
def test_breaking_off():
    for options in ({}, {"in_order": False}, {"persistent_workers": True}):
        loader = loading(data.TensorDataset(tg.zeros(50, 20_000)), prefetch_factor=4, **options)
        for i, _ in enumerate(loader):
            if i == 2:
                break
        del loader
        assert multiprocessing.active_children() == []


@needs_fork
def test_a_stubborn_worker_is_terminated(monkeypatch):
    monkeypatch.setattr(worker_pool._stop, "__defaults__", (0.1,))
    monkeypatch.setattr(signal, "SIGTERM", signal.SIGTERM)
    before = signal.signal(signal.SIGTERM, lambda *_: None)  # the main program's handler is not the worker's
    try:
        iterator = iter(loading(Doing(lambda i: time.sleep(LIMIT)), num_workers=1))
        assert [next(iterator) for _ in range(3)] == [0, 1, 2]
        (process,) = iterator._workers
        del iterator
        assert process.exitcode == -signal.SIGTERM  # and not 0, at the end of its sleep
    finally:
        signal.signal(signal.SIGTERM, before)


def waits(thread):
    """Returns whether a thread is waiting for a worker."""
    frame = sys._current_frames().get(thread.ident)
    while frame is not None and frame.f_code is not worker_pool.WorkerPool._readable.__code__:
        frame = frame.f_back
    return frame is not None


@needs_fork
def test_an_interrupt_while_waiting():
    """KeyboardInterrupt in the main process only, as in a notebook: the workers can be stopped."""
    go, main = multiprocessing.get_context("fork").Event(), threading.current_thread()
    iterator = iter(loading(Doing(lambda i: go.wait(LIMIT))))
    assert [next(iterator) for _ in range(3)] == [0, 1, 2]

    def interrupt():
        limit = time.monotonic() + LIMIT
        while not waits(main) and time.monotonic() < limit:
            time.sleep(0.001)
        time.sleep(0.1)  # the frame is there a moment before the system call, which a signal before it does not end
        os.kill(os.getpid(), signal.SIGINT)

    sender = threading.Thread(target=interrupt)
    with pytest.raises(KeyboardInterrupt):
        sender.start()
        next(iterator)
    sender.join()
    go.set()
    iterator._shutdown_workers()
    assert multiprocessing.active_children() == []


@needs_fork
def test_a_forked_copy_of_an_iterator_leaves_the_workers_alone():
    iterator = iter(loading(Squares()))
    pid = os.fork()
    if not pid:
        del iterator
        gc.collect()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    assert [i for _, i in iterator] == [i * i for i in range(7)]


@needs_fork
def test_iterating_in_another_thread():
    told = []
    thread = threading.Thread(target=lambda: told.extend(i for _, i in loading(Squares())))
    thread.start()
    thread.join(LIMIT)
    assert told == [i * i for i in range(7)]


@needs_fork
def test_forking_while_other_threads_hold_locks():
    """The locks of the generator and of a tensor's storage are free in the workers."""
    stop = threading.Event()

    def busy():
        while not stop.is_set():
            tg.rand(2000)
            tg.zeros(3).storage_offset()

    threads = [threading.Thread(target=busy) for _ in range(2)]
    try:
        for thread in threads:
            thread.start()
        for _ in range(5):
            assert len(list(loading(Told(), timeout=LIMIT / 2))) == 7
    finally:
        stop.set()
        for thread in threads:
            thread.join()


# --- spawned workers, and whole programs ---------------------------------------------------------------------------


@pytest.mark.parametrize("method", [m for m in multiprocessing.get_all_start_methods() if m != "fork"])
def test_spawned_workers(method):
    tg.manual_seed(3)
    loader = data.DataLoader(Told(), batch_size=None, num_workers=1, multiprocessing_context=method)
    assert loader.multiprocessing_context.get_start_method() == method
    told = list(loader)
    seed = told[0][3]
    assert [sample[:5] for sample in told] == [[i, 0, 1, seed, seed] for i in range(7)]
    if FORKS:
        tg.manual_seed(3)
        assert list(loading(Told(), num_workers=1)) == told


def test_what_cannot_be_sent_to_a_spawned_worker():
    class Local(Squares):
        pass

    for name, options in {
        r"dataset \(.*Local\)": {"dataset": Local()},
        r"collate_fn \(.*<lambda>\)": {"dataset": Squares(), "collate_fn": lambda batch: batch},
        r"worker_init_fn \(.*<lambda>\)": {"dataset": Squares(), "worker_init_fn": lambda i: None},
    }.items():
        with pytest.raises(Exception, match=rf"DataLoader: {name} cannot be pickled, which the start method"):
            iter(data.DataLoader(num_workers=1, multiprocessing_context="spawn", **options))


@pytest.mark.parametrize("given, expected", [(None, None), ("spawn", "spawn")])
def test_the_start_method(monkeypatch, given, expected):
    monkeypatch.setattr(multiprocessing, "get_start_method", lambda allow_none=False: given)
    default = "fork" if sys.platform == "linux" else multiprocessing.get_all_start_methods()[0]
    assert worker_pool.context_of(None).get_start_method() == (expected or default)
    own = multiprocessing.get_context("spawn")
    assert worker_pool.context_of(own) is own


PROGRAM = """
    import json, os, sys, time
    from collections import namedtuple
    import torch
    from torch.utils.data import DataLoader, Dataset

    Point = namedtuple("Point", "x y")

    class Points(Dataset):
        def __len__(self):
            return 6

        def __getitem__(self, i):
            return Point(torch.full((2,), float(i)), i)
"""


def program(folder, text, *arguments, **options):
    """Starts a program under `tensorgrad.run`."""
    path = folder / "program.py"
    path.write_text(textwrap.dedent(PROGRAM) + textwrap.dedent(text))
    return subprocess.Popen(
        [sys.executable, "-m", "tensorgrad.run", str(path), *arguments], stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, cwd=os.path.dirname(os.path.dirname(tg.__file__)), **options,
    )  # fmt: skip


def gone(pids):
    """Waits for processes that are not our children to exit. Returns whether they have."""
    limit = time.monotonic() + LIMIT / 2
    while time.monotonic() < limit:
        alive = []
        for pid in pids:
            try:
                os.kill(pid, 0)
                alive.append(pid)
            except ProcessLookupError:
                pass
        if not alive:
            return True
        time.sleep(0.01)
    return False


@pytest.mark.parametrize("method", multiprocessing.get_all_start_methods())
def test_a_program_with_a_guard(tmp_path, method):
    text = """
        if __name__ == "__main__":
            loader = DataLoader(Points(), batch_size=3, num_workers=1, multiprocessing_context=sys.argv[1])
            print([type(batch) is Point and batch.y.tolist() for batch in loader], torch.__package__)
    """
    with program(tmp_path, text, method) as running:
        output, errors = running.communicate(timeout=LIMIT)
    assert (running.returncode, errors) == (0, "")
    assert output == "[[0, 1, 2], [3, 4, 5]] tensorgrad\n"


@pytest.mark.skipif(sys.platform != "linux", reason="only on Linux are workers forked by default")
def test_a_program_without_a_guard(tmp_path):
    """The data set, a lambda and the loop are at the top level of the script, and an iterator is active at its end."""
    text = """
        loader = DataLoader(Points(), batch_size=3, num_workers=2, collate_fn=lambda batch: [p.y for p in batch])
        print(list(loader))
        kept = iter(loader), next(iter(loader))
    """
    with program(tmp_path, text) as running:
        output, errors = running.communicate(timeout=LIMIT)
    assert (running.returncode, output, errors) == (0, "[[0, 1, 2], [3, 4, 5]]\n", "")


def test_a_spawning_program_without_a_guard(tmp_path):
    text = "list(DataLoader(Points(), batch_size=3, num_workers=1, multiprocessing_context='spawn'))"
    with program(tmp_path, text) as running:
        _, errors = running.communicate(timeout=LIMIT)
    assert running.returncode == 1
    assert "before the current process has finished its bootstrapping phase" in errors.replace("\n        ", " ")
    assert "It failed to start: with the start method 'spawn'" in errors.splitlines()[-1]


WAITING = """
    class Waiting(Points):
        def __getitem__(self, i):
            if i < 2:
                return i
            time.sleep(60)

    if __name__ == "__main__":
        iterator = iter(DataLoader(Waiting(), batch_size=None, num_workers=2, prefetch_factor=1))
        assert [next(iterator), next(iterator)] == [0, 1]
        print(json.dumps([process.pid for process in iterator._workers]), flush=True)
        next(iterator)
"""


@needs_fork
def test_an_interrupt_from_the_keyboard(tmp_path):
    with program(tmp_path, WAITING, start_new_session=True) as running:
        pids = json.loads(running.stdout.readline())
        os.killpg(running.pid, signal.SIGINT)
        _, errors = running.communicate(timeout=LIMIT)
    assert running.returncode and gone(pids)
    assert errors.count("Traceback") == 1 and errors.strip().endswith("KeyboardInterrupt")


@needs_fork
def test_a_main_process_that_is_killed_takes_its_workers_along(tmp_path):
    with program(tmp_path, WAITING.replace("time.sleep(60)", "return i")) as running:
        pids = json.loads(running.stdout.readline())
        running.kill()
        running.communicate(timeout=LIMIT)
    assert gone(pids)


@needs_fork
def test_exiting_with_workers_at_work(tmp_path):
    text = WAITING.replace("        next(iterator)\n", "        sys.exit(4)\n")
    assert "sys.exit(4)" in text
    with program(tmp_path, text) as running:
        pids = json.loads(running.stdout.readline())
        _, errors = running.communicate(timeout=LIMIT)
    assert (running.returncode, errors) == (4, "") and gone(pids)


# --- the pipe ------------------------------------------------------------------------------------------------------


def through_a_pipe(value):
    here, there = multiprocessing.Pipe()
    with here, there:
        sender = threading.Thread(target=lambda: channel.send(here, channel.dumps(value)))
        sender.start()
        received = channel.loads(channel.receive(there))
        sender.join()
    return received


@pytest.mark.parametrize(
    "value",
    [
        tg.rand(3, 700), tg.rand(3, 700).t(), tg.arange(5000).reshape(2, 2500)[:, ::2], tg.ones(3).expand(2000, 3),
        tg.zeros(0, 4), tg.tensor(3), tg.ones(5000, dtype=tg.bool), tg.ones(3000, dtype=tg.complex64),
    ],
    ids=lambda x: f"{x.dtype} {tuple(x.shape)}",
)  # fmt: skip
def test_tensors_through_a_pipe(value):
    received = through_a_pipe({"value": (value, [1])})["value"][0]
    assert received.dtype == value.dtype and received.shape == value.shape and (received == value).all()
    assert received.stride() == value.stride() or value.numel() == 0 or not value.is_contiguous()


def test_what_a_tensor_has_beside_its_numbers():
    weight = tg.nn.Parameter(tg.rand(2000))
    weight.note = "mine"
    received = through_a_pipe(weight)
    assert type(received) is tg.nn.Parameter and received.requires_grad and received.note == "mine"
    received = through_a_pipe([array := np.asfortranarray(np.random.rand(60, 50)), "x"])[0]
    assert (received == array).all() and received.flags.writeable


def test_a_row_does_not_take_the_whole_along():
    everything = tg.rand(1000, 100)
    assert sum(len(part) for part in channel.dumps(everything)) > 400_000
    assert sum(len(part) for part in channel.dumps(everything[3])) < 1000
    assert (through_a_pipe(everything[3]) == everything[3]).all()
