"""Forward mode beside PyTorch: dual tensors, custom functions, transforms that nest, and what it costs."""

import gc
import importlib
import tracemalloc
import weakref

import numpy as np
import pytest

import tensorgrad
import tensorgrad.ops.vision.regions
from tensorgrad.rows.kernel_tables import OPS
from tensorgrad.rows.switches import LOCAL, SLOW
from tensorgrad.transforms import tangents
from tensorgrad.transforms.forward import Level
from tests.support.alike import alike, error
from tests.support.custom_functions import cube
from tests.support.kernels import numpy_only

X = [0.3, -0.7, 1.2]


def dual_numbers(torch):
    return importlib.import_module(f"{torch.__name__}.autograd.forward_ad")


@pytest.fixture(autouse=True)
def nothing_stays_on():
    yield
    assert not SLOW and not LOCAL.transforms


# --- dual tensors ----------------------------------------------------------------------------------------------------


@alike
def test_dual_tensors(torch):
    ad, x, t = dual_numbers(torch), torch.tensor(X), torch.tensor([1.0, 2.0, -1.0])
    seen = [error(ad.make_dual, x, t), error(ad.exit_dual_level), error(ad.enter_dual_level, 1)]
    with ad.dual_level() as level:
        dual = ad.make_dual(x, t)
        results = [
            dual.sin(), dual * dual, dual @ dual, dual.view(3, 1).expand(3, 2) * 2, torch.cat([dual, x]), dual.max(),
            dual.sort()[0], dual.var(), dual.softmax(0), dual[[0, 2]], dual.double(), dual.floor(), dual.prod(),
            torch.where(dual > 0, dual, 0.0), dual.cumprod(0), torch.stack([x, dual])[1], dual.std(), dual.norm(),
        ]  # fmt: skip
        seen += [ad.unpack_dual(r) for r in results]
        seen += [level, dual is x, ad.unpack_dual(x)[1], ad.unpack_dual(dual > 0)[1], ad.unpack_dual(dual.detach())[1]]
        seen += [ad.unpack_dual(dual.data)[1], ad.unpack_dual(dual.argmax())[1]]
        with torch.no_grad():
            seen.append(ad.unpack_dual(dual.exp()).tangent)
        seen += [
            error(ad.make_dual, dual, t),
            error(ad.make_dual, x, dual),
            error(ad.make_dual, x, torch.ones(2)),
            error(ad.make_dual, torch.arange(3), t),
            error(ad.make_dual, x, torch.arange(3)),
            error(ad.make_dual, x, t, level=1),
            error(ad.enter_dual_level),
            error(ad.exit_dual_level, level=3),
            error(torch.add, dual, dual, out=torch.zeros(3)),
        ]
    return [*seen, ad.unpack_dual(dual).tangent]


@alike
def test_writes_in_place(torch):
    """The tangents of a base, of its views and of what was there before follow each write."""
    ad, x, t = dual_numbers(torch), torch.tensor(X), torch.tensor([1.0, 2.0, -1.0])
    seen = []

    def note(*tensors):
        seen.extend(ad.unpack_dual(tensor) for tensor in tensors)

    with ad.dual_level():
        dual = ad.make_dual(x, t)
        a = dual.clone()
        a.mul_(dual)
        note(a)
        a[0] = 5.0
        note(a)
        a[1:].mul_(dual[1:])
        note(a, a[1:])
        base = torch.zeros(2, 3)
        before = base.t()
        row = base[0]
        row.copy_(dual)
        note(base, before, row, base[1])
        base[1] = dual * 2
        base[:, 1].zero_()
        note(base, before, row)
        b = dual.clone()
        view = b.view(3, 1)
        b.exp_()
        note(b, view)
        view.fill_(2.0)
        note(b)
        c = dual.clone()
        c.masked_fill_(torch.tensor([True, False, False]), 0.0).clamp_(-0.5, 1.0)
        c.t_()
        note(c)
        d = dual.clone()
        d.index_add_(0, torch.tensor([0, 0]), dual[:2])
        d.scatter_(0, torch.tensor([2]), dual[:1])
        note(d)
        e = dual.clone()
        e.copy_(torch.ones(3))
        note(e)
        mine = torch.ones(3)
        ad.make_dual(x.clone(), mine).mul_(2)
        seen.append(mine)
        parts = dual.clone().split(1)
        note(*parts)
    return seen


