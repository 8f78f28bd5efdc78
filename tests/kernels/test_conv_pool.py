"""The convolution and pooling kernels on plain arrays, against PyTorch in float64, forward and gradients.

The kernels are dimension-generic, so every property test draws one, two or three spatial dimensions; arrays come in
several memory layouts, because kernels are called with whatever view a tensor is.
"""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is the oracle of these tests; install it to run them")
hypothesis = pytest.importorskip("hypothesis", reason="these are property tests; install hypothesis to run them")

import torch.nn.functional as F  # noqa: E402
from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from tensorgrad.kernels.array import conv as convs  # noqa: E402
from tensorgrad.kernels.array import pool as pools  # noqa: E402
from tensorgrad.ops.nn.conv_shape import conv_shape, conv_transpose_shape  # noqa: E402
from tests.support.compare import array_of, assert_close, normal  # noqa: E402

quick = settings(max_examples=80, deadline=None)
CONV = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
MAX_POOL = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
AVG_POOL = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}
ADAPTIVE_AVG = {1: F.adaptive_avg_pool1d, 2: F.adaptive_avg_pool2d, 3: F.adaptive_avg_pool3d}
ADAPTIVE_MAX = {1: F.adaptive_max_pool1d, 2: F.adaptive_max_pool2d, 3: F.adaptive_max_pool3d}


def layout(array, how):
    """The same numbers in another memory layout."""
    if how == "transposed":
        return np.ascontiguousarray(array.T).T
    if how == "strided":
        wide = np.zeros([2 * n for n in array.shape], array.dtype)
        wide[tuple(slice(None, None, 2) for _ in array.shape)] = array
        return wide[tuple(slice(None, None, 2) for _ in array.shape)]
    if how == "channels_last":
        return np.moveaxis(np.ascontiguousarray(np.moveaxis(array, 1, -1)), -1, 1)
    return array


layouts = st.sampled_from(["plain", "transposed", "strided", "channels_last"])


def ints(dims, low, high):
    return st.tuples(*[st.integers(low, high)] * dims)


