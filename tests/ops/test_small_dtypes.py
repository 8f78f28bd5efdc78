"""Dtypes of fewer than eight bits, and of bits without a meaning: what PyTorch does with them, and what it refuses."""

import copy
import pickle

import pytest

import tensorgrad

torch = pytest.importorskip("torch", reason="torch is not installed: nothing to compare with")

NAMES = ("uint1", "uint4", "uint7", "int2", "int4", "bits1x8", "bits8", "bits16", "float4_e2m1fn_x2")
CALLS = """
str(d) | d.itemsize | d.is_floating_point | d.is_complex | d.is_signed | d.to_real() | d.to_complex() | l.iinfo(d)
l.iinfo(d).max | l.finfo(d).max | pickle.loads(pickle.dumps(d)) is d | l.promote_types(d, d)
l.promote_types(d, l.int8)
l.can_cast(d, l.float32), l.can_cast(l.float32, d), l.can_cast(l.int8, d), l.can_cast(d, l.bool)
l.set_default_dtype(d) | l.empty(2, 3, dtype=d).shape | l.zeros(2, dtype=d).view(l.uint8) | l.ones(2, dtype=d)
l.full((2,), 1, dtype=d) | l.tensor([1, 2], dtype=d) | l.tensor([], dtype=d) | l.arange(3, dtype=d)
l.empty(2, dtype=d, device='meta') | x.dtype | x.view(l.uint8) | x.view(l.int8) | x[1:].view(l.uint8) | x[0].dtype
x.select(0, 0).dtype | x.split(2)[1].view(l.uint8) | x[[0, 1]] | x[l.tensor([True] * x.numel())]
x.clone().view(l.uint8) | x[::2].contiguous().view(l.uint8) | x.contiguous().dtype | x.detach().dtype
x.reshape(2, 2).t().dtype | x.reshape(2, 2).t().reshape(-1).view(l.uint8) | x.to(l.uint8) | x.float()
l.ones(4).to(d) | l.ones(4, dtype=l.uint8).to(d) | x.to(d).dtype | x.to(d, copy=True).dtype | x.to('meta')
x.cpu().dtype | x[0].item() | x.tolist() | bool(x[0]) | x.numpy() | x + x | x + 1 | l.equal(x, x) | x.sum() | -x
x.abs() | x & x | x.fill_(1) | x.fill_(0) | x.zero_().view(l.uint8) | x.__setitem__(0, 1)
l.cat([x, x]).view(l.uint8) | l.stack([x, x]).dtype | l.where(l.tensor([True] * x.numel()), x, x).view(l.uint8)
x.gather(0, l.tensor([0])) | x.index_select(0, l.tensor([0])) | x.flip(0) | x.expand(2, -1).dtype | x.sort() | x.max()
x.masked_fill(l.tensor([True] * x.numel()), 0) | l.zeros_like(x).dtype | l.empty_like(x).dtype | l.ones_like(x)
x.new_zeros(2).view(l.uint8) | x.new_empty(2).dtype | copy.deepcopy(x).view(l.uint8) | x.untyped_storage().nbytes()
x.type() | x.element_size() | x.is_signed() | x.random_() | x.unfold(0, 2, 1).dtype
x.as_strided((2,), (1,)).view(l.uint8) | x.unsqueeze(0).squeeze(0).dtype | [y.dtype for y in x][:1] | x.nonzero()
x.any() | ~x | l.frombuffer(bytearray(b'abcd'), dtype=d).view(l.uint8) | x.nbytes
l.empty_strided((2, 2), (1, 2), dtype=d).dtype | l.empty(0, dtype=d).set_(x.untyped_storage()).shape
x.resize_(2).view(l.uint8) | repr(x[:0]) | x.is_complex() | repr(x)
type(l.nn.Parameter(x, requires_grad=False)).__name__ | l.is_floating_point(x)
"""


def outcome(l, name, call):
    """The text of a result, or the class of the exception."""
    d = getattr(l, name)
    x = l.arange(4 * d.itemsize, dtype=l.uint8).view(d)
    try:
        return str(eval(call, {"l": l, "d": d, "x": x, "copy": copy, "pickle": pickle}))
    except (RuntimeError, TypeError) as error:
        return type(error).__name__


@pytest.mark.parametrize("name", NAMES)
def test_the_same_calls_work(name):
    calls = [call.strip() for line in CALLS.strip().split("\n") for call in line.split(" | ")]
    found = {call: (outcome(tensorgrad, name, call), outcome(torch, name, call)) for call in calls}
    assert not {call: pair for call, pair in found.items() if pair[0].replace("tensorgrad.", "torch.") != pair[1]}


@pytest.mark.parametrize("name", ("bits8", "bits16", "float4_e2m1fn_x2"))
def test_files_go_both_ways(name, tmp_path):
    for l, other in ((tensorgrad, torch), (torch, tensorgrad)):
        d = getattr(l, name)
        l.save({"x": l.arange(4 * d.itemsize, dtype=l.uint8).view(d)}, tmp_path / "file")
        found = other.load(tmp_path / "file")["x"]
        assert found.dtype is getattr(other, name) and found.view(other.uint8).tolist() == list(range(4 * d.itemsize))


@pytest.mark.parametrize("name", ("quint4x2", "quint2x4"))
def test_several_numbers_in_a_byte(name):
    """PyTorch's kernels for these are quantized ones, some of which crash: only views are alike."""
    for call in (
        "str(d)",
        "d.itemsize",
        "d.is_signed",
        "x.view(l.uint8)",
        "x[1:].view(l.uint8)",
        "x.dtype",
        "x.float()",
    ):
        assert outcome(tensorgrad, name, call) == outcome(torch, name, call), call


def test_all_names_are_there():
    every = [n for n in dir(torch) if isinstance(getattr(torch, n), torch.dtype)]
    missing = {"bit"}
    assert {n for n in every if not hasattr(tensorgrad, n)} <= missing
    assert all(str(getattr(tensorgrad, n)) == str(getattr(torch, n)) for n in every if n not in missing)


def test_asking_for_a_dtype_puts_no_check_around_kernels():
    from tests.support.processes import output_of

    output_of("""
        import tensorgrad
        from tensorgrad.rows import kernel_tables

        assert tensorgrad.uint4.itemsize == 1 and "stored" not in kernel_tables.RULES
        tensorgrad.ones(2) + 1
        tensorgrad.zeros(2, dtype=tensorgrad.uint8).view(tensorgrad.uint4)
        assert "stored" in kernel_tables.RULES
    """)
