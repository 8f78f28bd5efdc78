"""Threads: they do not affect each other, and eight at the same time give the same results as one after another."""

import os
import subprocess
import sys
import threading

import pytest

import tensorgrad as torch

THREADS = 8


@pytest.fixture(autouse=True)
def quick_switches():
    """Makes threads switch a thousand times more often than usual, to expose races."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(5e-6)
    yield
    sys.setswitchinterval(before)


def at_once(function, count: int = THREADS) -> list:
    """Returns the results of `function(0)`, `function(1)`, ..., each in its own thread, all started together."""
    results: list = [None] * count
    errors: list = []
    barrier = threading.Barrier(count)

    def work(i):
        try:
            barrier.wait()
            results[i] = function(i)
        except BaseException as error:
            errors.append(error)
            barrier.abort()

    threads = [threading.Thread(target=work, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results


def train(seed: int, steps: int = 40) -> list:
    """Trains a small network on its own data. Returns all weights afterwards, and the losses."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(16, 5, generator=generator)
    y = torch.randint(0, 3, (16,), generator=generator)
    shapes = ((5, 12), (12,), (12, 3), (3,))
    parameters = [(torch.randn(*s, generator=generator) * 0.5).requires_grad_() for s in shapes]
    w1, b1, w2, b2 = parameters
    losses = []
    for step in range(steps):
        hidden = (x @ w1 + b1).tanh() * 2
        hidden[:, step % 12].mul_(0.5)  # also a write through a view
        logits = hidden @ w2 + b2
        loss = -(logits.log_softmax(1)[torch.arange(16), y]).mean()
        loss.backward()
        with torch.no_grad():
            for p in parameters:
                p -= 0.1 * p.grad
                p.grad = None
        losses.append(loss.item())
    return [losses, [p.tolist() for p in parameters]]


def test_eight_threads_train_eight_models():
    one_after_another = [train(seed) for seed in range(THREADS)]
    assert one_after_another[0] != one_after_another[1]
    assert at_once(train) == one_after_another


def test_eight_threads_train_eight_modules():
    def make(seed):
        torch.manual_seed(seed)
        return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))

    def fit(model):
        optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
        x = torch.linspace(-1, 1, 24).reshape(6, 4)
        y = torch.tensor([0, 1, 0, 1, 1, 0])
        for _ in range(25):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
        return [p.tolist() for p in model.parameters()]

    expected = [fit(make(i)) for i in range(THREADS)]
    models = [make(i) for i in range(THREADS)]  # created beforehand, as the default generator is shared
    assert at_once(lambda i: fit(models[i])) == expected


def test_modes_do_not_leak():
    x = torch.ones(3, requires_grad=True)
    modes = (torch.no_grad, torch.enable_grad, torch.inference_mode, lambda: torch.set_grad_enabled(False))

    def work(i):
        mode, seen = modes[i % 4], set()
        for _ in range(300):
            with mode():
                y = x * 2
                seen.add(
                    (y.requires_grad, y.is_inference(), torch.is_grad_enabled(), torch.is_inference_mode_enabled())
                )
            z = x * 2
            seen.add(("after", z.requires_grad, z.is_inference(), torch.is_grad_enabled()))
        return seen

    after = ("after", True, False, True)
    inside = [
        (False, False, False, False),
        (True, False, True, False),
        (False, True, False, True),
        (False, False, False, False),
    ]
    assert at_once(work) == [{inside[i % 4], after} for i in range(THREADS)]


def test_new_threads_start_with_grad():
    with torch.no_grad():
        assert at_once(
            lambda i: (torch.is_grad_enabled(), (torch.ones(1, requires_grad=True) * 2).requires_grad), 2
        ) == [
            (True, True),
            (True, True),
        ]


def test_hooks_on_saved_tensors_do_not_leak():
    def work(i):
        packed, wanted = [], 200
        x = torch.full((2,), float(i + 1), requires_grad=True)
        for _ in range(wanted):
            x.grad = None
            if i % 2:
                with torch.autograd.graph.saved_tensors_hooks(lambda t: (packed.append(1), t)[1], lambda t: t):
                    y = (x * x).sum()
            else:
                y = (x * x).sum()
            y.backward()
            assert x.grad.tolist() == [2.0 * (i + 1)] * 2
        return len(packed) // wanted

    counts = at_once(work)
    assert counts[0::2] == [0] * 4 and all(counts[1::2])