@st.composite
def conv_case(draw):
    dims = draw(st.integers(1, 3))
    groups = draw(st.integers(1, 3))
    kernel, dilation = draw(ints(dims, 1, 3)), draw(ints(dims, 1, 2))
    stride, padding = draw(ints(dims, 1, 3)), draw(ints(dims, 0, 3))
    size = tuple(
        max(1, d * (k - 1) + 1 - 2 * p + extra)
        for k, d, p, extra in zip(kernel, dilation, padding, draw(ints(dims, 0, 5)))
    )
    batch = draw(st.integers(0, 3))
    c, o = groups * draw(st.integers(1, 3)), groups * draw(st.integers(1, 3))
    return (batch, c, *size), (o, c // groups, *kernel), stride, padding, dilation, groups


def check_conv(case, how="plain", dtype=np.float64, tolerance=1e-10):
    x_shape, w_shape, stride, padding, dilation, groups = case
    x, w = layout(normal(*x_shape, seed=1, dtype=dtype), how), layout(normal(*w_shape, seed=2, dtype=dtype), how)
    bias = normal(*w_shape[:1], seed=3, dtype=dtype)
    tx, tw, tb = [torch.from_numpy(np.ascontiguousarray(a)).requires_grad_() for a in (x, w, bias)]
    theirs = CONV[len(stride)](tx, tw, tb, stride, padding, dilation, groups)
    ours = convs.conv(np, x, w, bias, stride, padding, dilation, groups)
    assert ours.flags.c_contiguous and conv_shape(*case) == ours.shape
    assert_close(ours, array_of(theirs), tolerance)
    g = layout(normal(*theirs.shape, seed=4, dtype=dtype), how)
    gx, gw = torch.autograd.grad(theirs, (tx, tw), torch.from_numpy(np.ascontiguousarray(g)))
    assert_close(convs.conv_grad_input(np, g, w.conj(), x_shape, *case[2:]), array_of(gx), tolerance)
    assert_close(convs.conv_grad_weight(np, g, x.conj(), w_shape, *case[2:]), array_of(gw), tolerance)


@quick
@given(conv_case(), layouts)
def test_conv_and_its_gradients(case, how):
    check_conv(case, how)


@quick
@given(conv_case(), st.integers(1, 40))
def test_conv_in_small_pieces(case, columns):
    """Large inputs are done in pieces; tiny limits make small inputs go the same ways."""
    old = convs.PIECE_BYTES, convs.PIECE_COLUMNS
    convs.PIECE_BYTES, convs.PIECE_COLUMNS = 1, columns
    try:
        check_conv(case)
    finally:
        convs.PIECE_BYTES, convs.PIECE_COLUMNS = old


CONVS = [  # x, w, stride, padding, dilation, groups: one for each path through the kernels
    ((2, 3, 12, 12), (4, 3, 1, 1), (1, 1), (0, 0), (1, 1), 1),  # the image is the matrix
    ((2, 4, 12, 12), (6, 2, 1, 1), (1, 1), (0, 0), (1, 1), 2),
    ((5, 3, 4, 4), (4, 3, 1, 1), (1, 1), (0, 0), (1, 1), 1),  # too small for that
    ((2, 3, 9, 9), (4, 3, 1, 1), (2, 3), (1, 0), (1, 1), 1),
    ((2, 8, 9, 9), (8, 1, 3, 3), (1, 1), (1, 1), (1, 1), 8),  # depthwise
    ((2, 4, 9, 9), (8, 1, 3, 3), (2, 2), (1, 1), (1, 1), 4),  # depthwise, two outputs for each channel
    ((2, 2, 16, 20), (8, 2, 3, 3), (1, 1), (1, 1), (1, 1), 1),  # scattered with joined rows
    ((2, 2, 6, 6, 20), (8, 2, 2, 2, 3), (1, 1, 1), (0, 0, 1), (1, 1, 2), 1),
    ((2, 8, 10, 10), (4, 8, 3, 3), (1, 1), (2, 1), (2, 1), 1),  # the mirrored convolution
    ((2, 8, 10, 10), (4, 8, 3, 3), (1, 1), (4, 3), (1, 1), 1),  # padding beyond the kernel
    ((2, 3, 224), (4, 3, 16), (16,), (0,), (1,), 1),  # patches
    ((2, 3, 1500), (4, 3, 9), (1,), (4,), (1,), 1),
    ((0, 3, 8, 8), (4, 3, 3, 3), (1, 1), (0, 0), (1, 1), 1),  # no images
]


@pytest.mark.parametrize("case", CONVS, ids=str)
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.complex128, np.complex64])
def test_conv_paths(case, dtype):
    check_conv(case, dtype=dtype, tolerance=3e-4 if dtype in (np.float32, np.complex64) else 1e-10)


@quick
@given(conv_case(), layouts, st.data())
def test_conv_transpose(case, how, data):
    x_shape, w_shape, stride, padding, dilation, groups = case
    extra = tuple(data.draw(st.integers(0, max(s, d) - 1)) for s, d in zip(stride, dilation))
    shape = (x_shape[0], w_shape[0], *x_shape[2:])
    x, w, bias = (
        layout(normal(*shape, seed=1, dtype=np.float64), how),
        layout(normal(*w_shape, seed=2, dtype=np.float64), how),
        normal(w_shape[1] * groups, seed=3, dtype=np.float64),
    )
    args = (stride, padding, extra, dilation, groups)
    try:
        theirs = torch.convolution(
            *[torch.from_numpy(np.ascontiguousarray(a)) for a in (x, w, bias)],
            stride, padding, dilation, True, extra, groups,
        )  # fmt: skip
    except RuntimeError as error:
        with pytest.raises(RuntimeError) as ours:
            conv_transpose_shape(shape, w_shape, *args)
        if "too small" in str(error):
            assert str(ours.value) == str(error)
        return
    assert conv_transpose_shape(shape, w_shape, *args) == tuple(theirs.shape)
    assert_close(convs.conv_transpose(np, x, w, bias, *args), array_of(theirs), 1e-10)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8, torch.float16])