@alike
def test_tangents_have_histories(torch):
    ad = dual_numbers(torch)
    x, t, w = (torch.tensor(v, requires_grad=True) for v in (X, [1.0, 2.0, -1.0], [2.0, 3.0, 5.0]))
    with ad.dual_level():
        tangent = ad.unpack_dual((ad.make_dual(x, t) ** 3 * w).sum()).tangent
    tangent.backward()
    return [tangent.detach(), x.grad, t.grad, w.grad]


@alike
def test_backward_within_a_level(torch):
    """Forward over reverse: what was saved, the gradients and `.grad` have tangents."""
    ad, t = dual_numbers(torch), torch.tensor([1.0, 2.0, -1.0])
    x = torch.tensor(X, requires_grad=True)
    w = torch.tensor([[1.0, 0.5, 2.0], [0.0, 1.0, -1.0]])
    seen = []
    with ad.dual_level():
        dual = ad.make_dual(x, t)
        for f in (
            lambda x: (x**3).sum(),
            lambda x: (torch.tanh(w @ x)).exp().sum(),
            lambda x: torch.nn.functional.layer_norm(x * x, (3,)).pow(3).sum(),
            lambda x: torch.nn.functional.cross_entropy(x.repeat(2, 1), torch.tensor([0, 2])),
            lambda x: torch.nn.functional.softplus(x).softmax(0)[0],
            lambda x: x.clone().mul_(x).exp_().sum(),
        ):
            (g,) = torch.autograd.grad(f(dual), dual)
            seen.append(ad.unpack_dual(g))
    return seen


def test_partial_views_and_layouts():
    """A tangent lies in memory as its value, so every view of the value is one of the tangent."""
    torch = tensorgrad
    with Level() as level:
        whole = torch.arange(12.0).reshape(3, 4)
        part = level.dual(whole.t()[1:], torch.ones(3, 3))
        assert level.tangent_of(part).stride() == part.stride()
        assert level.tangent_of(part.as_strided((2,), (1,), 0)).tolist() == [0.0, 1.0]
        images = torch.zeros(2, 3, 4, 4).to(memory_format=torch.channels_last)
        dual = level.dual(images, torch.ones(2, 3, 4, 4))
        assert level.tangent_of(dual * 2).is_contiguous(memory_format=torch.channels_last)
        meta = level.dual(torch.zeros(2, device="meta"), torch.zeros(2, device="meta"))
        assert level.tangent_of(meta.exp() + 1).is_meta


# --- custom functions ------------------------------------------------------------------------------------------------


