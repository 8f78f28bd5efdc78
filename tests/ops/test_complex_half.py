"""Complex numbers of half precision: what PyTorch's CPU does with them is done here, with its bits, and no more."""

import copy
import pickle
import warnings

import numpy as np
import pytest

import tensorgrad
from tests.support.alike import alike
from tests.support.processes import output_of

torch = pytest.importorskip("torch", reason="torch is not installed: nothing to compare with")
pytest.importorskip("ml_dtypes", reason="complex32 needs the package ml_dtypes")

CALLS = """
z.dtype | z.itemsize | z.nbytes | z.type() | z.real | z.imag | l.view_as_real(z) | z.view(l.float16) | z.view(l.int32)
l.view_as_complex(l.ones(2, 2, dtype=l.half)) | h.view(l.chalf) | l.complex(h, h) | l.polar(h, h) | z + z | z - z
z * z | z + 1 | 1j / h | 1 - z | 2 * z | z * 0.3 | z + 1j | z * h | h + z | h * 1j | h[0] * 1j | z + l.ones(4)
z * l.ones(4, dtype=l.int) | z + l.ones(4, dtype=l.bfloat16) | z + l.ones(4, dtype=l.double)
l.ones(2, dtype=l.bfloat16) * 1j | -z | z.abs() | z.sgn() | z.conj() | z.conj().imag | z.H | z.reshape(2, 2).H
z == z | z != z.conj() | z.add(z, alpha=2) | l.outer(z, z) | z.norm() | l.linalg.vector_norm(z) | z.any() | z.all()
z.count_nonzero() | z.isfinite() | z.isinf() | z.isnan() | z.isreal() | z.nonzero() | l.isclose(z, z)
l.allclose(z, z) | z.diff() | z / z | z / 2 | z ** 2 | z.square() | z.exp() | z.log() | z.sqrt() | z.sum()
z.mean() | z.prod() | z.cumsum(0) | z @ z | z.sigmoid() | z.angle() | z.flip(0) | z.gather(0, l.tensor([0]))
z.sort() | z.argmax() | z.nan_to_num() | l.zeros(2, dtype=l.chalf) | l.ones(2, dtype=l.chalf)
l.full((2,), 1 + 1j, dtype=l.chalf) | l.tensor(1 + 1j, dtype=l.chalf) | l.tensor([1, 2], dtype=l.chalf)
l.tensor([1e6 + 1j, 1e-8j], dtype=l.chalf) | l.tensor(float('nan'), dtype=l.chalf) | l.arange(3, dtype=l.chalf)
l.empty(2, 3, dtype=l.chalf).shape | z.new_ones(2) | l.zeros_like(z) | l.ones(2).chalf() | z.chalf() is z | z.float()
z.half() | z.cfloat() | z.cdouble() | z.to(l.bfloat16) | z.int() | z.byte() | z.bool()
l.tensor([0.5j, 0], dtype=l.chalf).bool() | h.chalf() | l.tensor([1.5 + 2j]).chalf() | l.ones(2, dtype=l.bool).chalf()
z.tolist() | z[0].item() | complex(z[0]) | z.numpy() | z.numpy(force=True) | np.asarray(z) | repr(z) | repr(z[0])
repr(z[:0]) | z.clone().fill_(2) | z.clone().zero_() | z.clone().mul_(2) | z.clone().add_(h) | z.clone().copy_(h)
h.clone().copy_(z) | h.clone().add_(z) | z.real.add_(1) is None or z | z.imag.zero_() is None or z
z.masked_fill(m, 0) | z[m] | z[[0, 1]] | z.index_select(0, l.tensor([1])) | z.index_fill(0, l.tensor([1]), 1j)
l.where(m, z, z.conj()) | l.cat([z, z]) | l.cat([z, h]) | l.stack([z, z]) | z.roll(1) | z.repeat(2) | z.expand(2, -1)
l.tril(z.reshape(2, 2)) | l.diag(z) | z.to_sparse() | z.to('meta') * z.to('meta') | z.is_complex() | l.is_complex(z)
z.is_floating_point() | l.result_type(h, 1j) | l.chalf is l.complex32 | l.chalf.is_complex | l.chalf.is_signed
l.chalf.to_real() | l.half.to_complex() | l.bfloat16.to_complex() | l.finfo(l.chalf) | l.iinfo(l.chalf)
pickle.loads(pickle.dumps(l.chalf)) is l.chalf | copy.deepcopy(z) | z.untyped_storage().nbytes()
l.promote_types(l.half, l.chalf) | l.promote_types(l.bfloat16, l.chalf) | l.promote_types(l.int, l.chalf)
l.promote_types(l.float, l.chalf) | l.promote_types(l.chalf, l.cfloat) | l.promote_types(l.double, l.chalf)
l.can_cast(l.chalf, l.half) | l.can_cast(l.half, l.chalf) | l.can_cast(l.chalf, l.cfloat)
l.set_default_dtype(l.chalf) | l.testing.assert_close(z, z) | l.manual_seed(0) and l.randn(20, dtype=l.chalf)
l.manual_seed(0) and l.rand(5, dtype=l.chalf) | l.manual_seed(0) and l.empty(3, dtype=l.chalf).normal_(1, 2)
z.bernoulli_() | z.random_() | z.storage().tolist()
"""


