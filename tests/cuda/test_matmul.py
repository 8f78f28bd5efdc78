"""Matrix products on the device against torch on the CPU: shapes, strides, dtypes, precisions, gradients."""

import ctypes
import itertools
import threading

import numpy as np
import pytest

import tensorgrad
from tests.cuda.compare import assert_close_on_gpu
from tests.cuda.conftest import MODE
from tests.support.compare import assert_close

torch = pytest.importorskip("torch")
emulated = pytest.mark.skipif(MODE != "emulator", reason="looks at the calls that the emulator's cuBLAS noted")

FLOATING = ("float32", "float64", "float16", "bfloat16", "complex64", "complex128")
TOLERANCE = {
    "float32": 1e-5, "float64": 1e-12, "float16": 2e-3, "bfloat16": 2e-2, "complex64": 1e-5, "complex128": 1e-12,
}  # fmt: skip
# Views of a fresh array that have its shape: as they lie, transposed in memory, every other column, one row for all.
LAYOUTS = ("plain", "turned", "sliced", "expanded", "backwards")


def pair(shape, dtype="float32", layout="plain", seed=0):
    """The same values for both libraries, lying in memory alike: (torch on the CPU, tensorgrad on the device)."""
    made = []
    for library, place in ((torch, "cpu"), (tensorgrad, "cuda")):
        numbers = np.random.default_rng([seed, *shape])
        kind = getattr(library, dtype)

        def values(*shape, numbers=numbers, library=library, kind=kind, place=place):
            host = numbers.standard_normal(shape) * 0.5
            if kind.is_complex:
                host = host + 1j * numbers.standard_normal(shape) * 0.5
            if not kind.is_floating_point and not kind.is_complex:
                host = np.trunc(host * 8).astype(np.int64)
            return library.tensor(host).to(kind).to(place)

        if layout == "turned" and len(shape) > 1:
            x = values(*shape[:-2], shape[-1], shape[-2]).transpose(-1, -2)
        elif layout == "sliced" and shape:
            x = values(*shape[:-1], 2 * shape[-1] + 1)[..., 1::2]
        elif layout == "expanded" and len(shape) > 1:
            x = values(1, *shape[1:]).expand(*shape)
        elif layout == "backwards" and len(shape) > 2:
            x = values(*shape[::-1]).permute(*reversed(range(len(shape))))
        else:
            x = values(*shape)
        assert tuple(x.shape) == tuple(shape)
        made.append(x)
    return tuple(made)


def close(ours, theirs, dtype="float32", scale=1.0):
    """Asserts that a tensor is on the GPU and close to one of torch, as operands of this dtype allow."""
    assert_close_on_gpu(ours, theirs, TOLERANCE.get(dtype, 0), scale=scale)


def noted():
    """The calls of cuBLAS since the last time."""
    from tests.emulator.cublas import LIBRARY

    return [call for call in LIBRARY.take_calls() if "Gemm" in call[0] or "Dot" in call[0]]


SHAPES = (
    ((3, 4), (4, 5)), ((1, 4), (4, 1)), ((7, 1), (1, 6)), ((5,), (5, 2)), ((3, 5), (5,)), ((6,), (6,)),
    ((2, 3, 4), (4, 5)), ((2, 3, 4), (2, 4, 5)), ((3, 4), (2, 4, 5)), ((2, 1, 3, 4), (1, 3, 4, 5)), ((4,), (2, 4, 3)),
    ((2, 3, 4, 5), (5,)), ((1, 1, 4), (3, 4, 2)), ((3, 2, 1, 4), (3, 2, 4, 1)), ((9, 2, 3, 4), (1, 2, 4, 3)),
)  # fmt: skip
EMPTY = (
    ((0, 4), (4, 5)), ((3, 0), (0, 5)), ((3, 4), (4, 0)), ((0,), (0,)), ((0, 3, 4), (0, 4, 5)), ((2, 3, 0), (2, 0, 4)),
    ((3, 0), (0,)), ((2, 0, 4), (4, 5)),
)  # fmt: skip


@pytest.mark.parametrize("dtype", FLOATING)
@pytest.mark.parametrize("shapes", SHAPES + EMPTY, ids=str)
def test_matmul_of_every_rank(shapes, dtype):
    (a, x), (b, y) = pair(shapes[0], dtype), pair(shapes[1], dtype, seed=1)
    close(x @ y, a @ b, dtype)


