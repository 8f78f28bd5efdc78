"""NumPy's arrays and scalars beside a tensor: every operator and function × dtypes × kinds of operand, as PyTorch's.

PyTorch leaves `tensor + array` to NumPy, which promotes by its own rules and returns a tensor through
`Tensor.__array_wrap__`; it refuses `array + tensor`; `tensor += array` is `tensor = tensor + array`; and functions take
NumPy's scalars as Python's numbers, and no arrays.
"""

import operator
import warnings

import numpy as np
import pytest

import tensorgrad as tg

torch = pytest.importorskip("torch", reason="torch is the oracle of these tests")

_BINARY = (
    "add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and_", "or_", "xor", "lshift", "rshift", "eq", "ne",
    "lt", "le", "gt", "ge", "matmul",
)  # fmt: skip
_IN_PLACE = (
    "iadd", "isub", "imul", "itruediv", "ifloordiv", "imod", "ipow", "iand", "ior", "ixor", "ilshift", "irshift",
)  # fmt: skip
_FUNCTIONS = (
    "add", "sub", "mul", "div", "pow", "remainder", "fmod", "floor_divide", "true_divide", "eq", "lt", "ne", "maximum",
    "atan2", "bitwise_and", "bitwise_or", "logical_and", "xlogy", "rsub",
)  # fmt: skip
_METHODS = ("add", "sub", "mul", "div", "pow", "lt", "add_", "mul_", "sub_", "pow_", "ge_", "bitwise_and")


def written(left, name, right):
    """The operator `name` on two of the tensor `t` and the operand `x`."""
    function = getattr(operator, name)
    return lambda l, t, x: function({"t": t, "x": x}[left], {"t": t, "x": x}[right])


def function(name):
    return lambda l, t, x: getattr(l, name)(t, x)


def method(name):
    return lambda l, t, x: getattr(t, name)(x)


CALLS = {f"t {name} x": written("t", name, "x") for name in (*_BINARY, *_IN_PLACE)}
CALLS |= {f"x {name} t": written("x", name, "t") for name in _BINARY}
CALLS |= {f"{name}(t, x)": function(name) for name in _FUNCTIONS}
CALLS |= {f"t.{name}(x)": method(name) for name in _METHODS}
CALLS |= {
    "add(t, x, out=)": lambda l, t, x: l.add(t, x, out=l.empty(2, dtype=l.float64)),
    "where(c, t, x)": lambda l, t, x: l.where(t > 0, t, x),
    "where(c, x, t)": lambda l, t, x: l.where(t > 0, x, t),
    "t.where(c, x)": lambda l, t, x: t.where(t > 0, x),
}

ARRAYS = {
    "float64[2]": np.array([1.5, 2.5]),
    "int64[2]": np.array([300, 2]),
    "bool[2]": np.array([True, False]),
    "float32[2]": np.array([1.5, 2.5], np.float32),
    "uint8[2]": np.array([1, 2], np.uint8),
    "complex128[2]": np.array([1j, 2]),
    "float64, 0-d": np.array(1.5),
    "int64, 0-d": np.array(2),
    "float64[1]": np.array([1.5]),
    "float64[2, 2]": np.ones((2, 2)),
    "every second": np.arange(4.0)[::2],
    "backwards": np.arange(2.0)[::-1],
    "big endian": np.array([1.5, 2.5], ">f8"),
    "read-only": np.broadcast_to(np.float64(1.5), (2,)),
}
SCALARS = {
    "np.float64": np.float64(1.5), "np.float32": np.float32(1.5), "np.float16": np.float16(1.5),
    "np.int64": np.int64(2), "np.uint8": np.uint8(2), "np.bool_": np.bool_(True), "np.complex128": np.complex128(1j),
}  # fmt: skip
OTHERS = {"a list": [1.5, 2.5], "a tuple": (1, 2), "a string": "a", "None": None, "of objects": np.array([None, 1])}
DTYPES = ("int64", "bool", "uint8", "float32", "float16", "complex64")
_REFUSED = (TypeError, RuntimeError, ValueError)  # NotImplementedError and NumPy's UFuncTypeError are among them


def outcome(library, call, dtype, operand):
    """The kind of the result, its dtype and values; "refused" for an error; also what became of the tensor."""
    t = library.tensor([1, 2], dtype=getattr(library, dtype))
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            made = call(library, t, operand)
    except _REFUSED:
        made = "refused"
    return described(library, made), described(library, t)


def described(library, made):
    if isinstance(made, library.Tensor):
        return "tensor", str(made.dtype).rpartition(".")[2], made.tolist()
    if isinstance(made, np.ndarray):
        return "array", str(made.dtype), made.tolist()
    return type(made).__name__, str(made), None


def same(found, expected) -> bool:
    if found[:2] != expected[:2]:
        return False
    if isinstance(expected[2], list):
        return np.allclose(np.array(found[2]), np.array(expected[2]), rtol=1e-3, atol=1e-6, equal_nan=True)
    return found[2] == expected[2]


@pytest.mark.parametrize("name", CALLS)
def test_as_torch(name):
    differences = []
    for dtype in DTYPES:
        for kind, operand in {**ARRAYS, **SCALARS, **OTHERS}.items():
            if " ne " in name and kind in ARRAYS:
                continue  # PyTorch's `tensor != array` is True, whatever they contain
            found, expected = (outcome(library, CALLS[name], dtype, operand) for library in (tg, torch))
            if not all(map(same, found, expected)):
                differences.append(f"{dtype}, {kind}: {found} | {expected}")
    assert not differences, "\n".join(["(found here, then torch's)", *differences])


def test_of_the_issue():
    assert (tg.tensor([2]) + np.array([1.5])).tolist() == [3.5]
    assert (tg.tensor([True]) + np.array([2])).tolist() == [3]
    assert (tg.tensor([1], dtype=tg.uint8) + np.array([300])).tolist() == [301]


@pytest.mark.parametrize("kind", [kind for kind in ARRAYS if kind not in ("backwards", "big endian")])
def test_not_equal_is_the_opposite_of_equal(kind):
    for dtype in DTYPES:
        t, x = tg.tensor([1, 2], dtype=getattr(tg, dtype)), ARRAYS[kind]
        assert (t != x).tolist() == (~(t == x)).tolist() == (x != t).tolist()


def test_gradients_are_not_lost_silently():
    with pytest.raises(RuntimeError, match="requires grad"):
        tg.ones(2, requires_grad=True) * np.ones(2)


def test_results_of_numpy_that_no_dtype_holds_are_refused():
    with pytest.raises(TypeError, match="datetime64"):
        tg.tensor([1]) + np.array([1], "M8[s]")
