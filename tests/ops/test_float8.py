"""float8 types: values are stored, converted, copied and indexed as in PyTorch, and not computed with."""

import copy
import io

import numpy as np
import pytest

import tensorgrad
from tests.support.alike import alike
from tests.support.processes import output_of

torch = pytest.importorskip("torch", reason="torch is not installed: nothing to compare with")
pytest.importorskip("ml_dtypes", reason="float8 types need the package ml_dtypes")

NAMES = ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu")
EDGES = [0.0, 1.0, -1.5, 3.14159, 448.0, 464.0, 465.0, 500.0, 1e6, -1e6, -0.3, float("nan"), float("inf"),
         -float("inf"), 1e-3, 2e-7, -1e-9,
         0.0625, 57344.0, 61440.0, 70000.0, 240.0, 248.0, 0.001953125, 0.0009765, -0.0]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("source", ["float32", "float64", "float16", "bfloat16", "int64"])
def test_conversions(name, source):
    with np.errstate(all="ignore"):
        random = np.random.default_rng(0).standard_normal(4000) * 10.0 ** np.random.default_rng(1).integers(-9, 9, 4000)

    def bits(l):
        values = l.tensor([*EDGES, *random.tolist()], dtype=l.float64)
        if source == "int64":
            values = values.nan_to_num(0, 0, 0).clamp(-1e6, 1e6)
        made = values.to(getattr(l, source)).to(getattr(l, name))
        assert made.dtype is getattr(l, name)
        back = made.float()
        nan = back.isnan()
        return made.view(l.uint8)[~nan].tolist(), nan.tolist(), back[~nan].tolist()

    assert bits(tensorgrad) == bits(torch)


def test_asking_for_limits_puts_no_check_around_kernels():
    """transformers asks for them when it is imported; the check costs every call."""
    program = """
import tensorgrad
from tensorgrad.rows import kernel_tables

tensorgrad.finfo(tensorgrad.float8_e4m3fn).max
tensorgrad.ones(2) + 1
assert "stored" not in kernel_tables.RULES
tensorgrad.ones(2).to(tensorgrad.float8_e4m3fn)
assert "stored" in kernel_tables.RULES
"""
    output_of(program)


FLOATING = ("float16", "bfloat16", "float32", "float64", "complex64", "complex128", *NAMES)


@pytest.mark.parametrize("name", FLOATING)
def test_limits_are_pytorchs(name):
    """None of NumPy's for float16: PyTorch's resolution is a power of ten."""
    ours, theirs = tensorgrad.finfo(getattr(tensorgrad, name)), torch.finfo(getattr(torch, name))
    for each in ("bits", "eps", "max", "min", "tiny", "smallest_normal", "resolution", "dtype"):
        assert getattr(ours, each) == getattr(theirs, each), each
    assert repr(ours) == repr(theirs)


def test_limits_need_no_package():
    program = "import sys, tensorgrad; tensorgrad.finfo(tensorgrad.bfloat16).max; "
    output_of(program + "assert 'ml_dtypes' not in sys.modules")


def facts(l, name):
    d = getattr(l, name)
    yield str(d), d.itemsize, d.is_floating_point, d.is_signed, d.is_complex
    info = l.finfo(d)
    yield info.bits, info.eps, info.max, info.min, info.tiny, info.smallest_normal, info.resolution
    yield l.promote_types(d, d) is d, l.can_cast(d, l.float32), l.zeros(2).to(d).type()
    with pytest.raises(RuntimeError, match="Promotion for Float8 Types is not supported, attempted to promote Float8_"):
        l.promote_types(d, l.float32)
    with pytest.raises(TypeError, match="couldn't find storage object Float8_"):
        l.set_default_dtype(d)


