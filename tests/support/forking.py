"""Forks while other threads are busy: the child must be able to do the same work itself, and to exit.

`case(seed)` is one random case; `python -m tests.support.forking --seed 7` repeats it.
"""

from __future__ import annotations

import contextlib
import faulthandler
import io
import os
import random
import signal
import sys
import threading
import time
import traceback
import warnings

import numpy as np

import tensorgrad as torch
from tensorgrad import settings
from tensorgrad.nn import call_hooks
from tensorgrad.random import generator
from tensorgrad.rows import switches
from tensorgrad.system import forks

LIMIT = 60  # seconds that a child may take; normally it takes a fraction of a second
_large = torch.ones(300_000, requires_grad=True)
_own = torch.Generator().manual_seed(1)
_model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Dropout(0.5), torch.nn.Linear(8, 2))


def backward() -> None:
    """Gradients of a shared leaf, which threads add one at a time."""
    (_large * 2).sum().backward()
    assert _large.grad is not None and _large.grad.shape == _large.shape


def steps() -> None:
    """Training of a shared model."""
    optimizer = torch.optim.Adam(_model.parameters())
    optimizer.zero_grad(set_to_none=False)
    torch.nn.functional.cross_entropy(_model(torch.randn(64, 8)), torch.randint(2, (64,))).backward()
    optimizer.step()


def draws() -> None:
    """Random numbers of the default generator, and samplers that lock it for several draws."""
    torch.rand(50_000), torch.randn(20_000), torch.randperm(2_000), torch.rand(2_000).bernoulli_()
    torch.distributions.Gamma(torch.ones(200), torch.ones(200)).sample()


def own_draws() -> None:
    """A shared generator, and new ones."""
    torch.rand(200_000, generator=_own)
    torch.Generator().manual_seed(3).get_state()


def seeds() -> None:
    """Seeds and states of all generators."""
    with torch.random.fork_rng():
        torch.manual_seed(5)
        torch.set_rng_state(torch.get_rng_state())


def saves() -> None:
    """Files in memory."""
    file = io.BytesIO()
    torch.save({"model": _model.state_dict(), "x": torch.zeros(1000)}, file)
    file.seek(0)
    assert torch.load(file)["x"].shape == (1000,)


def hooks() -> None:
    """Hooks of several tensors."""
    a, b = torch.ones(50, requires_grad=True), torch.ones(50, requires_grad=True)
    heard: list = []
    handle = torch.autograd.graph.register_multi_grad_hook([a, b], heard.append)
    (a * b).sum().backward()
    handle.remove()
    assert len(heard) == 1


_shared = [torch.ones(200_000, requires_grad=True) for _ in range(2)]
torch.autograd.graph.register_multi_grad_hook(_shared, len)


def shared_hooks() -> None:
    """A group of hooks that all threads run."""
    (_shared[0] * _shared[1]).sum().backward()


def listens() -> None:
    """Summaries, and other features that are rarely active."""
    listener = call_hooks.Listener()
    call_hooks.listen(listener)
    _model(torch.ones(1, 8))
    call_hooks.ignore(listener)
    switches.switch("a test", True)
    torch.ones(3) * 2
    switches.switch("a test", False)


def profiles() -> None:
    """Profiles and the modes that concern every op."""
    with torch.profiler.profile(), torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
        (torch.ones(3, requires_grad=True) * 2).sum().backward()
    with torch.autograd.detect_anomaly(check_nan=False), torch.autocast("cpu"):
        _model(torch.ones(2, 8)).sum().backward()


def views() -> None:
    """The storages of tensors that have none yet."""
    for _ in range(200):
        torch.zeros(3).storage_offset(), torch.zeros(4, 4)[1:].t().data_ptr()


def loads() -> None:
    """Workers of a data loader."""
    loader = torch.utils.data.DataLoader(range(6), batch_size=2, num_workers=1, timeout=LIMIT)
    assert sum(int(batch.sum()) for batch in loader) == 15


