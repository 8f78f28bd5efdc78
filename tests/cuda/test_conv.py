"""Convolutions on the device against torch on the CPU: by cuDNN, and by matrix products where there is none."""

import itertools
import threading

import numpy as np
import pytest

import tensorgrad
from tensorgrad.kernels.cuda.runtime import libraries, switches
from tests.cuda.conftest import MODE
from tests.cuda.test_matmul import close, pair

torch = pytest.importorskip("torch")
emulated = pytest.mark.skipif(MODE != "emulator", reason="looks at the calls that the emulator's cuDNN noted")

# How a convolution runs, with which dtype: cuDNN has no complex numbers.
WAYS = [*(("cudnn", dtype) for dtype in ("float32", "float64", "float16", "bfloat16")),
        *(("columns", dtype) for dtype in ("float32", "bfloat16", "complex64", "complex128"))]  # fmt: skip
# (input, weights, parameters)
CASES = (
    ((2, 3, 7, 8), (4, 3, 3, 3), {}),
    ((2, 3, 7, 8), (4, 3, 3, 2), {"stride": 2, "padding": 1}),
    ((2, 4, 9, 7), (6, 2, 3, 3), {"groups": 2, "padding": (1, 2), "dilation": (2, 1)}),
    ((1, 3, 6, 5), (2, 3, 1, 1), {}),
    ((3, 3, 4, 4), (5, 3, 1, 1), {"stride": 2}),
    ((2, 5, 1, 1), (4, 5, 1, 1), {}),
    ((2, 3, 11), (4, 3, 4), {"stride": 3, "padding": 2}),
    ((2, 4, 9), (4, 1, 3), {"groups": 4, "padding": 1}),
    ((2, 2, 5, 6, 4), (3, 2, 2, 3, 2), {"padding": (1, 0, 1), "stride": (2, 1, 1)}),
    ((2, 4, 6, 6), (8, 1, 3, 3), {"groups": 4, "stride": 2, "padding": 1}),
    ((1, 6, 5, 7), (6, 1, 3, 5), {"groups": 6, "dilation": (1, 2), "padding": (0, 4)}),
    ((1, 3, 4, 5, 3), (3, 1, 3, 3, 3), {"groups": 3, "padding": 1}),
    ((3, 5, 6), (2, 3, 3, 3), {}),  # no batch
)
LAYOUTS = [*itertools.product(("plain", "turned", "sliced", "expanded"), repeat=2)]
EMPTY = (((0, 3, 5, 5), (4, 3, 3, 3), {}), ((0, 3, 5, 5), (4, 3, 1, 1), {}), ((0, 4, 6), (4, 1, 3), {"groups": 4}))


@pytest.fixture(params=("cudnn", "columns"))
def way(request):
    """Once on cuDNN, once without; and float32 as it is."""
    if request.param == "cudnn" and not libraries.present("cudnn"):
        pytest.skip("cuDNN was not found")
    before = switches.cudnn.enabled, switches.cudnn.allow_tf32
    switches.cudnn.enabled, switches.cudnn.allow_tf32 = request.param == "cudnn", False
    yield request.param
    switches.cudnn.enabled, switches.cudnn.allow_tf32 = before


def run(name, x, w, bias, parameters):
    library = tensorgrad if isinstance(x, tensorgrad.Tensor) else torch
    return getattr(library.nn.functional, name)(x, w, bias, **parameters)


def named(w, transposed=False):
    return f"conv{'_transpose' * transposed}{w.ndim - 2}d"


@pytest.mark.parametrize(("way", "dtype"), WAYS, indirect=["way"])
@pytest.mark.parametrize("case", CASES + EMPTY, ids=str)
def test_forward(case, dtype, way):
    (a, x), (b, w) = pair(case[0], dtype), pair(case[1], dtype, seed=1)
    (c, d) = pair(case[1][:1], dtype, seed=2)
    close(run(named(w), x, w, d, case[2]), run(named(w), a, b, c, case[2]), dtype, 5)
    close(run(named(w), x, w, None, case[2]), run(named(w), a, b, None, case[2]), dtype, 5)


