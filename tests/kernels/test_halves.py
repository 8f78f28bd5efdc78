"""Kernels of float16 and bfloat16 beside NumPy's: results are the same to the bit, or one unit in the last place."""

import ml_dtypes
import numpy as np
import pytest

import tensorgrad as tg
from tensorgrad.kernels.compiled import table
from tests.support.kernels import absent, numpy_only

if absent():
    pytest.skip(absent(), allow_module_level=True)
from tensorgrad.kernels.compiled import conv, halves, images, winograd
from tests.support.compare import normal
from tests.support.kernels import record_used, used_for_any_size

F = tg.nn.functional
DTYPES = [tg.float16, tg.bfloat16]
ROWS = [row for row in table.ROWS if row is not table.WAITING]
every_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=["float16", "bfloat16"])


@pytest.fixture(scope="module", autouse=True)
def compiled():
    with used_for_any_size(ROWS):
        yield


@pytest.fixture
def used(monkeypatch):
    return record_used(monkeypatch, ROWS)


@pytest.fixture(autouse=True)
def tables_of_few(monkeypatch):
    monkeypatch.setattr(halves, "_FEWEST", 0)


def numbers(dtype, *shape, seed=0, grad=True):
    return tg.tensor(3 * normal(*shape, seed=seed)).to(dtype).requires_grad_(grad)


def everything(dtype):
    """All numbers of a dtype."""
    bits = np.arange(1 << 16).astype(np.uint16)
    return tg.from_numpy(bits.view(np.float16) if dtype is tg.float16 else bits.view(ml_dtypes.bfloat16))


def bits(t):
    return t.detach()._array.view(np.uint16 if t.dtype in DTYPES else np.uint32)


def assert_equal(found, expected):
    """To the bit, whatever the bits of a nan."""
    assert found.dtype == expected.dtype and found.shape == expected.shape
    none = np.asarray(expected.float()) != np.asarray(expected.float())
    assert np.array_equal(np.isnan(np.asarray(found.detach().float())), none)
    assert np.array_equal(bits(found)[~none], bits(expected)[~none])


def both(call):
    """The results of a call by compiled kernels and by NumPy's."""
    found = call()
    with numpy_only():
        expected = call()
    return found, expected


FUNCTIONS = {
    "exp": lambda x: x.exp(), "tanh": lambda x: x.tanh(), "sigmoid": lambda x: x.sigmoid(), "relu": F.relu,
    "silu": F.silu, "gelu": F.gelu, "gelu of tanh": lambda x: F.gelu(x, approximate="tanh"), "log": lambda x: x.log(),
    "sqrt": lambda x: x.sqrt(), "neg": lambda x: -x, "abs": lambda x: x.abs(), "square": lambda x: x.square(),
    "clamp": lambda x: x.clamp(-0.5, 1.0), "times a number": lambda x: x * 0.37, "plus a number": lambda x: x + 0.37,
    "over a number": lambda x: x / 0.37, "cube": lambda x: x**3, "sin": lambda x: x.sin(), "erf": lambda x: x.erf(),
}  # fmt: skip


@every_dtype
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_every_number(name, dtype, used):
    found, expected = both(lambda: FUNCTIONS[name](everything(dtype)))
    assert_equal(found, expected)
    assert "half_lookup" in used


@every_dtype
@pytest.mark.parametrize("name", ["tanh", "sigmoid", "relu", "silu", "gelu", "gelu of tanh"])
@pytest.mark.parametrize("of_g", ["normal", "inf", "expanded"])
def test_slopes_of_every_number(name, dtype, of_g):
    g = tg.tensor(normal(1 << 16, seed=1)).to(dtype)
    if of_g == "inf":
        g = g.new_full(g.shape, float("inf"))
    elif of_g == "expanded":
        g = g[:1].expand(g.shape)

    def call():
        x = everything(dtype).requires_grad_()
        return tg.autograd.grad(FUNCTIONS[name](x), x, g)[0]

    assert_equal(*both(call))


