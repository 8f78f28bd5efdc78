"""Corners of autograd that PyTorch's own tests look into: as in torch."""

from __future__ import annotations

import pytest

import tensorgrad as tg
from tests.support.alike import alike, error

torch = pytest.importorskip("torch", reason="PyTorch is the oracle of these tests and is not installed")


@pytest.mark.parametrize("base", (-1, -2.5, 3, [-1.0, -2.5, 3.0], [-1, 2, 3], [-2.0, 0.0, 1e-3]))
@pytest.mark.parametrize("dtype", ("complex128", "complex64"))
def test_complex_powers_of_real_numbers(base, dtype):
    grads = []
    for l in (tg, torch):
        x = l.tensor(base) if isinstance(base, list) else base
        e = l.tensor([1 + 2j, 0.5 - 1j, 2 + 0.5j], dtype=getattr(l, dtype), requires_grad=True)
        l.pow(x, e).abs().sum().backward()
        grads.append(torch.tensor(e.grad.tolist()))
    torch.testing.assert_close(*grads, equal_nan=True, rtol=1e-5, atol=1e-5)


CHANGES = {
    "set_": "x.set_(l.ones(1, 3))", "set_ in inference mode": "x.set_(x[:1])", "data": "setattr(x, 'data', l.ones(4))",
    "data of the shape of the result": "setattr(x, 'data', l.ones(2, 1, 3))", "transposed memory": "x.set_(x.t())",
    "t_": "x.t_()", "unsqueeze_": "x.unsqueeze_(0)", "squeeze_": "x.squeeze_()",
}  # fmt: skip
USES = ("x * 2", "x + l.ones(2, 1, 3)", "x[0] + 1", "x.t() * 2", "x.sum(0, keepdim=True)", "x @ l.ones(3, 4)")


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("by", ("grad", "backward twice"))
@pytest.mark.parametrize("view", (True, False))
def test_a_leaf_whose_shape_was_changed_gets_the_gradient_of_the_shape_it_was_used_with(change, use, by, view):
    def story(l, changed):
        x = (l.arange(3.0).reshape(1, 3) if view else l.tensor([[0.0, 1.0, 2.0]])).requires_grad_()
        y = eval(use, {"l": l, "x": x})
        with l.inference_mode() if "inference" in change else l.no_grad():
            eval(CHANGES[change] if changed else "None", {"l": l, "x": x})
        if by == "grad":
            return l.autograd.grad(y.cos().sum(), x)[0]
        for _ in range(2):
            y.cos().sum().backward(retain_graph=True)
        return x.grad

    found = story(tg, True)
    torch.testing.assert_close(torch.tensor(found.tolist()), story(torch, False))
    try:
        expected = story(torch, True)
    except RuntimeError:  # in torch a gradient must fit the memory that the leaf has now
        return
    if expected.shape == (1, 3):  # torch expands some to the leaf's present shape
        torch.testing.assert_close(torch.tensor(found.tolist()), expected)


def test_both_shapes_of_a_leaf_have_their_gradients():
    x = tg.arange(3.0).requires_grad_()
    before = (x + tg.ones(2, 3)).sum()
    with tg.no_grad():
        x.set_(tg.ones(2, 3))
    after = (x + tg.ones(4, 2, 3)).sum()
    assert tg.autograd.grad(before, x)[0].tolist() == [2, 2, 2]
    assert tg.autograd.grad(after, x)[0].tolist() == [[4, 4, 4], [4, 4, 4]]


@pytest.mark.parametrize("parts", ("unsafe_split(1)", "unsafe_split_with_sizes((1, 1, 1))", "unsafe_chunk(3)"))
@pytest.mark.parametrize("recorded", (True, False))
def test_parts_that_may_be_written(parts, recorded):
    def story(l):
        a = l.ones(3, 3, requires_grad=True)
        b = a * 2
        with l.set_grad_enabled(recorded):
            first, second, third = eval(f"b.{parts}")
        told = [(p._is_view(), p.requires_grad, p._version, b._version) for p in (first, second, third)]
        first.mul_(second)
        told += [first._version, b._version, second._version, b[0, 0].item()]
        if recorded:
            (first * third).sum().backward()
        return told, a.grad if a.grad is None else a.grad.tolist()

    assert story(tg) == story(torch)


def test_a_view_that_cannot_follow_its_base_is_printed_all_the_same():
    def story(l):
        a = l.ones(1, requires_grad=True)
        with l.no_grad():
            b = a[:]
            b *= 2
        return repr(b)

    assert story(tg) == story(torch) == "tensor([2.], grad_fn=<Invalid>)"


