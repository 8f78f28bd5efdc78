"""Quantized tensors and fake quantization, compared with PyTorch."""

import copy
import io
import pickle

import numpy as np
import pytest

import tensorgrad
from tests.support.alike import HAS_TORCH, alike, error

VALUES = [-30.0, -1.3, -0.25, -0.05, 0.05, 0.15, 0.25, 0.35, 0.5, 0.75, 1.26, 5.0, 300.0, 1e9, -1e9]


def described(q):
    """What can be known of a quantized tensor."""
    one = str(q.qscheme()).endswith("per_tensor_affine")
    params = (q.q_scale(), q.q_zero_point()) if one else (
        q.q_per_channel_scales(), q.q_per_channel_zero_points(), q.q_per_channel_axis())  # fmt: skip
    return [str(q.dtype), q.int_repr(), q.dequantize(), str(q.qscheme()), *params, q.is_quantized, q.requires_grad,
            list(q.shape), list(q.stride()), str(q.layout), q.element_size(), repr(q)]  # fmt: skip


@alike
def test_one_scale(torch):
    x = torch.tensor(VALUES).reshape(3, 5)
    return [
        described(torch.quantize_per_tensor(x if dtype != "qint32" else x[:2], scale, zero, getattr(torch, dtype)))
        for scale in (0.1, 0.5, 0.0137)
        for dtype, zero in (("quint8", 0), ("quint8", 255), ("qint8", -128), ("qint8", 7), ("qint32", 1000))
    ]


@alike
def test_a_scale_for_each_channel(torch):
    x = torch.tensor(VALUES).reshape(3, 5)
    made = []
    for axis in (0, 1):
        scales, zeros = torch.arange(1, x.shape[axis] + 1) / 7, torch.arange(x.shape[axis])
        for dtype in (torch.quint8, torch.qint8):
            made.append(described(torch.quantize_per_channel(x, scales, zeros, axis, dtype)))
        made.append(
            described(torch.quantize_per_channel(x.clamp(-300, 300), scales, zeros.float() + 0.3, axis, torch.quint8))
        )
    return made


@alike
def test_the_scale_is_chosen(torch):
    rows = [[-1.0, 2.0], [0.0, 1.0], [-3.0, -1.0], [4.0, 7.0], [0.0, 0.0], [1e-6, 2e-6], [-1e-6, 1e-7], [-8.0, 8.0]]
    return [
        [q.q_scale(), q.q_zero_point(), q.int_repr()]
        for row in rows
        for dtype in (torch.quint8, torch.qint8)
        for reduce_range in (False, True)
        for q in [torch.quantize_per_tensor_dynamic(torch.tensor(row), dtype, reduce_range)]
    ]


@alike
def test_views_copies_and_comparisons(torch):
    q = torch.quantize_per_tensor(torch.tensor(VALUES).reshape(3, 5), 0.5, 10, torch.quint8)
    c = torch.quantize_per_channel(torch.ones(2, 3), torch.tensor([0.1, 0.2]), torch.tensor([0, 3]), 0, torch.qint8)
    shown = [
        q[0],
        q[1:, 2],
        q.t(),
        q.reshape(-1),
        q.permute(1, 0),
        q.unsqueeze(0),
        q.clone(),
        q.detach(),
        q.contiguous(),
        q.relu(),
        torch.relu(q),
        q.flatten(),
        q.view(5, 3),
        q.cpu(),
        q.to("cpu"),
        q.data,
        q.select(1, 2),
    ]
    row = q[1]
    other = torch.quantize_per_tensor(torch.zeros(5), 0.5, 10, torch.quint8)
    row.copy_(other)  # a view: the memory is q's
    return [*map(described, shown), described(c.clone()), described(c.detach()), q.int_repr(), q == q, q < other,
            torch.ones(2).dequantize(), torch.ones(2).is_quantized]  # fmt: skip