def functions(torch):
    class Product(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, y, factor):
            ctx.save_for_forward(x, y)
            ctx.save_for_backward(x, y)
            ctx.factor = factor
            return x * y * factor

        @staticmethod
        def jvp(ctx, x_t, y_t, factor_t):
            x, y = ctx.saved_tensors
            assert factor_t is None
            return ctx.factor * (x_t * y + x * y_t)

        @staticmethod
        def backward(ctx, g):
            x, y = ctx.saved_tensors
            return g * y * ctx.factor, g * x * ctx.factor, None

    class Sparse(Product):
        @staticmethod
        def forward(ctx, x, y, factor):
            ctx.set_materialize_grads(False)
            return Product.forward(ctx, x, y, factor)

        @staticmethod
        def jvp(ctx, x_t, y_t, factor_t):
            assert y_t is None
            return ctx.factor * x_t * ctx.saved_tensors[1]

    class Doubled(torch.autograd.Function):
        in_place = True

        @staticmethod
        def forward(ctx, x):
            ctx.mark_dirty(x)
            return x.mul_(2)

        @staticmethod
        def jvp(ctx, x_t):
            return x_t.mul_(2) if Doubled.in_place else x_t * 2

    class Plain(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 2

    class Two(torch.autograd.Function):
        returns = None

        @staticmethod
        def forward(ctx, x):
            return x * 2, x * 3

        @staticmethod
        def jvp(ctx, x_t):
            return Two.returns(x_t)

    return Product, Sparse, Doubled, Plain, Two


@alike
def test_custom_functions(torch):
    ad, x, t = dual_numbers(torch), torch.tensor(X), torch.tensor([1.0, 2.0, -1.0])
    product, sparse, doubled, plain, two = functions(torch)
    with ad.dual_level():
        dual = ad.make_dual(x, t)
        seen = [
            ad.unpack_dual(product.apply(dual, x, 3.0)),
            ad.unpack_dual(product.apply(dual, dual, 3.0)),
            ad.unpack_dual(sparse.apply(dual, x, 3.0)),
            ad.unpack_dual(product.apply(x, x, 3.0)).tangent,
            error(plain.apply, dual),
            plain.apply(x),
        ]
        a = dual.clone()
        same = doubled.apply(a)
        seen += [ad.unpack_dual(a), same is a]
        doubled.in_place = False
        seen.append(error(doubled.apply, dual.clone()))
        for returned in (lambda t: t, lambda t: (t,), lambda t: (t, t, t), lambda t: (t[0], t), lambda t: (3, t)):
            two.returns = staticmethod(returned)
            seen.append(error(two.apply, dual))
        two.returns = staticmethod(lambda t: (t, 2 * t))
        seen += [ad.unpack_dual(o) for o in two.apply(dual)]
    return seen


@alike
def test_custom_functions_in_transforms(torch):
    Cube = cube(torch)
    jvp, grad, x, t = torch.func.jvp, torch.func.grad, torch.tensor(X), torch.tensor([1.0, 2.0, -1.0])
    if torch is tensorgrad:  # torch gives 0: what its function saved has no tangent of the outer level
        assert torch.allclose(jvp(lambda x: jvp(Cube.apply, (x,), (t,))[1], (x,), (t,))[1], 6 * x * t * t)
    return [
        jvp(Cube.apply, (x,), (t,)),
        jvp(grad(lambda x: Cube.apply(x).sum()), (x,), (t,)),
        grad(lambda x: jvp(Cube.apply, (x,), (t,))[1].sum())(x),
        torch.func.jacfwd(Cube.apply)(x),
    ]


# --- transforms ------------------------------------------------------------------------------------------------------


@alike
def test_perturbations_are_not_confused(torch):
    """d/dx (x · d/dy (x + y)) is 1: the inner derivative sees only y."""
    jvp, grad, one, x = torch.func.jvp, torch.func.grad, torch.tensor(1.0), torch.tensor(0.7)

    def forward(f):
        return lambda x: jvp(f, (x,), (torch.ones_like(x),))[1]

    kinds, seen = (forward, grad), []
    for outer in kinds:
        for inner in kinds:
            seen += [
                outer(lambda x, d=inner: x * d(lambda y: x + y)(one))(one),
                outer(lambda x, d=inner: x * d(lambda y: x * y**2)(x))(x),
                outer(lambda x, d=inner: d(lambda y: (x * y).sin())(x * x))(x),
                outer(lambda x, d=inner: d(lambda y: d(lambda z: x * y * z * z)(x))(y := x * 3) + y)(x),
                outer(lambda x, d=inner: d(lambda x: d(torch.sin)(x * 2))(x))(x),
            ]
    return seen


@alike
def test_transforms_nest(torch):
    func, x, t = torch.func, torch.tensor(X), torch.tensor([1.0, 2.0, -1.0])
    jvp, grad, vjp, jacfwd, jacrev = func.jvp, func.grad, func.vjp, func.jacfwd, func.jacrev
    w = torch.tensor([[1.0, 0.5, 2.0], [0.0, 1.0, -1.0], [0.3, 0.2, 0.1]])

    def f(x):
        return torch.tanh(w @ x) * x.exp()

    def scalar(x):
        return (f(x) ** 2).sum()

    def kept(x):  # values that have been detached for the caller keep their tangents
        slope, (value, aux) = func.grad_and_value(lambda x: (scalar(x), x * 2), has_aux=True)(x)
        return slope * value + aux

    return [
        jvp(grad(scalar), (x,), (t,)),
        jvp(kept, (x,), (t,)),
        jvp(lambda v: vjp(f, x)[1](v)[0], (x,), (t,)),
        jvp(lambda x: vjp(f, x)[1](x)[0], (x,), (t,)),
        grad(lambda x: jvp(f, (x,), (t,))[1].sum())(x),
        grad(lambda t: jvp(scalar, (x,), (t,))[1])(t),
        [jac(jac2(f))(x) for jac in (jacfwd, jacrev) for jac2 in (jacfwd, jacrev)],
        func.hessian(scalar)(x),
        jacfwd(jacfwd(jacfwd(scalar)))(x),
        func.vmap(lambda x, t: jvp(f, (x,), (t,))[1])(torch.stack([x, t]), torch.stack([t, x])),
        jvp(func.vmap(f), (torch.stack([x, t]),), (torch.stack([t, x]),)),
        func.vmap(jacfwd(f))(torch.stack([x, t])),
    ]


@alike
def test_linearize(torch):
    x, t, calls = torch.tensor(X), torch.tensor([1.0, 2.0, -1.0]), []

    def f(x, y):
        calls.append(1)
        return {"a": (x * y).softmax(0), "b": torch.nn.functional.layer_norm(x, (3,)) @ y}

    value, slope = torch.func.linearize(f, x, t)
    seen = [value, slope(t, x), slope(x, x)]
    assert torch is not tensorgrad or len(calls) == 1  # the function runs once, and tangents go through its ops
    value, slope = torch.func.linearize(torch.func.grad(lambda x: (x.sin() ** 2).sum()), x)
    return [*seen, value, slope(t), slope(x)]


def test_linearize_of_what_writes_in_place():
    torch = tensorgrad
    x, t = torch.tensor(X), torch.tensor([1.0, 2.0, -1.0])

    def f(x):
        y = x.clone()
        y[1:] *= x[:2]
        y.exp_()
        return y * x

    _, slope = torch.func.linearize(f, x)
    for direction in (t, x):
        assert torch.allclose(slope(direction), torch.func.jvp(f, (x,), (direction,))[1])


@alike
def test_networks(torch):
    """Modules in training mode, along their inputs and parameters."""
    nn, func = torch.nn, torch.func

    def values(shape, seed):
        return torch.tensor(np.random.default_rng(seed).normal(size=shape).astype(np.float64))

    def fixed(module):
        module = module.double()
        with torch.no_grad():
            for i, (_, p) in enumerate(sorted(module.named_parameters())):
                p.copy_(values(tuple(p.shape), i) * 0.5)
        return module

    seen = []
    for module, shape in (
        (nn.Sequential(nn.Linear(4, 5), nn.GELU(), nn.LayerNorm(5), nn.Linear(5, 2)), (3, 4)),
        (
            nn.Sequential(
                nn.Conv2d(2, 3, 3, padding=1), nn.BatchNorm2d(3, track_running_stats=False), nn.ReLU(), nn.MaxPool2d(2)
            ),
            (2, 2, 4, 4),
        ),
        (nn.Sequential(nn.ConvTranspose1d(2, 2, 3), nn.GroupNorm(2, 2), nn.AvgPool1d(2)), (2, 2, 5)),
        (nn.TransformerEncoderLayer(4, 2, 6, dropout=0.0, batch_first=True), (2, 3, 4)),
    ):
        module = fixed(module)
        x = values(shape, 1)
        params = {name: p.detach() for name, p in module.named_parameters()}
        steps = {name: values(tuple(p.shape), 7) for name, p in params.items()}
        call = lambda p, x, module=module: func.functional_call(module, p, (x,))
        with nn.attention.sdpa_kernel(nn.attention.SDPBackend.MATH):  # the only one that torch has a forward rule for
            seen.append(func.jvp(call, (params, x), (steps, values(shape, 2)))[1])
    lstm, gru = fixed(nn.LSTM(3, 4, batch_first=True)), fixed(nn.GRU(3, 4))
    for module in (lstm, gru):
        module.requires_grad_(False)
        seen.append(func.jvp(lambda x, m=module: m(x)[0], (values((2, 5, 3), 3),), (values((2, 5, 3), 4),))[1])
    return seen


@alike
def test_complex_numbers(torch):
    z, t = torch.tensor([1 + 2j, -0.5 + 0.1j]), torch.tensor([0.3 - 1j, 2 + 0.5j])
    x, s = torch.tensor([0.5, -2.0]), torch.tensor([1.0, 3.0])
    jvp = torch.func.jvp
    cases = [
        torch.abs, torch.angle, torch.sgn, torch.exp, torch.conj_physical, torch.sqrt, lambda z: z * z.conj(),
        lambda z: z.real * z, lambda z: torch.view_as_real(z), lambda z: z.prod(), lambda z: torch.fft.fft(z),
        lambda z: torch.fft.irfft(z), lambda z: torch.vdot(z, z * 2), lambda z: z.norm(), lambda z: z**1.5,
    ]  # fmt: skip
    mixed = [torch.complex, torch.polar, lambda x, y: x * (y * 1j), lambda x, y: (x + 1j * y).abs()]
    return [*(jvp(f, (z,), (t,)) for f in cases), *(jvp(f, (x, s), (s, x)) for f in mixed)]


def test_autocast_and_modes_see_the_function_only():
    torch = tensorgrad
    seen = []

    class Watch(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            seen.append(func.__name__)
            return func(*args, **(kwargs or {}))

    x, w = torch.ones(2, 2), torch.full((2, 2), 2.0)
    with Watch():
        torch.func.jvp(torch.tanh, (x,), (x,))
    assert seen.count("tanh") == 1 and "mul" not in seen
    with torch.autocast("cpu", torch.bfloat16):
        value, tangent = torch.func.jvp(lambda x: x @ w, (x,), (x,))
    assert value.dtype is tangent.dtype is torch.bfloat16


# --- rules -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by_backward", [True, False], ids=["transposed", "by its own rule"])
def test_what_has_no_rule_is_transposed(by_backward, monkeypatch):
    """The last resort is right under `no_grad`, and it nests; as a rule does."""
    torch, op = tensorgrad, OPS["scatter_reduce"]
    assert op.name not in tangents.transposed() and len(tangents.transposed()) < 25
    if by_backward:
        monkeypatch.setitem(tangents._RULES, op, tangents._transposed)
    x, t = torch.tensor(X, dtype=torch.float64), torch.tensor([1.0, 2.0, -1.0], dtype=torch.float64)
    index = torch.tensor([0, 1, 0])

    def f(x):
        return torch.zeros(2, dtype=x.dtype).scatter_reduce(0, index, x, "prod", include_self=False)

    expected = torch.tensor([t[0] * x[2] + x[0] * t[2], t[1]])
    with torch.no_grad():
        value, tangent = torch.func.jvp(f, (x,), (t,))
        assert torch.allclose(tangent, expected) and tangent.grad_fn is None and value.grad_fn is None
        again = torch.func.jvp(lambda x: torch.func.jvp(f, (x,), (t,))[1], (x,), (t,))[1]
    assert torch.allclose(again, torch.stack([2 * t[0] * t[2], 0 * t[1]]))
    assert torch.allclose(torch.func.grad(lambda x: torch.func.jvp(f, (x,), (t,))[1].sum())(x),
                          torch.tensor([t[2], 0, t[0]], dtype=x.dtype))  # fmt: skip


# The rows that say what their Jacobian is like, or which elements they select -> the values that follow the input.
SAID = {
    "frexp": (), "sgn": (), "softmax": (1,),
    "max_all": (), "min_all": (), "median_all": (False,), "det": (),
    "running_extreme": (1, True), "extreme_dim": (1, False, "max"), "sort": (-1, True), "topk": (2, 1, True),
    "kthvalue": (-1, True, 2), "mode": (1, False), "median_dim": (1, False, False),
    "max_pool": ((2, 2), (1, 1), (1, 1), (1, 1), False), "adaptive_max_pool": ((2, 2),),
    "fractional_max_pool2d": ("samples", (2, 2), (2, 2)), "fractional_max_pool3d": ("samples", (2, 2, 2), (2, 2, 2)),
    "roi_pool": ("boxes", 1.0, 2, 2), "bag_lookup_max": ("bags",),
    "fake_quantize_per_tensor_row": ("scale", "zero", -8, 7, -1),
    "fake_quantize_per_tensor_of_tensors": ("scale", "zero", -8, 7, -1),
    "fused_moving_avg_obs_fq_row": ("scale", "zero", -8, 7, -1),
    "fake_quantize_per_channel_row": ("scales", "zeros", -8, 7, 1),
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "dtype"),
    [(name, dtype) for name in SAID for dtype in ("float64", "float32")]
    + [("sgn", "complex128"), ("det", "complex128")],
)
def test_what_rows_say_of_their_jacobians_is_so(name, dtype, monkeypatch):
    """Tangents by what the row says are those by a backward pass through its formulas; recorded or not, and nested."""
    torch, row = tensorgrad, OPS[name]
    _ = torch.manual_seed(0)
    dtype = getattr(torch, dtype)
    shape = (1, 2, *[4] * (3 if name.endswith("3d") else 2)) if "pool" in name else (3, 3)
    x, t, w = torch.randn(shape, dtype=dtype), torch.randn(shape, dtype=dtype), torch.rand(shape, dtype=dtype) + 0.5
    tensors = {
        "samples": torch.rand(1, 2, len(shape) - 2, dtype=dtype),
        "boxes": torch.tensor([[0, 0, 0, 3, 3]], dtype=dtype),
        "bags": torch.tensor([[0, 2], [1, 1]]),
        "scale": torch.tensor(0.1, dtype=torch.float64), "zero": torch.tensor(1),
        "scales": torch.tensor([0.1, 0.2, 0.3]), "zeros": torch.tensor([0, 1, 2]),
    }  # fmt: skip

    def run(x):
        rest = [tensors.get(v, v) if isinstance(v, str) else v for v in SAID[name]]
        result = row.compiled.call(x, *rest)
        return result[0] if isinstance(result, tuple) else result

    def all_ways():
        recorded = torch.func.jvp(run, (x.clone().requires_grad_(),), (t,))[1]
        nested = torch.func.jvp(lambda x: torch.func.jvp(run, (x,), (t * w,))[1], (x,), (t,))[1]
        batched = recorded
        if name not in ("roi_pool", "bag_lookup_max"):  # which vmap runs in a loop
            batched = torch.func.jvp(torch.func.vmap(run), (torch.stack([x, x * w]),), (torch.stack([t, t]),))[1]
        with torch.no_grad():
            return [recorded, torch.func.jvp(run, (x,), (t,))[1], batched, nested]

    rule = tangents.rule_of(row)
    assert rule in (tangents._selected, *tangents._BY_JACOBIAN.values())
    found = all_ways()
    monkeypatch.setitem(tangents._RULES, row, tangents._transposed)
    for own, other in zip(found, all_ways(), strict=True):
        assert torch.allclose(own, other, atol=1e-5, rtol=1e-5)
    assert torch.allclose(found[0], found[1])


def test_all_of_these_rows_are_compared():
    said = {op.name for op in OPS.values() if op.selects or op.jacobian not in ("", "zero")}
    assert said - {"standard_gamma_sample"} == set(SAID)  # which would be drawn again: see the next tests


@alike
def test_numbers_that_are_terms(torch):
    """What a number adds does not move with the input, however large the number is."""
    jvp, pad, inf = torch.func.jvp, torch.nn.functional.pad, float("inf")
    x, t = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0])
    return [
        jvp(f, (x,), (t,))
        for number in (inf, -2, float("nan"))
        for f in (
            lambda x, n=number: x + n,
            lambda x, n=number: n - x,
            lambda x, n=number: pad(x, (1, 2), value=n),
            lambda x, n=number: x.masked_fill(x > 1.5, n),
        )
    ]