@every_dtype
@pytest.mark.parametrize("name", ["add", "sub", "mul", "div"])
@pytest.mark.parametrize(
    "shapes", [((37, 90), (37, 90)), ((37, 90), (90,)), ((37, 90), (37, 1)), ((5, 1, 70), (9, 70))]
)
def test_arithmetic(name, shapes, dtype, used):
    x, y = (numbers(dtype, *shape, seed=n) for n, shape in enumerate(shapes))
    x.data[0] = float("inf")
    y.data[..., -3:] = float("nan")
    y.data[:1] = 0
    assert_equal(*both(lambda: getattr(tg, name)(x, y).detach()))
    assert "half_arithmetic" in used


@every_dtype
@pytest.mark.parametrize("way", ["transposed", "channels last", "sliced", "expanded"])
def test_layouts(way, dtype):
    x = numbers(dtype, 6, 20, 9, 8, grad=False)
    given = {
        "transposed": x.transpose(1, 3), "channels last": x.contiguous(memory_format=tg.channels_last),
        "sliced": x[:, ::2], "expanded": x[:1].expand(6, 20, 9, 8),
    }[way]  # fmt: skip
    for call in (lambda: given.exp(), lambda: given + given, lambda: given * given.flip(0), lambda: given.float(),
                 lambda: given.sum(1), lambda: given.amax((0, 2)), lambda: given.softmax(-1)):  # fmt: skip
        found, expected = both(call)
        assert found.stride() == expected.stride()
        assert_near(found, expected)


@every_dtype
def test_casts(dtype):
    x, other = everything(dtype), DTYPES[dtype is tg.float16]
    assert_equal(*both(lambda: x.float()))
    assert_equal(*both(lambda: x.to(other)))
    wide = tg.from_numpy(np.random.default_rng(0).integers(0, 1 << 32, 1 << 17, dtype=np.uint32).view(np.float32))
    assert_equal(*both(lambda: wide.to(dtype)))


def assert_near(found, expected, unit=1):
    """Up to a unit in the last place, of the number or of a sixteenth of the largest."""
    assert found.dtype == expected.dtype and found.shape == expected.shape
    a, e = (t.detach().double().numpy() for t in (found, expected))
    digit = unit * {tg.float16: 2.0**-10, tg.bfloat16: 2.0**-7}.get(found.dtype, 1e-5)
    np.testing.assert_allclose(a, e, digit, digit / 16 * np.abs(e[np.isfinite(e)]).max(initial=0))


def targets(n, classes):
    return tg.tensor(np.random.default_rng(0).integers(0, classes, n))


CALLS = {
    "softmax": lambda x, w: x.softmax(-1), "log_softmax": lambda x, w: x.log_softmax(-1),
    "layer_norm": lambda x, w: F.layer_norm(x, w.shape, w, w), "rms_norm": lambda x, w: F.rms_norm(x, w.shape, w),
    "sum": lambda x, w: x.sum(), "sum of rows": lambda x, w: x.sum(1), "sum of columns": lambda x, w: x.sum(0),
    "mean": lambda x, w: x.mean(0), "amax": lambda x, w: x.amax(1), "amin of columns": lambda x, w: x.amin(0),
    "max": lambda x, w: x.max(0).values, "var": lambda x, w: x.var(1), "norm": lambda x, w: x.norm(),
    "cross_entropy": lambda x, w: F.cross_entropy(x, targets(*x.shape)),
    "losses": lambda x, w: F.cross_entropy(x, targets(*x.shape), reduction="none", ignore_index=3),
    "linear": lambda x, w: F.linear(x, x, None), "product": lambda x, w: x @ x.t(),
}  # fmt: skip