@alike
def test_what_is_refused(torch):
    per, q = torch.quantize_per_tensor, torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8)
    c = torch.quantize_per_channel(torch.ones(2, 3), torch.tensor([0.1, 0.2]), torch.tensor([0, 3]), 0, torch.qint8)
    kind = lambda call, *args: error(call, *args).partition(":")[0]
    return [
        error(per, torch.ones(2).double(), 0.1, 0, torch.qint8), error(per, torch.ones(2), 0.1, 1000, torch.qint8),
        error(per, torch.ones(2), 0.1, 0, torch.int8), kind(lambda: q + q), kind(lambda: c.q_scale()), kind(q.numpy),
        kind(lambda: torch.ones(2).q_scale()), kind(lambda: torch.ones(2).int_repr()), kind(q.float),
        kind(lambda: c.t()),
        kind(lambda: q.requires_grad_()), kind(lambda: torch.zeros(2).to(torch.qint8)),
        kind(lambda: q.q_per_channel_axis()),
    ]  # fmt: skip


def two(torch):
    x = torch.arange(12.0).reshape(3, 4) - 5
    scales = torch.tensor([0.1, 0.2, 0.5])
    return [torch.quantize_per_tensor(x, 0.1, 10, torch.quint8).t(),
            torch.quantize_per_channel(x, scales, torch.tensor([0, 3, 5]), 0, torch.qint8)]  # fmt: skip


@pytest.mark.parametrize(
    "written, read", [("tensorgrad", "tensorgrad"), ("tensorgrad", "torch"), ("torch", "tensorgrad")]
)
def test_files(written, read):
    """Either library reads what the other wrote, with weights_only."""
    libraries = {"tensorgrad": tensorgrad}
    if "torch" in (written, read):
        libraries["torch"] = pytest.importorskip("torch")
    file = io.BytesIO()
    libraries[written].save(two(libraries[written]), file)
    file.seek(0)
    for a, b in zip(libraries[read].load(file, weights_only=True), two(tensorgrad), strict=True):
        assert a.int_repr().tolist() == b.int_repr().tolist()
        assert a.dequantize().tolist() == b.dequantize().tolist() and str(a.qscheme()) == str(b.qscheme())


def test_copies():
    for q in two(tensorgrad):
        for other in (copy.deepcopy(q), pickle.loads(pickle.dumps(q)), copy.copy(q)):
            assert other.int_repr().tolist() == q.int_repr().tolist() and other.qscheme() == q.qscheme()


def test_a_broken_file_makes_no_quantized_tensor():
    from tensorgrad.serialization.tables import REBUILD

    make, storage = REBUILD["torch._utils._rebuild_qtensor"], tensorgrad.zeros(4, dtype=tensorgrad.int8).storage()
    scheme = tensorgrad.per_tensor_affine
    assert make(storage, 0, (4,), (1,), (scheme, 0.1, 0), False, None).is_quantized
    three = tensorgrad.ones(3)
    for params in (None, (scheme,), (scheme, "a", 0), (scheme, three, three, 0), (scheme, three, three, 5)):
        with pytest.raises(ValueError):
            make(storage, 0, (4,), (1,), params, False, None)
    with pytest.raises(ValueError):
        make(storage, 1, (4,), (1,), (scheme, 0.1, 0), False, None)


# --- fake quantization ---------------------------------------------------------------------------------------------


@alike
def test_fake_quantization_of_a_tensor(torch):
    made = []
    for scale, zero, low, high in ((0.5, 1, -3, 7), (0.1, 0, -128, 127), (0.013, 128, 0, 255)):
        for given in ((scale, zero), (torch.tensor(scale), torch.tensor(zero, dtype=torch.int32))):
            x = torch.tensor([*VALUES, float("nan")], requires_grad=True)
            y = torch.fake_quantize_per_tensor_affine(x, *given, low, high)
            y.backward(torch.arange(1.0, 17.0))
            made += [y, x.grad, y.grad_fn.name()]
    return made


@alike
def test_fake_quantization_of_channels(torch):
    made = []
    for axis in (0, 1):
        x = torch.tensor(VALUES).reshape(3, 5).requires_grad_()
        scales, zeros = torch.arange(1, x.shape[axis] + 1) / 7, torch.arange(x.shape[axis], dtype=torch.int32)
        y = torch.fake_quantize_per_channel_affine(x, scales, zeros, axis, -4, 7)
        y.backward(torch.arange(1.0, 16.0).reshape(3, 5))
        made += [
            y,
            x.grad,
            y.grad_fn.name(),
            torch.fake_quantize_per_channel_affine(x, scales, zeros + 0.25, axis, -4, 7),
        ]
    return made


