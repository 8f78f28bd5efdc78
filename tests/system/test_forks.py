"""A fork while other threads hold locks: everything works in the child, and there is no deadlock."""

import ast
import contextlib
import gc
import importlib
import importlib.machinery
import os
import pkgutil
import queue
import subprocess
import sys
import threading
import time
import types
import warnings
from pathlib import Path

import pytest

import tensorgrad as torch
from tensorgrad.system import forks
from tests.support import forking

ROOT = Path(torch.__file__).parent
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")

# --- every lock is known -------------------------------------------------------------------------------------------

MAKERS = {
    "threading": {"Lock", "RLock", "Condition", "Event", "Semaphore", "BoundedSemaphore", "Barrier", "Timer"},
    "queue": {"Queue", "LifoQueue", "PriorityQueue", "SimpleQueue"},
    "_thread": {"allocate_lock", "RLock", "LockType"},
    "multiprocessing": {"Lock", "RLock", "Condition", "Event", "Semaphore", "Queue", "SimpleQueue", "Manager", "Pool"},
    "asyncio": {"Lock", "Event", "Queue"},
    "concurrent.futures": {"ThreadPoolExecutor", "ProcessPoolExecutor"},
}
# Locks that `forks` knows, and queues of threads that do not exist in a child, which creates new ones if it needs any.
ALLOWED = {
    "kernels/compiled/runtime/thread_pool.py: SimpleQueue",  # a worker's; _forget() drops all workers
    "distributed/checkpoint/state_dict_saver.py: ThreadPoolExecutor",  # dropped in a child
    "distributed/elastic/logs.py: Event",  # of the launcher, which copies its children's output
    "distributed/elastic/rendezvous/dynamic_rendezvous.py: Event",  # ends the thread that gives signs of life
    "distributed/rpc/agent.py: ThreadPoolExecutor",  # of the agent, which a child does not have
    "distributed/rpc/references.py: SimpleQueue",  # of the thread that counts; a child has its own
    "distributed/mpi/shared_sums.py: Lock",  # adopted by forks.adopt
    "distributed/stores/store.py: Condition",  # over a lock of forks.lock
    "futures.py: Condition",  # over a lock of forks.lock
    "distributed/work.py: Lock",  # adopted by forks.adopt
    "distributed/work.py: SimpleQueue",  # of the thread that polls; a child starts its own
    "system/threads.py: allocate_lock",  # held by the thread that starts another, until that runs
    "utils/data/worker.py: SimpleQueue",  # made in the worker process
}


def test_locks_are_made_by_one_function():
    found, makers = set(), set().union(*MAKERS.values())
    for path in sorted(ROOT.rglob("*.py")):
        name, text = path.relative_to(ROOT).as_posix(), path.read_text()
        if name == "system/forks.py" or not any(maker in text for maker in makers):
            continue
        nodes = [*ast.walk(ast.parse(text))]
        names = {}  # name in this file -> object
        for node in nodes:
            if isinstance(node, ast.ImportFrom) and node.module in MAKERS:
                names |= {alias.asname or alias.name: alias.name for alias in node.names}
        for node in nodes:
            last = getattr(node.func, "attr", getattr(node.func, "id", "")) if isinstance(node, ast.Call) else ""
            if last not in makers and last not in names:
                continue
            function = ast.unparse(node.func)
            module, _, made = function.rpartition(".")
            if made in MAKERS.get(module, ()) or (not module and names.get(made) in makers):
                found.add(f"{name}: {names.get(made, made)}")
    assert found == ALLOWED, "locks are made by tensorgrad.system.forks.lock"


LOCKS = (type(threading.Lock()), type(threading.RLock()))
WITH_LOCKS = (threading.Condition, threading.Event, threading.Semaphore, threading.Barrier, queue.Queue)