@every_dtype
@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("shape", [(70, 130), (3, 5000), (300, 33)])
@pytest.mark.parametrize("parameters", ["same", "float32"])
def test_rows(name, shape, dtype, parameters):
    def call():
        x = numbers(dtype, *shape)
        w = numbers(dtype if parameters == "same" else tg.float32, shape[1], seed=2)
        made = CALLS[name](x, w)
        wanted = [x, w] if "norm" in name and name != "norm" else [x]
        slopes = tg.autograd.grad(made, wanted, numbers(dtype, *made.shape, seed=3, grad=False))
        return [made, *slopes]

    for found, expected in zip(*both(call)):
        assert_near(found, expected, 2)


@every_dtype
@pytest.mark.parametrize("given", [
    ("SGD", {}), ("SGD", {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1}), ("SGD", {"maximize": True}),
    ("Adam", {}), ("AdamW", {"amsgrad": True, "weight_decay": 0.1}), ("Adam", {"weight_decay": 0.1}),
], ids=str)  # fmt: skip
def test_optimizers(given, dtype, used):
    name, options = given

    def call():
        params = [numbers(dtype, *shape, seed=n) for n, shape in enumerate([(70, 90), (3,), (5000,)])]
        params.append(tg.tensor(normal(40), requires_grad=True))  # of float32, moved by the same optimizer
        optimizer = getattr(tg.optim, name)(params, lr=0.1, **options)
        for step in range(3):
            for n, p in enumerate(params):
                p.grad = numbers(p.dtype, *p.shape, seed=10 * step + n, grad=False)
            optimizer.step()
        return [*params, *[s for state in optimizer.state.values() for s in state.values() if s is not None and s.ndim]]

    for found, expected in zip(*both(call)):
        assert_near(found, expected, 2)
    assert "sgd_step" in used or "adam_step" in used


def test_a_function_of_few_numbers_makes_no_table(monkeypatch):
    monkeypatch.setattr(halves, "_FEWEST", 1 << 20)
    monkeypatch.setattr(halves, "_tables", halves._Tables())
    assert_equal(*both(lambda: everything(tg.bfloat16).expm1()))
    assert not halves._tables.made


def test_only_so_many_tables_are_kept(monkeypatch):
    monkeypatch.setattr(halves, "_tables", halves._Tables())
    monkeypatch.setattr(halves, "_TABLES", 3)
    x = numbers(tg.float16, 300, grad=False)
    for n in range(7):
        assert_equal(*both(lambda n=n: x * (n + 0.5)))
    assert len(halves._tables.made) == 3


@every_dtype
def test_a_compiled_function_multiplies_by_the_number_of_the_call(dtype):
    x = numbers(dtype, 40, 50, grad=False)
    scaled = tg.compile(lambda x, factor: (x * factor).relu())
    for number in (0.5, 0.5, 0.5, 3.0, 0.25):
        factor = tg.tensor(number, dtype=dtype)
        assert_equal(scaled(x, factor), (x.float() * number).to(dtype).relu())


def test_other_numbers_have_other_tables():
    x = numbers(tg.bfloat16, 300, grad=False)
    for number in (0.0, -0.0, float("nan"), 1, True, 1e30):
        assert_equal(*both(lambda n=number: x * n))


@every_dtype
def test_norms_of_images_with_parameters_of_float32(dtype):
    def call():
        x, w, b = numbers(dtype, 6, 8, 9, 10), numbers(tg.float32, 8, seed=1), numbers(tg.float32, 8, seed=2)
        mean, var = tg.zeros(8), tg.ones(8)
        found = []
        for made in (
            F.batch_norm(x, mean, var, w, b, True),
            F.batch_norm(x, mean, var, w, b),
            F.group_norm(x, 4, w, b),
        ):
            found += [made, *tg.autograd.grad(made, (x, w, b), numbers(dtype, *made.shape, seed=5, grad=False))]
        return [*found, mean, var]

    for found, expected in zip(*both(call)):
        assert_near(found, expected, 4)