@pytest.mark.parametrize("layouts", list(itertools.product(LAYOUTS, LAYOUTS)), ids="-".join)
def test_matmul_of_every_layout(layouts):
    for first, second in (((3, 4), (4, 5)), ((2, 3, 4), (2, 4, 5)), ((2, 3, 4), (4, 6)), ((2, 3, 5, 4), (2, 3, 4, 5))):
        (a, x), (b, y) = pair(first, layout=layouts[0]), pair(second, layout=layouts[1], seed=1)
        close(x @ y, a @ b)
        close(x[..., 1:, :] @ y[..., :2], a[..., 1:, :] @ b[..., :2])


@pytest.mark.parametrize("dtype", ("int64", "int32", "uint8"))
@pytest.mark.parametrize("shapes", SHAPES[:1] + SHAPES[5:8], ids=str)
def test_integers_are_exact(shapes, dtype):
    (a, x), (b, y) = pair(shapes[0], dtype), pair(shapes[1], dtype, seed=1)
    close(x @ y, a @ b, dtype)


@pytest.mark.parametrize("dtype", FLOATING)
def test_products_of_given_ranks(dtype):
    (a, x), (b, y) = pair((3, 4), dtype), pair((4, 5), dtype)
    (v, w), (u, t) = pair((4,), dtype), pair((4,), dtype, seed=1)
    close(tensorgrad.mm(x, y), torch.mm(a, b), dtype)
    close(tensorgrad.mv(x, w), torch.mv(a, v), dtype)
    close(tensorgrad.dot(w, t), torch.dot(v, u), dtype)
    close(tensorgrad.vdot(w, t), torch.vdot(v, u), dtype)
    close(tensorgrad.outer(w, t), torch.outer(v, u), dtype)
    (a, x), (b, y) = pair((2, 3, 4), dtype), pair((2, 4, 5), dtype, "turned")
    close(tensorgrad.bmm(x, y), torch.bmm(a, b), dtype)
    close(tensorgrad.einsum("bij,bjk->ik", x, y), torch.einsum("bij,bjk->ik", a, b), dtype, 4)
    (a, x), (b, y) = pair((9,), dtype, "sliced"), pair((9,), dtype, "sliced", seed=2)
    close(tensorgrad.dot(x, y), torch.dot(a, b), dtype)


@pytest.mark.parametrize("dtype", (*FLOATING, "int64"))
@pytest.mark.parametrize(("beta", "alpha"), ((1, 1), (0, 2), (3, 0), (2, 3)))
def test_products_that_are_added_to(dtype, beta, alpha):
    a, b, v = pair((3, 4), dtype), pair((4, 5), dtype, "turned"), pair((4,), dtype)
    s, t = pair((2, 3, 4), dtype), pair((2, 4, 5), dtype, "backwards")
    for name, shapes, first, second in (
        ("addmm", ((3, 5), (5,), (3, 1), ()), a, b), ("addmv", ((3,), (1,)), a, v),
        ("baddbmm", ((2, 3, 5), (3, 5), (2, 1, 5)), s, t), ("addbmm", ((3, 5), (1, 5)), s, t),
    ):  # fmt: skip
        for shape in shapes:
            c = pair(shape, dtype, seed=5)
            theirs = getattr(torch, name)(c[0], first[0], second[0], beta=beta, alpha=alpha)
            ours = getattr(tensorgrad, name)(c[1], first[1], second[1], beta=beta, alpha=alpha)
            close(ours, theirs, dtype, 6)


def test_beta_of_zero_hides_nan():
    a, x = pair((2, 3))
    nan = tensorgrad.full((2, 2), float("nan"), device="cuda")
    close(tensorgrad.addmm(nan, x, x.T, beta=0), a @ a.T)
    empty = tensorgrad.addmm(tensorgrad.ones(2, 2, device="cuda"), x[:, :0], x.T[:0], beta=2)
    assert empty.tolist() == [[2.0, 2.0], [2.0, 2.0]]