@alike
def test_samples_do_not_move(torch):
    """Tangents and gradients of random numbers by their parameters: zeros, of the shape of each."""
    x, y = torch.full((2, 3), 0.5), torch.full((3,), 0.5)
    calls = [
        lambda x, y: torch.bernoulli(x),
        lambda x, y: torch.normal(x, y),
        lambda x, y: torch.normal(x, 1.0),
        lambda x, y: torch.normal(0.0, y),
        lambda x, y: torch.poisson(x),
        lambda x, y: x.clone().bernoulli_(y),
        lambda x, y: x.clone().uniform_(),
    ]
    seen = []
    for call in calls:
        seen.append(torch.func.jvp(call, (x, y), (x, y))[1])
        leaves = x.clone().requires_grad_(), y.clone().requires_grad_()
        seen.append(torch.autograd.grad(call(*leaves).sum(), leaves, allow_unused=True))
    return seen


def test_tangents_of_triangular_factors():
    """cholesky_inverse: torch's own tangents differ from finite differences in the fifth digit."""
    torch = tensorgrad
    _ = torch.manual_seed(0)
    factor = torch.eye(3, dtype=torch.float64) + 0.1 * torch.randn(3, 3, dtype=torch.float64).tril()
    step, size = torch.randn(3, 3, dtype=torch.float64).tril(), 1e-6
    ends = [torch.cholesky_inverse(factor + sign * size * step) for sign in (1, -1)]
    tangent = torch.func.jvp(torch.cholesky_inverse, (factor,), (step,))[1]
    assert torch.allclose(tangent, (ends[0] - ends[1]) / (2 * size), rtol=1e-7, atol=1e-8)


