"""Helpers shared by the tests: seeded arrays, calls under both libraries, and assertions about their results.

All of them accept tensors of tensorgrad and of torch alike, and none of them needs torch to be installed. A test whose
whole body can run under either library is better written as a scenario: see tests/support/alike.py.
"""

import io
import warnings
from collections.abc import Mapping

import numpy as np

import tensorgrad

# --- arrays ----------------------------------------------------------------------------------------------------------


def normal(*shape, seed=0, dtype=np.float32) -> np.ndarray:
    """Returns an array of normal random values; their imaginary parts are normal too if the dtype is complex.

    Args:
        seed: A seed, or a generator to draw from.
    """
    generator = np.random.default_rng(seed)
    values = generator.standard_normal(shape)
    if np.dtype(dtype).kind == "c":
        values = values + 1j * generator.standard_normal(shape)
    return np.asarray(values).astype(dtype)


def array_of(value) -> np.ndarray:
    """Returns a tensor of either library as a NumPy array on the host, anything else by np.asarray.

    A bfloat16 tensor becomes a float32 array, which holds the same values.
    """
    if not hasattr(value, "detach"):
        return np.asarray(value)
    value = value.detach().cpu()
    if dtype_name(value) == "bfloat16":
        value = value.float()
    return value.resolve_conj().resolve_neg().numpy()


def dtype_name(value) -> str:
    """Returns the name of the dtype of an array or of a tensor of either library, such as "float32"."""
    return str(value.dtype).rpartition(".")[2]


def to_torch(value, requires_grad=None):
    """Returns a copy of an array or tensor as torch's, in tuples and lists too; anything else is returned unchanged.

    Args:
        requires_grad: Whether the result requires grad; None keeps what a tensor has.
    """
    import torch

    if isinstance(value, tensorgrad.Tensor):
        made = torch.from_numpy(np.array(array_of(value))).to(getattr(torch, dtype_name(value)))
        return made.requires_grad_(value.requires_grad if requires_grad is None else requires_grad)
    if isinstance(value, np.ndarray | np.generic):
        # A copy, because torch supports neither negative strides nor read-only memory.
        return torch.from_numpy(np.array(value)).requires_grad_(bool(requires_grad))
    if isinstance(value, tuple | list):
        return type(value)(to_torch(part, requires_grad) for part in value)
    return value


# --- calls -----------------------------------------------------------------------------------------------------------


def quietly(call, *args, **kwargs):
    """Returns what a call returns, and ignores its warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return call(*args, **kwargs)


def outcome(call, *args, **kwargs):
    """Returns what a call returns, or the exception that it raises. Warnings are ignored."""
    try:
        return quietly(call, *args, **kwargs)
    except Exception as error:
        return error


def evaluate(library, expression: str, **names):
    """Returns the value of an expression, or the exception that it raises.

    Args:
        library: What `l` is in the expression; `F` is its nn.functional.
        names: Whatever else the expression uses.
    """
    return outcome(eval, expression, {"l": library, "F": library.nn.functional, **names})


def type_name(error: Exception) -> str:
    """Returns the name of an exception's type, to compare it with the other library's.

    A kernel may raise NotImplementedError where PyTorch raises its base class RuntimeError, so both have one name.
    """
    return type(error).__name__.lstrip("_").replace("NotImplementedError", "RuntimeError")


def under_both(call, *arrays):
    """Returns `call(library, *tensors)` under tensorgrad and under torch; each gets its own copies of the arrays."""
    import torch

    return tuple(call(library, *(library.from_numpy(a.copy()) for a in arrays)) for library in (tensorgrad, torch))


def saved(value, library=tensorgrad, **options) -> io.BytesIO:
    """Returns what a library's `save` writes, ready to be read."""
    file = io.BytesIO()
    library.save(value, file, **options)
    file.seek(0)
    return file


# --- assertions ------------------------------------------------------------------------------------------------------


