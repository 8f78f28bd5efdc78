"""Gradients flow through classes with a `__torch_dispatch__`: autograd records the ops, above what a class computes."""

import importlib

import pytest

import tensorgrad
from tensorgrad.rows.switches import DISPATCH
from tests.support.alike import alike, error


@pytest.fixture(autouse=True, scope="module")
def as_before():
    before = list(DISPATCH)
    yield
    DISPATCH[:] = before


def kept(torch):
    """A class of tensors that keep another one inside, and the operators that it has seen."""
    tree_map, seen = importlib.import_module(f"{torch.__name__}.utils._pytree").tree_map, []

    class Kept(torch.Tensor):
        __torch_function__ = torch._C._disabled_torch_function_impl

        @staticmethod
        def __new__(cls, inside, requires_grad=False):
            made = {"dtype": inside.dtype, "strides": inside.stride(), "requires_grad": requires_grad}
            return torch.Tensor._make_wrapper_subclass(cls, inside.shape, **made)

        def __init__(self, inside, requires_grad=False):
            self.inside = inside

        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            seen.append(str(func))
            args, kwargs = tree_map(cls.plain, (tuple(args), dict(kwargs or {})))
            return tree_map(lambda t: cls(t) if isinstance(t, torch.Tensor) else t, func(*args, **kwargs))

        @classmethod
        def plain(cls, value):
            return value.inside if isinstance(value, cls) else value

    return Kept, seen


def told(t):
    """Whether a tensor is of the class, and its values."""
    return t if t is None else (hasattr(t, "inside"), (t.inside if hasattr(t, "inside") else t).detach())


def gradients(torch, losses):
    found = []
    for loss in losses:
        Kept, _ = kept(torch)
        w = Kept(torch.linspace(-1, 1, 12).reshape(4, 3), requires_grad=True)
        x = torch.linspace(0, 1, 6).reshape(2, 3).requires_grad_()
        value = loss(torch, torch.nn.functional, w, x)
        value.backward()
        found.append((told(value), told(w.grad), told(x.grad), w.grad.requires_grad))
    return found


@alike
def test_ops_of_several_results_and_of_other_forms(torch):
    """Every part of a split has a gradient; rows that are not operators run as what they are made of."""
    return gradients(torch, (
        lambda t, f, w, x: sum((n * p.exp()).sum() for n, p in enumerate(w.split(1), 1)),
        lambda t, f, w, x: sum((n * p.exp()).sum() for n, p in enumerate(w.split([1, 2], 1), 1)),
        lambda t, f, w, x: sum((n * p.exp()).sum() for n, p in enumerate(w.chunk(2), 1)),
        lambda t, f, w, x: sum((n * p.exp()).sum() for n, p in enumerate(w.unbind(1), 1)),
        lambda t, f, w, x: w.split(1)[2].exp().sum(), lambda t, f, w, x: f.selu(w).sum(),
        lambda t, f, w, x: f.linear(x[0], w, x.sum() * w[:, 0]).exp().sum(),
        lambda t, f, w, x: w.scatter_reduce(0, t.tensor([[0, 1, 0]]), x[:1], "amax").exp().sum(),
        lambda t, f, w, x: w.scatter_reduce(0, t.tensor([[0, 1, 0]]), x[:1], "sum", include_self=False).exp().sum(),
    ))  # fmt: skip


@alike
def test_rows_whose_parameters_are_not_those_of_the_operator_of_their_name(torch):
    return gradients(torch, (
        lambda t, f, w, x: w.kthvalue(2, 1)[0].exp().sum(), lambda t, f, w, x: w.kthvalue(1, 0, True)[0].exp().sum(),
        lambda t, f, w, x: w.mode(0)[0].exp().sum(), lambda t, f, w, x: w.topk(2, 0)[0].exp().sum(),
        lambda t, f, w, x: sum(t.var_mean(w, 1)[0].exp()), lambda t, f, w, x: w.var(0, correction=0).sum(),
        lambda t, f, w, x: sum(p.exp().sum() for p in t.std_mean(w, 0, correction=0)),
        lambda t, f, w, x: (w * t.isin(w.detach(), x.detach())).sum(),
        lambda t, f, w, x: (w * t.searchsorted(x.detach()[0], w.detach(), right=True)).sum(),
    ))  # fmt: skip


@alike
def test_pointwise_ops_and_reductions(torch):
    return gradients(torch, (
        lambda t, f, w, x: (w * x[0]).sum(), lambda t, f, w, x: (w * w + w).sum(),
        lambda t, f, w, x: w.exp().tanh().mean(), lambda t, f, w, x: f.relu(w).sum(),
        lambda t, f, w, x: f.silu(w).sum(), lambda t, f, w, x: f.gelu(w).sum(),
        lambda t, f, w, x: t.where(w > 0, w, w * 2).sum(),
        lambda t, f, w, x: (1 / (w + 3)).sum(), lambda t, f, w, x: (2 - w).abs().sum(), lambda t, f, w, x: w.std(),
        lambda t, f, w, x: w.amax(1).sum(), lambda t, f, w, x: w.norm(), lambda t, f, w, x: (w.cumsum(0) ** 2).sum(),
        lambda t, f, w, x: w.logsumexp(1).sum(), lambda t, f, w, x: w.clamp(-0.5, 0.5).sum(),
        lambda t, f, w, x: w.masked_fill(w > 0, 0.0).sum(), lambda t, f, w, x: (w.double() ** 2).sum(),
        lambda t, f, w, x: (w.sort(1)[0] ** 2).sum(), lambda t, f, w, x: f.dropout(w, 0.0).sum(),
    ))  # fmt: skip


