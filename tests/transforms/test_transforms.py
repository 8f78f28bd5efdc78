"""What transforms and autograd do with the less usual, against PyTorch: custom functions and sparse gradients under
batched gradients, chunks of random numbers, tangents of what is constant, derivatives inside of derivatives."""

import importlib

from tests.support.alike import alike, error


def double(torch, **more):
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 2 * g * x

    members = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    return type("Double", (torch.autograd.Function,), members | more).apply


@alike
def test_custom_functions_under_batched_gradients(torch):
    """Their devices are compared, not the classes of their arrays."""
    x = torch.arange(3.0).requires_grad_()
    y = torch.rand(3, dtype=torch.double, requires_grad=True)

    def sparse(ctx, g):
        return g.to_sparse()

    z = torch.arange(3.0).requires_grad_()
    double(torch, backward=staticmethod(sparse))(z).backward(torch.tensor([0.0, 2.0, 0.0]))
    return [
        torch.autograd.grad(double(torch)(x), x, torch.eye(3), is_grads_batched=True),
        torch.autograd.functional.jacobian(double(torch), x, vectorize=True),
        torch.autograd.gradcheck(double(torch), (y,), check_batched_grad=True),
        str(z.grad.layout), z.grad.is_coalesced(), z.grad.to_dense(),
    ]  # fmt: skip


@alike
def test_chunks_with_random_numbers(torch):
    F, x = torch.nn.functional, torch.zeros(5, 3)
    seen = []
    for randomness in ("same", "different"):
        for n in (None, 1, 2, 5):
            for draw in (lambda x: x + torch.rand(3), lambda x: F.dropout(torch.ones(3)) + x):
                torch.manual_seed(0)
                found = torch.vmap(draw, randomness=randomness, chunk_size=n)(x)
                equal = bool((found == found[0]).all())
                # numbers that differ are other ones in each library, if they are not drawn in one call
                seen.append([found if randomness == "same" else list(found.shape), equal])
                if randomness == "same":
                    seen.append(torch.rand(2))
    return seen


@alike
def test_gradients_stored_sparsely(torch):
    """Of scalars, and at one index of a vector."""
    seen = []
    for shape, index in (((), [0, 0]), ((), 0), ((3,), 1), ((3,), [1, 1, 0]), ((0,), [])):
        for sparse in (False, True):
            x = torch.ones(shape, requires_grad=True)
            y = torch.gather(x, 0, torch.tensor(index, dtype=torch.int64), sparse_grad=sparse)
            y.backward(torch.arange(1.0, y.numel() + 1).reshape(y.shape))
            seen.append([y, str(x.grad.layout), x.grad.to_dense()])
            if sparse:
                seen.append([list(x.grad._indices().shape), x.grad._values()])
    return seen


@alike
def test_a_table_that_is_renormed(torch):
    forward_ad, F, at = torch.autograd.forward_ad, torch.nn.functional, torch.tensor([1, 2])
    with forward_ad.dual_level():
        table = forward_ad.make_dual(2 * torch.ones(4, 4), torch.ones(4, 4))
        rows = F.embedding(at, table, max_norm=1.0)
        found = [*forward_ad.unpack_dual(rows), *forward_ad.unpack_dual(table)]
    tracked = (2 * torch.ones(4, 4)).requires_grad_()
    F.embedding(at, tracked, max_norm=1.0).sum().backward()
    jvp = torch.func.jvp(lambda w: F.embedding(at, w, max_norm=1.0), (2 * torch.ones(4, 4),), (torch.ones(4, 4),))
    return [found, tracked, tracked.grad, tracked._version, jvp]


@alike
def test_hooks_on_several_tensors_over_several_passes(torch):
    seen = []
    for inner in (False, True):
        leaves = [torch.ones(2, requires_grad=True) for _ in range(4)]
        t = [x * 2 for x in leaves] if inner else leaves
        for mode in ("all", "any"):

            def hook(grads, mode=mode):
                seen.append([g is not None for g in grads] if mode == "all" else list(grads.shape))

            torch.autograd.graph.register_multi_grad_hook(t, hook, mode=mode)
        out = (t[1] * t[2]).sum()
        for places in ((1, 2), (0, 3), (0, 2)):
            out.backward(inputs=[t[i] for i in places], retain_graph=True)
            seen.append(places)
        out.backward()
        seen.append("all")
    return seen


