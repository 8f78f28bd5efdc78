"""`torch.func` against PyTorch: derivatives, how they nest, mapping over a batch, modules as functions."""

import functools
import importlib
import re

import pytest

from tests.support.alike import alike, error

X = [0.3, -0.7, 1.2]


def shapeless(text):
    """A message without the nestings that it shows, which the libraries print differently."""
    return re.sub(r"(structure|the tangents|cotangents:).*", "", text, flags=re.DOTALL)


# --- gradients ---


@alike
def test_grad(torch):
    grad, grad_and_value = torch.func.grad, torch.func.grad_and_value
    x, y = torch.tensor(X), torch.tensor([2.0, 3.0, 5.0])

    def f(x, y, scale=1.0):
        return (x**2 * y).sum() * scale

    nested = {"a": x, "b": [y, (x, y)]}
    return [
        grad(f)(x, y),
        grad(f, argnums=1)(x, y, scale=2.0),
        grad(f, argnums=(1, 0))(x, y),
        grad(f, argnums=(-1,))(x, y),
        grad(lambda d: (d["a"] * d["b"][0]).sum() + d["b"][1][1].sum())(nested),
        grad_and_value(f)(x, y),
        grad_and_value(lambda x: (f(x, y), {"twice": 2 * x}), has_aux=True)(x),
        grad(lambda x: (f(x, y), (x, y)), has_aux=True)(x),
        grad(lambda x: y.sum())(x),
        grad(lambda x: x.argmax())(x),
        grad(torch.sin)(x[0]),
        grad(lambda z: (z * z.conj()).real.sum())(torch.tensor([1 + 2j, 3j])),
        grad(f).__name__,
    ]


@alike
def test_grad_of_grad(torch):
    grad = torch.func.grad
    x, y = torch.tensor(0.7), torch.tensor(1.3)

    def f(x, y):
        return x**3 * torch.sin(y)

    return [
        grad(grad(grad(lambda x: x.sin())))(x),
        grad(lambda x: grad(f, 1)(x, y))(x),
        grad(lambda y: grad(f)(x, y) * y)(y),
        grad(lambda x: x * grad(lambda y: x * y**2)(y))(x),
        grad(lambda x: grad(lambda x: x**2)(x * 2) + x)(x),
        grad(lambda x: grad(lambda y: (x + y) ** 3, has_aux=False)(x))(x),
        # the value is part of the outer function, the inner aux too
        grad(lambda x: torch.func.grad_and_value(lambda y: x * y**2)(y)[1])(x),
        grad(lambda x: grad(lambda y: (x * y, x**2), has_aux=True)(y)[1])(x),
        grad(lambda x: (x * 2).detach() * x)(x),
    ]


@alike
def test_grad_and_the_tensors_outside(torch):
    """What requires grad outside gets a history; nothing else does."""
    grad, x = torch.func.grad, torch.tensor(X)
    w = torch.tensor([2.0, 3.0, 5.0], requires_grad=True)
    seen = [grad(lambda x: (x**3).sum())(x), x.requires_grad]
    by_w = grad(lambda x: (x**2 * w).sum())(x)
    by_w.sum().backward()
    seen += [by_w, w.grad]
    tracked = torch.tensor(X, requires_grad=True)
    slope = grad(lambda x: (x**3).sum())(tracked)
    slope.sum().backward()
    seen += [slope, tracked.grad]
    seen += [grad(lambda x: (x**2).sum() + w.sum())(x), torch.func.grad_and_value(lambda x: (x * w).sum())(x)]
    with torch.no_grad():
        seen += [grad(lambda x: (x**2 * w).sum())(x), grad(lambda x: (x**2).sum())(tracked)]
        seen.append(torch.func.vjp(lambda x: x * w, x)[0])
    seen.append(grad(lambda x: (x.detach() * x).sum())(x))

    def partly(x):
        with torch.no_grad():
            y = x**2
        return (x * y).sum()

    return [*seen, grad(partly)(x), w.grad is not None]


