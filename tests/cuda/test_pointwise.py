"""Pointwise kernels: every expression against torch, on all kinds of memory."""

import math

import cupy
import numpy as np
import pytest

import tensorgrad
from tensorgrad.kernels.cuda import expressions, pointwise, table
from tensorgrad.kernels.cuda.runtime import launch, program
from tests.cuda.conftest import MODE

torch = pytest.importorskip("torch")
functional = torch.nn.functional

LIMITS = {"float32": 2e-6, "float64": 1e-13, "float16": 2e-3, "bfloat16": 2e-2}


def backward(function, *params):
    """The gradient of one of torch's functions as a function of the result's gradient and the input."""

    def gradient(g, x):
        x = x.detach().requires_grad_()
        return torch.autograd.grad(function(x, *params), x, g)[0]

    return gradient


# name -> (what torch computes, the op's numbers); all others are torch's function of that name.
EXPECTED = {
    "cube": (lambda a: a**3, ()), "silu": (functional.silu, ()), "gelu": (functional.gelu, ()),
    "gelu_tanh": (lambda a: functional.gelu(a, approximate="tanh"), ()), "mish": (functional.mish, ()),
    "log_sigmoid": (functional.logsigmoid, ()), "hardsigmoid": (functional.hardsigmoid, ()),
    "hardswish": (functional.hardswish, ()), "clamp": (torch.clamp, (-0.5, 0.75)),
    "threshold": (functional.threshold, (0.25, -3.0)), "leaky_relu": (functional.leaky_relu, (0.1,)),
    "hardshrink": (functional.hardshrink, (0.5,)), "softshrink": (functional.softshrink, (0.5,)),
    "softplus": (functional.softplus, (1.5, 2.0)),
    "elu": (lambda a, *_: torch.where(a > 0, 1.25 * a, 1.25 * 0.7 * torch.expm1(a * 0.5)), (0.7, 1.25, 0.5)),
    "rsub": (lambda a, b: b - a, ()), "rdiv": (lambda a, b: b / a, ()),
    "lerp_by_number": (torch.lerp, (0.25,)), "sigmoid_grad": (lambda g, y: g * y * (1 - y), ()),
    "tanh_grad": (lambda g, y: g * (1 - y * y), ()),
    "threshold_grad": (lambda g, y, p: torch.where(y <= p, 0, g), (0.25,)),
    "silu_grad": (backward(functional.silu), ()), "gelu_grad": (backward(functional.gelu), ()),
    "gelu_tanh_grad": (backward(lambda a: functional.gelu(a, approximate="tanh")), ()),
    "mish_grad": (backward(functional.mish), ()), "log_sigmoid_grad": (backward(functional.logsigmoid), ()),
    "leaky_relu_grad": (lambda g, x, p: torch.where(x > 0, g, g * p), (0.1,)),
    "hardtanh_grad": (lambda g, x, *p: backward(lambda a: functional.hardtanh(a, *p))(g, x), (-0.5, 0.75)),
    "clamp_grad": (lambda g, x, *p: backward(lambda a: torch.clamp(a, *p))(g, x), (-0.5, 0.75)),
    "hardsigmoid_grad": (backward(functional.hardsigmoid), ()), "hardswish_grad": (backward(functional.hardswish), ()),
    "shrink_grad": (lambda g, x, p: backward(lambda a: functional.hardshrink(a, p))(g, x), (0.5,)),
    "softplus_grad": (lambda g, x, *p: backward(lambda a: functional.softplus(a, *p))(g, x), (1.5, 2.0)),
    "elu_grad": (lambda g, x, a, s, i: torch.where(x > 0, g * s, g * s * a * i * torch.exp(x * i)), (0.7, 1.25, 0.5)),
    "addcmul": (lambda a, b, c, p: torch.addcmul(a, b, c, value=p), (0.5,)),
    "addcdiv": (lambda a, b, c, p: torch.addcdiv(a, b, c, value=p), (0.5,)),
    "clamp_between": (lambda a, b, c: torch.clamp(a, b, c), ()), "masked_fill": (torch.masked_fill, (2.5,)),
}  # fmt: skip
POSITIVE = ("sqrt", "rsqrt", "log", "log2", "log10", "log1p", "pow")


@pytest.fixture
def together(monkeypatch):
    """All expressions of a dtype in one program, where g++ compiles: seventy calls would take long."""
    if MODE == "emulator":
        monkeypatch.setattr(
            pointwise, "_function",
            lambda name, kernel, dtype: launch.Function(_all(dtype).get_function(f"{name}_{kernel}")),
        )  # fmt: skip


