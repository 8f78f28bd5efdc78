"""`torch.testing`: `assert_close` compares results; `make_tensor` creates inputs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tensorgrad import dtypes, errors
from tensorgrad.layouts import strided
from tensorgrad.tensor import Tensor

# Tolerances by dtype: results may differ by rtol · |expected| + atol; 0 for exact dtypes.
TOLERANCES = {
    "float16": (1e-3, 1e-5), "bfloat16": (1.6e-2, 1e-5), "float32": (1.3e-6, 1e-5), "float64": (1e-7, 1e-7),
    "complex64": (1.3e-6, 1e-5), "complex128": (1e-7, 1e-7),
}  # fmt: skip


def assert_close(
    actual: Any,
    expected: Any,
    *,
    allow_subclasses: bool = True,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = False,
    check_device: bool = True,
    check_dtype: bool = True,
    check_layout: bool = True,
    check_stride: bool = False,
    msg: str | Callable[[str], str] | None = None,
) -> None:
    """Checks that |actual - expected| <= atol + rtol · |expected|, for tensors, scalars, and nested containers.

    Args:
        rtol, atol: Both or neither; the defaults depend on the dtypes.
        msg: The error message, or a function that creates it from the default one.

    Raises:
        AssertionError: If they differ; the message says where and by how much.
        ValueError: If only one of `rtol` and `atol` is given.
        TypeError: If the inputs cannot be compared.

    >>> torch.testing.assert_close(torch.tensor([1.0]), torch.tensor([1.0 + 1e-7]))
    """
    _both_or_neither(rtol, atol)
    checks = {"device": check_device, "dtype": check_dtype, "layout": check_layout, "stride": check_stride}
    problem = _difference(actual, expected, (rtol, atol), equal_nan, checks, ())
    if problem is not None:
        raise AssertionError(msg(problem) if callable(msg) else msg or problem)


def assert_allclose(actual: Any, expected: Any, rtol=None, atol=None, equal_nan: bool = True, msg: str = "") -> None:
    """The predecessor of `assert_close`, which ignores dtypes.

    >>> torch.testing.assert_allclose(torch.tensor([1, 2]), torch.tensor([1.0, 2.0]))
    """
    import tensorgrad as torch

    actual, expected = (v if isinstance(v, Tensor) else torch.tensor(v) for v in (actual, expected))
    assert_close(actual, expected, rtol=rtol, atol=atol, equal_nan=equal_nan, check_dtype=False, msg=msg or None)


def _difference(actual, expected, tolerances, equal_nan, checks, path: tuple) -> str | None:
    """Describes the first difference; None if there is none."""

    def inside(a, e, key):
        return _difference(a, e, tolerances, equal_nan, checks, (*path, key))

    if isinstance(actual, Mapping) and isinstance(expected, Mapping):
        if set(actual) != set(expected):
            return _keys(actual, expected)
        return next((d for k in expected if (d := inside(actual[k], expected[k], k))), None)
    sequences = [isinstance(v, Sequence) and not isinstance(v, str | bytes) for v in (actual, expected)]
    if all(sequences):
        if len(actual) != len(expected):
            return f"The length of the sequences mismatch: {len(actual)} != {len(expected)}"
        return next((d for i, (a, e) in enumerate(zip(actual, expected)) if (d := inside(a, e, i))), None)
    if actual is None or expected is None:
        return None if actual is expected else _at(f"None mismatch: {actual} is not {expected}", path)
    if isinstance(actual, bool) and isinstance(expected, bool):
        return None if actual is expected else _at(f"Booleans mismatch: {actual} is not {expected}", path)
    known = (Tensor, np.ndarray, np.generic, bool, int, float, complex)
    if not (isinstance(actual, known) and isinstance(expected, known)):
        raise TypeError(
            f"No comparison pair was able to handle inputs of type {type(actual)} and {type(expected)}."
            + (f" (item {list(path)})" if path else "")
        )
    found = _leaf(actual, expected, tolerances, equal_nan, checks)
    return found and _at(found, path)


def _at(problem: str, path: tuple) -> str:
    return problem + ("" if not path else "\n\nThe failure occurred for item " + "".join(f"[{k!r}]" for k in path))


def _leaf(actual, expected, tolerances, equal_nan, checks) -> str | None:
    numbers = not isinstance(actual, Tensor | np.ndarray) and not isinstance(expected, Tensor | np.ndarray)
    a, e = (v if isinstance(v, Tensor) else _tensor(v) for v in (actual, expected))
    problem = _attributes(a, e, {**checks, "dtype": checks["dtype"] and not numbers})
    if problem is not None or a.device.type == "meta":
        return problem
    rtol, atol = _tolerances(a, e, *tolerances)
    return _all_values(a, e, rtol, atol, equal_nan, numbers or (a.numel() == 1 and a.ndim == 0))


def _attributes(a: Tensor, e: Tensor, checks: Mapping[str, bool]) -> str | None:
    """How the attributes of two tensors differ; None if they do not."""
    if a.shape != e.shape:
        return f"The values for attribute 'shape' do not match: {a.shape} != {e.shape}."
    if checks["layout"] and a.layout is not e.layout:
        return f"The values for attribute 'layout' do not match: {a.layout} != {e.layout}."
    if checks["device"] and a.device != e.device:
        return f"The values for attribute 'device' do not match: {a.device} != {e.device}."
    if checks["dtype"] and a.dtype is not e.dtype:
        return f"The values for attribute 'dtype' do not match: {a.dtype} != {e.dtype}."
    if checks["stride"] and a.layout is e.layout is strided and a.stride() != e.stride():
        return f"The values for attribute 'stride()' do not match: {a.stride()} != {e.stride()}."
    return None


def _both_or_neither(rtol: float | None, atol: float | None) -> None:
    if (rtol is None) != (atol is None):
        raise ValueError(
            "rtol and atol must both be specified or both be unspecified, but got no "
            f"{'rtol' if rtol is None else 'atol'}."
        )


def _tolerances(a: Tensor, e: Tensor, rtol: float | None, atol: float | None) -> tuple[float, float]:
    """The tolerances given, or those of the less precise dtype."""
    _both_or_neither(rtol, atol)
    if rtol is not None and atol is not None:
        return rtol, atol
    first, second = (TOLERANCES.get(t.dtype.name, (0.0, 0.0)) for t in (a, e))
    return max(first[0], second[0]), max(first[1], second[1])


def _keys(actual: Mapping, expected: Mapping) -> str:
    return "The keys of the mappings do not match:\n" + (
        f"Missing keys in the actual mapping: {sorted(set(expected) - set(actual), key=str)}\n"
        f"Additional keys in the actual mapping: {sorted(set(actual) - set(expected), key=str)}"
    )


def _tensor(value):
    import tensorgrad as torch

    return torch.as_tensor(value, dtype=torch.float64 if isinstance(value, float) else None)


def _numbers(tensor: Tensor) -> np.ndarray:
    """The values in the widest dtype of their kind, so that differences are exact."""
    array = tensor.detach().cpu()._array
    kind = array.dtype.kind
    return array.astype(np.complex128 if kind == "c" else np.float64 if kind not in "iub" else np.object_)


def _all_values(a: Tensor, e: Tensor, rtol: float, atol: float, equal_nan: bool, scalar: bool) -> str | None:
    """How the values of two tensors differ; of one sparse layout, also where these are. None if they do not."""
    if a.layout is not e.layout:
        a, e = (t if t.layout is strided else t.to_dense() for t in (a, e))
    if a.layout is strided:
        return _values(_numbers(a), _numbers(e), rtol, atol, equal_nan, scalar)
    if a.is_sparse and a.is_coalesced() != e.is_coalesced():
        a, e = a.coalesce(), e.coalesce()
    kind = str(a.layout).rpartition("_")[2].upper()
    if a._nnz() != e._nnz():
        return f"The number of specified values in sparse {kind} tensors does not match: {a._nnz()} != {e._nnz()}"
    for name in a._array.part_names:
        mine, other = (_numbers(getattr(t, f"_{name}" if t.is_sparse else name)()) for t in (a, e))
        limits = (rtol, atol) if name == "values" else (0.0, 0.0)
        problem = _values(mine, other, limits[0], limits[1], equal_nan, False, f"Sparse {kind} {name}")
        if problem is not None:
            return problem
    return None


def _values(
    a: np.ndarray, e: np.ndarray, rtol, atol, equal_nan: bool, scalar: bool, what: str = "Tensor-likes"
) -> str | None:
    with np.errstate(all="ignore"):
        if e.dtype == object or a.dtype == object:
            a, e = np.asarray(a, object), np.asarray(e, object)
        apart = np.abs(a - e)
        same = np.asarray((a == e) | (apart <= atol + rtol * np.abs(e)), bool)
        if a.dtype != object and e.dtype != object:
            same = np.asarray(np.where(np.isfinite(a) & np.isfinite(e), same, a == e), bool)
            if equal_nan:
                same |= np.isnan(a) & np.isnan(e)
        if same.all():
            return None
        relative = np.asarray([abs(x / y) if y else np.inf for x, y in zip(apart.ravel(), e.ravel())], float)
    exact = not rtol and not atol
    kind = "equal" if exact else "close"
    allowed = ["" if exact else f" (up to {limit} allowed)" for limit in (atol, rtol)]
    if scalar:
        return (
            f"Scalars are not {kind}!\n\nExpected {_plain(e)} but got {_plain(a)}.\n"
            f"Absolute difference: {_plain(apart)}{allowed[0]}\nRelative difference: {float(relative[0])}{allowed[1]}"
        )
    wrong = ~same.ravel()
    away = np.asarray(apart.ravel(), float)
    lines = [
        f"{what} are not {kind}!",
        "",
        f"Mismatched elements: {wrong.sum()} / {same.size} ({wrong.mean():.1%})",
    ]
    for name, values, limit in (("absolute", away, allowed[0]), ("relative", relative, allowed[1])):
        masked = np.where(wrong, values, -1.0)
        at = int(np.argmax(np.where(np.isnan(masked), np.inf, masked)))
        index = tuple(int(i) for i in np.unravel_index(at, same.shape))
        shown = _plain(apart.ravel()[at]) if name == "absolute" else float(values[at])
        lines.append(f"Greatest {name} difference: {shown} at index {index}{limit}")
    return "\n".join(lines)


def _plain(value) -> Any:
    value = np.asarray(value).ravel()[0]
    return value.item() if hasattr(value, "item") else value


def make_tensor(
    *shape: Any,
    dtype: dtypes.dtype,
    device: Any,
    low: float | None = None,
    high: float | None = None,
    requires_grad: bool = False,
    noncontiguous: bool = False,
    exclude_zero: bool = False,
    memory_format: Any = None,
) -> Tensor:
    """Creates a tensor of random values in [low, high).

    The defaults are -9 to 9 (0 to 9 for unsigned integers, 0 and 1 for bool). As in PyTorch, bounds beyond those of the
    dtype are moved to these, and the same seed gives the same values.

    Args:
        noncontiguous: Leave gaps between the elements.
        exclude_zero: Replace zeros by the smallest positive value.
        memory_format: That of the result; not together with `noncontiguous`.

    >>> torch.testing.make_tensor(2, 3, dtype=torch.int64, device="cpu", low=0, high=1)
    tensor([[0, 0, 0],
            [0, 0, 0]])
    """
    import tensorgrad as torch

    if len(shape) == 1 and isinstance(shape[0], Sequence):
        shape = tuple(shape[0])
    if noncontiguous and memory_format is not None:
        raise ValueError(
            f"The parameters `noncontiguous` and `memory_format` are mutually exclusive, but got {noncontiguous=} and "
            f"{memory_format=}"
        )
    floats = dtype.is_floating_point or dtype.is_complex
    if requires_grad and not floats:
        raise ValueError(f"`requires_grad=True` is not supported for boolean and integral dtypes, but got {dtype=}")
    low, high = _bounds(dtype, floats, low, high)
    gaps = noncontiguous and math.prod(shape) > 1
    whole = (*shape[:-1], 2 * shape[-1]) if gaps else shape
    if floats:
        narrow = dtype.is_floating_point and dtype.itemsize == 1
        made = torch.empty(whole, dtype=dtypes.float32 if narrow else dtype, device=device)
        numbers = torch.view_as_real(made) if dtype.is_complex else made
        half = high - low >= dtypes.finfo(numbers.dtype).max  # `uniform_` cannot draw from so wide a range
        numbers.uniform_(low / 2, high / 2).mul_(2) if half else numbers.uniform_(low, high)
        made = made.to(dtype)
    else:
        made = torch.randint(math.ceil(low), math.ceil(high), whole, device=device, dtype=dtype)
    if gaps:
        made = made[..., 1::2]
    elif memory_format is not None:
        made = made.clone(memory_format=memory_format)
    if exclude_zero:
        made[made == 0] = dtypes.finfo(dtype).tiny if floats else 1
    return made.requires_grad_() if requires_grad else made


def _bounds(dtype: dtypes.dtype, floats: bool, low: float | None, high: float | None) -> tuple[float, float]:
    """What values are drawn from. Raises: ValueError if that is not an interval, or one that the dtype cannot hold."""
    boolean = dtype is dtypes.bool
    if floats:
        least, end = dtypes.finfo(dtype).min, dtypes.finfo(dtype).max
    else:
        info = dtypes.iinfo(dtypes.uint8 if boolean else dtype)
        least, end = info.min, 2 if boolean else info.max + (dtype is not dtypes.int64)
    low = (0 if boolean else -9) if low is None else low
    high = (2 if boolean else 9 if floats else 10) if high is None else high
    if math.isnan(low) or math.isnan(high):
        raise ValueError(f"`low` and `high` cannot be NaN, but got {low=} and {high=}")
    if low == high and floats and dtype.itemsize > 1:
        errors.warn(
            "Passing `low==high` to `torch.testing.make_tensor` for floating or complex types is deprecated since 2.1 "
            "and will be removed in 2.3. Use `torch.full(...)` instead.",
            FutureWarning,
        )
    elif low >= high:
        raise ValueError(f"`low` must be less than `high`, but got {low} >= {high}")
    elif high < least or low >= end:
        raise ValueError(
            f"The value interval specified by `low` and `high` is [{low}, {high}), but {dtype} only supports [{least}, "
            f"{end})"
        )
    return min(max(low, least), end), min(max(high, least), end)