@pytest.mark.parametrize(("way", "dtype"), WAYS, indirect=["way"])
@pytest.mark.parametrize("case", CASES + EMPTY, ids=str)
def test_gradients_of_both_orders(case, dtype, way):
    results = []
    for place in (0, 1):
        leaves = [pair(case[0], dtype)[place], pair(case[1], dtype, seed=1)[place], pair(case[1][:1], dtype)[place]]
        leaves = [leaf.requires_grad_() for leaf in leaves]
        library = (torch, tensorgrad)[place]
        out = run(named(leaves[1]), *leaves, case[2])
        slope = pair(tuple(out.shape), dtype, seed=4)[place]
        twice = dtype in ("float64", "complex128") and out.numel() > 0
        first = library.autograd.grad((out * slope).sum().abs(), leaves, create_graph=twice)
        second = []
        if twice:
            second = library.autograd.grad(sum((g * g).sum() for g in first[:2]).abs(), leaves[:2])
        results.append((*first, *second))
    for ours, theirs in zip(results[1], results[0], strict=True):
        close(ours, theirs, dtype, 30 * max(1, float(theirs.detach().abs().max()) if theirs.numel() else 1))


TRANSPOSED = (
    ((2, 3, 4, 5), (3, 4, 3, 3), {}),
    ((2, 3, 4, 5), (3, 4, 3, 2), {"stride": 2, "padding": 1, "output_padding": 1}),
    ((2, 4, 4, 3), (4, 3, 2, 3), {"groups": 2, "dilation": 2, "stride": (1, 2)}),
    ((2, 4, 4, 3), (4, 3, 2, 3), {"dilation": 3, "stride": 2, "output_padding": 2}),  # room for more windows
    ((2, 3, 6), (3, 2, 4), {"stride": 3, "padding": 2}),
    ((2, 4, 5), (4, 1, 3), {"groups": 4, "stride": 2}),
    ((1, 3, 3, 4, 2), (3, 2, 2, 2, 2), {"stride": 2}),
    ((2, 3, 4, 4), (3, 5, 1, 1), {}),
    ((0, 3, 4, 4), (3, 5, 2, 2), {}),
)


@pytest.mark.parametrize(("way", "dtype"), WAYS, indirect=["way"])
@pytest.mark.parametrize("case", TRANSPOSED, ids=str)
def test_transposed(case, dtype, way):
    results = []
    groups = case[2].get("groups", 1)
    for place in (0, 1):
        leaves = [pair(case[0], dtype)[place], pair(case[1], dtype, seed=1)[place]]
        leaves.append(pair((case[1][1] * groups,), dtype)[place])
        leaves = [leaf.requires_grad_() for leaf in leaves]
        out = run(named(leaves[1], True), *leaves, case[2])
        slope = pair(tuple(out.shape), dtype, seed=4)[place]
        (out * slope).sum().abs().backward()
        results.append((out, *[leaf.grad for leaf in leaves]))
    for ours, theirs in zip(results[1], results[0], strict=True):
        close(ours, theirs, dtype, 20 * max(1, float(theirs.detach().abs().max()) if theirs.numel() else 1))


@pytest.mark.parametrize("layouts", LAYOUTS, ids="-".join)
@pytest.mark.parametrize("case", (CASES[0], CASES[3], CASES[6], CASES[9]), ids=str)
def test_layouts(case, layouts, way):
    (a, x), (b, w) = pair(case[0], layout=layouts[0]), pair(case[1], layout=layouts[1], seed=1)
    a, x, b, w = (t.detach().requires_grad_() for t in (a, x, b, w))
    ours, theirs = run(named(w), x, w, None, case[2]), run(named(w), a, b, None, case[2])
    close(ours, theirs, scale=3)
    g = pair(tuple(theirs.shape), layout=layouts[0], seed=9)
    for mine, other in zip(
        tensorgrad.autograd.grad(ours, (x, w), g[1]), torch.autograd.grad(theirs, (a, b), g[0]), strict=True
    ):
        close(mine, other, scale=20)