@alike
def test_grad_says_what_is_wrong(torch):
    grad, x = torch.func.grad, torch.tensor(X)

    def f(x, y=None):
        return x.sum()

    return [
        error(grad(f), torch.tensor([1])),
        error(grad(f), 3.0),
        error(grad(f, argnums=2), x, x),
        error(grad(f, argnums=-3), x, x),
        error(grad(f, argnums=(0, -2)), x, x),
        error(grad(f, argnums=(0, 1.0)), x, x),
        error(grad(f, argnums=()), x, x),
        error(grad(f, argnums="a"), x, x),
        error(grad(lambda x: x), x),
        error(grad(lambda x: (x.sum(), x)), x),
        error(grad(f, has_aux=True), x),
        error(grad(lambda x: (x.sum(), 3), has_aux=True), x),
    ]


# --- products with vectors, Jacobians ---


@alike
def test_vjp(torch):
    vjp, x = torch.func.vjp, torch.tensor(X)
    value, multiply = vjp(lambda x: x.sin(), x)
    seen = [value, multiply(torch.ones(3)), multiply(x)]
    value, multiply, aux = vjp(lambda x, y: ({"a": x * y, "b": x.sum()}, x + y), x, 2 * x, has_aux=True)
    seen += [value, multiply({"a": x, "b": torch.tensor(2.0)}), aux]
    u = torch.tensor(X, requires_grad=True)
    _, multiply = vjp(lambda x: x**2, x)
    product = multiply(u)[0]
    product.sum().backward()
    seen += [product, u.grad]
    _, multiply = vjp(torch.func.grad(lambda x: (x**3).sum()), x)
    seen.append(multiply(torch.ones(3)))
    return [
        *seen,
        torch.func.grad(lambda x: vjp(torch.sin, x)[1](x)[0].sum())(x),
        error(vjp, lambda x: 1, x),
        error(vjp, lambda x: (), x),
        error(vjp, lambda x: (x, None), x),
        error(vjp, lambda x: x, 3),
        error(vjp, lambda x: x.long(), x),
        error(vjp, lambda x: x, x, has_aux=True),
        shapeless(error(vjp(lambda x: x, x)[1], (x, x))),
        error(vjp(lambda x: x, x)[1], torch.ones(2)),
    ]


@alike
def test_jvp_and_linearize(torch):
    jvp, x = torch.func.jvp, torch.tensor(X)
    v = torch.tensor([1.0, -2.0, 0.5])

    def f(x, y):
        return {"a": x * y.sum(), "b": (x**2 * y).sum()}

    value, multiply = torch.func.linearize(torch.sin, x)
    several, of_both = torch.func.linearize(lambda x, y: (x * y, x.sum()), x, v)
    seen = [value, multiply(v), multiply(x), several, of_both(v, x)]
    t = torch.tensor(X, requires_grad=True)
    out = jvp(lambda x: x**2, (x,), (t,))[1]
    out.sum().backward()
    seen += [out.tolist(), t.grad]
    return [
        *seen,
        jvp(torch.sin, (x,), (v,)),
        jvp(f, (x, v), (v, x)),
        jvp(lambda x: (x * x, {"same": x}), (x,), (v,), has_aux=True),
        jvp(lambda x: x.new_ones(2), (x,), (v,)),
        jvp(lambda x: x.argmax(), (x,), (v,)),
        jvp(lambda z: z * z, (torch.tensor([1 + 2j]),), (torch.tensor([1j]),)),
        torch.func.grad(lambda x: jvp(torch.sin, (x,), (v,))[1].sum())(x),
        jvp(torch.func.grad(lambda x: (x**3).sum()), (x,), (v,)),
        jvp(lambda x: jvp(lambda y: y**3, (x,), (v,))[1], (x,), (v,)),
        error(jvp, torch.sin, x, x),
        shapeless(error(jvp, torch.sin, (x,), (x, x))),
        error(jvp, torch.sin, (x,), (torch.ones(2),)),
        error(jvp, torch.sin, (1,), (1,)),
        error(jvp, torch.sin, (x,), (1,)),
        error(jvp, torch.sin, (), ()),
        error(jvp, lambda x: 2, (x,), (x,)),
        error(jvp, lambda x: x.new_ones(2), (x,), (x,), strict=True),
        error(jvp, torch.sin, (x,), (x,), has_aux=True),
        error(multiply, torch.ones(2)),
        error(multiply, x.double()),
        shapeless(error(multiply, x, x)),
    ]


