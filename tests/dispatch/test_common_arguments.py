"""What many functions share beside PyTorch: `dtype=float`, `layout=`, memory formats, storages as data, old signatures,
and what `use_deterministic_algorithms` does to uninitialised memory."""

import warnings

import pytest

import tensorgrad
from tests.support.compare import outcome

torch = pytest.importorskip("torch", reason="the oracle")
BOTH = (tensorgrad, torch)


def described(function, library):
    """Returns values and geometry of what a function returns under one library, or the type of its error."""
    made = outcome(function, library)
    if isinstance(made, Exception):
        return type(made).__name__
    if isinstance(made, library.Tensor):
        values = None if made.dtype is library.uint8 or made.is_meta else made.tolist()
        return str(made.dtype), tuple(made.shape), made.stride(), str(values)
    return str(made)


def assert_agree(function):
    here, there = (described(function, library) for library in BOTH)
    assert here == there


# --- dtypes ----------------------------------------------------------------------------------------------------------

TAKE_DTYPE = {
    "zeros": lambda t, d: t.zeros(2, dtype=d),
    "empty": lambda t, d: t.empty(0, dtype=d),
    "full": lambda t, d: t.full((2,), 1, dtype=d),
    "tensor": lambda t, d: t.tensor([1, 0], dtype=d),
    "as_tensor": lambda t, d: t.as_tensor([1, 0], dtype=d),
    "arange": lambda t, d: t.arange(2, dtype=d),
    "eye": lambda t, d: t.eye(2, dtype=d),
    "randn": lambda t, d: t.randn(2, dtype=d, generator=t.Generator().manual_seed(0)),
    "zeros_like": lambda t, d: t.zeros_like(t.ones(2), dtype=d),
    "new_ones": lambda t, d: t.zeros(1).new_ones(2, dtype=d),
    "sum": lambda t, d: t.ones(2).sum(dtype=d),
    "mean": lambda t, d: t.ones(2).mean(dtype=d),
    "prod": lambda t, d: t.ones(2).prod(dtype=d),
    "cumsum": lambda t, d: t.ones(2).cumsum(0, dtype=d),
    "cumprod": lambda t, d: t.cumprod(t.ones(2), 0, dtype=d),
    "softmax": lambda t, d: t.nn.functional.softmax(t.zeros(2), 0, dtype=d),
    "norm": lambda t, d: t.linalg.norm(t.ones(2), dtype=d),
    "to": lambda t, d: t.ones(2).to(d),
    "to(dtype=)": lambda t, d: t.ones(2).to(dtype=d),
    "view": lambda t, d: t.ones(2).view(d),
    "frombuffer": lambda t, d: t.frombuffer(bytearray(16), dtype=d),
    "hann_window": lambda t, d: t.hann_window(4, dtype=d),
    "Linear": lambda t, d: t.nn.Linear(1, 2, dtype=d).weight.dtype,
    "Linear.to": lambda t, d: t.nn.Linear(1, 2).to(d).weight.dtype,
    "promote_types": lambda t, d: t.promote_types(d, t.uint8),
    "can_cast": lambda t, d: t.can_cast(d, t.float32),
    "finfo": lambda t, d: t.finfo(d).dtype,
    "iinfo": lambda t, d: t.iinfo(d).dtype,
}
ONLY_KIND = {
    "arange",
    "cumsum",
    "cumprod",
    "mean",
    "finfo",
    "iinfo",
    "norm",
    "softmax",
    "randn",
    "hann_window",
    "Linear",
}  # refuse whole kinds


@pytest.mark.parametrize("given", [float, int, bool, complex])
@pytest.mark.parametrize("name", TAKE_DTYPE)
def test_python_types_are_dtypes(name, given):
    here, there = (described(lambda library: TAKE_DTYPE[name](library, given), library) for library in BOTH)
    if isinstance(there, str) and there.endswith("Error") and name in ONLY_KIND:
        assert isinstance(here, str) and here.endswith("Error")
    else:
        assert here == there


