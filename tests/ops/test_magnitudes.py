"""Reductions and norms of huge and of tiny numbers, and of what their results are told to be, against torch."""

import math
import warnings

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is the oracle of these tests")

import torch

import tensorgrad as tg
from tensorgrad.kernels.compiled import table
from tensorgrad.kernels.compiled.runtime import library
from tests.conformance.opdb_bridge import numpy_of, to_tg
from tests.support.edge_cases import listed
from tests.support.kernels import absent

EXPRESSIONS = listed("""
x.std(); x.std(-1); x.std(correction=0); x.var(); x.var(-1, correction=0); l.std_mean(x)[0]; l.var_mean(x)[0]; x.sum()
x.mean(); x.nanmean(); x.norm(); x.norm(1); x.norm(inf); x.logsumexp(-1); F.rms_norm(x, x.shape[-1:])
F.normalize(x, dim=-1); F.cosine_similarity(x, x.flip(-1), dim=-1); l.dist(x, x.flip(-1)); x.softmax(-1)
l.hypot(x, x.flip(-1)); F.smooth_l1_loss(x, x * 0); l.linalg.matrix_norm(x); l.logaddexp(x, x.flip(-1)); x.cumsum(-1)
""")
FLOATS = {torch.float32: 1e-3, torch.float64: 1e-6, torch.float16: 2e-2, torch.bfloat16: 8e-2}
SCALES = {
    "largest": lambda f: f.max / 8,
    "squares overflow": lambda f: 2 * math.sqrt(f.max),
    "squares still fit": lambda f: math.sqrt(f.max) / 16,
    "squares vanish": lambda f: math.sqrt(f.tiny) / 2,
    "smallest": lambda f: 4 * f.tiny,
}


def value_and_gradient(library, expression: str, x):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        y = eval(expression, {"x": x, "l": library, "F": library.nn.functional, "inf": math.inf})
        return y, library.autograd.grad(y, x, library.ones_like(y))[0]


def near(found, expected, tolerance: float, scale: float):
    with np.errstate(all="ignore"):
        close = np.abs(found - expected) <= tolerance * np.maximum(np.abs(found), np.abs(expected)) + scale
        return close | (found == expected) | (np.isnan(found) & np.isnan(expected))


@pytest.mark.parametrize("size", SCALES)
@pytest.mark.parametrize("expression", EXPRESSIONS)
@pytest.mark.parametrize("times", (1, 700))
def test_reductions(expression, size, times):
    """Right in torch's sense: no further from double precision than torch's own."""
    for dtype, tolerance in FLOATS.items():
        limits = torch.finfo(dtype)
        values = torch.tensor([[1.0, 2, 3, -0.5, 1.5], [2.0, -1, 1, 3, 0.5]]).repeat(1, times).double()
        x = (values * SCALES[size](limits)).to(dtype).requires_grad_()
        expected = value_and_gradient(torch, expression, x)
        truth = value_and_gradient(torch, expression, x.detach().double().requires_grad_())
        found = value_and_gradient(tg, expression, to_tg(x))
        for what, f, e, t in zip(("value", "gradient"), found, expected, truth, strict=True):
            f, e, t = (numpy_of(v.detach()).astype(np.float64) for v in (f, e, t.to(dtype)))
            scale = 4 * limits.tiny if what == "value" else 1e-6 * (1 + np.abs(t).max(where=np.isfinite(t), initial=0))
            good = near(f, e, tolerance, scale) | near(f, t, tolerance, scale)
            with np.errstate(all="ignore"):
                good |= np.abs(f - t) <= 2 * np.abs(e - t)
            good |= ~np.isfinite(e)  # where torch has none, any will do
            assert good.all(), f"{what} in {dtype}: {f[~good][:4]}, torch {e[~good][:4]}, double {t[~good][:4]}"


@pytest.mark.parametrize("op", ("var", "std"))
def test_compiled_variances(op):
    """The compiled kernels take the same care."""
    if absent():
        pytest.skip(absent())
    kernel = library.load(next(row.kernel for row in table.ROWS if row.op == op))
    for scale in (1e-30, 1e-20, 1.0, 1e18, 1e20, 1e30):
        x = (np.random.default_rng(0).random((3, 5000)) * scale).astype(np.float32)
        found = kernel(x, (1,), 1, False)
        expected = getattr(np, op.rstrip("_"))(x.astype(np.float64), axis=1, ddof=1)
        with np.errstate(all="ignore"):
            np.testing.assert_allclose(found, expected.astype(np.float32), rtol=1e-5, atol=1e-44)


DTYPES = ["bool", "int64", "uint8", "int32", "float16", "bfloat16", "float32", "float64", "complex64"]


@pytest.mark.parametrize("name", ("sum", "mean", "prod", "cumsum", "cumprod", "norm"))
@pytest.mark.parametrize("source", DTYPES)
def test_every_dtype_told(name, source):
    """`dtype=` casts the input first, of complex numbers to their real part; integers have no gradient."""
    wrong = []
    for target in DTYPES:
        if name.startswith("cum") and target == "bool":  # PyTorch has running sums of one boolean, not of several
            continue
        for shape in ((), (3,), (2, 3), (0, 2)):
            for grad in (False, True):
                found, expected = (observed(library, name, source, target, shape, grad) for library in (tg, torch))
                if expected[0] == "error":
                    # PyTorch has no running sums of booleans, and no real gradient of a complex result
                    if (
                        "not implemented" in expected[1]
                        or "isFloatingType" in expected[1]
                        or "narrowing" in expected[1]
                    ):
                        continue
                    agree = found[0] == "error"
                else:
                    agree = found[0] == expected[0] and near(found[1], expected[1], 3e-2, 1e-2).all()
                if not agree:
                    wrong.append(f"{source} to {target}, {shape}, {grad}: {found}, torch {expected}")
    assert not wrong, "\n".join(wrong)


def observed(library, name, source, target, shape, grad):
    values = library.arange(1, 1 + math.prod(shape), dtype=library.float64).reshape(shape) / 2
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        x = values.to(getattr(library, source))
        if grad and (x.is_floating_point() or x.is_complex()):
            x.requires_grad_()
        arguments = (0,) if name.startswith("cum") else ()
        try:
            y = getattr(library, name)(x, *arguments, dtype=getattr(library, target))
            if x.requires_grad and y.requires_grad:
                (y.sum().real if y.is_complex() else y.sum()).backward()
                y = x.grad
        except Exception as error:
            return "error", str(error)
        return (str(y.dtype).rpartition(".")[2], tuple(y.shape)), numpy_of(y.detach().to(library.complex128))
