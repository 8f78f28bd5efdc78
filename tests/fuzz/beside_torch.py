"""What both methods that compare with PyTorch share: how values are compared, and which differences are meant.

PyTorch is installed for these tests only; without it they do not run.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import numpy as np

TOLERANCES = {  # relative to the largest number, by dtype
    "float64": 1e-8, "complex128": 1e-8, "float32": 2e-4, "complex64": 2e-4, "bfloat16": 4e-2, "float16": 1e-2,
}  # fmt: skip


class Known(NamedTuple):
    """Differences that are meant: all whose case and description these patterns find."""

    case: str
    difference: str
    reason: str


# Errors of one kind: PyTorch raises now one, now another of them for what it has no kernel for.
ALIKE = {"NotImplementedError": "RuntimeError", "LinAlgError": "RuntimeError", "_LinAlgError": "RuntimeError"}


def kind_of(error: Exception) -> str:
    name = type(error).__name__
    return ALIKE.get(name, name)


class Difference(Exception):
    """A case in which tensorgrad and PyTorch differ."""


def meant(case: str, difference: str, known: tuple[Known, ...]) -> str:
    """Returns the reason why a difference is meant, or nothing."""
    for each in known:
        if re.search(each.case, case) and re.search(each.difference, difference, re.DOTALL):
            return each.reason
    return ""


def name_of(dtype: Any) -> str:
    return str(dtype).rpartition(".")[2]


def numbers(tensor: Any) -> np.ndarray:
    """Returns a tensor's values, bfloat16's as float32."""
    tensor = tensor.detach().clone()  # PyTorch never again resizes memory that it has lent to NumPy
    if name_of(tensor.dtype) == "bfloat16":
        tensor = tensor.float()
    return np.asarray(tensor.resolve_conj().resolve_neg().numpy())


def values_differ(found: np.ndarray, expected: np.ndarray, dtype: str, factor: float = 1.0) -> str:
    """Returns how two arrays of the same shape differ; nothing if they agree up to rounding, nan and infinities too."""
    if found.dtype.kind not in "fc":
        return "" if np.array_equal(found, expected) else "values"
    with np.errstate(all="ignore"):
        if found.dtype.kind == "c":
            parts = [(np.real, "real"), (np.imag, "imag")]
            return next(filter(None, (values_differ(p(found), p(expected), dtype, factor) for p, _ in parts)), "")
        if not np.array_equal(np.isnan(found), np.isnan(expected)):
            return "nan"
        infinite = np.isinf(expected) | np.isinf(found)
        if not np.array_equal(found[infinite], expected[infinite]):
            return "inf"
        usual = np.isfinite(expected) & np.isfinite(found)
        f, e = found[usual].astype(np.float64), expected[usual].astype(np.float64)
        scale = max(1.0, float(np.abs(e).max(initial=0.0)))
        return "values" if (np.abs(f - e) > factor * TOLERANCES[dtype] * scale).any() else ""


def shown(array: np.ndarray) -> str:
    text = " ".join(np.array2string(array, precision=5, threshold=12).split())
    return text if len(text) < 160 else text[:157] + "…"