@pytest.mark.parametrize("dtype", ("float32", "float64", "bfloat16"))
@pytest.mark.parametrize("kernel", (1, 3))
def test_channels_last(dtype, kernel, way):
    (a, x), (b, w) = pair((2, 4, 5, 6), dtype), pair((3, 4, kernel, kernel), dtype, seed=1)
    a, x = (t.to(memory_format=library.channels_last) for t, library in ((a, torch), (x, tensorgrad)))
    a, x, b, w = (t.requires_grad_() for t in (a, x, b, w))
    ours, theirs = run(named(w), x, w, None, {"padding": 1}), run(named(w), a, b, None, {"padding": 1})
    close(ours, theirs, dtype, 5)
    ours.sum().backward()
    theirs.sum().backward()
    close(x.grad, a.grad, dtype, 20)
    close(w.grad, b.grad, dtype, 60)
    if way == "cudnn" and dtype != "float64":
        assert ours.is_contiguous(memory_format=tensorgrad.channels_last)


def test_integers_are_exact():
    (a, x), (b, w) = pair((2, 3, 5, 5), "int64"), pair((4, 3, 3, 3), "int64")
    close(run("conv2d", x, w, None, {"padding": 1}), run("conv2d", a, b, None, {"padding": 1}), "int64")


def test_errors_are_those_of_the_cpu():
    x = tensorgrad.ones(2, 3, 5, 5)
    for w, parameters in (
        (tensorgrad.ones(4, 2, 3, 3), {}), (tensorgrad.ones(4, 3, 7, 7), {}),
        (tensorgrad.ones(4, 3, 3, 3), {"stride": 0}), (tensorgrad.ones(4, 3, 3, 3).double(), {}),
    ):  # fmt: skip
        with pytest.raises(RuntimeError) as ours:
            run("conv2d", x.cuda(), w.cuda(), None, parameters)
        with pytest.raises(RuntimeError) as theirs:
            run("conv2d", x, w, None, parameters)
        assert str(ours.value) == str(theirs.value)


def test_columns_are_made_in_pieces(monkeypatch):
    from tensorgrad.kernels.cuda import conv

    monkeypatch.setattr(switches.cudnn, "enabled", False)
    monkeypatch.setattr(switches.cudnn, "allow_tf32", False)
    monkeypatch.setattr(conv, "COLUMNS_BYTES", 3 * 27 * 25 * 4 + 5)
    (a, x), (b, w) = pair((8, 3, 5, 5)), pair((4, 3, 3, 3))
    a, x, b, w = (t.requires_grad_() for t in (a, x, b, w))
    ours, theirs = run("conv2d", x, w, None, {"padding": 1}), run("conv2d", a, b, None, {"padding": 1})
    close(ours, theirs, scale=3)
    (ours * ours).sum().backward()
    (theirs * theirs).sum().backward()
    close(x.grad, a.grad, scale=30)
    close(w.grad, b.grad, scale=60)


# --- how cuDNN is asked --------------------------------------------------------------------------------------------


RUNS = ("cudnnConvolution", "cudnnBackendExecute")


def noted(*words):
    from tests.emulator.cudnn import LIBRARY

    return [(name, note) for name, note in LIBRARY.take_calls() if any(word in name for word in words or RUNS)]


@pytest.fixture
def older(monkeypatch):
    """cuDNN without its graph interface."""
    from tensorgrad.kernels.cuda.runtime import cudnn, cudnn_graph

    monkeypatch.setattr(cudnn_graph, "TYPES", {})
    cudnn.handle().plans.clear()
    yield
    cudnn.handle().plans.clear()


@pytest.fixture
def fresh():
    """No plans of other tests."""
    from tensorgrad.kernels.cuda.runtime import cudnn

    cudnn.handle().plans.clear()
    yield
    cudnn.handle().plans.clear()


@emulated
def test_tf32_is_allowed_by_default_and_can_be_forbidden(older):
    assert tensorgrad.backends.cudnn.allow_tf32 is switches.cudnn.allow_tf32
    (a, x), (b, w) = pair((2, 8, 6, 6)), pair((4, 8, 3, 3))
    exact = run("conv2d", a, b, None, {})
    noted()
    with tensorgrad.backends.cudnn.flags(enabled=True, allow_tf32=True):
        rounded = run("conv2d", x, w, None, {})
    with tensorgrad.backends.cudnn.flags(enabled=True, allow_tf32=False):
        close(run("conv2d", x, w, None, {}), exact, scale=3)
    away = np.abs(rounded.cpu().numpy() - exact.numpy()).max()
    assert 1e-5 < away < 2e-2
    assert [note["math"] for _, note in noted()] == [0, 3]