def test_every_lock_of_a_module_is_known():
    seen = 0
    for info in pkgutil.walk_packages(torch.__path__, "tensorgrad."):
        if info.name.rpartition(".")[2] in ("__main__", "child"):
            continue
        with contextlib.suppress(ImportError, RuntimeError):  # an optional package is missing
            module = importlib.import_module(info.name)
            owners = [module, *(v for v in vars(module).values() if getattr(v, "__module__", "") == info.name)]
            for owner in owners:
                for name, value in list(getattr(owner, "__dict__", {}).items()):
                    assert not isinstance(value, WITH_LOCKS), f"{info.name}: {name}"
                    if isinstance(value, LOCKS):
                        seen += 1
                        known = any(value is lock for lock in every_lock())
                        assert known, f"{info.name}: {name} does not come from tensorgrad.system.forks.lock"
    assert seen >= 8


def test_locks_of_generators_are_known_and_forgotten_with_them():
    gc.collect()
    before = len(forks._locks)
    made = [torch.Generator() for _ in range(20)]
    assert all(g.words(1).size == 1 for g in made)  # which makes NumPy's generators, with locks of their own
    known = {id(reference()) for reference in list(forks._locks)}
    assert all({id(g.lock), id(g._bits.lock)} <= known for g in made)
    del made
    assert len(forks._locks) == before


# --- locks in a child ------------------------------------------------------------------------------------------------


def child(function):
    """Forks, calls the function in the child, and returns whether it succeeded in time."""
    pid = os.fork()
    if pid == 0:
        status = 1
        with contextlib.suppress(BaseException):
            status = 0 if function() in (None, True) else 2
        os._exit(status)
    limit = time.monotonic() + forking.LIMIT
    while time.monotonic() < limit:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status) == 0
        time.sleep(0.002)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    return False


@contextlib.contextmanager
def held(locks, seconds=3600.0):
    """Holds the locks in another thread during the block, or for some seconds."""
    ready, enough = threading.Event(), threading.Event()

    def hold():
        while not all(
            taken := [lock.acquire(timeout=0.2) for lock in locks]
        ):  # other threads take them in a different order
            for lock, have in zip(locks, taken, strict=True):
                if have:
                    lock.release()
        ready.set()
        enough.wait(seconds)
        for lock in locks:
            lock.release()

    thread = threading.Thread(target=hold)
    thread.start()
    ready.wait()
    try:
        yield
    finally:
        enough.set()
        thread.join()


@pytest.fixture
def patient(monkeypatch):
    """Forks wait as long as it takes, also on a busy machine."""
    monkeypatch.setattr(forks, "PATIENCE", float(forking.LIMIT))


def every_lock():
    return [lock for reference in list(forks._locks) if (lock := reference()) is not None]


@needs_fork
def test_a_thread_that_holds_every_lock_for_ever(monkeypatch):
    monkeypatch.setattr(forks, "PATIENCE", 0.1)
    names = [activity.__name__ for activity in forking.ACTIVITIES if activity is not forking.loads]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in names:  # all modules must be imported before the fork
            getattr(forking, name)()
        with held(every_lock()):
            assert child(lambda: forking.child_does(names) == 0)
            assert child(lambda: forking.child_does(names) == 0)


@needs_fork
def test_each_lock_by_itself(monkeypatch):
    monkeypatch.setattr(forks, "PATIENCE", 0.01)
    for lock in every_lock():
        with held([lock]):
            assert child(lambda: lock.acquire(timeout=1))
            assert not lock.acquire(blocking=False)  # the parent's is still held
        assert lock.acquire(timeout=forking.LIMIT)
        lock.release()


@needs_fork
@pytest.mark.parametrize("whole", [False, True])
def test_what_the_forking_thread_holds_it_holds_in_both(whole):
    lock = forks.lock(whole)

    def taken_elsewhere():
        got = []
        thread = threading.Thread(target=lambda: got.append(lock.acquire(blocking=False)))
        thread.start()
        thread.join()
        return got[0]

    def free():
        lock.release()
        return not taken_elsewhere() and (lock.release() or taken_elsewhere())

    with lock, lock:
        assert child(free)
        assert child(lambda: child(free))  # a fork of the fork
        assert not taken_elsewhere()
    assert taken_elsewhere()