@pytest.mark.parametrize("given", ["float32", 3, str], ids=str)
@pytest.mark.parametrize("name", sorted(set(TAKE_DTYPE) - {"to", "view", "Linear.to", "randn"}))
def test_other_values_are_not_dtypes(name, given):
    with pytest.raises(TypeError, match=r"torch\.dtype"):
        TAKE_DTYPE[name](tensorgrad, given)


# --- layouts ---------------------------------------------------------------------------------------------------------

LAYOUTS = ("sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc", "jagged", "_mkldnn")


@pytest.mark.parametrize("name", ("strided", *LAYOUTS))
def test_layouts_are_names(name):
    here, there = (getattr(library, name) for library in BOTH)
    assert isinstance(here, tensorgrad.layout) and repr(here) == repr(there)
    assert (tensorgrad.ones(1).layout == here) == (name == "strided")


SPARSE_MAKERS = {
    "zeros": lambda library, layout: library.zeros(2, 2, layout=layout),
    "empty": lambda library, layout: library.empty(2, 2, layout=layout),
    "full": lambda library, layout: library.full((2, 2), 1.0, layout=layout),
    "new_zeros": lambda library, layout: library.zeros(2).new_zeros(2, 2, layout=layout),
}
MAKERS = {
    "rand": lambda **layout: tensorgrad.rand(2, **layout),
    "arange": lambda **layout: tensorgrad.arange(2, **layout),
    "ones_like": lambda **layout: tensorgrad.ones_like(tensorgrad.zeros(2), **layout),
    "randn_like": lambda **layout: tensorgrad.randn_like(tensorgrad.zeros(2), **layout),
}


@pytest.mark.parametrize("layout", LAYOUTS[:5])
@pytest.mark.parametrize("name", SPARSE_MAKERS)
def test_some_functions_make_sparse_layouts(name, layout):
    outcomes = []
    for library in BOTH:
        try:
            made = SPARSE_MAKERS[name](library, getattr(library, layout))
            outcomes.append((str(made.layout), tuple(made.shape)))
        except RuntimeError:  # no values at all places, and no blocks without their size
            outcomes.append("an error")
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("name", MAKERS)
def test_no_function_makes_another_layout(name):
    assert MAKERS[name](layout=tensorgrad.strided).layout is tensorgrad.strided
    for layout in LAYOUTS:
        with pytest.raises(NotImplementedError, match=layout):
            MAKERS[name](layout=getattr(tensorgrad, layout))
    with pytest.raises(TypeError, match=r"must be torch\.layout, not torch\.dtype"):
        MAKERS[name](layout=tensorgrad.float32)


# --- memory formats --------------------------------------------------------------------------------------------------

LIKE = ("empty_like", "zeros_like", "ones_like", "rand_like", "randn_like")


@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (2, 3, 4, 5, 6)], ids=str)
@pytest.mark.parametrize("name", ["contiguous_format", "channels_last", "channels_last_3d", "preserve_format"])
def test_memory_formats_of_new_tensors(shape, name):
    def strides(made):
        return lambda t: made(t, getattr(t, name)).stride()

    assert_agree(strides(lambda t, f: t.empty(shape, memory_format=f)))
    assert_agree(strides(lambda t, f: t.arange(7.0).resize_(shape, memory_format=f)))
    assert_agree(strides(lambda t, f: t.empty(0).resize_as_(t.empty(shape), memory_format=f)))
    for like in LIKE:
        assert_agree(strides(lambda t, f: getattr(t, like)(t.empty(shape), memory_format=f)))
        assert_agree(strides(lambda t, f: getattr(t, like)(t.empty(shape).transpose(1, 2), memory_format=f)))


