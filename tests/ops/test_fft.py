"""The Fourier family against torch, where the op database does not reach: any size, norm and dimension, precision,
texts of errors, windows of every length, and spectrograms with every option."""

import itertools
import warnings

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import assume, given

import tensorgrad as tg
from tensorgrad.kernels.array import fft as kernels
from tests.support.alike import alike, error
from tests.support.compare import assert_close, normal, quietly, under_both

torch = pytest.importorskip("torch", reason="PyTorch is the oracle of these tests and is not installed")
if not hasattr(torch, "_C"):
    pytest.skip("the module named torch is not PyTorch, the oracle of these tests", allow_module_level=True)

NORMS = (None, "backward", "ortho", "forward")
ONE_DIMENSION = ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")
REAL_INPUT = ("rfft", "ihfft")
TOLERANCE = {"float32": 2e-5, "complex64": 2e-5, "float64": 1e-12, "complex128": 1e-12}
DTYPES = tuple(TOLERANCE)


# --- transforms ----------------------------------------------------------------------------------------------------

shapes = st.lists(st.integers(1, 7), min_size=1, max_size=3).map(tuple)


@given(shapes, st.sampled_from(ONE_DIMENSION), st.sampled_from(DTYPES), st.data())
def test_one_dimension(shape, name, dtype, data):
    assume(not (name in REAL_INPUT and dtype.startswith("complex")))
    dim = data.draw(st.integers(-len(shape), len(shape) - 1))
    n = data.draw(st.none() | st.integers(1, 9))
    assume(n is not None or shape[dim] > 1 or name not in ("irfft", "hfft"))
    norm = data.draw(st.sampled_from(NORMS))
    assert_close(
        *under_both(lambda lib, x: getattr(lib.fft, name)(x, n, dim, norm), normal(*shape, dtype=dtype)), TOLERANCE
    )


@given(shapes, st.sampled_from(ONE_DIMENSION), st.sampled_from(DTYPES), st.data())
def test_several_dimensions(shape, name, dtype, data):
    assume(not (name in REAL_INPUT and dtype.startswith("complex")))
    dims = data.draw(st.permutations(range(len(shape))).map(lambda p: tuple(p)))
    dims = dims[: data.draw(st.integers(1, len(shape)))]
    s = data.draw(st.none() | st.tuples(*(st.integers(1, 6) | st.just(-1) for _ in dims)))
    assume((s is not None and s[-1] != -1) or shape[dims[-1]] > 1 or name not in ("irfft", "hfft"))
    norm = data.draw(st.sampled_from(NORMS))
    assert_close(
        *under_both(lambda lib, x: getattr(lib.fft, name + "n")(x, s, dims, norm), normal(*shape, dtype=dtype)),
        TOLERANCE,
    )


@given(st.integers(1, 16), st.integers(1, 4), st.sampled_from(NORMS), st.sampled_from(DTYPES))
def test_round_trips(n, m, norm, dtype):
    is_complex, scale = dtype.startswith("complex"), TOLERANCE[dtype]
    x = tg.from_numpy(normal(m, n, dtype=dtype))
    pairs = [("fft", "ifft"), ("ifft", "fft")]
    if not is_complex:
        pairs += [("rfft", "irfft"), ("ihfft", "hfft")]
    for there, back in pairs:
        options = {"n": n} if there in REAL_INPUT else {}
        y = getattr(tg.fft, back)(getattr(tg.fft, there)(x, norm=norm), norm=norm, **options)
        np.testing.assert_allclose(y.numpy(), x.numpy(), rtol=10 * scale, atol=10 * scale)
        options = {"s": (m, n)} if there in REAL_INPUT else {}
        y = getattr(tg.fft, back + "n")(getattr(tg.fft, there + "n")(x, norm=norm), norm=norm, **options)
        np.testing.assert_allclose(y.numpy(), x.numpy(), rtol=10 * scale, atol=10 * scale)
    assert tg.fft.ifftshift(tg.fft.fftshift(x)).equal(x)