def test_one_graph_used_by_many():
    x = torch.linspace(0.1, 1, 10).requires_grad_()
    shared = (x.exp() * x).sin()
    (expected,) = torch.autograd.grad(shared.sum(), x, retain_graph=True)

    def work(i):
        grads = [torch.autograd.grad((shared * (i + 1)).sum(), x, retain_graph=True)[0] for _ in range(30)]
        return all(torch.allclose(g, expected * (i + 1)) for g in grads)

    assert all(at_once(work))


@pytest.mark.parametrize("size", [10, 200_000])  # NumPy releases the GIL only while adding large arrays
def test_no_gradient_is_lost_when_many_accumulate(size):
    x = torch.ones(size, requires_grad=True)
    rounds = 200 if size < 1000 else 20

    def work(i):
        for _ in range(rounds):
            (x * 2).sum().backward()

    at_once(work)
    assert x.grad.min().item() == x.grad.max().item() == 2.0 * rounds * THREADS
    for _ in range(20 if size < 1000 else 3):  # the first gradient of every leaf
        x.grad = None
        at_once(lambda i: (x * 2).sum().backward())
        assert x.grad.min().item() == x.grad.max().item() == 2.0 * THREADS


def test_a_graph_made_here_and_used_there():
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    y = (x * x).sum()
    seen = []
    x.register_hook(lambda g: seen.append(threading.current_thread().name))
    thread = threading.Thread(target=y.backward, name="there")
    thread.start()
    thread.join()
    assert x.grad.tolist() == [2.0, 4.0] and seen == ["there"]


def test_groups_of_hooks_in_many_threads():
    a, b = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    calls = []
    torch.autograd.graph.register_multi_grad_hook((a, b), lambda grads: calls.append([g is not None for g in grads]))

    def work(i):
        for _ in range(50):
            (a * b).sum().backward()

    at_once(work)
    assert calls == [[True, True]] * (50 * THREADS)
    assert a.grad.tolist() == [50.0 * THREADS] * 2


def test_checkpoints_in_many_threads():
    def work(i):
        x = torch.full((3,), 0.1 * (i + 1), requires_grad=True)
        for _ in range(20):
            x.grad = None
            y = torch.utils.checkpoint.checkpoint(
                lambda x: (x.exp() * x).sin(), x, use_reentrant=False, preserve_rng_state=False
            )
            y.sum().backward()
        return x.grad.tolist()

    assert at_once(work) == [work(i) for i in range(THREADS)]


def test_the_blas_of_numpy_is_told_to_wait_briefly_and_computes_on():
    code = """
import os, threading
import numpy as np
from tensorgrad.kernels.numba.runtime import blas

a = np.random.default_rng(0).random((300, 300))
before = a @ a
print(blas.wait_briefly() or "no OpenBLAS here", "OPENBLAS_THREAD_TIMEOUT" in os.environ, np.array_equal(a @ a, before))
event = threading.Event()
other = threading.Thread(target=event.wait)
other.start()
print(blas.wait_briefly())
event.set()
other.join()
os.environ["OPENBLAS_THREAD_TIMEOUT"] = "20"
print(blas.wait_briefly(), os.environ["OPENBLAS_THREAD_TIMEOUT"])
"""
    kept = {k: v for k, v in os.environ.items() if k != "OPENBLAS_THREAD_TIMEOUT"} | {"TENSORGRAD_FAST": "0"}
    lines = subprocess.check_output([sys.executable, "-c", code], env=kept, text=True).splitlines()
    assert lines[0] in ("True False True", "no OpenBLAS here False True")
    assert lines[1:] == ["False", "False 20"]


def test_the_number_of_threads_is_that_of_the_environment():
    code = "import tensorgrad; print(tensorgrad.get_num_threads())"
    for given, expected in {"1": "1", "3": "3", "3,2": "3"}.items():
        environment = os.environ | {"OMP_NUM_THREADS": given}
        assert subprocess.check_output([sys.executable, "-c", code], env=environment, text=True).strip() == expected