@pytest.mark.parametrize("shape", [(0, 3, 4), (3, 0, 4), (3, 4, 0), (0,), (4, 4, 64), (1, 4, 8)], ids=str)
@pytest.mark.parametrize("dtype", ["float32", "int8", "complex128", "float64"])
def test_bytes_as_another_dtype_keep_their_strides(shape, dtype):
    assert_agree(lambda t: t.zeros(shape, dtype=t.float64).view(getattr(t, dtype)).stride())
    if 0 not in shape:
        assert_agree(lambda t: t.zeros(shape, dtype=t.float64).transpose(0, 1).view(getattr(t, dtype)).stride())


def test_resizing_raises_the_version():
    for size in ((4,), (2,), (5,), (2, 2), (0,)):

        def version(library, size=size):
            x = library.arange(4.0)
            x.resize_(size)
            return x._version

        assert_agree(version)


@pytest.mark.parametrize("size", [(2, 4, 2**29, 2**29), (8, 8, 2**29, 2**29), (0, 4, 2**61)], ids=str)
def test_sizes_beyond_all_memory(size):
    assert_agree(lambda t: t.empty((), dtype=t.float64).resize_(size))
    for make in ("empty", "zeros", "ones"):
        with pytest.raises(RuntimeError, match="overflowed"):
            getattr(tensorgrad, make)(2**40, 2**40)


# --- storages --------------------------------------------------------------------------------------------------------

STORAGES = {
    "size": lambda t: t.UntypedStorage(3).size(),
    "sequence": lambda t: t.UntypedStorage([1, 2]).tolist(),
    "len": lambda t: len(t.UntypedStorage([1, 2])),
    "len of none": lambda t: len(t.ones(0).untyped_storage()),
    "iter": lambda t: list(t.ones(1).untyped_storage()),
    "meta": lambda t: t.UntypedStorage(3, device="meta").device,
    "typed": lambda t: t.storage.TypedStorage([1, 2], dtype=t.int32).tolist(),
    "typed size": lambda t: t.storage.TypedStorage(3, dtype=t.int32, device="cpu").nbytes(),
    "float": lambda t: t.FloatStorage([1, 2]).tolist(),
    "float dtype": lambda t: t.FloatStorage([1, 2], dtype=t.float64),
    "is float": lambda t: isinstance(t.ones(1).storage(), t.FloatStorage),
    "is double": lambda t: isinstance(t.ones(1).storage(), t.DoubleStorage),
    "storage_type": lambda t: t.ones(1, dtype=t.int16).storage_type(),
    "tensor": lambda t: t.tensor(t.FloatStorage([1, 2])),
    "tensor of bytes": lambda t: t.tensor(t.UntypedStorage([0, 0, 128, 63]), dtype=t.float32),
    "tensor of other": lambda t: t.tensor(t.BoolStorage([True])),
    "Tensor": lambda t: t.Tensor(t.FloatStorage([1, 2])),
    "DoubleTensor": lambda t: t.DoubleTensor(t.FloatStorage([1, 2])),
    "new": lambda t: t.ones(2).new(t.FloatStorage([1, 2])),
    "resize_": lambda t: t.UntypedStorage([1, 2]).resize_(5).nbytes(),
    "typed resize_": lambda t: t.FloatStorage([1, 2]).resize_(1),
    "from_buffer": lambda t: t.FloatStorage.from_buffer(b"\x3f\x80\x00\x00", "big").tolist(),
    "from_buffer order": lambda t: t.FloatStorage.from_buffer(b"abcd"),
    "from_buffer bytes": lambda t: t.ByteStorage.from_buffer(b"ab").tolist(),
    "pickle type": lambda t: t.FloatStorage(1).pickle_storage_type(),
    "map": lambda t: t.storage._dtype_to_storage_type_map()[t.float32],
    "wrong": lambda t: t.storage.TypedStorage(wrap_storage=t.UntypedStorage(4)),
    "wrong size": lambda t: t.storage.TypedStorage(1.5),
    "element size": lambda t: t._utils._element_size(t.complex64),
}


@pytest.mark.parametrize("name", STORAGES)
def test_storages(name):
    assert_agree(STORAGES[name])