@pytest.mark.parametrize("dtype", FLOATING)
@pytest.mark.parametrize("shape", ((4,), (3, 4), (2, 3, 4), (0, 4), (3, 0)), ids=str)
def test_linear(shape, dtype):
    (a, x), (w, v), (c, d) = pair(shape, dtype), pair((5, shape[-1]), dtype), pair((5,), dtype)
    close(tensorgrad.nn.functional.linear(x, v, d), torch.nn.functional.linear(a, w, c), dtype)
    close(tensorgrad.nn.functional.linear(x, v), torch.nn.functional.linear(a, w), dtype)
    close(tensorgrad.nn.functional.linear(x, v[0] if len(v) else v), torch.nn.functional.linear(a, w[0]), dtype)


@pytest.mark.parametrize("dtype", ("float32", "float64", "complex128", "bfloat16"))
@pytest.mark.parametrize("shapes", SHAPES + EMPTY, ids=str)
def test_gradients(shapes, dtype):
    (a, x), (b, y) = pair(shapes[0], dtype), pair(shapes[1], dtype, seed=1)
    results = []
    for left, right, library in ((a, b, torch), (x, y, tensorgrad)):
        left, right = left.clone().requires_grad_(), right.clone().requires_grad_()
        out = left @ right
        weights = library.arange(out.numel(), device=out.device).reshape(tuple(out.shape)).to(out.dtype) * 0.1 + 1
        first = library.autograd.grad((out * weights).sum().abs(), (left, right), create_graph=True)
        total = sum((g * g).sum() for g in first)
        second = library.autograd.grad(total.abs(), (left, right))
        results.append((*first, *second))
    for mine, other in zip(results[1], results[0], strict=True):
        close(mine, other, dtype, 20 * max(1.0, float(other.detach().abs().max()) if other.numel() else 1.0))


@pytest.mark.parametrize("shape", ((6, 4), (2, 3, 4), (4,), (0, 4), (2, 0, 4)), ids=str)
@pytest.mark.parametrize("dtype", ("float32", "float64", "bfloat16", "float16", "complex64"))
def test_gradients_of_linear(shape, dtype):
    (a, x), (w, v), (c, d) = pair(shape, dtype), pair((5, 4), dtype), pair((5,), dtype)
    results = []
    for library, *leaves in ((torch, a, w, c), (tensorgrad, x, v, d)):
        leaves = [leaf.clone().requires_grad_() for leaf in leaves]
        out = library.nn.functional.linear(*leaves)
        (out * out).sum().abs().backward()
        results.append([leaf.grad for leaf in leaves])
    for mine, other in zip(results[1], results[0], strict=True):
        close(mine, other, dtype, 40)


@pytest.mark.parametrize("shape", ((3, 4), (2, 3, 4)), ids=str)
def test_errors_are_those_of_the_cpu(shape):
    x = tensorgrad.ones(*shape, device="cuda")
    for function, arguments in (
        (tensorgrad.matmul, (x, tensorgrad.ones(3, 3, device="cuda"))), (tensorgrad.mm, (x, x)),
        (tensorgrad.bmm, (x, x)), (tensorgrad.matmul, (x, x.double().transpose(-1, -2))),
        (tensorgrad.dot, (x, x)), (tensorgrad.nn.functional.linear, (x, x.reshape(-1)[:3])),
        (tensorgrad.addmm, (x, x, x)), (tensorgrad.matmul, (x.bool(), x.transpose(-1, -2).bool())),
    ):  # fmt: skip
        with pytest.raises((RuntimeError, NotImplementedError)) as ours:
            function(*arguments)
        with pytest.raises((RuntimeError, NotImplementedError)) as theirs:
            function(*[a.cpu() for a in arguments])
        assert str(ours.value) == str(theirs.value)


def lt_calls():
    from tests.emulator.cublaslt import LIBRARY

    return [note for name, note in LIBRARY.take_calls() if name == "cublasLtMatmul"]


@emulated
@pytest.mark.parametrize("dtype", ("float32", "float64", "float16", "bfloat16"))
@pytest.mark.parametrize("layout", LAYOUTS[:4])
def test_a_bias_is_added_in_the_same_launch(dtype, layout):
    (a, x), (w, v), (c, d) = pair((6, 8), dtype, layout), pair((5, 8), dtype, layout), pair((5,), dtype)
    noted(), lt_calls()
    close(tensorgrad.nn.functional.linear(x, v, d), torch.nn.functional.linear(a, w, c), dtype, 3)
    close(tensorgrad.addmm(d, x, v.T), torch.addmm(c, a, w.T), dtype, 3)
    x, v, a, w = (t[:, 1:] for t in (x, v, a, w))
    close(tensorgrad.nn.functional.linear(x, v, d), torch.nn.functional.linear(a, w, c), dtype, 3)
    assert [note["sizes"] for note in lt_calls()] == [(5, 6, 8), (5, 6, 8), (5, 6, 7)] and not noted()


