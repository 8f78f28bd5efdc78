"""What custom functions return: written inputs, inputs passed on, views, what has no derivative; as in torch."""

from __future__ import annotations

import warnings

import pytest

import tensorgrad as tg
from tests.support.compare import outcome

torch = pytest.importorskip("torch", reason="PyTorch is the oracle of these tests and is not installed")


def function(l, forward, backward=lambda ctx, *g: g[0]):
    return type("Fn", (l.autograd.Function,), {"forward": staticmethod(forward), "backward": staticmethod(backward)})


def doubled(ctx, x):
    x.mul_(2)
    ctx.mark_dirty(x)
    return x


def doubled_twice_returned(ctx, x):
    return doubled(ctx, x), x


def doubled_and_more(ctx, x):
    return doubled(ctx, x), x + 1


def written_not_returned(ctx, x):
    return doubled(ctx, x).clone()


def a_new_one_marked(ctx, x):
    y = x.clone()
    ctx.mark_dirty(y)
    return y


def written_without_derivative(ctx, x):
    ctx.mark_non_differentiable(x)
    return doubled(ctx, x)


def passed_on_without_derivative(ctx, x):
    ctx.mark_non_differentiable(x)
    return x


def integers(ctx, x):
    return x * 2, x.argsort(), x > 0


def some_marked(ctx, x):
    found = x * 2, x + 1, x.argsort()
    ctx.mark_non_differentiable(*found[1:])
    return found


def none_for_missing(ctx, x):
    ctx.set_materialize_grads(False)
    return x * 2, x + 1


FORWARDS = {
    f.__name__: f
    for f in (
        doubled, doubled_twice_returned, doubled_and_more, written_not_returned, a_new_one_marked,
        written_without_derivative, passed_on_without_derivative, integers, some_marked, none_for_missing,
    )
} | {
    "passed_on": lambda ctx, x: x,
    "a_view": lambda ctx, x: x.view_as(x),
    "two_views": lambda ctx, x: (x[:1], x[1:]),
    "a_view_of_its_own": lambda ctx, x: x.clone()[:2],
    "a_marked_number": lambda ctx, x: (ctx.mark_dirty(3), x)[1],
    "no_derivative_of_a_number": lambda ctx, x: (ctx.mark_non_differentiable(3), x)[1],
    "no_tensors": lambda ctx, x: (x * 1, "text", None, [x]),
}  # fmt: skip

INPUTS = {
    "leaf": lambda l: l.ones(3, requires_grad=True),
    "computed": lambda l: l.ones(3, requires_grad=True) * 1,
    "no grad": lambda l: l.ones(3),
    "view": lambda l: (l.ones(3, 3, requires_grad=True) * 1)[0],
    "view without grad": lambda l: l.ones(3, 3)[0],
    "view of a leaf": lambda l: l.ones(3, 3, requires_grad=True)[0],
}

WRITES = {
    "read": lambda l, y: y.sum(),
    "write": lambda l, y: y.add_(1),
    "write what requires grad": lambda l, y: y.add_(l.ones(y.shape, requires_grad=True)),
    "write to a view": lambda l, y: y[:1].add_(1),
}


def value_or_error(call):
    """Returns what a call returns, or the type and the beginning of the message of the exception that it raises."""
    found = outcome(call)
    if not isinstance(found, Exception):
        return found
    return type(found).__name__, str(found)[:150].partition("is of type")[0].partition("but got")[0]


def result_properties(l, y, x):
    if not isinstance(y, l.Tensor):
        return type(y).__name__
    node = value_or_error(lambda: type(y.grad_fn).__name__)
    if str(node) in ("AsStridedBackward0", "SelectBackward0"):  # two ways to one view
        node = "a view"
    return (y is x, y.requires_grad, y.is_leaf, y._is_view(), y._version, node, y.tolist())


@pytest.mark.parametrize("grad", (True, False))
@pytest.mark.parametrize("given", INPUTS)
@pytest.mark.parametrize("name", FORWARDS)
def test_results_take_the_places_that_torch_gives_them(name, given, grad):
    def story(l):
        told, seen = [], []

        def backward(ctx, *grads):
            seen.append([g if g is None else (str(g.dtype).partition(".")[2], g.tolist()) for g in grads])
            return grads[0]

        for write in WRITES.values():
            x = INPUTS[given](l)
            with warnings.catch_warnings(record=True) as caught, l.set_grad_enabled(grad):
                warnings.simplefilter("always")
                results = value_or_error(lambda x=x: function(l, FORWARDS[name], backward).apply(x))
            told += [(w.category, str(w.message).partition(" (Trig")[0]) for w in caught]
            several = results if isinstance(results, tuple) else (results,)
            told += [result_properties(l, y, x) for y in several] + [x.requires_grad, x.tolist()]
            if isinstance(several[0], l.Tensor):
                told.append(value_or_error(lambda y=several[0], write=write: (write(l, y), None)[1]))
                told += [result_properties(l, y, x) for y in several]
                if value_or_error(lambda y=several[0]: y.requires_grad) is True:
                    told.append(value_or_error(lambda y=several[0]: y.sum().backward()))
        return told, seen

    assert story(tg) == story(torch)


def test_a_written_view_changes_the_history_of_its_base():
    def story(l):
        a = l.ones(3, 3, requires_grad=True)
        b = a * 1
        row = b[1]
        y = function(l, doubled, lambda ctx, g: g * 2).apply(row)
        (b * b).sum().backward()
        return y is row, type(b.grad_fn).__name__, b._version, a.grad.tolist()

    assert story(tg) == story(torch)


def test_names_of_functions_and_their_nodes():
    def story(l):
        fn = function(l, lambda ctx, x: x * 1)
        y = fn.apply(l.ones(2, requires_grad=True))
        other = (l.ones(2, requires_grad=True) * 1).grad_fn
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            made = value_or_error(lambda: fn()(l.ones(2)))
        return (
            type(y.grad_fn) is fn._backward_cls, fn._backward_cls.__name__, isinstance(other, fn._backward_cls),
            repr(y.grad_fn).partition(" at ")[0], y.grad_fn.name(), made, [w.category for w in caught],
            issubclass(l.autograd.function.InplaceFunction, l.autograd.Function),
        )  # fmt: skip

    assert story(tg) == story(torch)