@every_dtype
@pytest.mark.parametrize("shape", [(6, 8, 9, 10), (40, 8, 11, 13), (30, 8), (5, 8, 7)], ids=str)
@pytest.mark.parametrize("parameters", ["same", "none"])
def test_norms_of_images_with_statistics_in_two_bytes(parameters, shape, dtype):
    def call():
        x = numbers(dtype, *shape)
        given = [] if parameters == "none" else [numbers(dtype, 8, seed=n) for n in (1, 2)]
        mean, var = (t.to(dtype) for t in (tg.zeros(8), tg.ones(8)))
        found = []
        for made in (
            F.batch_norm(x, mean, var, *given, training=True),
            F.batch_norm(x, mean, var, *given),
            F.group_norm(x, 4, *given),
        ):
            slopes = tg.autograd.grad(made, (x, *given), numbers(dtype, *made.shape, seed=5, grad=False))
            found += [made, *slopes]
        return [*found, mean, var]

    for found, expected in zip(*both(call)):
        assert_near(found, expected, 4)


@every_dtype
@pytest.mark.parametrize("padding", [None, 3])
def test_gradients_of_tables(padding, dtype):
    """Every addition is rounded, in the order of the uses."""
    table, index = numbers(dtype, 9, 70), tg.tensor(np.random.default_rng(0).integers(0, 9, 400))

    def call():
        made = F.embedding(index, table, padding_idx=padding)
        return tg.autograd.grad(made, table, numbers(dtype, 400, 70, seed=1, grad=False))[0]

    assert_equal(*both(call))


@every_dtype
@pytest.mark.parametrize(
    "options", [{}, {"is_causal": True}, {"attn_mask": "some"}, {"attn_mask": "added"}, {"scale": 0.3}], ids=str
)
@pytest.mark.parametrize(
    "lengths", [(2, 20), (2, 530), (3, 20), (5, 5), (48, 48), (20, 37), (37, 20), (530, 530)], ids=str
)
def test_attention(lengths, options, dtype, used):
    length, source = lengths
    k, v = (numbers(dtype, 2, 3, source, 20, seed=seed) for seed in (1, 2))
    # Of moderate weights: where one key has all of it, the gradient is what a rounding of the result leaves.
    q = (numbers(dtype, 2, 3, length, 20, grad=False) / 4).requires_grad_()
    if mask := options.get("attn_mask"):
        seen = tg.arange(length * source).reshape(length, source) % 5
        options = {"attn_mask": seen > 0 if mask == "some" else seen.to(dtype)}

    def call():
        made = F.scaled_dot_product_attention(q, k, v, **options)
        return [made, *tg.autograd.grad(made, (q, k, v), numbers(dtype, *made.shape, seed=4, grad=False))]

    for found, expected in zip(*both(call)):
        assert_near(found, expected, 4)
    assert {"half_attention", "attention.backward"} <= used


@every_dtype
def test_attention_reads_parts_of_one_projection(dtype, used):
    x = numbers(dtype, 2, 40, 3 * 64)

    def call():
        parts = (p.reshape(2, 40, 4, 16).transpose(1, 2) for p in x.split(64, 2))
        made = F.scaled_dot_product_attention(*parts, is_causal=True).transpose(1, 2).reshape(2, 40, 64)
        return [made, *tg.autograd.grad(made, x, numbers(dtype, *made.shape, seed=4, grad=False))]

    for found, expected in zip(*both(call)):
        assert found.stride() == expected.stride()
        assert_near(found, expected, 4)
    assert {"half_attention", "attention.backward"} <= used


@every_dtype
@pytest.mark.parametrize("lead, values", [((3,), 16), ((2, 3), 24), ((), 16)], ids=str)
def test_attention_that_pytorch_computes_in_float32(lead, values, dtype, used):
    """Its kernel takes four dimensions, and values as wide as keys."""
    q, k, v = (numbers(dtype, *lead, 33, n, seed=seed) for seed, n in enumerate((16, 16, values)))

    def call():
        made = F.scaled_dot_product_attention(q, k, v)
        return [made, *tg.autograd.grad(made, (q, k, v), numbers(dtype, *made.shape, seed=4, grad=False))]

    for found, expected in zip(*both(call)):
        assert_near(found, expected, 2)
    assert {"attention", "attention.backward"} <= used and "half_attention" not in used


