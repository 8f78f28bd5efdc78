"""Writes in place inside functions that are transformed: derivatives are those of the same function without writes."""

import pytest

import tensorgrad as torch
from tests.support.alike import alike

F = torch.func


def part_written(x):
    y = x * 1
    y[1:].mul_(x[:2])
    return y.sum()


def part_built(x):
    return x[0] + (x[1:] * x[:2]).sum()


def itself_written(x):
    y = x.clone()
    y *= y
    y[0] = x[1] * x[2]
    return (y * y).sum()


def itself_built(x):
    return (x[1] * x[2]) ** 2 + (x[1:] ** 4).sum()


def row_written(x):
    y = x.expand(2, 3).clone()
    y[0].mul_(x)
    return (y * y).sum()


def row_built(x):
    return (x**4 + x**2).sum()


def diagonal_written(x):
    m = torch.diag(x) + 1
    m.diagonal().mul_(x)
    return m.sum() + torch.linalg.det(m)


def diagonal_built(x):
    m = torch.diag((x + 1) * x) + 1 - torch.eye(3, dtype=x.dtype)
    return m.sum() + torch.linalg.det(m)


def filled(x):
    y = x * 2
    y.masked_fill_(x < 0, 1.0)
    return (y * x).sum()


def where(x):
    return (torch.where(x < 0, 1.0, x * 2) * x).sum()


def overlapping(x):
    y = x * x
    y[1:].mul_(y[:2].clone())
    y[:2].sub_(x[1:], alpha=2).div_(x[:2])
    return (y * x).sum()


def apart(x):
    y = x * x
    y = torch.cat([y[:1], y[1:] * y[:2]])
    y = torch.cat([(y[:2] - 2 * x[1:]) / x[:2], y[2:]])
    return (y * x).sum()


PAIRS = {f.__name__: (f, g) for f, g in (
    (part_written, part_built), (itself_written, itself_built), (row_written, row_built),
    (diagonal_written, diagonal_built), (filled, where), (overlapping, apart),
)}  # fmt: skip

X, T = torch.tensor([1.5, -2.0, 3.0]).double(), torch.tensor([0.5, 1.0, -1.0]).double()
B = torch.stack([X, X * 2, X + 1])
WAYS = {
    "grad": lambda f: F.grad(f)(X),
    "jvp": lambda f: F.jvp(f, (X,), (T,))[1],
    "vmap": lambda f: F.vmap(f)(B),
    "vmap of grad": lambda f: F.vmap(F.grad(f))(B),
    "grad of vmap": lambda f: F.grad(lambda b: F.vmap(f)(b).sum())(B),
    "vmap of jvp": lambda f: F.vmap(lambda z: F.jvp(f, (z,), (T,))[1])(B),
    "vmap of jvp, with tangents": lambda f: F.vmap(lambda z, t: F.jvp(f, (z,), (t,))[1])(B, B * T),
    "jvp of vmap": lambda f: F.jvp(F.vmap(f), (B,), (B * T,))[1],
    "jvp of grad": lambda f: F.jvp(F.grad(f), (X,), (T,))[1],
    "grad of jvp": lambda f: F.grad(lambda z: F.jvp(f, (z,), (T,))[1])(X),
    "jvp of jvp": lambda f: F.jvp(lambda z: F.jvp(f, (z,), (T,))[1], (X,), (T * 2,))[1],
    "hessian": lambda f: F.hessian(f)(X),
    "jacrev of jacrev": lambda f: F.jacrev(F.jacrev(f))(X),
    "jacfwd of jacfwd": lambda f: F.jacfwd(F.jacfwd(f))(X),
    "jacrev of jacfwd": lambda f: F.jacrev(F.jacfwd(f))(X),
    "vmap of hessian": lambda f: F.vmap(F.hessian(f))(B),
    "vmap of grad of jvp": lambda f: F.vmap(F.grad(lambda z: F.jvp(f, (z,), (T,))[1]))(B),
    "grad of vmap of jvp": lambda f: F.grad(lambda b: F.vmap(lambda z: F.jvp(f, (z,), (T,))[1])(b).sum())(B),
    "linearize": lambda f: F.linearize(f, X)[1](T),
    "vectorized": lambda f: torch.autograd.functional.hessian(f, X, vectorize=True),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("pair", PAIRS)
def test_writes_change_no_derivative(pair, way):
    written, built = PAIRS[pair]
    torch.testing.assert_close(WAYS[way](written), WAYS[way](built))


@alike
def test_tangents_of_expanded_values(torch):
    jvp, found = torch.func.jvp, []
    for x in (torch.arange(3.0).expand(2, 3), torch.arange(4.0)[1:, None].expand(3, 2), torch.tensor(2.0).expand(2)):
        found += [jvp(f, (x,), (x,)) for f in (torch.sin, lambda z: z.clone().mul_(z), lambda z: z[1:] * z[:1])]
    return found


@alike
def test_transforms_of_inference_tensors(torch):
    with torch.inference_mode():
        x = torch.tensor([1.0, 2.0])
    f = lambda z: (z * z).sum()
    return (
        torch.func.grad(f)(x),
        torch.func.hessian(f)(x),
        torch.func.vjp(f, x)[1](x[0] * 1),
        torch.func.jvp(f, (x,), (x,)),
    )
