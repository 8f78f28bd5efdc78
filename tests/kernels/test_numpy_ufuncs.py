"""NumPy's own functions, where the package lets them write into memory with gaps: they are not taken on trust.

A test of a kernel that compares NumPy with NumPy cannot see a fault of NumPy. Here the same numbers are computed from
memory without gaps, and the numbers of those are compared with Python's or PyTorch's elsewhere.
"""

import itertools

import ml_dtypes
import numpy as np
import pytest

import tensorgrad as torch
from tensorgrad.rows.op import OPS
from tensorgrad.system import numpy_faults

UFUNCS = [name for name in dir(np) if isinstance(getattr(np, name), np.ufunc) and getattr(np, name).signature is None]
DTYPES = [*map(np.dtype, "?bBhHiIqQefdFD"), np.dtype(ml_dtypes.bfloat16)]
STEPS = (1, 2, 3, 4, 5, 7, 8, 16, -1, -2, -4, -8)
COUNT = 61  # more than a loop over vector registers takes at once, and a rest


def numbers(dtype, seed):
    """Numbers that all functions take, or an infinity and a nan among them."""
    generator = np.random.default_rng(seed)
    if dtype.kind in "biu":
        return generator.integers(0, 2 if dtype.kind == "b" else 7, COUNT).astype(dtype)
    x = generator.uniform(0.1, 0.9, COUNT)
    if dtype.kind == "c":
        x = x + 1j * generator.uniform(0.1, 0.9, COUNT)
    x[::7], x[3::11] = np.inf, np.nan
    return x.astype(dtype)


def apart(x, step):
    """The same numbers, `step` elements apart from each other (backwards if it is negative)."""
    memory = np.zeros(len(x) * abs(step), x.dtype)
    view = memory[:: abs(step)][:: 1 if step > 0 else -1]
    view[...] = x
    return view


def wrong_calls(name, dtype):
    """The steps (of the inputs, of the outputs) with which a function writes other numbers than without gaps."""
    function = getattr(np, name)
    inputs = [numbers(dtype, seed) for seed in range(function.nin)]
    try:
        right = function(*inputs)
    except TypeError:
        return []
    right = right if isinstance(right, tuple) else (right,)
    wrong = []
    some = STEPS if function.nin == 1 else (1, 4, 8, -4)
    for steps in itertools.product(some, repeat=function.nin):
        for to in (*some, "the first input"):
            given = [apart(x, step) for x, step in zip(inputs, steps)]
            if to != "the first input":
                out = tuple(apart(np.zeros_like(r), to) for r in right)
            elif len(right) == 1 and right[0].dtype == dtype:
                out = (given[0],)
            else:
                continue
            function(*given, out=out)
            for made, expected in zip(out, right):
                if made.tobytes() == expected.tobytes():
                    continue
                few = 1e-2 if dtype.itemsize == 2 else 1e-5
                if not np.allclose(made.astype("c16"), expected.astype("c16"), few, few, equal_nan=True):
                    wrong.append((steps, to))
    return wrong


@pytest.mark.filterwarnings("ignore")
def test_functions_that_write_wrongly_are_known():
    """All functions, dtypes and steps: those that `numpy_faults` finds by its few calls, and no others."""
    with np.errstate(all="ignore"):
        wrong = {name for name in UFUNCS for dtype in DTYPES if wrong_calls(name, dtype)}
    known = set(filter(numpy_faults.writes_wrongly_into_gaps, numpy_faults.SUSPECTS))
    assert wrong <= known, "NumPy writes wrongly here, and numpy_faults.py does not know"


def layouts(x):
    """Tensors of 12 x 8 elements with the same numbers in different places of their memory."""

    def put(view):
        view.copy_(x)
        return view

    rows, columns = x.shape
    for step in STEPS[:8]:
        yield put(torch.zeros(rows, columns * step, dtype=x.dtype)[:, ::step])
        yield put(torch.zeros(columns, rows * step, dtype=x.dtype)[:, ::step].t())
    yield put(torch.zeros(rows, columns, 4, dtype=x.dtype)[..., 1])
    yield put(torch.zeros(columns, 3, rows, 2, dtype=x.dtype)[:, 1, :, 1].t())
    yield put(torch.zeros(2 * rows, 3 * columns, dtype=x.dtype)[1::2, 2::3])
    yield put(torch.zeros(rows * columns, dtype=x.dtype).view(rows, columns))