@every_dtype
@pytest.mark.parametrize("length", [1, 20])
def test_attention_to_a_key_that_is_no_number(length, dtype, used):
    q = numbers(dtype, 1, 2, length, 16, grad=False)
    k, v = (numbers(dtype, 1, 2, 20, 16, seed=n, grad=False) for n in (1, 2))
    k[0, 0, 3, 2] = float("nan")
    found, expected = both(lambda: F.scaled_dot_product_attention(q, k, v))
    assert np.array_equal(np.isnan(np.asarray(found.float())), np.isnan(np.asarray(expected.float())))
    assert "half_attention" in used


@every_dtype
@pytest.mark.parametrize("length", [2, 20])
def test_attention_of_a_query_that_sees_no_key_is_zero(length, dtype, used):
    q, k, v = (numbers(dtype, 2, 3, n, 16, seed=seed) for seed, n in enumerate((length, 530, 530)))
    mask = tg.ones(length, 530, dtype=tg.bool)
    mask[1] = False
    mask[0, :512] = False
    made = F.scaled_dot_product_attention(q, k, v, mask)
    assert not made[:, :, 1].any() and made[:, :, 0].any()
    assert not tg.autograd.grad(made, q, made.detach())[0][:, :, 1].any()
    assert_near(*both(lambda: F.scaled_dot_product_attention(q, k, v, mask)), 4)
    assert "half_attention" in used


@pytest.fixture(params=["cheapest", "tiles", "images innermost", "winograd"])
def way(request, monkeypatch):
    """How convolutions are computed, where that way can be taken."""
    plans = (conv._plan, conv._forwards, conv._backwards, conv._correlate_costs, conv._correlation)
    costs = {
        "tiles": ((images, "inf"), (winograd, "inf")), "images innermost": ((images, 0.0), (winograd, "inf")),
        "winograd": ((winograd, -1.0),),
    }  # fmt: skip
    for module, cost in costs.get(request.param, ()):
        for name in ("cost", "convolve_cost", "correlate_cost"):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, lambda *shape, cost=cost: float(cost))
    for plan in plans:
        plan.cache_clear()
    yield request.param
    for plan in plans:
        plan.cache_clear()


def refused(monkeypatch, *ops):
    """Fails if these ops become float32 as a whole."""

    def refuse(op, *given):
        raise AssertionError(f"{op} became float32 as a whole")

    for op in ops:
        monkeypatch.setitem(halves.RULES, op, refuse)


CONVOLUTIONS = {  # the shapes of images and of weights, and options
    "windows": ((3, 5, 19, 23), (9, 5, 3, 3), {"padding": 1}),
    "many channels": ((2, 40, 20, 22), (33, 40, 3, 3), {"padding": (1, 2)}),
    "two results": ((2, 3, 12, 40), (2, 3, 3, 5), {"padding": 2, "dilation": 2}),
    "points": ((3, 24, 8, 16), (10, 24, 1, 1), {}),
    "steps": ((2, 4, 17, 21), (6, 4, 3, 3), {"stride": 2, "padding": 1}),
    "long steps": ((2, 4, 13, 40), (6, 4, 2, 2), {"stride": 3}),
    "many images": ((35, 6, 5, 6), (20, 6, 3, 3), {"padding": 1, "dilation": 2}),
    "one image": ((1, 20, 6, 7), (40, 20, 3, 3), {}),
    "groups": ((4, 6, 9, 9), (12, 2, 3, 3), {"groups": 3}),
    "sounds": ((3, 4, 90), (5, 4, 7), {"stride": 2, "padding": 3}),
}  # fmt: skip