def test_a_storage_that_tensors_have_is_not_made_smaller():
    x = tensorgrad.ones(2)
    with pytest.raises(RuntimeError, match="not resizable"):
        x.untyped_storage().resize_(4)
    assert x.tolist() == [1, 1] and x.untyped_storage().nbytes() == 8


# --- numbers before tensors ------------------------------------------------------------------------------------------

SHAPES = {
    "addcmul": ((2, 2), (2, 2), (2, 2)), "addcdiv": ((2, 2), (2, 2), (2, 2)), "addmm": ((2, 2), (2, 2), (2, 2)),
    "addmv": ((2,), (2, 2), (2,)), "addr": ((2, 2), (2,), (2,)), "addbmm": ((2, 2), (1, 2, 2), (1, 2, 2)),
    "baddbmm": ((1, 2, 2), (1, 2, 2), (1, 2, 2)),
}  # fmt: skip


@pytest.mark.parametrize("name", SHAPES)
def test_numbers_that_stand_before_tensors(name):
    def operands(t):
        return [t.arange(1.0, 1 + t.Size(shape).numel()).reshape(shape) for shape in SHAPES[name]]

    def function(t, *numbers):
        x, *others = operands(t)
        if "c" in name:
            return getattr(t, name)(x, *numbers, *others)
        return getattr(t, name)(numbers[0], x, *numbers[1:], *others)

    def method(t, *numbers):
        x, *others = operands(t)
        return getattr(x, name)(*numbers, *others)

    def in_place(t, *numbers):
        x, *others = operands(t)
        return getattr(x, f"{name}_")(*numbers, *others)

    for call in (function, method, in_place):
        assert_agree(lambda t, call=call: call(t, 2))
        if "c" not in name:
            assert_agree(lambda t, call=call: call(t, 2, 3))
    with pytest.raises(TypeError, match="positional arguments"):
        method(tensorgrad, 1, 2, 3)


# --- deterministic memory --------------------------------------------------------------------------------------------


@pytest.fixture
def deterministic():
    for library in BOTH:
        library.use_deterministic_algorithms(True)
    yield
    for library in BOTH:
        library.utils.deterministic.fill_uninitialized_memory = True
        library.use_deterministic_algorithms(False)


@pytest.mark.parametrize("dtype", ["float32", "float16", "complex64", "int8", "int64", "uint16", "bool"])
def test_uninitialised_memory_is_filled(dtype, deterministic):
    calls = {
        "empty": lambda t, d: t.empty(2, 3, dtype=d),
        "empty_like": lambda t, d: t.empty_like(t.zeros(2, dtype=d)),
        "new_empty": lambda t, d: t.zeros(1, dtype=d).new_empty(2),
        "empty_strided": lambda t, d: t.empty_strided((2, 2), (1, 2), dtype=d),
        "empty_permuted": lambda t, d: t.empty_permuted((2, 2), (1, 0), dtype=d),
        "resize_": lambda t, d: t.ones(2, dtype=d).resize_(4),
    }
    for call in calls.values():
        assert_agree(lambda t, call=call: str(call(t, getattr(t, dtype)).tolist()))


def test_the_switch_of_filling(deterministic):
    for value in (None, 1):
        with pytest.raises(RuntimeError, match="expected a bool"):
            tensorgrad.utils.deterministic.fill_uninitialized_memory = value
    tensorgrad.utils.deterministic.fill_uninitialized_memory = False
    assert tensorgrad.utils.deterministic.fill_uninitialized_memory is False
    x = tensorgrad.ones(4)
    assert x.resize_(2).resize_(4).tolist() == [1, 1, 1, 1]


# --- where numbers go ------------------------------------------------------------------------------------------------

INTO = {
    "arange": lambda t, out: t.arange(0, 6, out=out),
    "range": lambda t, out: t.range(0, 5, out=out),
    "linspace": lambda t, out: t.linspace(0, 5, 6, out=out),
    "logspace": lambda t, out: t.logspace(0, 5, 6, out=out),
}
OUTS = {
    "matrix": lambda t: t.zeros(2, 3), "transposed": lambda t: t.zeros(3, 2).t(), "window": lambda t: t.zeros(7)[1:],
    "other size": lambda t: t.zeros(2, 2), "empty": lambda t: t.zeros(0),
}  # fmt: skip


