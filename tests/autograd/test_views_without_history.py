"""Views that require grad as their base does, but have no history: gradients end at them, and none is kept."""

import copy
import io

import pytest

import tensorgrad
from tests.support.alike import alike


def made(torch, how, view):
    """A tensor, and a view of it that has no history."""
    if how == "before the base required grad":
        base = torch.arange(1.0, 7.0).view(2, 3).clone()
        v = view(base)
        base.requires_grad_()
        return base, v
    base = torch.arange(1.0, 7.0).view(2, 3).clone().requires_grad_()
    whole = base * 1 if "computed" in how else base
    with torch.no_grad() if "no_grad" in how else torch.inference_mode():
        return base, view(whole)


MADE = ("no_grad", "no_grad, computed", "inference_mode", "inference_mode, computed", "before the base required grad")
VIEWS = {"t": lambda x: x.t(), "select": lambda x: x[0], "chunk": lambda x: x.chunk(2, 1)[-1],
         "strides": lambda x: x.as_strided((2,), (1,)), "of a view": lambda x: x.view(-1)[1:]}  # fmt: skip


def answer(call):
    try:
        return call()
    except RuntimeError as error:
        return str(error)[:60]


def told(torch, how, view):
    base, v = made(torch, how, view)
    found = [v.requires_grad, v.is_leaf, v.grad_fn is None]
    y = (v * v).sum()
    found.append([f[0] is None for f in y.grad_fn.next_functions[0][0].next_functions])
    found.append(torch.autograd.grad(y, [v, base], allow_unused=True, retain_graph=True))
    found.append(torch.autograd.grad(y, v, materialize_grads=True, retain_graph=True))
    found.append(answer(lambda: torch.autograd.grad(y, v, retain_graph=True)))
    found.append(answer(lambda: torch.autograd.grad(v.sum(), v, create_graph=True)))
    y.backward(inputs=[v], retain_graph=True)
    y.backward()
    found.append(answer(lambda: v.backward(torch.ones_like(v))))
    found += [v.grad, base.grad]
    v.requires_grad_()  # now it is a leaf of its own
    (v * 3).sum().backward()
    return [*found, v.grad, base.grad]


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("how", MADE)
def test_gradients_end_at_views_without_history(how, view):
    @alike
    def test_it(torch):
        return told(torch, how, VIEWS[view])

    test_it()


@alike
def test_what_grad_returns_can_be_written(torch):
    """It is not a view of what the pass computed under no_grad."""
    found = []
    for f in ("x.reshape(-1) * 2", "x[None].squeeze(0) * 2", "torch.zeros(3, 2).reshape(2, 3).mul_(x)", "x.t() * 2"):
        x = torch.ones(2, 3, requires_grad=True)
        g = torch.autograd.grad(eval(f, {"x": x, "torch": torch}).square().sum(), x)[0]
        found += [g.lerp_(x.detach(), 0.5), g.grad_fn is None]
    x, scalar = torch.tensor(2.0, requires_grad=True), torch.tensor(3.0)
    scalar.reshape(-1).mul_(x)
    g = torch.autograd.grad(scalar.square(), x)[0]
    return [*found, g.lerp_(x, 0.5)]


@alike
def test_a_retained_gradient_is_a_copy(torch):
    """Writing to it does not change what `autograd.grad` returned, nor the other way around."""
    found = []
    for create_graph in (False, True):
        x = torch.ones(3, requires_grad=True)
        y = x * 2
        y.retain_grad()
        g = torch.autograd.grad(y.square().sum(), y, create_graph=create_graph)[0]
        with torch.no_grad():
            y.grad.mul_(5)
        found += [g, y.grad, g.data_ptr() == y.grad.data_ptr()]
    return found


@alike
def test_changes_of_shape_keep_what_is_retained(torch):
    found = []
    for change in ("squeeze_()", "unsqueeze_(0)", "t_()", "transpose_(0, 1)"):
        for view in (False, True):
            z = torch.ones(3, 1, requires_grad=True) * 2
            z = z.view(1, 3) if view else z
            z.retain_grad()
            eval(f"z.{change}")
            found.append(z.retains_grad)
            z.sum().backward()
            found.append(z.grad.flatten())
    return found


REPLACED = {
    "set_": "x.set_(torch.ones(4))", "data": "x.data = torch.ones(())", "data of itself": "x.data = x.data[0, :1]",
    "resize_": "x.resize_(3, 2)", "t_": "x.t_()",
}  # fmt: skip


@pytest.mark.parametrize("how", REPLACED)
def test_views_of_a_tensor_that_got_another_shape_or_memory(how):
    """They can be asked for everything, and be written; nor does a file show that the shape was changed."""

    @alike
    def test_it(torch):
        x = torch.arange(1.0, 7.0).view(2, 3).clone()
        views = [x[1], x.t(), x[:, 1:], x.transpose(0, -1)[1], x.view(-1)]
        exec(REPLACED[how], {"x": x, "torch": torch})
        for v in views:
            with torch.no_grad():
                v.mul_(2)
        return [(v, v.requires_grad, v.is_leaf, v.grad_fn is None) for v in views]

    test_it()