@alike
def test_gradcheck_draws_no_numbers_of_the_program(torch):
    x = torch.rand(3, dtype=torch.double, requires_grad=True)
    before = torch.get_rng_state()
    torch.autograd.gradcheck(torch.sin, (x,), fast_mode=True)
    return bool((torch.get_rng_state() == before).all())


@alike
def test_the_dimension_that_a_custom_function_sees(torch):
    seen = []

    class Same(torch.autograd.Function):
        @staticmethod
        def forward(x):
            return x * 1

        @staticmethod
        def setup_context(ctx, inputs, output):
            pass

        @staticmethod
        def backward(ctx, g):
            return g

        @staticmethod
        def vmap(info, in_dims, x):
            seen.append([info.batch_size, info.randomness, in_dims, list(x.shape)])
            return Same.apply(x), in_dims[0]

    vmap, same, x = torch.vmap, Same.apply, torch.arange(24.0).reshape(2, 3, 4)
    found = [
        vmap(same)(x), vmap(same, in_dims=1)(x), vmap(same, in_dims=-1, out_dims=1)(x),
        vmap(vmap(same, in_dims=1), in_dims=2)(x), vmap(vmap(same, in_dims=1))(x),
        vmap(lambda x: same(x * x), in_dims=1)(x), vmap(lambda x: same(x.sum(0)), in_dims=1)(x),
    ]  # fmt: skip
    return [found, seen]


@alike
def test_tangents_of_what_is_constant(torch):
    """Random numbers have the tangent 0; new tensors, numbers of other kinds and detached ones have none."""
    forward_ad, seen = torch.autograd.forward_ad, {}
    calls = {
        "bernoulli": torch.bernoulli, "normal": torch.normal, "poisson": torch.poisson,
        "normal_mean": lambda x: torch.normal(x, 1.0), "normal_std": lambda x: torch.normal(0.0, x),
        "normal_both": lambda x: torch.normal(x, x), "multinomial": lambda x: torch.multinomial(x, 2),
        "rand_like": torch.rand_like, "zeros_like": torch.zeros_like, "new_ones": lambda x: x.new_ones(3),
        "floor": torch.floor, "sign": torch.sign, "greater": lambda x: x > 0, "detach": lambda x: x.detach(),
        **{
            f"{name}_": lambda x, name=name: getattr(x.clone(), f"{name}_")()
            for name in ("uniform", "normal", "bernoulli", "exponential", "random", "cauchy", "log_normal", "zero")
        },
    }  # fmt: skip
    with forward_ad.dual_level():
        x = forward_ad.make_dual(torch.full((3,), 0.5), torch.ones(3))
        for name, call in calls.items():
            seen[name] = forward_ad.unpack_dual(call(x)).tangent
    return seen


@alike
def test_tangents_of_results_that_are_marked(torch):
    forward_ad, seen = torch.autograd.forward_ad, []

    def forward(ctx, x):
        a, b = x * 2, x * 3
        ctx.mark_non_differentiable(b)
        return a, b

    for second in (None, True):

        def jvp(ctx, t, second=second):
            return t * 2, second and t

        function = double(torch, forward=staticmethod(forward), jvp=staticmethod(jvp))
        with forward_ad.dual_level():

            def told(function=function):
                found = function(forward_ad.make_dual(torch.ones(2), torch.ones(2)))
                return [forward_ad.unpack_dual(x).tangent for x in found]

            seen.append(error(told) if second else told())
    return seen


