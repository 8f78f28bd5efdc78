"""Sparse gradients of embeddings, and the optimizers that take or refuse them, beside torch."""

import numpy as np
import pytest

import tensorgrad

torch = pytest.importorskip("torch", reason="torch is the oracle of these tests")

ROWS, WIDTH = 20, 4
WEIGHTS = np.random.default_rng(0).standard_normal((ROWS, WIDTH)).astype(np.float32)


def same(ours, theirs):
    assert tuple(ours.shape) == tuple(theirs.shape)
    np.testing.assert_allclose(ours.detach().numpy(), theirs.detach().numpy(), rtol=2e-6, atol=1e-6)


def both(program):
    """What the program gives with each library."""
    return program(tensorgrad), program(torch)


def table(T, **options):
    made = T.nn.Embedding(ROWS, WIDTH, sparse=True, **options)
    made.weight.data.copy_(T.tensor(WEIGHTS))
    return made


def lookups(T, k, *shape):
    return T.tensor(np.random.default_rng(k).integers(0, ROWS, shape))


@pytest.mark.parametrize("padding", [None, 3])
def test_the_gradient_of_an_embedding(padding):
    def program(T):
        made = table(T, padding_idx=padding)
        (made(lookups(T, 1, 3, 5)) ** 2).sum().backward()
        return made.weight.grad

    ours, theirs = both(program)
    assert ours.layout is tensorgrad.sparse_coo and not ours.is_coalesced()
    same(ours._indices(), theirs._indices())
    same(ours._values(), theirs._values())


@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_the_gradient_of_a_bag(mode):
    def program(T):
        made = T.nn.EmbeddingBag(ROWS, WIDTH, mode=mode, sparse=True)
        made.weight.data.copy_(T.tensor(WEIGHTS))
        made(lookups(T, 2, 12), T.tensor([0, 3, 5])).sum().backward()
        return made.weight.grad

    ours, theirs = both(program)
    same(ours._indices(), theirs._indices())
    same(ours._values(), theirs._values())


@pytest.mark.parametrize(
    "name, options",
    [
        ("SGD", {}),
        ("SparseAdam", {}),
        ("SparseAdam", {"betas": (0.5, 0.9), "maximize": True}),
        ("Adagrad", {}),
        ("Adagrad", {"lr_decay": 0.01, "initial_accumulator_value": 0.1}),
    ],
)
def test_twenty_steps(name, options):
    def program(T):
        made = table(T)
        update = getattr(T.optim, name)(made.parameters(), lr=0.1, **options)
        for k in range(20):
            update.zero_grad()
            (made(lookups(T, k, 3, 5)) ** 2).sum().backward()
            update.step()
        return made.weight

    same(*both(program))


def test_rows_that_are_not_used_do_not_move():
    made = table(tensorgrad)
    update = tensorgrad.optim.SparseAdam(made.parameters(), lr=0.1)
    for _ in range(3):
        update.zero_grad()
        made(tensorgrad.tensor([2, 7])).sum().backward()
        update.step()
    moved = (made.weight.detach().numpy() != WEIGHTS).any(1)
    assert np.flatnonzero(moved).tolist() == [2, 7]


OTHERS = ("Adam", "AdamW", "NAdam", "RAdam", "RMSprop", "Rprop", "Adadelta", "Adamax", "ASGD")


@pytest.mark.parametrize("name", OTHERS)
def test_other_optimizers_refuse(name):
    def program(T):
        made = table(T)
        update = getattr(T.optim, name)(made.parameters(), lr=0.1)
        made(T.tensor([1])).sum().backward()
        with pytest.raises(RuntimeError) as error:
            update.step()
        return str(error.value)

    ours, theirs = both(program)
    assert ours == theirs


def test_dense_gradients_are_refused_by_sparse_adam():
    w = tensorgrad.ones(3, requires_grad=True)
    update = tensorgrad.optim.SparseAdam([w])
    w.sum().backward()
    with pytest.raises(RuntimeError, match="does not support dense gradients, please consider Adam instead"):
        update.step()


def test_gather_with_a_sparse_gradient():
    def program(T):
        x = T.zeros(3, 4, requires_grad=True)
        T.gather(x, 1, T.tensor([[0, 1], [2, 2], [3, 0]]), sparse_grad=True).sum().backward()
        return x.grad.to_dense()

    same(*both(program))
