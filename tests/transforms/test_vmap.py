"""`vmap` against PyTorch: what users see of batched tensors, how it composes, and what it refuses."""

import copy
import functools
import gc
import warnings
import weakref

import pytest

import tensorgrad
from tensorgrad.rows.switches import observe, unobserve
from tests.support.alike import alike, error


def batch(torch, *shape):
    count = 1
    for n in shape:
        count *= n
    return torch.sin(torch.arange(float(count))).reshape(shape)


def small_network(torch, *, norm=False):
    nn = torch.nn
    layers = [
        nn.Conv2d(1, 3, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(12, 4),
        nn.Tanh(),
        nn.Linear(4, 3),
    ]
    if norm:
        layers.insert(1, nn.GroupNorm(1, 3))
    net = nn.Sequential(*layers)
    with torch.no_grad():
        for i, p in enumerate(net.parameters()):
            p.copy_(torch.cos(torch.arange(float(p.numel())) + i).reshape(p.shape) / 3)
    return net


# --- what a batched tensor looks like ---


@alike
def test_a_batched_tensor_is_one_sample(torch):
    seen = []

    def look(x, named=True):
        seen.append([
            list(x.shape), x.dim(), x.size(), x.size(-1), len(x), x.numel(), x.stride(), x.is_contiguous(), x.dtype,
            x.requires_grad, x.is_leaf, x.element_size(), x.storage_offset(), str(x.device),
            isinstance(x, torch.Tensor),
            x[0].shape, x[:, 1:].stride(), x.T.shape, repr(x) if named else "", x.new_zeros(2).shape,
            torch.zeros_like(x).shape,
        ])  # fmt: skip
        return x.sum()

    torch.func.vmap(look)(batch(torch, 2, 3, 4))
    torch.func.vmap(functools.partial(look, named=False), in_dims=1)(batch(torch, 3, 2, 4))
    torch.func.vmap(torch.func.vmap(look))(batch(torch, 2, 2, 3, 4))
    return seen


@alike
def test_indexing(torch):
    vmap, x = torch.func.vmap, batch(torch, 4, 3, 5)
    i = torch.tensor([[0, 2], [1, 1], [2, 0], [0, 0]])
    mask = torch.tensor([True, False, True])

    def written(x, i):
        x = x.clone()
        x[0] = x[1] * 2
        x[:, 1:3].mul_(3)
        x[i] = 7
        x[i, 0] += x[0, 1]
        x[mask] = 5
        x[..., -1] = x.sum()
        x.index_put_((i,), x[:2] + 1, accumulate=True)
        return x

    return [
        vmap(lambda x, i: x[i])(x, i),
        vmap(lambda x, i: x[:, i])(x, i),
        vmap(lambda x, i: x[i, i])(x, i),
        vmap(lambda x, i: x[i, :, None])(x, i),
        vmap(lambda x, i: x[i[0]])(x, i),
        vmap(lambda x, i: x[None, ..., i])(x, i),
        vmap(lambda i: x[i])(i),
        vmap(lambda i: x[:, i, 1:])(i),
        vmap(lambda i: x[i, :, i])(i),
        vmap(lambda x: x[mask])(x),
        vmap(
            lambda x: x[
                torch.tensor([2, 0]),
                :,
            ]
        )(x),
        vmap(lambda x: x[torch.tensor([2, 0]), torch.tensor([1, 1])])(x),
        vmap(lambda x, i: x.unsqueeze(1)[i, :, i], in_dims=(1, 0))(batch(torch, 3, 4, 5), i),
        vmap(written)(x, i),
        vmap(written, in_dims=(2, 0))(batch(torch, 3, 5, 4), i),
        vmap(lambda x, i: torch.gather(x, 0, i.unsqueeze(1)))(x, i),
        vmap(lambda x, i: x.scatter_add(0, i.unsqueeze(0).expand(3, 2), x))(x, i),
        vmap(torch.func.vmap(lambda x, i: x[i]), in_dims=(0, None))(x.unsqueeze(0).expand(2, 4, 3, 5)[0], i[:3, :1]),
    ]


@alike
def test_writes_in_place(torch):
    vmap, x = torch.func.vmap, batch(torch, 3, 4)

    def steps(x, y):
        z = x.clone()
        z.add_(1).mul_(y).clamp_(min=-1)
        view = z.view(2, 2)
        view[0] = view[1]
        view.t().add_(z[:2].clone())
        z.copy_(z.flip(0))
        z.zero_() if False else None
        z[1:].exp_()
        z.t_() if z.dim() == 2 else None
        return z, view

    outside = torch.zeros(3, 4)
    returned = vmap(lambda t: t.add_(1))(outside)
    shared = torch.zeros(4)
    vmap(lambda x: shared.add_(1) + x)(x)
    return [
        vmap(steps)(x, x), vmap(steps, in_dims=(1, None))(batch(torch, 4, 3), x[0]), outside, returned, shared,
        vmap(lambda x: x.new_zeros(4).add_(x))(x), vmap(lambda x: torch.zeros_like(x).copy_(x))(x),
    ]  # fmt: skip


# --- arguments and results ---


@alike
def test_writes_in_a_batch_of_no_samples(torch):
    """Whose values have no strides of their own."""
    seen = []
    for function in (
        lambda z: z.mul(2).add_(z), lambda z: z.clone().copy_(z + 1), lambda z: z.sin().masked_fill_(z > 0, 1.0),
        lambda z: (z * 2).fill_(3), lambda z: z.exp().transpose(0, 1).mul_(2), lambda z: (z + 1)[0].zero_(),
    ):  # fmt: skip
        for x in (torch.ones(3, 2, 2)[3:], torch.ones(0, 2, 2), torch.ones(0, 2, 2).requires_grad_()):
            seen.append(torch.func.vmap(function)(x).shape)
    return seen


@alike
def test_nested_dimensions(torch):
    vmap, a, b = torch.func.vmap, batch(torch, 2, 3), batch(torch, 3, 2)

    def f(tree, other, *, scale=1.0):
        return {"sum": tree["a"] + tree["b"][0] * scale, "pair": (other, tree["b"][1])}

    return [
        vmap(f, in_dims=({"a": 0, "b": (1, None)}, None))({"a": a, "b": (b, a)}, a, scale=2.0)["sum"],
        vmap(f, in_dims=({"a": 0, "b": [1, 0]}, None), out_dims={"sum": 1, "pair": (0, -1)})({"a": a, "b": [b, a]}, a),
        vmap(lambda x: (x, [x * 2, x.sum()]), out_dims=(-1, [0, 0]))(a),
        vmap(lambda *xs: sum(xs))(a, a, a),
        vmap(vmap(torch.outer, (0, None), 2), (None, 1), 1)(a, b),
    ]


@alike
def test_chunks(torch):
    vmap, x, y, sizes = torch.func.vmap, batch(torch, 7, 3), batch(torch, 3, 7), []

    def f(x, y):
        sizes.append(1)
        return x * y, y.sum()

    whole = vmap(f, in_dims=(0, 1), out_dims=(1, 0))(x, y)
    results = [vmap(f, in_dims=(0, 1), out_dims=(1, 0), chunk_size=n)(x, y) for n in (1, 3, 7, 10)]
    jacobians = [torch.func.jacrev(lambda x: x.sin() * x.sum(), chunk_size=n)(x[0]) for n in (None, 1, 2, 3)]
    return [whole, results, jacobians, len(sizes)]


# --- with derivatives ---


@alike
def test_gradients_per_sample(torch):
    func, net = torch.func, small_network(torch)
    params = {k: v.detach() for k, v in net.named_parameters()}
    x, y = batch(torch, 5, 1, 6, 6), torch.tensor([0, 2, 1, 1, 0])

    def loss(params, x, y):
        out = func.functional_call(net, params, (x.unsqueeze(0),))
        return torch.nn.functional.cross_entropy(out, y.unsqueeze(0))

    gradients = func.vmap(func.grad(loss), in_dims=(None, 0, 0))(params, x, y)
    one = [func.grad(loss)(params, x[i], y[i]) for i in range(5)]
    for name, g in gradients.items():
        assert torch.allclose(g, torch.stack([o[name] for o in one]), atol=1e-5)
        assert not g.requires_grad
    tracked = func.vmap(func.grad_and_value(loss), in_dims=(None, 0, 0), chunk_size=2)(
        dict(net.named_parameters()), x, y
    )
    total = sum((g**2).sum() for g in tracked[0].values())
    return [gradients, tracked[1], torch.autograd.grad(total, list(net.parameters()))]


@alike
def test_an_ensemble(torch):
    func = torch.func
    nets = [small_network(torch, norm=True) for _ in range(3)]
    with torch.no_grad():
        for i, net in enumerate(nets):
            for p in net.parameters():
                p.mul_(1 + i)
    params, buffers = func.stack_module_state(nets)
    base = copy.deepcopy(nets[0]).to("meta")

    def run(params, buffers, x):
        return func.functional_call(base, (params, buffers), (x,))

    x = batch(torch, 2, 1, 6, 6)
    out = func.vmap(run, in_dims=(0, 0, None))(params, buffers, x)
    (out**2).sum().backward()
    each = func.vmap(run)(params, buffers, torch.stack([x, x * 2, x * 3]))
    return [out, each, {k: p.grad for k, p in params.items()}, torch.stack([net(x) for net in nets])]


@alike
def test_one_input_with_many_weights(torch):
    """Each sample of the result is contiguous, so that it can be viewed with any shape."""
    linear, seen = torch.nn.functional.linear, []
    weight, bias = batch(torch, 2, 5, 4), batch(torch, 2, 5)
    for shape in (4,), (3, 4), (2, 3, 4), (0, 4):
        x = batch(torch, *shape)

        def flat(weight, bias, x=x):
            out = linear(x, weight, bias)
            return out.view(-1), (out * out).sum()

        for dims in (0, 0), (0, None):
            b = bias if dims[1] == 0 else bias[0]
            seen.append(torch.func.vmap(flat, dims)(weight, b))
            seen.append(
                torch.func.grad(lambda w, flat=flat, dims=dims, b=b: torch.vmap(flat, dims)(w, b)[1].sum())(weight)
            )
    return seen


@alike
def test_derivatives_nest(torch):
    func, x = torch.func, batch(torch, 3, 4)
    vmap, grad, jvp, vjp = func.vmap, func.grad, func.jvp, func.vjp
    w = batch(torch, 4, 4)

    def f(x):
        return torch.tanh(w @ x).prod() + (x**3).sum()

    def g(x):
        return torch.sin(w @ x) * x.sum()

    return [
        vmap(grad(f))(x),
        vmap(func.hessian(f))(x),
        vmap(func.jacfwd(g))(x),
        vmap(func.jacrev(func.jacrev(g)))(x),
        func.jacrev(func.jacfwd(g))(x[0]),
        func.jacfwd(func.jacrev(g))(x[0]),
        func.jacfwd(func.jacfwd(g))(x[0]),
        func.jacrev(vmap(f))(x),
        func.jacfwd(vmap(g))(x),
        func.hessian(lambda x: vmap(f)(x).sum())(x),
        grad(lambda x: vmap(grad(f))(x).sum())(x),
        vmap(grad(lambda x: vmap(lambda s: f(x * s))(torch.arange(3.0)).sum()))(x),
        vmap(lambda x: jvp(g, (x,), (x * 2,)))(x),
        jvp(vmap(g), (x,), (x * 2,)),
        jvp(vmap(grad(f)), (x,), (x,)),
        vmap(lambda x: jvp(grad(f), (x,), (x,))[1])(x),
        vmap(lambda v: jvp(g, (x[0],), (v,))[1])(x),
        vmap(lambda v: vjp(g, x[0])[1](v)[0])(x),
        vmap(vjp(g, x[0])[1])(x),
        vmap(lambda x, y: grad(lambda x: grad(lambda y: (x * y).prod())(y).sum())(x), in_dims=(0, None))(x, x[1]),
        vmap(vmap(grad(torch.sin)))(x),
    ]


@alike
def test_gradients_outside(torch):
    vmap, x, w = torch.func.vmap, batch(torch, 3, 4).requires_grad_(), batch(torch, 4).requires_grad_()
    (vmap(lambda x: (x * w).sin())(x) ** 2).sum().backward()
    first = [x.grad.clone(), w.grad.clone()]
    y = vmap(lambda x: x.detach() * w)(x)
    cut = torch.autograd.grad(y.sum(), [x, w], allow_unused=True)
    with torch.no_grad():
        silent = vmap(torch.func.grad(lambda x: (x * w).sum() ** 2))(x)
    inner = vmap(torch.func.grad(lambda x: (x * w).sum() ** 2))(x)
    second = torch.autograd.grad((inner**2).sum(), [x, w])
    base = x.detach().clone()
    vmap(lambda t, s: t.mul_(s))(base, base + 1)
    return [first, cut, silent, silent.requires_grad, inner, second, base]


@alike
def test_batched_gradients_and_jacobians(torch):
    x, w = batch(torch, 4).requires_grad_(), batch(torch, 4, 4).requires_grad_()
    y = torch.tanh(w @ x) * x
    functional = torch.autograd.functional
    basis = torch.eye(4)
    rows = torch.autograd.grad(y, [x, w], basis, is_grads_batched=True, retain_graph=True)
    graph = torch.autograd.grad(y, x, basis, is_grads_batched=True, create_graph=True)[0]
    second = torch.autograd.grad((graph**2).sum(), [x, w])
    point = x.detach()

    def f(x, z):
        return torch.tanh(w.detach() @ x) * z, (x * z).sum()

    return [
        rows, graph, second,
        functional.jacobian(f, (point, point + 1), vectorize=True),
        functional.jacobian(f, (point, point + 1), vectorize=True, strategy="forward-mode"),
        functional.jacobian(f, (point, point + 1)),
        functional.hessian(lambda x: (x**3).prod() + x.sum(), point, vectorize=True),
        functional.hessian(
            lambda x: (x**3).prod() + x.sum(), point, vectorize=True, outer_jacobian_strategy="forward-mode"
        ).detach(),
    ]  # fmt: skip


@alike
def test_modules_inside(torch):
    func, nn, x = torch.func, torch.nn, batch(torch, 3, 5, 4)
    torch.manual_seed(3)
    modules = [
        nn.LayerNorm(4), nn.MultiheadAttention(4, 2, batch_first=True),
        nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True),
        nn.Conv1d(5, 2, 3), nn.BatchNorm1d(5, track_running_stats=False), nn.Bilinear(4, 4, 2), nn.PReLU(),
        nn.InstanceNorm1d(5, affine=True), nn.RMSNorm(4), nn.ConvTranspose1d(5, 3, 2), nn.AdaptiveAvgPool1d(2),
        nn.Softmax(-1), nn.Embedding(7, 3),
    ]  # fmt: skip
    found = []
    for i, module in enumerate(modules):
        with torch.no_grad():
            for k, p in enumerate(module.parameters()):
                p.copy_(torch.cos(torch.arange(float(p.numel())) + i + k).reshape(p.shape))
        params = {k: v.detach() for k, v in module.named_parameters()}
        given = (x[..., :3].abs() * 5).long() if isinstance(module, nn.Embedding) else x
        more = (2,) if isinstance(module, nn.MultiheadAttention) else (1,)
        if isinstance(module, nn.Bilinear):
            more = (1,)

        def loss(params, x, module=module, more=more):
            args = (x, x, x) if isinstance(module, nn.MultiheadAttention) else (x, x)
            args = args if isinstance(module, nn.MultiheadAttention | nn.Bilinear) else (x.unsqueeze(0),)
            out = func.functional_call(module, params, args)
            out = out[0] if isinstance(out, tuple) else out
            # Factors up to 1, as what is judged to 1e-5 are sums, of which some are 0 but for rounding.
            return (out * torch.linspace(0, 1, out.numel()).reshape(out.shape)).sum()

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            value = func.vmap(loss, in_dims=(None, 0))(params, given)
            found.append([value, func.vmap(func.grad(loss), in_dims=(None, 0))(params, given) if params else None])
    return found


