"""Normalisations and losses over classes on the GPU, forward and backward, against torch in double precision."""

import numpy as np
import pytest

import tensorgrad

torch = pytest.importorskip("torch")
LIMITS = {"float32": 3e-5, "float64": 1e-11, "float16": 4e-3, "bfloat16": 3e-2}


def compare(call, dtype, *hosts, mixed=False, arrange=lambda x: x):
    """Results and gradients of `call(framework, *tensors)`; `mixed`: all but the first are float32."""
    limit = LIMITS[dtype]
    ours, theirs = [], []
    for i, host in enumerate(hosts):
        name = "float32" if mixed and i else dtype
        ours.append(None if host is None else tensorgrad.tensor(host).to(getattr(tensorgrad, name)).to("cuda").detach())
        theirs.append(None if host is None else torch.tensor(host).to(getattr(torch, name)).double())
    ours[0] = arrange(ours[0])
    for t in (*ours, *theirs):
        if t is not None:
            t.requires_grad_()
    got, want = call(tensorgrad, *ours), call(torch, *theirs)
    assert got.dtype is ours[0].dtype and got.shape == want.shape
    g = np.random.default_rng(9).standard_normal(tuple(want.shape))
    want.backward(torch.tensor(g).to(getattr(torch, dtype)).double())
    got.backward(tensorgrad.tensor(g).to(getattr(tensorgrad, dtype)).to("cuda"))
    pairs = [(got.detach(), want.detach()), *((a.grad, b.grad) for a, b in zip(ours, theirs) if b is not None)]
    for result, expected in pairs:
        size = max(expected.abs().max().item(), 1e-3)
        away = np.abs(np.asarray(result.cpu().double().tolist()) - expected.numpy())
        assert away.max() <= limit * size, (away.max(), size)


def normal(*shape):
    return np.random.default_rng(len(shape) + sum(shape)).standard_normal(shape) * 2 + 1


# --- over the last dimensions ---------------------------------------------------------------------------------------


# A warp to a row, a block to a row, rows that lie in no packs, and rows too long to hold.
ROWS = [(5, 7), (3, 4, 64), (40, 512), (3, 1030), (2, 5000), (2, 4099), (2, 20000)]


@pytest.mark.parametrize("shape", ROWS)
@pytest.mark.parametrize("name", ["layer_norm", "rms_norm"])
def test_over_rows(name, shape):
    def call(framework, x, *parameters):
        return getattr(framework.nn.functional, name)(x, shape[-1:], *parameters)

    parameters = [normal(shape[-1]), normal(shape[-1])[::-1].copy()][: 2 if name == "layer_norm" else 1]
    compare(call, "float32", normal(*shape), *parameters)
    compare(call, "float32", normal(*shape))


@pytest.mark.parametrize(
    "dtype, mixed", [("float64", False), ("float16", False), ("bfloat16", False), ("bfloat16", True)]
)
def test_dtypes_of_layer_norm(dtype, mixed):
    def call(framework, x, weight, bias):
        if framework is torch:
            return torch.nn.functional.layer_norm(x, (4, 32), weight.to(x.dtype), bias.to(x.dtype))
        return tensorgrad.nn.functional.layer_norm(x, (4, 32), weight, bias)

    compare(call, dtype, normal(6, 4, 32), normal(4, 32), normal(4, 32), mixed=mixed)


def test_layer_norm_of_a_view_and_of_large_numbers():
    def call(framework, x):
        return framework.nn.functional.layer_norm(x.transpose(0, 1)[:, ::2], (12,))

    compare(call, "float32", normal(24, 6))
    far = normal(4, 256) + 1000
    got = tensorgrad.nn.functional.layer_norm(tensorgrad.tensor(far, dtype=tensorgrad.float32, device="cuda"), (256,))
    want = torch.nn.functional.layer_norm(torch.tensor(far).float().double(), (256,))
    assert np.abs(np.asarray(got.cpu().tolist()) - want.numpy()).max() < 1e-3


# --- per channel ----------------------------------------------------------------------------------------------------


CHANNELS = [(5, 7), (300, 40), (3, 4, 64), (3, 8, 5, 5), (2, 4, 100, 130), (4, 6, 3)]


@pytest.mark.parametrize("shape", CHANNELS)
def test_batch_norm(shape):
    weight, bias = normal(shape[1]), normal(shape[1])[::-1].copy()

    def call(framework, x, *parameters):
        return framework.nn.functional.batch_norm(x, None, None, *parameters, training=True)

    compare(call, "float32", normal(*shape), weight, bias)
    compare(call, "float32", normal(*shape))
    if len(shape) == 4:
        last = lambda x: x.contiguous(memory_format=tensorgrad.channels_last)
        compare(call, "float32", normal(*shape), weight, bias, arrange=last)