_MADE: dict = {}


def _all(dtype):
    if dtype not in _MADE:
        before, after = _parts(dtype)
        text = [before]
        for name in expressions.EXPRESSIONS:
            settings = {"TB": "T", "TC": "T", **expressions.settings(name)}
            settings["whole"] = f"{name}_whole"
            text += [f"#define {key} {value}" for key, value in settings.items()]
            text += [f"namespace of_{name} {{", after, f"}} using namespace of_{name};"]
            text += [f"#undef {key}" for key in [*settings, "N"]]
        _MADE[dtype] = cupy.RawModule(code="\n".join(text), options=program.OPTIONS)
    return _MADE[dtype]


def _parts(dtype):
    """The prelude with the types, and the family's own text."""
    whole = program.text("pointwise", dtype)
    own = (program.SOURCES / "pointwise.cu").read_text()
    assert whole.endswith(own)
    return whole.removesuffix(own), own.partition("// Arrays of up to four dimensions")[0]  # the kernel `whole` alone


def values(kind, shape, rng, positive=False):
    if kind == "b":
        return torch.from_numpy(rng.random(shape) < 0.5)
    x = torch.from_numpy(rng.standard_normal(shape) * 2)
    seldom = torch.tensor([0.0, 0.5, -0.5, 3.0, -3.0, 30.0, -30.0], dtype=x.dtype)  # where formulas change
    some = x.reshape(-1)[::3]
    some[:] = torch.where(torch.from_numpy(rng.random(len(some)) < 0.5), some, seldom[torch.arange(len(some)) % 7])
    return x.abs() + 0.1 if positive else x


def to_gpu(x):
    if x.dtype == torch.bfloat16:
        import ml_dtypes

        return cupy.asarray(x.float().numpy().astype(ml_dtypes.bfloat16))
    return cupy.asarray(x.numpy())


def numbers(x):
    return torch.from_numpy(x.get().astype(np.float64))


def check(name, dtype, shapes, rng):
    row = expressions.EXPRESSIONS[name]
    given = [values(kind, shape, rng, name in POSITIVE) for kind, shape in zip(row.operands, shapes)]
    given = [x if x.dtype == torch.bool else x.to(getattr(torch, dtype)) for x in given]
    function, params = EXPECTED.get(name) or (getattr(torch, name, None) or getattr(torch.special, name), ())
    wide = [x if x.dtype == torch.bool else x.double() for x in given]
    want = function(*wide, *params)
    got = pointwise.run(name, *(to_gpu(x) for x in given), numbers=params)
    assert got is not NotImplemented
    assert got.dtype.name == ("bool" if row.result == "b" else dtype)
    if row.result == "b":
        assert np.array_equal(got.get(), want.numpy())
        return
    limit = LIMITS[dtype]
    torch.testing.assert_close(
        numbers(got), want.to(getattr(torch, dtype)).double(), rtol=limit, atol=limit, equal_nan=True
    )


def test_every_expression_against_torch(together):
    rng = np.random.default_rng(0)
    for name, row in expressions.EXPRESSIONS.items():
        check(name, "float32", [(5, 27)] * len(row.operands), rng)


@pytest.mark.parametrize("dtype", program.FLOATING)
def test_dtypes_and_sizes_around_a_pack(dtype):
    rng = np.random.default_rng(1)
    for n in (1, 2, 7, 8, 9, 1025, 5000):
        check("gelu_grad", dtype, [(n,), (n,)], rng)
    check("masked_fill", dtype, [(3, 37)] * 2, rng)


@pytest.mark.parametrize(
    "shapes",
    [
        [(4, 32), (32,), (4, 1)], [(4, 33), (33,), (4, 1)], [(2, 3, 4, 8), (3, 1, 8), ()],
        [(2, 1, 4, 1), (1, 3, 1, 8), (8,)], [(1,), (1,), (1,)], [(5, 1, 5, 1), (5, 1, 5), (5,)],
        [(), (), ()], [(0, 3), (3,), ()],
    ],
)  # fmt: skip
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_broadcasting(shapes, dtype):
    rng = np.random.default_rng(2)
    arrays = [torch.from_numpy(rng.standard_normal(shape)).to(getattr(torch, dtype)) for shape in shapes]
    got = pointwise.run("addcmul", *map(to_gpu, arrays), numbers=(0.5,))
    want = torch.addcmul(*(a.double() for a in arrays), value=0.5).to(getattr(torch, dtype)).double()
    torch.testing.assert_close(numbers(got), want, rtol=LIMITS[dtype], atol=LIMITS[dtype])


