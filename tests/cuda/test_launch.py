"""Arguments of launches: packed as C does, in blocks that no two threads fill at once."""

import ctypes
import types

import cupy
import numpy as np
import pytest

from tensorgrad.kernels.cuda.runtime import launch

C = {
    cupy.ndarray: ctypes.c_uint64, np.int64: ctypes.c_int64, np.uint64: ctypes.c_uint64, np.int32: ctypes.c_int32,
    np.uint32: ctypes.c_uint32, np.float32: ctypes.c_float, np.float64: ctypes.c_double, np.bool_: ctypes.c_bool,
}  # fmt: skip


def arguments():
    """Every class after every other, with values that do not fit into a smaller type."""
    values = {
        cupy.ndarray: cupy.zeros(3, np.float32), np.int64: np.int64(-(2**40)), np.uint64: np.uint64(2**63 + 1),
        np.int32: np.int32(-(2**30)), np.uint32: np.uint32(2**31 + 1), np.float32: np.float32(np.inf),
        np.float64: np.float64(1e300), np.bool_: np.bool_(True),
    }  # fmt: skip
    assert set(values) == set(C) == {each for each in launch.LETTERS if not issubclass(each, launch.Record)}
    return [values[each] for first in values for second in values for each in (first, second)]


def test_arguments_are_packed_as_in_c():
    given = arguments()

    class Expected(ctypes.Structure):
        _fields_ = tuple((f"a{i}", C[a.__class__]) for i, a in enumerate(given))

    expected = Expected(*(a.data.ptr if isinstance(a, cupy.ndarray) else a.item() for a in given))
    how = launch.layout(tuple(a.__class__ for a in given))
    block = how.filled(given)
    assert block.size.value == how.size
    assert Expected.__dict__[f"a{len(given) - 1}"].offset + ctypes.sizeof(C[given[-1].__class__]) == how.size
    for name, _ in Expected._fields_:
        field = Expected.__dict__[name]
        part = slice(field.offset, field.offset + field.size)
        assert bytes(block.memory)[part] == bytes(expected)[part], name


class Raw:
    """CuPy's kernel, as far as a launch asks for it."""

    kernel = types.SimpleNamespace(ptr=77)

    def __init__(self):
        self.calls = []

    def __call__(self, grid, block, given, shared_mem=0):
        self.calls.append((grid, block, given, shared_mem))


def packed_at(described):
    """The bytes of the arguments that the driver is told of."""
    _, address, _, size, end = (ctypes.c_void_p * 5).from_address(described)
    assert not end
    return ctypes.string_at(address, ctypes.c_size_t.from_address(size).value)


@pytest.mark.parametrize("refuses", [False, True])
def test_the_driver_launches(refuses, monkeypatch):
    """... and if it refuses, CuPy does, which makes a context or names the error."""
    seen = []

    def driver(*given):
        seen.append((*given[:10], packed_at(given[10])))
        if refuses:
            raise RuntimeError("CUDA_ERROR_INVALID_CONTEXT")

    raw = Raw()
    monkeypatch.setattr(launch, "_launcher", lambda: driver)
    function = launch.Function(raw)
    function((3,), (64, 2), (np.int64(5), np.float32(0.5)), shared_mem=16)
    stream = cupy.cuda.get_current_stream().ptr
    packed = bytes(ctypes.c_int64(5)) + bytes(ctypes.c_float(0.5))
    assert seen == [(77, 3, 1, 1, 64, 2, 1, 16, stream, 0, packed)]
    assert len(raw.calls) == refuses


def test_cupy_launches_what_has_no_layout(monkeypatch):
    monkeypatch.setattr(launch, "_launcher", lambda: lambda *given: pytest.fail("the driver was called"))
    raw = Raw()
    launch.Function(raw)((1,), (1,), (np.complex64(1),))
    assert [call[2] for call in raw.calls] == [(np.complex64(1),)]


def test_blocks_in_use_are_not_shared():
    how = launch.layout((np.int64,))
    one, other = how.filled((np.int64(1),)), how.filled((np.int64(2),))
    assert (bytes(one.memory), bytes(other.memory)) == (bytes(ctypes.c_int64(1)), bytes(ctypes.c_int64(2)))
    how.free.append(one)
    assert how.filled((np.int64(3),)) is one


