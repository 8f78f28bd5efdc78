"""Long chains of views of views: each costs what the first did, in time and memory, and none is walked recursively."""

import contextlib
import gc

import pytest

import tensorgrad as torch
from tensorgrad.autograd import views

N = 300_000

# From a (4, 4) tensor to one of the same shape: each is done again and again.
AGAIN = {
    "index": lambda x: x[:],
    "ellipsis": lambda x: x[...],
    "transpose": lambda x: x.t(),
    "permute": lambda x: x.permute(1, 0),
    "movedim": lambda x: x.movedim(0, 1),
    "narrow": lambda x: x.narrow(0, 0, 4),
    "expand": lambda x: x.expand(4, 4),
    "view": lambda x: x.view(4, 4),
    "reshape": lambda x: x.view(16).view(4, 4),
    "unsqueeze": lambda x: x.unsqueeze(0).squeeze(0),
    "select": lambda x: x.unsqueeze(1).select(1, 0),
    "diagonal": lambda x: x.unsqueeze(2).expand(4, 4, 4).diagonal(0, 0, 2),
    "unfold": lambda x: x.unfold(0, 4, 1)[0].t(),
    "split": lambda x: x.split(4)[0],
    "chunk": lambda x: x.chunk(1)[0],
    "tensor_split": lambda x: x.tensor_split(1)[0],
    "unbind": lambda x: x.unsqueeze(0).unbind(0)[0],
    "as_strided": lambda x: x.as_strided((4, 4), (4, 1)),
    "dtype": lambda x: x.view(torch.int32).view(torch.float32),
    "detach": lambda x: x.detach(),
}


@contextlib.contextmanager
def without_collector():
    """Nothing waits for the collector: chains have no cycles."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def length(steps):
    """How many steps lead to a view."""
    count = 0
    while steps is not None:
        steps, count = steps[0], count + 1
    return count


@pytest.mark.parametrize("name", AGAIN)
def test_a_view_adds_its_own_steps_and_shares_the_others(name):
    again = AGAIN[name]
    x = again(torch.zeros(4, 4))
    if x._view is None:  # no view in the graph's sense
        return
    own = length(x._view[1])
    for _ in range(50):
        y, before = again(x), x._view[1]
        steps = y._view[1]
        for _ in range(own):
            steps = steps[0] if steps is not before else before
        assert steps is before or length(y._view[1]) == own == 1  # the very same object, or only the last counts
        x = y


def test_the_length_of_a_chain_does_not_matter():
    with without_collector():
        leaf = torch.ones(3, requires_grad=True)
        y = leaf * 2
        for _ in range(N):
            y = y[:]
        y.sum().backward()
        assert leaf.grad.tolist() == [2.0] * 3
        del y
        y = base = torch.zeros(3)
        for _ in range(N):
            y = y[:]
        assert length(y._view[1]) == N
        y.add_(leaf)  # the base's history is a write through all these views
        base.sum().backward()
        assert leaf.grad.tolist() == [3.0] * 3
        assert y.requires_grad and y._base is base and y.grad_fn is not None and length(y._view[1]) == 1
        del y, base


def test_a_chain_of_many_dtypes():
    """It cannot be named by one place in the storage, so all its steps are done again."""
    leaf = torch.ones(3, dtype=torch.complex64, requires_grad=True)
    base = leaf * 1
    y = torch.view_as_real(base)
    for _ in range(5_000):
        y = y[:]
    y.mul_(2)
    assert length(y._view[1]) == 5_001
    (y.sum() + base.abs().sum()).backward()
    assert leaf.grad.real.tolist() == [4.0] * 3


def replayed(monkeypatch, n):
    """How many steps are done again while a chain of n views is written to after each."""
    count = 0
    replay = views.replay

    def counting(base, steps):
        nonlocal count
        count += length(steps)
        return replay(base, steps)

    with monkeypatch.context() as patch:
        patch.setattr(views, "replay", counting)
        leaf = torch.ones(3, requires_grad=True)
        y = leaf * 2
        for _ in range(n):
            y = y[:]
            y.mul_(1.0)
        y.sum().backward()
        assert leaf.grad.tolist() == [2.0] * 3
    return count


def test_writes_into_a_chain_cost_what_they_do_at_its_beginning(monkeypatch):
    n = 20 * views.LONG
    assert replayed(monkeypatch, 2 * n) <= 2.2 * replayed(monkeypatch, n)