VIEWS = {
    "transposed": lambda x: x.transpose(1, 0, 2), "every other": lambda x: x[:, ::2], "columns": lambda x: x[:, :, 3:],
    "reversed dimensions": lambda x: x.transpose(2, 1, 0), "channels last": lambda x: x.transpose(0, 2, 1),
    "from an odd place": lambda x: x.reshape(-1)[3:83],
    "repeated": lambda x: cupy.broadcast_to(x[:1], (7, *x.shape[1:])),
}  # fmt: skip


@pytest.mark.parametrize("view", VIEWS)
def test_views(view):
    x = np.random.default_rng(3).standard_normal((4, 6, 8)).astype(np.float32)
    given = VIEWS[view](cupy.asarray(x))
    host = given.get()
    got = pointwise.run("addcmul", given, 2.0, given, numbers=(1.0,))
    assert np.allclose(got.get(), 3 * host, rtol=1e-6)
    like = np.lib.stride_tricks.as_strided(np.empty(1000, np.float32), given.shape, given.strides)
    assert got.strides == np.add(like, 1).strides  # dimensions lie as with NumPy's functions


def test_numbers_in_any_place(monkeypatch):
    x = cupy.asarray(np.array([1.0, -2.0, 3.0], np.float32))
    assert pointwise.run("where", x > 0, x, 0.5).get().tolist() == [1.0, 0.5, 3.0]
    assert pointwise.run("where", x > 0, 0.5, x).get().tolist() == [0.5, -2.0, 0.5]
    assert pointwise.clamp(x, None, 1.5).get().tolist() == [1.0, -2.0, 1.5]
    assert pointwise.masked_fill(x, x < 0, math.inf).get().tolist() == [1.0, math.inf, 3.0]


def test_nan_and_infinity():
    x = cupy.asarray(np.array([math.nan, math.inf, -math.inf, -0.0], np.float32))
    assert np.array_equal(pointwise.relu(x).get(), [math.nan, math.inf, 0, -0.0], equal_nan=True)
    assert np.signbit(pointwise.relu(x).get()[3])
    assert np.array_equal(pointwise.clamp(x, -1, 1).get(), [math.nan, 1, -1, 0], equal_nan=True)
    for name in ("softplus", "logsigmoid", "gelu"):
        call = getattr(tensorgrad.nn.functional, name)
        got = call(tensorgrad.tensor([math.nan, math.inf], device="cuda")).cpu().tolist()
        assert math.isnan(got[0]) and got[1] == (0.0 if name == "logsigmoid" else math.inf)


def test_declines_what_it_was_not_made_for():
    whole, wide = cupy.arange(4), cupy.zeros(4, np.float64)
    assert pointwise.run("div", whole, whole) is NotImplemented
    assert pointwise.run("gelu", whole) is NotImplemented
    assert pointwise.run("addcmul", wide, wide.astype(np.float32), wide) is NotImplemented
    assert pointwise.run("gelu", cupy.zeros(4, np.complex64)) is NotImplemented
    deep = cupy.zeros((2,) * 5, np.float32)  # five dimensions that do not merge
    assert pointwise.run("addcmul", deep, cupy.zeros((2, 1, 2, 1, 2), np.float32), deep) is NotImplemented


def test_every_row_names_an_op_and_a_kernel():
    from tensorgrad.rows import kernel_tables

    for name in table.EXPRESSIONS:
        assert name in kernel_tables.OPS
        assert callable(getattr(pointwise, name))


FLOATS = ["float32", "float64", "float16", "bfloat16"]