@emulated
def test_without_advice_cublas_adds_the_bias(monkeypatch):
    from tests.emulator import cublaslt

    (a, x), (w, v), (c, d) = pair((6, 9)), pair((5, 9)), pair((5,))
    monkeypatch.setattr(cublaslt, "NO_ADVICE", True)
    noted(), lt_calls()
    close(tensorgrad.nn.functional.linear(x, v, d), torch.nn.functional.linear(a, w, c))
    assert len(noted()) == 1 and not lt_calls()


@emulated
def test_a_stream_whose_workspace_is_smaller_gets_another_algorithm(monkeypatch):
    """As where memory was short when the stream was first used."""
    import cupy

    from tensorgrad.kernels.cuda.runtime import cublas

    (a, x), (w, v), (c, d) = pair((6, 11)), pair((5, 11)), pair((5,))
    expected = torch.nn.functional.linear(a, w, c)
    close(tensorgrad.nn.functional.linear(x, v, d), expected)
    for sizes in ((1 << 10,), ()):
        monkeypatch.setattr(cublas, "WORKSPACES", sizes)
        stream = cupy.cuda.Stream(non_blocking=True)
        with stream:
            close(tensorgrad.nn.functional.linear(x, v, d), expected)


@emulated
def test_a_bias_follows_precision_and_stream():
    import cupy

    (_, x), (_, v), (_, d) = pair((6, 8)), pair((5, 8)), pair((5,))
    lt_calls(), noted()
    stream = cupy.cuda.Stream(non_blocking=True)
    try:
        _allow(True)
        with stream:
            tensorgrad.nn.functional.linear(x, v, d)
    finally:
        _allow(False)
    assert [(note["compute"], note["stream"]) for note in lt_calls()] == [(77, stream.ptr)]
    switches = tensorgrad.backends.cuda.matmul
    try:
        switches.allow_bf16_reduced_precision_reduction = False
        tensorgrad.nn.functional.linear(x.bfloat16(), v.bfloat16(), d.bfloat16())
    finally:
        switches.allow_bf16_reduced_precision_reduction = True
    assert not lt_calls() and [note["math"] for _, note in noted()] == [16]


# --- how cuBLAS is asked -------------------------------------------------------------------------------------------


@emulated
def test_no_factor_is_copied_for_being_transposed():
    import cupy

    x, y = (tensorgrad.ones(2, 3, 4, 4, device="cuda") for _ in range(2))
    before, copies = cupy.ascontiguousarray, []
    cupy.ascontiguousarray = lambda array: copies.append(array.shape) or before(array)
    try:
        noted()
        for left, right in itertools.product((x, x.transpose(-1, -2)), (y, y.transpose(-1, -2))):
            _ = left @ right
            _ = left[0, 0] @ right[0, 0]
    finally:
        cupy.ascontiguousarray = before
    assert not copies
    assert [note["ops"] for _, note in noted()] == [(r, lf) for lf in (0, 1) for r in (0, 1) for _ in range(2)]


@emulated
def test_stacks_are_one_call():
    noted()
    rows, stack, matrix = (tensorgrad.ones(*s, device="cuda") for s in ((6, 2, 3), (6, 3, 4), (3, 4)))
    _ = rows @ stack
    _ = rows @ matrix  # a stack's rows are one tall matrix
    _ = rows.transpose(0, 1).transpose(0, 1) @ stack[:1]  # one matrix for all, by a stride of 0
    heads = tensorgrad.ones(16, 5, 2, 3, device="cuda").transpose(1, 2)  # as attention cuts its heads
    _ = heads @ heads.transpose(-1, -2)
    calls = noted()
    found = [(note["count"], note["sizes"]) for _, note in calls[:3]]
    assert found == [(6, (4, 2, 3)), (1, (4, 12, 3)), (6, (4, 2, 3))]
    assert [note["count"] for _, note in calls[3:]] == [16, 16]


