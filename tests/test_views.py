"""Views and in-place writes: the same program in both libraries gives the same values, gradients and errors."""

from __future__ import annotations

import inspect
import random
import re

import numpy as np
import pytest
import torch

import tensorgrad as tg

LIBRARIES = (torch, tg)


def numbers(tensor):
    """The values of a tensor of either library."""
    return np.array(tensor.detach().tolist(), dtype=np.float64).reshape(tuple(tensor.shape))


def both(program):
    """What `program(library)` gives in torch and here: a result, or an exception."""
    results = []
    for library in LIBRARIES:
        try:
            results.append(program(library))
        except Exception as error:
            results.append(error)
    return results


def agree(program, *, message: bool = True) -> None:
    """Both libraries give the same numbers (nested in tuples), or raise the same error."""
    expected, actual = both(program)
    if isinstance(expected, Exception) or isinstance(actual, Exception):
        assert type(expected) is type(actual), f"{expected!r} / {actual!r}"
        if message:
            first = re.split(r"[\n(]", str(expected))[0][:100]
            assert str(actual).startswith(first), f"{expected!r} / {actual!r}"
        return
    compare(expected, actual)


def compare(expected, actual) -> None:
    if isinstance(expected, torch.Tensor):
        assert isinstance(actual, tg.Tensor)
        assert tuple(expected.shape) == tuple(actual.shape)
        np.testing.assert_allclose(numbers(actual), numbers(expected), rtol=1e-10, atol=1e-12)
    elif isinstance(expected, tuple | list):
        assert len(expected) == len(actual)
        for e, a in zip(expected, actual, strict=True):
            compare(e, a)
    else:
        assert expected == actual


# --- random programs -------------------------------------------------------------------------------------------------


def a_view(rng: random.Random, x):
    """A random view op that suits the shape of `x`, as a function of a tensor of either library."""
    shape = tuple(x.shape)
    n = len(shape)
    d = rng.randrange(n) if n else 0
    e = rng.randrange(n) if n else 0
    size = shape[d] if n else 1
    start = rng.randrange(size) if size else 0
    length = rng.randint(0, size - start)
    index = tuple(
        rng.choice([slice(None), slice(rng.randint(-2, 2), None), slice(0, m, 2), None, Ellipsis, rng.randrange(-m, m) if m else 0])
        for m in shape[: rng.randint(1, max(n, 1))]
    )
    if sum(i is Ellipsis for i in index) > 1:
        index = ()
    choices = [
        lambda t: t.view(-1),
        lambda t: t.reshape(-1),
        lambda t: t.transpose(d, e),
        lambda t: t.unsqueeze(rng_dim),
        lambda t: t.squeeze(),
        lambda t: t.squeeze(d),
        lambda t: t.flatten(),
        lambda t: t.narrow(d, start, length),
        lambda t: t.select(d, start),
        lambda t: t[index],
        lambda t: t[start],
        lambda t: t[start : start + 2],
        lambda t: t.diagonal(rng_offset, d, e),
        lambda t: t.unfold(d, min(2, size), 1),
        lambda t: t.unfold(d, min(2, size), 2),
        lambda t: t.permute(*order),
        lambda t: t.movedim(d, e),
        lambda t: t.expand(2, *shape),
        lambda t: t.view_as(t),
        lambda t: t.split(1, d)[start],
        lambda t: t.chunk(2, d)[0],
        lambda t: t.unbind(d)[start],
        lambda t: t.tensor_split(2, d)[-1],
        *([lambda t: t.as_strided((2, 2), (1, 2), 1), lambda t: t.as_strided((3,), (2,))] if x.numel() else []),
        lambda t: t.swapaxes(d, e),
        lambda t: t.detach(),
        lambda t: t.mT,
        lambda t: t.t(),
    ]
    rng_dim, rng_offset = rng.randint(0, n), rng.randint(-1, 1)
    order = list(range(n))
    rng.shuffle(order)
    return rng.choice(choices)


def a_write(rng: random.Random, x):
    """A random in-place op, as a function of the library, the tensor, and a leaf of size 1 that requires grad."""
    c = rng.choice([-1.5, 0.5, 2.0])
    n = x.dim()
    d = rng.randrange(n) if n else 0
    e = rng.randrange(n) if n else 0
    choices = [
        lambda m, t, w: t.mul_(c),
        lambda m, t, w: t.add_(c),
        lambda m, t, w: t.mul_(w),
        lambda m, t, w: t.sub_(w * w),
        lambda m, t, w: t.copy_(w),
        lambda m, t, w: t.fill_(c),
        lambda m, t, w: t.fill_(w[0]),
        lambda m, t, w: t.zero_(),
        lambda m, t, w: t.exp_(),
        lambda m, t, w: t.mul_(t.clone()),
        lambda m, t, w: t.add_(t.sum()),
        lambda m, t, w: t.__setitem__(0, c),
        lambda m, t, w: t.__setitem__(-1, w),
        lambda m, t, w: t.__setitem__(Ellipsis, w * c),
        lambda m, t, w: t.__setitem__([0], w.expand_as(t[[0]])),
        lambda m, t, w: t.clamp_(-1, 1),
    ]
    if not torch._debug_has_internal_overlap(x):  # where elements share memory, the order of writing decides
        choices += [
            lambda m, t, w: t.__setitem__(t > 0, w[0]),
            lambda m, t, w: t.index_put_((m.tensor([0, 0]),), w.double(), accumulate=True),
            lambda m, t, w: t.masked_fill_(t > 0.5, c),
            lambda m, t, w: t.index_add_(0, m.tensor([0]), t[:1] * w),
            lambda m, t, w: t.scatter_(0, m.tensor([[0]]), c),
            lambda m, t, w: t.tril_(),
        ]
    else:
        choices = [lambda m, t, w: t.fill_(c), lambda m, t, w: t.zero_()]
    reshaping = [
        lambda m, t, w: t.unsqueeze_(0),
        lambda m, t, w: t.squeeze_(),
        lambda m, t, w: t.transpose_(d, e),
        lambda m, t, w: t.t_(),
    ]
    for function in reshaping:
        function.__name__ = "reshapes"
    return rng.choice([*choices, *reshaping])