@alike
def test_views_and_indices(torch):
    return gradients(torch, (
        lambda t, f, w, x: (w[0] * 2).sum() + w[:, 1].sum(), lambda t, f, w, x: (w[1::2, None] ** 2).sum(),
        lambda t, f, w, x: (w.reshape(3, 4) ** 2).mean(), lambda t, f, w, x: (w.t().contiguous() ** 2).sum(),
        lambda t, f, w, x: (w.split(2)[0] * 3).sum(), lambda t, f, w, x: (t.cat([w, w * 2]) ** 2).sum(),
        lambda t, f, w, x: t.stack([w, w]).sum(0).pow(2).sum(), lambda t, f, w, x: (w[None] + x[0]).sum(),
        lambda t, f, w, x: w.gather(1, t.zeros(4, 1, dtype=t.int64)).sum(), lambda t, f, w, x: w[w > 0].sum(),
        lambda t, f, w, x: w.index_select(0, t.tensor([0, 0])).sum(), lambda t, f, w, x: w.diagonal().sum(),
        lambda t, f, w, x: (w.flatten() * w.view(-1)).sum(), lambda t, f, w, x: (f.pad(w, (1, 0)) ** 2).sum(),
        lambda t, f, w, x: f.embedding(t.tensor([1, 2, 1]), w).pow(2).sum(),
    ))  # fmt: skip


@alike
def test_products_layers_and_losses(torch):
    return gradients(torch, (
        lambda t, f, w, x: (x @ w.t()).sum(), lambda t, f, w, x: f.linear(x, w, t.ones(4)).square().sum(),
        lambda t, f, w, x: t.bmm(w[None], w.t()[None]).sum(), lambda t, f, w, x: t.outer(w[0], w[1]).sum(),
        lambda t, f, w, x: t.einsum("ij,kj->ik", x, w).sum(), lambda t, f, w, x: (f.softmax(w, 1) ** 2).sum(),
        lambda t, f, w, x: w.log_softmax(1)[0, 0], lambda t, f, w, x: (f.layer_norm(w, (3,)) ** 3).sum(),
        lambda t, f, w, x: (f.rms_norm(w, (3,)) ** 3).sum(), lambda t, f, w, x: f.mse_loss(w, t.ones(4, 3)),
        lambda t, f, w, x: f.cross_entropy(w, t.tensor([0, 1, -100, 0])),
        lambda t, f, w, x: f.binary_cross_entropy_with_logits(w, t.ones(4, 3)),
        lambda t, f, w, x: f.scaled_dot_product_attention(w[None], w[None], w[None]).sum(),
        lambda t, f, w, x: f.conv1d(x[None], w[:, :2, None]).sum(),
    ))  # fmt: skip


@alike
def test_a_module_with_such_a_parameter_trains(torch):
    Kept, seen = kept(torch)
    module = torch.nn.Linear(3, 4)
    with torch.no_grad():
        module.bias.zero_()
    module.weight = torch.nn.Parameter(Kept(torch.linspace(-1, 1, 12).reshape(4, 3)))
    x, losses = torch.linspace(0, 1, 6).reshape(2, 3), []
    for _ in range(3):
        loss = module(x).square().mean()
        module.weight.grad = module.bias.grad = None
        seen.clear()
        loss.backward()
        products = [name for name in seen if "mm" in name]
        with torch.no_grad():
            for p in module.parameters():
                p.sub_(p.grad, alpha=0.1) if p is module.bias else p.inside.sub_(p.grad.inside, alpha=0.1)
        losses.append(told(loss)[1])
    return losses, module.weight.inside, module.bias.detach(), products, type(module.weight.grad).__name__


@alike
def test_gradients_accumulate_and_are_asked_for(torch):
    Kept, _ = kept(torch)
    w = Kept(torch.tensor([1.0, 2.0, 3.0]), requires_grad=True)
    for _ in range(2):
        (w * w).sum().backward()
    (first,) = torch.autograd.grad((w**3).sum(), w, create_graph=True)
    (second,) = torch.autograd.grad((first * first).sum(), w)
    through = torch.ones(3, requires_grad=True)
    (Kept(torch.tensor([2.0, 3.0, 4.0])) * through.exp()).sum().backward()  # the class does not require grad itself
    return told(w.grad), told(first), told(second), told(through.grad)


@alike
def test_leaves_constants_and_results(torch):
    Kept, _ = kept(torch)
    w = Kept(torch.ones(2), requires_grad=True)
    y = w * 2
    with torch.no_grad():
        z = w * 2
    return w.is_leaf, y.requires_grad, y.is_leaf, z.requires_grad, (w > 0).requires_grad, w.detach().requires_grad


def test_what_cannot_be_recorded_says_so():
    Kept, _ = kept(tensorgrad)
    w = Kept(tensorgrad.ones(2), requires_grad=True)
    for call in (lambda: w.mul_(2), lambda: tensorgrad.add(w, 1, out=tensorgrad.ones(2))):
        assert "where gradients are recorded" in error(call)
    with pytest.raises(NotImplementedError, match="not an operator of PyTorch's registry"):
        w.prod().backward()
