"""The tasks of the processes that loops.py starts, which are killed, interrupted, or fork.

python -m tests.fuzz.children signals SEED
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import numpy as np

import tensorgrad as torch

F = torch.nn.functional


# --- saving ----------------------------------------------------------------------------------------------------------


def save(path: str, seed: str) -> None:
    """Saves a model to one file in an endless loop; prints a line after the first time."""
    turn = 0
    while True:
        parts = [torch.full((n,), float(turn)) for n in (10, 20_000, 200_000)]
        torch.save({"turn": turn, "parts": parts}, path)
        if turn == 0:
            print("saved", flush=True)
        turn += 1


# --- signals ---------------------------------------------------------------------------------------------------------


class Ours(Exception):
    """A program-defined exception."""


class Harder(BaseException):
    """One that `except Exception` does not catch."""


# Not ValueError or similar: Python code that expects one from a call would catch the handler's instead.
RAISED = (KeyboardInterrupt, SystemExit, TimeoutError, ConnectionError, Ours, Harder)


def ask_for_small_kernels() -> None:
    """Has kernels serve arrays of any size from now on, divided among threads."""
    from tensorgrad.kernels.compiled import table
    from tensorgrad.kernels.compiled.runtime import thread_pool

    if table.wanted():
        thread_pool.GRAIN, thread_pool.WAKING = 64, 128
        for row in table.ROWS:
            row.elements = 512


def use_small_kernels(programs: list) -> None:
    """Has kernels serve programs whatever their arrays' sizes, and runs these once, which loads the kernels."""
    ask_for_small_kernels()
    for program in programs:
        program()


def work(rng: random.Random) -> list:
    """Returns programs that threads share, as (program, expected result)."""

    def normal(*shape):
        return torch.from_numpy(np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32))

    x, w, image = normal(64, 256), normal(256, 256), normal(8, 4, 20, 20)
    kernel, p = normal(6, 4, 3, 3), normal(4000)

    def conv():
        leaf = image.detach().requires_grad_()
        return torch.autograd.grad(F.conv2d(leaf, kernel, padding=1).square().sum(), leaf)[0]

    def step():
        leaf = p.clone().requires_grad_()
        leaf.grad = torch.ones_like(leaf)
        torch.optim.Adam([leaf], lr=0.1).step()
        return leaf.detach()

    programs = [lambda: (x @ w).relu(), lambda: x.softmax(-1), lambda: x.log1p(), lambda: x + x[0], conv, step,
                lambda: F.layer_norm(x, (256,)), lambda: x.sum(0), lambda: x.exp().cumsum(1)]  # fmt: skip
    return programs


def signals(seed: str) -> None:
    """Interrupts kernels at random moments, several hundred times."""
    from tensorgrad.kernels.compiled.runtime import thread_pool

    rng = random.Random(int(seed))
    threads = rng.choice((1, 2, 3, 4))
    torch.set_num_threads(threads)
    programs = work(rng)
    use_small_kernels(programs)
    with np.errstate(all="ignore"):
        expected = [program().numpy() for program in programs]
        counted: Counter = Counter()
        raised: list = []

        def handler(number, frame):
            raised.append(rng.choice(RAISED))
            raise raised[-1]("from the handler")

        ignored: list = []  # exceptions raised where Python ignores them: in `__del__` and weakref callbacks
        sys.unraisablehook = lambda given: ignored.append(given.exc_value)
        signal.signal(signal.SIGALRM, handler)
        signal.signal(signal.SIGINT, handler)
        end = time.monotonic() + 4
        while time.monotonic() < end:
            n = rng.randrange(len(programs))
            again(programs[n], expected[n], rng, raised, ignored, counted)
            raised.clear()
            ignored.clear()
        for program, right in zip(programs, expected, strict=True):
            np.testing.assert_allclose(program().numpy(), right, rtol=1e-5, atol=1e-5)
    check_pool(thread_pool, threads, programs)
    print(json.dumps({"interrupts": counted.total(), f"with {threads} threads": 1}))


