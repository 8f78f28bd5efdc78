"""The emulated CuPy refuses what the real one refuses; on a GPU the same holds of CuPy itself."""

import numpy as np
import pytest

cupy = pytest.importorskip("cupy", reason="needs CuPy, or DEVICE=emulator")

from tests.cuda.conftest import MODE

emulated = pytest.mark.skipif(MODE != "emulator", reason="asks the emulator what it offers")


@pytest.fixture
def x():
    return cupy.asarray(np.arange(6, dtype=np.float32).reshape(2, 3))


@emulated
def test_no_name_that_cupy_lacks():
    from tests.emulator import table

    rows = table.rows()
    mine = {name for name in dir(cupy.ndarray) if not name.startswith("_")}
    assert mine <= {name.removeprefix("ndarray.") for name in rows if name.startswith("ndarray.")}
    lacking = ("put_mask", "errstate", "nan_to_zero", "ctypeslib", "fromregex", "vecdot", "setbufsize", "trim")
    assert not any(hasattr(cupy, name) for name in lacking)
    assert not any(
        hasattr(cupy.ndarray, name) for name in ("ctypes", "setflags", "itemset", "newbyteorder", "__index__")
    )


@pytest.mark.parametrize(
    "convert",
    [
        np.asarray,
        np.array,
        lambda x: np.float32(x[0, 0]),
        lambda x: np.zeros(3)[x[0].astype(int)],
        lambda x: range(x[0, 0]),
    ],
)
def test_nothing_becomes_numpy_unasked(convert, x):
    with pytest.raises((TypeError, IndexError)):
        convert(x)


@pytest.mark.parametrize(
    "mix",
    [
        lambda x, host: x + host, lambda x, host: host * x, lambda x, host: cupy.add(x, host),
        lambda x, host: cupy.where(x > 0, x, host), lambda x, host: cupy.concatenate([x, host]),
        lambda x, host: cupy.maximum(np.zeros(()), x),
    ],
)  # fmt: skip
def test_numpy_arrays_are_not_operands(mix, x):
    with pytest.raises((TypeError, AttributeError)):
        mix(x, np.ones((2, 3), np.float32))


def test_a_numpy_array_fills_only_as_one_number(x):
    with pytest.raises(ValueError, match=r"non-scalar numpy\.ndarray cannot be used for fill"):
        x[...] = np.ones((2, 3), np.float32)
    x[...] = np.float32(2)
    assert x.get().tolist() == [[2, 2, 2], [2, 2, 2]]


def test_results_without_dimensions_are_arrays(x):
    for result in (x.sum(), x[0, 0], x.max(), cupy.argmax(x), cupy.array_equal(x, x), x.mean()):
        assert type(result) is cupy.ndarray and result.shape == ()


@pytest.mark.parametrize(
    "call",
    [
        lambda x: cupy.sum(x, where=x > 0), lambda x: cupy.take(x, 0, mode="clip"), lambda x: x.item(0),
        lambda x: cupy.asarray(x, like=x), lambda x: x.sum(initial=1),
        lambda x: cupy.add(x, x, order="C"), lambda x: cupy.max(x, initial=0), lambda x: cupy.empty_like(x, subok=True),
    ],
)  # fmt: skip
def test_parameters_that_cupy_lacks(call, x):
    with pytest.raises(TypeError):
        call(x)


def test_methods_of_ufuncs_that_cupy_lacks(x):
    assert cupy.add.reduce(x, 0).tolist() == [3, 5, 7] and cupy.multiply.accumulate(x, 1).tolist()[0] == [0, 0, 0]
    for call in (cupy.maximum.reduce, cupy.maximum.accumulate, cupy.logical_and.reduce):
        with pytest.raises(NotImplementedError):
            call(x)
    with pytest.raises(NotImplementedError):
        cupy.multiply.at(x, [0], 2.0)


def test_sorting_is_stable_or_nothing(x):
    assert cupy.sort(x[:, ::-1], kind="stable").get().tolist() == x.get().tolist()
    with pytest.raises(ValueError):
        cupy.argsort(x, kind="quicksort")


def test_the_loops_are_cupys(x):
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    low = x.astype(bfloat16)
    assert (low + low).dtype == bfloat16 and cupy.exp(low).dtype == bfloat16 and low.sum().dtype == bfloat16
    assert (
        cupy.where(low > 1, low, low).dtype == np.float32
    )  # there is no loop for it: this is why kernels/cuda/runtime/xp.py
    assert (x.astype(np.int8) / x.astype(np.int8)).dtype == np.float64
    assert (x + 1).dtype == (x + 1.5).dtype == np.float32 and (x + np.float64(1)).dtype == np.float64
    with pytest.raises(TypeError):
        cupy.logical_not(x.astype(np.complex64))
    with pytest.raises(TypeError):
        cupy.bitwise_and(x, x)


def test_indices_out_of_range_wrap_around(x):
    assert x[cupy.asarray([2, -3])].get().tolist() == x.get()[[0, 1]].tolist()
    assert cupy.take(x, cupy.asarray([7])).tolist() == [1]


@emulated
def test_adding_at_indices_takes_few_dtypes(x):
    cupy.add.at(x, cupy.asarray([0, 0]), 1.0)
    assert x.get().tolist()[0] == [2, 3, 4]
    with pytest.raises(TypeError, match="scatter_add only supports"):
        cupy.add.at(x.astype(np.int64), cupy.asarray([0]), 1)


def test_linear_algebra_fails_in_silence_unless_told():
    import cupyx

    indefinite = cupy.asarray([[1.0, 2.0], [2.0, 1.0]])
    cupy.linalg.cholesky(indefinite)
    with cupyx.errstate(linalg="raise"), pytest.raises(np.linalg.LinAlgError):
        cupy.linalg.cholesky(indefinite)


@emulated
def test_overlapping_output_is_a_race(x):
    with pytest.raises(RuntimeError, match="race"):
        x[:, 1:] += x[:, :-1]
    x += x
    assert x.get().tolist()[1] == [6, 8, 10]


@emulated
def test_fresh_memory_is_not_zeros():
    assert np.isnan(cupy.empty(3).get()).all() and cupy.empty(3).data.ptr % 512 == 0


def test_arrays_without_dimensions_seem_to_share_memory(x):
    assert cupy.shares_memory(x, x[1:]) and not cupy.shares_memory(x[0], x[1])
    assert cupy.shares_memory(x.sum(), x.max())  # tests/conformance/opdb_bridge.py has its own function for this reason
    with pytest.raises(TypeError, match="zero-dimensional arrays cannot be concatenated"):
        cupy.shares_memory(x.astype(np.complex64).sum(), x.astype(np.complex64).sum())


def test_new_arrays_are_in_the_order_of_rows(x):
    assert (x.T + 1).flags.c_contiguous and not x.T.flags.c_contiguous
    assert cupy.empty_like(x.T).strides == x.T.strides and x.T.copy(order="K").strides == x.T.strides