def test_a_row_says_what_it_is_linear_in():
    from tensorgrad.dispatch.kinds import op
    from tensorgrad.rows.kernel_tables import OPS

    assert OPS["linear"].linear == (("input", "weight"), ("bias",))
    with pytest.raises(NameError, match="linear in 'other'"):
        op("never_made(input)", None, linear="other")


def test_random_numbers_are_drawn_once():
    torch = tensorgrad
    _ = torch.manual_seed(0)
    plain = [torch.nn.functional.dropout(torch.ones(8)), torch._standard_gamma(torch.ones(3)), torch.rand(1)]
    _ = torch.manual_seed(0)
    with Level() as level:
        x = level.dual(torch.ones(8), torch.full((8,), 3.0))
        y = torch.nn.functional.dropout(x)
        duals = [y, torch._standard_gamma(x[:3]), torch.rand(1)]
        assert all(torch.equal(a, b) for a, b in zip(plain, duals, strict=True))
        assert torch.equal(level.tangent_of(y), y * 3)
        filled = x.clone().uniform_()
        assert float(level.tangent_of(filled).abs().sum()) == 0


# --- what it costs ---------------------------------------------------------------------------------------------------


def test_no_graph_and_nothing_left():
    """Results have no history, and a level leaves no reference behind, without the garbage collector."""
    torch = tensorgrad
    x, t = torch.ones(100), torch.ones(100)
    gc.collect()
    gc.disable()
    try:
        with Level() as level:
            dual = level.dual(x, t)
            middle = dual.exp()
            tangent = weakref.ref(level.tangent_of(middle))
            result = middle.sin() * 2
            assert result.grad_fn is None and level.tangent_of(result).grad_fn is None
            held = len(level.tangents)
            del middle
            assert tangent() is None and len(level.tangents) == held - 1
            last = weakref.ref(level.tangent_of(result))
        assert last() is None and not level.tangents
        array = weakref.ref(result._array)
        del result, dual
        assert array() is None
        level = weakref.ref(level)
        assert level() is None
        tracked = torch.ones(3, requires_grad=True)
        with Level() as level:
            y = (level.dual(tracked, torch.ones(3)) ** 2).sum()
            y.backward()
            kept = weakref.ref(y.grad_fn)
            del y
        assert kept() is None
    finally:
        gc.enable()