@alike(tolerance=1e-4)
def test_batch_norm(torch):
    func, nn, x = torch.func, torch.nn, batch(torch, 3, 5, 4)
    nets = [nn.BatchNorm1d(4) for _ in range(3)]
    params, buffers = func.stack_module_state(nets)

    def run(params, buffers, x):
        return func.functional_call(nets[0], (params, buffers), (x,))

    out = func.vmap(run)(params, buffers, x)
    plain = nn.BatchNorm1d(4)
    refused = error(func.vmap(plain), x)
    evaluated = func.vmap(plain.eval())(x)
    patched = func.replace_all_batch_norm_modules_(nn.Sequential(nn.BatchNorm1d(4)))
    return [out, buffers, refused[:120], evaluated, func.vmap(patched)(x)]


@alike
def test_checkpoints_and_hooks(torch):
    func, x = torch.func, batch(torch, 3, 4)
    from_library = torch.utils.checkpoint if hasattr(torch.utils, "checkpoint") else None
    checkpoint = functools.partial(from_library.checkpoint, use_reentrant=False)
    seen = []

    def hooked(x):
        y = torch.sin(x)
        y.register_hook(lambda g: seen.append(list(g.shape)) or g * 2)
        return (y * x).sum()

    return [
        func.vmap(func.grad(hooked))(x),
        seen,
        func.vmap(lambda x: checkpoint(lambda x: torch.sin(x) * x, x))(x),
        func.functionalize(func.vmap(lambda x: x.clone().add_(1)))(x),
    ]