@needs_fork
def test_a_fork_waits_for_what_must_be_whole(patient):
    lock, done = forks.lock(whole=True), []

    def change():
        with lock:
            done.append("begun")
            begun.set()
            time.sleep(0.1)
            done.append("ended")

    begun = threading.Event()
    thread = threading.Thread(target=change)
    thread.start()
    begun.wait()
    assert child(lambda: done == ["begun", "ended"])
    thread.join()
    assert lock.acquire(blocking=False)


@needs_fork
def test_two_that_wait_for_each_other_do_not_for_ever(monkeypatch):
    """The forking thread holds a lock that another waits for, which in turn holds a lock that the fork waits for."""
    monkeypatch.setattr(forks, "PATIENCE", 0.05)
    mine, its = forks.lock(whole=True), forks.lock(whole=True)
    begun = threading.Event()

    def other():
        with its:
            begun.set()
            with mine:
                pass

    thread = threading.Thread(target=other)
    with mine:
        thread.start()
        begun.wait()
        assert child(lambda: its.acquire(timeout=1))
    thread.join(forking.LIMIT)
    assert not thread.is_alive()


@needs_fork
def test_random_numbers_are_whole_in_the_child(patient):
    generator = torch.Generator().manual_seed(3)
    expected = torch.rand(600, generator=generator).reshape(6, 100)
    generator.manual_seed(3)

    def draw():
        with generator.lock:  # several draws that belong together
            for _ in range(5):
                torch.rand(100, generator=generator)
                begun.set()
                time.sleep(0.02)

    begun = threading.Event()
    thread = threading.Thread(target=draw)
    thread.start()
    begun.wait()
    assert child(lambda: torch.equal(torch.rand(100, generator=generator), expected[5]))
    thread.join()


class SlowModule:
    """Finds a module that is slow to import."""

    def __init__(self, name):
        self.name, self.begun = name, threading.Event()

    def find_spec(self, name, path=None, target=None):
        return importlib.machinery.ModuleSpec(name, self) if name == self.name else None

    def create_module(self, spec):
        return types.ModuleType(spec.name)

    def exec_module(self, module):
        self.begun.set()
        time.sleep(0.1)
        module.complete = True


@needs_fork
@pytest.mark.parametrize("package", ["tensorgrad", "ml_dtypes"])
def test_a_module_that_another_thread_imports(patient, monkeypatch, package):
    """In the child nothing would finish the import, and the child would wait for it."""
    whole = pytest.importorskip(package, reason="adds bfloat16 to NumPy: pip install ml_dtypes")
    finder = SlowModule(f"{package}._slow")
    monkeypatch.setattr(sys, "meta_path", [finder, *sys.meta_path])
    thread = threading.Thread(target=importlib.import_module, args=(finder.name,))
    thread.start()
    finder.begun.wait()
    try:
        assert child(lambda: importlib.import_module(finder.name).complete)
    finally:
        thread.join()
        sys.modules.pop(finder.name, None)
        vars(whole).pop("_slow", None)


@needs_fork
def test_functions_between_fork_and_exec():
    with held([forks.lock(whole=True)], 0.05):
        done = subprocess.run([sys.executable, "-c", "print(1)"], preexec_fn=os.getpid, capture_output=True)
    assert done.stdout.split() == [b"1"]


# --- all together ----------------------------------------------------------------------------------------------------


def program(*arguments: str) -> None:
    """Runs tests/support/forking.py in a separate process whose BLAS never had a second thread. With several threads, a
    fork during a matrix product deadlocks in the BLAS itself (docs/architecture.md).
    """
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.forking", *arguments], capture_output=True, text=True, timeout=600,
        cwd=Path(__file__).parents[2], env=os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


@needs_fork
@pytest.mark.parametrize("activity", [activity.__name__ for activity in forking.ACTIVITIES])
def test_a_child_does_what_a_thread_was_doing(activity):
    program("--activity", activity, "--rounds", "5")


@needs_fork
def test_random_cases():
    program("--seed", "0", "--cases", "4", "--rounds", "3")