@pytest.mark.parametrize("given", FLOATS)
@pytest.mark.parametrize("wanted", FLOATS)
def test_conversions_between_floats(given, wanted, device):
    """In memory's order; arrays with gaps, and those at odd addresses, are left to CuPy."""
    values = (np.arange(-2048, 2048, dtype=np.float64) / 7).reshape(64, 64)
    values[0, :4] = np.nan, np.inf, -np.inf, -0.0
    for view in (
        lambda x: x, lambda x: x.t(), lambda x: x[:, ::2], lambda x: x[1:, 1:], lambda x: x[:0], lambda x: x[3, 5],
        lambda x: x.reshape(4, 16, 8, 8).permute(0, 3, 1, 2), lambda x: x[:1].expand(3, 64),
    ):  # fmt: skip
        ours = view(tensorgrad.tensor(values, device=device).to(getattr(tensorgrad, given))).to(
            getattr(tensorgrad, wanted)
        )
        theirs = view(torch.tensor(values).to(getattr(torch, given))).to(getattr(torch, wanted))
        assert str(ours.dtype) == str(theirs.dtype) and ours.shape == theirs.shape
        if ours.numel() and ours.ndim:
            assert ours.stride() == theirs.stride()
        np.testing.assert_array_equal(ours.double().cpu().numpy(), theirs.double().numpy())


@pytest.mark.parametrize("dtype", FLOATS)
def test_in_place(dtype, device):
    """What lies apart, or in the same place, is written at once; the rest is copied first."""
    found = []
    for library, place in ((tensorgrad, device), (torch, "cpu")):
        x = (library.arange(1 << 16, dtype=library.float32, device=place) % 100 / 8).to(getattr(library, dtype))
        x, y = x.reshape(256, 256), x.flip(0).reshape(256, 256)
        x.mul_(2)
        x.add_(y)
        x.sub_(x)
        x.add_(y[:, :1])
        x.t().mul_(y)
        x[1:].add_(x[:-1].clone())
        x[:, 3:7].div_(4)
        x.neg_()
        x.abs_()
        x.sqrt_()
        found.append(x.double().cpu())
    np.testing.assert_allclose(found[0].numpy(), found[1].numpy(), LIMITS[dtype], LIMITS[dtype])


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_powers_of_negative_zero_and_infinity(dtype):
    """By a number some are roots or their reciprocals, as in PyTorch; by an array of numbers they are not."""
    given = [-0.0, -math.inf, 4.0]
    x = tensorgrad.tensor(given, dtype=getattr(tensorgrad, dtype), device="cuda")
    theirs = torch.tensor(given)  # of float16, PyTorch takes roots on a GPU only
    for exponent in (0.5, -0.5, 2, 3, -1):
        assert str((x**exponent).tolist()) == str((theirs**exponent).tolist()), exponent
    assert (x.to(tensorgrad.complex64) ** 2j).shape == (3,)
    assert (x ** tensorgrad.full_like(x, 0.5)).tolist() == [0.0, math.inf, 2.0]


@pytest.mark.parametrize("shape", [(), (3, 5)])
def test_counters(shape):
    x = tensorgrad.zeros(shape, dtype=tensorgrad.int64, device="cuda")
    array = x._array
    for _ in range(3):
        assert x.add_(2) is x and x._array is array
    x.mul_(x).sub_(1)
    assert x.dtype == tensorgrad.int64 and (x.cpu() == 35).all()
    assert pointwise.run("add", array, 1.5) is NotImplemented  # the result is not of this dtype
    assert pointwise.run("div", array, 2) is NotImplemented
    with pytest.raises(RuntimeError, match="can't be cast"):
        x.add_(1.5)
    assert (x + 1.5).dtype == tensorgrad.float32


def test_numbers_that_change():
    """A launch with numbers is kept for the next call with the same ones, and only for them."""
    x = tensorgrad.arange(6.0, device="cuda")
    for number in (0.5, 2, -1.0, 0.5, True, 1):
        assert ((x * number).cpu() == tensorgrad.arange(6.0) * number).all()
        assert ((number - x).cpu() == number - tensorgrad.arange(6.0)).all() if number is not True else True
    assert (x.clamp(1, 2).cpu() == tensorgrad.tensor([1.0, 1, 2, 2, 2, 2])).all()
    assert x.clamp(float("nan"), 1).isnan().all() and x.clamp(0, float("nan")).isnan().all()
    assert (x.clamp(0, 4).cpu() == tensorgrad.tensor([0.0, 1, 2, 3, 4, 4])).all()


def test_the_sign_of_zero_is_kept_among_launches():
    """0.0 and -0.0 are equal, so that a cache takes them for one."""
    x = tensorgrad.ones(8, device="cuda")
    for zero in (0.0, -0.0, 0.0):
        sign = bool(np.signbit(zero))
        assert ((x * zero).signbit().cpu() == sign).all()
        assert (tensorgrad.nn.functional.threshold(-x, 0.5, zero).signbit().cpu() == sign).all()