def assert_equal(found, expected, what="") -> None:
    """Asserts equal dtypes, shapes and values; nan equals nan.

    Args:
        found, expected: Tensors of either library, or arrays or scalars, also nested in tuples, lists and dicts.
            A tensor is never equal to an array: compare it with array_of. Other values must be equal.
        what: A description for the message.
    """
    for a, b, _, where in _pairs(found, expected, str(what)):
        _equal(a, b, where)


def assert_close(found, expected, tolerance=1e-5, *, atol=None, scale=1.0, relative_to_largest=False, what="") -> None:
    """Asserts equal dtypes and shapes, and values that differ by at most atol + tolerance * |expected|.

    Values are compared in double precision, and exactly if they are integers or booleans; nan is close to nan.

    Args:
        found, expected: Tensors of either library, or arrays or scalars, also nested in tuples, lists and dicts.
            A tensor is never close to an array: compare it with array_of. Other values must be equal.
        tolerance: The relative tolerance, or a mapping of dtype names to such; dtypes that it lacks must be equal.
        atol: The absolute tolerance; as large as the relative one by default.
        scale: A factor for both tolerances.
        relative_to_largest: Whether to multiply atol by the largest expected value, if that is more than 1.
        what: A description for the message.
    """
    for a, b, name, where in _pairs(found, expected, str(what)):
        if b.dtype.kind in "biu":
            _equal(a, b, where)
            continue
        rtol = scale * (tolerance.get(name, 0) if isinstance(tolerance, Mapping) else tolerance)
        limit = rtol if atol is None else scale * atol
        if relative_to_largest and b.size:
            limit *= max(1.0, float(np.abs(b).max()))
        wide = np.complex128 if b.dtype.kind == "c" else np.float64
        a, b = a.astype(wide), b.astype(wide)
        with np.errstate(all="ignore"):
            near = np.isfinite(b).all() and (np.abs(a - b) <= limit + rtol * np.abs(b)).all()
        if not near:
            np.testing.assert_allclose(a, b, rtol=rtol, atol=limit, err_msg=where)


def _equal(a: np.ndarray, b: np.ndarray, where: str) -> None:
    """NumPy's assertion, where arrays are not equal at first sight: it takes twenty times as long."""
    if not np.array_equal(a, b):
        np.testing.assert_array_equal(a, b, err_msg=where)


def _pairs(found, expected, what: str):
    """Yields (found, expected, the dtype's name, where) for each pair of arrays in two nested values."""
    if isinstance(expected, Mapping):
        assert isinstance(found, Mapping), f"{what}: {type(found)}, expected {type(expected)}"
        assert list(found) == list(expected), what
        for key in expected:
            yield from _pairs(found[key], expected[key], f"{what}[{key!r}]")
    elif isinstance(expected, tuple | list):
        assert isinstance(found, tuple | list), f"{what}: {type(found)}, expected {type(expected)}"
        assert len(found) == len(expected), f"{what}: {len(found)} values, expected {len(expected)}"
        for i, (f, e) in enumerate(zip(found, expected, strict=True)):
            yield from _pairs(f, e, f"{what}[{i}]")
    elif expected is None:
        assert found is None, f"{what}: {found}, expected None"
    elif not hasattr(expected, "dtype") and not isinstance(expected, bool | int | float | complex):
        assert type(found) is type(expected) and found == expected, f"{what}: {found!r}, expected {expected!r}"
    else:
        kinds = [type(value).__name__ for value in (found, expected)]
        assert hasattr(found, "detach") == hasattr(expected, "detach"), f"{what}: {kinds[0]}, expected {kinds[1]}"
        pair = [value if hasattr(value, "dtype") else np.asarray(value) for value in (found, expected)]
        names = [dtype_name(value) for value in pair]
        assert names[0] == names[1], f"{what}: dtype {names[0]}, expected {names[1]}"
        a, b = map(array_of, pair)
        assert a.shape == b.shape, f"{what}: shape {a.shape}, expected {b.shape}"
        yield a, b, names[1], what