def described(function) -> str:
    """The text of one of the functions above, with its constants."""
    values = {
        name: cell.cell_contents
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    }
    return f"{inspect.getsource(function).strip().rstrip(',')} {values or ''}"


class Machine:
    """One library running a random program: tensors made so far, and the loss that they feed."""

    def __init__(self, library, values):
        self.library = library
        self.leaf = library.tensor(values, dtype=library.float64, requires_grad=True)
        self.weight = library.tensor([1.25], dtype=library.float64, requires_grad=True)
        self.pool = [self.leaf * 1, library.tensor(values, dtype=library.float64), self.leaf]
        self.loss = self.weight.sum() * 0

    def step(self, kind: str, at: int, function, no_grad: bool):
        try:
            with self.library.set_grad_enabled(not no_grad):
                tensor = self.pool[at]
                if kind == "view":
                    self.pool.append(function(tensor))
                elif kind == "write":
                    function(self.library, tensor, self.weight)
                else:
                    self.loss = self.loss + function(tensor)
        except Exception as error:
            return error
        return None


def is_computed(tensor):
    """Whether a tensor has a `grad_fn`; None where asking is an error."""
    try:
        return tensor.grad_fn is not None
    except RuntimeError:
        return None


def run_program(seed: int) -> str:
    """Runs a random program in both libraries and compares after every step; returns how it ended."""
    rng = random.Random(seed)
    values = np.random.default_rng(seed).uniform(-1, 1, (3, 4)).round(3).tolist()
    machines = [Machine(library, values) for library in LIBRARIES]
    reference, ours = machines
    steps = []
    for _ in range(rng.randint(3, 12)):
        at = rng.randrange(len(reference.pool))
        kind = rng.choice(["view", "view", "write", "write", "use"])
        x = reference.pool[at]
        if kind == "view":
            function = a_view(rng, x)
        elif kind == "write":
            function = a_write(rng, x)
        else:
            function = rng.choice([lambda t: (t * t).sum(), lambda t: t.exp().sum(), lambda t: t.sum()])
        no_grad = rng.random() < 0.12 and not (kind == "write" and function.__name__ == "reshapes")
        steps.append(f"{kind} pool[{at}] {'(no_grad)' if no_grad else ''} {described(function)}")
        expected, actual = (m.step(kind, at, function, no_grad) for m in machines)
        assert type(expected) is type(actual), f"{steps}: {expected!r} / {actual!r}"
        for i, (e, a) in enumerate(zip(reference.pool, ours.pool, strict=True)):
            assert tuple(e.shape) == tuple(a.shape), f"{steps}, pool[{i}]"
            np.testing.assert_allclose(numbers(a), numbers(e), rtol=1e-9, atol=1e-12, err_msg=f"{steps}, pool[{i}]")
            if e.numel():
                assert e.stride() == a.stride(), f"{steps}, pool[{i}]"
                assert e.storage_offset() == a.storage_offset(), f"{steps}, pool[{i}]"
            assert e.requires_grad == a.requires_grad, f"{steps}, pool[{i}]"
            assert is_computed(e) == is_computed(a), f"{steps}, pool[{i}]"
            assert e._version == a._version, f"{steps}, pool[{i}]: version {a._version}, expected {e._version}"
        if expected is not None and kind == "write":
            break
    ends = []
    for m in machines:
        try:
            total = m.loss
            for t in m.pool:
                total = total + (t * t).sum()
            ends.append(m.library.autograd.grad(total, (m.leaf, m.weight), allow_unused=True))
        except RuntimeError as error:
            ends.append(error)
    expected, actual = ends
    if isinstance(expected, Exception) or isinstance(actual, Exception):
        assert type(expected) is type(actual), f"{steps}: {expected!r} / {actual!r}"
        return "error"
    for e, a in zip(expected, actual, strict=True):
        assert (e is None) == (a is None), f"{steps}: {e} / {a}"
        if e is not None:
            np.testing.assert_allclose(numbers(a), numbers(e), rtol=1e-8, atol=1e-10, err_msg="\n".join(steps))
    return "gradients"


@pytest.mark.parametrize("block", range(20))
def test_random_programs(block):
    ends = [run_program(1000 * block + i) for i in range(25)]
    assert "gradients" in ends