@pytest.mark.parametrize("name", INTO)
@pytest.mark.parametrize("out", OUTS)
def test_rows_of_numbers_keep_the_shape_of_out(name, out):
    assert_agree(lambda t: INTO[name](t, OUTS[out](t)))


@pytest.mark.parametrize(
    "value", [3.7, -3.7, 300.5, 2.0**31, 2.0**63, 1e20, -1e20, float("inf"), float("nan")], ids=str
)
@pytest.mark.parametrize("dtype", ["int32", "int64", "bool"])
def test_numbers_beyond_an_integer_type(value, dtype):
    if torch.tensor([float("nan")]).to(torch.int32).item() != -(2**31):
        pytest.skip("this processor converts otherwise")
    assert_agree(lambda t: t.tensor([value] * 9).to(getattr(t, dtype)))
    assert_agree(lambda t: t.tensor([value] * 9, dtype=t.float64).to(getattr(t, dtype)))


OTHERS = {
    "cat into a part": lambda t, w=None: t.cat([(w := t.arange(12.0))[:2], w[4:6]], out=w[6:10]),
    "cat of nothing": lambda t: t.cat([t.empty(0), t.empty(0)], dim=1),
    "cat of images": lambda t: t.cat([t.ones(2, 3, 4, 5).contiguous(memory_format=t.channels_last)] * 2, 2),
    "cat of volumes": lambda t: t.cat([t.ones(2, 3, 4, 5, 2).contiguous(memory_format=t.channels_last_3d)] * 2),
    "cat of one channel": lambda t: t.cat([t.ones(2, 1, 4, 5), t.ones(2, 1, 4, 5)]),
    "roll": lambda t: t.arange(4).view(2, 2).roll(1, dims=None),
    "randperm": lambda t: len(t.randperm(256, dtype=t.uint8)),
    "randperm too long": lambda t: t.randperm(257, dtype=t.uint8),
    "randint": lambda t: t.randint(6, (2,), dtype=t.complex64),
    "linspace": lambda t: t.linspace(0, 1j, 3, dtype=t.float32),
    "logspace": lambda t: t.logspace(0, 1j, 1),
    "index_add": lambda t: t.ones(3, dtype=t.int64).index_add(0, t.tensor([0]), t.ones(1, dtype=t.int64), alpha=2.0),
    "index_add to a number": lambda t: t.tensor(1.0).index_add(0, t.tensor([0, 0]), t.tensor([1.0, 1.0])),
    "index_put": lambda t: t.rand([]).index_put([], t.tensor([1.0]), True),
    "unravel_index": lambda t: t.unravel_index(t.tensor(0.5), (2, 2)),
    "unravel_index shape": lambda t: t.unravel_index(t.tensor([1]), (2, 2.5)),
    "unravel_index tensor": lambda t: t.unravel_index(t.tensor([1]), t.tensor(4)),
    "view as the same": lambda t: t.ones(2, requires_grad=True).view(t.float32).requires_grad,
    "lstsq": lambda t: t.linalg.lstsq(t.ones(3, 2), t.ones(3, 1), rcond=-1, driver="gelsd").rank,
    "lstsq of 1": lambda t: t.linalg.lstsq(t.ones(1, 1), t.ones(1, 1), rcond=1.0, driver="gelsd").solution,
    "lstsq of gelss": lambda t: t.linalg.lstsq(t.ones(1, 1), t.ones(1, 1), rcond=1.0, driver="gelss").solution,
    "take_along_dim": lambda t: t.ones(2, 2).take_along_dim(t.tensor([[0]], dtype=t.int32), 0),
    "float": lambda t: float(t.tensor(1 + 0j)),
    "float of i": lambda t: float(t.tensor(1j)),
    "int": lambda t: int(t.tensor(1.5 + 0j)),
    "flip": lambda t: t.ones(2).flip(),
    "nonzero": lambda t: t.nonzero(t.ones(2), as_tuple=True, out=t.ones(2, dtype=t.int64)),
    "nonzero into floats": lambda t: t.nonzero(t.ones(2), out=t.ones(2)),
    "device": lambda t: t.device("cpu", -1),
    "device name": lambda t: t.device("cuda:01"),
    "capsule": lambda t: t.asarray(t.utils.dlpack.to_dlpack(t.ones(2))),
    "stream": lambda t: t.ones(2).__dlpack__(stream=object()),
    "no bytes": lambda t: t.empty(10, 0)[:, [0, 1]],
}