def test_a_structure_is_passed_by_value():
    kind = np.dtype([("a", np.int64), ("b", np.float32), ("c", np.int32)])
    given = np.int32(7), launch.record(np.array((5, 0.5, 3), kind)), np.bool_(True)

    class Inner(ctypes.Structure):
        _fields_ = (("a", ctypes.c_int64), ("b", ctypes.c_float), ("c", ctypes.c_int32))

    class Expected(ctypes.Structure):
        _fields_ = (("first", ctypes.c_int32), ("inner", Inner), ("last", ctypes.c_bool))

    expected = Expected(7, Inner(5, 0.5, 3), True)
    how = launch.layout(tuple(a.__class__ for a in given))
    found, wanted = bytes(how.filled(given).memory), bytes(expected)
    for name, size in (("first", 4), ("inner", 16), ("last", 1)):
        start = getattr(Expected, name).offset
        assert found[start : start + size] == wanted[start : start + size], name


def test_prepared_launches_differ_in_their_arrays(monkeypatch):
    seen = []

    monkeypatch.setattr(launch, "_launcher", lambda: lambda *given: seen.append((*given[:10], packed_at(given[10]))))
    x, y = cupy.zeros(3, np.float32), cupy.zeros(5, np.float32)
    numbers = np.float32(0.5), np.bool_(True)
    arguments = numbers[0], launch.ARRAY, numbers[1], launch.ARRAY, np.int64(0)
    function = launch.Function(Raw())
    prepared = function.prepared((3,), (64, 2), arguments, 16)
    for a, b in ((x, y), (y, x), (x, x)):  # the first compiles
        prepared(a, b)
        function((3,), (64, 2), (numbers[0], a, numbers[1], b, np.int64(0)), shared_mem=16)
        assert seen[-1] == seen[-2]


def test_prepared_launches_where_cupy_launches(monkeypatch):
    """Without CuPy's binding, and for arguments that have no layout: CuPy gets the arrays in their places."""
    x = cupy.zeros(3, np.float32)
    for launcher, number in ((None, np.int64(3)), (lambda *given: pytest.fail("called"), np.complex64(1))):
        monkeypatch.setattr(launch, "_launcher", lambda launcher=launcher: launcher)
        raw = Raw()
        prepared = launch.Function(raw).prepared((1,), (32,), (number, launch.ARRAY))
        prepared(x)
        prepared(x)
        assert [given[2][1] is x and given[2][0] == number for given in raw.calls] == [True, True]


def test_a_refused_prepared_launch_is_left_to_cupy(monkeypatch):
    calls = []

    def driver(*given):
        calls.append(given)
        if len(calls) > 1:
            raise RuntimeError("CUDA_ERROR_INVALID_CONTEXT")

    monkeypatch.setattr(launch, "_launcher", lambda: driver)
    x, raw = cupy.zeros(3, np.float32), Raw()
    prepared = launch.Function(raw).prepared((1,), (32,), (launch.ARRAY, np.int64(2)))
    prepared(x)
    assert not raw.calls
    prepared(x)
    assert [given[2] for given in raw.calls] == [(x, np.int64(2))]


def test_parts_of_temporary_arrays(monkeypatch):
    x, seen, raw = cupy.arange(10, dtype=np.float32), [], Raw()
    monkeypatch.setattr(launch, "_launcher", lambda: lambda *given: seen.append(packed_at(given[10])))
    prepared = launch.Function(raw).prepared((1,), (32,), (launch.ARRAY, launch.ARRAY))
    for _ in range(2):  # the first compiles
        prepared(x, launch.Part(x, 4, 3))
    assert seen[0] == seen[1] == bytes(ctypes.c_uint64(x.data.ptr)) + bytes(ctypes.c_uint64(x.data.ptr + 16))
    monkeypatch.setattr(launch, "_launcher", lambda: None)
    launch.Function(raw).prepared((1,), (32,), (launch.ARRAY,))(launch.Part(x, 4, 3))
    assert raw.calls[0][2][0].get().tolist() == [4.0, 5.0, 6.0]
