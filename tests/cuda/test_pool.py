"""Pooling on the device against torch on the CPU: values, places, ties, NaN, borders, layouts, gradients."""

import itertools

import numpy as np
import pytest

import tensorgrad
from tests.cuda.test_matmul import close, pair

torch = pytest.importorskip("torch")

FLOATING = ("float32", "float64", "float16", "bfloat16")
# (input, kernel, other parameters)
CASES = (
    ((2, 3, 7, 8), 2, {}),
    ((2, 3, 7, 8), (3, 2), {"stride": (2, 1), "padding": (1, 0)}),
    ((1, 2, 9, 9), 3, {"stride": 2, "padding": 1, "ceil_mode": True}),
    ((2, 2, 6, 5), (3, 5), {"stride": 5, "padding": (1, 2), "ceil_mode": True}),
    ((3, 2, 11), 4, {"stride": 3, "padding": 2}),
    ((2, 2, 5, 4, 6), (2, 3, 2), {"stride": (1, 2, 2), "padding": (0, 1, 1)}),
    ((2, 3, 9, 10), (9, 10), {}),
    ((2, 3, 8), 8, {}),
    ((3, 6, 6), 2, {}),  # no batch
    ((0, 3, 6, 6), 2, {}),
)
DILATED = (
    ((2, 3, 9, 8), 3, {"dilation": 2, "stride": 1, "padding": 1}),
    ((1, 2, 10), 3, {"dilation": 3, "stride": 2}),
    ((2, 2, 7, 5, 6), 2, {"dilation": (2, 1, 3), "ceil_mode": True}),
)
ADAPTIVE = (
    ((2, 3, 7, 8), (3, 5)), ((2, 3, 8, 6), (4, 3)), ((1, 4, 5, 5), 1), ((2, 2, 3, 4), (5, 7)), ((3, 2, 11), 4),
    ((2, 2, 5, 6, 7), (2, 4, 3)), ((3, 6, 9), (2, 2)), ((0, 3, 6, 6), (2, 2)), ((2, 3, 12, 12), 1),
)  # fmt: skip


def dims_of(shape, dims=None):
    return dims or {3: 1, 4: 2, 5: 3}[len(shape)]


def run(name, x, *arguments, **parameters):
    if isinstance(x, tensorgrad.Tensor):
        return getattr(tensorgrad.nn.functional, name)(x, *arguments, **parameters)
    if name == "avg_pool3d" and x.dtype.itemsize == 2:  # torch has not got it on the CPU
        return run(name, x.float(), *arguments, **parameters).to(x.dtype)
    return getattr(torch.nn.functional, name)(x, *arguments, **parameters)


def rank(case):
    """The spatial dimensions of a case; one without a batch has two."""
    return 2 if case[0][:1] == (3,) and len(case[0]) == 3 and case[0] != (3, 2, 11) else dims_of(case[0])


def check_gradients(name, shape, dtype, *arguments, layout="plain", **parameters):
    results = []
    for place, library in ((0, torch), (1, tensorgrad)):
        x = pair(shape, dtype, layout)[place].detach().requires_grad_()
        out = run(name, x, *arguments, **parameters)
        slope = pair(tuple(out.shape), dtype, layout, seed=7)[place].detach().requires_grad_()
        (first,) = library.autograd.grad(out, x, slope, create_graph=True)
        weight = pair(shape, dtype, seed=8)[place]
        (second,) = library.autograd.grad((first * weight).sum(), slope)
        results.append((out, first, second))
    for ours, theirs in zip(results[1], results[0], strict=True):
        close(ours, theirs, dtype, 3)


@pytest.mark.parametrize("dtype", FLOATING)
@pytest.mark.parametrize("case", CASES + DILATED, ids=str)
def test_max_pool(case, dtype):
    a, x = pair(case[0], dtype)
    name = f"max_pool{rank(case)}d"
    theirs = run(name, a, case[1], **case[2], return_indices=True)
    ours = run(name, x, case[1], **case[2], return_indices=True)
    for mine, other in zip(ours, theirs, strict=True):
        close(mine, other, "int64")
    close(run(name, x, case[1], **case[2]), theirs[0], "int64")  # a kernel of its own, where no places are asked for
    check_gradients(name, case[0], dtype, case[1], **case[2])


@pytest.mark.parametrize("dtype", FLOATING)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_avg_pool(case, dtype):
    choices = [{}, {"count_include_pad": False}]
    if rank(case) > 1:
        choices += [{"divisor_override": 3}, {"divisor_override": -2}]
    for choice in choices:
        check_gradients(f"avg_pool{rank(case)}d", case[0], dtype, case[1], **case[2], **choice)


@pytest.mark.parametrize("dtype", FLOATING)
@pytest.mark.parametrize("case", ADAPTIVE, ids=str)
def test_adaptive(case, dtype):
    check_gradients(f"adaptive_avg_pool{rank(case)}d", case[0], dtype, case[1])
    name = f"adaptive_max_pool{rank(case)}d"
    a, x = pair(case[0], dtype)
    for mine, other in zip(run(name, x, case[1], True), run(name, a, case[1], True), strict=True):
        close(mine, other, "int64")
    check_gradients(name, case[0], dtype, case[1])