@alike
def test_auxiliary_output_consists_of_tensors(torch):
    func, x = torch.func, torch.tensor(X)
    return [
        error(transform, aux)
        for aux in (1, 1.0, "text", None, [x, 1])
        for transform in (
            lambda aux: func.jvp(lambda x: (x, aux), (x,), (x,), has_aux=True),
            lambda aux: func.jacfwd(lambda x: (x, aux), has_aux=True)(x),
            lambda aux: func.jacrev(lambda x: (x, aux), has_aux=True)(x),
            lambda aux: func.grad(lambda x: (x.sum(), aux), has_aux=True)(x),
        )
    ]


@pytest.mark.parametrize("name", ["jacrev", "jacfwd"])
def test_jacobians(name):
    @alike
    def scenario(torch):
        jacobian, x = getattr(torch.func, name), torch.tensor(X)
        y, w = torch.arange(6.0).reshape(2, 3), torch.tensor(2.0, requires_grad=True)
        by_w = jacobian(lambda x: x**2 * w)(x)
        by_w.sum().backward()

        def f(x, y):
            return {"a": y @ x, "b": (x.sin().sum(), y[:, :1] * x)}

        return [
            jacobian(torch.sin)(x),
            jacobian(f)(x, y),
            jacobian(f, argnums=1)(x, y),
            jacobian(f, argnums=(1, 0))(x, y),
            jacobian(lambda d: d["x"] * d["y"].sum())({"x": x, "y": y}),
            jacobian(lambda x: (x.sum(), {"aux": x}), has_aux=True)(x),
            jacobian(lambda x: x[:0])(x),
            jacobian(lambda x: y.sum())(x),
            [by_w, w.grad],
            jacobian(jacobian(lambda x: (x**3).sum()))(x),
            jacobian(torch.func.jacrev(lambda x: x.prod() * x))(x),
            jacobian(torch.func.jacfwd(lambda x: x.prod() * x))(x),
            torch.func.grad(lambda x: jacobian(torch.sin)(x).sum())(x),
            error(jacobian(lambda x: 1), x).split(": ", 1)[-1].split(" to return ")[-1],
            error(jacobian(lambda x: x * 2), x.to(torch.complex64)),
            error(jacobian(lambda x: x.to(torch.complex64)), x),
            error(jacobian(f, argnums=3), x, y),
        ]

    scenario()


@alike
def test_hessian_and_the_rest(torch):
    hessian, x = torch.func.hessian, torch.tensor(X)

    def f(x, y):
        return (x**2 * y).sum() + (x * y.sin()).prod()

    return [
        hessian(lambda x: (x**3).sum())(x),
        hessian(f, argnums=(0, 1))(x, 2 * x),
        hessian(lambda d: f(d["x"], d["y"]))({"x": x, "y": 2 * x}),
        torch.func.vmap(hessian(lambda x: (x**3).sum()))(torch.stack([x, 2 * x])),
        error(torch.func.jacrev, torch.sin, chunk_size=0),
        torch.func.jacrev(torch.sin, chunk_size=2)(x),
        error(torch.func.jacfwd(lambda x: x + torch.rand(1)), x),
        torch.func.functionalize(lambda x: x.add_(1))(x.clone()),
        error(torch.func.functionalize, torch.sin, remove="all").split(" Valid ")[0],
        torch.func.debug_unwrap(x) is x,
    ]


# --- hooks and checkpoints inside ---


@alike
def test_hooks_inside_of_transforms(torch):
    """Hooks on tensors and modules, hooks on what is saved, and `no_grad` act as they do outside."""
    func, x, t = torch.func, torch.tensor(X), torch.tensor([1.0, 2.0, -1.0])

    def doubled(x):
        y = x * x
        y.register_hook(lambda g: g * 2)
        return y.sum()

    def packed(x):
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t * 2, lambda t: t / 2):
            return (x**3).sum()

    def half_recorded(x):
        with torch.no_grad():
            factor = x * 2
        return (x * factor).sum()

    layer = torch.nn.Linear(3, 3)
    layer.register_forward_pre_hook(lambda module, inputs: (inputs[0] + 1,))
    layer.register_forward_hook(lambda module, inputs, output: output * 3)
    params = {"weight": torch.tensor([[1.0, 0.5, 2.0], [0.0, 1.0, -1.0], [0.3, 0.2, 0.1]]), "bias": t}

    def network(params, x):
        return func.functional_call(layer, params, (x,)).sin().sum()

    return [
        func.grad(doubled)(x),
        error(func.jvp, doubled, (x,), (t,)),
        func.jvp(func.grad(lambda x: doubled(x) ** 2), (x,), (t,)),
        func.vmap(func.grad(doubled))(torch.stack([x, t])),
        func.jvp(packed, (x,), (t,)),
        func.grad(half_recorded)(x),
        func.jvp(half_recorded, (x,), (t,)),
        func.grad(network)(params, x),
        func.jvp(network, (params, x), (params, t)),
        func.vmap(func.grad(network), in_dims=(None, 0))(params, torch.stack([x, t])),
        func.hessian(lambda x: network(params, x))(x),
    ]