@pytest.mark.parametrize("name", OTHERS)
def test_results_and_errors_are_alike(name):
    assert_agree(OTHERS[name])


def test_zeros_for_unused_inputs_can_be_differentiated():
    def twice(t):
        x, y = t.ones(2, requires_grad=True), t.ones(2, requires_grad=True)
        (first,) = t.autograd.grad((y * 2).sum(), x, materialize_grads=True, create_graph=True)
        return t.autograd.grad(first.sum(), x, materialize_grads=True)

    assert_agree(twice)


# --- points of a Sobol sequence --------------------------------------------------------------------------------------


@pytest.mark.parametrize("dimension", [1, 3, 111])
@pytest.mark.parametrize("options", [{}, {"scramble": True, "seed": 7}, {"scramble": True}], ids=str)
def test_sobol_points(dimension, options):
    pytest.importorskip("scipy", reason="has the table of directions")

    def points(t):
        t.manual_seed(5)
        engine = t.quasirandom.SobolEngine(dimension, **options)
        seen = [engine.draw(3), engine.draw(5), engine.quasi.clone(), engine.fast_forward(9).draw(1)]
        seen += [engine.reset().draw(1), engine.draw(1), engine.reset().draw_base2(2, dtype=t.float64), engine.quasi]
        seen += [engine.num_generated, engine, t.rand(1)]
        return [value.tolist() if isinstance(value, t.Tensor) else str(value) for value in seen]

    assert_agree(points)


def test_sobol_errors():
    pytest.importorskip("scipy", reason="has the table of directions")
    for dimension in (0, 21202):
        assert_agree(lambda t, d=dimension: t.quasirandom.SobolEngine(d))
    assert_agree(lambda t: t.quasirandom.SobolEngine(2).draw_base2(3).shape)
    assert_agree(lambda t: (engine := t.quasirandom.SobolEngine(2)).draw(3).shape and engine.draw_base2(2))
    assert_agree(lambda t: t.quasirandom.SobolEngine(2).draw(3, dtype=t.float16))


# --- checks ----------------------------------------------------------------------------------------------------------

CHECKS = {
    "true": lambda t: t._check(True),
    "false": lambda t: t._check(False),
    "message": lambda t: t._check(False, lambda: "so"),
    "no message": lambda t: t._check(False, "so"),
    "no bool": lambda t: t._check(1),
    "tensor": lambda t: t._check(t.tensor(True)),
    "size": lambda t: t._check_is_size(-1),
    "max": lambda t: t._check_is_size(3, max=2),
    "index": lambda t: t._check_index(False),
    "value": lambda t: t._check_value(False, lambda: 3),
    "type": lambda t: t._check_type(False),
    "not implemented": lambda t: t._check_not_implemented(False),
    "all": lambda t: t._check_tensor_all(t.tensor([True, False])),
    "all of numbers": lambda t: t._check_tensor_all(t.ones(2)),
    "all of no tensor": lambda t: t._check_tensor_all(True),
    "with": lambda t: t._check_with(KeyError, False, lambda: "x"),
    "async": lambda t: t._assert_async(t.tensor(0)),
    "async true": lambda t: t._assert_async(t.tensor(2)),
}


