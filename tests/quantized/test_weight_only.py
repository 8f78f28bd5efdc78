"""Weights of 8 and 4 bits: products, gradients, modules, and the files that they are kept in."""

import copy
import io
import pickle

import numpy as np
import pytest

import tensorgrad as torch
from tensorgrad.kernels.compiled import table
from tensorgrad.ops.nn.small_weights import int4_linear, int4_weights, int8_linear, int8_weights, packed_int4
from tests.support.alike import alike, error
from tests.support.compare import assert_close
from tests.support.kernels import absent, load_kernels, numpy_only, record_used

nn = torch.nn
ROWS = [row for row in table.ROWS if row.kernel.startswith("quantized.")]
SIZES = [(1, 64, 128), (1, 37, 130), (3, 8, 1024), (8, 19, 300), (9, 65, 257), (40, 512, 64), (2, 3, 16)]


def drawn(rows, columns, depth, group=0):
    """Returns an input, stored weights, scales, zeros, a bias, and the weights as numbers of float64."""
    random = np.random.default_rng(rows * columns + depth)
    x, bias = random.standard_normal((rows, depth)), random.standard_normal(columns)
    if not group:
        stored, scales, zeros = random.integers(-128, 128, (columns, depth)), random.random(columns) + 0.1, None
        numbers = stored * scales[:, None]
    else:
        groups = -(-depth // group)
        stored = random.integers(0, 16, (columns, groups * group))
        scales, zeros = random.random((columns, groups)) + 0.1, random.standard_normal((columns, groups))
        numbers = (stored.reshape(columns, groups, group) - 8) * scales[:, :, None] + zeros[:, :, None]
        numbers = numbers.reshape(columns, -1)[:, :depth]
    tensors = [torch.from_numpy(a.astype(np.float32)) for a in (x, scales, bias)]
    zeros = None if zeros is None else torch.from_numpy(zeros.astype(np.float32))
    return tensors[0], torch.from_numpy(stored), tensors[1], zeros, tensors[2], numbers


def check(product, expected):
    """Compares what the compiled kernel and NumPy's compute with the numbers; relative to the largest of them."""
    found = [product()]
    with numpy_only():
        found.append(product())
    for each in found:
        assert_close(each.numpy() / np.abs(expected).max(), expected / np.abs(expected).max(), atol=2e-6)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_int8_products(size, bias):
    x, stored, scales, _, b, numbers = drawn(*size)
    weight, b = stored.to(torch.int8), b if bias else None
    expected = x.double().numpy() @ numbers.T + (0 if b is None else b.double().numpy())
    check(lambda: int8_linear(x, weight, scales, b), expected)
    check(lambda: int8_linear(x.reshape(1, *x.shape), weight, scales, b)[0], expected)
    check(lambda: int8_weights(weight, scales), numbers)


@pytest.mark.parametrize("with_zeros", [True, False])
@pytest.mark.parametrize("group", [32, 64, 128])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_int4_products(size, group, with_zeros):
    x, stored, scales, zeros, b, numbers = drawn(*size, group)
    if not with_zeros:
        numbers = numbers - np.repeat(zeros.double().numpy(), group, 1)[:, : numbers.shape[1]]
        zeros = None
    packed = packed_int4(stored)
    check(lambda: int4_linear(x, packed, scales, zeros, b), x.double().numpy() @ numbers.T + b.double().numpy())
    check(lambda: int4_weights(packed, scales, zeros)[:, : x.shape[1]], numbers)


@pytest.mark.skipif(bool(absent()), reason=absent())
def test_which_sizes_the_compiled_kernels_compute(monkeypatch):
    load_kernels(ROWS)
    used = record_used(monkeypatch, ROWS)
    for rows in (1, 40):
        x, stored, scales, _, b, _ = drawn(rows, 64, 128)
        int8_linear(x, stored.to(torch.int8), scales, b)
        x, stored, scales, zeros, b, _ = drawn(rows, 64, 128, 32)
        int4_linear(x, packed_int4(stored), scales, zeros, b)
    assert used == {"int8_linear", "int4_linear", "int8_weights", "int4_weights"}


@pytest.mark.skipif(bool(absent()), reason=absent())
def test_a_row_has_the_same_bits_alone_and_among_others():
    x, stored, scales, zeros, b, _ = drawn(8, 72, 320, 64)
    packed, eight = packed_int4(stored), stored.to(torch.int8)[:, :313].contiguous()
    products = [
        lambda x: int4_linear(x, packed, scales, zeros, b),
        lambda x: int4_linear(x, packed, scales, None, b),
        lambda x: int8_linear(x[:, :313].contiguous(), eight, scales[:, 0].contiguous(), b),
        *(lambda x, d=d: nn.functional.linear(x[:, :313].to(d), eight.to(d)) for d in (torch.bfloat16, torch.float16)),
    ]
    for product in products:
        alone = torch.cat([product(x[n : n + 1]) for n in range(6)])
        for rows in range(2, 7):  # as many as float16 takes as few
            assert torch.equal(product(x[:rows]), alone[:rows])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_other_floating_point_types(dtype):
    x, stored, scales, _, _, numbers = drawn(3, 64, 128)
    expected = x.double().numpy() @ numbers.T
    found = int8_linear(x.to(dtype), stored.to(torch.int8), scales)
    assert found.dtype is dtype
    close = 2e-2 if dtype is torch.bfloat16 else 2e-3
    assert_close(found.double().numpy() / np.abs(expected).max(), expected / np.abs(expected).max(), atol=close)


@pytest.mark.parametrize("bits", [8, 4])
def test_gradients(bits):
    x, stored, scales, zeros, b, _ = drawn(5, 12, 96, 0 if bits == 8 else 32)
    x, b = x.double().requires_grad_(), b.double().requires_grad_()
    if bits == 8:
        product = lambda x, b: int8_linear(x, stored.to(torch.int8), scales.double(), b)
    else:
        product = lambda x, b: int4_linear(x, packed_int4(stored), scales.double(), zeros.double(), b)
    assert torch.autograd.gradcheck(product, (x, b))
    assert torch.autograd.gradgradcheck(product, (x, b))
    batches = torch.stack([x.detach(), x.detach() * 2])
    found = torch.vmap(lambda x: product(x, b.detach()))(batches)
    assert_close(found[1].detach().numpy(), product(x * 2, b).detach().numpy(), atol=1e-12)


def test_what_does_not_fit_is_refused():
    x, w, s = torch.ones(2, 32), torch.ones(4, 32, dtype=torch.int8), torch.ones(4)
    packed = packed_int4(torch.ones(4, 32, dtype=torch.int32))
    for wrong in (
        lambda: int8_linear(x[:, :31], w, s), lambda: int8_linear(x, w.float(), s), lambda: int8_linear(x, w, s[:3]),
        lambda: int8_linear(x, w, s, torch.ones(3)), lambda: int8_linear(x.long(), w, s),
        lambda: int4_linear(x, packed, s), lambda: int4_linear(torch.ones(2, 33), packed, s.reshape(4, 1)),
        lambda: int4_linear(x, packed, s.reshape(4, 1), torch.ones(4, 2)),
        lambda: int4_linear(x, packed, torch.ones(4, 3)),
    ):  # fmt: skip
        with pytest.raises(RuntimeError, match=r"int[48]_linear: "):
            wrong()
    meta = int8_linear(x.to("meta"), w.to("meta"), s.to("meta"))
    assert meta.shape == (2, 4) and meta.is_meta


# --- PyTorch's names -----------------------------------------------------------------------------------------------


@alike
def test_int8pack_mm(torch):
    x, w = torch.randn(3, 64), torch.arange(-32 * 32, 32 * 32).remainder(255).sub(127).reshape(32, 64).to(torch.int8)
    scales = torch.arange(32) / 1000
    call = torch._weight_int8pack_mm
    return (
        call(x, w, scales), call(x[:1], w, scales), str(call(x.half(), w, scales.half()).dtype),
        error(call, x, w.float(), scales), error(call, x, w, scales[:3]), error(call, x, w, scales.double()),
        error(call, x[:, :5].contiguous(), w, scales), error(call, x.double(), w, scales),
    )  # fmt: skip


@alike
def test_int4pack_mm(torch):
    made = []
    for rows, group in ((16, 32), (32, 64), (48, 128), (64, 32), (80, 32), (128, 256)):
        stored = torch.arange(rows * 256).mul(7).remainder(16).reshape(rows, 256).int()
        packed = torch._convert_weight_to_int4pack_for_cpu(stored, 2)
        x = torch.arange(3 * 256).remainder(11).sub(5).reshape(3, 256).float() / 4
        scales = torch.arange(256 // group * rows * 2).remainder(13).reshape(256 // group, rows, 2).float() / 8
        made += [list(packed.shape), torch._weight_int4pack_mm_for_cpu(x, packed, group, scales)]
    pack, call = torch._convert_weight_to_int4pack_for_cpu, torch._weight_int4pack_mm_for_cpu
    made += [error(pack, stored.to(torch.int8), 2), error(pack, stored[:5], 2), error(pack, stored[:, :5], 2)]
    return [*made, error(call, x, packed, 16, scales), error(call, x.double(), packed, 256, scales),
            error(call, x, packed.int(), 256, scales)]  # fmt: skip


# --- models --------------------------------------------------------------------------------------------------------

KINDS = [("int8", {}), ("int4", {"group": 32}), ("int4", {"group": 64, "symmetric": False})]
kinds = pytest.mark.parametrize("dtype, options", KINDS, ids=["int8", "int4", "int4 with zeros"])


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Embedding(50, 96), nn.Linear(96, 128), nn.GELU(), nn.Linear(128, 10, bias=False))


TOKENS = torch.arange(12).reshape(2, 6)


@kinds
def test_a_quantized_model_computes_nearly_the_same_with_fewer_bytes(dtype, options):
    exact = model()
    small = torch.quantize(model(), dtype, **options)
    assert [type(m).__name__.lower().removeprefix(dtype) for m in small] == ["embedding", "linear", "gelu", "linear"]
    for a, b in zip(exact, small, strict=True):
        if hasattr(b, "dequantize"):
            step = (b.scales.max() * (0.51 if b.weight.dtype is torch.int8 else 0.53)).item()
            assert (a.weight - b.dequantize()).abs().max().item() <= step
    assert (exact(TOKENS) - small(TOKENS)).abs().max().item() < (0.02 if dtype == "int8" else 0.2)
    size = lambda m: sum(t.nbytes for t in m.state_dict().values())
    assert size(small) < size(exact) * (0.28 if dtype == "int8" else 0.22)


@kinds
def test_copies_and_files_of_a_quantized_model(dtype, options, tmp_path):
    small = torch.quantize(model(), dtype, **options)
    expected = small(TOKENS)
    file = io.BytesIO()
    torch.save(small.state_dict(), file)
    file.seek(0)
    read = torch.load(file, weights_only=True)
    other = torch.quantize(nn.Sequential(nn.Embedding(50, 96), nn.Linear(96, 128), nn.GELU(),
                                         nn.Linear(128, 10, bias=False)), dtype, **options)  # fmt: skip
    other.load_state_dict(read)
    whole = io.BytesIO()
    torch.save(small, whole)
    whole.seek(0)
    copies = [other, copy.deepcopy(small), pickle.loads(pickle.dumps(small)), torch.load(whole, weights_only=False)]
    for each in copies:
        assert torch.equal(each(TOKENS), expected)
    half = copy.deepcopy(small).to(torch.bfloat16)
    assert half[1].weight.dtype is small[1].weight.dtype and half(TOKENS).dtype is torch.bfloat16
    assert (half(TOKENS).float() - expected).abs().max().item() < 0.05
    assert small.to("meta")(TOKENS.to("meta")).shape == expected.shape


def test_quantized_weights_in_safetensors(tmp_path):
    safetensors = pytest.importorskip("safetensors.numpy", reason="the package safetensors is not installed")
    small = torch.quantize(model(), "int4", symmetric=False)
    safetensors.save_file({k: v.numpy() for k, v in small.state_dict().items()}, tmp_path / "model.safetensors")
    read = {k: torch.from_numpy(v) for k, v in safetensors.load_file(tmp_path / "model.safetensors").items()}
    again = torch.quantize(model(), "int4", symmetric=False)
    again.load_state_dict(read)
    assert torch.equal(again(TOKENS), small(TOKENS))


@kinds
def test_what_is_not_quantized_learns(dtype, options):
    """LoRA: two small factors beside a quantized layer."""
    small = torch.quantize(nn.Sequential(nn.Linear(96, 64), nn.Tanh(), nn.Linear(64, 4)), dtype, **options)
    a, b = nn.Parameter(torch.randn(96, 4) * 0.1), nn.Parameter(torch.zeros(4, 64))
    assert not small[0].weight.requires_grad and [n for n, _ in small.named_parameters()] == ["0.bias", "2.bias"]
    optimizer = torch.optim.SGD([a, b, *small.parameters()], 0.1)
    x, target, losses = torch.randn(16, 96), torch.randn(16, 4), []
    before = small[0].weight.clone()
    for _ in range(5):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(small[2](small[1](small[0](x) + x @ a @ b)), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses == sorted(losses, reverse=True) and losses[-1] < losses[0]
    assert torch.equal(small[0].weight, before)


def test_what_quantize_leaves_alone_and_what_it_refuses():
    shared = nn.Linear(32, 32)
    given = nn.ModuleDict({"a": shared, "b": shared, "c": nn.Embedding(4, 32, max_norm=1.0), "d": nn.Conv2d(1, 1, 1)})
    made = torch.quantize(given, "int8", filter=lambda module, name: name != "nothing")
    assert made is given and made["a"] is made["b"] and type(made["a"]).__name__ == "Int8Linear"
    assert type(made["c"]) is nn.Embedding and type(made["d"]) is nn.Conv2d
    assert type(torch.quantize(nn.Linear(32, 2), "int4")).__name__ == "Int4Linear"
    kept = torch.quantize(nn.Sequential(nn.Linear(2, 2)), "int8", filter=lambda module, name: name != "0")
    assert type(kept[0]) is nn.Linear
    for wrong, kind in (((torch.ones(2), "int8"), TypeError), ((given, "int3"), ValueError)):
        with pytest.raises(kind):
            torch.quantize(*wrong)
    with pytest.raises(ValueError, match="32, 64 or 128"):
        torch.quantize(given, "int4", group=48)
    with pytest.raises(IndexError):
        torch.quantize(nn.Embedding(3, 4), "int8")(torch.tensor([3]))


@pytest.mark.parametrize(
    "mapped", [(0, 0, 0), (0, None, None), (None, 0, None), (0, 0, None), (None, None, 0)], ids=str
)
@pytest.mark.filterwarnings("error")  # a rule, not a loop over the samples
def test_weights_of_a_batch(mapped):
    numbers = torch.randint(-127, 128, (3, 5, 8), dtype=torch.int8), torch.rand(3, 5)
    packed = torch.stack([packed_int4(torch.randint(0, 16, (5, 64))) for _ in range(3)])
    for weights, given in ((int8_weights, numbers), (int4_weights, (packed, torch.rand(3, 5, 2), torch.rand(3, 5, 2)))):
        dims = mapped[: len(given)]
        if any(dim == 0 for dim in dims):
            given = [x if dim == 0 else x[0] for x, dim in zip(given, dims, strict=True)]
            each = [weights(*[x[i] if d == 0 else x for x, d in zip(given, dims, strict=True)]) for i in range(3)]
            assert torch.equal(torch.vmap(weights, in_dims=dims)(*given), torch.stack(each))