def test_that_a_shape_was_changed_is_in_no_file():
    x, p = tensorgrad.ones(2, 3).t_(), tensorgrad.nn.Parameter(tensorgrad.ones(3))
    p.data = tensorgrad.ones(2, 2)
    assert not x.__reduce_ex__(2)[1][-1] and not copy.deepcopy(x).__dict__
    file = io.BytesIO()
    tensorgrad.save([x, p], file)
    assert b"reshaped" not in file.getvalue() and b"with_state" not in file.getvalue()


@alike
def test_views_of_what_was_detached(torch):
    """They keep a history, which leads nowhere."""
    found = []
    for computed in (False, True):
        for way in ("detach_()", "requires_grad_(False)"):
            for write in ("base.fill_(3)", "view.abs_()", "view[0].mul_(2)", "base[0].mul_(2)"):
                leaf = torch.arange(-3.0, 3.0).view(2, 3).clone().requires_grad_()
                base = leaf * 1 if computed else leaf
                view, other = base.t(), base[0]
                if computed and way != "detach_()":
                    continue
                eval(f"base.{way}")
                found.append((way, write, computed, answer(lambda: eval(write, {"base": base, "view": view}) is None)))
                found += [(x.requires_grad, x.is_leaf) for x in (base, view, other)]
                found.append(answer(lambda: (view.sum().backward(), leaf.grad)[1]))
    return found


@alike
def test_flags_of_views_made_under_no_grad(torch):
    found, on, off = [], "requires_grad_()", "requires_grad_(False)"
    for changes in ((), (off,), (on, off), (on,)):
        for written in (False, True):
            base = torch.ones(2, 3, requires_grad=True) * 1
            with torch.no_grad():
                view = base[0]
            if written:
                base.detach().zero_()
            for change in changes:
                eval(f"view.{change}")
            found.append((changes, written, view.requires_grad, written or view.is_leaf))
    return found


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("how", MADE)
def test_what_was_computed_before_such_a_view_became_a_leaf(how, view):
    """It has no gradient from it: not even if the view asks for one later."""

    @alike
    def test_it(torch):
        found = []
        for f in (lambda v: v * 2, lambda v: v.unsqueeze(0), lambda v: torch.cat([v, v]), lambda v: v.exp()):
            base, v = made(torch, how, VIEWS[view])
            y, hooked = f(v), []
            v.register_hook(lambda g, hooked=hooked: hooked.append(g.clone()))
            v.requires_grad_()
            z = f(v)
            y.sum().backward()
            found += [v.grad, base.grad]
            z.sum().backward()
            found += [v.grad, base.grad, list(hooked)]
        return found

    test_it()


@pytest.mark.parametrize("how", MADE)
def test_what_is_saved_for_such_views(how):
    """What the gradient of one of several inputs would need may be written to; an output, or the only input, not."""

    @alike
    def test_it(torch):
        found = []
        for f in (lambda v, w: v * v, lambda v, w: v * w, lambda v, w: torch.atan2(v, w), lambda v, w: v.exp(),
                  lambda v, w: v.sin(), lambda v, w: v.softmax(0), lambda v, w: torch.where(v > 0, v, w)):  # fmt: skip
            for written in "vwy":
                base, v = made(torch, how, lambda x: x.reshape(-1))
                w = torch.ones_like(v).detach()
                y = f(v, w)
                {"v": base, "w": w, "y": y}[written].detach().zero_()
                refused = answer(lambda: y.sum().backward()) is not None  # PyTorch says now this, now that of the view
                found += [refused, v.grad, base.grad]
        return found

    test_it()


@pytest.mark.parametrize("how", MADE)
def test_nothing_is_saved_for_the_gradient_of_such_a_view(how):
    """Neither does an op on a list of tensors forget the others."""

    @alike
    def test_it(torch):
        base, v = made(torch, how, lambda x: x.reshape(-1))
        w = torch.ones_like(v).detach().requires_grad_()
        plain = torch.ones_like(v).detach()
        packed = []
        with torch.autograd.graph.saved_tensors_hooks(lambda x: packed.append(0) or x, lambda x: x):
            for f in (lambda a, b: a * b, torch.atan2, torch.hypot, torch.div, torch.maximum, torch.dot):
                for other in (plain, w):
                    packed.append([f(v, other).requires_grad, f(other, v).requires_grad])
        y = torch.cat([v, plain]), torch.stack([v, w])
        y[1].sum().backward()
        return packed, [x.requires_grad for x in y], w.grad, base.grad

    test_it()