@alike
def test_derivatives_inside_of_transforms(torch):
    """What a transform would take for a constant is refused."""
    functional, func, x = torch.autograd.functional, torch.func, torch.ones(2)
    inner = {
        "jacobian": lambda x: functional.jacobian(torch.sin, x).sum(),
        "hessian": lambda x: functional.hessian(lambda y: y.sin().sum(), x).sum(),
        "vjp": lambda x: functional.vjp(torch.sin, x, torch.ones(2))[1].sum(),
        "hvp": lambda x: functional.hvp(lambda y: y.sin().sum(), x, torch.ones(2))[1].sum(),
        "backward": lambda x: (x.sin().sum().backward(), x.sum())[1],
    }
    seen = [
        [name, error(lambda f=f: func.grad(f)(x)), error(lambda f=f: func.jvp(f, (x,), (x,)))]
        for name, f in inner.items()
    ]
    graph = func.grad(lambda x: functional.jacobian(torch.sin, x, create_graph=True).sum())
    return [seen, graph(x), func.grad(lambda x: torch.autograd.grad(x.sin().sum(), x, create_graph=True)[0].sum())(x)]


@alike
def test_without_grad_outside(torch):
    func, seen = torch.func, []
    for tracked in (False, True):
        x = torch.ones(2, requires_grad=tracked)
        with torch.no_grad():
            y, pull = func.vjp(torch.sin, x)
            seen += [y, pull(torch.ones(2)), func.grad(lambda x: x.sin().sum())(x), func.jacrev(torch.sin)(x)]
        found = pull(torch.ones(2))[0]
        seen += [found, torch.autograd.grad(found.sum(), x)[0] if tracked else None]
    return seen


@alike
def test_writes_into_new_tensors(torch):
    func, x = torch.func, torch.arange(3.0)

    def copied(x):
        y = torch.zeros(3)
        y.copy_(x)
        return y

    def repeated(x):
        y = torch.zeros(2, 3)
        y.copy_(x)
        return y

    def in_part(x):
        y = torch.zeros(3)
        y[:2] = x[1:]
        y.mul_(x)
        return y * x

    return [
        [func.jacfwd(f)(x), func.jacrev(f)(x), func.jvp(f, (x,), (x + 1,)), func.hessian(f)(x)]
        for f in (copied, repeated, in_part)
    ]


@alike
def test_tangents_of_what_a_gradient_captures(torch):
    """A `vmap` over directions, of a gradient with respect to something else that depends on the point."""
    func, x = torch.func, torch.arange(3.0)

    def f(x):
        return func.grad(lambda w: (w**2 * x.sin()).sum())(torch.ones(3))

    return [func.vmap(lambda t: func.jvp(f, (x,), (t,))[1])(torch.eye(3)), func.jacfwd(f)(x), func.jacrev(f)(x)]


@alike
def test_a_grid_saves_nothing(torch):
    F, theta = torch.nn.functional, torch.ones(2, 2, 3, requires_grad=True)
    seen = []
    for size in ((2, 1, 2, 3), (2, 1, 1, 1)):
        for corners in (False, True):
            out = F.affine_grid(theta, size, align_corners=corners)
            out.sum().backward()
            (out * 2).sum().backward()
            seen += [out, theta.grad.clone(), out.grad_fn.name()]
    return seen


@alike
def test_the_former_vmap(torch):
    former = importlib.import_module(f"{torch.__name__}._vmap_internals")
    vmap, x = former._vmap, torch.arange(6.0).reshape(2, 3)
    bad = [
        lambda: vmap(lambda x: x, in_dims=-1)(x), lambda: vmap(lambda x: x, out_dims=None)(x),
        lambda: vmap(lambda x: x, out_dims=(0, 0))(x), lambda: vmap(lambda x: [x])(x),
        lambda: vmap(lambda x: (x, 1))(x), lambda: vmap(lambda x: x)(),
        lambda: vmap(torch.mul, (0, 1))(x, x),
    ]  # fmt: skip
    return [
        vmap(torch.sum)(x), vmap(lambda a: (a, a * 2), out_dims=(0, 1))(x),
        vmap(torch.mul, (0, None))(x, torch.ones(3)),
        vmap(lambda x: (x, None), 0, 0, True)(x), [error(call) for call in bad],
    ]  # fmt: skip


