"""Inference mode: what is made there; views and writes, there and after, of such tensors and others; as in torch."""

from __future__ import annotations

import pytest

import tensorgrad as tg
from tests.support.alike import alike, error
from tests.support.compare import outcome

torch = pytest.importorskip("torch", reason="PyTorch is the oracle of these tests and is not installed")


def value_or_message(call):
    """Returns what a call returns, or the type and message of the exception that it raises."""
    found = outcome(call)
    return (type(found).__name__, str(found)[:400]) if isinstance(found, Exception) else found


def shown(y):
    return value_or_message(lambda: (y.is_inference(), y.requires_grad, y._is_view(), y.is_leaf, tuple(y.shape)))


# What is done to a tensor x of shape (1, 2, 3), in inference mode and outside.
OPS = {
    "op": lambda l, x: x * 2,
    "view": lambda l, x: x.view(-1),
    "view of a view": lambda l, x: x.view(-1)[0],
    "split": lambda l, x: x.split(1, 1)[0],
    "expand": lambda l, x: x.expand_as(x),
    "itself": lambda l, x: x.contiguous(),
    "detach": lambda l, x: x.detach(),
    "clone": lambda l, x: x.clone(),
    "write": lambda l, x: x.add_(1),
    "write to a view": lambda l, x: (x.view(-1).add_(1), x)[1],
    "copy": lambda l, x: x.copy_(l.zeros(3)),
    "transpose": lambda l, x: x.transpose_(0, 1),
    "resize": lambda l, x: x.resize_(1, 2),
    "resize as": lambda l, x: x.resize_as_(l.ones(1, 2)),
    "requires_grad_": lambda l, x: x.detach().requires_grad_(),
    "enable_grad": lambda l, x: l.enable_grad()(lambda: x * 2)(),
    "mode off": lambda l, x: l.inference_mode(False)(lambda: x.detach().view(-1) * 2)(),
    "with a leaf": lambda l, x: x + l.ones(1, 2, 3, requires_grad=True),
}


@pytest.mark.parametrize("grad", (True, False))
@pytest.mark.parametrize("name", OPS)
def test_inside(name, grad):
    def story(l):
        told = []
        for made_inside in (True, False):
            leaf = l.ones(1, 2, 3, requires_grad=grad)
            normal = leaf * 1
            with l.inference_mode():
                x = l.ones(1, 2, 3, requires_grad=grad) if made_inside else normal
                y = value_or_message(lambda x=x: OPS[name](l, x))
                told += [shown(y) if isinstance(y, l.Tensor) else y, shown(x)]
                if isinstance(y, l.Tensor) and name != "with a leaf":
                    told.append(value_or_message(lambda y=y: shown(y.mul_(2))[:3]))
        return told

    assert story(tg) == story(torch)


@pytest.mark.parametrize("grad", (True, False))
@pytest.mark.parametrize("name", OPS)
def test_normal_tensors_and_their_views_afterwards(name, grad):
    def story(l):
        told = []
        for view in ("x", "x.view(-1)", "x.split(1, 1)[0]", "x[0].view(-1)"):
            leaf = l.ones(1, 2, 3, requires_grad=grad)
            x = leaf * 1
            with l.inference_mode():
                y = eval(view)
            if view == "x" or name not in ("transpose", "resize", "resize as", "copy", "with a leaf"):
                z = value_or_message(lambda y=y: OPS[name](l, y))
                told += [view, shown(z) if isinstance(z, l.Tensor) else z, shown(y)]
                if isinstance(z, l.Tensor) and value_or_message(lambda z=z: z.requires_grad) is True:
                    told.append(value_or_message(lambda z=z, leaf=leaf: (z.sum().backward(), leaf.grad)[1]))
                    told[-1] = told[-1].tolist() if isinstance(told[-1], l.Tensor) else told[-1]
            x.add_(1)
            told.append(shown(y))
        return told

    assert story(tg) == story(torch)


@pytest.mark.parametrize("name", sorted(OPS.keys() - {"with a leaf", "resize", "resize as"}))
def test_inference_tensors_and_their_views_afterwards(name):
    def story(l):
        told = []
        for view in ((), (1, 2, 3)):
            with l.inference_mode():
                y = l.ones(1, 2, 3)
                y = y.view(view) if view else y
            z = value_or_message(lambda y=y: OPS[name](l, y))
            told += [shown(z) if isinstance(z, l.Tensor) else z, shown(y)]
        return told

    assert story(tg) == story(torch)


def test_a_view_that_another_mode_made_names_the_mode():
    def story(l):
        told = []
        for mode in (l.no_grad, l.inference_mode):
            for after in ("v.add_(1)", "v[0].add_(1)", "(b.add_(1), v * 2)", "(b.add_(1), v.grad_fn)"):
                b = l.ones(2, 2, requires_grad=True) * 1
                with mode():
                    v = b.view(-1)
                told.append(value_or_message(lambda b=b, v=v, after=after: eval(after, {"b": b, "v": v})))
        return [t for t in told if isinstance(t, tuple) and isinstance(t[0], str)]

    ours, theirs = story(tg), story(torch)
    assert [(kind, text.replace("Output 0 of Select", "Output 0 of X")) for kind, text in ours] == [
        (kind, text.replace("Output 0 of Select", "Output 0 of X")) for kind, text in theirs
    ]


@alike
def test_a_function_saves_nothing_where_it_is_not_recorded(torch):
    contexts = []

    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, factor):
            ctx.save_for_backward(x, factor)
            contexts.append(ctx)
            return x * factor

        @staticmethod
        def backward(ctx, g):
            return g * ctx.saved_tensors[1], None

    x = torch.ones(2, requires_grad=True)
    with torch.inference_mode():
        factor = torch.tensor(2.0)
        within = Scaled.apply(x, factor)
    seen = [within, within.requires_grad, within.is_inference(), Scaled.apply(x.detach(), factor)]
    with torch.no_grad():
        seen.append(Scaled.apply(x, factor))
    return seen, [ctx.saved_tensors for ctx in contexts], error(lambda: Scaled.apply(x, factor))