def again(program, right, rng: random.Random, raised: list, ignored: list, counted: Counter) -> None:
    """Runs a program repeatedly until it is interrupted; its results must be right before and afterwards."""
    caught, result = None, None
    try:
        if rng.random() < 0.3:  # Ctrl-C, from another thread
            delay = rng.uniform(0, 3e-3)
            threading.Thread(target=lambda: (time.sleep(delay), os.kill(os.getpid(), signal.SIGINT))).start()
        else:
            signal.setitimer(signal.ITIMER_REAL, rng.uniform(1e-5, 3e-3))
        while not raised:
            result = program()
    except BaseException as error:
        caught = error
    if caught is None:
        assert ignored, f"nothing came of the {raised[-1].__name__} of the handler"
        counted["ignored by Python"] += 1
    elif type(caught) is not raised[-1] or str(caught) != "from the handler":
        raise AssertionError(f"the handler raised {raised[-1].__name__}, the program {caught!r}") from caught
    if result is not None:
        np.testing.assert_allclose(result.numpy(), right, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(program().numpy(), right, rtol=1e-5, atol=1e-5)
    counted[type(caught).__name__] += caught is not None


def check_pool(thread_pool, threads: int, programs: list) -> None:
    """Checks that all threads of the pool exist and wait for work."""
    from tensorgrad.kernels.compiled import table

    if not table.wanted():
        return
    for _ in range(3):  # lost threads are found by calls that need one
        for program in programs:
            program()
        time.sleep(0.05)
    if len(thread_pool._idle) != threads - 1:
        raise AssertionError(f"{len(thread_pool._idle)} threads of the pool wait for work, expected {threads - 1}")


# --- threads ---------------------------------------------------------------------------------------------------------


def trained(seed: int) -> list[np.ndarray]:
    """Trains a small model. Returns its weights."""
    rng = np.random.default_rng(seed)

    def normal(*shape):
        return torch.from_numpy((0.1 * rng.standard_normal(shape)).astype(np.float32))

    weights = [normal(96, 128), normal(128), normal(128, 10), normal(4, 1, 3, 3)]
    for weight in weights:
        weight.requires_grad_()
    optimizer = (torch.optim.AdamW, torch.optim.SGD, torch.optim.RMSprop)[seed % 3](weights, lr=1e-2)
    x, image, target = normal(32, 96), normal(8, 1, 12, 12), torch.from_numpy(rng.integers(0, 10, 32))
    for _ in range(12):
        optimizer.zero_grad()
        hidden = F.gelu(x @ weights[0] + weights[1]).softmax(-1)
        loss = F.cross_entropy(hidden @ weights[2], target) + F.conv2d(image, weights[3]).relu().square().mean()
        loss.backward()
        optimizer.step()
    return [weight.detach().numpy().copy() for weight in weights]


def threads(seed: str) -> None:
    """Trains eight models in eight threads at once; the weights must be those of one after the other, to the bit."""
    torch.set_num_threads(1 + int(seed) % 2)
    ask_for_small_kernels()
    seeds = [8 * int(seed) + n for n in range(8)]
    expected = [trained(each) for each in seeds]
    with ThreadPoolExecutor(len(seeds)) as pool:
        found = list(pool.map(trained, seeds))
    for one, other in zip(found, expected, strict=True):
        for f, e in zip(one, other, strict=True):
            np.testing.assert_array_equal(f, e)
    print(json.dumps({"models": len(seeds)}))


# --- forks -----------------------------------------------------------------------------------------------------------


def forks(seed: str) -> None:
    """Forks while other threads run activities of tests/support/forking.py; the children run the same ones."""
    from tests.support import forking

    forking.case(int(seed), rounds=8)
    print(json.dumps({"children": 8}))


if __name__ == "__main__":
    {"save": save, "signals": signals, "threads": threads, "forks": forks}[sys.argv[1]](*sys.argv[2:])