@given(st.integers(1, 9), st.booleans(), st.sampled_from(NORMS), st.sampled_from(ONE_DIMENSION))
def test_first_and_second_derivatives(n, cut, norm, name):
    """Of a function with values of every frequency in it, for odd and even sizes, padded and cut off."""
    dtype = "float64" if name in REAL_INPUT else "complex128"
    size = n + 1 if cut else n
    x, weights = normal(2, size, dtype=dtype), normal(2, 2 * n, seed=1, dtype="float64")

    def gradients(lib, x, weights):
        x.requires_grad_()
        y = getattr(lib.fft, name)(x, n, norm=norm)
        y = lib.view_as_real(y.resolve_conj()).flatten(1) if y.is_complex() else y
        (first,) = lib.autograd.grad((y**3 * weights[:, : y.shape[1]]).sum(), x, create_graph=True)
        flat = lib.view_as_real(first.resolve_conj()).flatten(1) if first.is_complex() else first
        (second,) = lib.autograd.grad((flat**2).sum(), x)
        return first, second

    assert_close(*under_both(gradients, x, weights), TOLERANCE, scale=1e3 * n)


@pytest.mark.parametrize("portable", [False, True], ids=["universal functions", "public functions"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_both_ways_to_the_transforms(monkeypatch, portable, dtype):
    """The kernels give the same by NumPy's public functions, which are what other array modules have."""
    if portable:
        monkeypatch.setattr(kernels, "ufuncs", None)
    else:
        assert kernels.ufuncs is not None, "this NumPy has no universal functions of that name: the slower way is taken"
    x = normal(3, 4, 5, dtype=dtype)
    z = normal(3, 4, 5, dtype="complex64" if dtype == "float32" else "complex128")
    for dims, mode, flag in itertools.product([(0,), (2,), (0, 2), (2, 1, 0)], (0, 1, 2), (True, False)):
        norm = (("backward", "ortho", "forward") if flag else ("forward", "ortho", "backward"))[mode]
        size = x.shape[dims[-1]]
        t, u = torch.from_numpy(x), torch.from_numpy(z)
        full, half = (torch.fft.fftn, torch.fft.rfftn) if flag else (torch.fft.ifftn, torch.fft.ihfftn)
        real = torch.fft.hfftn if flag else torch.fft.irfftn
        sizes = [x.shape[d] for d in dims[:-1]]
        assert_close(tg.from_numpy(kernels.c2c(np, z, dims, mode, flag)), full(u, dim=dims, norm=norm), TOLERANCE)
        for onesided, expected in ((True, half(t, dim=dims, norm=norm)), (False, full(t, dim=dims, norm=norm))):
            assert_close(tg.from_numpy(kernels.r2c(np, x, dims, mode, onesided, flag)), expected, TOLERANCE)
        for n in (2 * size - 2, 2 * size - 1):
            found = kernels.c2r(np, z, dims, mode, n, flag)
            assert_close(tg.from_numpy(found), real(u, s=[*sizes, n], dim=dims, norm=norm), TOLERANCE, scale=10)


def test_single_precision_is_computed_in_single_precision():
    """Not in double and rounded at the end, which takes several times as long: the errors are float32's own."""
    z = normal(4, 1000, dtype="complex64")
    exact = np.fft.fft(z.astype(complex))
    found = tg.fft.fft(tg.from_numpy(z)).numpy()
    assert found.dtype == np.complex64
    rounded = np.abs(exact.astype(np.complex64) - exact).max()
    assert rounded < np.abs(found - exact).max() < 100 * rounded


def test_no_input_is_written_and_no_output_shared():
    z = tg.from_numpy(normal(4, 4, dtype="complex64"))
    before = z.clone()
    for call in (tg.fft.fftn, tg.fft.irfftn, tg.fft.hfftn, lambda v: tg.fft.fftn(v, dim=())):
        assert call(z).data_ptr() != z.data_ptr()
        assert z.equal(before)


def test_an_empty_batch_has_an_empty_result():
    """(PyTorch built with MKL raises an error of MKL's there, with other libraries it does not.)"""
    for name in ONE_DIMENSION:
        assert tuple(getattr(tg.fft, name)(tg.zeros(0, 3), n=4).shape) == (0, 3 if name in REAL_INPUT else 4)
        assert tuple(getattr(tg.fft, name + "n")(tg.zeros(0, 3, 4), s=(3, 4)).shape[:2]) == (0, 3)


def test_meta_tensors_have_shapes_and_dtypes():
    x = tg.empty(3, 4, device="meta")
    assert tg.fft.rfft2(x).shape == (3, 3)
    assert tg.fft.rfft2(x).dtype is tg.complex64
    assert tg.fft.irfft(x, n=5, dim=0).shape == (5, 4)
    assert tg.fft.irfft(x.double()).dtype is tg.float64


@alike
def test_shapes_and_dtypes_of_special_cases(torch):
    x = torch.ones(3, 4)
    results = [
        torch.fft.fft(x.long()), torch.fft.rfft(x.bool()), torch.fft.irfft(x.int()), torch.fft.fftn(x, dim=()),
        torch.fft.fftn(torch.tensor(2.0)), torch.fft.fftn(x, s=()), torch.fft.fftn(x, s=2), torch.fft.fftn(x, dim=1),
        torch.fft.fft(torch.zeros(3, 0), n=2), torch.fft.irfftn(x, s=(2, -1)), torch.fft.fft2(x, dim=(0,)),
        torch.fft.ifft2(x), torch.fft.irfft2(x), torch.fft.hfft2(x), torch.fft.ihfft2(x, s=(2, 3)),
    ]  # fmt: skip
    return [(tuple(r.shape), r) for r in results]


@alike
def test_names_of_nodes(torch):
    x = torch.ones(3, 4, requires_grad=True)
    names = [f(x).grad_fn.name() for f in (torch.fft.fft, torch.fft.rfft2, torch.fft.irfft, torch.fft.hfftn)]
    return [*names, torch.fft.fft(x + 0j).grad_fn.name()]


@alike
def test_errors_of_transforms(torch):
    F, x, z = torch.fft, torch.ones(3, 4), torch.ones(3, 4) + 1j
    calls = [
        (F.fft, torch.tensor(1.0)), (F.rfft, torch.tensor(1.0), None, 0), (F.fft, torch.ones(0)), (F.fft, x, 0),
        (F.fft, x, -1), (F.ihfft, x, -2), (F.fft, x, None, 2), (F.fft, x, None, -1, "x"),
        (F.rfft, z), (F.rfft, z, 0), (F.ihfft, z), (F.rfftn, z),
        (F.rfft2, z), (F.irfft, x, 0), (F.irfft, torch.ones(3, 1)), (F.irfft, torch.ones(3, 0)),
        (F.hfft, torch.ones(3, 1)), (F.fftn, x, (2,), (0, 1)), (F.fft2, x, (2,)), (F.fftn, x, (2, 3, 4)),
        (F.fftn, x, (-2, 3)), (F.fftn, x, (0, 3)), (F.fftn, x, None, (0, 0)), (F.fftn, x, None, (0, 2)),
        (F.fftn, x, None, None, "q"), (F.rfftn, torch.tensor(1.0)), (F.irfftn, x, None, ()), (F.hfftn, x, None, ()),
        (F.ihfftn, x, None, ()), (F.irfftn, x, (2, 0)), (F.irfftn, torch.ones(3, 1)), (F.hfftn, x, None, (0, 0)),
        (F.fft2, torch.ones(3)), (F.fft, x.half()), (F.irfft, x.half()), (F.fft, [1.0]),
    ]  # fmt: skip
    named = [(F.fft, {"norm": 3}), (F.fft, {"n": 2.5}), (F.rfft, {"dim": None}), (F.fft2, {"dim": None})]
    return [error(f, *args) for f, *args in calls] + [error(f, x, **options) for f, options in named]


@alike
def test_out(torch):
    x, results = torch.ones(3, 4), []
    for name, dtype in (("fft", "complex128"), ("rfft2", "complex64"), ("irfft", "float64"), ("hfftn", "float32")):
        out = torch.empty(0, dtype=getattr(torch, dtype))
        results.append(getattr(torch.fft, name)(x, out=out) is out)
        results.append(out)
    results.append(error(torch.fft.fft, x, out=torch.empty(0)))
    results.append(error(torch.fft.rfft, x, out=torch.empty(0)))
    results.append(error(torch.fft.irfft, x, out=torch.empty(0, dtype=torch.complex64)))
    return results


@alike
def test_frequencies(torch):
    F, results = torch.fft, []
    for n, d in itertools.product(range(7), (1.0, 0.3)):
        results += [F.fftfreq(n, d), F.rfftfreq(n, d), F.fftfreq(n, d, dtype=torch.float64)]
    results += [F.fftfreq(3, d=0), F.fftfreq(4, dtype=torch.half), F.rfftfreq(-1), F.rfftfreq(3, requires_grad=True)]
    results += [F.rfftfreq(4, out=torch.empty(0, dtype=torch.float64)), F.fftfreq(4, device="meta").shape]
    calls = [(F.fftfreq, -1), (F.fftfreq, 4, 1.0, torch.int64), (F.rfftfreq, 4, 1.0, torch.int64),
             (F.fftfreq, 4, 1.0, torch.complex64)]  # fmt: skip
    return results + [error(lambda f, n, d=1.0, dtype=None: f(n, d, dtype=dtype), *call) for call in calls]


@alike
def test_shifts(torch):
    results = []
    for shape, dim in (((5,), None), ((4, 3), None), ((4, 3), 0), ((4, 3), (-1,)), ((4, 3), (0, 0)), ((0, 3), None)):
        x = torch.arange(4 * 3)[: int(np.prod(shape))].reshape(shape)
        results += [torch.fft.fftshift(x, dim), torch.fft.ifftshift(x, dim)]
    x = torch.ones(3)
    return results + [error(torch.fft.fftshift, x, 2), error(torch.fft.fftshift, x, ()),
                      error(torch.fft.ifftshift, torch.tensor(1))]  # fmt: skip


# --- windows -------------------------------------------------------------------------------------------------------

OLDER = {"hann_window": {}, "hamming_window": {"alpha": 0.4, "beta": 0.7}, "blackman_window": {}, "bartlett_window": {},
         "kaiser_window": {"beta": 3.0}}  # fmt: skip
WINDOWS = {
    "bartlett": {}, "blackman": {}, "cosine": {}, "exponential": {"tau": 2.5}, "gaussian": {"std": 1.5},
    "general_cosine": {"a": [0.4, 0.3, 0.2, 0.1]}, "general_hamming": {"alpha": 0.7}, "hamming": {}, "hann": {},
    "kaiser": {"beta": 4.0}, "nuttall": {},
}  # fmt: skip


@pytest.mark.parametrize("name", OLDER)
def test_older_windows(name):
    for length, periodic, options in itertools.product(range(9), (True, False), ({}, OLDER[name])):
        for dtype in ("float32", "float64"):
            ours, theirs = (
                getattr(lib, name)(length, periodic, dtype=getattr(lib, dtype), **options) for lib in (tg, torch)
            )
            assert_close(ours, theirs, TOLERANCE)
    assert getattr(tg, name)(3, requires_grad=True).is_leaf
    half = getattr(tg, name)(7, dtype=tg.float16)
    np.testing.assert_allclose(half.float().numpy(), getattr(tg, name)(7).numpy(), atol=1e-3)


@pytest.mark.parametrize("name", WINDOWS)
def test_windows(name):
    for length, sym, dtype in itertools.product(range(9), (True, False), ("float32", "float64")):
        ours, theirs = (
            getattr(lib.signal.windows, name)(length, sym=sym, dtype=getattr(lib, dtype), **WINDOWS[name])
            for lib in (tg, torch)
        )
        assert_close(ours, theirs, TOLERANCE)
    assert getattr(tg.signal.windows, name)(3, requires_grad=True, **WINDOWS[name]).requires_grad
    assert getattr(tg.signal.windows, name)(3, device="meta", **WINDOWS[name]).is_meta


def test_every_window_is_there():
    assert set(tg.signal.windows.__all__) == set(torch.signal.windows.__all__) == set(WINDOWS)
    for sym, center in ((False, 1.5), (False, 4), (True, None)):
        assert_close(
            *(lib.signal.windows.exponential(5, center=center, sym=sym, dtype=lib.float64) for lib in (tg, torch)),
            TOLERANCE,
        )


@alike
def test_errors_of_windows(torch):
    W = torch.signal.windows
    calls = [
        (torch.hann_window, -1), (torch.hann_window, 2.5), (W.hann, -1), (W.exponential, 5, {"tau": -1}),
        (W.exponential, 5, {"center": 1.0}), (W.gaussian, 5, {"std": 0}), (W.kaiser, 5, {"beta": -1}),
        (W.general_cosine, 5, {"a": 3}), (W.general_cosine, 5, {"a": []}), (W.cosine, 5, {"dtype": torch.float16}),
        (W.blackman, -2), (W.bartlett, 5, {"dtype": torch.int64}), (torch.hann_window, 4, {"dtype": torch.complex64}),
    ]  # fmt: skip
    said = [error(f, n, **(options[0] if options else {})) for f, n, *options in calls]
    return [*said, error(torch.hann_window, 5, dtype=torch.int64).partition("got")[0]]


# --- spectrograms --------------------------------------------------------------------------------------------------


signals = st.tuples(st.sampled_from([(), (1,), (3,)]), st.integers(12, 20)).map(lambda t: (*t[0], t[1]))


@given(signals, st.integers(4, 9), st.integers(1, 5), st.data())
def test_stft(shape, n_fft, hop, data):
    win_length = data.draw(st.none() | st.integers(1, n_fft))
    window = data.draw(st.sampled_from([None, "float64", "float32", "complex128"]))
    signal = data.draw(st.sampled_from(["float32", "float64", "complex64"]))
    center = data.draw(st.booleans())
    options = {
        "hop_length": hop, "win_length": win_length, "center": center, "normalized": data.draw(st.booleans()),
        "onesided": data.draw(st.sampled_from([None, False, True])),
        "return_complex": data.draw(st.sampled_from([True, True, False])),
        "pad_mode": data.draw(st.sampled_from(["reflect", "constant", "replicate", "circular"])),
    }  # fmt: skip
    if "complex" in f"{signal}{window}" and options["onesided"]:
        options["onesided"] = None
    if not center:
        options["align_to_window"] = data.draw(st.sampled_from([None, True, False]))
    arrays = [normal(*shape, dtype=signal)] + ([normal(win_length or n_fft, seed=1, dtype=window)] if window else [])

    def call(lib, x, window=None):
        return quietly(lib.stft, x, n_fft, window=window, **options)

    assert_close(*under_both(call, *arrays), TOLERANCE, scale=3)


@given(st.sampled_from([(), (2,)]), st.integers(4, 9), st.integers(2, 6), st.data())
def test_istft(batch, n_fft, frames, data):
    win_length = data.draw(st.none() | st.integers(3, n_fft))
    longest = win_length or n_fft
    onesided = data.draw(st.booleans())
    return_complex = not onesided and data.draw(st.booleans())
    window = data.draw(st.sampled_from([None, "float32", "float64"] + ["complex128"] * return_complex))
    spectrum = data.draw(st.sampled_from(["complex64", "complex128"]))
    options = {
        "hop_length": data.draw(st.integers(1, longest)), "win_length": win_length,
        "center": data.draw(st.booleans()), "normalized": data.draw(st.booleans()),
        "onesided": data.draw(st.sampled_from([None, onesided])), "return_complex": return_complex,
        "length": data.draw(st.none() | st.integers(1, 40)),
    }  # fmt: skip
    arrays = [normal(*batch, n_fft // 2 + 1 if onesided else n_fft, frames, dtype=spectrum)]
    arrays += [normal(longest, seed=1, dtype=window) + 2] if window else []

    def call(lib, x, window=None):
        try:
            return quietly(lib.istft, x, n_fft, window=window, **options)
        except RuntimeError as problem:
            assert "window overlap add min: 1" in str(problem)  # a short window in long frames leaves points out
            return str(problem).partition("istft")[1]

    ours, theirs = under_both(call, *arrays)
    if isinstance(theirs, str):
        assert ours == theirs
    else:
        assert_close(ours, theirs, TOLERANCE[spectrum], scale=50)  # a division by small values magnifies errors


def test_istft_inverts_stft():
    x = tg.from_numpy(normal(2, 50, dtype="float64"))
    for n_fft, hop, center in ((8, 2, True), (9, 3, True), (10, 5, True), (8, 2, False)):
        window = tg.hamming_window(n_fft, dtype=tg.float64)
        X = tg.stft(x, n_fft, hop, window=window, center=center, return_complex=True)
        y = tg.istft(X, n_fft, hop, window=window, center=center)
        np.testing.assert_allclose(y.numpy(), x[:, : y.shape[1]].numpy(), atol=1e-12)
        y = x.stft(n_fft, hop, window=window, return_complex=True).istft(n_fft, hop, window=window, length=50)
        np.testing.assert_allclose(y[:, :48].numpy(), x[:, :48].numpy(), atol=1e-12)


def test_gradients_reach_signal_and_window():
    def gradients(lib, x, window):
        x.requires_grad_(), window.requires_grad_()
        X = lib.stft(x, 8, 3, window=window, normalized=True, return_complex=True)
        y = lib.istft(X, 8, 3, window=window + 0.5)
        return lib.autograd.grad((y**3).sum() + (X.abs() ** 2).sum(), (x, window))

    x, window = normal(2, 20, dtype="float64"), normal(8, seed=1, dtype="float64") + 2
    assert_close(*under_both(gradients, x, window), TOLERANCE, scale=1e3)


@alike
def test_errors_of_spectrograms(torch):
    x, w = torch.ones(2, 40), torch.ones(8)
    X = torch.stft(x, 8, window=w, return_complex=True)
    forth = [
        {}, {"window": w[:4]}, {"win_length": 9}, {"win_length": 0}, {"hop_length": 0}, {"hop_length": -1},
        {"n_fft": 0}, {"n_fft": -1}, {"n_fft": 3}, {"n_fft": 41, "center": False},
        {"align_to_window": True}, {"pad_mode": "foo"}, {"input": x + 1j, "onesided": True},
        {"input": x[None], "center": False}, {"input": x.long(), "center": False},
    ]  # fmt: skip
    back = [
        {"input": X[None]}, {"input": X.real}, {"input": X[:0]}, {"window": torch.zeros(8)}, {"window": w, "length": 0},
        {"win_length": 4, "window": w}, {"hop_length": 9}, {"hop_length": 0}, {"win_length": 9}, {"n_fft": 10},
        {"onesided": False}, {"onesided": True, "return_complex": True}, {"window": w + 1j},
        {"window": w * 0, "center": False},
    ]  # fmt: skip
    said = []
    for call in forth:
        options = {"input": x, "n_fft": 8, "return_complex": True, **call} if call else {"input": x, "n_fft": 8}
        said.append(quietly(error, torch.stft, **options))
    for call in back:
        said.append(quietly(error, torch.istft, **{"input": X, "n_fft": 8, **call}))
    said.append(quietly(error, lambda: torch.istft(X, n_fft=8.5)))  # with ** it is not known which arguments are named
    # Behind the first line PyTorch prints a tensor's type; where nothing is left, it has a reduction complain.
    return [s.partition("\n")[0] if "min()" not in s and "length=0" not in s else s.partition(":")[0] for s in said]


def test_warnings_of_spectrograms():
    x = tg.ones(2, 40)
    with pytest.warns(UserWarning, match="A window was not provided"):
        X = tg.stft(x, 8, return_complex=True)
    with pytest.warns(UserWarning, match="stft with return_complex=False is deprecated"):
        pairs = tg.stft(x, 8, window=tg.ones(8), return_complex=False)
    assert tg.view_as_complex(pairs).equal(X)
    with pytest.warns(UserWarning, match="Please provide the same window used by stft"):
        tg.istft(X, 8)
    with pytest.warns(UserWarning, match="The length of signal is shorter than the length parameter"):
        assert tg.istft(X, 8, window=tg.ones(8), length=60).shape == (2, 60)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tg.istft(tg.stft(x, 8, window=tg.ones(8), return_complex=True), 8, window=tg.ones(8))
