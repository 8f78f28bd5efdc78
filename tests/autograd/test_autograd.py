"""Backward and grad: what they compute, what they leave behind, and what they say when they are misused."""

import warnings

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

import tensorgrad as torch_
from tests.support.alike import alike, as_torch_says, error, graph

# --- values --------------------------------------------------------------------------------------------------------


def test_the_known_gradient():
    x = torch_.tensor([0.5, 0.75], requires_grad=True)
    y = torch_.log(x[0] * x[1]) * torch_.sin(x[1])
    y.backward()
    assert x.grad.tolist() == pytest.approx([1.3633, 0.1912], abs=5e-5)


@alike
def test_first_second_and_third_derivatives(torch):
    x = torch.tensor([0.5, 0.75], requires_grad=True)
    y = torch.log(x[0] * x[1]) * torch.sin(x[1])
    (first,) = torch.autograd.grad(y, x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x, create_graph=True)
    (third,) = torch.autograd.grad((second * second).sum(), x)
    return y, first, second, third


@alike
def test_backward_accumulates_over_paths_and_calls(torch):
    x = torch.tensor([1.0, -2.0, 3.0], requires_grad=True)
    y = x * 2
    z = (y * y + y).sum() + x[0] * 5
    z.backward(retain_graph=True)
    once = x.grad.clone()
    z.backward()
    return once, x.grad


@alike
def test_gradient_argument(torch):
    x = torch.ones(2, 3, requires_grad=True)
    y = x * torch.arange(3.0)
    y.backward(torch.tensor([[1.0, 2.0, 3.0], [0.0, -1.0, 0.5]]))
    first = x.grad.clone()
    x.grad = None
    (x * 2).backward(gradient=torch.ones(2, 3, dtype=torch.float64))
    double = x.grad.clone()
    leaf = torch.ones(2, requires_grad=True)
    leaf.backward(torch.tensor([1.0, 2.0], dtype=torch.float64))
    return first, double, leaf.grad


@alike
def test_several_roots(torch):
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    a, b = x * x, x.sum()
    torch.autograd.backward([a, b], [torch.tensor([1.0, 10.0]), None])
    first = x.grad.clone()
    x.grad = None
    y = x * 3
    torch.autograd.backward((y, y), (torch.ones(2), torch.ones(2)))
    return first, x.grad


@alike
def test_broadcasting_and_promotion_are_undone(torch):
    a = torch.ones(3, 1, requires_grad=True)
    b = torch.ones(4, dtype=torch.float64, requires_grad=True)
    c = torch.tensor(2.0, requires_grad=True)
    (a * b * c).sum().backward()
    return a.grad, b.grad, c.grad


@alike
def test_inputs_argument(torch):
    x, w = (torch.tensor([2.0, 3.0], requires_grad=True) for _ in range(2))
    y = x * w
    z = (y * y).sum()
    z.backward(inputs=[x], retain_graph=True)
    first = (x.grad.clone(), w.grad)
    z.backward(inputs=w, retain_graph=True)
    kept = x.grad
    z.backward(inputs=(x, y))
    return first, x.grad, w.grad, y.grad, kept is x.grad