@emulated
def test_a_plan_is_made_once_for_its_shapes(older):
    (_, x), (_, w) = pair((2, 3, 6, 5)), pair((4, 3, 3, 3))
    noted()
    for _ in range(3):
        run("conv2d", x, w, None, {})
    names = [name for name, _ in noted("cudnn")]
    assert len([name for name in names if "Algorithm" in name]) == 1
    assert names.count("cudnnConvolutionForward") == 3
    run("conv2d", x[:1], w, None, {})
    assert len(noted("Algorithm")) == 1


@emulated
def test_determinism_excludes_algorithms(older):
    (_, x), (_, w) = pair((2, 3, 6, 6)), pair((4, 3, 3, 3))
    w.requires_grad_()
    chosen = []
    for deterministic in (False, True):
        with tensorgrad.backends.cudnn.flags(enabled=True, deterministic=deterministic):
            noted()
            run("conv2d", x, w, None, {}).sum().backward()
            chosen += [note["algorithm"] for name, note in noted() if "Filter" in name]
    tensorgrad.use_deterministic_algorithms(True)
    try:
        noted()
        run("conv2d", x, w, None, {}).sum().backward()
        chosen += [note["algorithm"] for name, note in noted() if "Filter" in name]
    finally:
        tensorgrad.use_deterministic_algorithms(False)
    assert chosen == [0, 1, 1]


@emulated
def test_benchmark_tries_the_algorithms(monkeypatch):
    from tensorgrad.kernels.cuda.runtime import cudnn

    monkeypatch.setattr(cudnn, "TRIAL_BYTES", 1 << 20)
    (a, x), (b, w) = pair((2, 3, 7, 6)), pair((4, 3, 3, 3))
    noted()
    with tensorgrad.backends.cudnn.flags(enabled=True, benchmark=True, allow_tf32=False):
        close(run("conv2d", x, w, None, {"padding": 1}), run("conv2d", a, b, None, {"padding": 1}), scale=3)
    assert [name for name, _ in noted("Algorithm")] == ["cudnnFindConvolutionForwardAlgorithmEx"]


@emulated
def test_without_an_algorithm_columns_serve(older, monkeypatch):
    from tests.emulator import cudnn

    (a, x), (b, w) = pair((2, 3, 9, 6)), pair((4, 3, 3, 3))
    monkeypatch.setitem(cudnn.ALGORITHMS, "Forward", ())
    noted()
    with tensorgrad.backends.cudnn.flags(enabled=True, allow_tf32=False):
        close(run("conv2d", x, w, None, {}), run("conv2d", a, b, None, {}), scale=3)
    assert not noted()


@emulated
def test_short_memory_takes_an_algorithm_that_needs_less(older, monkeypatch):
    import cupy

    (a, x), (b, w) = pair((2, 3, 8, 6)), pair((4, 3, 3, 3))
    alloc = cupy.cuda.alloc

    def tight(size):
        if size > 500:
            raise cupy.cuda.memory.OutOfMemoryError(size, 0)
        return alloc(size)

    monkeypatch.setattr(cupy.cuda, "alloc", tight)
    noted()
    with tensorgrad.backends.cudnn.flags(enabled=True, allow_tf32=False):
        close(run("conv2d", x, w, None, {}), run("conv2d", a, b, None, {}), scale=3)
        monkeypatch.setattr(cupy.cuda, "alloc", alloc)
        run("conv2d", x, w, None, {})
    assert [note["algorithm"] for _, note in noted()] == [1, 6]


@emulated
def test_groups_are_one_call_and_one_dimension_is_two():
    (_, x), (_, w) = pair((2, 6, 9)), pair((4, 3, 3))
    noted()
    with tensorgrad.backends.cudnn.flags(enabled=True):
        run("conv1d", x, w, None, {"groups": 2})
    assert [note["groups"] for _, note in noted()] == [2]