def outcome(l, call):
    """The text of a result, or the class of the exception."""
    z = l.tensor([1 + 2j, 3.5 - 1j, 0.1 + 0.3j, 2 - 2j], dtype=l.complex32)
    h, m = l.tensor([1.0, 2.0, 3.0, 0.1], dtype=l.half), l.tensor([True, False, True, False])
    names = {"l": l, "z": z, "h": h, "m": m, "np": np, "copy": copy, "pickle": pickle}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return str(eval(call, names)).replace("tensorgrad.", "torch.").replace(" \n", "\n")
        except (RuntimeError, TypeError) as error:
            return type(error).__name__


@pytest.mark.parametrize("call", [call.strip() for line in CALLS.strip().split("\n") for call in line.split(" | ")])
def test_as_torch(call):
    assert outcome(tensorgrad, call) == outcome(torch, call)


@pytest.mark.parametrize("name", ["add", "sub", "mul", "abs", "neg", "sgn", "eq"])
def test_all_bits_of_many_numbers(name):
    parts = (np.random.default_rng(0).standard_normal((2, 20000)) * 8).astype(np.float16)
    parts[0, :8] = [np.inf, -np.inf, np.nan, 0, -0.0, 65504, 6e-8, -65504]

    def bits(l):
        a, b = (l.from_numpy(p.copy()).view(l.complex32) for p in parts)
        made = getattr(l, name)(*((a, b) if name in ("add", "sub", "mul", "eq") else (a,)))
        made = l.view_as_real(made) if made.is_complex() else made
        return made.float().numpy()

    found, expected = bits(tensorgrad), bits(torch)
    if name == "sgn":  # rounded once from a quotient whose last bit differs
        assert np.allclose(found, expected, rtol=1e-3, equal_nan=True)
    else:
        assert np.array_equal(found, expected, equal_nan=True)


@pytest.mark.parametrize("call", ["l.addcmul(z, z, z, value=2)", "z.std()", "l.std_mean(z)[0]", "l.var(z, 0)"])
def test_rounded_once_where_torch_rounds_each_step(call):
    found, expected = (
        eval(call, {"l": l, "z": l.tensor([1 + 2j, 3.5 - 1j, 0.1 + 0.3j], dtype=l.chalf)}) for l in (tensorgrad, torch)
    )
    assert str(found.dtype) == str(expected.dtype)
    assert np.allclose(found.cfloat().numpy(), expected.cfloat().numpy(), rtol=2e-3)


@alike
def test_gradients(torch):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        x = torch.tensor([1 + 2j, 0.5 - 1j], dtype=torch.complex32, requires_grad=True)
        y = torch.view_as_real(x * x.conj() * 2 + x)
        y.backward(torch.ones_like(y))
    return x.grad.dtype, x.grad.tolist(), y.dtype


def test_files_go_both_ways(tmp_path):
    for l, other in ((tensorgrad, torch), (torch, tensorgrad)):
        l.save({"z": l.tensor([1 + 2j, 0.5], dtype=l.complex32)}, tmp_path / "file")
        found = other.load(tmp_path / "file")["z"]
        assert found.dtype is other.complex32 and found.tolist() == [1 + 2j, 0.5]


def test_a_gpu_refuses_it():
    output_of(
        """
        from tests import emulator

        emulator.install()
        import tensorgrad as torch

        half = torch.ones(2, dtype=torch.half, device="cuda")
        for call in (
            lambda: torch.zeros(2, dtype=torch.chalf, device="cuda"), lambda: torch.zeros(2, dtype=torch.chalf).cuda(),
            lambda: half.chalf(), lambda: half * 1j,
        ):
            try:
                call()
            except NotImplementedError as error:
                assert str(error) == "torch.complex32 is not supported on GPUs: CuPy has no arrays of it", error
            else:
                raise AssertionError("no error")
        """
    )