@pytest.mark.parametrize("dtype", ("int64", "int32", "int16", "int8", "uint8"))
def test_integers(dtype):
    a, x = pair((2, 3, 7, 8), dtype)
    both = [run("max_pool2d", y, 3, 2, 1, return_indices=True) for y in (x, a)]
    for mine, other in zip(*both, strict=True):
        close(mine, other, "int64")
    a, x = pair((2, 3, 7, 8), "int64")
    close(run("avg_pool2d", x, 3, 2, 1), run("avg_pool2d", a, 3, 2, 1), "int64")


@pytest.mark.parametrize("kernel", (2, 3, (4, 4)), ids=str)
@pytest.mark.parametrize("dtype", FLOATING)
def test_ties_nan_and_infinities(kernel, dtype):
    numbers = np.random.default_rng(3)
    host = numbers.integers(-2, 3, (3, 4, 8, 8)).astype(np.float64)
    host[numbers.random(host.shape) < 0.1] = np.nan
    host[0, 0], host[0, 1], host[1, 2, :4] = -np.inf, np.nan, np.inf
    a, x = torch.tensor(host).to(getattr(torch, dtype)), tensorgrad.tensor(host).to(getattr(tensorgrad, dtype)).cuda()
    for parameters in ({}, {"stride": 1, "padding": 1}):
        theirs = run("max_pool2d", a, kernel, **parameters, return_indices=True)
        ours = run("max_pool2d", x, kernel, **parameters, return_indices=True)
        for mine, other in zip(ours, theirs, strict=True):
            close(mine, other, "int64")
    for size in ((2, 4), (3, 5)):
        both = [run("adaptive_max_pool2d", y, size, True) for y in (x, a)]
        for mine, other in zip(*both, strict=True):
            close(mine, other, "int64")
    close(run("avg_pool2d", x, kernel), run("avg_pool2d", a, kernel), dtype)


@pytest.mark.parametrize("layout", ("turned", "sliced", "expanded", "backwards"))
def test_layouts(layout):
    for name, arguments in (
        ("max_pool2d", (3, 2, 1)), ("avg_pool2d", (3, 2, 1)), ("adaptive_avg_pool2d", ((3, 2),)),
        ("adaptive_max_pool2d", ((3, 2),)),
    ):  # fmt: skip
        check_gradients(name, (2, 3, 7, 8), "float32", *arguments, layout=layout)


@pytest.mark.parametrize("dtype", ("float32", "bfloat16"))
@pytest.mark.parametrize("dims", (2, 3))
def test_channels_last_stay_last(dtype, dims):
    """Where they do in PyTorch: of the poolings in three dimensions, in max_pool3d alone."""
    format = "channels_last" if dims == 2 else "channels_last_3d"
    shape = (2, 5, 6, 7, 4)[: dims + 2]
    for name, arguments in (
        (f"max_pool{dims}d", (3, 2, 1)), (f"avg_pool{dims}d", (3, 2, 1)), (f"avg_pool{dims}d", (2,)),
        (f"adaptive_avg_pool{dims}d", (3,)), (f"adaptive_max_pool{dims}d", (2,)),
    ):  # fmt: skip
        results = []
        for place, library in ((0, torch), (1, tensorgrad)):
            x = pair(shape, dtype)[place].to(memory_format=getattr(library, format)).requires_grad_()
            out = run(name, x, *arguments)
            slope = pair(tuple(out.shape), dtype, seed=5)[place].to(memory_format=getattr(library, format))
            out.backward(slope)
            results.append((out, x.grad))
        for mine, other in zip(results[1], results[0], strict=True):
            assert mine.stride() == other.stride(), (name, arguments)
            close(mine, other, dtype, 2)


def test_dilated_windows_that_miss_the_input_agree_with_the_cpu():
    for size, kernel, dilation in itertools.product((2, 3), (2, 3), (2, 3, 4)):
        if size + 2 * (kernel // 2) < dilation * (kernel - 1) + 1:
            continue
        x = pair((1, 2, size + 1, size))[1]
        arguments = ((1, kernel), 1, (0, kernel // 2), (1, dilation))
        results = []
        for y in (x.requires_grad_(), x.detach().cpu().requires_grad_()):
            values, places = run("max_pool2d", y, *arguments, return_indices=True)
            values.sum().backward()
            results.append((values.tolist(), places.tolist(), y.grad.tolist()))
        assert results[0] == results[1]


def test_unpooling_and_power_means():
    a, x = pair((2, 3, 6, 6))
    values, places = run("max_pool2d", x, 2, return_indices=True)
    theirs = run("max_pool2d", a, 2, return_indices=True)
    close(run("max_unpool2d", values, places, 2), run("max_unpool2d", *theirs, 2))
    close(run("lp_pool2d", x.abs(), 2.0, 3, 2), run("lp_pool2d", a.abs(), 2.0, 3, 2), scale=3)


def test_errors_are_those_of_the_cpu():
    x = tensorgrad.ones(2, 3, 5, 5)
    for name, arguments in (
        ("max_pool2d", (2, 2, 2)), ("max_pool2d", (7,)), ("avg_pool2d", (0,)), ("max_pool2d", (2, 0)),
        ("adaptive_avg_pool2d", ((-1, 2),)),
    ):  # fmt: skip
        with pytest.raises(RuntimeError) as ours:
            run(name, x.cuda(), *arguments)
        with pytest.raises(RuntimeError) as theirs:
            run(name, x, *arguments)
        assert str(ours.value) == str(theirs.value)