@alike
def test_names_that_libraries_read(torch):
    forward_ad, seen = torch.autograd.forward_ad, []
    seen.append(forward_ad._current_level)
    with forward_ad.dual_level():
        seen.append(forward_ad._current_level)
    picked = importlib.import_module(f"{torch.__name__}._functorch.eager_transforms")._slice_argnums
    args = (1, 2, 3)
    seen += [picked(args, 0), picked(args, -1), picked(args, (2, 0)), picked(args, 0, as_tuple=False)]
    seen += [error(lambda n=n: picked(args, n)) for n in (3, (0, 0), (), 0.5)]
    return [*seen, torch.nn.functional.grad is torch.nn.grad]


@alike
def test_hessians_times_a_batch_of_directions(torch):
    """What is recorded within vmap and forward mode keeps the tangents of what it saves, also where a function runs by
    its definition (losses, norms); and what a function detaches has none."""
    F, t = torch.nn.functional, torch.func
    torch.manual_seed(0)
    x, directions = torch.randn(3, 2, dtype=torch.double), torch.randn(2, 3, 2, dtype=torch.double)
    y, p, labels = torch.randn(3, 2).double(), torch.rand(3, 2).double(), torch.tensor([0, 1, 1])

    def by_own_gradient(x):
        return (t.grad(lambda y: (y**3).sum())(x.detach()) * x).sum() ** 2

    def without_recording(x):
        with torch.no_grad():
            half = x / 2
        return (half * x).sum()

    functions = {
        "mse": lambda x: F.mse_loss(x, y), "smooth l1": lambda x: F.smooth_l1_loss(x, y),
        "huber": lambda x: F.huber_loss(x, y), "bce": lambda x: F.binary_cross_entropy_with_logits(x, p),
        "bce of probabilities": lambda x: F.binary_cross_entropy(x.sigmoid(), p),
        "kl": lambda x: F.kl_div(x, p, reduction="sum"), "cross entropy": lambda x: F.cross_entropy(x, labels),
        "nll": lambda x: F.nll_loss(x.log_softmax(1), labels), "poisson": lambda x: F.poisson_nll_loss(x, p),
        "gaussian": lambda x: F.gaussian_nll_loss(x, y, p),
        "layer norm": lambda x: F.layer_norm(x, (2,)).pow(3).sum(),
        "rms norm": lambda x: F.rms_norm(x, (2,)).pow(3).sum(),
        "group norm": lambda x: F.group_norm(x, 1).pow(3).sum(), "softmax": lambda x: x.softmax(1).pow(2).sum(),
        "std": lambda x: x.std(), "var_mean": lambda x: sum(torch.var_mean(x, 1))[0], "norm": lambda x: x.norm(),
        "logsumexp": lambda x: x.logsumexp(1).sum(), "products": lambda x: (x.T @ x).pow(2).sum(),
        "linear": lambda x: F.linear(x, y, p[:, 0]).pow(2).sum(), "gelu": lambda x: F.gelu(x).sum(),
        "attention": lambda x: F.scaled_dot_product_attention(x[None], y[None], x[None]).pow(2).sum(),
        "cosine": lambda x: F.cosine_similarity(x, y).sum(),
        "detached": lambda x: (x.detach() * x * x).sum(), "detached later": lambda x: ((x * x).detach() * x).sum(),
        "own gradient": by_own_gradient, "no_grad": without_recording,
    }  # fmt: skip
    return {
        name: (
            t.vmap(lambda v, f=f: t.jvp(t.jacrev(f), (x,), (v,))[1])(directions),
            t.vmap(lambda v, f=f: t.jvp(f, (x,), (v,))[1])(directions),
            t.vmap(lambda x, v, f=f: t.jvp(t.jacrev(f), (x,), (v,))[1])(x.expand(2, 3, 2), directions),
        )
        for name, f in functions.items()
    }