@alike
def test_learnable_fake_quantization(torch):
    made = []
    values = torch.tensor(VALUES[:12]).reshape(3, 4)
    g = torch.arange(1.0, 13.0).reshape(3, 4)
    for factor in (1.0, 0.25):
        x, scale, zero = (t.requires_grad_() for t in (values.clone(), torch.tensor([0.15]), torch.tensor([1.0])))
        y = torch._fake_quantize_learnable_per_tensor_affine(x, scale, zero, -8, 7, factor)
        y.backward(g)
        made += [y, x.grad, scale.grad, zero.grad, y.grad_fn.name()]
        for axis in (0, 1):
            n = values.shape[axis]
            x, scale, zero = (t.requires_grad_() for t in (values.clone(), torch.arange(1, n + 1) / 7, torch.zeros(n)))
            y = torch._fake_quantize_learnable_per_channel_affine(x, scale, zero, axis, -8, 7, factor)
            y.backward(g)
            made += [y, x.grad, scale.grad, zero.grad]
    return made


@alike
def test_fake_quantization_refuses(torch):
    x, call = torch.ones(2, 3), torch.fake_quantize_per_tensor_affine
    channels = torch.fake_quantize_per_channel_affine
    ints = lambda *v: torch.tensor(v, dtype=torch.int32)
    return [
        error(call, x, 0.5, 100, -3, 7), error(call, x, 0.5, 1, 8, 7), str(call(x.double(), 0.5, 1, -3, 7).dtype),
        str(call(x.half(), 0.5, 1, -3, 7).dtype), error(channels, x, torch.ones(2), ints(0, 0), 1, 0, 7),
        error(channels, x, torch.ones(2), ints(0, 0).long(), 0, 0, 7),
        error(channels, x, torch.ones(2), ints(9, 0), 0, 0, 7),
    ]  # fmt: skip


@pytest.mark.skipif(not HAS_TORCH, reason="torch is not installed")
@pytest.mark.parametrize("seed", range(20))
def test_random_scales_and_zero_points_give_torchs_integers(seed):
    import torch

    random = np.random.default_rng(seed)
    x = (random.standard_normal((7, 5)) * 10.0 ** random.integers(-3, 4)).astype(np.float32)
    dtype = ["qint8", "quint8", "qint32"][seed % 3]
    low = {"qint8": -128, "quint8": 0, "qint32": -1000}[dtype]
    scale, zero = float(10.0 ** random.uniform(-4, 3)), int(random.integers(low, low + 256))
    scales, zeros = 10.0 ** random.uniform(-4, 3, 5), random.integers(low, low + 256, 5)
    found = []
    for t in (tensorgrad, torch):
        value = t.from_numpy(x)
        found.append([
            t.quantize_per_tensor(value, scale, zero, getattr(t, dtype)).int_repr().numpy(),
            t.quantize_per_channel(value, t.from_numpy(scales), t.from_numpy(zeros), 1, getattr(t, dtype))
            .int_repr().numpy(),
        ])  # fmt: skip
    for a, b in zip(*found, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.skipif(not HAS_TORCH, reason="torch is not installed")
@pytest.mark.parametrize("zero", [0, 7, 64])
def test_values_halfway_between_integers_give_torchs_integers(zero):
    """Where the last bit of a product decides."""
    import torch

    for seed in range(200):
        high = np.float32(np.random.default_rng(seed).uniform(0.1, 3))
        scale = float(high / np.float32(127 if zero else 255) * 2)
        x = np.linspace(-high, high, 16, dtype=np.float32)
        x[3:11] = (np.arange(8, dtype=np.float32) - 3.5) * np.float32(scale)
        found = [
            t.quantize_per_tensor(t.from_numpy(x), scale, zero, t.quint8).int_repr().tolist()
            for t in (tensorgrad, torch)
        ]
        assert found[0] == found[1], (seed, scale, zero)