@emulated
def test_threads_have_handles_of_their_own():
    from tensorgrad.kernels.cuda.runtime import cudnn

    (a, x), (b, w) = pair((2, 3, 6, 6)), pair((4, 3, 3, 3))
    found, exact = [], run("conv2d", a, b, None, {}).numpy()

    def work():
        with tensorgrad.no_grad():
            found.append((cudnn.handle().address, run("conv2d", x, w, None, {}).cpu().numpy()))

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({address for address, _ in found}) == 3
    for _, result in found:
        np.testing.assert_allclose(result, exact, atol=2e-2)


@emulated
def test_a_refusal_names_the_call_and_the_shapes(monkeypatch):
    from tensorgrad.kernels.cuda.runtime import cudnn

    (_, x), (_, w) = pair((3, 3, 6, 6)), pair((4, 3, 3, 3))
    run("conv2d", x, w, None, {})
    monkeypatch.setattr(cudnn.handle(), "in_c", 4)
    with pytest.raises(RuntimeError, match=r"cudnnBackendExecute of float32 with input \(3, 3, 6, 6\).*NOT_INIT"):
        run("conv2d", x, w, None, {})


@emulated
def test_a_refusal_of_the_older_interface(older, monkeypatch):
    from tensorgrad.kernels.cuda.runtime import cudnn

    (_, x), (_, w) = pair((3, 3, 6, 6)), pair((4, 3, 3, 3))
    run("conv2d", x, w, None, {})
    monkeypatch.setattr(cudnn.handle(), "in_c", 4)
    with pytest.raises(RuntimeError, match=r"cudnnConvolutionForward of float32 with input \(3, 3, 6, 6\).*NOT_INIT"):
        run("conv2d", x, w, None, {})


# --- the graph interface -------------------------------------------------------------------------------------------


def engines(step):
    """The engines that a step's convolutions ran on, or the older interface's function."""
    noted()
    step()
    return [note.get("engine", name) for name, note in noted()]


@emulated
def test_an_execution_plan_is_made_once(fresh):
    (_, x), (_, w) = pair((2, 3, 6, 5)), pair((4, 3, 3, 3))
    noted()
    for _ in range(3):
        run("conv2d", x, w, None, {})
    names = [name for name, _ in noted("cudnn")]
    assert names.count("cudnnBackendExecute") == 3 and not [name for name in names if "cudnnConvolution" in name]
    run("conv2d", x, w, None, {})
    again = [name for name, _ in noted("cudnn")]
    assert again.count("cudnnBackendCreateDescriptor") == again.count("cudnnBackendDestroyDescriptor") == 1
    assert len(again) == 7  # one pack of addresses, three attributes


@emulated
def test_engines_suit_the_precision_and_determinism(fresh):
    (a, x), (b, w) = pair((2, 3, 6, 6)), pair((4, 3, 3, 3))
    for t in (x, w):
        t.requires_grad_()
    step = lambda: run("conv2d", x, w, None, {}).sum().backward()
    flags = tensorgrad.backends.cudnn.flags
    with flags(enabled=True, allow_tf32=True):
        assert engines(step) == [61, 67, 20]
        away = run("conv2d", x, w, None, {}).detach().cpu().numpy() - run("conv2d", a, b, None, {}).numpy()
        assert 1e-5 < np.abs(away).max() < 2e-2
    with flags(enabled=True, allow_tf32=False):
        assert engines(step) == [28, 58, 20]
        close(run("conv2d", x, w, None, {}), run("conv2d", a, b, None, {}), scale=3)
    with flags(enabled=True, allow_tf32=False, deterministic=True):
        assert engines(step) == [28, 58, 7]  # the last is what serves otherwise
    with flags(enabled=True, allow_tf32=True, deterministic=True):
        assert engines(step) == [61, 67, 65]
    with flags(enabled=True, allow_tf32=False, benchmark=True):
        assert all(name.startswith("cudnnConvolution") for name in engines(step))