def test_an_error_ends_the_level():
    torch = tensorgrad
    with pytest.raises(ZeroDivisionError):
        torch.func.jvp(lambda x: 1 // 0, (torch.ones(1),), (torch.ones(1),))


def peak(function) -> int:
    """The most memory that a call needs beyond what was there before; the least of three, as other threads count."""
    found = []
    for _ in range(3):
        tracemalloc.start()
        try:
            function()
            found.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    return min(found)


@pytest.mark.parametrize("recording", [True, False], ids=["", "under no_grad"])
def test_memory_is_about_twice_that_of_forward(recording):
    """Bytes are counted with NumPy's kernels: compiled ones have buffers of their own, and load when they like."""
    torch = tensorgrad
    x, t = torch.ones(64, 1024), torch.ones(64, 1024)
    w, gain = torch.ones(1024, 1024) / 1024, torch.ones(1024)

    def deep(x):
        for _ in range(8):
            x = torch.tanh(x @ w)
        return x

    def block(x):
        y = torch.nn.functional.layer_norm(x, (1024,), gain, gain)
        weights = (y @ y.t()).softmax(-1)
        x = x + torch.nn.functional.gelu(weights @ y @ w) @ w
        return x.mean()

    with numpy_only(), torch.set_grad_enabled(recording):
        for network in (deep, block):
            network(x), torch.func.jvp(network, (x,), (t,))  # so that the functions of the ops are there
            forward = peak(lambda f=network: f(x))
            assert forward >= 2 * x.nbytes  # so that what is counted is arrays
            assert peak(lambda f=network: torch.func.jvp(f, (x,), (t,))) <= 2.2 * forward


def test_kernels_for_tangents_agree_with_the_rules(monkeypatch):
    """Each row's `jvp_kernel` against its `jvp` or twin, for each of its inputs that moves."""
    from tensorgrad.rows.kernel_tables import OPS

    torch, F = tensorgrad, tensorgrad.nn.functional
    generator = np.random.default_rng(0)
    calls = {
        "layer_norm": lambda x, w, b: F.layer_norm(x, (4, 5), w, b),
        "rms_norm": lambda x, w, b: F.rms_norm(x, (4, 5), w) + b,
    }
    assert set(calls) == {op.name for op in OPS.values() if op.jvp_kernel}
    for name, call in calls.items():
        used = []
        kernel = OPS[name].jvp_kernel
        monkeypatch.setitem(vars(OPS[name]), "jvp_kernel", lambda xp, *given, k=kernel: used.append(1) or k(xp, *given))
        monkeypatch.setattr(tangents, "backward_arguments", lambda _, k=kernel: tangents.arguments_of(k)[1:])
        monkeypatch.setattr(tangents, "_KERNELS", {})
        for dtype, tolerance in ((torch.float64, 1e-12), (torch.float32, 1e-5), (torch.float16, 1e-2)):
            values, along = (
                [torch.tensor(generator.normal(size=s), dtype=dtype) for s in ((3, 4, 5), (4, 5), (4, 5))]
                for _ in range(2)
            )
            for moving in ([0], [1], [2], [0, 1], [0, 1, 2]):
                if name == "rms_norm" and moving == [2]:
                    continue
                found = []
                for on_arrays in (True, False):
                    used.clear()
                    monkeypatch.setattr(Level, "on_arrays", on_arrays)
                    with Level() as level:
                        duals = [level.dual(v, t) if i in moving else v for i, (v, t) in enumerate(zip(values, along))]
                        found.append(level.tangent_of(call(*duals)))
                    assert bool(used) is on_arrays
                assert torch.allclose(*found, rtol=tolerance, atol=tolerance)
    recorded = torch.ones(2, 3, requires_grad=True)
    tangent = torch.func.jvp(lambda x: x.softmax(1), (recorded,), (torch.ones(2, 3),))[1]
    assert tangent.requires_grad  # so it did not come from a kernel


@alike
def test_memory_formats_and_gaps(torch):
    """Tangents of values that are not stored row by row."""
    x = torch.arange(24.0).reshape(2, 3, 4) / 10
    jvp, F = torch.func.jvp, torch.nn.functional
    return [
        jvp(f, (given,), (step,))
        for given, step in (
            (x.transpose(0, 2), torch.ones(4, 3, 2)),
            (x[:, ::2], x[:, 1:].cos()),
            (x.clone(), x[:1, :1].expand(2, 3, 4)),
        )
        for f in (
            lambda x: F.layer_norm(x, x.shape[-1:]),
            lambda x: x.softmax(1),
            lambda x: F.gelu(x) * x,
            lambda x: x.flatten().view(-1, 2) @ torch.ones(2, 2),
            lambda x: x.mean((0, 2)),
        )
    ]