def test_nodes_by_their_names():
    def story(l):
        functions, x = l._C._functions, l.ones(2, requires_grad=True)
        add, view = (x + 1).grad_fn, (x * 1)[0].grad_fn
        told = [
            isinstance(add, functions.AddBackward0), isinstance(add, functions.MulBackward0),
            isinstance(view, functions.SelectBackward0), isinstance(add.next_functions[0][0], functions.AccumulateGrad),
            issubclass(functions.AccumulateGrad, l.autograd.graph.Node), hasattr(functions, "NoSuchBackward0"),
        ]  # fmt: skip

        y = functions.UndefinedGrad()(x * 2)
        (y.sum() + x.sum()).backward()
        told += [y.tolist(), x.grad.tolist()]
        try:
            functions.DelayedError("Boom!", 1)(x * 1).sum().backward()
        except RuntimeError as error:
            told.append(str(error))
        return told

    assert story(tg) == story(torch)


@alike
def test_data_is_taken_over(torch):
    def outcome(value, **options):
        x = torch.ones(3, **options)
        x.add_(1) if not x.requires_grad else None
        text = error(setattr, x, "data", value(x))
        return [text.partition(": they are")[0].rstrip("."), x.shape, str(x.device), str(x.dtype), x.requires_grad,
                x.is_leaf, x._version]  # fmt: skip

    values = (
        lambda x: torch.zeros(2, 2), lambda x: torch.zeros(3).add_(1).add_(1),
        lambda x: torch.zeros(6).view(2, 3).t()[1:],
        lambda x: torch.ones(3, dtype=torch.int64), lambda x: torch.ones(3, dtype=torch.complex64),
        lambda x: torch.ones(3, device="meta"), lambda x: x, lambda x: x.data, lambda x: 5, lambda x: None,
        lambda x: torch.nn.Parameter(torch.zeros(2)), lambda x: torch.zeros(2, requires_grad=True) * 2,
    )  # fmt: skip
    found = [outcome(value, requires_grad=tracked) for value in values for tracked in (False, True)]
    x, y = torch.ones(3), torch.zeros(3)
    view = x[1:]
    x.data = y
    y.add_(1)
    x.mul_(2)
    view.add_(5)
    found += [x, y, view, y._version, x.data_ptr() == y.data_ptr(), error(delattr, x, "data")]
    w = torch.ones(3, requires_grad=True)
    before = w.exp()
    w.data = torch.zeros(3)
    (before * w).sum().backward()
    return [*found, w.grad]


@alike
def test_what_a_program_gets_as_gradient_it_may_write_to(torch):
    """Each element has memory of its own, also where a gradient was spread over a dimension."""
    x, seen = torch.arange(12.0).reshape(3, 4).requires_grad_(), []
    for result in (
        x.mean(-1).sum(),
        x.mean(),
        x.var(0).sum(),
        (x * 1).sum(),
        x.logsumexp(0).mean(),
        x.norm(dim=1).mean(),
    ):
        (gradient,) = torch.autograd.grad(result, x)
        gradient[:, 0] = 7
        gradient[1] *= 2
        seen.append(gradient)
    return seen


@alike
def test_a_gradient_of_another_shape_is_refused(torch):
    """A leaf that got another shape keeps the gradient that it had: the sum of both would have a third shape."""
    found = []
    for change in ("x.data = torch.ones(2, 1)", "x.set_(torch.ones(2, 1))", "x.data = torch.ones(3, 2)"):
        x = torch.ones(1, 2, requires_grad=True)
        x.square().sum().backward()
        with torch.no_grad():
            exec(change, {"x": x, "torch": torch})
        found += [error(lambda: x.square().sum().backward()).partition(":")[0], x.grad]
    y = torch.ones(2, 3, requires_grad=True)
    z = y.chunk(2, 0)[0]
    z.retain_grad()
    y.detach().zero_()
    with torch.no_grad():
        view = y[0]
        y.zero_()
    view.retain_grad()  # nothing to retain: it has no history
    return found, z.retains_grad, view.retains_grad


@alike
def test_a_batch_of_gradients_of_another_shape_is_refused(torch):
    x = torch.ones(2, requires_grad=True)
    y = x * 2
    found = []
    for shape in ((3, 2), (2,), (2, 3), (3, 2, 1), (2, 2)):
        grads = (torch.ones(shape),)
        call = lambda given: torch.autograd.grad(y, x, given, is_grads_batched=True, retain_graph=True)
        found.append(error(call, grads)[:70])
    return found


@alike
def test_fields_of_a_tensor_cannot_be_deleted(torch):
    x = torch.ones(2, requires_grad=True)
    found = []
    for name in ("data", "requires_grad", "shape", "dtype", "is_leaf"):
        found.append(error(delattr, x, name) != "nothing")
    for name in ("data", "requires_grad"):
        found.append(error(delattr, x, name).partition(":")[0])
    return found, x.requires_grad


@alike
def test_the_size_of_blocks_may_be_one_number(torch):
    x = torch.arange(16.0).reshape(4, 4)
    return [x.to_sparse_bsr(2).values(), x.to_sparse_bsc(2).values(), error(x.to_sparse_bsr, 3).partition(":")[0]]