@pytest.mark.parametrize("shape", CHANNELS[1:4])
def test_batch_norm_by_running_statistics(shape):
    mean, var = normal(shape[1]), np.abs(normal(shape[1])) + 0.5

    def call(framework, x, *parameters):
        kept = [framework.tensor(v, dtype=x.dtype).to(x.device) for v in (mean, var)]
        return framework.nn.functional.batch_norm(x, *kept, *parameters, training=False)

    compare(call, "float32", normal(*shape), normal(shape[1]), normal(shape[1]))
    x, weight = normal(*shape), normal(shape[1])  # without gradients: a kernel of its own
    found = call(tensorgrad, *(tensorgrad.tensor(a, device="cuda") for a in (x, weight)))
    expected = call(torch, torch.tensor(x), torch.tensor(weight))
    np.testing.assert_allclose(found.cpu().numpy(), expected.numpy(), rtol=1e-5, atol=1e-5)


def test_batch_norm_moves_running_statistics():
    ours, theirs = tensorgrad.nn.BatchNorm2d(4).to("cuda"), torch.nn.BatchNorm2d(4)
    for seed in range(3):
        x = np.random.default_rng(seed).standard_normal((3, 4, 5, 5)).astype(np.float32)
        ours(tensorgrad.tensor(x, device="cuda"))
        theirs(torch.tensor(x))
    for name in ("running_mean", "running_var"):
        assert np.allclose(getattr(ours, name).cpu().numpy(), getattr(theirs, name).numpy(), atol=1e-6)


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
@pytest.mark.parametrize("name", ["batch", "group"])
def test_dtypes_of_norms_per_channel(name, dtype):
    def call(framework, x, weight, bias):
        if name == "batch":
            return framework.nn.functional.batch_norm(x, None, None, weight, bias, training=True)
        return framework.nn.functional.group_norm(x, 2, weight, bias)

    compare(call, dtype, normal(4, 8, 6, 4), normal(8), normal(8))


@pytest.mark.parametrize("shape, groups", [((3, 8, 5, 5), 2), ((3, 8, 5, 5), 8), ((2, 12), 3), ((2, 4, 64, 80), 1)])
def test_group_norm(shape, groups):
    def call(framework, x, *parameters):
        return framework.nn.functional.group_norm(x, groups, *parameters)

    compare(call, "float32", normal(*shape), normal(shape[1]), normal(shape[1]))
    compare(call, "float32", normal(*shape))


# --- softmax ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "shape, dim", [((5, 7), 1), ((40, 512), 1), ((3, 2050), 1), ((2, 20001), 1), ((4, 9, 33), 1), ((), 0)]
)
@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_softmax(name, shape, dim):
    compare(lambda framework, x: getattr(framework, name)(x, dim), "float32", normal(*shape))


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
def test_dtypes_of_softmax(dtype):
    for dim in (0, 1):
        compare(lambda framework, x: framework.softmax(x.transpose(0, 1), dim), dtype, normal(30, 24))


@pytest.mark.parametrize("width", [3, 20000])
def test_softmax_of_infinity(width):
    rows = np.zeros((4, width), np.float32)
    rows[0, 1], rows[1], rows[2, :2], rows[3, 0] = np.inf, -np.inf, -np.inf, np.nan
    for call in ("softmax", "log_softmax"):
        for dim in (1, 0):
            host = rows if dim else np.ascontiguousarray(rows.T)
            got = getattr(tensorgrad, call)(tensorgrad.from_numpy(host).to("cuda"), dim).cpu().numpy()
            want = getattr(torch, call)(torch.from_numpy(host), dim).numpy()
            assert np.allclose(got, want, equal_nan=True, rtol=1e-5)


# --- losses over classes --------------------------------------------------------------------------------------------


# A row to a warp, to a block, classes apart in memory, and one row without a batch.
LOGITS = [(5, 7), (70, 10), (4, 1003), (3, 5000), (3, 8, 5, 5), (2, 4, 100), (6,)]


def target_of(framework, shape, ignored=True):
    classes = shape[1] if len(shape) > 1 else shape[0]
    lead = (shape[0], *shape[2:]) if len(shape) > 1 else ()
    values = np.random.default_rng(3).integers(0, classes, lead)
    if ignored and lead:
        values.reshape(-1)[::4] = -1
    return framework.tensor(values)


@pytest.mark.parametrize("shape", LOGITS)
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_cross_entropy(shape, reduction):
    classes = shape[1] if len(shape) > 1 else shape[0]
    weights = np.random.default_rng(4).random(classes)

    def call(framework, x, weighted, smoothing):
        weight = framework.tensor(weights, dtype=x.dtype).to(x.device) if weighted else None
        return framework.nn.functional.cross_entropy(
            x, target_of(framework, shape).to(x.device), weight, reduction=reduction, ignore_index=-1,
            label_smoothing=smoothing,
        )  # fmt: skip

    for weighted in (False, True):
        for smoothing in (0.0, 0.1):
            compare(lambda framework, x: call(framework, x, weighted, smoothing), "float32", normal(*shape))


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
def test_dtypes_of_cross_entropy(dtype):
    for shape in ((30, 1003), (3, 8, 20)):
        compare(
            lambda f, x: f.nn.functional.cross_entropy(x, target_of(f, shape).to(x.device), ignore_index=-1),
            dtype, normal(*shape),
        )  # fmt: skip