def uses(l, name):
    d = getattr(l, name)
    x = l.tensor([[1.0, 2.0], [4.0, 8.0]], dtype=d)
    yield x, x.t(), x[1], x[0, 1].item(), x.tolist(), x.clone(), l.cat([x, x]), l.stack([x, x]).shape, x.repeat(2, 1)
    yield x.reshape(-1), x.expand(3, 2, 2).shape, x.index_select(0, l.tensor([1])), x == x, x != x, x.isnan()
    yield l.where(x.float() > 2, x, x.t()), x.element_size(), x.nbytes, x.contiguous().dtype, x.half(), x.to(l.bfloat16)
    yield l.full((2,), 2.0, dtype=d), l.ones(2, dtype=d), x.new_ones(1), l.empty_like(x).shape, x.clone().fill_(4)
    yield x.clone().copy_(l.full((2, 2), 1e6)).float(), x.to("meta").dtype, x.to("meta").shape, x.view(l.int8)
    yield l.nn.Parameter(x, requires_grad=False), copy.deepcopy(x), x.is_floating_point(), x.bool(), x.int()
    y = l.ones(2, requires_grad=True)
    y.to(d).float().sum().backward()
    yield y.grad
    y = x.clone()
    y[0] = l.tensor([16.0, 32.0])
    yield y
    file = io.BytesIO()
    l.save({"x": x}, file)
    file.seek(0)
    yield l.load(file)["x"]


@pytest.mark.parametrize("name", NAMES)
def test_facts_and_uses(name):
    for story in (facts, uses):
        for ours, theirs in zip(story(tensorgrad, name), story(torch, name), strict=True):
            for a, b in zip(ours, theirs, strict=True):
                assert repr(a) == repr(b)


REFUSED = {
    "add": lambda l, x: x + x, "mul": lambda l, x: x * 2, "sum": lambda l, x: x.sum(), "lt": lambda l, x: x < x,
    "neg": lambda l, x: -x, "max": lambda l, x: x.max(), "exp": lambda l, x: l.exp(x), "sort": lambda l, x: x.sort(),
    "relu": lambda l, x: l.nn.functional.relu(x), "flip": lambda l, x: x.flip(0), "sign": lambda l, x: x.sign(),
    "dot": lambda l, x: x @ x, "clamp": lambda l, x: x.clamp(0, 1), "gather": lambda l, x: x.gather(0, l.tensor([1])),
    "masked_fill": lambda l, x: x.masked_fill(x.isnan(), 0), "nonzero": lambda l, x: x.nonzero(),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_nothing_is_computed(name):
    for l in (tensorgrad, torch):
        for dtype in (l.float8_e4m3fn, l.float8_e5m2):
            with pytest.raises(NotImplementedError, match="not implemented for 'Float8_"):
                REFUSED[name](l, l.ones(3).to(dtype))


def test_files_of_each_other(tmp_path):
    for name in NAMES:
        there = torch.tensor(EDGES).to(getattr(torch, name))
        torch.save(there, tmp_path / "file.pt")
        here = tensorgrad.load(tmp_path / "file.pt")
        assert here.view(tensorgrad.uint8).tolist() == there.view(torch.uint8).tolist()
        tensorgrad.save(here, tmp_path / "file.pt")
        assert torch.equal(torch.load(tmp_path / "file.pt").view(torch.uint8), there.view(torch.uint8))


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2"])
def test_safetensors(name):
    package = pytest.importorskip("safetensors.torch", reason="safetensors is not installed")
    from tensorgrad.serialization import safetensors

    there = torch.tensor(EDGES).to(getattr(torch, name))
    here = safetensors.load(package.save({"x": there}))["x"]
    assert here.dtype is getattr(tensorgrad, name)
    assert here.view(tensorgrad.uint8).tolist() == there.view(torch.uint8).tolist()
    back = package.load(safetensors.save({"x": here}))["x"]
    assert back.dtype is there.dtype and torch.equal(back.view(torch.uint8), there.view(torch.uint8))


@alike
def test_ordinary_tensors_are_not_affected(l):
    l.ones(2).to(l.float8_e5m2)
    x = l.ones(2, requires_grad=True)
    (x * 2 + l.sort(x)[0]).sum().backward()
    return x.grad, l.ones(3).copy_(l.tensor([1, 2, 3])), l.zeros(2).fill_(3)


@pytest.mark.parametrize("name", NAMES)
def test_a_view_of_no_bytes(name):
    alike(lambda l: list(l.empty(2, 0, dtype=l.uint8).view(getattr(l, name)).shape))()
