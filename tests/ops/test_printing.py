"""The text of a tensor, compared character for character with the text torch prints for the same values."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest

from tensorgrad import printing
from tensorgrad.printing import format_scalar_spec, format_tensor, get_printoptions, printoptions, set_printoptions

torch = pytest.importorskip("torch", reason="needs torch: its printed text is what these tests compare with")
hypothesis = pytest.importorskip("hypothesis", reason="needs hypothesis: it generates the arrays and print options")
from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

USUAL = {"float32", "complex64", "int64", "bool"}
NUMPY_DTYPES = [
    *("bool", "uint8", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "complex64", "complex128"),
]
nan, inf = float("nan"), float("inf")


@pytest.fixture(autouse=True)
def default_options():
    """Every test starts and ends with the default options on both sides."""
    set_printoptions(profile="default")
    torch.set_printoptions(profile="default")
    yield
    set_printoptions(profile="default")
    torch.set_printoptions(profile="default")


@contextlib.contextmanager
def options(**kwargs):
    """The same print options here and in torch."""
    with printoptions(**kwargs), torch._tensor_str.printoptions(**kwargs):
        yield


def our_text(array, dtype_name=None, **kwargs):
    kwargs.setdefault("default_dtype_names", USUAL)
    return format_tensor(array, dtype_name=dtype_name or array.dtype.name, **kwargs)


def torch_text(array):
    return repr(torch.from_numpy(array))


RANDOM = np.random.default_rng(0)
# name -> array: each row is a rule of the notation, the summary or the layout.
ARRAYS = {
    "scalar": np.array(1.5, "float32"),
    "scalar whole": np.array(2.0, "float32"),
    "scalar negative zero": np.array(-0.0, "float32"),
    "scalar nan": np.array(nan, "float32"),
    "scalar inf": np.array(-inf, "float64"),
    "scalar tiny": np.array(1e-10, "float32"),
    "scalar huge": np.array(1e10, "float32"),
    "scalar bool": np.array(True),
    "scalar int8": np.array(-3, "int8"),
    "scalar complex": np.array(1 - 2j, "complex64"),
    "empty": np.zeros(0, "float32"),
    "empty 2-d": np.zeros((0, 3), "float32"),
    "empty inside": np.zeros((3, 0, 2), "float32"),
    "empty float64": np.zeros(0, "float64"),
    "empty int64": np.zeros((2, 0), "int64"),
    "empty bool": np.zeros(0, "bool"),
    "empty complex": np.zeros((0, 1), "complex64"),
    "zeros": np.zeros(100, "float32"),
    "ones": np.ones(100, "float32"),
    "negative zeros": np.array([-0.0, 0.0, -0.0], "float32"),
    "only nan and inf": np.array([nan, inf, -inf, 0], "float32"),
    "nan among fractions": np.array([nan, 1.5, -inf], "float32"),
    "nan among whole": np.array([nan, 2, -300, inf], "float32"),
    "rounding to the wider": np.array([9.99999, 1.5], "float32"),
    "rounding to minus zero": np.array([-0.0001, 0.05], "float64"),
    "ratio 1000": np.array([1, 1000], "float32"),
    "ratio above 1000": np.array([1, 1001], "float32"),
    "whole 1e8": np.array([1e8, 1e8 + 8], "float32"),
    "whole at 1e8": np.array([1e8], "float32"),
    "fraction at 1e-4": np.array([1e-4], "float64"),
    "fraction below 1e-4": np.array([9.9e-5], "float64"),
    "three-digit exponents": np.array([1e-200, -1, 1e100], "float64"),
    "negative decides width": np.array([-1e-120, 1e5], "float64"),
    "small negative decides width": np.array([-1e-200, -1, 1], "float64"),
    "whole range of float64": np.array([5e-324, 1.7976931348623157e308], "float64"),
    "subnormal float32": np.array([1e-45, 1e-40], "float32"),
    "float16 extremes": np.array([6e-8, 65504], "float16"),
    "bools": np.array([True, False, True]),
    "only true": np.array([True, True]),
    "int extremes": np.array([-(2**63), 2**63 - 1, 0]),
    "uint64 extreme": np.array([2**64 - 1, 0], "uint64"),
    "complex nan": np.array([1 + 2j, complex(0, nan), complex(1.5, inf)], "complex64"),
    "complex minus zero": np.array([complex(-0.0, -0.0), 1j], "complex128"),
    "complex parts differ": np.array([1e-9 + 1j, 5 - 100j], "complex64"),
    "long row": RANDOM.standard_normal(50).astype("float32"),
    "long int row": np.arange(-50, 50),
    "long complex row": (RANDOM.standard_normal(20) * (1 + 2j)).astype("complex64"),
    "matrix": RANDOM.standard_normal((3, 4)).astype("float32"),
    "cube": RANDOM.standard_normal((2, 3, 2)).astype("float32"),
    "five axes": np.arange(16, dtype="int32").reshape(2, 1, 2, 2, 2),
    "1000 elements": np.arange(1000),
    "1001 elements": np.arange(1001),
    "summary of fractions": RANDOM.standard_normal(3000).astype("float32"),
    "summary of a wide matrix": RANDOM.standard_normal((2, 3000)).astype("float32"),
    "summary of a tall matrix": np.arange(4000.0).reshape(2000, 2),
    "summary of a matrix": np.arange(2000, dtype="float32").reshape(40, 50),
    "summary in 3-d": np.zeros((11, 11, 11), "float32"),
    "summary of complex": np.zeros((40, 40), "complex128"),
    "summary of bools": np.arange(1200).reshape(30, 40) % 3 == 0,
    "no axis long enough": np.zeros((6, 6, 6, 6), "float32"),
    "huge in the hidden part": np.where(np.arange(2000) == 1000, 1e20, 1.0),
    "transposed": np.arange(2000.0, dtype="float32").reshape(20, 100).T,
    "broadcast": np.broadcast_to(np.float32(0.5), (100, 100)).copy()[::2, ::3],
}
OPTIONS = [
    {},
    {"precision": 0},
    {"precision": 8},
    {"sci_mode": True},
    {"sci_mode": False},
    {"threshold": 5},
    {"threshold": 0, "edgeitems": 1},
    {"threshold": 2, "edgeitems": 0},
    {"threshold": 2, "edgeitems": 50},
    {"linewidth": 30},
    {"linewidth": 1},
    {"linewidth": 200, "precision": 2},
    {"profile": "short"},
    {"profile": "full"},
    {"profile": "full", "linewidth": 120, "sci_mode": True},
]


@pytest.mark.parametrize("kwargs", OPTIONS, ids=str)
@pytest.mark.parametrize("name", ARRAYS)
def test_same_text(name, kwargs):
    array = ARRAYS[name]
    with options(**kwargs):
        assert our_text(array) == torch_text(array)


@pytest.mark.parametrize("dtype", NUMPY_DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (2, 0), (3,), (2, 3), (2, 700)], ids=str)
def test_every_dtype(dtype, shape):
    array = np.asarray(RANDOM.integers(0, 100, shape)).astype(dtype)
    assert our_text(array) == torch_text(array)


@pytest.mark.parametrize("default", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("dtype", NUMPY_DTYPES)
def test_default_dtype_is_left_out(dtype, default):
    unsaid = {default, "complex128" if default == "float64" else "complex64", "int64", "bool"}
    before = torch.get_default_dtype()
    torch.set_default_dtype(getattr(torch, default))
    try:
        for array in (np.ones(2, dtype), np.ones((0, 2), dtype), np.ones((), dtype)):
            assert our_text(array, default_dtype_names=unsaid) == torch_text(array)
    finally:
        torch.set_default_dtype(before)


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
@pytest.mark.parametrize("values", [[1, 2], [1.5, -300, 0.25], [1e-3, 3e2, nan], 0.1, np.arange(1500) % 17], ids=str)
def test_types_numpy_does_not_have(dtype, values):
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="needs ml_dtypes: NumPy alone has no such type")
    expected = torch.tensor(values, dtype=torch.float32).to(getattr(torch, dtype))
    raw = expected.view(torch.int16 if dtype == "bfloat16" else torch.uint8).numpy()
    assert our_text(raw.view(getattr(ml_dtypes, dtype))) == repr(expected)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "bool", "complex64"])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3)], ids=str)
def test_meta(shape, dtype):
    expected = torch.empty(shape, dtype=getattr(torch, dtype), device="meta")
    assert our_text(None, dtype, is_meta=True, shape=shape) == repr(expected)
    assert our_text(None, dtype, is_meta=True, shape=shape, device="meta") == repr(expected)
    if expected.is_floating_point():
        expected.requires_grad_()
        assert our_text(None, dtype, is_meta=True, shape=shape, requires_grad=True) == repr(expected)


# Between them the sizes and widths put the end of the last line on both sides of where a suffix no longer fits.
@pytest.mark.parametrize("size", [0, 1, 3, 10, 11, 12, 13, 14, 15, 16, 17, 18, 40])
@pytest.mark.parametrize("linewidth", [20, 48, 77, 78, 79, 80, 81, 82])
def test_autograd_suffixes(size, linewidth):
    leaf = torch.full((size,), 2.0, requires_grad=True)
    result, wide = leaf + 1, leaf.double() * 2
    with options(linewidth=linewidth):
        for tensor in (leaf, result, wide):
            name = type(tensor.grad_fn).__name__ if tensor.grad_fn is not None else None
            assert our_text(tensor.detach().numpy(), requires_grad=True, grad_fn=name) == repr(tensor)


@pytest.mark.parametrize("shape", [(2,), (40,), (2, 30), ()], ids=str)
def test_prefix_of_parameters_and_subclasses(shape):
    values = torch.ones(shape)
    text = our_text(values.numpy(), requires_grad=True, prefix="Parameter containing:\ntensor(")
    assert text == repr(torch.nn.Parameter(values))

    class Measured(torch.Tensor):
        pass

    assert our_text(values.numpy(), prefix="Measured(") == repr(values.as_subclass(Measured))


def test_device_comes_before_the_dtype():
    text = our_text(np.ones(2), device="cuda:0", requires_grad=True)
    assert text == "tensor([1., 1.], device='cuda:0', dtype=torch.float64, requires_grad=True)"
    text = our_text(np.ones((0, 2)), device="cuda:1")
    assert text == "tensor([], device='cuda:1', size=(0, 2), dtype=torch.float64)"


def test_shape_comes_first():
    with printoptions(shape=True):
        assert our_text(np.ones((1, 2), "int32")) == "tensor([[1, 1]], shape=(1, 2), dtype=torch.int32)"
        assert our_text(np.array(7)) == "tensor(7, shape=())"
        text = our_text(None, "float32", is_meta=True, shape=(2,))
        assert text == "tensor(..., shape=(2,), device='meta', size=(2,))"
    assert our_text(np.array(7)) == "tensor(7)"


@pytest.mark.parametrize(
    "calls",
    [
        [{"precision": 2}],
        [{"sci_mode": True}, {"precision": 3}],
        [{"profile": "short"}, {"edgeitems": 7}],
        [{"profile": "full"}, {"profile": "default"}],
        [{"profile": "full", "threshold": 10, "linewidth": 100}],
        [{"profile": "no such profile", "precision": 1}],
        [{"threshold": 0, "edgeitems": 0, "precision": 0}],
    ],
    ids=str,
)
def test_set_printoptions_sets_what_torch_sets(calls):
    for kwargs in calls:
        set_printoptions(**kwargs)
        torch.set_printoptions(**kwargs)
        assert get_printoptions() == {**torch._tensor_str.get_printoptions(), "shape": False}


def test_profiles_switch_shape_off_and_other_calls_keep_it():
    set_printoptions(shape=True)
    set_printoptions(precision=2)
    assert get_printoptions()["shape"] is True
    set_printoptions(profile="default")
    assert get_printoptions()["shape"] is False
    set_printoptions(profile="short", shape=True)
    assert get_printoptions()["shape"] is True


def test_printoptions_restores_after_an_error():
    set_printoptions(precision=6, sci_mode=True)
    before = get_printoptions()
    with pytest.raises(KeyError), printoptions(precision=1, shape=True):
        assert get_printoptions()["precision"] == 1
        assert get_printoptions()["sci_mode"] is None
        raise KeyError
    assert get_printoptions() == before


def test_infinite_linewidth_keeps_rows_whole():
    with printoptions(linewidth=inf):
        assert "\n" not in our_text(np.arange(900))


@pytest.mark.parametrize(
    ("value", "dtype", "spec"),
    [
        (1.5, "float32", ".3f"),
        (0.1, "float32", ""),
        (1234.5, "float64", "10.2e"),
        (7, "int64", "05d"),
        (7, "uint8", "x"),
        (True, "bool", ""),
        (1 + 2j, "complex64", ".1f"),
        (0.1, "float16", ".6g"),
    ],
)
def test_scalar_spec(value, dtype, spec):
    array = np.array(value, dtype)
    expected = format(torch.from_numpy(array), spec)
    assert format_scalar_spec(array, spec) == expected
    assert format_scalar_spec(array.item(), spec) == expected


def test_scalar_spec_of_bfloat16():
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="needs ml_dtypes: NumPy alone has no such type")
    expected = format(torch.tensor(0.1, dtype=torch.bfloat16), ".6f")
    assert format_scalar_spec(np.array(0.1, ml_dtypes.bfloat16), ".6f") == expected


class Remote:
    """An array on a device: it can be sliced there, and every element that `get` fetches is counted."""

    fetched = 0

    def __init__(self, array):
        self.array, self.shape, self.dtype = array, array.shape, array.dtype

    def __getitem__(self, index):
        assert all(isinstance(part, slice) for part in index), "only basic slices can be expected of every library"
        return Remote(self.array[index])

    def get(self):
        Remote.fetched += self.array.size
        return self.array


@pytest.mark.parametrize("shape", [(5000,), (300, 400), (2, 3, 1000), (3, 5)], ids=str)
def test_only_shown_elements_leave_the_device(shape):
    array = np.arange(np.prod(shape), dtype="float32").reshape(shape)
    Remote.fetched = 0
    assert our_text(Remote(array), "float32") == torch_text(array)
    shown = int(np.prod([min(n, 6) for n in shape])) if array.size > 1000 else array.size
    assert Remote.fetched == shown


def test_printing_writes_nothing():
    array = np.array([-1.5, nan, 3, 1e9])
    array.flags.writeable = False
    assert "nan" in our_text(array)


FLOATS = st.one_of(
    st.floats(),
    st.floats(-10, 10),
    st.integers(-2000, 2000).map(float),
    st.sampled_from([0.0, -0.0, nan, inf, -inf, 1e-4, 1e8, 1e-5, 1000.0, 1001.0, 5e-324, 1.7976931348623157e308]),
)


@st.composite
def arrays(draw):
    """Up to four axes (zeros among them), any dtype; the values come from a short list, so that kinds mix or not."""
    dtype = np.dtype(draw(st.sampled_from(NUMPY_DTYPES)))
    shape = tuple(draw(st.lists(st.one_of(st.integers(0, 9), st.integers(1, 3)), max_size=4)))
    if draw(st.booleans()):
        shape = (*shape[:1], draw(st.integers(1, 60)))
    size = int(np.prod(shape))
    if dtype.kind == "b":
        element = st.booleans()
    elif dtype.kind in "iu":
        info = np.iinfo(dtype)
        element = st.one_of(st.integers(max(info.min, -100), 100), st.integers(int(info.min), int(info.max)))
    elif dtype.kind == "c":
        element = st.builds(complex, FLOATS, FLOATS)
    else:
        element = FLOATS
    pool = draw(st.lists(element, min_size=1, max_size=8))
    with np.errstate(over="ignore"):
        pool = np.array(pool).astype(dtype) if dtype.kind in "fc" else np.array(pool, dtype)
    order = np.random.default_rng(draw(st.integers(0, 2**32 - 1))).integers(0, len(pool), size)
    return pool[order].reshape(shape)


PRINT_OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "precision": st.integers(0, 12),
        "threshold": st.one_of(st.integers(0, 50), st.just(inf)),
        "edgeitems": st.integers(0, 5),
        "linewidth": st.integers(1, 200),
        "profile": st.sampled_from(["default", "short", "full"]),
        "sci_mode": st.sampled_from([None, True, False]),
    },
)


@settings(max_examples=400, deadline=None)
@given(array=arrays(), kwargs=PRINT_OPTIONS, requires_grad=st.booleans())
def test_any_array_any_options(array, kwargs, requires_grad):
    tensor = torch.from_numpy(array)
    requires_grad = requires_grad and (tensor.is_floating_point() or tensor.is_complex())
    tensor.requires_grad_(requires_grad)
    with options(**kwargs):
        assert our_text(array, requires_grad=requires_grad) == repr(tensor)
    assert printing.get_printoptions() == {**torch._tensor_str.get_printoptions(), "shape": False}