@pytest.mark.parametrize("name", CHECKS)
def test_checks(name):
    assert_agree(CHECKS[name])


# --- storages in files -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("weights_only", [True, False])
@pytest.mark.parametrize("name", ["FloatStorage", "BoolStorage", "ComplexDoubleStorage", "UntypedStorage"])
def test_storages_are_saved_and_loaded(name, weights_only, tmp_path):
    values = [1, 0, 1]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for library in BOTH:
            library.save(getattr(library, name)(values), tmp_path / library.__name__)
        for reader in BOTH:
            for writer in BOTH:
                found = reader.load(tmp_path / writer.__name__, weights_only=weights_only)
                assert found.tolist() == values, (reader, writer)
        found = tensorgrad.load(tmp_path / "tensorgrad", weights_only=weights_only)
        assert isinstance(found, tensorgrad.storage.UntypedStorage) == (name == "UntypedStorage")


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("index", [-1, 3])
def test_bags_name_an_index_that_is_out_of_range(mode, index):
    """PyTorch has two texts, for its two kernels: a program that looks for either finds it."""
    texts = []
    for library in BOTH:
        with pytest.raises(RuntimeError) as caught:
            library.nn.EmbeddingBag(3, 2, mode=mode)(library.tensor([[index]]))
        texts.append(str(caught.value))
    assert texts[1].removeprefix("embedding_bag: ") in texts[0]


# --- lists of integers ------------------------------------------------------------------------------------------------

ONE_BY_ONE = (
    """
x.broadcast_to(5, 2, 3, 4) | x.broadcast_to((2, 3, 4)) | x.broadcast_to(size=(2, 3, 4)) | x.broadcast_to(-1, 3, 4)
x.broadcast_to(2, "a") | x.broadcast_to() | x.count_nonzero() | x.count_nonzero(0) | x.count_nonzero(0, 1)
x.count_nonzero((0, 1)) | x.count_nonzero(dim=(0, 2)) | x.count_nonzero(None) | x.count_nonzero([])
x.count_nonzero(0, "a")
x.count_nonzero(0, dim=1) | x.hsplit(3) | x.hsplit(1, 2) | x.hsplit([1, 2]) | x.hsplit(indices=(1, 2))
x.hsplit(sections=3)
x.hsplit(t.tensor(1), t.tensor(2)) | x.hsplit() | x.hsplit(1, "a") | x.hsplit((1,), 2) | x.hsplit(1, sections=2)
x.vsplit(2) | x.vsplit(0, 1, 2) | x.vsplit((1,)) | x.dsplit(2) | x.dsplit(1, 3) | x.dsplit([3])
x.dsplit(1, 2, indices=(1,))
x.permute(2, 0, 1) | x.expand(5, -1, -1, -1) | x.view(4, 6) | x.reshape(4, -1) | x.repeat(1, 2, 1) | x.tile(2, 2)
x.flip(0, 2)
x.new_empty(0, 3) | x.new_zeros(2, 3) | x.new_ones(2, 3) | x.sum_to_size(1, 3, 4) | x.unflatten(2, (2, 2))
x.resize(2, 12)
x.squeeze(0, 1) | x.clone().resize_(2, 3) | x.movedim((0, 1), (1, 0)) | x.roll((1, 2), (0, 1)) | x.tensor_split((1, 2))
t.hsplit(x, 1, 2) | t.count_nonzero(x, 0, 1) | t.broadcast_to(x, 2, 3, 4) | t.count_nonzero(x, (0, 1))
t.dsplit(x, [1, 3])
""".replace("\n", " | ")
    .strip(" |")
    .split(" | ")
)


@pytest.mark.parametrize("call", ONE_BY_ONE)
def test_methods_take_integers_one_by_one(call):
    def made(library):
        found = eval(call, {"t": library, "x": library.arange(24.0).reshape(2, 3, 4)})
        return [t.tolist() for t in found] if isinstance(found, list | tuple) else found

    assert_agree(made)