@alike
def test_create_graph_in_backward(torch):
    x = torch.tensor([2.0, 3.0], requires_grad=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        (x**3).sum().backward(create_graph=True)
    has = x.grad.requires_grad
    first = x.grad
    x.grad = None
    (first * first).sum().backward()
    return has, first.detach(), x.grad


@alike
def test_grad_of_unused_inputs(torch):
    x, unused = torch.ones(2, requires_grad=True), torch.ones(3, requires_grad=True)
    y = (x * 2).sum()
    grad = torch.autograd.grad
    return (
        error(grad, y, [x, unused], retain_graph=True).partition(" (input")[0],
        grad(y, [x, unused], allow_unused=True, retain_graph=True),
        grad(y, [x, unused], materialize_grads=True, retain_graph=True),
        error(grad, y, [x, unused], materialize_grads=True, allow_unused=False, retain_graph=True),
        grad(y, [x, x]),
        grad(x, x, torch.ones(2)),
        x.grad,
    )


@alike
def test_grads_batched(torch):
    x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    y = x * x
    (rows,) = torch.autograd.grad(y, x, torch.eye(3), is_grads_batched=True, retain_graph=True)
    (loss,) = torch.autograd.grad(y.sum(), x, torch.tensor([1.0, 2.0]), is_grads_batched=True)
    return rows, loss


@alike
def test_grad_with_respect_to_an_intermediate(torch):
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    y = x * 3
    z = y.exp() + x
    dy, dx = torch.autograd.grad(z.sum(), [y, x], retain_graph=True)
    (itself,) = torch.autograd.grad(z, z, torch.tensor([5.0, 6.0]))
    return dy, dx, itself, x.grad


@alike
def test_leaves_that_are_not_asked_for_stay_alone(torch):
    x, w = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    seen = []
    w.register_hook(lambda g: seen.append("w"))
    y = w * 2
    y.register_hook(lambda g: seen.append("y"))
    x.register_hook(lambda g: seen.append("x"))
    torch.autograd.grad((x * y).sum(), x)
    return seen, w.grad


@alike
def test_complex_gradients(torch):
    z = torch.tensor([1.0 + 2.0j, -0.5 + 0.3j], requires_grad=True)
    w = torch.tensor([0.3 - 1.0j, 2.0 + 0.1j], requires_grad=True)
    results = []
    for function in (
        lambda: (z * w).abs().sum(),
        lambda: (z * w.conj()).real.sum(),
        lambda: (z.exp() / w).imag.sum(),
        lambda: (z * z.conj()).real.sum() * 2 + (w**3).abs().sum(),
        lambda: torch.log(z.abs() + 1).sum() * w.imag.sum(),
    ):
        value = function()
        results.append((value.detach(), torch.autograd.grad(value, [z, w], allow_unused=True)))
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    return results, torch.autograd.grad((x * z.detach()).abs().sum(), x)  # a real input keeps a real gradient


@alike
def test_in_place_and_views(torch):
    x = torch.arange(6.0).reshape(2, 3).requires_grad_()
    y = x * 2
    y[0].mul_(3)
    y[1, 1] = 7
    v = y.view(-1)
    v[5:].mul_(torch.tensor([0.5]))
    y.add_(v.view(2, 3))
    (y * torch.arange(1.0, 7.0).reshape(2, 3)).sum().backward()
    return y, x.grad, v.grad_fn is not None


# --- .grad is nobody else's memory ---------------------------------------------------------------------------------

STEPS = {
    "add": lambda a, b: a + b,
    "mul": lambda a, b: a * b,
    "sub": lambda a, b: a - b,
    "reshape": lambda a, b: a.reshape(6).reshape(2, 3),
    "transpose": lambda a, b: a.t().t(),
    "exp": lambda a, b: (a * 0.1).exp(),
    "clone": lambda a, b: a.clone(),
    "index": lambda a, b: a[:, :] + b[0],
    "first": lambda a, b: a,
    "neg": lambda a, b: -a,
    "div": lambda a, b: a / (b.abs() + 1),
    "where": lambda a, b: torch_.where(a > 1, a, b),
    "maximum": lambda a, b: torch_.maximum(a, b),
    "relu": lambda a, b: a.relu(),
    "clamp": lambda a, b: a.clamp(0, 3),
    "tanh": lambda a, b: a.tanh(),
    "matmul": lambda a, b: a @ b.t() @ a,
    "cat": lambda a, b: torch_.cat([a, b])[1:3],
    "stack": lambda a, b: torch_.stack([a, b]).sum(0),
    "unsqueeze": lambda a, b: a.unsqueeze(0).expand(1, 2, 3).squeeze(0),
    "softmax": lambda a, b: a.softmax(1) * b,
    "view": lambda a, b: a.view(6).view(2, 3),
    "unbind": lambda a, b: torch_.stack([a.unbind(0)[1], b.unbind(0)[0]]),
    "to": lambda a, b: a.double().float(),
}


def _memory(tensors):
    return [t for t in tensors if t is not None and t.numel()]


@given(
    st.lists(st.tuples(st.sampled_from(sorted(STEPS)), st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=6)
)
def test_grads_share_memory_with_nothing(steps):
    leaves = [torch_.arange(6.0).reshape(2, 3).clone().requires_grad_() for _ in range(2)]
    values = list(leaves)
    for name, i, j in steps:
        values.append(STEPS[name](values[i % len(values)], values[j % len(values)]))
    gradient = torch_.ones(2, 3)
    out = values[-1]
    if not out.requires_grad:
        return
    out.backward(gradient, retain_graph=True)
    grads = [leaf.grad for leaf in leaves if leaf.grad is not None]
    everything = [*grads, *[v.detach() for v in values if not any(v is leaf for leaf in leaves)], gradient]
    everything += [leaf.detach() for leaf in leaves]
    for i, grad in enumerate(grads):
        for other in everything[i + 1 :]:
            assert not np.shares_memory(grad.numpy(), other.numpy())
    before = [g.clone() for g in grads]
    for leaf in leaves:
        leaf.grad = None
    out.backward(gradient)
    for grad in grads:
        grad.add_(1)  # what somebody does to the first gradients must not reach the second
    for leaf, expected in zip([x for x in leaves if x.grad is not None], before, strict=True):
        assert leaf.grad.tolist() == expected.tolist()
    assert gradient.tolist() == torch_.ones(2, 3).tolist()


LIE = {  # leaves that do not lie in rows, and the strides of their gradients
    "transposed": (lambda t: t.ones(5, 4).t(), (1, 4)),
    "channels_last": (lambda t: t.ones(2, 3, 4, 5).to(memory_format=t.channels_last), (60, 1, 15, 3)),
    "every other": (lambda t: t.ones(4, 10)[:, ::2], (5, 1)),
    "expanded": (lambda t: t.ones(5).expand(4, 5), (5, 1)),
}


@pytest.mark.parametrize("name", LIE)
def test_a_gradient_that_lies_right_is_not_copied(name, monkeypatch):
    """It becomes the leaf's; if two leaves receive it, one of them has a copy."""
    from tensorgrad.autograd import engine

    copies = []
    monkeypatch.setattr(engine, "share", lambda *given, share=engine.share: copies.append(given) or share(*given))
    make, strides = LIE[name]
    a, b, c = (make(torch_).requires_grad_() for _ in range(3))
    exponential = a.detach().exp()  # in the leaf's order, unless it repeats or skips elements
    a.exp().backward(torch_.ones_like(exponential))
    assert a.grad.stride() == exponential.stride() == strides and a.grad.tolist() == exponential.tolist()
    assert not copies
    (b + c).backward(exponential * 2)
    assert b.grad.stride() == c.grad.stride() == strides
    assert not np.shares_memory(b.grad.numpy(), c.grad.numpy())


def test_a_grad_can_be_written():
    for shape in ((), (1,), (1, 1), (2, 3)):
        x = torch_.ones(shape, requires_grad=True)
        x.sum().backward()
        x.grad.add_(1)
        x.grad.zero_()
        x.sum().backward()
        assert x.grad.tolist() == torch_.ones(shape).tolist()


# --- leaves --------------------------------------------------------------------------------------------------------


@alike
def test_leaf_rules(torch):
    a = torch.ones(2)
    b = torch.ones(2, requires_grad=True)
    c = b * 2
    d = c.detach()
    with torch.no_grad():
        e = b * 2
    view = a[0]
    return [(t.is_leaf, t.requires_grad, t.grad_fn is None, t.output_nr) for t in (a, b, c, d, e, view, b[0])]


@alike
def test_requires_grad_switch(torch):
    x = torch.ones(2)
    y = torch.ones(2, requires_grad=True) * 2
    x.requires_grad = True
    switched = x.requires_grad, x.requires_grad_(False).requires_grad, x.requires_grad_().requires_grad
    return (
        switched,
        error(y.requires_grad_, False),
        y.requires_grad_().requires_grad,
        error(setattr, y, "requires_grad", False),
    )


@alike
def test_leaves_that_changed_their_mind(torch):
    x, y, z = (torch.ones(2, requires_grad=True) for _ in range(3))
    out = (x * y * z).sum()
    x.requires_grad_(False)
    y.detach_()
    out.backward()
    base = torch.ones(2, requires_grad=True)
    with torch.no_grad():
        view = base[0]
    (base.sum() * view).backward()
    return x.grad, y.grad, z.grad, base.grad, view.grad, view.requires_grad, view.is_leaf


@alike
def test_switching_a_base_leaves_its_older_views_alone(torch):
    x = torch.zeros(3)
    v = x[0:2]
    x.requires_grad_()
    w = x[0:2]
    return v.requires_grad, v.is_leaf, w.requires_grad, w.is_leaf


@alike
def test_errors_of_requires_grad(torch):
    return (
        error(torch.tensor, [1], requires_grad=True),
        error(torch.ones, 2, dtype=torch.int64, requires_grad=True),
        error(torch.ones(2, dtype=torch.int64).requires_grad_),
        error(setattr, torch.tensor([True]), "requires_grad", True),
    )


@alike
def test_errors_of_backward(torch):
    x = torch.ones(2, requires_grad=True)
    y = x * 2
    complex_scalar = (torch.ones(1, requires_grad=True) * 1j).sum()
    used = (x * x).sum()
    used.backward()
    return (
        error(y.backward),
        error(torch.ones(1).backward),
        error(torch.ones(2).sum().backward),
        error(complex_scalar.backward),
        error(used.backward),
        error(y.backward, torch.ones(3)),
        error(y.backward, torch.ones(2) * 1j),
        error(torch.autograd.backward, [y, y], [torch.ones(2)]),
        error(torch.autograd.grad, y, x),
        error(torch.autograd.grad, y.sum(), torch.ones(2)),
        error(y.sum().backward, inputs=[]),
        error(y.backward, torch.ones(2), inputs=[torch.ones(2)]),
    )


@alike
def test_second_backward_without_saved_values_is_allowed(torch):
    x = torch.ones(2, requires_grad=True)
    y = (x + 1).sum()  # nothing is saved, so nothing is missed
    y.backward()
    y.backward()
    return x.grad


def said(function) -> str:
    return as_torch_says(error(function))


@alike
def test_error_of_a_modified_saved_tensor(torch):
    x = torch.ones(2, 3, requires_grad=True)
    results = []

    y = x * 2
    z = y * y
    y.add_(1)
    results.append(said(z.sum().backward))

    y = x.exp()
    y.mul_(2)
    y[0].add_(1)
    results.append(said(y.sum().backward))

    w = torch.ones(2, 3)
    z = x * w
    w.zero_()
    results.append(said(z.sum().backward))

    w = torch.ones(2, 3)
    z = x * w
    w.data.zero_()  # unnoticed, as .data promises
    z.sum().backward()
    results.append(x.grad)

    y = x * 2
    z = y * y
    y.detach().add_(1)  # noticed
    results.append(said(z.sum().backward))
    return results


@alike
def test_errors_of_writing_to_leaves(torch):
    x = torch.ones(2, 3, requires_grad=True)

    def item():
        x[0] = 1

    with torch.no_grad():
        quiet = x[0]
    return (
        error(x.add_, 1),
        error(x.zero_),
        error(item),
        error(x[0].mul_, 2),
        error(x.view(-1).add_, 1),
        error(quiet.mul_, 2),
        error(torch.ones(1).expand(3).add_, 1),
        error(torch.ones(2).add_, torch.ones(3)),
        error((x * 2)[0].detach_).partition(" If you are using Dist")[0],
        x._version,
    )


@alike
def test_writing_to_leaves_without_recording(torch):
    x = torch.ones(2, requires_grad=True)
    with torch.no_grad():
        x.add_(1)
        x[0] = 5
    x.data.mul_(2)
    return x, x.is_leaf, x._version


@alike
def test_versions(torch):
    x = torch.zeros(4)
    seen = [x._version]
    x.add_(1)
    seen.append(x._version)
    x[1:].mul_(2)
    seen.append(x._version)
    d = x.detach()
    d.zero_()
    seen += [x._version, d._version]
    data = x.data
    seen.append(data._version)
    data.add_(1)
    seen += [x._version, data._version]
    x.data = torch.ones(4)
    seen += [x._version]
    return seen, x, d


@alike
def test_data_and_detach_share_memory(torch):
    x = torch.zeros(3, requires_grad=True)
    x.data[0] = 1
    x.detach()[1] = 2
    y = x * 2
    same = y.detach_() is y
    return x, same, y.requires_grad, y.is_leaf, error(setattr, x, "data", torch.ones(3, dtype=torch.int64))


@alike
def test_assigning_grad(torch):
    x = torch.ones(2, requires_grad=True)
    x.grad = torch.tensor([3.0, 4.0])
    (x * x).sum().backward()
    found = x.grad.clone()
    del x.grad
    assert x.grad is None
    errors = [
        error(setattr, x, "grad", torch.ones(3)).partition(":")[0],
        error(setattr, x, "grad", torch.ones(2, dtype=torch.float64)).partition(":")[0],
        error(setattr, x, "grad", x),
        error(setattr, x, "grad", 1),
    ]
    return found, errors


@alike
def test_grad_of_a_computed_tensor_warns(torch):
    y = torch.ones(2, requires_grad=True) * 2
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert y.grad is None
    return [
        (w.category.__name__, "The .grad attribute of a Tensor that is not a leaf" in str(w.message)) for w in caught
    ]


# --- the graph as users see it -------------------------------------------------------------------------------------


@alike
def test_names_of_nodes(torch):
    x = torch.rand(2, 3).add(0.5).requires_grad_()
    w = torch.rand(3, 2).requires_grad_()
    results = {
        "add": x + 1, "sub": x - x, "mul": x * x, "div": x / x, "neg": -x, "pow": x**2, "matmul": x @ w, "exp": x.exp(),
        "log": x.log(), "sqrt": x.sqrt(), "sin": x.sin(), "tanh": x.tanh(), "sigmoid": x.sigmoid(), "relu": x.relu(),
        "sum": x.sum(), "sum dim": x.sum(1), "mean": x.mean(), "max": x.max(), "max dim": x.max(1).values,
        "view": x.view(6), "t": x.t(), "transpose": x.transpose(0, 1), "permute": x.permute(1, 0), "select": x[0],
        "slice": x[:, 1:], "unsqueeze": x.unsqueeze(0), "squeeze": x.squeeze(0), "expand": x[None].expand(4, 2, 3),
        "clone": x.clone(), "cat": torch.cat([x, x]), "stack": torch.stack([x, x]), "index": x[torch.tensor([0, 1])],
        "where": torch.where(x > 1, x, -x), "abs": x.abs(), "to": x.double(), "cumsum": x.cumsum(0),
        "softmax": x.softmax(1), "log_softmax": x.log_softmax(1), "clamp": x.clamp(0.1), "prod": x.prod(),
        "gather": x.gather(1, torch.zeros(2, 1, dtype=torch.int64)), "mm": x.mm(w), "bmm": x[None].bmm(w[None]),
        "masked_fill": x.masked_fill(x > 1, 0.0),
    }  # fmt: skip
    # (the last digit numbers PyTorch's overloads, which are one op here)
    return {name: tensor.grad_fn.name().rstrip("0123456789") for name, tensor in results.items()}


@alike
def test_next_functions(torch):
    x = torch.ones(2, requires_grad=True)
    c = torch.ones(2)
    y = x * 2 + c
    z = (y * x).sum()
    accumulate = y.grad_fn.next_functions[0][0].next_functions[0][0]
    return (
        graph(z),
        [nr for _, nr in z.grad_fn.next_functions],
        y.grad_fn.next_functions[1],
        accumulate.variable is x,
        type(accumulate).__name__,
        type(y.grad_fn).__name__ in ("AddBackward0", "Node"),
        isinstance(y.grad_fn, torch.autograd.graph.Node),
    )


@alike
def test_one_accumulator_per_leaf(torch):
    x = torch.ones(2, requires_grad=True)
    first = (x * 2).grad_fn.next_functions[0][0]
    second = (x * x).grad_fn.next_functions
    return first is second[0][0], second[0][0] is second[1][0]


@alike
def test_metadata(torch):
    y = torch.ones(2, requires_grad=True) * 2
    y.grad_fn.metadata["note"] = 3
    return y.grad_fn.metadata["note"], y.grad_fn.metadata


@alike
def test_dicts_of_inputs(torch):
    x, y = torch.tensor([1.0, 2.0], requires_grad=True), torch.tensor(3.0, requires_grad=True)
    gradients = torch.autograd.grad((x * y).sum(), {"x": x, "y": y})
    torch.autograd.backward((x * y).sum(), inputs={"x": x})
    return list(gradients), gradients["x"], gradients["y"], x.grad, y.grad


@alike
def test_arguments_of_former_days(torch):
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        first = torch.autograd.grad((x * 2).sum(), x, None, None, False, False)
        torch.autograd.backward(x * 3, grad_variables=torch.ones(2))
    both = error(lambda: torch.autograd.backward(x * 3, torch.ones(2), grad_variables=torch.ones(2)))
    return first[0], x.grad, [(w.category.__name__, str(w.message)) for w in caught], both