def test_a_checkpoint_inside_of_transforms():
    """More than PyTorch allows, which has hooks on what is saved in forward mode only."""
    torch = importlib.import_module("tensorgrad")
    func, x, t = torch.func, torch.tensor(X), torch.tensor([1.0, 2.0, -1.0])
    w = torch.tensor([[1.0, 0.5, 2.0], [0.0, 1.0, -1.0], [0.3, 0.2, 0.1]])
    runs = []

    def plain(x):
        runs.append(1)
        return torch.tanh(w @ x) * x.exp()

    def kept(x):
        return torch.utils.checkpoint.checkpoint(plain, x, use_reentrant=False)

    def derivatives(f):
        return [
            func.grad(lambda x: f(x).sum())(x),
            *func.jvp(f, (x,), (t,)),
            func.jacrev(f)(x),
            func.jacfwd(f)(x),
            func.linearize(f, x)[1](t),
            func.jvp(func.grad(lambda x: f(x).sum()), (x,), (t,))[1],
            func.vmap(func.grad(lambda x: f(x).sum()))(torch.stack([x, t])),
        ]

    for found, expected in zip(derivatives(kept), derivatives(plain), strict=True):
        assert torch.allclose(found, expected)
    runs.clear()
    func.grad(lambda x: kept(x).sum())(x)
    assert len(runs) == 2  # once forward, once again for backward


@alike
def test_functionalize(torch):
    """It changes nothing but what PyTorch's compiler sees; it nests with the other transforms."""
    func, x, t = torch.func, torch.tensor(X), torch.tensor([1.0, 2.0, -1.0])

    def writes(x):
        y = x.clone()
        y.view(3, 1)[:, 0].mul_(x)
        return y.mul_(x)

    seen = []
    for remove in ("mutations", "mutations_and_views"):
        f = func.functionalize(writes, remove=remove)
        total = func.functionalize(lambda x: writes(x).sum(), remove=remove)
        given = x.clone()
        seen += [f(x), func.grad(total)(x), func.vmap(f)(torch.stack([x, t])), func.jacrev(f)(x)]
        seen += [func.functionalize(lambda x: x.add_(1), remove=remove)(given), given]
        seen.append(func.jvp(func.functionalize(lambda x: x.clone().mul_(x), remove=remove), (x,), (t,)))
    return seen


# --- vmap ---


@alike
def test_vmap(torch):
    vmap, x, y = torch.func.vmap, torch.arange(6.0).reshape(2, 3), torch.arange(12.0).reshape(3, 4) - 5
    named = functools.partial(torch.dot, torch.ones(3))
    return [
        vmap(torch.dot)(x, x),
        vmap(torch.dot, in_dims=(0, None))(x, x[1]),
        vmap(torch.dot, in_dims=1)(x, x),
        vmap(torch.mul, in_dims=(1, 0))(x, y[:, :2]),
        vmap(torch.mul, in_dims=(1, 0), out_dims=1)(x, y[:, :2]),
        vmap(torch.mul, in_dims=(-1, 0), out_dims=-1)(x, y[:, :2]),
        vmap(lambda d, s: d["a"] * d["b"] * s, in_dims=({"a": 0, "b": None}, None))({"a": x, "b": x[0]}, 3),
        vmap(lambda x: {"a": x, "b": (x.sum(), x * 2)}, out_dims={"a": 1, "b": (0, 1)})(x),
        vmap(lambda x: (x, 7), out_dims=(0, None))(x),
        vmap(lambda x: x * 2, out_dims=(1,))(x),
        vmap(named)(x),
        vmap(vmap(torch.mul))(x, x),
        vmap(vmap(torch.mul, in_dims=(None, 0)), in_dims=(0, None))(x, x),
        vmap(lambda x: x * 2)(torch.ones(0, 3)),
        vmap(lambda x: torch.ones(2))(x),
        vmap(torch.sin, chunk_size=1)(x),
        torch.vmap(torch.sin)(x),
        vmap(torch.sin).__name__,
    ]