@pytest.mark.parametrize("shape", LOGITS)
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_nll(shape, reduction):
    def call(framework, x):
        target = target_of(framework, shape).to(x.device)
        return framework.nn.functional.nll_loss(x, target, reduction=reduction, ignore_index=-1)

    compare(call, "float32", normal(*shape))


def test_cross_entropy_at_the_edges():
    inf = float("inf")
    rows = [[1.0, inf, 0.0], [-inf, -inf, 0.0], [0.0, float("nan"), 0.0], [1e4, -1e4, 0.0], [-inf, -inf, -inf]]
    for framework in (tensorgrad, torch):
        x = framework.tensor(rows)
        x = x.to("cuda") if framework is tensorgrad else x
        target = framework.tensor([0, 2, 0, 0, 1]).to(x.device)
        loss = framework.nn.functional.cross_entropy(x, target, reduction="none").tolist()
        assert np.allclose(loss, [np.nan, 0, np.nan, 0, np.nan], equal_nan=True)


def test_everything_ignored():
    x = tensorgrad.ones(4, 3, device="cuda", requires_grad=True)
    target = tensorgrad.full((4,), -100, device="cuda")
    loss = tensorgrad.nn.functional.cross_entropy(x, target)
    loss.backward()
    assert np.isnan(loss.item()) and not x.grad.any()


def test_a_class_that_does_not_exist_gives_nan_and_reads_nothing():
    x = tensorgrad.ones(3, 4, device="cuda", requires_grad=True)
    loss = tensorgrad.nn.functional.cross_entropy(x, tensorgrad.tensor([1, 4, -3], device="cuda"), reduction="none")
    loss.sum().backward()
    values = loss.tolist()
    assert np.isclose(values[0], np.log(4)) and np.isnan(values[1:]).all()
    assert not x.grad[1:].any()


def test_second_derivatives_of_cross_entropy():
    grads = []
    for framework in (tensorgrad, torch):
        x = framework.tensor(normal(4, 6)).to("cuda" if framework is tensorgrad else "cpu").requires_grad_()
        loss = framework.nn.functional.cross_entropy(x, framework.tensor([0, 1, 2, 3]).to(x.device))
        (first,) = framework.autograd.grad(loss, x, create_graph=True)
        (second,) = framework.autograd.grad((first * first).sum(), x)
        grads.append(np.asarray(second.cpu().tolist()))
    assert np.allclose(*grads, atol=1e-12)


def test_no_step_waits_for_the_gpu(nothing_copied):
    x = tensorgrad.randn(40, 12, device="cuda", requires_grad=True)
    target = tensorgrad.zeros(40, dtype=tensorgrad.int64, device="cuda")
    norm = tensorgrad.nn.LayerNorm(12).to("cuda")
    with nothing_copied():
        loss = tensorgrad.nn.functional.cross_entropy(norm(tensorgrad.nn.functional.gelu(x)), target)
        loss.backward()
    assert x.grad.shape == x.shape


@pytest.mark.parametrize("parameters", ["half", "float32", "none"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("name", ["layer_norm", "group_norm", "batch_norm", "running", "rms_norm"])
def test_what_norms_keep_is_the_same_on_every_device(name, dtype, parameters):
    """What a node saves depends on its op and its inputs, never on the kernel that served."""
    F = tensorgrad.nn.functional

    def kept(device):
        x = tensorgrad.ones(2, 4, 3, 8, dtype=getattr(tensorgrad, dtype), device=device, requires_grad=True)
        n = 8 if name in ("layer_norm", "rms_norm") else 4
        w, b = (tensorgrad.ones(n, dtype=x.dtype if parameters == "half" else tensorgrad.float32, device=device),) * 2
        w, b = (None, None) if parameters == "none" else (w, b)
        calls = {
            "layer_norm": lambda: F.layer_norm(x, (8,), w, b),
            "rms_norm": lambda: F.rms_norm(x, (8,), w),
            "group_norm": lambda: F.group_norm(x, 2, w, b),
            "batch_norm": lambda: F.batch_norm(x, None, None, w, b, training=True),
            "running": lambda: F.batch_norm(x, tensorgrad.zeros_like(x[0, :, 0, 0]), x[0, :, 0, 0].detach(), w, b),
        }
        saved = []
        with tensorgrad.autograd.graph.saved_tensors_hooks(lambda t: saved.append((t.shape, t.dtype)), lambda t: t):
            calls[name]()
        return saved

    assert kept("cuda") == kept("cpu") == kept("meta")