def products() -> None:
    """Large arrays, which compiled kernels share among threads."""
    x = torch.ones(400, 700)
    torch.nn.functional.gelu(x.softmax(-1)).sum().item(), (x @ x.t()).sum().item()


ACTIVITIES = (
    backward, steps, draws, own_draws, seeds, saves, hooks, shared_hooks, listens, profiles, views, loads, products,
)  # fmt: skip


def child_does(names: list[str]) -> int:
    """Runs in the child everything that the threads were doing, and more. Returns the exit status."""
    faulthandler.register(signal.SIGUSR1, file=sys.__stderr__)
    try:
        for activity in ACTIVITIES:
            if activity.__name__ in names:
                activity()
                activity()
        assert all(_comes_free(lock) for reference in list(forks._locks) if (lock := reference()) is not None)
        state = generator.default_generator.state_bytes()
        generator.default_generator.set_state_bytes(state)  # which checks it
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def _comes_free(lock) -> bool:
    """Whether a lock is not held by a thread of the parent: one of the child's own may be loading a kernel."""
    if not lock.acquire(timeout=LIMIT / 2):
        return False
    lock.release()
    return True


def forked(names: list[str]) -> None:
    """Forks a child that runs these activities; raises AssertionError if it fails or does not exit."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        status = 1
        with contextlib.suppress(BaseException):
            status = child_does(names)
        os._exit(status)
    limit = time.monotonic() + LIMIT
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            break
        if time.monotonic() > limit:
            os.kill(child, signal.SIGUSR1)  # makes it print a traceback
            time.sleep(1)
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            raise AssertionError(f"the child did not end: {names}")
        time.sleep(0.002)
    assert os.waitstatus_to_exitcode(status) == 0, (names, os.waitstatus_to_exitcode(status))


@contextlib.contextmanager
def busy(activities):
    """Runs each activity repeatedly in its own thread during the block. Raises the first error in one of them."""
    stop, errors = threading.Event(), []

    def again(activity):
        try:
            while not stop.is_set():
                activity()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=again, args=(activity,), name=activity.__name__) for activity in activities]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python 3.12 warns about forks with threads; anomaly mode warns about itself
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            stop.set()
            for thread in threads:
                thread.join()
    if errors:
        raise errors[0]


def case(seed: int, rounds: int = 4) -> None:
    """Runs some activities together and forks at random moments. Raises AssertionError if a child fails or hangs."""
    rng = random.Random(seed)
    chosen = rng.sample(ACTIVITIES, rng.randint(1, 3))
    done = {activity.__name__ for activity in (*chosen, rng.choice(ACTIVITIES))}
    before, intervals = torch.get_num_threads(), sys.getswitchinterval()
    torch.set_num_threads(1)  # NumPy's BLAS: see tensorgrad/utils/data/worker_pool.py for what it does with more
    settings.SETTINGS.threads = rng.choice((1, 2))  # our own
    sys.setswitchinterval(rng.choice((5e-3, 5e-4)))
    try:
        with busy(chosen):
            for _ in range(rounds):
                time.sleep(rng.random() * 0.02)
                forked(sorted(done))
        for name in done:  # the parent goes on as before
            globals()[name]()
        assert bool(np.isfinite(torch.rand(10).numpy()).all())
    finally:
        torch.set_num_threads(before)
        sys.setswitchinterval(intervals)


if __name__ == "__main__":
    import argparse

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cases", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=4, help="forks of a case")
    parser.add_argument("--activity", choices=[a.__name__ for a in ACTIVITIES], help="only this, in place of cases")
    given = parser.parse_args()
    if given.activity:
        settings.SETTINGS.threads = 2
        with busy([globals()[given.activity]]):
            for _ in range(given.rounds):
                time.sleep(0.003)
                forked([given.activity])
        sys.exit()
    for number in range(given.seed, given.seed + given.cases):
        case(number, given.rounds)
    print(f"{given.cases} cases, none failed")