@alike
def test_vmap_of_derivatives(torch):
    vmap, grad, x = torch.func.vmap, torch.func.grad, torch.arange(6.0).reshape(2, 3)
    w = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    y = vmap(lambda x: (x * w).sum() ** 2)(x)
    y.sum().backward()
    tracked = x.clone().requires_grad_()
    vmap(lambda x: x.prod())(tracked).sum().backward()
    return [
        [y, w.grad, tracked.grad],
        vmap(grad(lambda x: (x**3).sum()))(x),
        vmap(grad(lambda w, x: (w * x).sum() ** 2), in_dims=(None, 0))(w.detach(), x),
        grad(lambda x: vmap(torch.dot)(x, x).sum())(x),
        vmap(torch.func.jacrev(lambda x: x**2))(x),
        torch.func.jacrev(vmap(lambda x: x.sum()))(x),
        vmap(lambda x, v: torch.func.jvp(torch.sin, (x,), (v,))[1])(x, x),
        vmap(lambda x, v: torch.func.vjp(torch.sin, x)[1](v)[0])(x, x),
        torch.func.jvp(vmap(torch.sin), (x,), (x,)),
    ]


@alike
def test_vmap_and_random_numbers(torch):
    vmap, x = torch.func.vmap, torch.zeros(3, 2)

    def noisy(x):
        return x + torch.rand(2)

    torch.manual_seed(1)
    same = vmap(noisy, randomness="same")(x)
    after = torch.rand(1)
    torch.manual_seed(1)
    different = vmap(noisy, randomness="different")(x)
    dropped = vmap(lambda x: torch.dropout(x + 1, 0.5, True), randomness="same")(x)
    torch.manual_seed(1)
    failed = [error(vmap(noisy), x), error(vmap(lambda x: torch.nn.functional.dropout(x, 0.5)), x)]
    return [same, after, different, bool((dropped == dropped[0]).all()), failed, torch.rand(1)]


@alike
def test_vmap_says_what_is_wrong(torch):
    vmap, x, y = torch.func.vmap, torch.ones(2, 3), torch.ones(3, 3)
    calls = [
        (torch.dot, {}, (x, y)),
        (torch.dot, {"in_dims": [0, 0]}, (x, x)),
        (torch.dot, {"in_dims": (0,)}, (x, x)),
        (torch.dot, {"in_dims": (0, (0, 0))}, (x, x)),
        (torch.dot, {"in_dims": (0, "a")}, (x, x)),
        (torch.dot, {"in_dims": (0, 2)}, (x, x)),
        (torch.dot, {"in_dims": (None, None)}, (x, x)),
        (torch.dot, {}, (x, 1)),
        (torch.dot, {}, ()),
        (lambda x: 1, {}, (x,)),
        (lambda x: (x, None), {}, (x,)),
        (lambda x: torch.stack([x, 2 * x]), {"out_dims": None}, (torch.arange(3.0),)),
        (lambda x: x, {"out_dims": "a"}, (x,)),
        (lambda x: x, {"out_dims": (0, 1)}, (x,)),
        (lambda x: (x, x), {"out_dims": (0, (1, 1))}, (x,)),
        (lambda x: x, {"out_dims": 2}, (x,)),
        (functools.partial(torch.dot, x[0]), {"in_dims": (0, 1)}, (x,)),
    ]
    return [
        *(shapeless(error(vmap(function, **options), *args)) for function, options, args in calls),
        error(vmap, torch.dot, randomness="all"),
        error(vmap, torch.dot, chunk_size=0),
    ]


# --- modules ---