@emulated
@pytest.mark.parametrize(("dtype", "compute"), (
    ("float32", 68), ("float64", 70), ("float16", 68), ("bfloat16", 68), ("complex64", 68), ("complex128", 70),
))  # fmt: skip
def test_compute_types(dtype, compute):
    x = pair((3, 3), dtype)[1]
    noted()
    _ = x @ x
    assert noted()[0][1]["compute"] == compute


def test_tf32_only_when_allowed():
    a, x = pair((16, 16), seed=3)
    full = (x @ x).cpu()
    close(x @ x, a @ a)
    try:
        for switch in (lambda: tensorgrad.set_float32_matmul_precision("high"), lambda: _allow(True)):
            switch()
            rounded = (x @ x).cpu()
            assert 0 < float((rounded - full).abs().max()) < 1e-2
            column = tensorgrad.nn.functional.linear(x, x).cpu()
            assert float((column - (x @ x.T).cpu()).abs().max()) == 0
            _allow(False)
            assert tensorgrad.get_float32_matmul_precision() == "highest"
            assert (x @ x).cpu().tolist() == full.tolist()
    finally:
        tensorgrad.set_float32_matmul_precision("highest")


def _allow(allowed):
    tensorgrad.backends.cuda.matmul.allow_tf32 = allowed


@emulated
def test_reduced_precision_reductions_can_be_forbidden():
    switches = tensorgrad.backends.cuda.matmul
    half, brain, single = (pair((3, 3), dtype)[1] for dtype in ("float16", "bfloat16", "float32"))
    noted()
    for x in (half, brain, single):
        _ = x @ x
    assert [note["math"] for _, note in noted()] == [0, 0, 0]
    try:
        switches.allow_fp16_reduced_precision_reduction = False
        for x in (half, brain, single):
            _ = x @ x
        switches.allow_bf16_reduced_precision_reduction = False
        _ = brain @ brain
        switches.allow_fp16_accumulation = True
        _ = half @ half
    finally:
        switches.allow_fp16_reduced_precision_reduction = switches.allow_bf16_reduced_precision_reduction = True
        switches.allow_fp16_accumulation = False
    assert [(note["math"], note["compute"]) for _, note in noted()] == [(16, 68), (0, 68), (0, 68), (16, 68), (0, 64)]


def test_products_follow_the_stream():
    import cupy

    x = tensorgrad.ones(3, 3, device="cuda")
    stream = cupy.cuda.Stream(non_blocking=True)
    stream.wait_event(cupy.cuda.get_current_stream().record())
    with stream:
        inside = x @ x
    stream.synchronize()
    outside = x @ x
    assert inside.tolist() == outside.tolist() == [[3.0] * 3] * 3
    if MODE == "emulator":
        notes = [note for _, note in noted()][-2:]
        assert [(note["stream"], note["workspace"]) for note in notes] == [(stream.ptr, 32 << 20), (0, 32 << 20)]


def test_threads_have_handles_of_their_own():
    from tensorgrad.kernels.cuda.runtime import cublas

    a, x = pair((17, 17), seed=8)
    found, results = [], []

    def work():
        for _ in range(5):
            results.append((x @ x).cpu())
        found.append(cublas.handle().address)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 3 and len(results) == 15
    for result in results:
        np.testing.assert_allclose(result.numpy(), (a @ a).numpy(), rtol=1e-4, atol=1e-5)


@emulated
def test_other_devices_are_served_there():
    x = tensorgrad.ones(3, 3, device="cuda:1")
    made = x @ x
    assert made.device == tensorgrad.device("cuda:1") and made.tolist() == [[3.0] * 3] * 3


@emulated
def test_a_refusal_names_the_call_and_the_shapes(monkeypatch):
    import cupy

    from tensorgrad.kernels.cuda.runtime import cublas

    a = cupy.ones((2, 3), np.float32)
    cublas.gemm(a, a.T, cupy.empty((2, 2), np.float32))
    monkeypatch.setattr(cublas.handle(), "in_c", ctypes.c_void_p(4))
    message = r"cublasGemmEx_64 of float32 matrices \(2, 3\) @ \(3, 2\).*: CUBLAS_STATUS_NOT_INITIALIZED"
    with pytest.raises(RuntimeError, match=message):
        cublas.gemm(a, a.T, cupy.empty((2, 2), np.float32))