# --- custom functions ---


@alike
def test_anomaly_mode(torch):
    """It sees what is computed on the values of all samples, and finds one wrong gradient among them."""
    x, func = batch(torch, 3, 2), torch.func

    def root(x):
        return (x[0] - 1).relu().sqrt()

    def wrong(transform, x):
        with pytest.warns(UserWarning, match="in test_anomaly_mode"):
            return error(lambda: transform(x))

    with torch.autograd.set_detect_anomaly(True):
        seen = [
            func.vmap(torch.sin)(x),
            func.vmap(func.grad(lambda x: x.sin().prod()))(x),
            func.vmap(func.vmap(func.grad(torch.exp)))(x),
            func.vmap(func.grad(lambda x: func.grad(lambda x: x.sin().prod())(x).prod()))(x),
            func.vmap(lambda x: func.jvp(torch.sin, (x,), (x,)))(x),
            func.vmap(func.grad(lambda x: torch.nn.functional.layer_norm(x, (2,)).prod()))(x),
            func.jacrev(lambda x: x.sin().prod(0))(x),
            func.jacfwd(lambda x: x.sin().prod(0))(x),
            func.hessian(lambda x: x.sin().prod())(x),
            func.jvp(func.grad(lambda x: x.sin().prod()), (x,), (x,)),
        ]
        far = torch.tensor([[3.0, 0.0], [1.0, 0.0]])
        nothing = func.grad(lambda x: root(x) * 0)
        seen += [
            wrong(func.vmap(nothing), far),
            wrong(nothing, far[1]),
            wrong(func.vmap(func.vmap(nothing)), far[None]),
        ]
        seen.append(func.vmap(func.grad(root))(far[:1]))
    return seen