def test_conv_other_dtypes(dtype):
    x, w = torch.arange(2 * 3 * 5 * 5).reshape(2, 3, 5, 5) % 7, torch.arange(4 * 3 * 3 * 3).reshape(4, 3, 3, 3) % 3
    x, w = x.to(dtype), w.to(dtype)
    theirs = F.conv2d(x, w, padding=1)
    assert_close(convs.conv(np, x.numpy(), w.numpy(), None, (1, 1), (1, 1), (1, 1), 1), array_of(theirs), 1e-3)


def test_conv_leaves_its_arguments_alone():
    x, w, g = (
        normal(2, 3, 6, 6, seed=1, dtype=np.float64),
        normal(4, 3, 3, 3, seed=2, dtype=np.float64),
        normal(2, 4, 6, 6, seed=3, dtype=np.float64),
    )
    before = [a.copy() for a in (x, w, g)]
    for a in (x, w, g):
        a.flags.writeable = False
    args = ((1, 1), (1, 1), (1, 1), 1)
    for out in (
        convs.conv(np, x, w, None, *args),
        convs.conv_grad_input(np, g, w, x.shape, *args),
        convs.conv_grad_weight(np, g, x, w.shape, *args),
    ):
        assert out.flags.writeable and not any(np.shares_memory(out, a) for a in (x, w, g))
    for a, b in zip((x, w, g), before):
        np.testing.assert_array_equal(a, b)


CONV_ERRORS = [  # x, w, stride, padding, dilation, groups
    ((1, 3, 1, 1), (4, 3, 3, 3), 1, 0, 1, 1),
    ((1, 3, 3, 3), (4, 3, 3, 3), 1, 0, 2, 1),
    ((1, 3, 1), (4, 3, 3), 1, 0, 1, 1),
    ((1, 3, 1, 1, 1), (4, 3, 3, 3, 3), 1, 0, 1, 1),
    ((1, 4, 5, 5), (4, 3, 3, 3), 1, 0, 1, 1),
    ((1, 5, 5, 5), (4, 3, 3, 3), 1, 0, 1, 2),
    ((1, 6, 5, 5), (5, 3, 3, 3), 1, 0, 1, 2),
    ((1, 6, 5, 5), (1, 3, 3, 3), 1, 0, 1, 2),
    ((1, 3, 5, 5), (4, 3, 3, 3), 1, 0, 1, 0),
    ((1, 3, 5, 5), (4, 3, 3, 3), 0, 0, 1, 1),
    ((1, 3, 5, 5), (4, 3, 3, 3), 1, -1, 1, 1),
    ((1, 3, 5, 5), (4, 3, 3, 3), 1, 0, 0, 1),
    ((1, 3, 5, 5), (4, 3, 0, 3), 1, 0, 1, 1),
    ((1, 3, 0, 5), (4, 3, 3, 3), 1, 2, 1, 1),
]


@pytest.mark.parametrize("case", CONV_ERRORS, ids=str)
def test_conv_errors_are_pytorchs(case):
    x_shape, w_shape, *numbers, groups = case
    stride, padding, dilation = [(n,) * (len(x_shape) - 2) for n in numbers]
    with pytest.raises(RuntimeError) as theirs:
        torch.convolution(
            torch.zeros(x_shape),
            torch.zeros(w_shape),
            None,
            stride,
            padding,
            dilation,
            False,
            [0] * len(stride),
            groups,
        )
    with pytest.raises(RuntimeError) as ours:
        conv_shape(x_shape, w_shape, stride, padding, dilation, groups)
    assert str(ours.value) == str(theirs.value)


TRANSPOSE_ERRORS = [  # x, w, stride, padding, output_padding, dilation, groups
    ((1, 5, 5, 5), (4, 3, 3, 3), 1, 0, 0, 1, 1),
    ((1, 6, 5, 5), (6, 3, 3, 3), 1, 0, 0, 1, 4),
    ((1, 4, 5, 5), (4, 3, 3, 3), 1, 0, 1, 1, 1),
    ((1, 4, 5), (4, 3, 3), 1, 0, 1, 1, 1),
    ((1, 4, 5, 5, 5), (4, 3, 3, 3, 3), 2, 0, 2, 1, 1),
    ((1, 4, 5, 5), (4, 3, 3, 3), 1, 0, -1, 1, 1),
    ((1, 4, 1, 1), (4, 3, 3, 3), 1, 2, 0, 1, 1),
    ((1, 4, 1), (4, 3, 3), 1, 2, 0, 1, 1),
    ((1, 4, 1, 1, 1), (4, 3, 3, 3, 3), 1, 2, 0, 1, 1),
    ((1, 4, 0, 1), (4, 3, 3, 3), 1, 0, 0, 1, 1),
    ((1, 4, 0), (4, 3, 3), 1, 0, 0, 1, 1),
]