@alike
def test_an_ensemble(torch):
    func = torch.func
    models = [torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1)) for _ in range(3)]
    models = [torch.nn.Sequential(*model, torch.nn.BatchNorm1d(1)).eval() for model in models]
    parameters, buffers = func.stack_module_state(models)
    x, y = torch.randn(5, 3), torch.randn(5, 1)

    def run(parameters, buffers, x):
        return func.functional_call(models[0], (parameters, buffers), (x,))

    def loss(parameters, buffers, x, y):
        return ((run(parameters, buffers, x) - y) ** 2).mean()

    together = func.vmap(run, in_dims=(0, 0, None))(parameters, buffers, x)
    apart = torch.stack([model(x) for model in models])
    one = {name: p.detach() for name, p in models[0].named_parameters()}
    state = dict(models[0].named_buffers())
    by_sample = func.vmap(func.grad(loss), in_dims=(None, None, 0, 0))(one, state, x[:, None], y[:, None])
    return [
        {name: list(p.shape) for name, p in parameters.items()}, sorted(buffers), parameters["0.weight"].is_leaf,
        together, (together - apart).abs().max().item() < 1e-6, func.vmap(func.grad(loss), (0, 0, None, None))(
            parameters, buffers, x, y), by_sample, [p.grad for p in models[0].parameters()],
    ]  # fmt: skip


@alike
def test_module_state_says_what_is_wrong(torch):
    stack, nn = torch.func.stack_module_state, torch.nn
    frozen = nn.Linear(2, 2)
    frozen.weight.requires_grad_(False)
    net = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Sequential(nn.BatchNorm2d(2), nn.BatchNorm1d(2)))
    return [
        error(stack, []),
        error(stack, [nn.Linear(2, 2), nn.ReLU()]),
        error(stack, [nn.Linear(2, 2), nn.Linear(2, 2).eval()]),
        error(stack, [nn.Linear(2, 2), frozen]),
        stack(nn.ModuleList([frozen, frozen]))[0]["weight"].requires_grad,
        repr(torch.func.replace_all_batch_norm_modules_(net)),
        list(net.state_dict()),
    ]


def test_rearrange():
    """Ours checks nothing that PyTorch's does not; PyTorch's error types are its own."""

    @alike
    def scenario(torch):
        rearrange, x = torch.func.rearrange, torch.arange(120.0).reshape(2, 3, 4, 5)
        patterns = [
            ("a b c d -> d c b a", {}),
            ("a b c d -> a (b c) d", {}),
            ("a b (c1 c2) d -> a c1 b (c2 d)", {"c1": 2}),
            ("a b (c1 c2) d -> a c1 b (c2 d)", {"c2": 2}),
            ("a ... -> ... a", {}),
            ("a ... d -> (a d) ...", {}),
            ("a ... -> a (...)", {}),
            ("... -> (...)", {}),
            ("a b c d -> a 1 b (c d) 1", {}),
        ]
        seen = [rearrange(x, pattern, **sizes) for pattern, sizes in patterns]
        seen.append(rearrange([x[0, 0], x[1, 1]], "n a b -> a n b"))
        seen.append(rearrange(x.reshape(2, 60, 1), "a b 1 -> b a"))
        grad = torch.func.grad(lambda x: (rearrange(x, "a b c d -> d (c b a)") ** 2).sum())(x)
        return [*seen, grad]

    scenario()
    tensorgrad = importlib.import_module("tensorgrad")
    x = tensorgrad.ones(2, 3, 4)
    for pattern, sizes, message in (
        ("a b c", {}, "needs one '->'"),
        ("a b c -> a b", {}, "different names"),
        ("a b b -> a b b", {}, "appears twice"),
        ("a b -> b a", {}, "has 2 dimensions"),
        ("a b c d ... -> a b c d ...", {}, "more than 3"),
        ("a b (c d) -> a b c d", {}, "cannot be inferred"),
        ("a b (c d) -> a b c d", {"c": 3}, "does not match"),
        ("a b c -> a b c", {"d": 3}, "are not in"),
        ("a (b c -> a b c", {}, "parentheses"),
        ("a b) c -> a b c", {}, "parentheses"),
        ("a (b ...) -> a b ...", {}, "left side"),
        ("a b? c -> a b c", {}, "not a name"),
    ):
        with pytest.raises(ValueError, match=re.escape(message)):
            tensorgrad.func.rearrange(x, pattern, **sizes)