@emulated
def test_the_workspace_gives_way_where_memory_is_short(monkeypatch):
    import cupy

    from tensorgrad.kernels.cuda.runtime import cublas

    sizes, alloc = [], cupy.cuda.alloc

    def tight(size):
        sizes.append(size)
        if size > 8 << 20:
            raise cupy.cuda.memory.OutOfMemoryError(size, 0)
        return alloc(size)

    monkeypatch.setattr(cupy.cuda, "alloc", tight)
    x = tensorgrad.ones(2, 2, device="cuda")
    noted()
    with cupy.cuda.Stream(non_blocking=True):
        _ = x @ x
    assert sizes == [32 << 20, 8 << 20] and noted()[0][1]["workspace"] == 8 << 20
    monkeypatch.setattr(cupy.cuda, "alloc", lambda size: tight(1 << 30))
    with cupy.cuda.Stream(non_blocking=True):
        assert (x @ x).tolist() == [[2.0, 2.0], [2.0, 2.0]]
    assert noted()[0][1]["workspace"] == 0 and cublas.WORKSPACES[0] == 32 << 20


@emulated
def test_the_signatures_are_those_of_the_header():
    from tensorgrad.kernels.cuda.runtime import cublas, cublaslt
    from tests.emulator.cublas import LIBRARY
    from tests.emulator.cublaslt import LIBRARY as cublaslt_stand_in

    assert {name: LIBRARY.signatures[name] for name in cublas.SIGNATURES} == cublas.SIGNATURES
    assert cublaslt_stand_in.signatures == cublaslt.SIGNATURES


@emulated
@pytest.mark.parametrize(("change", "status"), (
    ({"lda": 1}, 7), ({"ldb": 2}, 7), ({"ldc": 1}, 7), ({"m": -1}, 7), ({"opa": 4}, 7), ({"compute": 70}, 15),
    ({"at": 1}, 15), ({"ldc": 10}, 14), ({"b": 4096}, 14), ({"a": 0}, 7), ({"alpha": 0}, 7), ({"handle": 3}, 1),
    ({"algo": 55}, 7), ({"at": 77}, 7),
))  # fmt: skip
def test_the_stand_in_refuses_what_cublas_refuses(change, status):
    from tests.emulator.cublas import LIBRARY

    memory, one = tensorgrad.ones(60, device="cuda"), ctypes.c_float(1)
    handle = ctypes.c_void_p()
    LIBRARY.cublasCreate_v2(ctypes.byref(handle))
    at = memory.data_ptr()
    good = {
        "handle": handle.value, "opa": 0, "opb": 0, "m": 2, "n": 3, "k": 4, "alpha": ctypes.addressof(one), "a": at,
        "at": 0, "lda": 2, "b": at + 64, "bt": 0, "ldb": 4, "beta": ctypes.addressof(one), "c": at + 160, "ct": 0,
        "ldc": 2, "compute": 68, "algo": -1,
    }  # fmt: skip
    from tensorgrad.kernels.cuda.runtime.calls import LETTERS

    call = LIBRARY.cublasGemmEx_64
    call.argtypes = [LETTERS[letter] for letter in LIBRARY.signatures["cublasGemmEx_64"]]
    assert call(*good.values()) == 0
    assert call(*{**good, **change}.values()) == status


@emulated
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_the_gradient_of_a_bias_is_summed_in_the_product_of_weights(dtype, device):
    x = tensorgrad.randn(3, 5, 16, device=device).to(getattr(tensorgrad, dtype))
    layer = tensorgrad.nn.Linear(16, 8, device=device, dtype=x.dtype)
    out = layer(x)
    noted(), lt_calls()
    g = tensorgrad.randn(out.shape, device=device).to(out.dtype)
    out.backward(g)
    assert [note["sizes"] for note in lt_calls()] == [(16, 8, 15)] and not noted()
    wide = g.double().reshape(15, 8)
    tolerance = {"float32": 1e-5, "float64": 1e-12, "float16": 1e-2, "bfloat16": 1e-1}[dtype]
    assert_close(layer.bias.grad.double(), wide.sum(0), tolerance)
    assert_close(layer.weight.grad.double(), wide.t() @ x.double().reshape(15, 16), tolerance)