ONE, TWO = (
    sorted(
        name
        for name, op in OPS.items()
        if op.kind == "pointwise" and [p.is_tensor for p in op.params] == [True] * count
        if hasattr(torch.Tensor, f"{name}_")
    )
    for count in (1, 2)
)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", ["bool", "uint8", "int16", "int32", "int64", "float16", "bfloat16", "float32",
                                   "float64", "complex64", "complex128"])  # fmt: skip
def test_in_place_ops_in_every_layout(dtype):
    """`x.op_()` and `x.op_(y)` in memory with gaps write what `op` returns of memory without."""
    dtype = getattr(torch, dtype)
    x = torch.arange(96).view(12, 8).remainder(7).to(dtype)
    y = torch.arange(96).view(12, 8).remainder(5).add(1).to(dtype)
    assert len(ONE) > 40 and len(TWO) > 20
    ran = 0
    for name, *others in ((n, *[y] * (n in TWO)) for n in (*ONE, *TWO)):
        out_of_place, in_place = getattr(torch.Tensor, name), getattr(torch.Tensor, f"{name}_")
        try:
            expected = out_of_place(x, *others).to(dtype)
            in_place(x.clone(), *others)
        except (RuntimeError, TypeError, NotImplementedError):
            continue  # not for this dtype
        for place in layouts(x):
            memory = place.storage_offset(), place.stride()
            made = in_place(place, *others)
            assert made is place and (made.storage_offset(), made.stride()) == memory
            close = torch.equal if dtype == torch.bool else torch.allclose
            few = {} if dtype == torch.bool else {"rtol": 1e-2 if dtype.itemsize == 2 else 1e-5, "equal_nan": True}
            assert close(made, expected, **few), f"{name}_ of {dtype} with strides {place.stride()}"
        ran += 1
    assert ran >= 10


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.float32, torch.float64])
def test_columns_are_negated(dtype):
    """By hand, without any of NumPy's functions as the reference."""
    for columns in range(1, 20):
        rows = [[column + columns * row for column in range(columns)] for row in range(9)]
        x = torch.tensor(rows, dtype=dtype)
        x[:, 0].neg_()
        torch._foreach_neg_([x[:, -1]])
        x.view(-1)[:: columns + 1].negative_()
        expected = [row[:] for row in rows]
        for row in expected:
            row[0] = -row[0]
            row[-1] = -row[-1]
        flat = [value for row in expected for value in row]
        flat[:: columns + 1] = [-value for value in flat[:: columns + 1]]
        assert x.view(-1).tolist() == flat, f"{columns} columns"


@pytest.mark.parametrize("optimizer", ["Adam", "SGD", "Rprop", "RMSprop", "Adagrad", "Adadelta", "NAdam", "RAdam"])
@pytest.mark.parametrize("gaps", [1, 2, 4, 8])
def test_optimizers_maximize_with_gradients_with_gaps(optimizer, gaps):
    """The step up along g is the step down along -g, however the parameter and the gradient lie in memory."""
    ends = []
    for sign in (1, -1):
        p = torch.linspace(1, 2, 60 * gaps).view(5, 3, 4 * gaps)[..., ::gaps].permute(2, 0, 1).detach().requires_grad_()
        step = getattr(torch.optim, optimizer)([p], lr=0.1, maximize=sign == -1)
        for _ in range(2):
            g = torch.linspace(-1, 1, 60 * gaps).view(4, 5, 3 * gaps)[..., ::gaps] * 1
            p.grad = torch.empty(4, 5, 3 * gaps)[..., ::gaps].copy_(g * sign)
            step.step()
        ends.append(p.detach().clone())
    assert torch.equal(*ends)
