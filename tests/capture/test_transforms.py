"""Transforms of functions within compiled ones: the bits are those of the program, by a plan or without one."""

import pytest

import tensorgrad as torch
from tensorgrad import nn
from tensorgrad.capture.region import Region
from tensorgrad.utils._pytree import tree_leaves
from tests.capture.compare import bits

F = nn.functional
grad, vmap, jvp, vjp = torch.func.grad, torch.func.vmap, torch.func.jvp, torch.func.vjp


def model(*layers):
    """A model as a function of its parameters and an input."""
    torch.manual_seed(0)
    module = nn.Sequential(*layers)
    parameters = {name: p.detach() for name, p in module.named_parameters()}
    return parameters, lambda p, x: torch.func.functional_call(module, p, (x,))


PLAIN, plain = model(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 5))
NORMS, norms = model(nn.Linear(8, 16), nn.LayerNorm(16), nn.GELU(), nn.RMSNorm(16), nn.Linear(16, 5))
IMAGES, images = model(
    nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 5)
)
X, Y, Z = torch.randn(12, 8), torch.randint(0, 5, (12,)), torch.randn(12, 1, 8, 8)
Q = torch.randn(3, 6, 4, 8)


def loss(function):
    return lambda p, x, y: F.cross_entropy(function(p, x[None]), y[None])


PROGRAMS = {
    "grad": (PLAIN, lambda p: grad(loss(plain))(p, X[0], Y[0])),
    "grad and value": (NORMS, lambda p: torch.func.grad_and_value(loss(norms))(p, X[0], Y[0])),
    "vjp": (NORMS, lambda p: vjp(lambda x: norms(p, x), X)[1](torch.ones(12, 5))),
    "jvp": (PLAIN, lambda p: jvp(lambda x: plain(p, x), (X,), (X.cos(),))),
    "jvp of norms": (NORMS, lambda p: jvp(lambda x: norms(p, x), (X,), (X.cos(),))),
    "jvp of images": (IMAGES, lambda p: jvp(lambda x: images(p, x), (Z,), (Z.cos(),))),
    **{
        f"jvp of {name}": (PLAIN, lambda p, f=f: jvp(lambda x: f(p["0.weight"] * x), (X[0],), (X[1],)))
        for name, f in {
            "gelu": F.gelu, "silu": F.silu, "softmax": lambda x: x.softmax(-1), "sigmoid": torch.sigmoid,
            "exp": torch.exp, "log_softmax": lambda x: x.log_softmax(-1), "a sum": lambda x: x.sum(0),
            "a maximum": lambda x: x.amax(0), "a product": lambda x: x @ x.T,
        }.items()
    },
    "vmap": (PLAIN, lambda p: vmap(lambda x: plain(p, x))(X)),
    "vmap of norms": (NORMS, lambda p: vmap(lambda x: norms(p, x))(X)),
    "vmap of images": (IMAGES, lambda p: vmap(lambda x: images(p, x))(Z[:, None])),
    "vmap of losses": (PLAIN, lambda p: vmap(lambda x, y: loss(plain)(p, x, y))(X, Y)),
    "gradients per sample": (PLAIN, lambda p: vmap(grad(loss(plain)), (None, 0, 0))(p, X, Y)),
    "gradients per sample of norms": (NORMS, lambda p: vmap(grad(loss(norms)), (None, 0, 0))(p, X, Y)),
    "gradients per sample of images": (IMAGES, lambda p: vmap(grad(loss(images)), (None, 0, 0))(p, Z, Y)),
    "gradients per sample by hand": (
        PLAIN, lambda p: vmap(grad(lambda w, x: ((w * x).tanh() ** 2).sum()), (None, 0))(p["0.weight"], X)
    ),
    "attention per sample": (
        PLAIN, lambda p: vmap(grad(lambda q: F.scaled_dot_product_attention(q, q, q).sum()))(Q * p["0.weight"][0])
    ),
    "jacrev": (PLAIN, lambda p: torch.func.jacrev(lambda x: plain(p, x))(X[0])),
    "jacfwd": (NORMS, lambda p: torch.func.jacfwd(lambda x: norms(p, x))(X[0])),
    "hessian of norms": (NORMS, lambda p: torch.func.hessian(lambda x: norms(p, x).sum())(X[0])),
    "a product with the hessian": (
        NORMS, lambda p: jvp(grad(lambda x: norms(p, x).sum()), (X[0],), (X[1],)),
    ),
    "jvp per sample": (NORMS, lambda p: vmap(lambda x, t: jvp(lambda x: norms(p, x), (x,), (t,)))(X, X.cos())),
    "linearized": (NORMS, lambda p: torch.func.linearize(lambda x: norms(p, x), X)[1](X.cos())),
    "hessian": (PLAIN, lambda p: torch.func.hessian(lambda x: plain(p, x).sum())(X[0])),
    "vmap of vmap": (PLAIN, lambda p: vmap(vmap(lambda x: plain(p, x)))(X.view(3, 4, 8))),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_transforms_in_a_compiled_function_have_plans_with_the_bits_of_the_program(name):
    parameters, function = PROGRAMS[name]
    parameters = {key: value.clone() for key, value in parameters.items()}
    region = Region(lambda: function(parameters))
    for _ in range(7):
        region()
    assert region.plans == 1, region.explain()
    for change in (lambda p: None, lambda p: p.mul_(2), lambda p: setattr(p, "data", p * 0.5)):
        for p in parameters.values():
            change(p)
        expected, found = tree_leaves(function(parameters)), tree_leaves(region())
        assert [bits(t) for t in found] == [bits(t) for t in expected]