@emulated
def test_an_engine_that_does_not_serve_is_left_out(fresh):
    """The emulated engine 67 does not take channels that lie last, which shows when its plan is made."""
    (_, x), (_, w) = pair((2, 3, 6, 6)), pair((4, 3, 3, 3))
    x, w = (t.to(memory_format=tensorgrad.channels_last).requires_grad_() for t in (x, w))
    with tensorgrad.backends.cudnn.flags(enabled=True, allow_tf32=True):
        assert engines(lambda: run("conv2d", x, w, None, {}).sum().backward()) == [61, 58, 20]


@emulated
def test_the_older_interface_serves_what_the_graphs_do_not(fresh, monkeypatch):
    import cupy

    from tests.emulator import cudnn as stand_in

    (a, x), (b, w) = pair((2, 3, 6, 6)), pair((4, 3, 3, 3))
    odd = tensorgrad.zeros(x.numel() + 1, device="cuda")[1:].view(x.shape).copy_(x)  # no multiple of 16 bytes
    forward = ["cudnnConvolutionForward"]
    with tensorgrad.backends.cudnn.flags(enabled=True, allow_tf32=False):
        exact = run("conv2d", a, b, None, {})
        assert engines(lambda: close(run("conv2d", odd, w, None, {}), exact, scale=3)) == forward
        assert engines(lambda: run("conv2d", x.double(), w.double(), None, {})) == forward
        alloc, asked = cupy.cuda.alloc, []

        def tight(size):
            asked.append(size)
            if len(asked) == 2:  # after the result
                raise cupy.cuda.memory.OutOfMemoryError(size, 0)
            return alloc(size)

        assert engines(lambda: run("conv2d", x, w, None, {})) == [28]
        monkeypatch.setattr(cupy.cuda, "alloc", lambda size: tight(size))
        asked.append(0)
        assert engines(lambda: close(run("conv2d", x, w, None, {}), exact, scale=3)) == forward
        monkeypatch.setattr(cupy.cuda, "alloc", alloc)
        monkeypatch.setitem(stand_in.ENGINES, "Forward", ())
        assert engines(lambda: close(run("conv2d", x[:1], w, None, {}), exact[:1], scale=3)) == forward


@emulated
def test_the_signatures_are_those_of_the_header():
    from tensorgrad.kernels.cuda.runtime import cudnn, cudnn_graph
    from tests.emulator.cudnn import LIBRARY

    declared = cudnn.SIGNATURES | cudnn_graph.SIGNATURES
    assert {name: LIBRARY.signatures[name] for name in declared} == declared


@emulated
def test_the_backend_tells_the_truth(monkeypatch):
    backend, x = tensorgrad.backends.cudnn, tensorgrad.ones(1, device="cuda")
    assert backend.is_available() and backend.version() == 91900 and backend.is_acceptable(x)
    assert not backend.is_acceptable(x.cpu()) and not backend.is_acceptable(x.int())

    def missing(name):
        raise libraries.Missing(f"lib{name} was not found")

    monkeypatch.setattr(libraries, "load", missing)
    assert not backend.is_available() and backend.version() is None and not backend.is_acceptable(x)
    (a, y), (b, w) = pair((2, 3, 6, 6)), pair((4, 3, 3, 3))
    with backend.flags(enabled=True, allow_tf32=False):
        close(run("conv2d", y, w, None, {}), run("conv2d", a, b, None, {}), scale=3)


@emulated
@pytest.mark.parametrize("change", ({"shape": (0, 3, 5, 5)}, {"steps": (75, 25, 5, 0)}, {"dtype": 77}, {"dims": 2}))
def test_the_stand_in_refuses_what_cudnn_refuses(change):
    import ctypes

    from tests.emulator.cudnn import LIBRARY

    good = {"dtype": 0, "dims": 4, "shape": (2, 3, 5, 5), "steps": (75, 25, 5, 1)}
    descriptor = ctypes.c_void_p()
    assert LIBRARY.cudnnCreateTensorDescriptor(ctypes.byref(descriptor)) == 0
    for given, status in ((good, 0), ({**good, **change}, 2000)):
        arrays = [(ctypes.c_int * 4)(*given[name]) for name in ("shape", "steps")]
        assert LIBRARY.cudnnSetTensorNdDescriptor(descriptor, given["dtype"], given["dims"], *arrays) == status