@pytest.mark.parametrize("case", TRANSPOSE_ERRORS, ids=str)
def test_conv_transpose_errors_are_pytorchs(case):
    x_shape, w_shape, *numbers, groups = case
    stride, padding, extra, dilation = [(n,) * (len(x_shape) - 2) for n in numbers]
    with pytest.raises(RuntimeError) as theirs:
        torch.convolution(
            torch.zeros(x_shape), torch.zeros(w_shape), None, stride, padding, dilation, True, extra, groups
        )
    with pytest.raises(RuntimeError) as ours:
        conv_transpose_shape(x_shape, w_shape, stride, padding, extra, dilation, groups)
    assert str(ours.value) == str(theirs.value)


# Pooling


@st.composite
def pool_case(draw, dilated):
    dims = draw(st.integers(1, 3))
    kernel, stride = draw(ints(dims, 1, 4)), draw(ints(dims, 1, 4))
    dilation = draw(ints(dims, 1, 2)) if dilated else (1,) * dims
    padding = tuple(draw(st.integers(0, k // 2)) for k in kernel)
    size = tuple(
        max(1, d * (k - 1) + 1 - 2 * p + extra)
        for k, d, p, extra in zip(kernel, dilation, padding, draw(ints(dims, 0, 6)))
    )
    shape = (draw(st.integers(0, 3)), draw(st.integers(1, 3)), *size)
    return shape, kernel, stride, padding, dilation, draw(st.booleans())


def check_max_pool(x, kernel, stride, padding, dilation, ceil_mode):
    tx = torch.from_numpy(np.ascontiguousarray(x)).requires_grad_(x.dtype.kind == "f")
    arguments = (kernel, stride, padding, dilation)
    theirs, places = MAX_POOL[len(kernel)](tx, *arguments, ceil_mode, return_indices=True)
    ours, indices = pools.max_pool(np, x, *arguments, ceil_mode)
    assert pools.pool_shape(x.shape, *arguments, ceil_mode) == tuple(theirs.shape)
    np.testing.assert_array_equal(ours, theirs.detach().numpy(), strict=True)
    alone = pools.max_pool_values(np, x, *arguments, ceil_mode)
    np.testing.assert_array_equal(alone, theirs.detach().numpy(), strict=True)
    assert indices.dtype == np.int64
    # All taps of a dilated window can miss the input: PyTorch's index then points anywhere, ours must be valid.
    inside = MAX_POOL[len(kernel)](torch.ones(x.shape), *arguments, ceil_mode).numpy() == 1
    np.testing.assert_array_equal(indices[inside], places.numpy()[inside])
    assert ((indices >= 0) & (indices < np.prod(x.shape[2:]))).all()
    if x.dtype.kind != "f" or not inside.all():
        return
    g = normal(*theirs.shape, seed=5, dtype=x.dtype)
    (gx,) = torch.autograd.grad(theirs, tx, torch.from_numpy(g))
    for windows in (arguments, None):
        assert_close(pools.max_pool_grad(np, g, indices, x.shape, windows), array_of(gx), 1e-10)
    gathered = torch.from_numpy(np.ascontiguousarray(x)).flatten(2).gather(2, places.flatten(2)).reshape(places.shape)
    assert_close(pools.max_pool_gather(np, x, indices), array_of(gathered), 1e-10)


@quick
@given(pool_case(dilated=True), layouts, st.sampled_from(["random", "ties", "nan", "low"]))
def test_max_pool(case, how, data):
    shape, *arguments = case
    x = normal(*shape, seed=1, dtype=np.float64)
    if data == "ties":
        x = np.round(x)
    elif data == "nan":
        x = np.where(x > 0.5, np.nan, np.round(x))
    elif data == "low":
        x = np.full(shape, -np.inf)
    check_max_pool(layout(x, how), *arguments)


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint8, np.float32, np.float16])
@pytest.mark.parametrize("arguments", [((2, 2), (2, 2), (0, 0)), ((3, 3), (2, 2), (1, 1)), ((4, 4), (4, 4), (0, 0))])
def test_max_pool_dtypes(dtype, arguments):
    x = (np.arange(2 * 3 * 9 * 8).reshape(2, 3, 9, 8) * 37 % 101).astype(dtype)
    if dtype == np.float16:
        tx = torch.from_numpy(x)
        theirs = F.max_pool2d(tx, *arguments, return_indices=True)
        ours = pools.max_pool(np, x, *arguments, (1, 1), False)
        for a, b in zip(ours, theirs):
            np.testing.assert_array_equal(a, b.numpy(), strict=True)
    else:
        check_max_pool(x, *arguments, (1, 1), False)


@pytest.mark.parametrize("holes", [False, True])
def test_max_pool_of_large_tiles_and_large_kernels(holes):
    x = np.round(normal(2, 3, 13, 18, seed=1, dtype=np.float64) * 2)
    if holes:
        x[x > 2] = np.nan
    check_max_pool(x, (4, 6), (4, 6), (0, 0), (1, 1), False)
    check_max_pool(x, (13, 18), (13, 18), (0, 0), (1, 1), False)
    check_max_pool(x, (5, 6), (5, 6), (2, 1), (1, 1), True)
    check_max_pool(
        normal(1, 1, 40, 40, seed=1, dtype=np.float64), (17, 17), (3, 3), (8, 8), (1, 1), False
    )  # more than 255 taps


def test_max_pool_over_several_blocks(monkeypatch):
    monkeypatch.setattr(pools, "BLOCK_BYTES", 1000)
    check_max_pool(normal(3, 4, 7, 8, seed=1, dtype=np.float64), (2, 2), (2, 2), (0, 0), (1, 1), False)
    check_max_pool(normal(3, 4, 7, 8, seed=1, dtype=np.float64), (3, 3), (2, 2), (1, 1), (1, 1), True)


@quick
@given(pool_case(dilated=False), layouts, st.booleans(), st.sampled_from([None, 3, -2]))
def test_avg_pool(case, how, count_include_pad, divisor):
    shape, kernel, stride, padding, _, ceil_mode = case
    dims = len(kernel)
    if dims == 1:
        divisor = None
    x = layout(normal(*shape, seed=1, dtype=np.float64), how)
    tx = torch.from_numpy(np.ascontiguousarray(x)).requires_grad_()
    more = () if dims == 1 else (divisor,)
    try:
        theirs = AVG_POOL[dims](tx, kernel, stride, padding, ceil_mode, count_include_pad, *more)
    except RuntimeError as error:  # avg_pool3d alone refuses these, though with padding they have a shape
        assert dims == 3 and "smaller than kernel size" in str(error)
        hypothesis.reject()
    arguments = (kernel, stride, padding, ceil_mode, count_include_pad, divisor)
    assert_close(pools.avg_pool(np, x, *arguments), array_of(theirs), 1e-10)
    g = layout(normal(*theirs.shape, seed=2, dtype=np.float64), how)
    (gx,) = torch.autograd.grad(theirs, tx, torch.from_numpy(np.ascontiguousarray(g)))
    assert_close(pools.avg_pool_grad(np, g, x.shape, *arguments), array_of(gx), 1e-10)


def test_avg_pool_of_integers_divides_towards_zero():
    x = torch.tensor([[[[7, -8], [-7, -3]]]])
    for kernel in ((1, 2), (2, 1), (2, 2)):
        ours = pools.avg_pool(np, x.numpy(), kernel, kernel, (0, 0), False, True, None)
        np.testing.assert_array_equal(ours, F.avg_pool2d(x, kernel).numpy(), strict=True)


@quick
@given(st.data(), st.integers(1, 3), layouts, st.booleans())
def test_adaptive_pools(data, dims, how, holes):
    shape = (data.draw(st.integers(0, 2)), data.draw(st.integers(1, 3)), *data.draw(ints(dims, 1, 9)))
    size = data.draw(ints(dims, 0, 10))
    x = layout(normal(*shape, seed=1, dtype=np.float64), how)
    tx = torch.from_numpy(np.ascontiguousarray(x)).requires_grad_()
    theirs = ADAPTIVE_AVG[dims](tx, size)
    assert_close(pools.adaptive_avg_pool(np, x, size), array_of(theirs), 1e-10)
    g = normal(*theirs.shape, seed=2, dtype=np.float64)
    if 0 not in size:  # PyTorch has no gradient of nothing
        (gx,) = torch.autograd.grad(theirs, tx, torch.from_numpy(g))
        assert_close(pools.adaptive_avg_pool_grad(np, g, x.shape), array_of(gx), 1e-10)
    else:
        np.testing.assert_array_equal(pools.adaptive_avg_pool_grad(np, g, x.shape), np.zeros(shape))

    x = layout(np.where(x > 0.7, np.nan, np.round(x)) if holes else x, how)
    tx = torch.from_numpy(np.ascontiguousarray(x)).requires_grad_()
    theirs, places = ADAPTIVE_MAX[dims](tx, size, return_indices=True)
    ours, indices = pools.adaptive_max_pool(np, x, size)
    np.testing.assert_array_equal(ours, theirs.detach().numpy(), strict=True)
    np.testing.assert_array_equal(indices, places.numpy(), strict=True)
    if 0 not in size:
        (gx,) = torch.autograd.grad(theirs, tx, torch.from_numpy(g))
        assert_close(pools.max_pool_grad(np, g, indices, x.shape), array_of(gx), 1e-10)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_pools_keep_the_dtype(dtype):
    x = torch.randn(2, 3, 7, 9).to(dtype)
    tolerance = 2e-3 if dtype == torch.float16 else 1e-6
    for kernel in ((2, 2), (3, 2)):
        theirs = F.avg_pool2d(x, kernel)
        assert_close(
            pools.avg_pool(np, x.numpy(), kernel, kernel, (0, 0), False, True, None), array_of(theirs), tolerance
        )
    for size in ((1, 1), (3, 4)):
        assert_close(pools.adaptive_avg_pool(np, x.numpy(), size), array_of(F.adaptive_avg_pool2d(x, size)), tolerance)
        assert_close(
            pools.adaptive_max_pool(np, x.numpy(), size)[0], array_of(F.adaptive_max_pool2d(x, size)), tolerance
        )


POOL_ERRORS = [  # x, kernel, stride, padding, dilation
    ((1, 3, 5, 5), 2, 2, 2, 1),
    ((1, 3, 5, 5), 2, 2, 2, 3),
    ((1, 3, 5, 5, 5), 3, 3, 2, 1),
    ((1, 3, 5, 5, 5), 2, 2, 2, 3),
    ((1, 3, 5, 5), 3, 3, -1, 1),
    ((1, 3, 5, 5), 7, 7, 0, 1),
    ((3, 5, 5), 7, 7, 0, 1),
    ((1, 3, 5, 5, 5), 7, 7, 0, 1),
    ((1, 3, 5, 5), 2, 0, 0, 1),
    ((1, 3, 5, 5), 0, 1, 0, 1),
    ((1, 3, 5, 5, 5), 0, 1, 0, 1),
    ((1, 3, 5, 5), 2, -1, 0, 1),
    ((1, 3, 5, 5), 2, 1, 0, 0),
]


@pytest.mark.parametrize("case", POOL_ERRORS, ids=str)
def test_pool_errors_are_pytorchs(case):
    shape, *numbers = case
    dims = max(2, len(shape) - 2)
    with pytest.raises(RuntimeError) as theirs:
        MAX_POOL[dims](torch.zeros(shape), *numbers)
    with pytest.raises(RuntimeError) as ours:
        pools.pool_shape(shape, *[(n,) * dims for n in numbers], False)
    assert str(ours.value) == str(theirs.value)