@alike
def test_custom_functions(torch):
    Function, func, x = torch.autograd.Function, torch.func, batch(torch, 3, 4)

    class Cube(Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(x):
            return x**3

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(inputs[0])

        @staticmethod
        def backward(ctx, g):
            return g * 3 * ctx.saved_tensors[0] ** 2

    shapes = []

    class Summed(Function):
        @staticmethod
        def forward(x, factor):
            return x.sum() * factor

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(inputs[0])
            ctx.factor = inputs[1]

        @staticmethod
        def backward(ctx, g):
            return g * ctx.factor * torch.ones_like(ctx.saved_tensors[0]), None

        @staticmethod
        def vmap(info, in_dims, x, factor):
            shapes.append([info.batch_size, info.randomness, in_dims, list(x.shape)])
            x = x.movedim(in_dims[0], 0)
            return x.flatten(1).sum(1) * factor, 0

    class Bare(Function):
        @staticmethod
        def forward(x):
            return x * 2

        @staticmethod
        def setup_context(ctx, inputs, output):
            pass

        @staticmethod
        def backward(ctx, g):
            return g * 2

    class Both(Cube):
        @staticmethod
        def vmap(info, in_dims, x):
            return x, 0

    return [
        func.vmap(Cube.apply)(x),
        func.vmap(func.grad(lambda x: Cube.apply(x).sum()))(x),
        func.vmap(func.vmap(Cube.apply))(x),
        func.vmap(lambda x: Summed.apply(x, 2.0))(x),
        func.vmap(func.grad(lambda x: Summed.apply(x, 2.0) ** 2))(x),
        shapes,
        error(func.vmap(Bare.apply), x),
        error(func.vmap(Both.apply), x),
    ]


# --- random numbers ---


@alike
def test_random_numbers(torch):
    functional, x = torch.nn.functional, batch(torch, 3, 4).abs() / 2
    functions = [
        lambda x: x + torch.rand(4), torch.rand_like, lambda x: torch.randn(4) + x,
        lambda x: torch.randint(9, (4,)) + x,
        lambda x: torch.randperm(4) + x, torch.bernoulli, lambda x: torch.bernoulli(x[0] * 0 + 0.5),
        lambda y: torch.bernoulli(x[0]) + y, lambda x: x.clone().uniform_(), lambda x: x.clone().normal_(1, 2),
        lambda y: torch.zeros(4).uniform_() + y, functional.dropout, lambda y: functional.dropout(torch.ones(4)) + y,
        lambda x: torch.normal(x, 1.0), lambda x: torch.multinomial(x, 2), lambda x: x.clone().bernoulli_(x),
        lambda x: functional.dropout1d(x.reshape(1, 2, 2)), torch.poisson,
        lambda x: x + torch.rand(4, generator=torch.Generator().manual_seed(1)),
    ]  # fmt: skip
    found = []
    for randomness in ("error", "same", "different"):
        for function in functions:
            torch.manual_seed(0)
            try:
                found.append(torch.func.vmap(function, randomness=randomness)(x))
            except RuntimeError as problem:
                found.append(str(problem))
    torch.manual_seed(0)
    found.append(torch.func.vmap(torch.func.vmap(torch.rand_like, randomness="same"), randomness="different")(x))
    torch.manual_seed(0)
    found.append(torch.func.vmap(torch.func.vmap(torch.rand_like, randomness="different"), randomness="same")(x))
    return found


# --- what is refused ---


@alike
def test_what_has_no_batch(torch):
    x, vmap = batch(torch, 3, 2), torch.func.vmap

    def branch(x):
        return x if x.sum() > 0 else -x

    def written(x):
        z = torch.zeros(2)
        z[0] = x[0]
        return z

    refused = [
        branch, written, lambda x: x.sum().item(), lambda x: float(x[0]), lambda x: x.tolist(), lambda x: x.numpy(),
        lambda x: x[x > 0], lambda x: x.nonzero(), lambda x: torch.zeros(2).copy_(x), lambda x: torch.arange(x[0]),
        lambda x: torch.add(x, x, out=torch.empty(2)), lambda x: x.data_ptr(), lambda x: torch.full((2,), x[0]),
        lambda x: (x.sum().backward(), x)[1], lambda x: torch.tensor([x[0], x[1]]),
    ]  # fmt: skip
    return [error(vmap(function), x) for function in refused]


@pytest.mark.parametrize("name", ["add_", "scatter_", "index_put_", "addcmul_"])
def test_writes_into_unbatched_tensors_change_nothing(name):
    torch, calls = tensorgrad, {
        "add_": lambda z, x: z.add_(x), "scatter_": lambda z, x: z.scatter_(0, torch.tensor([0, 1]), x),
        "index_put_": lambda z, x: z.index_put_((torch.tensor([0]),), x[0]),
        "addcmul_": lambda z, x: z.addcmul_(x, x),
    }  # fmt: skip
    target = torch.zeros(2)
    with pytest.raises(RuntimeError, match=r"vmap: inplace arithmetic.* is not possible"):
        torch.func.vmap(lambda x: calls[name](target, x))(torch.ones(3, 2))
    assert target.tolist() == [0, 0] and target._version == 0
    assert (target + 1).tolist() == [1, 1]  # nothing is left switched on


# --- the loop, and what is left behind ---


def test_what_pytorch_does_not_batch():
    """Recurrent layers, linearized functions, and custom functions of tensors without a batch."""
    torch, x = tensorgrad, batch(tensorgrad, 3, 5, 4)
    torch.manual_seed(0)
    vmap = torch.func.vmap
    for module in (torch.nn.LSTM(4, 3), torch.nn.GRU(4, 3, bidirectional=True), torch.nn.RNN(4, 3, num_layers=2)):
        params = {k: v.detach() for k, v in module.named_parameters()}

        def loss(params, x, module=module):
            return (torch.func.functional_call(module, params, (x,))[0] ** 2).sum()

        found = vmap(torch.func.grad_and_value(loss), in_dims=(None, 0))(params, x)
        for i in range(3):
            gradients, value = torch.func.grad_and_value(loss)(params, x[i])
            assert torch.allclose(found[1][i], value)
            assert all(torch.allclose(found[0][k][i], g, atol=1e-5) for k, g in gradients.items())
    slope = vmap(lambda x: torch.func.linearize(torch.sin, x)[1](x))(x)
    assert torch.allclose(slope, torch.cos(x) * x)

    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 2

    assert torch.equal(vmap(lambda y: Double.apply(x[0]) + y)(x), x[0] * 2 + x)


def test_the_loop_warns_once_with_the_name_of_the_op():
    torch = tensorgrad
    names = torch.func.looped_ops()
    assert "exp" not in names and "histc" in names
    x = batch(torch, 3, 5)
    torch.set_warn_always(True)
    try:
        with pytest.warns(UserWarning, match="batching rule for histc"):
            found = torch.func.vmap(lambda x: torch.histc(x, 4, -1, 1))(x)
    finally:
        torch.set_warn_always(False)
    assert torch.equal(found, torch.stack([torch.histc(row, 4, -1, 1) for row in x]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.func.vmap(lambda x: torch.histc(x, 4, -1, 1))(x)


def test_nothing_is_left_on_after_an_error():
    torch = tensorgrad
    from tensorgrad.rows.switches import LOCAL, SLOW

    before = list(SLOW)
    with pytest.raises(ZeroDivisionError):
        torch.func.vmap(lambda x: torch.func.grad(lambda y: (y * (1 / 0)).sum())(x))(torch.ones(3, 2))
    assert before == SLOW and LOCAL.transforms == ()


def test_memory_is_freed_without_the_garbage_collector():
    torch = tensorgrad
    alive = []

    def loss(w, x):
        y = torch.tanh(w @ x)
        z = y.clone()
        z[0] = y[1]
        alive.append(weakref.ref(y._array))
        return (z * y).sum()

    gc.collect()
    gc.disable()
    try:
        torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(torch.ones(4, 4), torch.ones(3, 4))
        assert alive and all(ref() is None for ref in alive)
    finally:
        gc.enable()


def test_results_are_freed_without_the_garbage_collector():
    torch = tensorgrad
    func = torch.func

    def loss(p, x):
        return (torch.tanh(p["w"] @ x) * p["b"]).sum()

    p, x = {"w": torch.ones(4, 4), "b": torch.ones(4)}, torch.ones(3, 4)
    per_sample = (None, 0)
    programs = {
        "grad": lambda: func.grad(loss)(p, x[0]),
        "vmap": lambda: func.vmap(lambda p, x: {"y": loss(p, x)}, per_sample)(p, x),
        "vmap of grad": lambda: func.vmap(func.grad(loss), per_sample)(p, x),
        "jacrev": lambda: func.jacrev(loss)(p, x[0]),
        "jacfwd": lambda: func.jacfwd(loss)(p, x[0]),
        "hessian": lambda: func.hessian(loss)(p, x[0]),
        "jvp": lambda: func.jvp(lambda x: loss(p, x), (x[0],), (x[1],)),
        "vjp": lambda: func.vjp(loss, p, x[0])[1](torch.tensor(1.0)),
    }
    for name, program in programs.items():
        gc.collect()
        gc.disable()
        try:
            left = [weakref.ref(t._array) for t in torch.utils._pytree.tree_leaves(program())]
            assert left and all(ref() is None for ref in left), name
        finally:
            gc.enable()


def test_ops_see_all_samples_at_once():
    torch, calls = tensorgrad, []

    def count(op, args, result, start, seconds):
        calls.append(op.name)

    observe(count, "a test")
    try:
        torch.func.vmap(torch.func.grad(lambda x: (x.sin() * x).sum()))(torch.ones(100, 3))
    finally:
        unobserve(count, "a test")
    assert len(calls) < 40


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("shape", [(5,), (4, 5), (4, 5, 2), (40, 70)])
@pytest.mark.parametrize("options", [{}, {"weight": 5}, {"ignore_index": 2}, {"label_smoothing": 0.3}])
def test_cross_entropy_and_its_gradient_for_each_sample(reduction, shape, options):
    torch, F = tensorgrad, tensorgrad.nn.functional
    classes = shape[0] if len(shape) == 1 else shape[1]
    given = options | ({"weight": batch(torch, classes) + 2} if "weight" in options else {})
    x = batch(torch, 3, *shape)
    where = shape[:0] if len(shape) == 1 else (shape[0], *shape[2:])
    y = (batch(torch, 3, *where) * 100).long() % classes

    def loss(x, y):
        return F.cross_entropy(x, y, reduction=reduction, **given)

    def gradient(x, y):
        value, pull = torch.func.vjp(lambda x: loss(x, y), x)
        return value, pull(batch(torch, *value.shape) + 0.3)[0]

    for in_dims, targets in ((0, y), ((0, None), y[0])):
        found = torch.func.vmap(gradient, in_dims)(x, targets)
        each = [gradient(x[i], y[i] if in_dims == 0 else targets) for i in range(3)]
        for mine, other in zip(found, zip(*each, strict=True), strict=True):
            torch.testing.assert_close(mine, torch.stack(other), equal_nan=True)


def test_writes_to_what_a_gradient_needs_are_noticed():
    torch = tensorgrad

    def spoiled(x, y):
        h = x * 1
        loss = torch.nn.functional.cross_entropy(h, y)
        h.zero_()
        return loss

    def spoiled_too(x):
        h = x.tanh()
        loss = (h * h).sum()
        h.zero_()
        return loss

    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.func.vmap(torch.func.grad(spoiled))(batch(torch, 3, 5), torch.tensor([0, 1, 2]))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.func.vmap(torch.func.grad(spoiled_too))(batch(torch, 3, 5))


def test_gradients_per_sample_take_no_more_ops_than_by_hand():
    torch, F, calls = tensorgrad, tensorgrad.nn.functional, []

    p = {"w": batch(torch, 6, 5), "b": batch(torch, 6), "out": batch(torch, 4, 6)}
    x, y = batch(torch, 3, 5), torch.tensor([0, 1, 3])

    def loss(p, x, y):
        hidden = F.linear(x[None], p["w"], p["b"]).relu()
        return F.cross_entropy(F.linear(hidden, p["out"]), y[None])

    def count(op, args, result, start, seconds):
        calls.append(op.name)

    observe(count, "a test")
    try:
        torch.func.vmap(torch.func.grad(loss), (None, 0, 0))(p, x, y)
    finally:
        unobserve(count, "a test")
    views = ("alias", "view", "unsqueeze")
    # The gradients run on arrays: no op is called for them.
    assert [name for name in calls if name not in views] == ["linear", "relu", "linear", "cross_entropy"]
    assert len(calls) <= 8


def _norm(name, *sizes):
    def run(functional, x, weight, bias):
        if name == "group_norm":
            return functional.group_norm(x, *sizes, weight, bias)
        if name == "layer_norm":
            return functional.layer_norm(x, sizes, weight, bias)
        return functional.rms_norm(x, sizes, weight)

    return run


def _attention(functional, query, key, value, mask):
    if mask is None:
        return functional.scaled_dot_product_attention(query, key, value, is_causal=True)
    return functional.scaled_dot_product_attention(query, key, value, mask)


def _layer(name, **options):
    return lambda functional, *given: getattr(functional, name)(*given, **options)


ALL_WAYS = [(0, None, None), (0, 0, None), (0, None, 0), (0, 0, 0), (0, "none", None), (0, None, "none")]
WITH_WEIGHTS = [d for d in ALL_WAYS if d[1] != "none"]


@pytest.mark.parametrize("function, shapes, dims", [
    *((_norm("layer_norm", 4), [(4,), (4,), (4,)], d) for d in ALL_WAYS),
    *((_norm("layer_norm", 40, 16), [(3, 40, 16), (40, 16), (40, 16)], d) for d in ALL_WAYS),
    *((_norm("rms_norm", 16), [(2, 30, 16), (16,), (16,)], d) for d in ALL_WAYS if d[2] is None),
    *((_norm("group_norm", 2), [(3, 4, 9, 8), (4,), (4,)], d) for d in ALL_WAYS),
    (_norm("group_norm", 2), [(3, 4), (4,), (4,)], (0, None, None)),
    *((_attention, [(2, 30, 16)] * 3 + [(30, 30)], d) for d in [
        (0, 0, 0, "none"), (0, None, None, "none"), (None, 0, None, None), (None, None, 0, 0), (0, 0, 0, 0),
    ]),
    (_attention, [(5, 4), (2, 7, 4), (7, 3), (5, 7)], (0, 0, None, 0)),
    *((_layer("linear"), [(5,), (3, 5), (3,)], d) for d in WITH_WEIGHTS),
    *((_layer("linear"), [(*lead, 40), (70, 40), (70,)], d) for lead in ((1,), (2, 4)) for d in ALL_WAYS[::5]),
    *((_layer("conv2d", stride=2, padding=1, groups=2), [(2, 4, 7, 6), (6, 2, 3, 3), (6,)], d)
      for d in WITH_WEIGHTS),
    *((_layer("conv2d", padding=1), [(n, 5, 9, 8), (20, 5, 3, 3), (20,)], ALL_WAYS[0]) for n in (1, 3)),
    (_layer("conv2d", padding="same"), [(3, 7, 6), (4, 3, 3, 3), (4,)], ALL_WAYS[0]),
    (_layer("conv1d", dilation=2), [(2, 3, 9), (4, 3, 3), (4,)], ALL_WAYS[5]),
    (_layer("conv3d"), [(1, 2, 4, 5, 6), (3, 2, 2, 2, 2), (3,)], ALL_WAYS[0]),
    *((_layer(f"{kind}_pool2d", kernel_size=size), [shape], (0,))
      for kind in ("max", "avg") for size in (2, 3) for shape in ((2, 3, 7, 8), (3, 7, 8))),
])  # fmt: skip
def test_fused_ops_and_their_gradients_for_each_sample(function, shapes, dims):
    """They agree with a loop over the samples. Without parameters of their own, no other op runs in their place."""
    torch, names = tensorgrad, set()
    _ = torch.manual_seed(0)
    given, places = [], [d if d != "none" else None for d in dims]
    for shape, dim in zip(shapes, dims, strict=True):
        given.append(None if dim == "none" else torch.randn(*(() if dim is None else (3,)), *shape))

    def loss(*given):
        out = function(torch.nn.functional, *given)
        return (out * out.detach().sin() + 2 * out).sum(), out

    wanted = tuple(i for i, x in enumerate(given) if x is not None)
    gradients = torch.func.grad(loss, wanted, has_aux=True)

    def saw(op, args, result, start, seconds):
        names.add(op.name)

    observe(saw, "a test")
    try:
        found, out = torch.vmap(gradients, tuple(places))(*given)
    finally:
        unobserve(saw, "a test")
    assert not names & {"mean", "rsqrt", "softmax"}
    one_by_one = [gradients(*[x if d is None else x[i] for x, d in zip(given, places, strict=True)]) for i in range(3)]
    assert torch.allclose(out, torch.stack([out for _, out in one_by_one]), atol=1e-5)
    for mine, loop in zip(found, zip(*[g for g, _ in one_by_one], strict=True), strict=True):
        assert torch.allclose(mine, torch.stack(loop), rtol=1e-4, atol=1e-4)