@every_dtype
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions_are_those_in_float32_rounded_once(name, dtype, way, used, monkeypatch):
    refused(monkeypatch, "conv", "conv_grad_input", "conv_grad_weight")
    shape, window, options = CONVOLUTIONS[name]
    function = F.conv1d if len(shape) == 3 else F.conv2d
    given = [numbers(dtype, *s, seed=n) for n, s in enumerate((shape, window, window[:1]))]
    wide = [t.detach().float().requires_grad_() for t in given]
    made, expected = function(*given, **options), function(*wide, **options)
    g = numbers(dtype, *made.shape, seed=4, grad=False)
    found = [made, *tg.autograd.grad(made, given[:2], g)]
    for a, b in zip(found, [expected, *tg.autograd.grad(expected, wide[:2], g.float())], strict=True):
        assert_equal(a.detach(), b.detach().to(dtype))
    assert {"conv", "conv_grad_input", "conv_grad_weight"} <= used


@every_dtype
@pytest.mark.parametrize("stride", [1, 2, 4])
def test_transposed_convolutions_are_those_in_float32_rounded_once(stride, dtype, used, monkeypatch):
    refused(monkeypatch, "conv_transpose")
    x, w, b = (numbers(dtype, *s, seed=n, grad=False) for n, s in enumerate(((3, 9, 7, 18), (9, 5, 3, 3), (5,))))
    expected = F.conv_transpose2d(x.float(), w.float(), b.float(), stride, 1)
    assert_equal(F.conv_transpose2d(x, w, b, stride, 1), expected.to(dtype))
    assert "conv_transpose" in used


@every_dtype
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_convolutions_of_what_is_no_number(value, dtype, way):
    x, w = numbers(dtype, 3, 20, 9, 18, grad=False), numbers(dtype, 33, 20, 3, 3, seed=1, grad=False)
    x[1, 3, 4, 5] = value
    assert_equal(F.conv2d(x, w, padding=1), F.conv2d(x.float(), w.float(), padding=1).to(dtype))


@every_dtype
@pytest.mark.parametrize("options", [(3, 2, 1), (3, 1, 1), (2, 3), (5, 3, 2), ((2, 3), 2, 0, 2)], ids=str)
def test_maxima_of_windows(options, dtype, used, monkeypatch):
    refused(monkeypatch, "max_pool", "max_pool_values")
    x = numbers(dtype, 3, 5, 17, 41, grad=False)
    x[1, 2, 3, 4], x[2, 1, 0] = float("nan"), float("-inf")
    assert_equal(*both(lambda: F.max_pool2d(x, *options)))
    (found, at), (expected, where) = both(lambda: F.max_pool2d(x, *options, return_indices=True))
    assert_equal(found, expected)
    assert np.array_equal(at.numpy(), where.numpy())
    assert {"max_pool", "max_pool_values"} <= used


@every_dtype
def test_layers(dtype):
    def call():
        tg.manual_seed(0)
        x, image = numbers(dtype, 7, 5, 9), numbers(dtype, 3, 4, 12, 10)
        found = []
        for net, given in (
            (tg.nn.LSTM(9, 21), x), (tg.nn.GRU(9, 21), x[:, :2]), (tg.nn.RNN(9, 21), x[:, :2]),
            (tg.nn.Conv2d(4, 6, 3, padding=1), image), (tg.nn.ConvTranspose2d(4, 6, 3), image),
            (tg.nn.MaxPool2d(2), image), (tg.nn.MaxPool2d(3, 2, 1), image), (tg.nn.AvgPool2d(2), image),
        ):  # fmt: skip
            net.to(dtype)
            made = net(given)
            made = made[0] if isinstance(made, tuple) else made
            leaves = [x if given is not image else image, *net.parameters()]
            found += [made, *tg.autograd.grad(made, leaves, numbers(dtype, *made.shape, seed=6, grad=False))]
        return found

    for found, expected in zip(*both(call)):
        assert_near(found, expected, 8)
